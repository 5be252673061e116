# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which variables the look at the controller judges for each host of a play."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible_collections.rebellions.npu.plugins.action import rbln_controller
from ansible_collections.rebellions.npu.plugins.action.rbln_controller import ActionModule, _comes
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.findings import Findings
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.roles import _trusted

Data = dict[str, Any]


class HostVars(dict[str, Any]):
    def raw_get(self, host: str) -> Any:
        return self[host]


class Look(ActionModule):
    def __init__(self) -> None:
        self._loader = DataLoader()
        self._templar = SimpleNamespace(template=lambda value: value)


def of_play(hosts: Data, **play: Any) -> Data:
    first = next(iter(hosts))
    shared = {"hostvars": HostVars(hosts), "inventory_hostname": first, "ansible_play_batch": list(hosts)}
    return {**hosts[first], **play, **shared}


def test_names_of_the_play_itself_are_judged_as_those_of_the_inventory() -> None:
    hosts: Data = {"a": {"rbln_discover_observation": {}}, "b": {}}
    variables = Look()._variables(of_play(hosts, rbln_kubeconfg="/x", rbln_acme_site="s", rbln_failure={}))
    assert all({"rbln_kubeconfg", "rbln_acme_site"} <= set(found) for found in variables.values())
    assert not any("rbln_failure" in found for found in variables.values())
    findings = Findings(list(hosts))
    misspelt, warnings = Look()._judge_names(variables, findings)
    assert misspelt and [item["hosts"] for item in findings.items()] == [["a", "b"]]
    assert len(warnings) == 1 and warnings[0].startswith("rbln_acme_site is not an input")


def test_what_is_wrong_for_one_host_stops_no_other() -> None:
    """Inputs that differ from host to host are judged with their host."""
    hosts: Data = {"a": {"rbln_discover_expected_addresses": {"x": "y"}}, "b": {}}
    result = Look()._look("inputs", True, of_play(hosts))
    assert result.pop("at").endswith("Z")
    assert result == {"changed": False, "problems": []}


def test_a_pool_that_the_inventory_names_keeps_no_run_to_it() -> None:
    """The plays take it from an extra variable alone, so a host outside of it shows where it came from."""
    hosts: Data = {"a": {"rbln_pool": "one"}, "b": {"rbln_pool": "one"}}
    nodes = {"npu_nodes": ["a", "b"]}
    result = Look()._look("inputs", True, {**of_play(hosts), "groups": {**nodes, "one": ["a"]}})
    assert result["failed"] and "also goes to b, which is not in that group. Next: " in result["msg"]
    # The playbook bundle goes to hosts of another group.
    for kept in ({**nodes, "one": ["a", "b", "z"]}, {"npu_bundle": ["a", "b"], "one": []}):
        assert not Look()._look("inputs", True, {**of_play(hosts), "groups": kept})["problems"]
    assert not Look()._look("inputs", True, of_play({"a": {"rbln_pool": ""}, "b": {}}))["problems"]


@pytest.mark.parametrize(
    "run, skip, expected",
    [
        (["all"], [], True),
        ([], [], True),
        (["driver"], [], True),
        (["toolkit"], [], False),
        (["tagged"], [], True),
        (["all"], ["driver"], False),
        (["all"], ["tagged"], False),
        (["driver"], ["toolkit"], True),
    ],
)
def test_a_part_comes_by_the_tags_of_the_run(run: list[str], skip: list[str], expected: bool) -> None:
    assert _comes({"ansible_run_tags": run, "ansible_skip_tags": skip}, "driver") is expected


def test_an_input_whose_template_fails_is_named_once_for_all_hosts() -> None:
    wrong = {"rbln_kubeconfig": _trusted("{{ undefd }}"), "rbln_serial": "1"}
    look = Look()
    look._task = SimpleNamespace(environment=None)
    result = look._look("controller", True, of_play({"a": dict(wrong), "b": dict(wrong)}))
    # A default of the role has it too, and takes it for not set.
    assert result["failed"] and result["msg"].startswith("Nothing was changed. rbln_kubeconfig cannot be read: ")
    assert "undefd" in result["msg"] and result["msg"].count(" Next: ") == 1


UUID = "4c4c4544-0051-3610-8052-b4c04f4e4d32"
LEFT = {
    "metadata": {
        "name": "node-a",
        "labels": {"rebellions.ai/npu-driver-upgrade-state": "reboot-required"},
        "annotations": {"rebellions.ai/npu-rollout.run": "r1"},
    },
    "status": {"nodeInfo": {"systemUUID": UUID}},
}


def left_by(monkeypatch: pytest.MonkeyPatch, tags: str, skipped: str = "", dead: bool = False, **inputs: Any) -> Data:
    """What is found of a host whose node a rollout has left, and of one that is no node; `dead` is the cluster."""

    def listed(*words: Any, part: Callable[[Data], Data] = dict) -> list[Data]:
        if dead:
            raise NpuError("List Node objects: the API server cannot be reached.", "Check it.")
        return [part(LEFT)]

    monkeypatch.setattr(rbln_controller, "read_login", lambda *words: SimpleNamespace(name="here", mark="m"))
    monkeypatch.setattr(Look, "_open", lambda *words: SimpleNamespace(list=listed))
    look = Look()
    look._task = SimpleNamespace(environment=None)
    hosts = {}
    for host, uuid in (("a", UUID), ("b", "11111111-2222-3333-4444-555555555555")):
        facts = {"rbln": {"identity": {"system_uuid": uuid}}}
        given = {"rbln_kubeconfig": "/dev/null", "rbln_operands_enabled": True, **inputs}
        hosts[host] = {"rbln_discover_observation": {"ansible_facts": facts}, **given}
    chosen = {"ansible_run_tags": tags.split(","), "ansible_skip_tags": skipped.split(",")}
    monkeypatch.setattr(Look, "_open_files", lambda *words: None)
    return look._look("controller", True, {**of_play(hosts, **chosen), "groups": {"all": list(hosts)}})


@pytest.mark.parametrize(
    "tags, skipped, expected",
    [
        ("driver", "", ["a"]),
        ("toolkit", "", ["a"]),
        ("validate", "", ["a"]),
        ("all", "operands", ["a"]),
        ("always", "", []),
    ],
)
def test_a_node_that_a_rollout_has_left_is_found_with_any_tag_of_the_host_part(
    monkeypatch: pytest.MonkeyPatch, tags: str, skipped: str, expected: list[str]
) -> None:
    """The host that is no node is no problem of such a run."""
    result = left_by(monkeypatch, tags, skipped)
    assert result == {"changed": False, "problems": [], "unfinished": expected, "given_back": []}
    assert left_by(monkeypatch, tags, skipped, rbln_rollout_enabled=False)["unfinished"] == []


def test_a_node_that_a_rollout_has_given_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    meta = {**LEFT["metadata"], "labels": {"rebellions.ai/npu-driver-upgrade-state": "upgrade-failed"}}
    monkeypatch.setitem(LEFT, "metadata", meta)
    result = left_by(monkeypatch, "driver")
    assert (result["unfinished"], result["given_back"]) == ([], ["a"])


def test_a_cluster_that_does_not_answer_stops_no_work_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    result = left_by(monkeypatch, "driver", dead=True)
    assert (result["problems"], result["unfinished"], result.get("failed")) == ([], [], None)
    (warning,) = result["warnings"]
    assert "is not known: List Node objects: the API server cannot be reached. Next: Check it." in warning
