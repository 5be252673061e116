# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of a run from its events: each state of a host with its cause, changes, waves, clusters, timings."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.states import NO_NODE
from ansible_collections.rebellions.npu.plugins.plugin_utils._report import run as runs
from ansible_collections.rebellions.npu.plugins.plugin_utils._report.build import About, Stats, document
from ansible_collections.rebellions.npu.plugins.plugin_utils._report.document import Document
from ansible_collections.rebellions.npu.plugins.plugin_utils._report.run import Run, TaskOf
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.turns import written
from ansible_collections.rebellions.npu.tests.unit.fixtures import planned, reports

BEGAN = 1_800_000_000.0
Data = dict[str, Any]
SEEN = planned.facts(
    pool_key="ubuntu_24_04_k6_8_0_117_generic",
    npus=[planned.npu(product="RBLN-CA25"), planned.npu(product="RBLN-CA25"), planned.npu(product=None)],
    counts={"functions": 3, "devices": 3},
)


def check(name: str, ok: bool | None, severity: str = "error", **more: Any) -> Data:
    plain = {
        "name": name,
        "scope": "driver",
        "ok": ok,
        "severity": severity,
        "detail": f"{name} was seen.",
        "next_step": "" if ok else f"Repair {name}.",
        "evidence": {},
        "seconds": 0.1,
        "vendor": "rebellions",
    }
    return {**plain, **more}  # fmt: skip


def observation(*checks: Data) -> Data:
    observed = reports.observed(checks=list(checks))
    return {"ansible_facts": {"rbln": SEEN, "rbln_runtimes": planned.runtimes(), "rbln_observed": observed}}


def step(**more: Any) -> Data:
    return {"id": "driver.package", "vendor": "rebellions", "role": "driver", "component": "driver", "now": "3.0.0",
            "wanted": "3.1.0", "reason": "Wanted.", "disruption": "evict", "after": "", **more}  # fmt: skip


class Told:
    """A run that a test tells, a second for each task."""

    def __init__(self, *hosts: str, **more: Any) -> None:
        self.run, self.now, self.number = Run(BEGAN, **more), BEGAN, 0
        self.play("1 Discover", *hosts)

    def play(self, name: str, *hosts: str) -> None:
        self.run.play(name, hosts, self.now)

    def task(self, host: str, name: str, data: Data, how: str = runs.OK, changed: bool = False, **more: Any) -> None:
        self.number += 1
        given = {"role": "rebellions.npu.rbln_discover", "action": "rebellions.npu.rbln_observe", **more}
        task = TaskOf(f"{name}-{self.number}", name, **given)
        self.run.start(host, task, self.now)
        self.now += 1
        self.run.result(host, task, how, changed, lambda: data, self.now)

    def observed(self, host: str, *checks: Data) -> None:
        self.task(host, "Observe", observation(*checks))

    def planned(self, host: str, *steps: Data, **more: Any) -> None:
        wanted = {"rbln_driver_version": "3.1.0"}
        data = {"steps": list(steps), "stops": [], "wanted": wanted, **more}
        self.task(host, "Plan", data, action="rebellions.npu.rbln_plan", role="rebellions.npu.rbln_preflight")

    def driver(self, host: str, how: str = runs.OK, **data: Any) -> None:
        given = {"outcome": "upgraded", "previous": "3.0.0", "version": "3.1.0", **data}
        where: Any = {"action": "rebellions.npu.rbln_driver", "role": "rebellions.npu.rbln_driver"}
        self.task(host, "Transaction | Change the driver", given, how, "failure" not in data, **where)

    def rolled(self, host: str, act: str, data: Data) -> None:
        self.task(host, act, data, action="rebellions.npu.rbln_rollout", role="rebellions.npu.rbln_rollout", act=act)

    def end(self, failed: Any = (), unreachable: Any = (), aborted: bool = False) -> Document:
        stats = None if aborted else Stats(failed, unreachable)
        return document(self.run, About("kim@bastion", playbook="site.yml"), stats, self.now)


