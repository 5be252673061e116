# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who uses the NPUs: refused, waited for, or stopped; services and daemon in their order."""

from __future__ import annotations

import os
import signal
import subprocess
import typing as t
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._driver import units as driver_units
from ansible_collections.rebellions.npu.plugins.module_utils._driver.journal import Journal
from ansible_collections.rebellions.npu.plugins.module_utils._driver.request import Request
from ansible_collections.rebellions.npu.plugins.module_utils._driver.units import Units
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import TIMEOUT, VALUE, Completed, Host, Probe
from ansible_collections.rebellions.npu.tests.unit.fixtures.driver_machine import DAEMON, MODULE
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import KERNEL, Tree, module_file

PID = 4200


class Node:
    """A host with units and one process; `sleeps` counts the waits, and after `leaves` of them the process is gone."""

    def __init__(self, root: Path, **keys: t.Any) -> None:
        self.tree = Tree(root)
        self.tree.folder("/sys/module").folder("/proc/1/fd").write("/proc/sys/kernel/osrelease", KERNEL + "\n")
        self.units: dict[str, str] = {}
        self.enabled: dict[str, str] = {}
        self.stuck: set[str] = set()
        self.acts: list[str] = []
        self.sleeps: list[float] = []
        self.leaves = 10**6
        self.host = Host(str(root), self.run)
        self.work = Units(self.host, PROFILE, Request(**keys), self.sleep)
        self.journal = Journal(self.host, PROFILE)
        self.journal.begin({"stopped": []})

    def loaded(self, version: str = "3.2.2") -> Node:
        self.tree.write("/sys/module/rebellions/version", version + "\n")
        return self.references(0)

    def references(self, count: int) -> Node:
        self.tree.write("/sys/module/rebellions/refcnt", "%d\n" % count)
        return self

    def process(self, pid: int = PID, name: str = "python3", cgroup: str = "0::/user.slice\n") -> Node:
        self.tree.link("/proc/%d/fd/3" % pid, "/dev/rbln0").write("/proc/%d/comm" % pid, name + "\n").write(
            "/proc/%d/cgroup" % pid, cgroup
        )
        self.tree.write("/proc/%d/stat" % pid, "%d (%s) S 1" % (pid, name)).write("/proc/%d/maps" % pid)
        return self.references(1) if self.tree.real("/sys/module/rebellions").exists() else self

    def leave(self, pid: int = PID) -> None:
        link = self.tree.real("/proc/%d/fd/3" % pid)
        if link.is_symlink():
            link.unlink()
            self.references(0)

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        if len(self.sleeps) >= self.leaves:
            self.leave()

    def run(self, argv: t.Sequence[str], timeout: float, env: t.Any) -> Probe:
        program, act, unit = argv
        assert program == "systemctl"
        if act == "is-active":
            return Probe(VALUE, Completed(0, self.units.get(unit, "inactive") + "\n", ""))
        if act == "is-enabled":
            return Probe(VALUE, Completed(0, self.enabled.get(unit, "not-found") + "\n", ""))
        self.acts.append("%s %s" % (act, unit))
        if unit in self.stuck:
            return Probe(TIMEOUT, None, "systemctl gave no answer in 90 s")
        self.units[unit] = "active" if act == "start" else "inactive"
        return Probe(VALUE, Completed(0, "", ""))


# -- which version is here


@pytest.mark.parametrize(
    "on_disk, loaded, noted, version",
    [
        ("3.4.0", "3.2.2", "3.1.0", "3.4.0"),
        (None, "3.2.2", "3.1.0", "3.2.2"),
        (None, None, "3.1.0", "3.1.0"),
        (None, None, None, None),
        (None, "", "3.1.0", "3.1.0"),
    ],
)
def test_the_version_is_that_on_disk_else_the_loaded_else_the_noted(
    tmp_path: Path, on_disk: str | None, loaded: str | None, noted: str | None, version: str | None
) -> None:
    node = Node(tmp_path)
    if on_disk:
        node.tree.write(MODULE, module_file(on_disk))
    if loaded is not None:
        node.loaded(loaded)
    assert node.work.present_version({"version": noted} if noted else None) == version


# -- units


@pytest.mark.parametrize(
    "state, stopped",
    [
        ("active", True),
        ("activating", True),
        ("reloading", True),
        ("inactive", False),
        ("failed", False),
        ("deactivating", False),
    ],
)
def test_what_runs_is_stopped_and_noted_first(tmp_path: Path, state: str, stopped: bool) -> None:
    node = Node(tmp_path, services=["a.service"])
    node.units["a.service"] = state
    node.work.stop(node.journal)
    assert (node.acts, node.journal.record["stopped"]) == ((["stop a.service"], ["a.service"]) if stopped else ([], []))


