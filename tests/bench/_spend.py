# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a command and tell what it and everything it left behind cost: `python _spend.py REPORT WHAT COMMAND...`.

The process adopts what its command leaves (ssh's ControlPersist masters leave their parent), ends it and counts it in.
REPORT becomes {code, cpu: seconds, wall: seconds}. The command's output goes where this process's goes.

WHAT is cpu, or memory: then it has `main`, `forks` and `together` too, the most memory (PSS) in MiB of the command's
process, of all its forks, and of both at one moment. The look itself is work of this process and not counted.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
GRACE, EVERY = 3.0, 0.3


def children(parent: int) -> list[int]:
    """Pids whose parent is this process."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(path.parent.name))
    return found


def pss(pid: int) -> float:
    """MiB of a process, what it shares divided by those that share it; 0 for one that has ended."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/%d/smaps_rollup" % pid).read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024.0
    return 0.0


class Memory(threading.Thread):
    """Looks at a process and its forks (children that run the same program) until `ended` is set."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.ended = pid, threading.Event()
        self.main = self.forks = self.together = 0.0

    def run(self) -> None:
        while not self.ended.wait(EVERY):
            main, forks = pss(self.pid), sum(map(pss, self._forks()))
            self.main, self.forks = max(self.main, main), max(self.forks, forks)
            self.together = max(self.together, main + forks)

    def _forks(self) -> list[int]:
        program = self._program(self.pid)
        return [pid for pid in children(self.pid) if self._program(pid) == program]

    @staticmethod
    def _program(pid: int) -> bytes:
        with contextlib.suppress(OSError):
            return Path("/proc/%d/cmdline" % pid).read_bytes()
        return b""


def reap() -> None:
    """End and wait for every adopted process, so that the kernel adds its times to ours."""
    end = time.monotonic() + GRACE
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        left = children(os.getpid())
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM if time.monotonic() < end else signal.SIGKILL)
        time.sleep(0.02)


def main(report: str, what: str, argv: list[str]) -> int:
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    started = time.monotonic()
    more = {}
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL) as child:
        memory = Memory(child.pid)
        if what == "memory":
            memory.start()
        code = child.wait()
    wall = time.monotonic() - started
    if what == "memory":
        memory.ended.set()
        memory.join()
        more = {"main": memory.main, "forks": memory.forks, "together": memory.together}
    reap()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    Path(report).write_text(json.dumps({"code": code, "cpu": used.ru_utime + used.ru_stime, "wall": wall, **more}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
