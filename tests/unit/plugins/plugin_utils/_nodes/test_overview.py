# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts on one screen: a row each, what is wrong with its next step, and totals, however many they are."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.overview import (
    GROUPS,
    HEAD,
    ROWS,
    HostState,
    findings,
    overview,
    state_of,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.states import NO_NODE
from ansible_collections.rebellions.npu.plugins.plugin_utils._text.screen import BAD, GOOD, PLAIN, UNSURE

Data = dict[str, Any]
NODE: Any = {**NO_NODE, "node": "n1", "ready": True, "allocatable": 2, "expected": 2}


def check(name: str, ok: bool | None = True, severity: str = "error", **more: Any) -> Data:
    plain = {"name": name, "scope": "driver", "ok": ok, "severity": severity, "detail": "seen.", "next_step": ""}
    return {**plain, **more}


def facts(**more: Any) -> Data:
    plain: Data = {
        "counts": {"devices": 2},
        "driver": {"loaded": True, "version_loaded": "3.2.2", "version_on_disk": "3.2.2"},
        "npus": [{"firmware": "3.2.2"}, {"firmware": "3.2.2"}, {"firmware": None}],
        "os": {"id": "ubuntu", "version_id": "22.04"},
        "kernel": {"running": "5.15.0-1"},
    }
    return {**plain, **more}


def runtime(**more: Any) -> Data:
    one = {"name": "containerd", "version": "1.7.1", "selected": True, "unit_state": "active", "process_started": 1.0}
    return {"runtimes": [{**one, **more}]}


def host(name: str = "npu1", checks: list[Data] | None = None, **more: Any) -> HostState:
    known: Data = {"facts": facts(), "runtimes": runtime(), "node": NODE, **more}
    return HostState(name, record={"checks": checks or [check("npus_found")]}, **known)


def cells(one: HostState) -> dict[str, str]:
    """The row of one host by the columns of the head."""
    head, row = overview([one])[:2]
    starts = [head.text.index(word) for word in HEAD]
    ends = [*starts[1:], None]
    return {word: row.text[start:end].strip() for word, start, end in zip(HEAD, starts, ends)}


def test_a_host_in_order_is_one_green_row_and_a_total() -> None:
    lines = overview([host()])
    assert cells(host()) == {
        "host": "npu1",
        "NPUs": "2",
        "driver": "3.2.2",
        "firmware": "3.2.2",
        "system": "ubuntu 22.04",
        "kernel": "5.15.0-1",
        "runtime": "containerd 1.7.1",
        "node": "Ready, 2 allocatable",
        "checks": "1 ok",
    }
    assert [line.tone for line in lines] == [PLAIN, GOOD, PLAIN, GOOD] and lines[-1].text == "1 host: 1 ok"


def test_checks_that_are_only_named_are_counted_too() -> None:
    one = host()
    named = {
        **one.record,
        "checks": [check("tool_answers", None)],
        "passed_checks": {"driver": ["a"], "toolkit": ["b"]},
    }
    assert cells(HostState("npu1", one.facts, one.runtimes, named, NODE))["checks"] == "2 ok, 1 unknown"


@pytest.mark.parametrize(
    "more, column, told",
    [
        ({"facts": facts(driver={"loaded": False, "version_on_disk": "3.4.0"})}, "driver", "3.4.0, not loaded"),
        ({"facts": facts(driver={"loaded": False})}, "driver", "none"),
        ({"facts": facts(driver={"loaded": None, "version_on_disk": "3.4.0"})}, "driver", "unknown"),
        (
            {"facts": facts(driver={"loaded": True, "version_loaded": "3.2.2", "version_on_disk": "3.4.0"})},
            "driver",
            "3.2.2 (3.4.0 on disk)",
        ),
        ({"facts": facts(counts={"devices": None})}, "NPUs", "unknown"),
        ({"facts": facts(counts={"devices": 0}, npus=[])}, "firmware", "-"),
        ({"facts": facts(npus=[{"firmware": "1"}, {"firmware": "2"}])}, "firmware", "1, 2"),
        ({"runtimes": {"runtimes": []}}, "runtime", "none"),
        ({"runtimes": {}}, "runtime", "unknown"),
        ({"runtimes": {**runtime(selected=False), "ambiguous": {"reason": "two"}}}, "runtime", "unknown"),
        ({"runtimes": runtime(unit_state="inactive", process_started=None)}, "runtime", "containerd 1.7.1 STOPPED"),
        ({"runtimes": runtime(unit_state="active", process_started=None)}, "runtime", "containerd 1.7.1"),
        ({"node": None}, "node", "-"),
        ({"node": {**NODE, "error": "not a member"}}, "node", "unknown"),
        ({"node": {**NODE, "cordoned": True, "drained": False}}, "node", "Ready, cordoned, 2 allocatable"),
        ({"node": {**NODE, "cordoned": True, "drained": None}}, "node", "Ready, cordoned, 2 allocatable"),
        ({"node": {**NODE, "cordoned": True, "drained": True}}, "node", "Ready, drained, 2 allocatable"),
        ({"node": {**NODE, "ready": False, "taints": ["a=b:NoSchedule"]}}, "node", "NotReady, tainted, 2 allocatable"),
    ],
)
def test_what_a_row_says(more: Data, column: str, told: str) -> None:
    assert cells(host(**more))[column] == told


