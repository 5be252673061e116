# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has changed on a host since the last report and by whom, and the report of what is known without asking."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._report import drift as drifts
from ansible_collections.rebellions.npu.plugins.plugin_utils._report.build import About
from ansible_collections.rebellions.npu.plugins.plugin_utils._report.compare import last_clusters, last_plans
from ansible_collections.rebellions.npu.plugins.plugin_utils._report.document import Document, Drift, Host
from ansible_collections.rebellions.npu.plugins.plugin_utils._report.known import known
from ansible_collections.rebellions.npu.plugins.plugin_utils._report.totals import recounted
from ansible_collections.rebellions.npu.tests.unit.fixtures import planned, reports

Data = dict[str, Any]
# Between the last report and now.
LATER = 1_796_000_000.0
STEP = {"text": "containerd: CDI off -> CDI on", "disruption": "restart"}


def pair() -> tuple[Any, Any]:
    """(a host as it was seen last, the same one as it is seen now)."""
    before = reports.one_host(0)
    return before, copy.deepcopy(before)


def told(found: list[Drift]) -> list[tuple[str, str, str]]:
    return [(one["what"], one["was"], one["is"]) for one in found]


def test_a_host_that_is_as_it_was_has_no_drift() -> None:
    before, now = pair()
    now.update(seconds=99.0, node_state="Ready, cordoned, 8 allocatable", state="changed", changes=["x"])
    assert drifts.changed(now, before) == []


def test_other_versions_and_other_npus_are_drift() -> None:
    before, now = pair()
    now["versions"].update(kernel="6.8.0-47-generic", driver="3.0.2")
    now["npus"] = 7
    reports._not_passed(now, "driver/driver_is_wanted", "failed", "3.0.2 is loaded, 3.1.0 is wanted", "Run site.")
    assert told(drifts.changed(now, before)) == [
        ("kernel", "6.8.0-45-generic", "6.8.0-47-generic"), ("driver", "3.1.0", "3.0.2"), ("NPUs", "8", "7")
    ]  # fmt: skip


def test_a_step_that_the_plan_did_not_have_is_drift_and_one_that_it_had_is_not() -> None:
    before, now = pair()
    now["planned"] = [STEP, {"text": "driver: 3.1.0 -> 3.2.0", "disruption": "evict"}]
    now["wanted"] = {"driver": "3.2.0"}
    # Another version is wanted than before: the inventory has changed, not the host.
    assert told(drifts.changed(now, before)) == [("containerd", "as wanted", "CDI off")]
    before["planned"] = [STEP]
    assert drifts.changed(now, before) == []


def test_a_step_that_the_last_run_has_done_is_drift_when_it_is_to_do_again() -> None:
    before, now = pair()
    before.update(planned=[STEP], changes=["configuration: /etc/containerd/config.toml"], state="changed")
    now["planned"] = [STEP]
    assert told(drifts.changed(now, before)) == [("containerd", "as wanted", "CDI off")]
    # Not all was done, or it is not known to be.
    for state, reason in (("changed", "A reboot is due."), ("failed", "Driver: x"), ("unknown", "aborted")):
        before.update(state=state, reason=reason)
        assert drifts.changed(now, before) == []


def test_ready_files_are_drift_only_alone() -> None:
    before, now = pair()
    now["planned"] = [STEP, {"text": "ready files: present -> new", "disruption": "none"}]
    assert [one["what"] for one in drifts.changed(now, before)] == ["containerd"]
    now["planned"].pop(0)
    assert [one["what"] for one in drifts.changed(now, before)] == ["ready files"]
    now["npus"] = 7
    assert [one["what"] for one in drifts.changed(now, before)] == ["NPUs"]


def test_a_check_that_has_passed_is_drift_where_nothing_else_tells() -> None:
    before, now = pair()
    reports._not_passed(now, "driver/link_full", "warning", "x8 of x16", "Reseat it.")
    assert told(drifts.changed(now, before)) == [("driver/link_full", "passed", "warning: x8 of x16")]
    reports._not_passed(before, "driver/link_full", "warning", "x8 of x16", "Reseat it.")
    assert drifts.changed(now, before) == []


