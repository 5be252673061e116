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
from ansible_collections.rebellions.npu.plugins.plugin_utils._report.markdown import object_text
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


def told_of(found: list[Drift]) -> list[tuple[str, str, str]]:
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
    assert told_of(drifts.changed(now, before)) == [
        ("kernel", "6.8.0-45-generic", "6.8.0-47-generic"), ("driver", "3.1.0", "3.0.2"), ("NPUs", "8", "7")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("what", "known", "unknown"),
    [
        ("driver", "3.1.0", "unknown"), ("driver", "3.1.0", "loaded"), ("firmware", "3.1.0", "-"),
        ("os", "ubuntu 24.04", "unknown"), ("runtime", "containerd 2.1.4", "containerd"),
        ("runtime", "containerd 2.1.4, docker 27.3.1", "containerd 2.1.4, docker"), ("runtime", "none", "unknown"),
    ],
)  # fmt: skip
def test_what_is_not_known_has_not_changed(what: str, known: str, unknown: str) -> None:
    before, now = pair()
    before["versions"][what], now["versions"][what] = known, unknown
    assert drifts.compared(now, before) == ([], [{"what": what, "was": known, "why": ""}])
    # Known again, or not known as before.
    assert drifts.compared(now=before, before=now) == ([], []) == drifts.compared(now, copy.deepcopy(now))


def test_a_number_a_step_and_a_check_that_are_not_known_are_no_drift() -> None:
    before, now = pair()
    now["npus"] = None
    now["planned"] = [{"text": "CDI spec: unknown -> current", "disruption": "none"}]
    reports._not_passed(now, "driver/driver_loaded", "unknown", "denied", "Run as root.")
    assert drifts.compared(now, before) == (
        [],
        [
            {"what": "NPUs", "was": "8", "why": ""},
            {"what": "CDI spec", "was": "as wanted", "why": "unknown"},
            {"what": "driver/driver_loaded", "was": "passed", "why": "denied"},
        ],
    )
    assert drifts.compared(now=before, before=now) == ([], [])
    # What has changed is told beside it.
    now["versions"]["kernel"] = "6.8.0-47-generic"
    assert [one["what"] for one in drifts.changed(now, before)] == ["kernel"]


def test_what_is_known_again_is_compared_with_what_was_known_before() -> None:
    before, lost = pair()
    lost["versions"]["driver"], lost["npus"] = "unknown", None
    lost["planned"] = [{"text": "CDI spec: unknown -> current", "disruption": "none"}]
    reports._not_passed(lost, "driver/driver_loaded", "unknown", "denied", "Run as root.")
    lost["not_known"] = drifts.compared(lost, before)[1]
    # It stays not known.
    again = copy.deepcopy(lost)
    assert drifts.compared(again, lost) == ([], lost["not_known"]) and len(lost["not_known"]) == 4
    now = copy.deepcopy(before)
    assert drifts.compared(now, lost) == ([], [])
    now["versions"]["driver"], now["npus"] = "3.0.2", 7
    now["planned"] = [{"text": "CDI spec: stale -> current", "disruption": "none"}]
    assert told_of(drifts.changed(now, lost)) == [
        ("driver", "3.1.0", "3.0.2"), ("NPUs", "8", "7"), ("CDI spec", "as wanted", "stale")
    ]  # fmt: skip
    now = copy.deepcopy(before)
    reports._not_passed(now, "driver/driver_loaded", "failed", "not loaded", "Load it.")
    assert told_of(drifts.changed(now, lost)) == [("driver/driver_loaded", "passed", "failed: not loaded")]


def test_a_runtime_that_is_gone_or_stopped_has_changed() -> None:
    before, now = pair()
    for told in ("none", "containerd STOPPED", "containerd 2.1.4 STOPPED"):
        now["versions"]["runtime"] = told
        assert told_of(drifts.changed(now, before)) == [("runtime", "containerd 2.1.4", told)]


def test_a_step_that_the_plan_did_not_have_is_drift_and_one_that_it_had_is_not() -> None:
    before, now = pair()
    now["planned"] = [STEP, {"text": "driver: 3.1.0 -> 3.2.0", "disruption": "evict"}]
    now["wanted"] = {"driver": "3.2.0"}
    # Another version is wanted than before: the inventory has changed, not the host.
    assert told_of(drifts.changed(now, before)) == [("containerd", "as wanted", "CDI off")]
    before["planned"] = [STEP]
    assert drifts.changed(now, before) == []


