# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hotplug ports above NPUs: a port that the kernel's pciehp service holds may take a card away while the card resets."""

from __future__ import annotations

import re
import typing as t

from ._host import ABSENT, VALUE, Host, Probe
from ._pci import ADDRESS, PciFunction, address_key

SERVICES = "/sys/bus/pci_express"
PCIEHP = SERVICES + "/drivers/pciehp"


def read_pciehp(host: Host, functions: t.Sequence[PciFunction]) -> t.Tuple[t.Dict[str, t.Any], Probe]:
    """The `pciehp` part of the facts, {ports: [{port, npus}] or None}, and the probe.

    A port is listed when pciehp holds it and an NPU hangs below it, at any depth. None: it could not be found out, also where
    sysfs shows the NPUs but not what is above them.
    """
    found = host.listdir(PCIEHP)
    if found.state == ABSENT and host.exists("/sys/bus/pci"):
        # No driver directory: the kernel has no pciehp, so no port is held.
        return {"ports": []}, Probe(VALUE)
    if not found.ok:
        return {"ports": None}, found
    bound = set()
    for name in found.value:
        match = re.match(r"^([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]):pcie[0-9a-f]+$", name.lower())
        if match:
            bound.add(match.group(1))
    below: t.Dict[str, t.List[str]] = {}
    for function in functions:
        for part in function.path.split("/")[:-1]:
            if ADDRESS.match(part) and part in bound and not function.physfn:
                below.setdefault(part, []).append(function.address)
    return {"ports": [{"port": port, "npus": below[port]} for port in sorted(below, key=address_key)]}, found