def test_drift_is_told_of_the_last_plan_and_not_of_cached_facts_or_a_discovery() -> None:
    planned, now = pair()
    planned["planned"], now["planned"] = [STEP], [STEP]
    discovered: Any = {**copy.deepcopy(planned), "planned": None}
    kept: Any = {**planned, "planned": None, "seen": ""}
    site = reports.of_hosts([planned])
    later = [
        reports.of_hosts([kept], source="cache", at="2026-11-30T01:00:00Z"),
        reports.of_hosts([discovered], at="2026-11-30T00:00:00Z"),
    ]
    assert last_plans([now["name"], "x"], [*later, site]) == (site["made"]["at"], {now["name"]: planned})
    assert drifts.changed(now, planned) == [] == drifts.changed(now, copy.deepcopy(planned))
    assert last_plans([now["name"]], later) == ("", {})
    # A report of cached facts copies a host that was seen: when that was is what counts.
    copied = reports.of_hosts([planned], source="cache", at="2026-11-30T01:00:00Z")
    assert last_plans([now["name"]], [copied]) == (reports.BEGAN, {now["name"]: planned})


@pytest.mark.parametrize("which", [0, 1])
def test_a_host_that_was_not_seen_has_not_drifted(which: int) -> None:
    hosts = pair()
    reports._not_seen(hosts[which])
    assert drifts.changed(hosts[1], hosts[0]) == []


APT = {"time": LATER, "log": "/var/log/apt/history.log", "command": "apt-get install x", "by": "kim"}
RPM = {"time": LATER, "log": "/var/log/dnf.rpm.log", "command": "", "by": ""}
FILE = {"path": "/etc/containerd/config.toml", "time": LATER, "owner": "root"}


@pytest.mark.parametrize(
    ("what", "said", "stamp", "by", "evidence"),
    [
        ("driver", {"packages": [{**APT, "packages": ["rebellions-driver"]}]}, {}, "package manager",
         "/var/log/apt/history.log: apt-get install x, by kim"),
        ("kernel", {"packages": [{**RPM, "packages": ["gcc", "kernel-core"]}]}, {}, "package manager",
         "/var/log/dnf.rpm.log: kernel-core"),
        ("containerd", {"packages": [{**RPM, "packages": ["containerd.io"]}], "files": [FILE]}, {}, "package manager",
         "/var/log/dnf.rpm.log: containerd.io"),
        ("containerd", {"packages": [{**RPM, "packages": ["gcc"]}], "files": [FILE]}, {}, "person",
         "/etc/containerd/config.toml was written, its owner is root; no package manager did that"),
        ("containerd of k3s (x)", {"packages": [{**RPM, "packages": ["containerd"]}]}, {}, "package manager",
         "/var/log/dnf.rpm.log: containerd"),
        ("CDI spec", {"files": [{**FILE, "path": "/var/run/cdi/rbln.yaml"}]}, {}, "person",
         "/var/run/cdi/rbln.yaml was written, its owner is root; no package manager did that"),
        ("driver", {"packages": [{**APT, "packages": ["rebellions-driver"]}]},
         {"time": "2026-11-30T00:00:00Z", "by": "lee@other"}, "run", "note of a driver change by lee@other"),
        ("kernel", {"files": [FILE], "packages": []}, {}, "unknown",
         "neither a note of ours, a log of packages, nor a file tells"),
        ("kernel", {}, {}, "unknown", ""),
        ("kernel", {"failed": True, "msg": "It is denied."}, {}, "unknown", "the logs of the host could not be read"),
        ("toolkit/cdi_spec_current", {"packages": [], "files": [{**FILE, "path": "/etc/cdi/rbln.yaml"}]}, {}, "person",
         "/etc/cdi/rbln.yaml was written, its owner is root; no package manager did that"),
        # Of a check, the part that it looks at.
        ("driver/driver_loaded", {"packages": [{**APT, "packages": ["rebellions-driver"]}],
                                  "files": [{**FILE, "path": "/lib/modules/6/x.ko"}]}, {}, "package manager",
         "/var/log/apt/history.log: apt-get install x, by kim"),
    ],
)  # fmt: skip
def test_who_has_done_it(what: str, said: Data, stamp: Data, by: str, evidence: str) -> None:
    found: Any = {"what": what, "was": "a", "is": "b", "by": "unknown", "at": "", "evidence": ""}
    (one,) = drifts.explained([found], said, stamp, ["rebellions-*"])
    assert (one["by"], one["evidence"]) == (by, evidence)
    times = {"unknown": "", "run": "2026-11-30T00:00:00Z"}
    assert one["at"] == times.get(by, "2026-11-30T00:53:20Z")


