# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One qemu process: its command line, its control socket, and the machine that is kept on disk between runs."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import time
import typing as t
from pathlib import Path

from ._base import LabError, until
from ._vmimage import firmware, qemu

MGMT_MAC = "52:54:00:4e:50:55"
MGMT_ADDRESS = "10.0.2.15"
MEMORY = 2048
# Empty slots: what a running machine gets later (a bridge's network card, a disk).
SLOTS = ("slot0", "slot1", "slot2", "slot3")


def command(
    folder: Path, name: str, npus: int, secure_boot: bool, port: int, outside: bool, state: Path | None = None
) -> list[str]:
    """Options of qemu for the disk.qcow2 and vars.fd of folder; state is the file of `keep`.

    All but name, port and outside are part of what is kept.
    """
    code, _variables = firmware(secure_boot)
    argv = [str(qemu()), "-name", name, "-L", "/usr/share/qemu", "-nodefaults", "-no-user-config", "-display", "none"]
    argv += [
        "-machine",
        "q35,smm=%s,vmport=off,hpet=off" % ("on" if secure_boot else "off"),
        "-accel",
        "tcg,thread=multi",
        "-cpu",
        "max",
    ]
    argv += ["-smp", "2", "-m", str(MEMORY), "-rtc", "base=utc,clock=host", "-global", "ICH9-LPC.disable_s3=1"]
    if secure_boot:
        argv += ["-global", "driver=cfi.pflash01,property=secure,value=on"]
    argv += [
        "-drive",
        "if=pflash,unit=0,format=raw,readonly=on,file=%s" % code,
        "-drive",
        "if=pflash,unit=1,format=raw,file=vars.fd",
    ]
    argv += [
        "-drive",
        "file=disk.qcow2,if=none,id=disk,cache=unsafe,discard=unmap",
        "-device",
        "virtio-blk-pci,drive=disk,bootindex=0,addr=0x3",
    ]
    argv += [
        "-netdev",
        network(port, outside),
        "-device",
        "virtio-net-pci,netdev=mgmt,mac=%s,romfile=,addr=0x4" % MGMT_MAC,
    ]
    argv += ["-device", "virtio-rng-pci,addr=0x5"]
    for number, slot in enumerate(SLOTS):
        argv += [
            "-device",
            "pcie-root-port,id=%s,chassis=%d,slot=%d,addr=0x%x" % (slot, number + 1, number + 1, 8 + number),
        ]
    for number in range(npus):
        argv += ["-device", "edu,id=npu%d,addr=0x%x" % (number, 0x10 + number)]
    argv += [
        "-chardev",
        "socket,id=serial,path=serial,server=on,wait=off,logfile=serial.log,logappend=on",
        "-serial",
        "chardev:serial",
    ]
    argv += ["-qmp", "unix:qmp,server=on,wait=off"]
    return argv + (["-incoming", "exec:cat " + shlex.quote(str(state))] if state else [])


def network(port: int, outside: bool) -> str:
    """The card that ssh comes in by; the machine reaches nothing through it unless outside."""
    return "user,id=mgmt,ipv6=off,restrict=%s,hostfwd=tcp:127.0.0.1:%d-%s:22" % (
        "off" if outside else "on",
        port,
        MGMT_ADDRESS,
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def spawn(argv: t.Sequence[str], folder: Path) -> int:
    """Start qemu in its folder; its pid."""
    with open(folder / "qemu.log", "ab") as log:
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "QEMU_MODULE_DIR": "/usr/lib/x86_64-linux-gnu/qemu"}
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=folder, env=env
        )
    (folder / "pid").write_text(str(process.pid))
    return process.pid


