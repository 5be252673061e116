# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Running processes in /proc: command line, start time, program file, environment, and the unit that they belong to."""

from __future__ import annotations

import os
import posixpath
import re
import typing as t

from .._base.records import dataclass
from .._base.regex import regex
from .host import Host, Limit

CLOCK_AGREES = 2.0
COARSE = 1.0
FINE = 0.05

# Control groups of containers, by any engine, and of a user's own service manager, which runs rootless engines.
_NOT_THE_HOSTS = regex(r"kubepods|/lxc[./]|(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])|/user@[0-9]+\.service")
# The real and the effective user.
_USERS = regex(r"^Uid:\s+([0-9]+)\s+([0-9]+)", re.MULTILINE)
_SERVICE = regex(r"(?:^|/)([A-Za-z0-9_][^/]*\.service)(?=/|$)")


@dataclass(frozen=True)
class Process:
    """A process: PID, arguments, start in seconds since the epoch (None: unknown), precise to `within` seconds."""

    pid: int
    argv: tuple[str, ...]
    started: float | None
    within: float = 0.0

    @property
    def program(self) -> str:
        """Name of the program. One that hides its arguments, as k3s does, shows one text with its first words."""
        first = self.argv[0] if self.argv else ""
        return posixpath.basename(first.split(" ")[0] if len(self.argv) == 1 else first)


def boot_time(host: Host) -> tuple[float | None, float]:
    """Start of the kernel in seconds since the epoch, or None, and its possible error.

    /proc/stat gives whole seconds (btime). The clock less /proc/uptime gives hundredths, and is used when both agree
    within two seconds: they differ when the uptime is that of a container or of another machine's tree.
    """
    match = re.search(r"^btime ([0-9]+)$", host.read_text("/proc/stat").get(""), re.MULTILINE)
    coarse = float(match.group(1)) if match else None
    words = host.read_text("/proc/uptime").get("").split()
    try:
        fine = host.clock() - float(words[0])
    except (IndexError, ValueError):
        return coarse, COARSE
    if coarse is None or abs(fine - coarse) > CLOCK_AGREES:
        return coarse, COARSE
    return fine, FINE


def clock_ticks() -> int:
    """Kernel clock ticks in a second, 100 on every Linux that containers run on."""
    try:
        return os.sysconf("SC_CLK_TCK")
    except (AttributeError, OSError, ValueError):
        return 100


def start_ticks(stat: str) -> int | None:
    """Field 22 of /proc/PID/stat. The command name in field 2 may hold spaces and parentheses."""
    fields = stat.rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 and fields[19].isdigit() else None


