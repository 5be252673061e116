# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who uses the NPUs, from a /proc that is laid out below a directory, and from the one of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Sequence

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._host.handles import Holder, find_open
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host, Probe
from ansible_collections.rebellions.npu.plugins.module_utils._npu import users as inuse
from ansible_collections.rebellions.npu.plugins.module_utils._npu.users import describe_holders, find_holders
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import case

ID = "0123456789abcdef" * 4
OTHER = "fedcba9876543210" * 4
DOCKER = "0::/system.slice/docker-%s.scope\n" % ID
KUBE = "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/cri-containerd-%s.scope\n" % ID
CRIO = "0::/kubepods.slice/kubepods-pod1.slice/crio-%s.scope/container\n" % ID
VERSION_1 = "12:devices:/kubepods/besteffort/pod1/%s\n1:name=systemd:/kubepods/besteffort/pod1/%s\n" % (ID, ID)
PODMAN = "0::/machine.slice/libpod-%s.scope/container\n" % ID
UNIT = "0::/system.slice/train.service\n"
USER_UNIT = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/jupyter.service\n"
SESSION = "0::/user.slice/user-1000.slice/session-3.scope\n"
LIBVIRT = "0::/machine.slice/machine-qemu\\x2d1\\x2dvm.scope/libvirt/emulator\n"
MAPS = "55d0-55d1 r-xp 00000000 08:01 1  /usr/bin/x\n7f00-7f01 rw-s 00000000 00:05 12  %s\n"
NORMAL = "Name:\tx\nCapBnd:\t00000000a80425fb\n"
CONMON = {
    "podman": "0::/machine.slice/libpod-conmon-%s.scope\n" % ID,
    "cri-o": "0::/kubepods.slice/crio-conmon-%s.scope\n" % ID,
}
PRIVILEGED = "Name:\tx\nCapBnd:\t000001ffffffffff\n"


class Machine:
    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "proc").mkdir()
        self.process(1, comm="systemd", cgroup="0::/init.scope\n")
        (root / "proc" / "cpuinfo").write_text("")
        self.loaded(None)

    def loaded(self, refcnt: str | None) -> None:
        module = self.root / "sys/module/rebellions"
        module.mkdir(parents=True, exist_ok=True)
        if refcnt is not None:
            (module / "refcnt").write_text(refcnt + "\n")

    def process(
        self,
        pid: int,
        *files: str,
        comm: str = "python3",
        exe: str = "",
        maps: str = "",
        dev: Sequence[str] = (),
        **texts: str,
    ) -> Machine:
        base = self.root / "proc" / str(pid)
        (base / "fd").mkdir(parents=True)
        for number, target in enumerate(files):
            (base / "fd" / str(number)).symlink_to(target)
        (base / "comm").write_text(comm + "\n")
        (base / "maps").write_text(maps)
        for name, text in texts.items():
            (base / name).write_text(text)
        if exe:
            (base / "exe").symlink_to(exe)
        (base / "root/dev").mkdir(parents=True)
        for name in dev:
            (base / "root/dev" / name).write_text("")
        return self

    def function(self, address: str, vendor: str, group: str, vfio: str = "") -> Machine:
        base = self.root / "sys/bus/pci/devices" / address
        base.mkdir(parents=True)
        (base / "vendor").write_text(vendor + "\n")
        (base / "iommu_group").symlink_to("../../../kernel/iommu_groups/" + group)
        if vfio:
            (base / "vfio-dev" / vfio).mkdir(parents=True)
        return self

    def find(self, contexts: Sequence[Any] = (), own: Sequence[int] = ()) -> tuple[list[Holder], Probe]:
        return find_holders(PROFILE, Host(str(self.root)), contexts, own)

    def holders(self, contexts: Sequence[Any] = ()) -> list[Holder]:
        return self.find(contexts)[0]


