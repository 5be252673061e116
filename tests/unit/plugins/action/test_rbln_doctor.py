# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the hosts of a play have registered, put together: their own faults, their cluster's, and hostile text."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.action.rbln_doctor import ActionModule
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._doctor.signs import sign
from ansible_collections.rebellions.npu.tests.unit.fixtures.planned import facts, runtimes

Data = dict[str, Any]
QUOTA = sign("create:quota", "DaemonSet p", "exceeded quota: q", namespace="npus")
OFFERS = sign("node:allocatable", "the Node object", "node n1 offers 0 r, its host has 2", node="n1")


class HostVars(dict[str, Any]):
    def raw_get(self, host: str) -> Any:
        return self[host]


class Show(ActionModule):
    """The action of a play with these hosts; `shown` are the lines."""

    def __init__(self, **args: Any) -> None:
        self.shown: list[str] = []
        self._task = SimpleNamespace(args=args, check_mode=False, async_val=0, action="rbln_doctor", register=None)  # type: ignore
        self._connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None))  # type: ignore[assignment]
        self._display = SimpleNamespace(display=self._told)  # type: ignore[assignment]

    def _told(self, text: str, color: Any = None, stderr: bool = False) -> None:
        self.shown.append(text)


def run(hosts: Data, **args: Any) -> tuple[Data, list[str]]:
    action = Show(**args)
    variables = {"inventory_hostname": "a", "ansible_play_hosts_all": list(hosts), "hostvars": HostVars(hosts)}
    return action.run(None, variables), action.shown


def seen(*checks: Data, **more: Any) -> Data:
    found = {
        "rbln": facts(),
        "rbln_runtimes": runtimes(),
        "rbln_observed": {"passed": not checks, "checks": list(checks)},
    }
    return {"rbln_discover_observation": {"ansible_facts": found}, **more}


def check(name: str, detail: str = "it is not so") -> Data:
    return {"name": name, "scope": "driver", "ok": False, "severity": "error", "detail": detail, "next_step": ""}


def asked(signs: Any = (), hosts: Any = None) -> Data:
    """What the look at a cluster has registered: Ansible makes lists of tuples."""
    plain = [[*one[:-1], [list(pair) for pair in one[-1]]] for one in signs]
    of_hosts = {host: [[*one[:-1], []] for one in mine] for host, mine in (hosts or {}).items()}
    return {"__rbln_doctor_cluster": {"cluster": "k", "signs": plain, "hosts": of_hosts, "nodes": {}}}


def ids(result: Data, host: str) -> list[str]:
    return [cause["id"] for cause in result["doctor"]["hosts"][host]["causes"]]


def test_hosts_that_were_seen_and_one_that_was_not() -> None:
    lost = {"rbln_discover_observation": {"failure": {"task": "Observe", "msg": "c cannot be reached: timed out"}}}
    result, shown = run({"a": seen(), "b": seen(check("driver_loaded")), "c": lost, "d": {}})
    assert [ids(result, host) for host in "abcd"] == [
        [],
        ["driver_not_loaded"],
        ["host_unreachable"],
        ["host_not_observed"],
    ]
    assert result["first"]["a"] == "" and result["first"]["b"].startswith("driver_not_loaded: ")
    assert shown[-1] == "4 hosts: 1 with faults, 2 not reached, 1 ok" and result["changed"] is False
    assert shown == result["lines"]


def test_a_fault_of_the_cluster_is_the_cause_of_what_its_hosts_show() -> None:
    cluster = asked([QUOTA], {"a": [OFFERS], "b": []})
    result, _shown = run({"a": seen(**cluster), "b": seen(), "c": seen()}, format="json")
    assert ids(result, "a") == ["quota_exceeded", "npus_not_allocatable"] and ids(result, "b") == []
    # A host without a fault of its own fails with its cluster where that is asked for; one of no cluster does not.
    assert [bool(result["first"][host]) for host in "abc"] == [True, True, False]
    assert result["first"]["b"].startswith("quota_exceeded: ") and "lines" not in result


def test_the_next_step_of_a_cluster_names_the_host_that_fails_for_it() -> None:
    closed = sign("pod:NotSelected", "DaemonSet p", "the node selector excludes the node")
    result, _shown = run({"a": seen(**asked([closed], {"a": []}))})
    assert "--limit a" in result["first"]["a"] and "--limit k" not in result["first"]["a"]


def test_hosts_of_a_cluster_that_cannot_be_opened_share_its_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Any, task_vars: Any) -> Any:
        raise NpuError("The kubeconfig /x does not exist on the controller.", "Give a path.")

    monkeypatch.setattr(ActionModule, "_inputs", refuse)
    members = [{"host": host, "cluster": "k"} for host in "ab"]
    action = Show(act="cluster", members=members)
    found = action.run(None, {"inventory_hostname": "a", "hostvars": HostVars()})
    assert found["hosts"] == {"a": [], "b": []}
    result, _shown = run({"a": seen(__rbln_doctor_cluster=found), "b": seen(), "c": seen()})
    assert [one.partition(":")[0] for one in result["first"].values()] == ["kubeconfig_wrong", "kubeconfig_wrong", ""]


def test_clusters_of_one_name_stay_apart() -> None:
    first, second = asked([QUOTA], {"a": []}), asked([], {"b": []})
    result, _shown = run({"a": seen(**first), "b": seen(**second)})
    told = {name: one["state"] for name, one in result["doctor"]["clusters"].items()}
    assert told == {"k": "faults", "k (2)": "ok"} and result["first"]["b"] == ""


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("The kubeconfig /x does not exist on the controller. Next: Give a path.", "kubeconfig_wrong"),
        ("rbln_operands_metrics_exporter has version 0.2.0, and the driver 3.2.2: wrong.", "exporter_mismatch"),
        ("rbln_operands_wait is 'x'. Next: Write true.", "cluster_inputs_wrong"),
    ],
)
def test_inputs_of_the_cluster_that_are_wrong_are_an_answer(said: str, cause: str) -> None:
    result, _shown = run({"a": seen(__rbln_operands_member={"failure": {"task": "t", "msg": said}})})
    assert ids(result, "a") == [cause]


def test_a_controller_that_cannot_ask_any_cluster_is_an_answer() -> None:
    chosen = {"failed": False, "changed": False, "msg": "The Python package x is missing. Next: Install it."}
    of_cluster = {"__rbln_operands_member": {"member": {"cluster": "k"}, "work": "run"}}
    plain = {"__rbln_operands_member": {"member": {"cluster": ""}, "work": "nothing"}}
    result, _shown = run(
        {name: seen(__rbln_operands_clusters=chosen, **one) for name, one in (("a", of_cluster), ("b", plain))}
    )
    assert ids(result, "a") == ["cluster_inputs_wrong"] and ids(result, "b") == []
    assert result["doctor"]["hosts"]["a"]["causes"][0]["evidence"][0]["next_step"] == "Install it."


def test_text_of_a_host_is_data() -> None:
    hostile = "{{ lookup('pipe', 'id') }} \x1b[31m\x07 it is not so"
    result, shown = run({"a": seen(check("driver_loaded", hostile))})
    told = result["doctor"]["hosts"]["a"]["causes"][0]["evidence"][0]["said"]
    assert "\x1b" not in told and "\x07" not in told and "{{ lookup" in told
    assert not any("\x1b" in line for line in shown)
    # An answer that is none is a fault of this host alone.
    broken = {"rbln_discover_observation": {"ansible_facts": {"rbln": ["x"]}}}
    result, _shown = run({"a": broken, "b": seen()})
    assert ids(result, "a") == ["host_not_observed"] and ids(result, "b") == []