def alive(folder: Path) -> int | None:
    """The pid of the qemu that was started in folder, or None; a pid that went to another program is not ours."""
    try:
        pid = int((folder / "pid").read_text())
        _reap(pid)
        words = Path("/proc/%d/cmdline" % pid).read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError, ValueError):
        return None
    try:
        here = os.readlink("/proc/%d/cwd" % pid)
    except (FileNotFoundError, ProcessLookupError):
        # One that ends shows no folder any more, and its threads may still hold the disk.
        return None if gone(pid) else pid
    except PermissionError:
        return None
    # A process between fork and the end of exec has no words yet.
    return pid if (not words[0] or b"qemu-system-x86_64" in words[0]) and here == str(folder.resolve()) else None


def gone(pid: int) -> bool:
    """Whether the process has ended with all its threads.

    Until then it may hold its disk, even if it looks ended.
    """
    _reap(pid)
    return not Path("/proc/%d" % pid).exists()


def stop(folder: Path) -> None:
    """End the qemu of folder, as pulling the plug does."""
    for number, seconds in ((signal.SIGTERM, 5), (signal.SIGKILL, 5)):
        pid = alive(folder)
        if pid is None:
            break
        os.kill(pid, number)
        end = time.monotonic() + seconds
        while not gone(pid) and time.monotonic() < end:
            time.sleep(0.02)
    (folder / "pid").unlink(missing_ok=True)


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def log_of(folder: Path) -> str:
    """The last words of qemu and of the machine's console."""
    found = ""
    for name in ("qemu.log", "serial.log"):
        path = folder / name
        if path.exists():
            found += "--- %s\n%s\n" % (name, path.read_text(errors="replace")[-1500:])
    return found


def connect(folder: Path, name: str, timeout: float = 10) -> socket.socket:
    """A Unix socket of folder, whose path may be longer than a socket's address."""
    end = time.monotonic() + timeout
    handle = os.open(folder, os.O_PATH)
    try:
        while True:
            link = socket.socket(socket.AF_UNIX)
            try:
                link.connect("/proc/self/fd/%d/%s" % (handle, name))
                return link
            except (FileNotFoundError, ConnectionRefusedError):
                link.close()
                if time.monotonic() > end or alive(folder) is None:
                    raise LabError("qemu ended or does not answer:\n%s" % log_of(folder)) from None
                time.sleep(0.02)
    finally:
        os.close(handle)


class Qmp:
    """qemu's control socket: `with Qmp(folder) as do: do("query-status")`."""

    def __init__(self, folder: Path, timeout: float = 120) -> None:
        self._folder = folder
        self._timeout = timeout

    def __enter__(self) -> Qmp:
        self._link = connect(self._folder, "qmp")
        self._link.settimeout(self._timeout)
        self._lines = self._link.makefile("r")
        self._lines.readline()
        self("qmp_capabilities")
        return self

    def __exit__(self, *_exc: object) -> None:
        self._lines.close()
        self._link.close()

    def __call__(self, execute: str, **arguments: t.Any) -> t.Any:
        self._link.sendall(json.dumps({"execute": execute, "arguments": arguments}).encode())
        while True:
            line = self._lines.readline()
            if not line:
                raise LabError("qemu ended at %s:\n%s" % (execute, log_of(self._folder)))
            answer = json.loads(line)
            if "error" in answer:
                raise LabError("qemu: %s: %s" % (execute, answer["error"].get("desc")))
            if "return" in answer:
                return answer["return"]


def keep(folder: Path) -> None:
    """Write the running machine to the file `state` of folder and end it.

    The state belongs to the disk and the variables at that moment.
    """
    with Qmp(folder) as do:
        do("stop")
        do("migrate-set-parameters", **{"max-bandwidth": 1 << 40})
        do("migrate", uri="exec:cat >state")

        def written() -> bool:
            now = do("query-migrate")
            if now.get("status") in ("failed", "cancelled"):
                raise LabError("qemu could not keep the machine: %s" % now.get("error-desc", now))
            return bool(now.get("status") == "completed")

        until(300, "the machine's state on disk", written, 0.1)
    stop(folder)


def resume(folder: Path) -> None:
    """Let a machine go on that was started from its kept state."""
    with Qmp(folder) as do:
        until(120, "the kept machine", lambda: do("query-status")["status"] != "inmigrate", 0.05)
        do("cont")
