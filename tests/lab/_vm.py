# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""class Vm: a server with a kernel of its own.

Modules are really built and loaded there, and a reboot passes through a boot loader.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socket
import subprocess
import time
import typing as t
import uuid
from pathlib import Path

from . import _needs, _vmqemu
from ._base import LAB_DIR, STATE, LabError, cached, digest, lock, patience, put_json, read_json, run, say, until
from ._vmimage import firmware, overlay, qemu, root_disk

VMS = STATE / "vm"
BOOT_SECONDS = 420
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?\Z")
_RUNNING = "systemctl is-system-running --wait || true; systemctl is-system-running || [ $? = 1 ]"
# A machine that resumes after a pause is told the time and its name. qemu keeps no state of the device that stands in
# for an NPU: it is plugged in again.
_AWAKE = """set -eu
date -s @%(now)d >/dev/null
echo %(name)s >/etc/hostname
hostname %(name)s
printf '127.0.0.1 localhost\\n127.0.1.1 %(name)s\\n' >/etc/hosts
for d in /run/log/journal/* /var/log/journal/*; do [ ! -d "$d" ] || mv "$d" "${d%%/*}/%(identity)s"; done
echo %(identity)s >/etc/machine-id
systemctl restart systemd-journald.service
echo %(noise)s >/dev/urandom
for d in /sys/bus/pci/devices/*; do [ "$(cat "$d/vendor")" != 0x1eff ] || echo 1 >"$d/remove"; done
echo 1 >/sys/bus/pci/rescan
mkdir -p /opt/npu-lab/payload
"""


def _ssh(folder: Path, port: int) -> list[str]:
    """ssh to the machine of folder (run it there: its control socket is named from there)."""
    return [
        "ssh",
        *ssh_options(),
        "-p",
        str(port),
        "-o",
        "ControlMaster=auto",
        "-o",
        "ControlPath=ssh",
        "-o",
        "ControlPersist=600",
        "root@127.0.0.1",
    ]


def ssh_options() -> list[str]:
    """The key, and no list of known hosts: machines come and go behind the same port."""
    words = ["-F", "none", "-i", str(root_disk() / "id_ed25519")]
    options = (
        "IdentitiesOnly=yes BatchMode=yes StrictHostKeyChecking=no UserKnownHostsFile=/dev/null LogLevel=ERROR "
        "ConnectTimeout=60"
    )
    # An emulated machine on busy cores may say nothing for a minute; one that has ended resets its connections.
    for option in [*options.split(), "ServerAliveInterval=10", "ServerAliveCountMax=12"]:
        words += ["-o", option]
    return words


def _greets(port: int) -> bool:
    """Does an ssh server answer there: the port itself is open as soon as qemu runs."""
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as link:
            link.settimeout(5)
            return link.recv(4) == b"SSH-"
    except OSError:
        return False


