# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The third server of `make demo`: a virtual machine.

There the driver's module is really built, loaded and opened.
"""

from __future__ import annotations

from . import _needs
from ._base import LabError
from ._vm import Vm

MACHINE = "npu-vm"


def inventory() -> list[str]:
    """Ansible's inventory of the machine while it runs."""
    vm = Vm(MACHINE)
    return [str(vm.write_inventory(user="npu"))] if vm.running() else []


def up() -> Vm | None:
    """The virtual machine as a node, or None with the reason told: the demo goes on without it."""
    problems = _needs.vm_obstacles()
    if problems:
        print("%s: not here and now: %s" % (MACHINE, "; ".join(problems)))
        return None
    vm = Vm(MACHINE, kube=True)
    try:
        seconds = vm.up()
    except LabError as exc:
        print("%s: %s" % (MACHINE, exc))
        vm.down()
        return None
    print("%s: virtual machine with kernel %s, running, Ready, %.1f s" % (MACHINE, vm.kernel(), seconds))
    return vm


def loaded(vm: Vm, numbers: str) -> str:
    """What the virtual machine says of its own module.

    LabError when `numbers`, in base 16, of a pod's devices are not the module's.
    """
    version = vm.exec("cat /sys/module/rebellions/version").stdout.strip()
    major = int(vm.exec("awk '$2 == \"rbln\" {print $1}' /proc/devices").stdout)
    if [int(word, 16) for word in numbers.split()] != [major]:
        raise LabError(
            "the pod on %s has devices with major number %s, and the loaded module has %d" % (vm.name, numbers, major)
        )
    built = vm.exec("dkms status").stdout.splitlines()
    return "module %s built by DKMS for %d kernels and loaded, character device %d" % (version, len(built), major)


def down() -> None:
    Vm(MACHINE).down()