def only(found: Document) -> Any:
    (host,) = found["hosts"]
    return host


def test_hosts_whose_names_are_alike_on_a_screen_stay_apart() -> None:
    names = ["a", "a\x1b[31m", "x" * 300 + "1", "x" * 300 + "2", "b  c", "b c"]
    told = Told(*names)
    for name in names:
        told.task(name, "Show", {"msg": name}, runs.FAILED)
    found = told.end(failed=set(names))
    shown = [one["name"] for one in found["hosts"]]
    assert len(set(shown)) == 6 and {"a", "b c"} <= set(shown) and all(len(name) <= 255 for name in shown)
    assert not any("\x1b" in name or "  " in name for name in shown)


def test_a_host_in_order() -> None:
    told = Told("npu1")
    told.observed("npu1", check("passthrough", None, "info"))
    told.planned("npu1")
    found = told.end()
    host = only(found)
    assert (host["state"], host["reason"], host["pool"]) == ("ok", "", "ubuntu_24_04_k6_8_0_117_generic")
    assert host["checks"]["passed"] == ["driver/npus_found"]
    assert host["checks"]["others"] == [
        {"id": "driver/passthrough", "result": "note", "detail": "passthrough was seen.",
         "next_step": "Repair passthrough."}
    ]  # fmt: skip
    assert host["wanted"] == {"driver": "3.1.0"} and host["planned"] == [] and host["seconds"] == 2.0
    assert host["npus"] == 3 and host["products"] == {"RBLN-CA25": 2, "unknown": 1}
    assert host["versions"] == {
        "os": "ubuntu 24.04", "kernel": planned.KERNEL, "architecture": "x86_64", "driver": "3.2.2",
        "firmware": "3.2.2", "runtime": "none",
    }  # fmt: skip
    made = found["made"]
    assert (made["at"], made["began"], made["seconds"]) == ("2027-01-15T08:00:02Z", "2027-01-15T08:00:00Z", 2.0)
    assert (made["by"], made["ended"], made["source"]) == ("kim@bastion", "whole", "run")


@pytest.mark.parametrize(
    ("checks", "state", "reason"),
    [
        ([check("driver_loaded", False), check("device_nodes", None)], "failed", "driver/driver_loaded: failed."),
        ([check("device_nodes", None)], "unknown", "driver/device_nodes: not known."),
        ([check("link_full", False, "warning")], "ok", ""),
        ([check(name, False) for name in "abcde"], "failed",
         "driver/a, driver/b, driver/c and 2 more: failed."),
    ],
)  # fmt: skip
def test_the_checks_decide_where_nothing_has_failed(checks: list[Data], state: str, reason: str) -> None:
    told = Told("npu1")
    told.observed("npu1", *checks)
    assert (only(told.end())["state"], only(told.end())["reason"]) == (state, reason)


def test_a_host_without_a_plan_has_not_an_empty_one() -> None:
    told = Told("npu1")
    told.observed("npu1")
    assert only(told.end())["planned"] is None
    told.planned("npu1")
    assert only(told.end())["planned"] == []


def test_a_host_that_the_run_has_changed() -> None:
    told = Told("npu1")
    told.observed("npu1", check("driver_loaded", False))
    told.planned("npu1", step())
    told.driver("npu1")
    proof = {"state": "passed", "passed": True, "checks": [check("driver_loaded", True)], "failed": [], "unknown": [],
             "changes": []}  # fmt: skip
    facts = {**observation()["ansible_facts"], "rbln_proof": proof}
    changes = [{"path": "/run/x", "act": "written"}, {"path": "/run/y", "act": "written"}]
    told.task("npu1", "Prove", {"ansible_facts": facts, "changes": changes}, changed=True,
              action="rebellions.npu.rbln_validate", role="rebellions.npu.rbln_validator")  # fmt: skip
    host = only(told.end())
    assert host["state"] == "changed" and host["checks"] == {"passed": ["driver/driver_loaded"], "others": []}
    assert host["changes"] == ["driver: 3.0.0 -> 3.1.0", "ready files: 2 written"]
    assert host["planned"] == [{"text": "driver: 3.0.0 -> 3.1.0", "disruption": "evict"}]


