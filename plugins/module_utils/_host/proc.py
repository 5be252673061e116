# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Running processes in /proc: command line and start time."""

from __future__ import annotations

import os
import posixpath
import re
import typing as t
from dataclasses import dataclass

from .host import Host

CLOCK_AGREES = 2.0
COARSE = 1.0
FINE = 0.05


@dataclass(frozen=True)
class Process:
    """A process: PID, arguments, start in seconds since the epoch (None: unknown), precise to `within` seconds."""

    pid: int
    argv: tuple[str, ...]
    started: float | None
    within: float = 0.0

    @property
    def program(self) -> str:
        return posixpath.basename(self.argv[0]) if self.argv else ""


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

    def _same_mounts(self, pid: int) -> bool:
        first, own = (self._host.readlink("/proc/%d/ns/mnt" % number) for number in (1, pid))
        return not first.ok or not own.ok or first.value == own.value

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

    def find(self, program: str, fits: t.Callable[[tuple[str, ...]], bool] = lambda argv: True) -> Process | None:
        """The first process of a program whose arguments fit, found by a scan of /proc that is made once.

        A process in another mount namespace than process 1 belongs to a container and is not this host's.
        """
        if self._all is None:
            self._all = []
            for name in sorted((name for name in self._host.listdir("/proc").get([]) if name.isdigit()), key=int):
                text = self._host.read_text("/proc/%s/cmdline" % name).get("")
                if text.strip("\0"):
                    self._all.append(Process(int(name), tuple(text.rstrip("\0").split("\0")), None))
        for process in self._all:
            if process.program == program and fits(process.argv) and self._same_mounts(process.pid):
                return self._process(process.pid, process.argv)
        return None
