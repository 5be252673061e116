# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Open files of the processes of a host, and the devices that they see."""

from __future__ import annotations

import os
import posixpath
import re
import stat
import typing as t

from .._base.records import asdict, dataclass
from .host import Host
from .proc import start_ticks

COMM_LENGTH = 15
ENDED = ("", "Z", "X")
CAP_SYS_RAWIO = 17
# On these file systems a read may wait for a server.
REMOTE = (
    "nfs",
    "cifs",
    "smb",
    "9p",
    "ceph",
    "afs",
    "autofs",
    "fuse",
    "virtiofs",
    "lustre",
    "gpfs",
    "beegfs",
    "gfs2",
    "ocfs2",
    "glusterfs",
    "orangefs",
    "coda",
)

PROCESS = "process"

_SERVICE = re.compile(r"([^/:]+\.service)(?=/|$)")
MACHINE = re.compile(r"/(machine-[^/]+\.scope)")

Number = t.Tuple[int, int]


@dataclass(frozen=True)
class Holder:
    """One user of devices or files.

    `kind` is process, context, container, vm, module or kernel; `pid` is None when unknown or for the last two; `name`
    is the program without its arguments; `nodes` are names below /dev; `container` is the container's ID, `unit` the
    systemd unit and `pod` the pod's UID, empty when there is none; `started` is the start time in ticks since boot:
    the same PID with another start is another process.
    """

    kind: str
    pid: int | None
    name: str
    nodes: tuple[str, ...] = ()
    container: str = ""
    unit: str = ""
    started: int | None = None
    pod: str = ""

    def to_dict(self) -> dict[str, t.Any]:
        return dict(asdict(self), nodes=list(self.nodes))


def _number(info: os.stat_result) -> Number | None:
    return (os.major(info.st_rdev), os.minor(info.st_rdev)) if stat.S_ISCHR(info.st_mode) else None


def _state_of(stat: str) -> str:
    """State letter in /proc/PID/stat, empty when the process is gone."""
    return (stat.rpartition(")")[2].split() or [""])[0]


