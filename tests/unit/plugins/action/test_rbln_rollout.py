# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts of a play go, as the act plan cuts them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.action import rbln_rollout
from ansible_collections.rebellions.npu.plugins.action.rbln_rollout import ActionModule
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.places import Place
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.rollout_api import Api, node

Data = dict[str, Any]
UUID = "4c4c4544-0051-3610-8052-b4c04f4e4d3%d"
OPERANDS = {"require_node_proof": False, "resource_name": "rebellions.ai/npu", "kubeconfig": "", "context": ""}
STEP = {"id": "driver.install", "role": "driver", "component": "driver", "disruption": "evict"}


class HostVars(dict[str, Any]):
    def raw_get(self, host: str) -> Any:
        return self[host]


def machine(name: str, number: int) -> Data:
    return {**node(name), "status": {"nodeInfo": {"systemUUID": UUID % number}}}


def plan(number: int, steps: bool = True) -> Data:
    facts = {"rbln": {"identity": {"system_uuid": UUID % number}, "pool_key": "p"}}
    return {"steps": [STEP] if steps else [], "stops": [], "observation": {"ansible_facts": facts}}


def of_play(**plans: Data) -> Data:
    hostvars = HostVars({host: {"rbln_preflight_plan": one} for host, one in plans.items()})
    first = next(iter(plans))
    groups = {"all": list(plans)}
    shared = {"hostvars": hostvars, "groups": groups, "inventory_hostname": first, "ansible_run_tags": ["driver"]}
    return {**hostvars[first], **shared, "ansible_play_batch": list(plans)}


class Rollout(ActionModule):
    """The hosts of one cluster, with these nodes."""

    def __init__(self, *nodes: Data) -> None:
        self.api = Api(*nodes)
        self._dry_run = False
        self._task = SimpleNamespace(check_mode=False)
        self._local: dict[str, str] = {}

    def _places(self, task_vars: Any, hosts: Any) -> list[Place]:
        given = {"enabled": True, "before": "", "after": "", "smoke": False}
        return [Place(("here", "mark"), OPERANDS, given, list(hosts))]  # type: ignore[arg-type]

    def _open(self, inputs: Any) -> Any:
        return self.api


@pytest.fixture(autouse=True)
def _judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rbln_rollout.of_rollout, "judge_place", lambda given, operands: None)
    monkeypatch.setattr(rbln_rollout.of_rollout, "settings_of", lambda given, pools: {})


TWINS = (machine("node-1", 1), machine("node-2", 1), machine("node-3", 3))


def test_a_host_that_may_be_two_nodes_is_refused_before_it_is_changed() -> None:
    with pytest.raises(NpuError, match="a has the system UUID or machine id of 2 nodes: node-1, node-2"):
        Rollout(*TWINS)._plan({}, of_play(a=plan(1)))
    # A host that is no node at all has nothing to leave, and one that nothing disturbs is not asked.
    for hosts in ({"a": plan(7)}, {"a": plan(1, False), "b": plan(7)}):
        assert Rollout(*TWINS)._plan({}, of_play(**hosts)) == {"changed": False, "hosts": ""}


def test_a_host_whose_node_is_not_known_stops_no_other() -> None:
    play, rollout = of_play(a=plan(1), b=plan(3), c=plan(7)), Rollout(*TWINS)
    (place,) = rollout._places(play, "abc")
    nodes, wrong = rollout._nodes(rollout.api, place, {"a": plan(1), "b": plan(3), "c": plan(7)}, play)  # type: ignore[arg-type]
    assert {host: one["metadata"]["name"] for host, one in nodes.items() if one} == {"b": "node-3"}
    assert list(wrong) == ["a"] and " Next: Set rbln_node_name for a." in wrong["a"]
