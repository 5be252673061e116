# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NPUs: PCI, the driver's sysfs class, the management tool and /dev brought together by PCI address and device name."""

from __future__ import annotations

import re
import typing as t

from .._base.regex import regex
from .._base.vendor import VendorProfile
from .._base.versions import natural_key
from .._host.host import ABSENT, Host
from .devices import ClassDevice, describe_node
from .pci import PciFunction, address_key, assign_cards, normalise_address, parse_numa_node, parse_speed

MINOR_LIMIT = 1 << 20
# The PCI ID database and some tools say in the name what kind of function it is.
FUNCTION_SUFFIX = regex(r"\s*\((PF|VF)\)\s*$", re.IGNORECASE)
PASSTHROUGH_DRIVERS = regex(r"vfio|^pci-stub$|^(xen-)?pciback$")


def read_status(
    profile: VendorProfile, attributes: t.Mapping[str, str], word: str | None, in_class: bool, version: str | None
) -> dict[str, t.Any]:
    """Shape `status`. `healthy` is True only for the serviceable code (and no bad word), None when nothing tells.

    The number's name is given only when the driver version is known to use that table. A device in the class that has
    no readable status is unknown, whatever the tool says; the tool's word decides alone only without the class.
    """
    raw = attributes.get("status")
    code = int(raw) if raw is not None and re.match(r"^[0-9]+$", raw) else None
    name = None
    if code is not None:
        name = (profile.status_names(version) or {}).get(code)
        if code == profile.ready_code:
            name = profile.ready_name
    good_word = None if word is None else word.lower() in profile.healthy_words
    if good_word is False:
        healthy: bool | None = False
    elif code is not None:
        healthy = code == profile.ready_code
    else:
        healthy = None if in_class else good_word
    return {"raw": raw, "name": name, "word": word, "healthy": healthy}


def _state(function: PciFunction | None, profile: VendorProfile, status: t.Mapping[str, t.Any]) -> str:
    if function is not None:
        if not function.reachable:
            return "unreachable"
        if function.driver and PASSTHROUGH_DRIVERS.search(function.driver):
            return "passthrough"
        if function.driver is None and function.driver_state == ABSENT:
            return "unbound"
    if status["healthy"] is True:
        return "ok"
    if status["name"] not in (None, profile.ready_name):
        return "fault" if status["name"] in profile.fault_names else "busy"
    if status["word"] is not None and status["word"].lower() not in profile.healthy_words:
        return "fault"
    return "unknown"


