# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""PCI functions of one vendor, from sysfs or else lspci; which of them share a card, and hotplug ports above them.

A port that the kernel's pciehp service holds may take a card away while the card resets.
"""

from __future__ import annotations

import posixpath
import re
import typing as t

from .._base.records import dataclass
from .._base.regex import regex
from .._host.host import ABSENT, DENIED, VALUE, Host, Limit, Probe

SYSFS_PCI = "/sys/bus/pci/devices"
# The most that a kernel can be built for.
NUMA_NODES = 1024
# Intel VMD, Hyper-V and user-space controllers hand out domains of five to eight digits.
ADDRESS = regex(r"^([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])$")


@dataclass(frozen=True)
class PciFunction:
    """One function. Link speeds are GT/s; None is "not known". `path` is the resolved sysfs directory, else empty."""

    address: str
    vendor_id: str
    device_id: str | None = None
    class_id: str | None = None
    revision: str | None = None
    reachable: bool = True
    driver: str | None = None
    driver_state: str = "value"
    numa_node: int | None = None
    iommu_group: str | None = None
    physfn: str | None = None
    vfs: int = 0
    speed_gts: float | None = None
    width: int | None = None
    max_speed_gts: float | None = None
    max_width: int | None = None
    path: str = ""


def normalise_address(text: str | None) -> str | None:
    """A PCI address as sysfs spells it (lower case, domain of four digits or more), or None when it is not one."""
    cleaned = (text or "").strip().lower()
    if re.match(r"^[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$", cleaned):
        cleaned = "0000:" + cleaned
    match = ADDRESS.match(cleaned)
    return "%s%s" % (match.group(1).lstrip("0").rjust(4, "0"), cleaned[match.end(1) :]) if match else None


def address_key(address: str | None) -> tuple[int, ...]:
    """Sort key: numeric order of domain, bus, device, function; what is no address comes last."""
    match = ADDRESS.match(address or "")
    return tuple(int(part, 16) for part in match.groups()) if match else (1 << 40,)


def parse_numa_node(text: str | None) -> int | None:
    """NUMA node; None for an empty or absent file and for -1 ("no node"), also read as an unsigned number."""
    cleaned = (text or "").strip()
    node = int(cleaned) if re.match(r"^[0-9]{1,10}$", cleaned) else NUMA_NODES
    return node if node < NUMA_NODES else None


def parse_speed(text: str | None) -> float | None:
    """GT/s of `32.0 GT/s PCIe`, `16GT/s`; None for `Unknown speed` and anything else."""
    match = re.match(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*GT/s", text or "")
    return float(match.group(1)) if match else None


def parse_width(text: str | None) -> int | None:
    """Lanes of `16` or `x16`; None for 0 and 255, which the kernel shows when the link does not answer."""
    match = re.match(r"^\s*x?([0-9]+)\s*$", text or "")
    lanes = int(match.group(1)) if match else 0
    return lanes if 0 < lanes < 255 else None


def parse_lspci(text: str, vendor: str) -> list[PciFunction]:
    """Functions of `vendor` in the output of `lspci -Dnn`; `(rev ff)` means that the config space reads all ones."""
    found = []
    for line in text.splitlines():
        match = re.match(
            r"^(\S+)\s.*?\[([0-9a-f]{4})\]: .*\[([0-9a-f]{4}):([0-9a-f]{4})\](?:.*\(rev ([0-9a-f]{2})\))?", line.lower()
        )
        address = normalise_address(match.group(1)) if match else None
        if match and address and match.group(3) == vendor:
            revision = match.group(5)
            found.append(
                PciFunction(address, vendor, match.group(4), match.group(2), revision, reachable=revision != "ff")
            )
    return found


def _hex(text: str | None) -> str | None:
    match = re.match(r"^\s*(?:0x)?([0-9a-f]+)\s*$", (text or "").lower())
    return match.group(1) if match else None


def _link_name(host: Host, path: str) -> Probe:
    return host.readlink(path).map(posixpath.basename)


def _read_function(host: Host, address: str, vendor: str) -> PciFunction:
    base = posixpath.join(SYSFS_PCI, address)
    path = host.resolve(base).get(base)

    def attribute(name: str) -> str | None:
        text: str | None = host.read_text(posixpath.join(path, name), Limit.ATTRIBUTE).get()
        return text

    revision = _hex(attribute("revision"))
    config = host.read_head(posixpath.join(path, "config"), 16).get(b"")
    physfn = _link_name(host, posixpath.join(path, "physfn")).get()
    # The ids of a virtual function read all ones by specification, so it is judged by the whole head.
    head = config if physfn else config[:4]
    driver = _link_name(host, posixpath.join(path, "driver"))
    names = host.listdir(path).get([])
    vfs = attribute("sriov_numvfs") or ""
    return PciFunction(
        address=address,
        vendor_id=vendor,
        device_id=_hex(attribute("device")),
        class_id=(_hex(attribute("class")) or "")[:4] or None,
        revision=revision,
        reachable=not (revision == "ff" or bool(head) and not head.strip(b"\xff")),
        driver=driver.get(),
        driver_state=driver.state,
        numa_node=parse_numa_node(attribute("numa_node")),
        iommu_group=_link_name(host, posixpath.join(path, "iommu_group")).get(),
        physfn=physfn,
        vfs=max(
            int(vfs) if vfs.strip().isdecimal() else 0, sum(1 for name in names if re.match(r"^virtfn[0-9]+$", name))
        ),
        speed_gts=parse_speed(attribute("current_link_speed")),
        width=parse_width(attribute("current_link_width")),
        max_speed_gts=parse_speed(attribute("max_link_speed")),
        max_width=parse_width(attribute("max_link_width")),
        path=path,
    )


def read_functions(
    host: Host, vendor: str, class_id: str, known: t.Container[str], timeout: float = 5.0
) -> tuple[list[PciFunction], Probe]:
    """Functions of `vendor` (four hex digits) in address order, and the probe of the list.

    Kept are those of the wanted class, of a known device id, or without a readable class. A name that is no PCI
    address is passed over. Where the vendor of a function may not be read the list may be short, and the probe says so.
    """
    names = host.listdir(SYSFS_PCI)
    if not names.ok:
        asked = host.run(["lspci", "-Dnn", "-d", vendor + ":"], timeout)
        if names.state != DENIED and asked.ok and asked.value.rc == 0:
            return sorted(parse_lspci(asked.value.out, vendor), key=lambda item: address_key(item.address)), asked
        return [], names
    found = []
    probe = names
    for name in names.value:
        if not ADDRESS.match(name.lower()):
            continue
        told = host.read_text(posixpath.join(SYSFS_PCI, name, "vendor"), Limit.ATTRIBUTE)
        if told.state not in (VALUE, ABSENT) and probe.ok:
            probe = Probe(told.state, None, "%s/vendor: %s" % (name, told.detail))
        if _hex(told.get()) != vendor:
            continue
        function = _read_function(host, name, vendor)
        if function.class_id in (None, class_id) or function.device_id in known:
            found.append(function)
    counted: dict[str, int] = {}
    for function in found:
        if function.physfn:
            counted[function.physfn] = counted.get(function.physfn, 0) + 1
    complete = []
    for function in found:
        vfs = max(function.vfs, counted.get(function.address, 0))
        complete.append(function if vfs == function.vfs else PciFunction(**{**function.__dict__, "vfs": vfs}))
    return sorted(complete, key=lambda item: address_key(item.address)), probe


def _bridges(function: PciFunction) -> list[str]:
    """PCI addresses above a function, nearest first."""
    parts = [part for part in function.path.split("/")[:-1] if ADDRESS.match(part)]
    return parts[::-1]


def _chunks(functions: t.Sequence[PciFunction], size: int, locations: t.Mapping[str, int]) -> dict[str, str]:
    """Cards of functions that no bridge tells apart: by location (a number per host), else by address order."""
    known = [locations[item.address] for item in functions if item.address in locations]
    if len(known) == len(functions) and len(set(known)) == len(known):
        first: dict[int, str] = {}
        for item in functions:
            first.setdefault(locations[item.address] // size, item.address)
        return {item.address: first[locations[item.address] // size] for item in functions}
    return {item.address: functions[at - at % size].address for at, item in enumerate(functions)}


def assign_cards(
    functions: t.Sequence[PciFunction], devices_per_card: t.Callable[[str], int], locations: t.Mapping[str, int]
) -> dict[str, str]:
    """Card of every function: the address of its bridge, or of the card's first function.

    A virtual function is on the card of its physical one. On a product with several devices on a card, the functions
    below the nearest common bridge are one card when they are no more than the product has; otherwise the locations
    that the management tool reports decide, and without them the address order.
    """
    cards = {}
    groups: dict[tuple[str | None, int], list[PciFunction]] = {}
    physical = sorted((item for item in functions if not item.physfn), key=lambda item: address_key(item.address))
    for item in physical:
        size = devices_per_card(item.device_id or "")
        if size <= 1:
            cards[item.address] = item.address
        else:
            groups.setdefault((item.device_id, size), []).append(item)
    for (_device, size), members in sorted(groups.items(), key=lambda pair: address_key(pair[1][0].address)):
        below: dict[str, int] = {}
        for item in members:
            for bridge in _bridges(item):
                below[bridge] = below.get(bridge, 0) + 1
        rest = []
        for item in members:
            shared = [bridge for bridge in _bridges(item) if 1 < below[bridge] <= size]
            # The highest bridge that still holds no more than one card's devices is the card's own switch.
            if shared:
                cards[item.address] = shared[-1]
            else:
                rest.append(item)
        cards.update(_chunks(rest, size, locations))
    for item in functions:
        if item.physfn:
            cards[item.address] = cards.get(item.physfn, item.physfn)
    return cards


SERVICES = "/sys/bus/pci_express"
PCIEHP = SERVICES + "/drivers/pciehp"


def read_pciehp(host: Host, functions: t.Sequence[PciFunction]) -> tuple[dict[str, t.Any], Probe]:
    """The `pciehp` part of the facts, {ports: [{port, npus}] or None}, and the probe.

    A port is listed when pciehp holds it and an NPU is below it, at any depth. None: it could not be found out, also
    where sysfs shows the NPUs but not what is above them.
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
    below: dict[str, list[str]] = {}
    for function in functions:
        for part in function.path.split("/")[:-1]:
            if ADDRESS.match(part) and part in bound and not function.physfn:
                below.setdefault(part, []).append(function.address)
    return {"ports": [{"port": port, "npus": below[port]} for port in sorted(below, key=address_key)]}, found