def test_checks_older_than_the_change_do_not_make_it_failed() -> None:
    told = Told("npu1")
    told.observed("npu1", check("driver_loaded", False))
    told.planned("npu1", step())
    told.driver("npu1", reboot_required=True)
    told.task("npu1", "x", {"ansible_facts": {"rbln_driver_reboot_required": True}}, action="ansible.builtin.set_fact")
    host = only(told.end())
    assert (host["state"], host["reason"]) == ("changed", "A reboot is due.")
    assert host["changes"] == ["driver: 3.0.0 -> 3.1.0, a reboot is due"]


def test_check_mode_changes_nothing_and_says_what_it_would() -> None:
    told = Told("npu1", check=True)
    told.observed("npu1")
    told.planned("npu1", step())
    told.driver("npu1")
    host = only(told.end())
    assert host["state"] == "ok" and host["changes"] == [] and len(host["planned"]) == 1


def test_a_failure_that_the_play_keeps_is_the_cause() -> None:
    """The last play of the playbook fails the host with it; what is told there begins with the task."""
    told = Told("npu1")
    told.observed("npu1")
    told.driver("npu1", failure={"task": "Driver", "msg": "It does not build. Next: Install the headers."})
    why = "Driver: It does not build. Next: Install the headers."
    told.task("npu1", "Fail the hosts that failed before", {"msg": why}, runs.FAILED, action="ansible.builtin.fail")
    host = only(told.end(failed={"npu1"}))
    assert host["failure"] == {"task": "Driver", "cause": "It does not build.", "next_step": "Install the headers."}
    assert (host["state"], host["reason"]) == ("failed", "Driver: It does not build.")


def test_a_host_that_a_spent_budget_leaves_alone_has_not_failed() -> None:
    """The last play fails it, so that the run ends with another code than 0."""
    told = Told("npu1")
    told.observed("npu1")
    told.planned("npu1", step())
    told.task("npu1", "Stop", {"add_group": "npu_left_alone"}, action="ansible.builtin.group_by")
    why = "The rollout has stopped, as rbln_failure_budget is 1. This host was left as it is. Next: Repair the failed."
    told.task("npu1", "Fail the hosts that failed before", {"msg": why}, runs.FAILED, action="ansible.builtin.fail")
    host = only(told.end(failed={"npu1"}))
    assert (host["state"], host["failure"]) == ("not reached", None)
    assert host["reason"] == why.partition(" Next: ")[0]


def test_what_the_cluster_says_against_a_host_is_the_failure_of_that_task() -> None:
    where: Any = {"action": "rebellions.npu.rbln_operands", "role": "rebellions.npu.rbln_operands"}
    told = Told("npu1")
    told.observed("npu1")
    told.task(
        "npu1", "Judge the host", {"result": {"node": {}}, "ok": False, "msg": "No node. Next: Join it."}, **where
    )
    told.task("npu1", "Fail the hosts that failed before", {"msg": "No node. Next: Join it."}, runs.FAILED,
              action="ansible.builtin.fail")  # fmt: skip
    assert only(told.end(failed={"npu1"}))["failure"] == {
        "task": "Judge the host", "cause": "No node.", "next_step": "Join it."
    }  # fmt: skip


def test_stops_of_a_plan_are_the_cause_with_their_own_next_step() -> None:
    stops = [{"code": "disk_full", "severity": "error", "detail": "/usr is full.", "next_step": "Make room.",
              "vendor": "rebellions"}] * 2  # fmt: skip
    told = Told("npu1")
    told.observed("npu1")
    data = {"steps": [], "stops": stops, "msg": "Nothing was changed on npu1. /usr is full. Next: Make room."}
    told.task("npu1", "Plan", data, runs.FAILED, action="rebellions.npu.rbln_plan")
    host = only(told.end(failed={"npu1"}))
    assert host["failure"] == {"task": "Plan", "cause": "/usr is full. (and 1 more)", "next_step": "Make room."}