def test_services_stop_in_their_order_and_the_daemon_last(tmp_path: Path) -> None:
    node = Node(tmp_path, services=["b.service", "a.service"])
    node.units.update({"a.service": "active", "b.service": "active", DAEMON: "active", "rbln_daemon.service": "active"})
    node.work.stop(node.journal)
    assert node.acts == ["stop b.service", "stop a.service", "stop rbln-smd.service", "stop rbln_daemon.service"]
    assert node.journal.record["stopped"] == ["b.service", "a.service", "rbln-smd.service", "rbln_daemon.service"]
    warnings: list[str] = []
    node.work.start_services(node.journal, warnings.append)
    assert (node.acts[4:], warnings) == (["start a.service", "start b.service"], [])


@pytest.mark.parametrize(
    "answer, words",
    [
        (Probe(TIMEOUT, None, "systemctl gave no answer in 90 s"), "gave no answer in 90 s"),
        (Probe("denied", None, "systemctl may not be run"), "may not be run"),
        (
            Probe(VALUE, Completed(1, "", "Failed to connect to bus: No such file or directory\n")),
            "Failed to connect to bus",
        ),
    ],
)
def test_a_unit_of_which_systemd_says_nothing_is_not_taken_for_stopped(
    tmp_path: Path, answer: Probe, words: str
) -> None:
    node = Node(tmp_path, services=["a.service"])
    node.work.host = Host(str(tmp_path), lambda *arguments: answer)
    with pytest.raises(NpuError, match="^systemd does not report whether a.service runs: .*%s" % words):
        node.work.require_answers()
    node.work.host = Host(str(tmp_path), lambda *arguments: Probe("absent", None, "no program systemctl"))
    node.work.require_answers()


def test_a_unit_that_does_not_stop_is_an_error_and_is_owed_all_the_same(tmp_path: Path) -> None:
    node = Node(tmp_path, services=["a.service"])
    node.units["a.service"], node.stuck = "active", {"a.service"}
    with pytest.raises(NpuError, match="^systemctl stop a.service failed: systemctl gave no answer in 90 s. "):
        node.work.stop(node.journal)
    assert node.journal.record["stopped"] == ["a.service"]


def test_what_was_stopped_twice_is_owed_once_and_last(tmp_path: Path) -> None:
    node = Node(tmp_path, services=["a.service"])
    node.journal.begin({"stopped": ["a.service", "b.service"]})
    node.units["a.service"] = "active"
    node.work.stop(node.journal)
    assert node.journal.record["stopped"] == ["b.service", "a.service"]