def _call(
    folder: Path, port: int, words: str, timeout: float = 120, check: bool = True, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    return run([*_ssh(folder, port), words], timeout, check, stdin, cwd=folder)


def _close(folder: Path, port: int) -> None:
    """End the shared connection, if there is one."""
    if (folder / "ssh").exists():
        run([*_ssh(folder, port)[:-1], "-O", "exit", "root@127.0.0.1"], 20, check=False, cwd=folder)


def _await_boot(folder: Path, port: int, seconds: float = BOOT_SECONDS) -> float:
    """Wait until systemd has started everything; seconds it took."""
    start = time.monotonic()

    def greets() -> bool:
        if _vmqemu.alive(folder) is None:
            raise LabError("qemu ended:\n%s" % _vmqemu.log_of(folder))
        return _greets(port)

    try:
        until(seconds, "ssh of the machine in %s" % folder.name, greets, 0.3)
        _call(folder, port, _RUNNING, seconds * patience())
    except LabError as exc:
        raise LabError("%s\n%s" % (exc, _vmqemu.log_of(folder))) from exc
    return time.monotonic() - start


def _first_boot(folder: Path) -> None:
    """The disk after its first start, with the boot menu that the machine made itself."""
    overlay(root_disk() / "disk.qcow2", folder / "disk.qcow2")
    shutil.copy(firmware(False)[1], folder / "vars.fd")
    port = _vmqemu.free_port()
    _vmqemu.spawn(_vmqemu.command(folder, "first", 0, False, port, False), folder)
    try:
        say("vm: first boot in %.1f s" % _await_boot(folder, port))
        menu = _call(
            folder,
            port,
            "update-grub >/dev/null 2>&1 && grep -c '^[[:space:]]*menuentry .*Linux' /boot/grub/grub.cfg",
            300,
        ).stdout
        if int(menu) < 5:
            raise LabError(
                "the machine's boot menu has %s entries, not two kernels twice and the default" % menu.strip()
            )
        _call(folder, port, "systemctl poweroff", check=False)
        until(120, "power off", lambda: _vmqemu.alive(folder) is None)
    finally:
        _close(folder, port)
        _vmqemu.stop(folder)


def virgin(npus: int, secure_boot: bool) -> Path:
    """The cache folder with disk.qcow2, vars.fd and state of a machine that has just booted."""
    source = (LAB_DIR / "_vmqemu.py").read_text().split("def network")[0]
    disk = cached("vm-disk", digest(str(root_disk()), str(qemu()), source), _first_boot)

    def make(folder: Path) -> None:
        overlay(disk / "disk.qcow2", folder / "disk.qcow2")
        shutil.copy(firmware(secure_boot)[1], folder / "vars.fd")
        port = _vmqemu.free_port()
        _vmqemu.spawn(_vmqemu.command(folder, "virgin", npus, secure_boot, port, False), folder)
        try:
            say("vm: booted in %.1f s" % _await_boot(folder, port))
            # Warm what every test uses.
            _call(
                folder,
                port,
                (
                    "python3 -c 'import json, subprocess, tempfile, zipfile'; lspci -n >/dev/null; "
                    "sudo -V >/dev/null; sync; sleep 2"
                ),
            )
            _close(folder, port)
            start = time.monotonic()
            _vmqemu.keep(folder)
            say("vm: kept in %.1f s, %d MB" % (time.monotonic() - start, (folder / "state").stat().st_size >> 20))
        except LabError as exc:
            raise LabError("%s\n%s" % (exc, _vmqemu.log_of(folder))) from exc
        finally:
            _close(folder, port)
            _vmqemu.stop(folder)

    return cached(
        "vm-virgin",
        digest(str(disk), str(npus), str(secure_boot), firmware(secure_boot)[0], firmware(secure_boot)[1]),
        make,
    )


class Vm:
    """A virtual machine of the lab, by name. Another process may take up a machine that is there: Vm.named(name).

    npus: functions 1eff:1220 on its bus. outside: may it reach a network. kube: is it a node of the lab's cluster.
    """

    def __init__(
        self, name: str = "vm-a", npus: int = 2, kube: bool = False, secure_boot: bool = False, outside: bool = False
    ) -> None:
        if not _NAME.match(name):
            raise LabError("%r is no name for a machine: small letters, digits and dashes" % name)
        self.name = name
        self.npus, self.kube, self.secure_boot, self.outside = npus, kube, secure_boot, outside
        self.folder = VMS / name
        self._file = self.folder / "vm.json"

    @classmethod
    def named(cls, name: str) -> Vm:
        """The machine as it was brought up."""
        kept = read_json(VMS / name / "vm.json", None)
        if kept is None:
            raise LabError("no machine %s: there are %s" % (name, ", ".join(cls.names()) or "none"))
        return cls(name, **{key: kept[key] for key in ("npus", "kube", "secure_boot", "outside")})

    @staticmethod
    def names() -> list[str]:
        return sorted(path.parent.name for path in VMS.glob("*/vm.json"))

    # -- life

    def up(self) -> float:
        """Resume the virgin machine, or leave alone one that already runs as asked; returns the seconds it took.

        A machine that was asked for otherwise is replaced.
        """
        problems = _needs.vm_obstacles()
        if problems:
            raise LabError("no virtual machines here and now:\n" + "\n".join("- " + problem for problem in problems))
        start = time.monotonic()
        wanted = {"npus": self.npus, "kube": self.kube, "secure_boot": self.secure_boot, "outside": self.outside}
        kept_machine = virgin(self.npus, self.secure_boot)
        with lock(VMS / (".%s.lock" % self.name)):
            kept = read_json(self._file, {})
            if self.running() and all(kept.get(key) == value for key, value in wanted.items()):
                return time.monotonic() - start
            self._stop(final=False)
            self.folder.mkdir(parents=True, exist_ok=True)
            put_json(
                self._file,
                {
                    **wanted,
                    "port": kept.get("port") or _vmqemu.free_port(),
                    "number": kept.get("number") or self._free_number(),
                },
            )
            try:
                self._start(kept_machine)
            except BaseException:
                self._stop()
                raise
        return time.monotonic() - start

    def reset(self) -> float:
        """Virgin again: disk, memory, firmware variables. Seconds it took."""
        with lock(VMS / (".%s.lock" % self.name)):
            self._stop(final=False)
        return self.up()

    def down(self) -> None:
        """Take the machine away, with everything it wrote."""
        with lock(VMS / (".%s.lock" % self.name)):
            self._stop()
            shutil.rmtree(self.folder, ignore_errors=True)
        (VMS / (".%s.lock" % self.name)).unlink(missing_ok=True)

    def running(self) -> bool:
        return _vmqemu.alive(self.folder) is not None

    def status(self) -> dict[str, t.Any]:
        """{npus, kube, secure_boot, outside, port, pid}; pid is None when it does not run."""
        return {**read_json(self._file, {}), "pid": _vmqemu.alive(self.folder)}

    def _start(self, virgin: Path) -> None:
        for name in ("disk.qcow2", "vars.fd", "serial.log", "qemu.log"):
            (self.folder / name).unlink(missing_ok=True)
        overlay(virgin / "disk.qcow2", self.folder / "disk.qcow2")
        shutil.copy(virgin / "vars.fd", self.folder / "vars.fd")
        argv = _vmqemu.command(
            self.folder, self.name, self.npus, self.secure_boot, self.port, self.outside, virgin / "state"
        )
        _vmqemu.spawn(argv, self.folder)
        _vmqemu.resume(self.folder)
        until(60, "ssh of " + self.name, lambda: _greets(self.port), 0.05)
        identity = uuid.uuid5(uuid.NAMESPACE_DNS, self.name + ".lab.local").hex
        self.exec(
            _AWAKE % {"now": time.time() + 0.5, "name": self.name, "identity": identity, "noise": uuid.uuid4().hex},
            120 * patience(),
        )
        from .lab import payload_dir

        self.push(payload_dir(), "/opt/npu-lab/payload")
        if self.kube:
            from . import _vmnode

            _vmnode.join(self)

    def _stop(self, final: bool = True) -> None:
        kept = read_json(self._file, {})
        if not kept:
            return
        if kept.get("kube"):
            from . import _vmnode

            _vmnode.leave(self, final)
        _close(self.folder, kept["port"])
        _vmqemu.stop(self.folder)

    @staticmethod
    def _free_number() -> int:
        used = {read_json(path, {}).get("number") for path in VMS.glob("*/vm.json")}
        return next(number for number in range(100, 128) if number not in used)

    # -- use

    @property
    def port(self) -> int:
        return int(read_json(self._file, {})["port"])

    @property
    def number(self) -> int:
        """Of the node in the lab's network: addresses PREFIX.0.(10+number), pods PREFIX.(128+number).0/24."""
        return int(read_json(self._file, {})["number"])

    def exec(
        self, argv: str | t.Sequence[str], timeout: float = 120, check: bool = True, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command (list) or a shell line (text) as root.

        With check, raises LabError with its stderr when it fails. Exit code 255 means no connection.
        """
        return _call(self.folder, self.port, argv if isinstance(argv, str) else shlex.join(argv), timeout, check, stdin)

    def push(self, source: Path, target: str) -> None:
        """Copy what is in a folder into a folder of the machine."""
        pack = subprocess.Popen(["tar", "-C", str(source), "-cf", "-", "."], stdout=subprocess.PIPE)
        words = "mkdir -p {0} && tar -C {0} -xf - --no-same-owner --no-overwrite-dir".format(shlex.quote(target))
        done = subprocess.run(
            [*_ssh(self.folder, self.port), words],
            stdin=pack.stdout,
            capture_output=True,
            cwd=self.folder,
            timeout=300,
            check=False,
        )
        if pack.wait() or done.returncode:
            raise LabError("%s: copying %s: %s" % (self.name, source, done.stderr.decode(errors="replace").strip()))

    def dkms_source(self, version: str, builds: bool = True) -> None:
        """Lay the stand-in module's source down as /usr/src/rebellions-VERSION."""
        from .standins.dkms import source

        for name, text in source(version, builds).items():
            self.exec(
                "mkdir -p /usr/src/rebellions-{0} && cat >/usr/src/rebellions-{0}/{1}".format(version, name), stdin=text
            )

    def inventory(self, user: str = "root") -> dict[str, t.Any]:
        """Ansible's variables of the host; the user npu may sudo without a password."""
        return {
            "ansible_connection": "ssh",
            "ansible_host": "127.0.0.1",
            "ansible_port": self.port,
            "ansible_user": user,
            "ansible_become": user != "root",
            "ansible_ssh_private_key_file": str(root_disk() / "id_ed25519"),
            "ansible_ssh_common_args": shlex.join(ssh_options()),
            "ansible_python_interpreter": "/usr/bin/python3",
        }

    def write_inventory(self, group: str = "npu_nodes", user: str = "root") -> Path:
        """A file of Ansible's inventory with this host in group."""
        path = self.folder / "inventory.json"
        put_json(path, {group: {"hosts": {self.name: self.inventory(user)}}})
        return path

    def kernel(self) -> str:
        """The version that runs."""
        return self.exec("uname -r").stdout.strip()

    def kernels(self) -> list[str]:
        """The versions that are installed, the one that runs first."""
        found = self.exec("cd /boot && ls vmlinuz-*").stdout.split()
        now = self.kernel()
        return sorted((name[len("vmlinuz-") :] for name in found), key=lambda name: (name != now, name))

    def boot_id(self) -> str:
        return self.exec("cat /proc/sys/kernel/random/boot_id").stdout.strip()

    def wait_reboot(self, before: str, timeout: float = BOOT_SECONDS) -> float:
        """Wait until a boot other than `before` (a boot_id) is up; returns the seconds it took.

        A node must be Ready too.
        """
        start = time.monotonic()

        def other() -> bool:
            if not self.running():
                raise LabError("%s went off:\n%s" % (self.name, _vmqemu.log_of(self.folder)))
            if not _greets(self.port):
                return False
            _close(self.folder, self.port)
            done = self.exec("cat /proc/sys/kernel/random/boot_id", 60, check=False)
            return not done.returncode and done.stdout.strip() != before

        try:
            until(timeout, "%s: reboot" % self.name, other, 0.5)
            since = time.time()
            self.exec(_RUNNING, timeout)
        except LabError as exc:
            raise LabError("%s\n%s" % (exc, _vmqemu.log_of(self.folder))) from exc
        if self.kube:
            from . import _vmnode

            _vmnode.wait_ready(self, since, timeout)
        return time.monotonic() - start

    def reboot(self, kernel: str | None = None, timeout: float = BOOT_SECONDS) -> float:
        """Reboot through firmware and boot loader; returns the seconds until all is up.

        A named `kernel` is booted once (GRUB's own grub-reboot).
        """
        if kernel:
            self.exec('u=$(findmnt -no UUID /) && grub-reboot "gnulinux-advanced-$u>gnulinux-%s-advanced-$u"' % kernel)
        before = self.boot_id()
        self.exec("systemctl reboot", check=False)
        return self.wait_reboot(before, timeout)

    def enrol_mok(self, password: str, timeout: float = BOOT_SECONDS) -> float:
        """Reboot and enrol a key as a person at the console; returns the seconds until all is up.

        The key is the one that `mokutil --import` left with this password.
        """
        from ._vmmok import enrol

        return enrol(self, password, timeout)

    def console(self) -> str:
        """What the serial console said since the machine was resumed."""
        return (self.folder / "serial.log").read_text(errors="replace")


def print_status(as_json: bool) -> str:
    """The machines, as JSON or one line each."""
    found = {name: Vm.named(name).status() for name in Vm.names()}
    if as_json:
        return json.dumps(found, indent=1)
    lines = []
    for name, vm in found.items():
        what = ["%d NPUs" % vm["npus"]] + [
            text for key, text in (("kube", "node"), ("secure_boot", "secure boot"), ("outside", "outside")) if vm[key]
        ]
        lines.append(
            "%-10s %s  ssh port %d  %s"
            % (name, ", ".join(what), vm["port"], "pid %d" % vm["pid"] if vm["pid"] else "off")
        )
    return "\n".join(lines or ["no machines"])