def test_a_note_of_ours_counts_only_when_it_is_newer() -> None:
    driver = {"stamp": {"installed": {"time": "2026-11-29T10:00:00Z", "by": "kim"}}}
    assert drifts.noted(driver, "2026-11-29T09:00:00Z")["by"] == "kim"
    assert drifts.noted(driver, "2026-11-29T11:00:00Z") == {} == drifts.noted(driver, "") == drifts.noted({}, "2026")


def test_the_files_and_packages_that_a_host_is_asked_for() -> None:
    facts = {
        "rbln": {"driver": {"module_path": "/lib/modules/x.ko"}},
        "rbln_observed": {"cdi": {"path": "/var/run/cdi/rbln.yaml"}},
        "rbln_runtimes": {"runtimes": [{"config_files": ["/etc/a.toml", "/etc/b.toml"]}, {"config_files": []}]},
    }
    assert drifts.paths_of(facts) == ["/lib/modules/x.ko", "/var/run/cdi/rbln.yaml", "/etc/a.toml", "/etc/b.toml"]
    assert drifts.paths_of({}) == []
    assert drifts.packages_of({"packages": [{"name": "odd"}]})[0] == "odd" and len(drifts.packages_of({})) > 1


def lines(hosts: list[Host], since: str = "2026-11-28T00:00:00Z", new: tuple[str, ...] = ()) -> list[str]:
    return [line.text for line in drifts.screen(recounted(reports.of_hosts(hosts)), since, new, {})]


def test_the_screen_says_equal_drift_once() -> None:
    hosts = [reports.one_host(number) for number in range(70)]
    for one in hosts[:64]:
        reports._drifted(one)
    reports._not_seen(hosts[69])
    assert lines(hosts)[:4] == [
        "Drift on 64 of 70 hosts since 2026-11-28T00:00:00Z",
        "npu-0001 to npu-0064:",
        "  driver: 3.1.0 -> 3.0.2",
        "    by a package manager at 2026-11-29T04:11:02Z (/var/log/apt/history.log: apt-get install "
        "rebellions-driver=3.0.2, by kim)",
    ]
    assert lines(hosts)[-1] == "Not seen now: npu-0070" and len(lines(hosts)) == 7


def test_the_screen_without_drift() -> None:
    hosts = [reports.one_host(number) for number in range(3)]
    assert lines(hosts) == ["No drift on 3 hosts since 2026-11-28T00:00:00Z"]
    assert lines(hosts, "") == ["No earlier report with a plan to compare with. This one is the first."]
    hosts[0]["planned"] = [STEP]  # type: ignore[list-item]
    told = "A run would change 1 host: npu-0001. Next: look at `ansible-playbook rebellions.npu.plan`."
    assert lines(hosts, "")[1] == told == lines(hosts, new=("npu-0001",))[1]
    assert lines(hosts, new=("npu-0003",)) == [
        "No drift on 2 hosts since 2026-11-28T00:00:00Z",
        "A run would change 1 host as before: npu-0001. Next: look at `ansible-playbook rebellions.npu.plan`.",
        "Planned for the first time: npu-0003",
    ]


def cached(run: str = "r2") -> Data:
    facts = planned.facts(pool_key="p", counts={"functions": 1, "devices": 1})
    return {"rbln": facts, "rbln_runtimes": planned.runtimes(), "rbln_observed": reports.observed(run=run)}