@pytest.mark.parametrize("aborted", [False, True])
@pytest.mark.parametrize("how", [runs.RESCUED, runs.IGNORED])
def test_what_was_rescued_or_ignored_is_no_failure(how: str, aborted: bool) -> None:
    told = Told("npu1")
    told.observed("npu1")
    told.task("npu1", "Try", {"msg": "It failed."}, how)
    host = only(told.end(aborted=aborted))
    assert host["failure"] is None and host["state"] == "ok"


def test_a_failure_stays_one_where_another_one_was_rescued() -> None:
    told = Told("npu1")
    told.task("npu1", "Build", {"msg": "It failed."}, runs.FAILED)
    told.task("npu1", "Collect", {"msg": "No log."}, runs.RESCUED)
    for found in (told.end(aborted=True), told.end(failed={"npu1"})):
        assert only(found)["failure"] == {"task": "Build", "cause": "It failed.", "next_step": ""}


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        ({"msg": "One or more items failed", "results": [
            {"msg": "fine"}, {"failed": True, "msg": "a is full."}, {"failed": True, "msg": "b is full."}, 1]},
         "a is full. (and 1 more)"),
        # ansible-core 2.21 gives an item its error alone.
        ({"msg": "One or more items failed", "results": [
            {"msg": "", "rc": 0}, {"msg": "It exited.", "rc": 4, "exception": "(traceback unavailable)"}]},
         "It exited."),
        ({"msg": "One or more items failed", "results": [{"msg": "x"}, {"msg": "y", "failed_when_result": True}]}, "y"),
        ({"msg": ["Two lines", "of fail_msg."]}, "Two lines of fail_msg."),
        ({"msg": "One or more items failed", "results": [
            {"failed": True, "msg": "No room.", "_ansible_delegated_vars": {"ansible_delegated_host": "api-1"}}]},
         "On api-1: No room."),
        ({"reason": "Could not find or access 'x.yml'"}, "Could not find or access 'x.yml'"),
        ({"censored": "the output has been hidden due to the fact that 'no_log: true' was specified"},
         "the output has been hidden due to the fact that 'no_log: true' was specified"),
        ({"results": 3}, "It failed without a message."),
        ({"msg": "No room.", "_ansible_delegated_vars": {"ansible_delegated_host": "api-1"}}, "On api-1: No room."),
    ],
)  # fmt: skip
def test_the_cause_is_where_ansible_keeps_it(data: Data, cause: str) -> None:
    told = Told("npu1")
    told.task("npu1", "Copy", data, runs.FAILED)
    assert only(told.end(failed={"npu1"}))["failure"]["cause"] == cause


def test_a_host_whose_task_ran_on_one_that_does_not_answer_is_not_unreachable() -> None:
    told = Told("npu1")
    said = {"msg": "No route to host.", "_ansible_delegated_vars": {"ansible_delegated_host": "api-1"}}
    told.task("npu1", "Ask", said, runs.UNREACHABLE)
    host = only(told.end(unreachable={"npu1"}))
    assert (host["state"], host["reason"]) == ("failed", "Ask: On api-1: No route to host.")


@pytest.mark.parametrize(
    ("where", "told"),
    [("api-1", "On api-1: No route."), ("{{ item }}", "On another host: No route."), (None, "No route.")],
)
def test_the_host_of_a_task_that_did_not_answer_is_named(where: str | None, told: str) -> None:
    for data in ({"msg": "No route."}, {"results": [{"unreachable": True, "msg": "No route."}]}):
        host = Told("npu1")
        host.task("npu1", "Ask", runs.delegated(data, where), runs.UNREACHABLE)
        assert only(host.end(unreachable={"npu1"}))["reason"] == f"Ask: {told}"


def test_a_host_that_was_not_seen_says_what_was_ignored() -> None:
    told = Told("npu1")
    told.task("npu1", "Observe", {"msg": "npu1 cannot be reached: x. Next: Wake it."}, runs.IGNORED)
    host = only(told.end())
    assert (host["state"], host["reason"]) == ("not seen", "Observe: npu1 cannot be reached: x.")