def test_what_is_wrong_is_below_the_row_the_worst_first_with_its_next_step() -> None:
    checks = [
        check("one"),
        check("link_full", False, "warning", detail="slow", next_step="Reseat the card."),
        check("tool_answers", None, detail="not\nknown"),
        check("driver_loaded", False, detail="it is not loaded.", next_step="Run `modprobe rebellions`."),
        check("kernels_have_module", False, "info"),
        check("driver_ready_readable", None, "info"),
    ]
    lines = overview([host(checks=checks)])
    assert cells(host(checks=checks))["checks"] == "1 ok, 1 failed, 1 unknown, 1 warning"
    assert [(line.text, line.tone) for line in lines[2:]] == [
        ("", PLAIN),
        ("npu1:", PLAIN),
        ("  FAILED   driver/driver_loaded: it is not loaded. Next: Run `modprobe rebellions`.", BAD),
        ("  unknown  driver/tool_answers: not known.", UNSURE),
        ("  warning  driver/link_full: slow. Next: Reseat the card.", UNSURE),
        ("", PLAIN),
        ("1 host: 1 failed", BAD),
    ]


@pytest.mark.parametrize(
    "node, word, told",
    [
        ({"ready": False}, "FAILED", "cluster: node n1 is not Ready."),
        ({"cordoned": True}, "warning", "cluster: node n1 is cordoned. Next: Run `kubectl uncordon n1`"),
        ({"cordoned": True, "drained": True}, "warning", "cluster: node n1 is cordoned and drained. Next: "),
        ({"taints": ["a=b:NoSchedule"]}, "warning", "cluster: node n1 has the taint a=b:NoSchedule, which keeps"),
        ({"allocatable": 1}, "warning", "cluster: node n1 offers 1 of 2 NPUs. Next: "),
        ({"error": "npu1 is in no cluster. Next: Join it."}, "unknown", "cluster: npu1 is in no cluster. Next: Join"),
    ],
)
def test_what_the_cluster_says_of_the_node(node: Data, word: str, told: str) -> None:
    (found,) = findings(host(node={**NODE, **node}))
    assert found.word == word and found.text.startswith(told)


@pytest.mark.parametrize("node", [{}, {"expected": None, "allocatable": 0}, {"expected": 0, "allocatable": 0}])
def test_a_node_in_order_or_without_a_known_number_is_no_finding(node: Data) -> None:
    assert findings(host(node={**NODE, **node})) == []


def test_unknown_is_not_ok_and_a_warning_is() -> None:
    assert state_of(host(checks=[check("a", None)])) == "unknown"
    assert state_of(host(checks=[check("a", False, "warning"), check("b", None, "warning")])) == "ok"
    assert [one.word for one in findings(host(checks=[check("b", None, "warning")]))] == ["warning"]
    assert state_of(host(checks=[check("a", False), check("b", None)])) == "failed"
    assert state_of(HostState("npu9", error="unreachable")) == "not seen"


def test_a_host_that_was_not_seen_has_its_row_and_its_reason() -> None:
    lines = overview([host(), HostState("npu9", error="Failed to connect\nvia ssh")])
    assert [line.text.split()[0] for line in lines[1:3]] == ["npu9", "npu1"] and lines[1].text.endswith("not seen")
    assert "  FAILED   not seen: Failed to connect via ssh" in [line.text for line in lines]
    assert lines[-1] == ("2 hosts: 1 ok, 1 not seen", BAD)


def test_evidence_and_long_words_are_cut() -> None:
    long = check("a", False, detail="x" * 9000, next_step="y" * 9000, evidence={"z": "z" * 9000})
    assert max(len(line.text) for line in overview([host(checks=[long])])) < 600


@pytest.mark.parametrize("count", [3, 64, 1000])
def test_equal_hosts_are_one_row_and_different_ones_are_bounded(count: int) -> None:
    equal = overview([host("npu%d" % number) for number in range(count)])
    assert len(equal) == 4 and equal[-1].text == "%d hosts: %d ok" % (count, count)
    assert equal[1].text.startswith("npu0, npu1, npu2" + (" and %d more" % (count - 3) if count > 3 else ""))
    each = [host("npu%d" % number, [check("a", False, detail="card %d" % number)]) for number in range(count)]
    lines = overview(each)
    assert len(lines) <= 1 + ROWS + 1 + 3 * GROUPS + 4 and lines[-1].text == "%d hosts: %d failed" % (count, count)
    own = overview([host("npu%d" % number, facts=facts(kernel={"running": str(number)})) for number in range(count)])
    assert len(own) <= ROWS + 4
    assert any("%d hosts more" % (count - ROWS) in line.text for line in own) is (count > ROWS)


def test_of_many_hosts_those_with_faults_are_shown() -> None:
    many = [host("npu%d" % number, facts=facts(kernel={"running": str(number)})) for number in range(200)]
    broken = host("broken", [check("driver_loaded", False)])
    assert overview([*many, broken])[1].text.startswith("broken ")