def test_what_is_known_without_asking_a_host() -> None:
    last = reports.of_hosts([reports.one_host(number) for number in range(3)], run="r1")
    reports._failed(last["hosts"][1])
    looks = {one["name"]: one for one in last["hosts"]}
    names: dict[str, Data] = {
        "npu-0001": cached(),
        "npu-0002": {},
        "npu-0003": cached("r1"),
        "npu-9": {},
        "npu-8": {"rbln": 1},
    }
    third: Any = last["hosts"][2]
    third.update(planned=[STEP], changes=["containerd: CDI on"])
    found = known(names, looks, last, About(), LATER)
    fresh, before, same, never, broken = found["hosts"]
    # Newer than the report; what was wanted and its node are no facts of a host.
    assert (fresh["pool"], fresh["state"], fresh["node"]) == ("p", "ok", "worker-0001")
    assert fresh["checks"]["passed"] == ["driver/npus_found"] and fresh["wanted"] == {"driver": "3.1.0"}
    assert before["state"] == "failed" and before["failure"] == last["hosts"][1]["failure"]
    assert same["checks"] == last["hosts"][2]["checks"] and same["seen"] == reports.BEGAN
    # What that run was to do it has done.
    assert same["planned"] is None and before["planned"] == last["hosts"][1]["planned"]
    assert never["state"] == "unknown" and never["npus"] is None and never["reason"].startswith("No facts of it are")
    assert broken["state"] == "unknown" and "wrong value" in broken["reason"]
    made = found["made"]
    assert (made["source"], made["seconds"], made["began"]) == ("cache", None, "")
    assert found["waves"] == last["waves"] and found["notes"][-1].startswith("Waves, clusters and timings are those")


def test_without_a_cache_and_a_report_nothing_is_known_and_nothing_is_zero() -> None:
    # Facts of Ansible's own say nothing of it.
    caches: list[Data] = [{}, {"distribution": "Debian"}]
    for cache in caches:
        (never,) = known({"npu1": cache}, {}, None, About(), LATER)["hosts"]
        assert never["reason"].startswith("No facts of it are cached") and "Next: Run the playbook" in never["reason"]
    found = known({"npu1": {}}, {}, None, About(), LATER)
    assert found["summary"]["npus"] is None and found["summary"]["states"]["unknown"] == 1
    assert [line.text for line in drifts.not_known(["npu1"])][0].startswith("Nothing is known of npu1. Next: Run")
    assert drifts.not_known([]) == []


def cluster(document: Document, *objects: tuple[str, str], unchanged: int = 3) -> Document:
    told: Any = [{"object": name, "action": action} for name, action in objects]
    return {**document, "clusters": [{**document["clusters"][0], "objects": told, "unchanged": unchanged}]}


def test_objects_that_are_not_as_applied_any_more_are_drift_once() -> None:
    site = cluster(reports.of_hosts([]), ("DaemonSet a/x", "changed"))
    before = cluster(reports.of_hosts([], check=True), ("ConfigMap a/y", "created"))
    silent = cluster(reports.of_hosts([]), unchanged=0)
    now = cluster(
        reports.of_hosts([], check=True),
        ("DaemonSet a/x", "deleted"),
        ("ConfigMap a/y", "changed"),
        ("Job a/z", "failed"),
    )
    # A run has applied all; a report for which the cluster was not asked says nothing of it.
    assert drifts.of_clusters(now, last_clusters(["prod-a"], [silent, site, before])) == {
        "prod-a": ["DaemonSet a/x is left over", "ConfigMap a/y differs"]
    }
    assert drifts.of_clusters(now, last_clusters(["prod-a"], [before, site])) == {
        "prod-a": ["DaemonSet a/x is left over"]
    }
    assert drifts.of_clusters(now, last_clusters(["prod-a"], [now])) == {}
    # A copy of an earlier report applied nothing, and what could not be applied is no drift.
    copied: Any = {**before, "made": {**before["made"], "check": False, "source": "cache"}}
    assert drifts.of_clusters(now, last_clusters(["prod-a"], [copied, before])) == {
        "prod-a": ["DaemonSet a/x is left over"]
    }
    failed = cluster(reports.of_hosts([]), ("DaemonSet a/x", "failed"), ("ConfigMap a/y", "not tried"))
    assert drifts.of_clusters(now, last_clusters(["prod-a"], [failed])) == {}
    # Nobody knows how it was.
    assert drifts.of_clusters(now, last_clusters(["prod-a"], [silent])) == {} == drifts.of_clusters(now, {})
    lines = drifts.screen(now, "2026-11-28T00:00:00Z", [], {"prod-a": ["DaemonSet a/x differs"]})
    assert [line.text for line in lines][1:] == ["Cluster prod-a has drifted:", "  DaemonSet a/x differs"]
