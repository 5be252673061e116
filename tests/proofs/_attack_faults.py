# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The writer of configuration and the transaction of the driver under failing system calls.

strace makes one system call of a forked process fail, or kills the process at it. Needs root.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import random
import subprocess
import traceback
import typing as t
from pathlib import Path

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._host.writer_request import read_set, write_set
from ansible_collections.rebellions.npu.tests.unit.fixtures.driver_machine import having, upgrade

CALLS = (
    "openat",
    "write",
    "fsync",
    "?rename,?renameat,?renameat2",
    "?unlink,?unlinkat",
    "?chmod,?fchmod,?fchmodat",
    "?mkdir,?mkdirat",
    "?link,?linkat",
    "?rmdir",
    "flock",
    "newfstatat",
    "read",
    "getdents64",
    "ftruncate",
)
ERRORS = ("ENOSPC", "EIO", "EACCES", "EROFS", "EDQUOT", "EMFILE")
KILL = "signal=KILL"
MAIN, OTHER = "/etc/containerd/config.toml", "/etc/containerd/conf.d/99-rbln.toml"
OLD = {MAIN: b"version = 2\n"}
NEW = {MAIN: b'version = 2\nimports = ["/etc/containerd/conf.d/*.toml"]\n', OTHER: b"enable_cdi = true\n"}
STATE, STEM = "/var/lib/rebellions-npu", "rbln"
Said = dict[str, t.Any]


def fault(source: random.Random, kill: bool) -> tuple[str, str]:
    """(system calls, what strace does at one of them)."""
    act = KILL if kill and source.random() < 0.3 else "error=" + source.choice(ERRORS)
    return source.choice(CALLS), "%s:when=%d" % (act, int(1 + source.random() ** 2 * 20))


def under(calls: str, act: str, work: t.Callable[[], Said], log: Path) -> tuple[Said | None, int]:
    """(what the work said in a forked process, None when it was killed; how many faults happened).

    strace counts the calls of each thread apart, so one fault may happen once a thread.
    """
    ready, go = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ready[0])
        os.close(go[1])
        try:
            _wait(go[0])
            said = work()
        except NpuError as exc:
            said = {"refused": str(exc)}
        except BaseException:
            said = {"raised": traceback.format_exc()}
        try:
            os.write(ready[1], json.dumps(said).encode())
        finally:
            os._exit(0)
    os.close(ready[1])
    os.close(go[0])
    argv = ["strace", "-f", "-o", str(log), "-e", "trace=" + calls, "-e", "inject=%s:%s" % (calls, act), "-p", str(pid)]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as tracer:
        try:
            assert tracer.stderr is not None
            line = tracer.stderr.readline()
            assert "attached" in line, line
            # It may be dead by now: the fault was in the call that waits.
            with contextlib.suppress(BrokenPipeError):
                os.write(go[1], b"x")
            with os.fdopen(ready[0], "rb") as stream:
                data = stream.read()
        finally:
            os.close(go[1])
            os.waitpid(pid, 0)
            tracer.wait(30)
    told = log.read_text(errors="replace")
    return (json.loads(data) if data else None), told.count("INJECTED") + told.count("killed by SIGKILL")


def _wait(descriptor: int) -> None:
    """Until a byte comes; strace may let this very call fail."""
    while True:
        with contextlib.suppress(OSError):
            os.read(descriptor, 1)
            return


def contents(root: Path, paths: t.Iterable[str]) -> dict[str, bytes]:
    files = {path: root / path.lstrip("/") for path in paths}
    return {path: file.read_bytes() for path, file in files.items() if file.is_file()}


def writer(source: random.Random, folder: Path) -> bool:
    """One write of two files with a fault; whether it happened. The files are the old ones or the new ones."""
    root = folder / "root"
    for path, data in OLD.items():
        (root / path.lstrip("/")).parent.mkdir(parents=True)
        (root / path.lstrip("/")).write_bytes(data)
    files: list[Said] = [
        {"path": path, "content": base64.b64encode(data).decode(), "backup": path in OLD} for path, data in NEW.items()
    ]

    def write() -> Said:
        host = Host(str(root))
        seen = read_set(host, STATE, STEM, list(NEW))
        requests = [{**file, "old_sha256": seen["files"][file["path"]]["sha256"]} for file in files]
        return write_set(host, STATE, STEM, requests)

    said, happened = under(*fault(source, True), write, folder / "log")
    now = contents(root, NEW)
    assert set(now) >= set(OLD) and all(data in (OLD.get(path), NEW[path]) for path, data in now.items()), now
    if said is not None:
        assert "raised" not in said, said["raised"][-1500:]
        if "refused" in said:
            # New ones when the last act, the removal of the journal, has failed.
            assert "Next: " in said["refused"] and now in (OLD, NEW), (said, now)
        else:
            assert now == NEW, (said, now)
    write()
    assert contents(root, NEW) == NEW
    assert not write()["changed"], "the second run changes something"
    rest = [path.name for path in root.rglob("*") if path.name.endswith((".rbln-new", ".rbln-old", ".rbln-judge"))]
    assert rest == [], rest
    return happened > 0


def transaction(source: random.Random, folder: Path) -> bool:
    """An upgrade of the driver with a fault, and more of them until one is good; whether a fault happened."""
    machine = having(folder / "root")

    def change() -> Said:
        try:
            runs = [upgrade(machine)]
        except NpuError as exc:
            runs = [{"refused": str(exc), "failed": True}]
        works = machine.loaded in ("3.2.2", "3.4.0") or runs[0]["failed"]
        runs.append(upgrade(machine))
        while runs[-1]["failed"] and len(runs) < 4:
            runs.append(upgrade(machine))
        return {"works": works, "runs": runs, "loaded": machine.loaded}

    said, faults = under(*fault(source, False), change, folder / "log")
    assert said is not None, "it said nothing"
    if "raised" in said:
        # A fault in the stand-in of the machine, which is files too, proves nothing.
        frames = [line for line in said["raised"].splitlines() if line.lstrip().startswith('File "')]
        ours = [number for number, line in enumerate(frames) if "/plugins/module_utils/" in line]
        theirs = [number for number, line in enumerate(frames) if "/fixtures/" in line]
        assert theirs and max(theirs) > max(ours, default=-1), said["raised"][-1500:]
        return False
    if "refused" in said:
        # The fault came in a later change.
        assert "Next: " in said["refused"], said
        return faults > 0
    assert said["works"], said
    failed = [run for run in said["runs"] if run["failed"]]
    assert said["loaded"] == "3.4.0" and not said["runs"][-1]["failed"], said
    assert len(failed) <= faults and all("Next: " in run.get("refused", run.get("reason")) for run in failed), said
    return faults > 0
