# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The second act of `make demo`: a virtual machine.

There the driver's module is really built, loaded and opened. It boots beside the first act.
"""

from __future__ import annotations

import contextlib
import os
import threading
import typing as t

from ..tools.ticking import ticking
from . import _vmqemu
from ._base import LabError, patience, say
from ._vm import Vm
from ._vmimage import QEMU, unfit

MACHINE = "npu-vm"
TRIES = 3
# A demo builds the module for the kernel that runs. The other one goes before anybody looks at the machine.
_ONE_KERNEL = """set -eu
for image in /boot/vmlinuz-*; do
  k=${image#/boot/vmlinuz-}
  [ "$k" != "$(uname -r)" ] || continue
  rm -rf "/boot/vmlinuz-$k" "/boot/initrd.img-$k" "/boot/config-$k" "/boot/System.map-$k" "/lib/modules/$k" \\
    "/usr/src/linux-headers-$k"
done
[ "$(ls /boot/vmlinuz-* | wc -l)" = 1 ]
"""


def choice() -> str:
    """VM of the environment.

    Empty: the machine has to work where it can be built. 1: it has to. try: the demo is good without it. 0: without it.
    """
    word = os.environ.get("VM", "")
    if word not in ("", "0", "1", "try"):
        raise LabError("VM is %r. Next: VM=1, VM=0 (without the virtual machine) or VM=try (good without it)" % word)
    return word


def obstacle(packages: t.Mapping[str, str]) -> str:
    """Why there can be no machine here, or empty. packages: {name: version} of what is to be installed for it."""
    if QEMU.exists():
        return unfit()
    version = packages.get("qemu-system-x86", "")
    if version.rpartition(":")[2].startswith("7.2"):
        return ""
    return "qemu-system-x86 is %s here, and the lab knows Debian 12's 7.2" % (version or "absent")


class Machine:
    """The virtual machine, brought up in a thread beside the first act.

    Where the first act fails, the process ends after the thread: a machine that is being built is not left behind.
    """

    def __init__(self) -> None:
        self.vm = Vm(MACHINE, kube=True)
        self.failed = ""
        self._thread = threading.Thread(target=self._come_up)
        self._thread.start()

    def _come_up(self) -> None:
        with ticking(MACHINE, now=lambda: "coming up"):
            self._try()

    def _try(self) -> None:
        for number in range(1, TRIES + 1):
            try:
                self.vm.up()
                self.vm.exec(_ONE_KERNEL, 120 * patience())
                self.failed = ""
                return
            except Exception as exc:
                head, _end, rest = (str(exc) or type(exc).__name__).partition("\n")
                self.failed = "%s\n%s" % (head, last_words(rest or _vmqemu.log_of(self.vm.folder)))
                say("%s: try %d of %d failed: %s" % (MACHINE, number, TRIES, head))
                with contextlib.suppress(LabError):
                    self.vm.down()

    def starting(self, seconds: float) -> bool:
        """Whether it is still coming up after that many seconds more."""
        self._thread.join(seconds)
        return self._thread.is_alive()

    def inventory(self) -> str:
        """Ansible's inventory of the machine."""
        return str(self.vm.write_inventory(user="npu"))

    def loaded(self, numbers: str) -> str:
        """What the machine says of its own module.

        LabError when `numbers`, in base 16, of a pod's devices are not the module's.
        """
        version = self.vm.exec("cat /sys/module/rebellions/version").stdout.strip()
        major = int(self.vm.exec("awk '$2 == \"rbln\" {print $1}' /proc/devices").stdout)
        if [int(word, 16) for word in numbers.split()] != [major]:
            raise LabError("the pod on %s has devices with major number %s, not the module's %d" % (
                MACHINE, numbers, major
            ))  # fmt: skip
        built = [line for line in self.vm.exec("dkms status").stdout.splitlines() if "installed" in line]
        return "module %s built by DKMS for %d kernel%s and loaded, character device %d" % (
            version, len(built), "" if len(built) == 1 else "s", major
        )  # fmt: skip


def last_words(text: str, lines: int = 15) -> str:
    """The end of what qemu and the console of the machine said."""
    said = [line for line in text.splitlines() if line.strip()]
    return "\n".join("  | " + line for line in said[-lines:])


def down() -> None:
    Vm(MACHINE).down()