def test_a_host_that_no_task_has_looked_at_is_not_called_ok() -> None:
    told = Told("npu1", "npu2")
    told.task("npu1", "Show", {}, action="rebellions.npu.rbln_show")
    told.driver("npu2")
    found = told.end()
    assert [(one["state"], one["reason"]) for one in found["hosts"]] == [
        ("not seen", "No task of this run has looked at it."), ("changed", "")
    ]  # fmt: skip
    assert found["summary"]["states"]["not seen"] == 1 and found["summary"]["states"]["ok"] == 0


def test_a_host_that_is_not_reached_or_not_come_to() -> None:
    told = Told("npu1", "npu2")
    told.task("npu2", "Observe", {"msg": "Task failed: npu2 cannot be reached: timed out. Next: Wake it."},
              runs.UNREACHABLE)  # fmt: skip
    found = told.end(unreachable={"npu2"})
    assert [(one["state"], one["reason"]) for one in found["hosts"]] == [
        ("not reached", "No task has run on it."),
        ("unreachable", "Observe: npu2 cannot be reached: timed out."),
    ]
    assert found["hosts"][1]["npus"] is None and found["summary"]["npus"] is None
    assert found["pools"] == [found["pools"][0]] and found["pools"][0]["name"] == ""


def test_a_run_that_was_aborted() -> None:
    told = Told("npu1", "npu2", "npu3", "npu4")
    for name in ("npu1", "npu2", "npu4"):
        told.observed(name)
    told.planned("npu1", step())
    told.planned("npu2", step())
    told.planned("npu4")
    told.task("npu1", "Drain", {}, role="rebellions.npu.rbln_driver")
    found = told.end(aborted=True)
    assert found["made"]["ended"] == "aborted"
    assert [(one["state"], one["reason"]) for one in found["hosts"]] == [
        ("unknown", "The run was aborted while it changed this host."),
        ("not reached", "The run was aborted before it changed this host."),
        ("not reached", "The run ended before it."),
        ("ok", ""),
    ]


def test_facts_that_break_their_schema_are_not_taken() -> None:
    told = Told("npu1")
    told.task("npu1", "Observe", {"ansible_facts": {"rbln": {"counts": "many"}}})
    host = only(told.end())
    assert host["state"] == "unknown" and "not those of our module" in host["reason"] and host["npus"] is None


def test_secrets_and_terminal_codes_of_a_failure_are_not_repeated() -> None:
    told = Told("npu1")
    said = "\x1b[31mGET https://kim:hunter22@mirror/x failed\x1b[0m\nNext: see token=abcdef123456"
    told.task("npu1", "Fetch", {"msg": said}, runs.FAILED)
    failure = only(told.end(failed={"npu1"}))["failure"]
    assert "hunter22" not in str(failure) and "abcdef123456" not in str(failure) and "\x1b" not in str(failure)
    assert failure["cause"].startswith("GET https://")


@pytest.mark.parametrize(
    "data, cause",
    [
        ({"msg": "It exited with a non-zero return code.", "rc": 2, "stderr": "see\nmount: /x: busy\n"},
         "It exited with a non-zero return code: mount: /x: busy"),
        ({"msg": "mount: /x: busy", "rc": 2, "stderr": "mount: /x: busy"}, "mount: /x: busy"),
        ({"msg": "It is refused.", "rc": 0, "stderr": "a warning"}, "It is refused."),
        ({"rc": 1, "results": ["No package x available."], "msg": "Failed to install."}, "Failed to install."),
    ],
)  # fmt: skip
def test_a_program_that_ended_badly_is_told_by_its_last_line(data: Data, cause: str) -> None:
    told = Told("npu1")
    told.task("npu1", "Mount", data, runs.FAILED, action="ansible.builtin.command", role="")
    assert only(told.end(failed={"npu1"}))["failure"] == {"task": "Mount", "cause": cause, "next_step": ""}