def _link(function: PciFunction | None, smi: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    speed = function.speed_gts if function else None
    width = function.width if function else None
    speed = parse_speed(smi.get("link_speed")) if speed is None else speed
    width = smi.get("link_width") if width is None else width
    max_speed = function.max_speed_gts if function else None
    max_width = function.max_width if function else None
    pairs = [
        (now, most) for now, most in ((speed, max_speed), (width, max_width)) if now is not None and most is not None
    ]
    return {
        "speed_gts": speed,
        "width": width,
        "max_speed_gts": max_speed,
        "max_width": max_width,
        "degraded": any(now < most for now, most in pairs) if pairs else None,
    }


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _group(number: int | None) -> int | None:
    """A group's number, None for what no minor number can be, such as an unsigned -1."""
    return number if number is not None and number < MINOR_LIMIT else None


def _first(*values: t.Any) -> t.Any:
    for value in values:
        if value is not None and value != "":
            return value
    return None


def _one(
    profile: VendorProfile,
    function: PciFunction | None,
    entry: ClassDevice | None,
    smi: t.Mapping[str, t.Any],
    node: dict[str, t.Any] | None,
    version: str | None,
    pci_known: bool,
) -> dict[str, t.Any]:
    attributes = entry.attributes if entry else {}
    device = entry.name if entry else smi.get("device")
    listed = profile.products.get((function.device_id if function else "") or "")
    named = _first(smi.get("name"), attributes.get("card_name")) or ""
    suffix = FUNCTION_SUFFIX.search(named)
    product = listed.name if listed else FUNCTION_SUFFIX.sub("", named) or None
    virtual = bool(function and function.physfn) or bool(
        listed.virtual if listed else suffix and suffix.group(1).upper() == "VF"
    )
    status = read_status(profile, attributes, smi.get("status"), entry is not None, version)
    state = "unreachable" if function is None and pci_known else _state(function, profile, status)
    vfs = function.vfs if function else 0
    return {
        "address": function.address if function else smi.get("address"),
        "vendor_id": function.vendor_id if function else None,
        "device_id": function.device_id if function else None,
        "product": product,
        "family": listed.family if listed else profile.family_of(product),
        "function": "vf" if virtual else "pf",
        "physfn": function.physfn if function else None,
        "vfs": vfs,
        "state": state,
        "usable": state == "ok" and vfs == 0 and node is not None and node["kind"] == "char",
        "needs_driver": state == "unbound",
        "numa_node": function.numa_node if function and function.path else parse_numa_node(_text(smi.get("numa_node"))),
        "driver": function.driver if function else None,
        "iommu_group": function.iommu_group if function else None,
        "link": _link(function, smi),
        "device": device,
        "node": node,
        "index": smi.get("index"),
        "group": _first(_group(_number(attributes.get("group_id"))), _group(smi.get("group"))),
        "status": status,
        "serial": smi.get("serial"),
        "uuid": smi.get("uuid"),
        "firmware": _first(attributes.get("fw_ver"), smi.get("firmware")),
        "smc": attributes.get("smc_ver") or None,
        "memory_bytes": _first(smi.get("memory_bytes"), _number(attributes.get("dram_total"))),
        "in_smi": bool(smi),
        "in_pci": function is not None,
    }


def _text(value: t.Any) -> str | None:
    return None if value is None else str(value)


def merge_npus(
    profile: VendorProfile,
    functions: t.Sequence[PciFunction],
    classes: t.Sequence[ClassDevice],
    smi_devices: t.Sequence[t.Mapping[str, t.Any]],
    nodes: t.Mapping[str, dict[str, t.Any]],
    host: Host,
    version: str | None,
    pci_known: bool = True,
) -> list[dict[str, t.Any]]:
    """The `npus` of the facts in address order; devices that only the driver or the tool know come last.

    The tool's index joins nothing: after an unclean end of its users all devices have the same one. `pci_known` says
    that the list of functions could be read: then a device that only the driver or the tool knows has left the bus.
    """
    by_address: dict[str, t.Mapping[str, t.Any]] = {}
    by_name: dict[str, t.Mapping[str, t.Any]] = {}
    for item in smi_devices:
        address = normalise_address(item.get("address"))
        item = dict(item, address=address or item.get("address"))
        if address:
            by_address.setdefault(address, item)
        if item.get("device"):
            by_name.setdefault(item["device"], item)
    class_by_address = {item.address: item for item in classes if item.address}
    class_by_name = {item.name: item for item in classes}
    used_names = set()
    used_smi = set()
    npus = []

    def add(function: PciFunction | None, entry: ClassDevice | None, smi: t.Mapping[str, t.Any]) -> None:
        name = entry.name if entry else smi.get("device")
        node = None
        if name:
            used_names.add(name)
            node = nodes.get(name) or describe_node(host, name)
        if smi:
            used_smi.add(id(smi))
        npus.append(_one(profile, function, entry, smi, node, version, pci_known))

    for function in functions:
        key = normalise_address(function.address) or function.address
        entry = class_by_address.get(function.address)
        smi = by_address.get(key) or (by_name.get(entry.name) if entry else None) or {}
        if smi.get("address") and normalise_address(smi["address"]) not in (None, key):
            smi = {}
        if entry is None and smi.get("device"):
            named = class_by_name.get(smi["device"])
            entry = named if named and named.address is None else None
        add(function, entry, smi)
    for _address, smi in sorted(by_address.items(), key=lambda pair: address_key(pair[0])):
        if id(smi) not in used_smi:
            add(None, class_by_name.get(smi.get("device") or ""), smi)
    for name, smi in sorted(by_name.items(), key=lambda pair: natural_key(pair[0])):
        if id(smi) not in used_smi and name not in used_names and not pci_known:
            add(None, class_by_name.get(name), smi)
    for entry in classes:
        # Without an address an entry could be any function that PCI lists, so it is one of its own only without PCI.
        if entry.name not in used_names and not (pci_known and entry.address is None):
            add(None, entry, {})
    for item in npus:
        if not item["in_pci"] and item["address"] is None:
            entry = class_by_name.get(item["device"] or "")
            item["address"] = entry.address if entry else None
    return _with_cards(profile, functions, by_address, npus)


def _with_cards(
    profile: VendorProfile,
    functions: t.Sequence[PciFunction],
    by_address: t.Mapping[str, t.Mapping[str, t.Any]],
    npus: list[dict[str, t.Any]],
) -> list[dict[str, t.Any]]:
    def size(device_id: str) -> int:
        product = profile.products.get(device_id)
        return product.devices_per_card if product else 1

    locations = {address: item["location"] for address, item in by_address.items() if item.get("location") is not None}
    cards = assign_cards(functions, size, locations)
    for item in npus:
        item["card"] = cards.get(item["address"]) or item["address"] or item["device"]
    return npus


def count(npus: t.Sequence[t.Mapping[str, t.Any]], pci_known: bool = True) -> dict[str, int | None]:
    """cards, PCI functions, devices (functions that are an NPU of their own: no PF that is split into VFs), usable.

    None for each when the PCI bus could not be read and nothing else shows an NPU: not known is not zero.
    """
    if not npus and not pci_known:
        return dict.fromkeys(("cards", "functions", "devices", "usable"))
    return {
        "cards": len({item["card"] for item in npus}),
        "functions": len(npus),
        "devices": sum(1 for item in npus if not item["vfs"]),
        "usable": sum(1 for item in npus if item["usable"]),
    }


def list_groups(
    profile: VendorProfile, npus: t.Sequence[t.Mapping[str, t.Any]], nodes: t.Mapping[str, dict[str, t.Any]], host: Host
) -> list[dict[str, t.Any]]:
    """Groups of devices by id: those that have a member or a node in /dev."""
    members: dict[int, list[str]] = {}
    for name in nodes:
        match = profile.group_pattern.match(name)
        if match:
            members.setdefault(int(match.group(1)), [])
    for item in npus:
        if item["group"] is not None and item["device"]:
            members.setdefault(item["group"], []).append(item["device"])
    found = []
    for number in sorted(members):
        name = "%s%d" % (profile.group_prefix, number)
        found.append(
            {
                "id": number,
                "node": nodes.get(name) or describe_node(host, name),
                "devices": sorted(members[number], key=natural_key),
            }
        )
    return found