def test_what_was_started_since_is_stopped_again(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.journal.begin({"stopped": ["a.service", "b.service", DAEMON]})
    node.units.update({"b.service": "active", DAEMON: "active", "c.service": "active"})
    node.work.stop_again(node.journal)
    assert node.acts == ["stop b.service", "stop rbln-smd.service"]


def test_a_service_that_does_not_start_is_told_and_the_others_start(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.journal.begin({"stopped": ["a.service", "b.service"]})
    node.stuck = {"b.service"}
    warnings: list[str] = []
    node.work.start_services(node.journal, warnings.append)
    assert node.acts == ["start b.service", "start a.service"] and warnings[0].startswith(
        "systemctl start b.service failed"
    )


@pytest.mark.parametrize(
    "enabled, active, stopped, started",
    [
        ("enabled", False, False, True),
        ("enabled", True, False, False),
        ("disabled", False, False, False),
        ("disabled", False, True, True),
        ("static", False, True, True),
        ("not-found", False, True, False),
        ("", False, True, False),
        ("masked", False, True, False),
        ("masked-runtime", False, True, False),
    ],
)
def test_the_daemon_starts_where_it_is_enabled_or_ran_before(
    tmp_path: Path, enabled: str, active: bool, stopped: bool, started: bool
) -> None:
    node = Node(tmp_path)
    node.enabled[DAEMON] = enabled
    node.units[DAEMON] = "active" if active else "inactive"
    node.journal.begin({"stopped": [DAEMON] if stopped else []})
    node.work.start_daemon(node.journal)
    assert node.acts == (["start rbln-smd.service"] if started else [])


# -- everybody else

REST = "2 references without an open handle"
IN_USE = {
    "kind": "process",
    "pid": PID,
    "name": "python3",
    "nodes": ("rbln0",),
    "container": "",
    "unit": "",
    "started": None,
    "pod": "",
}


def test_nobody_uses_a_module_that_is_not_loaded(tmp_path: Path) -> None:
    node = Node(tmp_path).process()
    assert (node.work.refuse_or_wait(), node.work.holders()) == ([], [])


def test_a_user_is_refused_at_once_and_named(tmp_path: Path) -> None:
    node = Node(tmp_path).loaded().process()
    with pytest.raises(driver_units.InUse) as caught:
        node.work.refuse_or_wait()
    assert caught.value.message == "The NPUs are in use: python3 (pid 4200) on rbln0."
    assert (
        caught.value.next_step
        == "Stop these users, list their services, or set in_use to wait or stop; nothing was changed."
    )
    assert (caught.value.users, node.sleeps, node.acts) == ([IN_USE], [], [])


def test_a_user_that_ends_is_waited_for(tmp_path: Path) -> None:
    node = Node(tmp_path, in_use="wait", in_use_timeout=600).loaded().process()
    node.leaves, told = 3, []
    found = node.work.refuse_or_wait(told.append)
    assert (node.sleeps, found) == ([driver_units.LOOK_EVERY] * 3, [IN_USE])
    assert told == ["waits, at most 600 s, until nothing uses the NPUs: python3 (pid 4200) on rbln0"] * 3


def test_a_user_that_stays_is_refused_after_the_limit(tmp_path: Path) -> None:
    node = Node(tmp_path, in_use="wait", in_use_timeout=0.05).loaded().process()
    with pytest.raises(NpuError, match="^The NPUs are in use after 0.05 s: python3"):
        node.work.refuse_or_wait()
    assert node.sleeps


@pytest.mark.parametrize("policy", ["refuse", "wait", "stop"])
def test_I05_references_without_a_holder_are_refused_before_anything_is_stopped(tmp_path: Path, policy: str) -> None:
    """I05: stopping services ends no reference that no process is seen to hold; nothing unloads the module by force."""
    node = Node(tmp_path, in_use=policy, in_use_timeout=0.05, services=["a.service"]).loaded().references(2)
    node.units = {"a.service": "active"}
    with pytest.raises(driver_units.InUse) as caught:
        node.work.refuse_or_wait()
    waited = " after 0.05 s" if policy == "wait" else ""
    assert caught.value.message == "The NPUs are in use%s: %s." % (waited, REST)
    assert caught.value.next_step == (
        "End what holds the module, or reboot the host, or let the run reboot it (reboot: if_required); "
        "nothing was changed."
    )
    assert ([row["kind"] for row in caught.value.users], node.acts) == (["kernel"], [])


@pytest.mark.parametrize("policy", ["refuse", "wait", "stop"])
def test_I05_a_reboot_ends_what_has_no_process_where_the_run_may_reboot(tmp_path: Path, policy: str) -> None:
    node = Node(tmp_path, in_use=policy, in_use_timeout=0.05, reboot_allowed=True).loaded().references(2)
    node.tree.folder("/sys/module/rebellions/holders/rblnfs")
    assert [row["kind"] for row in node.work.refuse_or_wait()] == ["module", "kernel"]
    assert node.work.in_the_way() == []
    # A process is no matter of a reboot: it is asked for by its own input.
    node.process().references(4)
    assert [holder.kind for holder in node.work._find()] == ["process", "module", "kernel"]
    assert [holder.pid for holder in node.work.in_the_way()] == [PID]


def test_I05_a_module_that_needs_the_drivers_is_named(tmp_path: Path) -> None:
    node = Node(tmp_path).loaded().references(1)
    node.tree.folder("/sys/module/rebellions/holders/rblnfs")
    with pytest.raises(NpuError, match="the kernel module rblnfs. Next: Unload rblnfs .modprobe -r., or reboot"):
        node.work.refuse_or_wait()


def test_I05_a_handle_that_was_open_for_a_moment_is_nobodys(tmp_path: Path) -> None:
    node = Node(tmp_path).loaded().references(1)

    def closed(seconds: float) -> None:
        node.references(0)

    node.work.sleep = closed
    assert node.work.refuse_or_wait() == []


@pytest.mark.parametrize("unit, counts", [("a.service", False), (DAEMON, False), ("other.service", True)])
def test_named_services_and_the_daemon_are_no_others(tmp_path: Path, unit: str, counts: bool) -> None:
    node = Node(tmp_path, services=["a.service"]).loaded().process(cgroup="0::/system.slice/%s\n" % unit)
    assert [holder["unit"] for holder in node.work.holders()] == ([unit] if counts else [])


def test_not_known_is_not_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path).loaded()
    monkeypatch.setattr(
        driver_units,
        "find_holders",
        lambda *arguments: ([], Probe("denied", None, "2 of 9 processes could not be looked at")),
    )
    with pytest.raises(
        NpuError,
        match=(
            "^The users of the NPUs cannot be determined: 2 of 9 processes could not be looked at. Next: Run as root.$"
        ),
    ):
        node.work.refuse_or_wait()


def test_a_user_is_stopped_by_policy_and_only_in_the_step(tmp_path: Path) -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        node = Node(tmp_path, in_use="stop").loaded().process(child.pid, "sleep")
        found = node.work.refuse_or_wait()
        assert ([holder["pid"] for holder in found], child.poll()) == ([child.pid], None)

        def gone(seconds: float) -> None:
            if child.wait(10) is not None:
                node.leave(child.pid)

        node.work.sleep = gone
        node.work.stop(node.journal)
        assert child.returncode == -signal.SIGTERM
    finally:
        child.kill()
        child.wait()


def test_a_pod_that_comes_after_the_look_is_not_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr(driver_units.os, "kill", lambda pid, number: killed.append(pid))
    node = Node(tmp_path, in_use="stop").loaded()
    node.work.refuse_or_wait()
    node.process(cgroup="0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-%s.scope\n" % ("a" * 64))
    with pytest.raises(NpuError, match="^Pods use the NPUs: .*pid 4200"):
        node.work.stop(node.journal)
    assert killed == []


@pytest.mark.parametrize("stopped, acts", [([DAEMON], ["start " + DAEMON]), ([], [])])
def test_a_daemon_that_was_stopped_starts_again_when_systemd_does_not_say_whether_it_is_enabled(
    tmp_path: Path, stopped: list[str], acts: list[str]
) -> None:
    node = Node(tmp_path)
    node.journal.begin({"stopped": stopped})

    def slow(argv: t.Sequence[str], timeout: float, env: t.Any) -> Probe:
        return Probe(TIMEOUT, None, "no answer") if argv[1] == "is-enabled" else node.run(argv, timeout, env)

    node.work.host = Host(str(tmp_path), slow)
    node.work.start_daemon(node.journal)
    assert node.acts == acts


def test_pods_are_left_to_who_drains_the_node(tmp_path: Path) -> None:
    pod = "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-%s.scope\n" % ("ab" * 32)
    node = Node(tmp_path, in_use="stop").loaded().process(cgroup=pod)
    with pytest.raises(NpuError, match="^Pods use the NPUs: .*pid 4200.* Next: Cordon and drain the node"):
        node.work.refuse_or_wait()
    assert node.acts == []


@pytest.mark.parametrize("policy", ["refuse", "wait", "stop"])
@pytest.mark.parametrize(
    ("cgroup", "pod"),
    [
        ("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12ab_34cd.slice/x.scope", "12ab-34cd"),
        ("/kubepods/besteffort/pod12ab-34cd/x", "12ab-34cd"),
        ("/a", ""),
    ],
)
def test_check_mode_looks_past_the_pods_that_leave_the_node_before(
    tmp_path: Path, policy: str, cgroup: str, pod: str
) -> None:
    for number, drained in enumerate(([], ["", "12ab-34cd"], ["12ab-0000"])):
        node = Node(tmp_path / str(number), in_use=policy, drained=drained).loaded().process(cgroup="0::%s\n" % cgroup)
        if policy == "wait" or (pod and pod in drained) or (policy == "stop" and not pod):
            assert [row["pid"] for row in node.work.foresee()] == [PID]
        else:
            with pytest.raises(driver_units.InUse, match="pid 4200"):
                node.work.foresee()
        # The change itself knows of no drain.
        if policy == "refuse":
            with pytest.raises(driver_units.InUse):
                node.work.refuse_or_wait()
        assert (node.acts, node.sleeps) == ([], [])


def by_looks(monkeypatch: pytest.MonkeyPatch, node: Node) -> None:
    """A clock that only waiting moves, and a grace of three looks."""
    monkeypatch.setattr(driver_units, "time", SimpleNamespace(monotonic=lambda: 0.2 * len(node.sleeps)))
    monkeypatch.setattr(driver_units, "GRACE", 0.5)


def test_a_pid_that_has_gone_to_another_process_is_spared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path, in_use="stop").loaded().process()
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((len(node.sleeps) > 0, number)))
    by_looks(monkeypatch, node)
    stat = "%d (python3) S 1 " % PID + "0 " * 17
    node.tree.write("/proc/%d/stat" % PID, stat + "777 0")
    holder = node.work._find()[0]
    assert holder.started == 777
    node.tree.write("/proc/%d/stat" % PID, stat + "888 0")
    with pytest.raises(NpuError, match="still hold"):
        node.work._end([holder])
    # The next look finds who is there now, who is asked before being killed.
    assert sent == [(True, signal.SIGTERM), (True, signal.SIGKILL)]


def test_a_user_that_does_not_end_is_killed_and_one_that_never_lets_go_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    node = Node(tmp_path, in_use="stop").loaded().process()
    by_looks(monkeypatch, node)
    with pytest.raises(
        NpuError,
        match="^These users still hold the NPUs: python3 .pid 4200. on rbln0. Next: Stop them by hand and run again.$",
    ):
        node.work.stop(node.journal)
    assert sent == [(PID, signal.SIGTERM), (PID, signal.SIGKILL)]
