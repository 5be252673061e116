# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of a host that gives its NPUs to virtual machines: everything that a machine needs to open one."""

from __future__ import annotations

import posixpath

from .._host.host import ABSENT
from .._npu.pci import SYSFS_PCI
from .base import Context, Data, Scope, Verdict, verdict_of

SCOPE = Scope("vfio")
DRIVER = "vfio-pci"
DRIVER_DIR = "/sys/bus/pci/drivers/" + DRIVER
NODE_DIR = "/dev/vfio"
GROUP_DIR = "/sys/kernel/iommu_groups"
# Drivers of bridges, which a group may hold without belonging to the machine.
BRIDGE_DRIVERS = ("pcieport", "shpchp")


def functions(context: Context) -> list[Data]:
    """The functions that a machine can be given: not a physical one whose virtual ones are."""
    return [
        npu
        for npu in context.npus
        if npu.get("in_pci") is not False and not (npu.get("function") == "pf" and npu.get("vfs"))
    ]


@SCOPE.check()
def vfio_module(context: Context) -> Verdict | None:
    """The kernel's driver for passing PCI functions to virtual machines is loaded."""
    found = context.host.stat(DRIVER_DIR)
    if found.ok:
        return Verdict(True, "%s is loaded" % DRIVER, {"path": DRIVER_DIR})
    step = "Load it (modprobe vfio-pci), and name it in /etc/modules-load.d for the next boot."
    return Verdict(
        False if found.state == ABSENT else None,
        "%s is not loaded" % DRIVER if found.state == ABSENT else found.detail,
        {},
        step,
    )


@SCOPE.check()
def vfio_groups(context: Context) -> Verdict | None:
    """Every NPU has an IOMMU group, in which no other device belongs to a driver of the host."""
    npus = functions(context)
    if not npus:
        return None
    groups = {str(npu["address"]): npu.get("iommu_group") for npu in npus}
    bad = ["%s has no IOMMU group" % address for address, group in groups.items() if not group]
    unknown: list[str] = []
    for group in sorted({str(group) for group in groups.values() if group}):
        listed = context.host.listdir(posixpath.join(GROUP_DIR, group, "devices"))
        if not listed.ok:
            unknown.append("the devices of IOMMU group %s" % group)
        for address in listed.get([]):
            base = posixpath.join(SYSFS_PCI, address)
            driver = posixpath.basename(
                context.host.readlink(posixpath.join(context.host.resolve(base).get(base), "driver")).get("")
            )
            if address not in groups and driver and "vfio" not in driver and driver not in BRIDGE_DRIVERS:
                bad.append("%s of IOMMU group %s is bound to %s" % (address, group, driver))
    step = (
        "Turn the IOMMU on in the BIOS and on the kernel's command line (intel_iommu=on or amd_iommu=on), "
        "and leave a group's other devices unbound."
    )
    return verdict_of(
        bad, unknown, "%d NPUs in %d IOMMU groups" % (len(npus), len(set(groups.values()))), {"groups": groups}, step
    )


@SCOPE.check()
def vfio_bound(context: Context) -> Verdict | None:
    """There is an NPU, and every one is bound to vfio-pci."""
    npus = functions(context)
    if not npus:
        return Verdict(
            False,
            "there is no NPU on the PCI bus",
            {},
            "Look at the slot and at dmesg; a card that fell off the bus needs a cold start.",
        )
    drivers = {str(npu["address"]): npu.get("driver") for npu in npus}
    bad = [
        "%s is bound to %s" % (address, driver or "no driver")
        for address, driver in drivers.items()
        if driver != DRIVER
    ]
    step = "Look at the log of the vfio manager: it takes no NPU that is in use."
    return verdict_of(bad, [], "%d NPUs at %s" % (len(npus), DRIVER), {"drivers": drivers}, step)


@SCOPE.check()
def vfio_nodes(context: Context) -> Verdict | None:
    """Every bound NPU can be opened by its group's node below /dev/vfio."""
    groups = sorted(
        {
            str(npu["iommu_group"])
            for npu in functions(context)
            if npu.get("driver") == DRIVER and npu.get("iommu_group")
        }
    )
    if not groups:
        return None
    bad, unknown = [], []
    for path in (posixpath.join(NODE_DIR, name) for name in ["vfio", *groups]):
        found = context.host.stat(path)
        if not found.ok and found.state != ABSENT:
            unknown.append("%s: %s" % (path, found.detail))
        elif not found.ok or found.value.kind != "char":
            bad.append("%s is %s" % (path, "no character device" if found.ok else "missing"))
    step = "Load vfio_iommu_type1 and run udevadm trigger --subsystem-match=vfio."
    return verdict_of(bad, unknown, "%d groups below %s" % (len(groups), NODE_DIR), {"groups": groups}, step)