@pytest.fixture(name="machine")
def machine_fixture(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_nobody(machine: Machine) -> None:
    machine.process(
        10,
        "/dev/null",
        "socket:[1]",
        "/dev/rsdx",
        "/dev/rsd0x",
        "/var/log/rbln0",
        "/var/rbln_ctl",
        "/rbln_ctl",
        "/dev/rsd",
        "/dev/shm/rbln0",
        "anon_inode:[eventfd]",
        "pipe:[2]",
    )
    assert machine.find() == ([], Probe("value", 2))


TTY = os.stat("/dev/tty").st_rdev
TTY_MINOR = os.minor(TTY)
NUMBER = "%d:%d\n" % (os.major(TTY), TTY_MINOR)
MOUNTED = "25 1 0:5 / /srv rw,%s - %s x rw\n"


def other_name(machine: Machine, tmp_path: Path, device: str, number: str, mounted: str, mount: int = 25) -> None:
    """A process with a node open that has another name, on a file system with these mount options."""
    (tmp_path / "npu").symlink_to(device)
    (tmp_path / "sys/class/rebellions/rbln3").mkdir(parents=True)
    (tmp_path / "sys/class/rebellions/rbln3/dev").write_text(number)
    machine.process(10, "/dev/null", str(tmp_path / "npu"), mountinfo=mounted)
    (tmp_path / "proc/10/fdinfo").mkdir()
    for descriptor in ("0", "1"):
        (tmp_path / "proc/10/fdinfo" / descriptor).write_text("pos:\t0\nflags:\t02\nmnt_id:\t%d\n" % mount)


@pytest.mark.parametrize(
    "device, number, mounted, mount, nodes",
    [
        ("/dev/tty", NUMBER, MOUNTED % ("nosuid", "tmpfs"), 25, ("rbln3",)),
        ("/dev/tty", NUMBER, MOUNTED % ("relatime", "overlay"), 25, ("rbln3",)),
        ("/dev/tty", "240:0\n", MOUNTED % ("nosuid", "tmpfs"), 25, ()),
        # The memory devices are no NPU, whatever a class says; a regular file has no number.
        ("/dev/null", "1:3\n", MOUNTED % ("nosuid", "tmpfs"), 25, ()),
        ("/etc/hostname", "0:0\n", MOUNTED % ("nosuid", "tmpfs"), 25, ()),
        # Where nodes do not work, where a server might not answer, where the mount is not known.
        ("/dev/tty", NUMBER, MOUNTED % ("nosuid,nodev", "tmpfs"), 25, ()),
        ("/dev/tty", NUMBER, MOUNTED % ("relatime", "nfs4"), 25, ()),
        ("/dev/tty", NUMBER, MOUNTED % ("relatime", "fuse.sshfs"), 25, ()),
        ("/dev/tty", NUMBER, MOUNTED % ("nosuid", "tmpfs"), 26, ()),
    ],
)
def test_a_node_of_another_name_is_known_by_its_number(
    machine: Machine, tmp_path: Path, device: str, number: str, mounted: str, mount: int, nodes: tuple[str, ...]
) -> None:
    other_name(machine, tmp_path, device, number, mounted, mount)
    assert machine.holders() == ([Holder("process", 10, "python3", nodes)] if nodes else [])


def test_the_number_of_a_node_in_dev_counts_too(machine: Machine, tmp_path: Path) -> None:
    other_name(machine, tmp_path, "/dev/tty", "", MOUNTED % ("nosuid", "tmpfs"))
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/rblnfs1").write_text("")

    class Devices(Host):
        def stat(self, path: str, follow: bool = True) -> Probe:
            found = super().stat(path, follow)
            return (
                Probe("value", replace(found.value, kind="char", major=os.major(TTY), minor=os.minor(TTY)))
                if path == "/dev/rblnfs1"
                else found
            )

    assert find_holders(PROFILE, Devices(str(tmp_path)))[0] == [Holder("process", 10, "python3", ("rblnfs1",))]


def test_a_container_that_was_given_a_node_under_another_name(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "sys/class/rebellions/rbln3").mkdir(parents=True)
    (tmp_path / "sys/class/rebellions/rbln3/dev").write_text(NUMBER)
    machine.process(20, cgroup=DOCKER, status=NORMAL)
    (tmp_path / "proc/20/root/dev").rmdir()
    (tmp_path / "proc/20/root/dev").symlink_to("/dev")
    assert [(holder.container, holder.nodes) for holder in machine.holders()] == [(ID, ("rbln3",))]


def test_a_holder_is_told_from_another_process_of_its_number(machine: Machine) -> None:
    stat = "10 (a b) c) S 1 10 10 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 %d 1 1"
    machine.process(10, "/dev/rbln0", stat=stat % 4711).process(11, comm="ctx", stat=stat % 12)
    found = machine.holders(
        [{"pid": 11, "device": "1", "process": "ctx"}, {"pid": None, "device": "2", "process": "x"}]
    )
    assert [(holder.kind, holder.started) for holder in found] == [
        ("process", 4711),
        ("context", 12),
        ("context", None),
    ]


@pytest.mark.parametrize(
    "target, node",
    [
        ("/dev/rbln0", "rbln0"),
        ("/dev/rbln15", "rbln15"),
        ("/dev/rsd0", "rsd0"),
        ("/dev/rblnfs3", "rblnfs3"),
        ("/dev/rbln0 (deleted)", "rbln0"),
        ("/rbln0", "rbln0"),
        # Nodes for control, of whatever name.
        ("/dev/rbln_ctl", "rbln_ctl"),
        ("/dev/rblnctl0", "rblnctl0"),
        ("/dev/rbln-uctl (deleted)", "rbln-uctl"),
        ("/dev/rbln/ctl", "rbln/ctl"),
        ("/dev/rsd_ctl", "rsd_ctl"),
        ("/dev/rebellions", "rebellions"),
        # What a driver hands out without a node.
        ("anon_inode:[rbln-event]", "anon_inode:[rbln-event]"),
    ],
)
def test_an_open_handle(machine: Machine, target: str, node: str) -> None:
    machine.process(10, "/dev/null", target)
    assert machine.holders() == [Holder("process", 10, "python3", (node,))]


def test_several_handles_of_one_process_are_one_holder(machine: Machine) -> None:
    machine.process(10, "/dev/rbln10", "/dev/rbln2", "/dev/rbln2", "/dev/rsd0")
    assert machine.holders() == [Holder("process", 10, "python3", ("rbln2", "rbln10", "rsd0"))]


@pytest.mark.parametrize("refcnt, found", [("1", True), (None, True), ("0", False)])
def test_memory_that_stays_mapped_after_the_handle_is_closed(machine: Machine, refcnt: str | None, found: bool) -> None:
    machine.loaded(refcnt)
    machine.process(10, maps=MAPS % "/dev/rbln1")
    machine.process(11, maps=MAPS % "/usr/lib/librbln-ml.so.3")
    assert machine.holders() == ([Holder("process", 10, "python3", ("rbln1",))] if found else [])


@pytest.mark.parametrize(
    "cgroup, container, unit",
    [
        (DOCKER, ID, ""),
        (KUBE, ID, ""),
        (CRIO, ID, ""),
        (VERSION_1, ID, ""),
        (PODMAN, ID, ""),
        (UNIT, "", "train.service"),
        (USER_UNIT, "", "jupyter.service"),
        (SESSION, "", ""),
        ("", "", ""),
    ],
)
def test_container_and_unit(machine: Machine, cgroup: str, container: str, unit: str) -> None:
    machine.process(10, "/dev/rbln0", cgroup=cgroup)
    pod = "1" if "kubepods" in cgroup else ""
    assert machine.holders() == [
        Holder("container" if container else "process", 10, "python3", ("rbln0",), container, unit, None, pod)
    ]


@pytest.mark.parametrize(
    "cgroup, pod",
    [
        (
            "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0af1b2c3_4d5e_6f70.slice/crio-x.scope",
            "0af1b2c3-4d5e-6f70",
        ),
        ("0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podab_cd.slice/x", "ab-cd"),
        ("11:memory:/kubepods/besteffort/pod12-34/0123", "12-34"),
        ("0::/kubepods.slice/pod-a", "pod-a"),
        ("0::/system.slice/podman.service", ""),
        ("0::/kubepods.slice", ""),
    ],
)
def test_the_pod_of_a_process(cgroup: str, pod: str) -> None:
    assert inuse.pod_of(cgroup + "\n") == pod


@pytest.mark.parametrize("engine", CONMON)
def test_the_monitor_of_a_container_does_not_hide_it(machine: Machine, engine: str) -> None:
    machine.process(10, cgroup=CONMON[engine], comm="conmon", dev=["null", "rbln0", "rbln1"], status=PRIVILEGED)
    machine.process(
        11, cgroup=PODMAN if engine == "podman" else CRIO, comm="sleep", dev=["null", "rbln0"], status=NORMAL
    )
    pod = "" if engine == "podman" else "1"
    assert machine.holders() == [Holder("container", 11, "sleep", ("rbln0",), ID, "", None, pod)]


def test_the_container_that_we_run_in_ourselves_is_none(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    machine = Machine(tmp_path / "inner")
    (machine.root / "proc/1/cgroup").write_text("1:name=systemd:/libpod-%s.scope/init.scope\n" % OTHER)
    machine.process(10, "/dev/rbln0", cgroup="1:name=systemd:/libpod-%s.scope/system.slice/train.service\n" % OTHER)
    machine.process(11, "/dev/rbln1", cgroup="1:name=systemd:/libpod-%s.scope/kubepods/%s\n" % (OTHER, ID))
    assert machine.holders() == [
        Holder("process", 10, "python3", ("rbln0",), "", "train.service"),
        Holder("container", 11, "python3", ("rbln1",), ID),
    ]


@pytest.mark.parametrize("unit", PROFILE.daemon_units)
def test_the_vendors_own_daemon_is_no_holder(machine: Machine, unit: str) -> None:
    machine.process(10, "/dev/rbln0", comm="rbln-smd", cgroup="0::/system.slice/%s\n" % unit)
    assert machine.holders([{"device": "0", "pid": 10, "process": "rbln-smd", "memory": None}]) == []


def test_own_processes_are_left_out(machine: Machine) -> None:
    machine.process(10, "/dev/rbln0").process(11, "/dev/rbln0")
    contexts = [{"device": "0", "pid": 10, "process": "python3"}]
    assert [holder.pid for holder in machine.find(contexts, (10,))[0]] == [11]


def test_a_container_that_has_the_node_and_does_not_use_it(machine: Machine) -> None:
    machine.process(10, cgroup=KUBE, comm="pause", dev=["null", "rbln0", "rsd0", "rsdx"], status=NORMAL)
    machine.process(11, cgroup=KUBE, comm="sleep", dev=["null", "rbln0", "rsd0"], status=NORMAL)
    assert machine.holders() == [Holder("container", 10, "pause", ("rbln0", "rsd0"), ID, "", None, "1")]


def test_a_privileged_container_sees_every_node_and_need_not_use_one(machine: Machine) -> None:
    machine.process(10, cgroup=KUBE, comm="kube-proxy", dev=["null", "rbln0"], status=PRIVILEGED)
    assert machine.holders() == []
    machine.process(11, "/dev/rbln0", cgroup=KUBE.replace(ID, OTHER), comm="exporter", dev=["rbln0"], status=PRIVILEGED)
    assert machine.holders() == [Holder("container", 11, "exporter", ("rbln0",), OTHER, "", None, "1")]


def test_a_container_is_named_once(machine: Machine) -> None:
    machine.process(10, cgroup=DOCKER, comm="sh", dev=["rbln0"], status=NORMAL)
    machine.process(11, "/dev/rbln0", cgroup=DOCKER, dev=["rbln0"], status=NORMAL)
    assert machine.holders() == [Holder("container", 11, "python3", ("rbln0",), ID)]


def test_a_virtual_machine_by_the_group_of_an_npu(machine: Machine) -> None:
    machine.function("0000:81:00.0", "0x1eff", "42", "vfio7").function("0000:01:00.0", "0x10de", "43", "vfio8")
    machine.process(
        10,
        "/dev/vfio/vfio",
        "/dev/vfio/42",
        "anon_inode:[vfio-device]",
        comm="qemu-system-x86",
        exe="/usr/bin/qemu-system-x86_64",
        cgroup=LIBVIRT,
    )
    machine.process(11, "/dev/vfio/vfio", "/dev/vfio/43", comm="qemu-system-x86")
    machine.process(12, "/dev/vfio/devices/vfio7", comm="cloud-hyperviso", exe="/opt/cloud-hypervisor")
    machine.process(13, "/dev/vfio/devices/vfio8")
    assert machine.holders() == [
        Holder("vm", 10, "qemu-system-x86_64", ("vfio/42",), "", "machine-qemu\\x2d1\\x2dvm.scope"),
        Holder("vm", 12, "cloud-hypervisor", ("vfio/devices/vfio7",)),
    ]


CONTEXT = {"device": "0", "pid": 77, "process": "/opt/app/train --token", "memory": "1"}


def test_a_context_of_nobody_we_see_is_a_holder(machine: Machine) -> None:
    assert machine.holders([CONTEXT]) == [Holder("context", 77, "train", ("rbln0",))]
    assert machine.holders([{"device": None, "pid": None, "process": None}]) == [Holder("context", None, "?", ())]


def test_a_context_of_a_holder_adds_its_node(machine: Machine) -> None:
    machine.process(77, "/dev/rsd0")
    assert machine.holders([CONTEXT, dict(CONTEXT, device="3")]) == [
        Holder("process", 77, "python3", ("rbln0", "rbln3", "rsd0"))
    ]


def test_two_contexts_of_one_process_are_one_holder(machine: Machine) -> None:
    assert machine.holders([CONTEXT, dict(CONTEXT, device="1")]) == [Holder("context", 77, "train", ("rbln0", "rbln1"))]


def test_a_process_that_ends_meanwhile_is_no_error(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.process(10, "/dev/rbln0").process(11, "/dev/rbln1")
    real_list, real_link = os.listdir, os.readlink

    def listdir(path: Any) -> Any:
        if str(path).endswith("/10/fd"):
            raise ProcessLookupError(3, "No such process")
        return real_list(path)

    def readlink(path: Any, **more: Any) -> Any:
        if "/11/fd/" in str(path):
            raise FileNotFoundError(2, "gone")
        return real_link(path, **more)

    monkeypatch.setattr(os, "listdir", listdir)
    monkeypatch.setattr(os, "readlink", readlink)
    assert machine.find() == ([], Probe("value", 3))


@pytest.mark.parametrize("at", ["listdir", "readlink"])
@pytest.mark.parametrize("state, denied", [("S", True), ("Z", False)])
def test_denied_is_not_nobody(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, at: str, state: str, denied: bool
) -> None:
    machine.process(10, "/dev/null", stat="10 (a (b) c) %s 1 10\n" % state).process(11, "/dev/rbln1")
    real = getattr(os, at)

    def refuse(path: Any, **more: Any) -> Any:
        if "/10/fd" in str(path):
            raise PermissionError(13, "Permission denied")
        return real(path, **more)

    monkeypatch.setattr(os, at, refuse)
    found, probe = machine.find()
    assert [holder.pid for holder in found] == [11]
    assert probe == (
        Probe("denied", None, "1 of 3 processes could not be looked at: run as root (become)")
        if denied
        else Probe("value", 3)
    )


def test_a_proc_that_hides_the_processes_of_others_is_denied(machine: Machine) -> None:
    """Mounted with hidepid=2, /proc lists only the own processes: nothing is refused, and nothing is seen."""
    machine.process(10, "/dev/null")
    (machine.root / "proc/1").rename(machine.root / "proc/none")
    found, probe = machine.find()
    assert (found, probe.state) == ([], "denied") and "become" in probe.detail


def rest(count: int) -> Holder:
    return Holder("kernel", None, "%d references without an open handle" % count)


def test_I05_module_in_use(machine: Machine) -> None:
    """I05: in use by the count of references and by open handles of every node, though the tool shows no context."""
    names = case("I05-module-in-use", "proc-modules.txt")
    (machine.root / "proc/modules").write_text(names)
    for line in case("I05-module-in-use", "fds.tsv").splitlines():
        pid, node, program, cgroup = line.split("\t")
        machine.process(int(pid), node, comm=program, cgroup="0::%s\n" % cgroup)
    contexts = json.loads(case("I05-module-in-use", "smi.json"))["contexts"]
    assert machine.holders(contexts) == [
        Holder("process", 990, "rbln-metrics", ("rbln_ctl",)),
        Holder("container", 4121, "python3", ("rbln0",), "", "", None, "pod-a"),
        # Of the twelve, two handles can be four.
        rest(8),
    ]


@pytest.mark.parametrize(
    "refcnt, needed_by, files, expected",
    [
        ("0", (), (), []),
        ("2", (), (), [rest(2)]),
        ("1", ("rblnfs",), (), [Holder("module", None, "rblnfs")]),
        ("3", ("rblnfs",), (), [Holder("module", None, "rblnfs"), rest(2)]),
        # Handles that a fork shares are one reference; an open file may count for the device and its operations.
        ("1", (), ("/dev/rbln0", "/dev/rbln0"), [Holder("process", 10, "python3", ("rbln0",))]),
        ("4", (), ("/dev/rbln0", "/dev/rbln0"), [Holder("process", 10, "python3", ("rbln0",))]),
        ("5", (), ("/dev/rbln0", "/dev/rbln0"), [Holder("process", 10, "python3", ("rbln0",)), rest(1)]),
        # A virtual machine holds vfio's module, not this one.
        ("1", (), ("/dev/vfio/42",), [Holder("vm", 10, "python3", ("vfio/42",)), rest(1)]),
    ],
)
def test_I05_references_that_nothing_explains(
    machine: Machine, refcnt: str, needed_by: tuple[str, ...], files: tuple[str, ...], expected: list[Holder]
) -> None:
    machine.loaded(refcnt)
    machine.function("0000:81:00.0", "0x1eff", "42")
    for name in needed_by:
        (machine.root / "sys/module/rebellions/holders" / name).mkdir(parents=True)
    machine.process(10, *files)
    assert machine.holders() == expected


def test_I05_handles_of_the_daemon_explain_references(machine: Machine) -> None:
    machine.loaded("5")
    machine.process(10, "/dev/rbln0", "/dev/rbln_ctl", cgroup="0::/system.slice/%s\n" % PROFILE.daemon_units[0])
    assert machine.holders() == [rest(1)]
    machine.loaded("4")
    assert machine.holders() == []
    # Memory that stays mapped when its handle is closed counts; beside its handle it does not.
    machine.process(11, maps=MAPS % "/dev/rbln1", cgroup="0::/system.slice/%s\n" % PROFILE.daemon_units[0])
    machine.loaded("6")
    assert machine.holders() == []


@pytest.mark.parametrize("minor, nodes", [(TTY_MINOR, ("tty-ctl",)), (TTY_MINOR + 1, ())])
def test_I05_a_control_node_is_known_by_a_number_of_the_class(
    machine: Machine, tmp_path: Path, minor: int, nodes: tuple[str, ...]
) -> None:
    (tmp_path / "npu").symlink_to("/dev/tty")
    (tmp_path / "sys/class/rebellions/tty-ctl").mkdir(parents=True)
    (tmp_path / "sys/class/rebellions/tty-ctl/dev").write_text("%d:%d\n" % (os.major(TTY), minor))
    machine.process(10, str(tmp_path / "npu"), mountinfo=MOUNTED % ("nosuid", "tmpfs"))
    (tmp_path / "proc/10/fdinfo").mkdir()
    (tmp_path / "proc/10/fdinfo/0").write_text("pos:\t0\nmnt_id:\t25\n")
    assert machine.holders() == ([Holder("process", 10, "python3", nodes)] if nodes else [])


@pytest.mark.parametrize("listed, found", [("rebellions", True), ("rbln_ctl", True), ("tty", False), ("rsdx", False)])
def test_I05_every_number_of_a_driver_of_the_name_is_its_own(
    machine: Machine, tmp_path: Path, listed: str, found: bool
) -> None:
    (tmp_path / "npu").symlink_to("/dev/tty")
    (tmp_path / "proc/devices").write_text(
        "Character devices:\n%3d %s\n\nBlock devices:\n  8 rebellions\n" % (os.major(TTY), listed)
    )
    machine.process(10, str(tmp_path / "npu"), mountinfo=MOUNTED % ("nosuid", "tmpfs"))
    (tmp_path / "proc/10/fdinfo").mkdir()
    (tmp_path / "proc/10/fdinfo/0").write_text("pos:\t0\nmnt_id:\t25\n")
    name = "char %d:%d" % (os.major(TTY), os.minor(TTY))
    assert machine.holders() == ([Holder("process", 10, "python3", (name,))] if found else [])


def test_without_proc_nothing_is_known(tmp_path: Path) -> None:
    found, probe = find_holders(PROFILE, Host(str(tmp_path)))
    assert (found, probe.state) == ([], "absent")


def test_one_line_for_people() -> None:
    holders = [
        Holder("process", 10, "python3", ("rbln0", "rbln1"), "", "train.service"),
        Holder("container", 11, "sleep", ("rbln0",), ID),
        Holder("vm", 12, "qemu-system-x86_64", ("vfio/42",)),
        Holder("context", None, "?"),
        Holder("container", 13, "python3", ("rbln0",), ID, "", None, "ab-cd"),
        Holder("container", 14, "python3", ("rbln_ctl",), "", "", None, "pod-a"),
        Holder("module", None, "rblnfs"),
        Holder("kernel", None, "2 references without an open handle"),
    ]
    assert describe_holders(holders) == (
        "python3 (pid 10, train.service) on rbln0, rbln1; sleep (pid 11, container 0123456789ab) on rbln0; "
        "qemu-system-x86_64 (pid 12, vm) on vfio/42; ? (context); "
        "python3 (pid 13, container 0123456789ab, pod ab-cd) on rbln0; python3 (pid 14, pod-a) on rbln_ctl; "
        "the kernel module rblnfs; 2 references without an open handle"
    )
    assert describe_holders(holders[:1] * 10).endswith("; and 2 more")
    assert describe_holders([]) == ""


def test_as_plain_data() -> None:
    assert Holder("process", 10, "x", ("rbln0",), started=7).to_dict() == {
        "kind": "process", "pid": 10, "name": "x", "nodes": ["rbln0"], "container": "", "unit": "", "started": 7,
        "pod": "",
    }  # fmt: skip


def test_who_has_a_file_open(machine: Machine) -> None:
    machine.process(10, "/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", comm="apt-get", cgroup=UNIT).process(
        11, "/var/lib/dpkg/lock-x"
    )
    assert find_open(Host(str(machine.root)), ("/var/lib/dpkg/lock", "/var/lib/dpkg/lock-frontend")) == [
        Holder("process", 10, "apt-get", ("/var/lib/dpkg/lock", "/var/lib/dpkg/lock-frontend"), "", "train.service")
    ]


def test_real_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that holds a file whose name is a node's, seen in the /proc of this machine; a zombie denies no one."""
    node = tmp_path / "rbln0"
    node.write_bytes(b"")
    monkeypatch.setattr(
        inuse, "_node_matcher", lambda profile, host: lambda target: "rbln0" if target == str(node) else ""
    )
    zombie = subprocess.Popen(["true"])
    with open(node, "rb") as stream, subprocess.Popen(["sleep", "30"], stdin=stream) as holder:
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        mine, _probe = find_holders(PROFILE, Host(), (), (os.getpid(),))
        holder.kill()
    zombie.wait()
    assert [(found.pid, found.name, found.nodes) for found in mine] == [(holder.pid, "sleep", ("rbln0",))]
    assert mine[0].started and 0 < mine[0].started < time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")


def test_a_look_at_hundreds_of_processes_is_cheap(machine: Machine) -> None:
    machine.loaded("0")
    for pid in range(100, 600):
        machine.process(pid, "/dev/null", "socket:[1]", "pipe:[2]", "/dev/null", cgroup=UNIT)
    took = []
    for _attempt in range(5):
        started = time.process_time()
        found, probe = machine.find()
        took.append(time.process_time() - started)
    assert (found, probe.value) == ([], 501)
    # About 15 ms on an idle core.
    assert min(took) < 0.15