def test_a_step_that_the_last_run_has_done_is_drift_when_it_is_to_do_again() -> None:
    before, now = pair()
    before.update(planned=[STEP], changes=["configuration: /etc/containerd/config.toml"], state="changed")
    now["planned"] = [STEP]
    assert told_of(drifts.changed(now, before)) == [("containerd", "as wanted", "CDI off")]
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
    assert told_of(drifts.changed(now, before)) == [("driver/link_full", "passed", "warning: x8 of x16")]
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
UNREAD = [{"path": "/var/log/apt/history.log", "reason": "denied: Permission denied"}]
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
        ("CDI spec", {"packages": [], "files": [{**FILE, "path": "/var/run/cdi/rbln.yaml"}]}, {}, "person",
         "/var/run/cdi/rbln.yaml was written, its owner is root; no package manager did that"),
        ("driver", {"packages": [{**APT, "packages": ["rebellions-driver"]}]},
         {"time": "2026-11-30T00:00:00Z", "by": "lee@other"}, "run", "note of a driver change by lee@other"),
        ("kernel", {"files": [FILE], "packages": []}, {}, "unknown",
         "neither a note of ours, a log of packages, nor a file tells"),
        # Who has edited its configuration has not brought another version.
        ("runtime", {"files": [FILE], "packages": []}, {}, "unknown",
         "neither a note of ours, a log of packages, nor a file tells"),
        ("kernel", {}, {}, "unknown", ""),
        ("kernel", {"failed": True, "msg": "It is denied."}, {}, "unknown",
         "not known who, as the logs of the host could not be read. Next: Look on the host who was logged in then."),
        ("toolkit/cdi_spec_current", {"packages": [], "files": [{**FILE, "path": "/etc/cdi/rbln.yaml"}]}, {}, "person",
         "/etc/cdi/rbln.yaml was written, its owner is root; no package manager did that"),
        # A package manager could have done it.
        ("containerd", {"packages": [], "files": [FILE], "unread": UNREAD}, {}, "unknown",
         "/etc/containerd/config.toml was written; not known who, as /var/log/apt/history.log could not be read "
         "(denied: Permission denied). Next: Look on the host who was logged in then."),
        ("kernel", {"packages": [], "files": [], "unread": UNREAD}, {}, "unknown",
         "not known who, as /var/log/apt/history.log could not be read (denied: Permission denied). "
         "Next: Look on the host who was logged in then."),
        ("driver", {"packages": [{**APT, "packages": ["rebellions-driver"]}], "unread": UNREAD}, {},
         "package manager", "/var/log/apt/history.log: apt-get install x, by kim"),
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
    # The file tells when, though not who.
    times = {
        "unknown": "2026-11-30T00:53:20Z" if evidence.startswith(FILE["path"]) else "",
        "run": "2026-11-30T00:00:00Z",
    }
    assert one["at"] == times.get(by, "2026-11-30T00:53:20Z")


def test_a_note_of_ours_counts_only_when_it_is_newer() -> None:
    driver = {"stamp": {"installed": {"time": "2026-11-29T10:00:00Z", "by": "kim"}}}
    assert drifts.noted(driver, "2026-11-29T09:00:00Z")["by"] == "kim"
    assert drifts.noted(driver, "2026-11-29T11:00:00Z") == {} == drifts.noted(driver, "") == drifts.noted({}, "2026")


