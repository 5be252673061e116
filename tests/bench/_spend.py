# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a command and tell what it and everything it left behind cost: `python _spend.py REPORT COMMAND...`.

The process adopts what its command leaves (ssh's ControlPersist masters leave their parent), ends it and counts it in.
REPORT becomes {code, cpu: seconds, wall: seconds}. The command's output goes where this process's goes.
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
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
GRACE = 3.0


def children() -> list[int]:
    """Pids whose parent is this process."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.append(int(path.parent.name))
    return found


def reap() -> None:
    """End and wait for every adopted process, so that the kernel adds its times to ours."""
    end = time.monotonic() + GRACE
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        left = children()
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM if time.monotonic() < end else signal.SIGKILL)
        time.sleep(0.02)


def main(report: str, argv: list[str]) -> int:
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    started = time.monotonic()
    code = subprocess.call(argv, stdin=subprocess.DEVNULL)
    wall = time.monotonic() - started
    reap()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    Path(report).write_text(json.dumps({"code": code, "cpu": used.ru_utime + used.ru_stime, "wall": wall}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
