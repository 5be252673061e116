# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A virtual machine as a server of Ansible's inventory.

Playbooks over ssh, what it says of its driver and its kernels, and its power cord.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import typing as t
from pathlib import Path

from tests.integration._driver import CHANGE, NEW, OLD, many, role_book, seen, works
from tests.integration._play import FOLDER, STAGED, Data, Run, command, parse, play
from tests.lab import Lab
from tests.lab._base import until
from tests.lab._vm import Vm, _await_boot, _close
from tests.lab._vmqemu import alive, gone, spawn
from tests.lab._vmqemu import command as qemu_command
from tests.lab.standins.payload import FAULTY_VERSION

FAULT = "/opt/npu-lab/payload/fault"
# Seconds of one playbook, for one that hangs: on busy cores a build for a kernel and a boot take minutes each.
PLAY_SECONDS = 2400

_REAL = """
import glob, json, os, subprocess
def text(path):
    try:
        with open(path) as stream:
            return stream.readline().strip()
    except OSError as exc:
        return str(exc.strerror)
def out(*argv):
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True)
    return done.stdout.strip()
def notes(path):
    try:
        with open(path, "rb") as stream:
            return stream.read()[-20:].hex()
    except OSError as exc:
        return str(exc.strerror)
kernels = sorted(name[len("/boot/vmlinuz-"):] for name in glob.glob("/boot/vmlinuz-*"))
print(json.dumps({
    "running": os.uname().release,
    "kernels": kernels,
    "modules": {
        k: {f: out("modinfo", "-k", k, "-F", f, "rebellions") for f in ("version", "srcversion", "vermagic")}
        for k in kernels
    },
    "dkms": sorted(out("dkms", "status").splitlines()),
    "loaded": text("/sys/module/rebellions/srcversion"),
    "identity": notes("/sys/module/rebellions/notes/.note.gnu.build-id"),
    "bound": [
        line.split(":")[1].strip()
        for line in out("lspci", "-k", "-d", "1eff:").splitlines()
        if "driver in use" in line
    ],
    "opens": {path: text(path) for path in sorted(glob.glob("/dev/rbln*"))},
    "major": sorted({os.major(os.stat(path).st_rdev) for path in glob.glob("/dev/rbln*")}),
    "majors": [line.split()[0] for line in open("/proc/devices") if line.split()[1:] == ["rbln"]],
    "firmware": [text(path) for path in sorted(glob.glob("/sys/class/rebellions/rbln*/fw_ver"))],
}))
"""


def debian(version: str, **more: t.Any) -> Data:
    """Inputs for a driver by the runfile that installs by itself, on a machine where modules are real."""
    return {
        **many(version),
        "rbln_driver_build_packages": ["dkms", "gcc", "make"],
        "rbln_container_toolkit_no_runtime": "ignore",
        # The emulated machine takes its time over everything.
        "rbln_driver_load_timeout": 60,
        **more,
    }


def unpacked(version: str, **more: t.Any) -> Data:
    """The same by the packages that are in the runfile, through apt."""
    return debian(version, rbln_driver_runfile_extract=["--extract", "{directory}"], **more)