class Processes:
    """/proc of a host. Processes that end meanwhile are left out; unreadable ones are counted in `denied`."""

    def __init__(self, host: Host) -> None:
        self.base = host.real("/proc")
        self.listed = host.listdir("/proc")
        self.pids = sorted(int(name) for name in self.listed.get([]) if name.isdigit())
        self.denied = 0
        self._mounts: dict[str, set[str]] = {}

    def handles(self, pid: int) -> list[tuple[str, str]]:
        """(descriptor, link target) of a process. Only links are read, nothing is opened."""
        path = "%s/%d/fd" % (self.base, pid)
        found = []
        try:
            for name in os.listdir(path):
                try:
                    found.append((name, os.readlink("%s/%s" % (path, name))))
                except FileNotFoundError:
                    continue
        except PermissionError:
            # A zombie process shows no descriptors.
            self.denied += _state_of(self.text(pid, "stat")) not in ENDED
        except OSError:
            pass
        return found

    def open_files(self, pid: int) -> list[str]:
        """Link targets of the descriptors of a process."""
        return [target for _name, target in self.handles(pid)]

    def _with_devices(self, pid: int) -> set[str]:
        """IDs of local mounts of a process where device nodes work; read once per namespace."""
        try:
            space = os.readlink("%s/%d/ns/mnt" % (self.base, pid))
        except OSError:
            space = str(pid)
        if space not in self._mounts:
            found = set()
            for line in self.text(pid, "mountinfo").splitlines():
                words, _dash, system = line.partition(" - ")
                fields = words.split(" ")
                if len(fields) > 5 and "nodev" not in fields[5].split(",") and not system.startswith(REMOTE):
                    found.add(fields[0])
            self._mounts[space] = found
        return self._mounts[space]

    def number(self, pid: int, descriptor: str) -> Number | None:
        """Device number of a descriptor, None when it is not a local character device."""
        mount = re.search(r"^mnt_id:\s*([0-9]+)", self.text(pid, "fdinfo/" + descriptor), re.MULTILINE)
        if not mount or mount.group(1) not in self._with_devices(pid):
            return None
        try:
            return _number(os.stat("%s/%d/fd/%s" % (self.base, pid, descriptor)))
        except OSError:
            return None

    def started(self, pid: int) -> int | None:
        """Start time of a process, in ticks since boot."""
        return start_ticks(self.text(pid, "stat"))

    def text(self, pid: int, name: str) -> str:
        """A small file of a process; empty when it cannot be read."""
        try:
            with open("%s/%d/%s" % (self.base, pid, name), "rb") as stream:
                return stream.read().decode("utf-8", "replace")
        except OSError:
            return ""

    def name(self, pid: int) -> str:
        """The program name without arguments; the full name when the kernel has shortened it."""
        comm = self.text(pid, "comm").strip()
        if len(comm) >= COMM_LENGTH or not comm:
            try:
                program = posixpath.basename(os.readlink("%s/%d/exe" % (self.base, pid)))
            except OSError:
                program = ""
            if program.startswith(comm):
                return program or "?"
        return comm

    def devices(self, pid: int) -> list[tuple[str, Number | None]]:
        """Names in the /dev of a process, with the numbers of character devices; empty when unreadable."""
        path = "%s/%d/root/dev" % (self.base, pid)
        found: list[tuple[str, Number | None]] = []
        try:
            names = os.listdir(path)
        except OSError:
            return []
        for name in names:
            try:
                found.append((name, _number(os.lstat(path + "/" + name))))
            except OSError:
                found.append((name, None))
        return found

    def privileged(self, pid: int) -> bool:
        """True for a privileged process: it sees all device nodes, whether it uses them or not."""
        match = re.search(r"^CapBnd:\s*([0-9a-fA-F]+)", self.text(pid, "status"), re.MULTILINE)
        return bool(match and int(match.group(1), 16) >> CAP_SYS_RAWIO & 1)


def unit_of(cgroups: str) -> str:
    """The innermost systemd service in /proc/PID/cgroup, or the scope of a virtual machine; else empty."""
    services = _SERVICE.findall(cgroups)
    machine = MACHINE.search(cgroups)
    return machine.group(1) if machine else services[-1] if services else ""


def lock_holders(path: str) -> list[Holder]:
    """Processes of this machine, other than this one, that hold the lock of an open file or directory."""
    processes = Processes(Host())
    found = []
    for pid in processes.pids:
        descriptors = [name for name, target in processes.handles(pid) if target == path and pid != os.getpid()]
        if any("FLOCK" in processes.text(pid, "fdinfo/" + name) for name in descriptors):
            unit = unit_of(processes.text(pid, "cgroup"))
            found.append(Holder(PROCESS, pid, _called(processes, pid), (path,), "", unit, processes.started(pid)))
    return found


def _called(processes: Processes, pid: int) -> str:
    """The name of a process. An installer that was run from an open descriptor is called by its number."""
    name = processes.name(pid)
    opened = dict(processes.handles(pid)).get(name, "") if name.isdigit() else ""
    return posixpath.basename(opened.replace(" (deleted)", "")) or name


def find_open(host: Host, paths: t.Sequence[str]) -> list[Holder]:
    """Processes that have one of the files open, with the paths as nodes. Unreadable processes are left out."""
    processes = Processes(host)
    wanted = set(paths)
    found = []
    for pid in processes.pids:
        nodes = wanted.intersection(processes.open_files(pid))
        if nodes:
            found.append(
                Holder(
                    PROCESS,
                    pid,
                    processes.name(pid),
                    tuple(sorted(nodes)),
                    "",
                    unit_of(processes.text(pid, "cgroup")),
                    processes.started(pid),
                )
            )
    return found
