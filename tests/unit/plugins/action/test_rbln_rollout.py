# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts of a play go, as the act plan cuts them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from ansible_collections.rebellions.npu.plugins.action import rbln_rollout
from ansible_collections.rebellions.npu.plugins.action.rbln_rollout import ActionModule
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.roles import COLLECTION
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.inputs import Inputs
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout import gather
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.fleet import Fleet
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.places import Place
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.turn import Refused
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
    plans, asked = {"a": plan(1), "b": plan(3), "c": plan(7)}, rollout._known(rollout.api, [place], play)  # type: ignore[arg-type]
    nodes, wrong = rollout._nodes(asked, place, plans, play)
    assert {host: one["metadata"]["name"] for host, one in nodes.items() if one} == {"b": "node-3"}
    assert list(wrong) == ["a"] and " Next: Set rbln_node_name for a." in wrong["a"]


def test_a_host_that_is_stopped_does_not_count_as_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its failure stays in the record, so that no other wave begins without it."""
    seen: list[Any] = []
    monkeypatch.setattr(gather, "require_rollout_rights", lambda *more: None)
    monkeypatch.setattr(gather, "policy_of", lambda *more: None)
    monkeypatch.setattr(Rollout, "_store", lambda *more: SimpleNamespace(claim=lambda run: None))
    monkeypatch.setattr(Fleet, "cut", lambda self, *more: seen.append(self.nodes))
    hosts = {"host-%d" % number: plan(number, number == 1) for number in range(1, 5)}
    hosts["host-2"]["stops"] = [{"code": "disk_full"}]
    hosts["host-3"]["unrepaired"] = ["device_lost"]
    play = {**of_play(**hosts), "ansible_run_tags": ["all"]}
    Rollout(*(machine("node-%d" % number, number) for number in range(1, 5)))._plan({}, play)
    assert seen == [{"node-1", "node-4"}]
    # Without a cluster the store knows which of them work as they are.
    stores: list[Any] = []
    alone: Any = Place(("", ""), OPERANDS, {"enabled": True, "before": "", "after": ""}, list(hosts))  # type: ignore[arg-type]
    monkeypatch.setattr(Rollout, "_store", lambda self, *more: stores.append(more) or SimpleNamespace(claim=bool))
    monkeypatch.setattr(Rollout, "_places", lambda self, task_vars, hosts: [alone])
    monkeypatch.setattr(Fleet, "limited", True)
    Rollout()._plan({}, play)
    ((_cluster, _operands, pools, _task_vars, works, elsewhere),) = stores
    assert (set(pools), works, elsewhere) == (set(hosts), {"host-4"}, set())


def linear(strategy: str = "linear", parent: bool = True) -> Rollout:
    """In a play with this strategy."""
    rollout = Rollout()
    play = SimpleNamespace(strategy=strategy)
    block = SimpleNamespace(_play=play, _parent=None)
    rollout._task = SimpleNamespace(_parent=SimpleNamespace(_parent=block)) if parent else SimpleNamespace()
    return rollout


def test_a_play_that_takes_hosts_together_is_known_by_its_strategy() -> None:
    for strategy in ("linear", "ansible.builtin.linear", "debug"):
        assert linear(strategy)._is_linear(), strategy
    for strategy in ("{{ cut.strategy }}", "free", "ansible.builtin.host_pinned"):
        assert not linear(strategy)._is_linear(), strategy
    assert linear(parent=False)._is_linear() is False


def test_a_play_of_hosts_that_would_wait_for_each_other_is_refused() -> None:
    turns = {
        "a": {"node": "node-a", "pool": "p", "wave": 1},
        "b": {"node": "node-b", "pool": "p", "wave": 2},
        "c": {"node": "node-c", "pool": "q", "wave": 3},
    }
    with pytest.raises(Refused, match="the strategy linear and takes hosts of the waves 1, 2 at once") as told:
        linear()._together(turns, turns["a"], ["a", "b", "c", "d"])
    assert " Next: Give the play that changes hosts the order, serial and strategy" in str(told.value)
    # Waves of another pool are none of its own.
    assert linear()._together(turns, turns["a"], ["a", "c", "d"]) == ["node-c"]


def planned_by(tmp_path: Path, *argv: str) -> str:
    """The screen of hosts without Kubernetes, by the variables of playbooks/plan.yml and the real ansible-playbook."""
    (plan_play, _result) = yaml.safe_load((COLLECTION / "playbooks" / "plan.yml").read_text(encoding="utf-8"))
    (cut,) = [task for task in plan_play["tasks"] if task["name"] == "Cut the waves"]
    facts = {"rbln": {"pool_key": "p"}, "rbln_observed": {}, "rbln_runtimes": {}}
    made = {"steps": [{**STEP, "now": "1", "wanted": "2", "reason": "", "after": ""}], "stops": [], "cautions": [],
            "wanted": {}, "observation": {"ansible_facts": facts}}  # fmt: skip
    show = {"name": "Show the plan", "rebellions.npu.rbln_plan_show": {}, "run_once": True}
    leave = {"rebellions.npu.rbln_rollout": {"act": "leave"}, "check_mode": True}
    tasks = [{"ansible.builtin.set_fact": {"rbln_preflight_plan": made}}, cut, show, leave]
    mine = {"__rbln_rollout_upgrade": plan_play["vars"]["__rbln_rollout_upgrade"]}
    book = [{"hosts": "all", "gather_facts": False, "vars": mine, "tasks": tasks}]
    (tmp_path / "book.yml").write_text(yaml.safe_dump(book))
    program = [sys.executable, "-m", "ansible", "playbook", "-i", "n1,n2,n3,", "book.yml", *argv]
    env = {name: os.environ[name] for name in ("HOME", "LANG", "LC_ALL", "PATH", "TMPDIR") if name in os.environ}
    env.update(ANSIBLE_COLLECTIONS_PATH=str(COLLECTION.parents[2]), XDG_CACHE_HOME=str(tmp_path))
    done = subprocess.run(program, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_playbook_plan_shows_what_site_or_upgrade_would_do(tmp_path: Path) -> None:
    site = [
        "Rollout of 3 hosts in 1 wave, as the playbook site goes",
        "  Show that of upgrade: -e rbln_plan_upgrade=true",
    ]
    # Without limits hosts that have no cluster wait for nothing.
    lines = planned_by(tmp_path, "-e", "rbln_plan_upgrade=", "-e", "rbln_rollout_max_parallel=1").splitlines()
    assert [line for line in lines if line in site] == site and "Hosts: 3 to change, 0 as wanted." in lines
    lines = planned_by(tmp_path, "-e", "rbln_plan_upgrade=yes", "-e", "rbln_rollout_last_wave=1").splitlines()
    assert "Rollout of 3 hosts in 3 waves, as the playbook upgrade goes" in lines
    assert "Hosts: 1 to change, 0 as wanted, 2 left as they are." in lines
    # Check mode says of each host what the run would do with it.
    assert [line for line in lines if line.startswith("changed: [")] == ["changed: [n1]"]


def test_what_a_run_knows_of_its_hosts_is_no_longer_looked_at_for_garbage() -> None:
    """Each such look copied the main process once more: those that wait for a turn have it as it was."""
    code = (
        "import gc\nknown = [[] for _number in range(1000)]\nimport %s\nseen = set(map(id, gc.get_objects()))\n"
        "print(sum(id(one) in seen for one in known))" % rbln_rollout.__name__
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(COLLECTION.parents[2]), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "0"), done.stderr


def test_pools_with_inputs_of_their_own_ask_their_cluster_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rights: list[Any] = []
    monkeypatch.setattr(gather, "require_rollout_rights", lambda cluster, wanted, where: rights.append(wanted))
    given = {
        **dict.fromkeys(("empty_dir", "unmanaged", "wait_selector", "before", "after"), ""),
        **{"pods": "npu", "wait_timeout": 1, "evict_timeout": 1, "force": False, "pause_components": []},
        "enabled": True,
    }
    operands = {**OPERANDS, "namespace": "rbln-system", "name_prefix": "", "dra_driver": {"driver_name": "npu.x"}}

    class Pools(Rollout):
        def _places(self, task_vars: Any, hosts: Any) -> list[Place]:
            login, inputs = ("here", "mark"), cast(Inputs, operands)
            return [Place(login, inputs, {**given, "grace": at}, [host]) for at, host in enumerate(hosts)]

    hosts = {"host-%d" % number: plan(number) for number in range(1, 9)}
    rollout = Pools(*(machine("node-%d" % number, number) for number in range(1, 9)))
    rollout._dry_run = True
    monkeypatch.setattr(Pools, "_playbook", lambda self, task_vars: ("upgrade", ""))
    monkeypatch.setattr(rbln_rollout, "table", lambda *more: SimpleNamespace())
    monkeypatch.setattr(rbln_rollout, "document", lambda found: {})
    monkeypatch.setattr(rbln_rollout, "lines", lambda found: [])
    nodes: dict[str, Data] = {}
    monkeypatch.setattr(Fleet, "cut", lambda self, *more: nodes.update({one.host: one.node for one in self.going}))
    rollout._plan({}, of_play(**hosts))
    assert nodes == {"host-%d" % number: "node-%d" % number for number in range(1, 9)}
    assert rollout.api.asked.count("list Node") == 1
    (eight,) = rights
    assert rollout.api.asked.count("list Pod") <= 8 and rollout.api.asked.count("list PodDisruptionBudget") == 1
    assert sorted(policy.grace for _operands, policy in eight) == list(range(8))