class Server:
    """One machine and its state."""

    def __init__(self, vm: Vm) -> None:
        self.vm, self.name = vm, vm.name

    # -- what the helpers of system containers ask of a lab

    def exec(self, _host: str, argv: str | t.Sequence[str], **more: t.Any) -> subprocess.CompletedProcess[str]:
        return self.vm.exec(argv, **more)

    @property
    def lab(self) -> Lab:
        """This object where a helper wants the lab: only exec() is used there."""
        return t.cast(Lab, self)

    def sh(self, line: str, timeout: float = 300, check: bool = True) -> str:
        return self.vm.exec(line, timeout, check).stdout

    def fault(self, name: str, value: str = "1") -> None:
        """Set a fault of the stand-ins, "-" takes it away; a reboot forgets all of them."""
        self.sh("%s %s %s" % (FAULT, name, value))

    # -- playbooks

    def _inventory(self, inputs: Data) -> Path:
        path = FOLDER / ("%s.json" % self.name)
        path.write_text(
            json.dumps({"npu_nodes": {"hosts": {self.name: {**self.vm.inventory("npu"), **inputs}}}}, indent=1)
        )
        return path

    def play(self, book: str | Path, inputs: Data, *args: str) -> Run:
        """A playbook of the collection, or a file, by a user who becomes root by sudo."""
        run = play(book, self._inventory(inputs), *args, timeout=PLAY_SECONDS)
        print("%s: %.1f s, exit %d" % (book, run.seconds, run.code))
        for result in run.of(CHANGE):
            print(
                "  %s: %s"
                % (
                    result.data.get("outcome"),
                    ", ".join("%(step)s %(seconds).1f s" % step for step in result.data.get("steps", [])),
                )
            )
        return run

    def role(self, inputs: Data, *args: str) -> Run:
        return self.play(role_book(), inputs, *args)

    def good(self, inputs: Data) -> Run:
        return self.role(inputs).good([self.name])

    @contextlib.contextmanager
    def while_playing(self, book: str | Path, inputs: Data, *args: str) -> t.Iterator[t.Callable[[], Run]]:
        """A playbook in a process of its own; the function that is given waits for its end."""
        argv, env = command(book, self._inventory(inputs), *args)
        pipes: dict[str, t.Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
            "errors": "replace",
        }
        process = subprocess.Popen(argv, cwd=STAGED, env=env, **pipes)

        def end() -> Run:
            out, err = process.communicate(timeout=PLAY_SECONDS)
            return parse(process.returncode, out, err, 0.0)

        try:
            yield end
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate()

    # -- what is so

    def seen(self) -> Data:
        return seen(self.lab, self.name)

    def real(self) -> Data:
        """What kernels, DKMS, PCI bus and devices say themselves.

        {running, kernels, modules {kernel: {version, srcversion, vermagic}}, dkms [line], loaded srcversion, identity
        of the build, bound [driver], opens {node: first line}, major [number], majors [text], firmware [version]}
        """
        data: Data = json.loads(self.vm.exec(["python3", "-"], stdin=_REAL).stdout)
        return data

    def works(self, version: str, kernels: t.Sequence[str] | None = None, **more: t.Any) -> Data:
        """The state of a server that has this driver noted, loaded, and built for all these kernels.

        The driver is bound to the NPUs too, and its devices answer.
        """
        real = self.real()
        built = list(real["kernels"]) if kernels is None else list(kernels)
        for kernel in real["kernels"]:
            module = real["modules"][kernel]
            assert module["version"] == (version if kernel in built else ""), (kernel, real)
            assert kernel not in built or module["vermagic"].split()[0] == kernel, (kernel, module)
        assert [line.split(":")[0] for line in real["dkms"]] == sorted(
            "rebellions/%s, %s, x86_64" % (version, kernel) for kernel in built
        ), real["dkms"]
        assert all(line.endswith(": installed") for line in real["dkms"]), real["dkms"]
        assert real["loaded"] == real["modules"][real["running"]]["srcversion"] != "", real
        assert real["bound"] == ["rebellions"] * self.vm.npus, real["bound"]
        assert real["opens"] == {
            "/dev/rbln%d" % n: "rebellions %s stand-in rbln%d" % (version, n) for n in range(self.vm.npus)
        }, real["opens"]
        assert list(map(str, real["major"])) == real["majors"], real
        return {**works(self.seen(), version, **more), "real": real}

    def state(self) -> Data:
        """Everything that must not change when a change is refused."""
        trees = "/etc /usr/bin /usr/src/rebellions* /var/lib/dkms /lib/modules/*/updates"
        listed = self.sh(
            "find $(ls -d %s 2>/dev/null) -xdev -printf '%%p %%m %%s %%T@\\n' | grep -v '^/etc ' | sort | sha256sum"
            % trees
        )
        return {"seen": self.seen(), "real": self.real(), "files": listed}

    def put(self, version: str) -> Data:
        """Make sure that this driver works, with nothing noted of other versions and no fault set."""
        self.sh("for f in $(ls /run/npu-lab/fault 2>/dev/null); do %s $f -; done" % FAULT)
        state = self.seen()
        if (
            (state["loaded"], state["on_disk"]) != (version, version)
            or state["journal"]
            or state["tainted"]
            or not state["stamp"]
        ):
            self.good(unpacked(version, rbln_driver_retry=True))
        self.sh("rm -f /var/lib/rbln/refused.json")
        return self.seen()

    @contextlib.contextmanager
    def without_headers(self, kernel: str) -> t.Iterator[None]:
        """A kernel whose headers are not installed; no mirror is in reach that would bring them back."""
        status, package = "/var/lib/dpkg/status", "linux-headers-" + kernel
        gone = "sed -i '/^Package: %s$/,/^$/ s/^Status: .*/Status: deinstall ok config-files/' %s" % (package, status)
        self.sh("cp %s /root/status && %s && mv /usr/src/%s /root" % (status, gone, package))
        try:
            yield
        finally:
            self.sh("cp /root/status %s && mv /root/%s /usr/src" % (status, package))

    # -- power

    def pull_the_plug(self) -> None:
        """No shutdown, no flush: what the machine has not written to its disk is lost."""
        pid = alive(self.vm.folder)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        until(10, "end of qemu", lambda: gone(pid), 0.05)
        _close(self.vm.folder, self.vm.port)

    def switch_off(self) -> None:
        """A shutdown: everything is on the disk."""
        self.vm.exec("systemctl poweroff", check=False)
        until(120, "power off", lambda: alive(self.vm.folder) is None)
        _close(self.vm.folder, self.vm.port)

    def switch_on(self, *more: str) -> float:
        """Boot from the same disk, with more options of qemu; seconds until all is up."""
        vm = self.vm
        argv = qemu_command(vm.folder, vm.name, vm.npus, vm.secure_boot, vm.port, vm.outside)
        spawn([*argv, *more], vm.folder)
        return _await_boot(vm.folder, vm.port)

    def next_boot(self, kernel: str) -> None:
        """Choose the kernel of the next boot alone, as GRUB's own tool does."""
        self.sh('u=$(findmnt -no UUID /) && grub-reboot "gnulinux-advanced-$u>gnulinux-%s-advanced-$u"' % kernel)


__all__ = ["CHANGE", "FAULTY_VERSION", "NEW", "OLD", "Server", "debian", "unpacked"]