def test_a_long_cause_does_not_cost_the_next_step() -> None:
    told = Told("npu1")
    told.task("npu1", "Fetch", {"msg": "Packages conflict: " + "x" * 700 + ". Next: Remove one."}, runs.FAILED)
    failure = only(told.end(failed={"npu1"}))["failure"]
    assert (
        failure["next_step"] == "Remove one." and failure["cause"].endswith("xxx...") and len(failure["cause"]) == 600
    )


def turns(**waves: int) -> str:
    return written({name: {"node": f"n-{name}", "pool": "p", "run": "r", "wave": wave} for name, wave in waves.items()})


def test_the_waves_of_a_rollout() -> None:
    names = ("npu1", "npu2", "npu3", "npu4")
    told = Told(*names)
    cut = turns(npu1=2, npu2=1, npu3=3, npu4=2)
    told.rolled("npu1", "plan", {"hosts": ",npu1,", "turns": cut, "order": "npu2,npu1,npu4,npu3,npu_nodes"})
    for name in names[:3]:
        told.rolled(name, "leave", {"goes": name != "npu1", "msg": "n-npu1 was left as it is. A pod cannot leave."})
    told.rolled("npu2", "return", {"msg": "back"})
    found = told.end()["waves"]
    assert [(one["host"], one["wave"], one["state"], one["reason"]) for one in found] == [
        ("npu2", 1, "done", ""),
        ("npu1", 2, "left", "n-npu1 was left as it is. A pod cannot leave."),
        ("npu4", 2, "left", "The run ended before its turn. Next: Run again."),
        ("npu3", 3, "under way", "The run ended while it was out of service. Next: Run again."),
    ]
    assert (found[0]["node"], found[0]["began"], found[0]["ended"]) == (
        "n-npu2", "2027-01-15T08:00:03Z", "2027-01-15T08:00:05Z"
    )  # fmt: skip
    assert found[0]["seconds"] == 2.0 and found[3]["ended"] == "" and found[1]["began"] == ""
    assert told.end()["hosts"][0]["state"] == "not reached"


def test_the_waves_that_check_mode_foretells() -> None:
    told = Told("npu1", check=True)
    told.rolled("npu1", "plan", {"hosts": ",npu1,", "turns": turns(npu1=1)})
    told.rolled("npu1", "leave", {"goes": True})
    assert [(one["wave"], one["state"], one["began"]) for one in told.end()["waves"]] == [(1, "planned", "")]


def test_the_playbook_plan_foretells_without_check_mode() -> None:
    where: Any = {"action": "rebellions.npu.rbln_operands", "role": "rebellions.npu.rbln_operands"}
    told = Told("npu1")
    told.observed("npu1")
    cut = {"hosts": ",npu1,", "turns": turns(npu1=1)}
    told.task("npu1", "Cut", cut, action="rebellions.npu.rbln_rollout", act="plan", check=True)
    told.task("npu1", "Read", {"member": {"cluster": "prod"}, "work": "run"}, **where, check=True)
    told.task("npu1", "Work", {"objects": {"DaemonSet x": "changed"}}, **where, check=True)
    found = told.end()
    assert found["made"]["check"] is True and found["waves"][0]["state"] == "planned"
    assert found["clusters"][0]["objects"] == [{"object": "DaemonSet x", "action": "changed"}]
    # A run that then does it.
    told.task("npu1", "Work", {"objects": {"DaemonSet x": "changed"}}, **where)
    assert told.end()["made"]["check"] is False
    # Or that has changed a host.
    told.task("npu1", "Work", {"objects": {"DaemonSet x": "changed"}}, **where, check=True)
    assert told.end()["made"]["check"] is True
    told.driver("npu1")
    assert told.end()["made"]["check"] is False


