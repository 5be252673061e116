# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The troubleshooting tree holds together: each check and each code has one cause, and the page is the tree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._checks.run import TABLES
from ansible_collections.rebellions.npu.plugins.plugin_utils._doctor import cluster, host
from ansible_collections.rebellions.npu.plugins.plugin_utils._doctor.cause import CHAPTERS
from ansible_collections.rebellions.npu.plugins.plugin_utils._doctor.causes import BY_ID, CAUSES, cause_of
from ansible_collections.rebellions.npu.plugins.plugin_utils._doctor.order import explained
from ansible_collections.rebellions.npu.plugins.plugin_utils._doctor.signs import sign
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes import pods, pulls, taints, verdict
from ansible_collections.rebellions.npu.tests.tools import tree

ROOT = Path(__file__).resolve().parents[5]
CHECKS = {entry.name for table in TABLES for entry in table.entries if entry.severity != "info"} | {"driver_change"}


def codes() -> set[str]:
    """Every code that the room writes as text."""
    sources = [Path(str(module.__file__)).read_text(encoding="utf-8") for module in (host, cluster)]
    kinds = "reach|driver|runtime|ready|machine|api|rights|operator|lease|node|deploy|create|plugin|npus|pair"
    return set(re.findall(r'"((?:%s):[a-z_]+)"' % kinds, "\n".join(sources)))


def test_every_check_that_can_fail_belongs_to_one_cause() -> None:
    assert len(CHECKS) > 50
    claimed = [form.partition("~")[0] for cause in CAUSES for form in cause.signs if form.startswith("check:")]
    plain = [form for cause in CAUSES for form in cause.signs if form.startswith("check:") and "~" not in form]
    assert {name[len("check:") :] for name in claimed} == CHECKS
    assert len(plain) == len(set(plain))


def test_every_code_of_the_room_has_a_cause_and_no_form_is_without_a_code() -> None:
    written = codes()
    assert len(written) > 30
    assert [code for code in written if cause_of(sign(code, "look", "")) is None] == []
    forms = {form.partition("~")[0] for cause in CAUSES for form in cause.signs}
    other = {code for code in forms if not code.startswith(("check:", "pod:"))}
    assert other - written == {"inputs:cluster"}


REASONS = [
    *pulls.PULLS, *pods.NOT_STARTED, *pods.HARMLESS, "CrashLoopBackOff", "CreateContainerConfigError", "OOMKilled",
    "Unschedulable", "TaintToleration", "NodeAffinity", "UnexpectedAdmissionError", "WaitsForHost", "Initialising",
    "NotReady", "Pending", "Terminating", "OutOfcpu", "Evicted",
    "NoLabel", "NotSelected", "NotDiscovered", "NoPod", "NoNodes", "NoNode", "Counts", "NotObserved",
    taints.STAYS, taints.STARTS, taints.LEAVES, taints.STATE, verdict.NODE_LOST, verdict.OLD_POD, verdict.HELD,
]  # fmt: skip


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_of_a_pod_has_a_cause(reason: str) -> None:
    cause = cause_of(sign("pod:" + reason, "pod", "it says nothing"))
    assert cause is not None
    vague = {"NotReady", "Pending", "Terminating", "Initialising", "OldPod", "UpdateHeld", *pods.HARMLESS}
    assert (cause.id == "pods_not_ready") == (reason in vague)


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("failed to do request: dial tcp: lookup registry.example: no such host", "dns_fails"),
        ("proxyconnect tcp: dial tcp 10.0.0.1:3128: connect: connection refused", "proxy_fails"),
        ("write /var/lib/containerd/x: no space left on device", "disk_full"),
        ("x509: certificate has expired or is not yet valid", "clock_differs"),
        ("unresolvable CDI devices rebellions.ai/npu=0", "pod_device_unknown"),
        ("manifest unknown", "image_not_pulled"),
    ],
)
def test_the_words_of_a_pull_tell_the_cause_behind_it(said: str, cause: str) -> None:
    reason = "CreateContainerError" if "CDI" in said else "ErrImagePull"
    found = cause_of(sign("pod:" + reason, "pod p", said))
    assert found is not None and found.id == cause


@pytest.mark.parametrize(
    "said",
    [
        "ended with code 127: rbln-smi: symbol lookup error: librbln-ml.so.3: undefined symbol: rbln_get_count",
        "ended with code 1: failed to lookup device rbln0: not there",
    ],
)
def test_words_of_a_log_are_no_fault_of_resolver_or_disk(said: str) -> None:
    found = cause_of(sign("pod:Error", "pod p", said))
    assert found is not None and found.id == "pod_fails"


@pytest.mark.parametrize(
    ("why", "cause"),
    [
        ("the node is lost", "node_not_ready"),
        ("ImagePullBackOff", "image_not_pulled"),
        ("CrashLoopBackOff", "pod_fails"),
    ],
)
def test_an_update_that_is_held_has_the_cause_of_the_pod_that_holds_it(why: str, cause: str) -> None:
    found = cause_of(sign("pod:UpdateHeld", "pod p", "1 of 1 allowed pods is unavailable, on n3 (%s)" % why))
    assert found is not None and found.id == cause


def test_the_tree_has_no_loop_and_names_only_itself() -> None:
    assert len(BY_ID) == len(CAUSES) > 60
    for cause in CAUSES:
        assert set(cause.explains) <= set(BY_ID), cause.id
        assert cause.id not in explained(cause.id), cause.id
        assert cause.chapter in CHAPTERS and re.fullmatch(r"[a-z][a-z0-9_]*", cause.id)
        assert all((cause.seen, cause.what, cause.prove, cause.remedy, cause.signs)), cause.id
        assert cause.what.endswith(".") and cause.remedy.endswith("."), cause.id


def test_what_explains_stands_before_what_it_explains() -> None:
    """The order is that of a search, in which nobody goes back; what is told of elsewhere is last."""
    place = {cause.id: number for number, cause in enumerate(CAUSES)}
    # What the cluster has done to a host may be behind what the host shows.
    own = [cause for cause in CAUSES if cause.id != "vendor_operator"]
    wrong = [(cause.id, later) for cause in own for later in cause.explains if place[later] < place[cause.id]]
    assert wrong == []


def test_the_page_is_the_tree() -> None:
    page = (ROOT / tree.PAGE).read_text(encoding="utf-8")
    assert tree.page(ROOT) == page, "Next: python -m tests.tools.tree"
    told = re.findall(r"^\| `([a-z0-9_]+)` \|", page.partition("## What a run says")[0], re.M)
    assert [one for one in told if one in BY_ID] == [
        cause.id for chapter in CHAPTERS for cause in CAUSES if cause.chapter == chapter
    ]