class ProcessTable:
    """Processes of a host, each read once and only when asked for."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._boot: tuple[float | None, float] | None = None
        self._all: list[Process] | None = None
        self._base: str | None = None
        self._groups: dict[int, str] = {}

    @property
    def scanned(self) -> bool:
        return self._all is not None

    def _differs(self, pid: int, kind: str) -> bool:
        """True when a process is known to have another namespace of this kind than process 1."""
        first, own = (self._host.readlink("/proc/%d/ns/%s" % (number, kind)) for number in (1, pid))
        return first.ok and own.ok and first.value != own.value

    def _group(self, pid: int) -> str:
        """Path of a process in systemd's hierarchy of control groups; empty when it cannot be read."""
        if pid not in self._groups:
            self._groups[pid] = self._read_group(pid)
        return self._groups[pid]

    def _read_group(self, pid: int) -> str:
        paths = {}
        for line in self._host.read_text("/proc/%d/cgroup" % pid, Limit.PROC).get("").splitlines():
            controllers, colon, path = line.partition(":")[2].partition(":")
            if colon:
                paths[controllers] = path
        return paths.get("name=systemd") or paths.get("") or next(iter(paths.values()), "")

    def _group_below(self, pid: int) -> str:
        """The same below the group of process 1, which in a container is the container's own."""
        if self._base is None:
            first = self._group(1)
            self._base = posixpath.dirname(first) if first.endswith("/init.scope") else first
            self._base = self._base.rstrip("/")
        path = self._group(pid)
        return path[len(self._base) :] if path.startswith(self._base + "/") or path == self._base else path

    def has_group(self, pid: int) -> bool:
        """False when the control group of a process is not known, so that no unit does not mean that it has none."""
        return bool(self._group(pid))

    def unit(self, pid: int) -> str:
        """The innermost systemd service of a process, by its control group; empty when it is in none."""
        found: list[str] = _SERVICE.findall(self._group_below(pid))
        return found[-1] if found else ""

    def is_hosts(self, pid: int) -> bool:
        """False for a process of a container, of a user's own manager, or of another user than root.

        Another mount namespace alone is no container: snaps and hardened services have one. What a user runs is not
        believed: its arguments and its program would be looked at and asked as root.
        """
        group = self._group_below(pid)
        users = _USERS.search(self._host.read_text("/proc/%d/status" % pid, Limit.PROC).get(""))
        if users and users.groups() != ("0", "0"):
            return False
        if _NOT_THE_HOSTS.search(group) or self._differs(pid, "pid"):
            return False
        return bool(_SERVICE.search(group)) or not self._differs(pid, "mnt")

    def file(self, pid: int) -> str:
        """The program file that a process runs; empty when that is not known or another file has its place."""
        return str(self._host.readlink("/proc/%d/exe" % pid).get("")).replace(" (deleted)", "")

    def runs(self, pid: int, path: str) -> bool:
        """Whether a process runs the very file that is at a path now: no upgrade has replaced it since."""
        real = self._host.resolve(path)
        link = self._host.readlink("/proc/%d/exe" % pid)
        return real.ok and link.ok and link.value == real.value and not self._differs(pid, "mnt")

    def variables(self, pid: int, names: t.Iterable[str]) -> dict[str, str]:
        """The named variables of the environment with which a process was started."""
        text = self._host.read_text("/proc/%d/environ" % pid, Limit.PROC).get("")
        given = dict(word.partition("=")[::2] for word in text.split("\0") if "=" in word)
        return {name: given[name] for name in names if name in given}

    def _process(self, pid: int, argv: tuple[str, ...]) -> Process:
        if self._boot is None:
            self._boot = boot_time(self._host)
        boot, within = self._boot
        ticks = start_ticks(self._host.read_text("/proc/%d/stat" % pid).get(""))
        started = boot + ticks / clock_ticks() if boot is not None and ticks is not None else None
        return Process(pid, argv, started, within)

    def get(self, pid: int) -> Process | None:
        """The process, or None when it is gone or is a kernel thread."""
        text = self._host.read_text("/proc/%d/cmdline" % pid).get("")
        argv = tuple(text.rstrip("\0").split("\0")) if text.strip("\0") else ()
        return self._process(pid, argv) if argv else None

    def since_boot(self, pid: int, argv: tuple[str, ...], seconds: float) -> Process:
        """A process whose start is known by systemd's monotonic clock and whose /proc entry cannot be read."""
        if self._boot is None:
            self._boot = boot_time(self._host)
        boot, within = self._boot
        return Process(pid, argv, boot + seconds if boot is not None else None, within)

    def named(self, program: str, fits: t.Callable[[tuple[str, ...]], bool] = lambda argv: True) -> t.Iterator[Process]:
        """The host's own processes of a program whose arguments fit, found by a scan of /proc that is made once."""
        if self._all is None:
            self._all = []
            for name in sorted((name for name in self._host.listdir("/proc").get([]) if name.isdigit()), key=int):
                text = self._host.read_text("/proc/%s/cmdline" % name).get("")
                if text.strip("\0"):
                    self._all.append(Process(int(name), tuple(text.rstrip("\0").split("\0")), None))
        for process in self._all:
            if process.program == program and fits(process.argv) and self.is_hosts(process.pid):
                yield self._process(process.pid, process.argv)

    def find(self, program: str, fits: t.Callable[[tuple[str, ...]], bool] = lambda argv: True) -> Process | None:
        """The first of them."""
        return next(self.named(program, fits), None)