def test_the_files_and_packages_that_a_host_is_asked_for() -> None:
    facts: dict[str, Any] = {
        "rbln": {"driver": {"module_path": "/lib/modules/x.ko"}},
        "rbln_observed": {"cdi": {"path": "/var/run/cdi/rbln.yaml"}},
        "rbln_runtimes": {"runtimes": [{"config_files": ["/etc/a.toml", "/etc/b.toml"]}, {"config_files": []}]},
    }
    assert drifts.paths_of(facts) == ["/lib/modules/x.ko", "/var/run/cdi/rbln.yaml", "/etc/a.toml", "/etc/b.toml"]
    assert drifts.paths_of({}) == []
    # k3s writes its own at each start, as no person does.
    k3s = "/var/lib/rancher/k3s/agent/etc/containerd/"
    (one, _none) = facts["rbln_runtimes"]["runtimes"]
    one.update(flavor="k3s", main_config=k3s + "config.toml", config_files=[k3s + "config.toml", "/etc/b.toml"])
    assert drifts.paths_of({"rbln_runtimes": facts["rbln_runtimes"]}) == [
        "/etc/b.toml", k3s + "config.toml.tmpl", k3s + "config-v3.toml.tmpl", k3s + "containerd-template.toml"
    ]  # fmt: skip
    assert drifts.packages_of({"packages": [{"name": "odd"}]})[0] == "odd" and len(drifts.packages_of({})) > 1


def lines(hosts: list[Host], since: str = "2026-11-28T00:00:00Z", new: tuple[str, ...] = ()) -> list[str]:
    return [line.text for line in drifts.screen(recounted(reports.of_hosts(hosts)), since, new)]


def test_the_screen_says_equal_drift_once() -> None:
    hosts = [reports.one_host(number) for number in range(70)]
    for one in hosts[:64]:
        reports._drifted(one)
        one["not_known"] = []
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
    hosts[1]["not_known"] = [{"what": "driver", "was": "3.1.0", "why": ""}, {"what": "NPUs", "was": "8", "why": ""}]
    assert lines(hosts)[0] == "No drift on 2 hosts since 2026-11-28T00:00:00Z"
    assert lines(hosts)[1:3] == [
        "Not known of npu-0002 now: driver (was 3.1.0), NPUs (was 8)",
        "Next: Run `ansible-playbook rebellions.npu.doctor` over them.",
    ]
    hosts[1]["not_known"] = []
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
    return {**document, "clusters": [{**document["clusters"][0], "objects": told, "unchanged": unchanged, "drift": []}]}


def drifted(now: Document, *earlier: Document) -> list[str]:
    (part,) = drifts.of_clusters(now["clusters"], last_clusters(["prod-a"], earlier))
    return [object_text(one) for one in part["drift"]]


def test_objects_that_are_not_as_applied_any_more_are_drift_once() -> None:
    site = cluster(reports.of_hosts([]), ("DaemonSet a/x", "changed"))
    before = cluster(reports.of_hosts([], check=True), ("ConfigMap a/y", "created"))
    silent = cluster(reports.of_hosts([]), unchanged=0)
    now = cluster(
        reports.of_hosts([], check=True),
        ("DaemonSet a/x", "deleted"),
        ("ConfigMap a/y", "changed"),
        ("Secret a/s", "created"),
        ("Job a/z", "failed"),
    )
    # A run has applied all; a report for which the cluster was not asked says nothing of it.
    told = ["DaemonSet a/x is left over", "ConfigMap a/y differs", "Secret a/s is missing"]
    assert drifted(now, silent, site, before) == told
    assert drifted(now, before, site) == [told[0], told[2]]
    assert drifted(now, copy.deepcopy(now)) == []
    # A copy of an earlier report applied nothing, and what could not be applied is no drift.
    copied: Any = {**before, "made": {**before["made"], "check": False, "source": "cache"}}
    assert drifted(now, copied, before) == [told[0], told[2]]
    failed = cluster(reports.of_hosts([]), ("DaemonSet a/x", "failed"), ("ConfigMap a/y", "not tried"))
    assert drifted(now, failed) == [told[2]]
    # Nobody knows how it was.
    assert drifted(now, silent) == [] == drifted(now)
    now["clusters"][0]["drift"] = [{"object": "DaemonSet a/x", "is": "other"}]
    lines = drifts.screen(now, "2026-11-28T00:00:00Z", [])
    assert [line.text for line in lines][1:] == ["Cluster prod-a has drifted:", "  DaemonSet a/x differs"]


def test_the_report_keeps_the_drift_of_clusters_and_one_of_cached_facts_has_none() -> None:
    last = reports.of_hosts([reports.one_host(0)])
    reports.cluster_drifted(last)
    last = recounted(last)
    assert last["summary"]["objects_drifted"] == 1
    found = known({}, {}, last, About(), LATER)
    assert found["clusters"] == [{**last["clusters"][0], "drift": []}] and found["summary"]["objects_drifted"] == 0