def test_the_cluster_and_the_node_of_a_host() -> None:
    told = Told("npu1", "npu2")
    where: Any = {"action": "rebellions.npu.rbln_operands", "role": "rebellions.npu.rbln_operands"}
    for name in ("npu1", "npu2"):
        told.observed(name)
        told.task(name, "Read", {"member": {"cluster": "prod"}, "work": "run"}, **where)
    objects = {"DaemonSet npu-system/x": "changed", "Namespace npu-system": "unchanged"}
    told.task("npu1", "Work", {"objects": objects}, **where)
    judged = {"cluster": "prod", "ok": True, "node": {"node": "w1"}, "allocatable": {"allocatable": 2, "expected": 2}}
    told.task("npu1", "Judge", {"result": judged, "ok": True, "msg": "fine"}, **where)
    told.task("npu2", "Judge", {"result": {"node": {}}, "ok": False, "msg": "npu2: no node."}, **where)
    found = told.end()
    assert found["clusters"] == [
        {"name": "prod", "hosts": 2, "unchanged": 1, "errors": ["npu2: no node."], "drift": [],
         "objects": [{"object": "DaemonSet npu-system/x", "action": "changed"}]}
    ]  # fmt: skip
    assert found["summary"]["objects"] == 1
    assert [(one["node"], one["node_state"]) for one in found["hosts"]] == [("w1", "2 of 2 allocatable"), ("", "")]


def test_what_the_cluster_says_of_a_node() -> None:
    told = Told("npu1")
    told.observed("npu1")
    state = {**NO_NODE, "node": "w1", "ready": False, "allocatable": 0, "expected": 2}
    told.task("npu1", "Nodes", {"states": {"npu1": state}}, action="rebellions.npu.rbln_operands")
    host = only(told.end())
    assert (host["state"], host["node"], host["node_state"]) == ("failed", "w1", "NotReady, 0 allocatable")
    assert [(one["id"], one["result"]) for one in host["checks"]["others"]] == [
        ("cluster/node_ready", "failed"),
        ("cluster/node_allocatable", "warning"),
    ]


def test_timings_name_the_slowest_first() -> None:
    told = Told("npu1", "npu2")
    told.observed("npu1")
    told.play("2 Preflight", "npu1", "npu2")
    task = TaskOf("same", "Plan", "rebellions.npu.rbln_preflight", "rebellions.npu.rbln_plan")
    for name in ("npu1", "npu2"):
        told.run.start(name, task, told.now)
    for name, took in (("npu1", 2.0), ("npu2", 5.0)):
        told.run.result(name, task, runs.OK, False, dict, told.now + took)
    told.now += 6
    found = told.end()["timings"]
    assert found["plays"] == [{"name": "1 Discover", "seconds": 1.0}, {"name": "2 Preflight", "seconds": 6.0}]
    assert found["roles"][0] == {"name": "rebellions.npu.rbln_preflight", "seconds": 5.0}
    assert found["tasks"][0] == {
        "name": "Plan", "role": "rebellions.npu.rbln_preflight", "play": "2 Preflight", "seconds": 5.0, "hosts": 2,
        "slowest": "npu2", "slowest_seconds": 5.0,
    }  # fmt: skip
    assert [one["seconds"] for one in told.end()["hosts"]] == [3.0, 5.0]


@pytest.mark.parametrize(("act", "reported"), [("", False), ("known", False), ("compare", False), ("drift", True)])
def test_a_report_of_what_is_known_does_not_tell_of_the_run(act: str, reported: bool) -> None:
    told = Told("npu1")
    told.task("npu1", "Write the report", {}, action="rebellions.npu.rbln_report", act=act)
    assert not told.run.ours
    told.observed("npu1")
    assert told.run.ours and told.run.reported is reported


def test_a_skipped_task_and_one_of_others_ask_for_no_data() -> None:
    """A copy of each result would cost the run more than all else."""

    def dear() -> Data:
        raise AssertionError("the result was asked for")

    told = Told("npu1")
    for how, action in ((runs.SKIPPED, "rebellions.npu.rbln_observe"), (runs.OK, "ansible.builtin.command")):
        told.run.result("npu1", TaskOf("x", "x", "", action), how, False, dear, told.now)
    assert told.run.hosts["npu1"].results == 2
