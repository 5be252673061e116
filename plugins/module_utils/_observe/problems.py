# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From facts to problems: each rule looks at finished facts, says what is wrong and what to do next. Pure."""

from __future__ import annotations

import typing as t
from collections import Counter

from .._base.model import ERROR, INFO, WARNING, Problem
from .._base.vendor import VendorProfile
from .._npu.pci import normalise_address
from .._npu.smi import UNREADABLE
from .problems_driver import Facts, driver_problems, next_boot_problems, probe_problems, where


def bus_problems(profile: VendorProfile, facts: Facts, expected: t.Sequence[str]) -> t.Iterator[Problem]:
    """Cards that left the bus, families mixed, links below their best, functions given out as VFs."""
    npus = facts["npus"]
    present = {normalise_address(item["address"]) for item in npus if item["in_pci"]}
    gone = [address for address in expected if normalise_address(address) not in present]
    if gone:
        yield Problem(
            "npu_missing_on_bus",
            ERROR,
            "expected on the PCI bus and not there: %s" % ", ".join(gone),
            "look in the kernel log for pciehp and AER lines of these slots, power-cycle the host, then reseat the card",
        )
    dead = [item for item in npus if item["in_pci"] and item["state"] == "unreachable"]
    if dead:
        yield Problem(
            "unreachable",
            ERROR,
            "the PCI config space reads all ones: %s" % where(dead),
            "drain the host and power-cycle it; a card behind a switch that resets may need the vendor's pciehp hook",
        )
    lost = [item for item in npus if not item["in_pci"] and item["state"] == "unreachable"]
    if lost:
        yield Problem(
            "npu_missing_in_pci",
            ERROR,
            "known to the driver or to the management tool but not on the PCI bus: %s" % where(lost),
            "drain the host and reboot it; if the card stays away, power-cycle and reseat it",
        )
    families = sorted({item["family"] for item in npus if item["family"] and item["state"] != "passthrough"})
    if len(families) > 1:
        yield Problem(
            "two_families",
            ERROR,
            "one kernel driver serves one family, and this host has %s" % " and ".join(families),
            "keep the cards of one family in this host, or pass the others through to virtual machines",
        )
    strange = [
        item for item in npus if item["in_pci"] and item["device_id"] and item["device_id"] not in profile.products
    ]
    if strange:
        yield Problem(
            "product_unknown",
            INFO,
            "product not known: %s" % ", ".join("%s (%s)" % (item["address"], item["device_id"]) for item in strange),
            "use a newer release of this collection, or check the device id against the PCI ID database",
        )
    for item in npus:
        link = item["link"]
        if link["degraded"]:
            yield Problem(
                "link_degraded",
                WARNING,
                "%s runs at %s GT/s x%s of %s GT/s x%s"
                % (item["address"], link["speed_gts"], link["width"], link["max_speed_gts"], link["max_width"]),
                "check slot, riser and BIOS link settings; a slot with fewer lanes than the card is a known cause",
            )
    parents = [item for item in npus if item["vfs"]]
    if parents:
        yield Problem(
            "pf_has_vfs",
            INFO,
            "physical functions that gave themselves out as virtual ones and are no devices now: %s" % where(parents),
            "write 0 to their sriov_numvfs to use the whole card again",
        )


def device_problems(profile: VendorProfile, facts: Facts) -> t.Iterator[Problem]:
    """What the driver and the management tool say about the devices."""
    npus = facts["npus"]
    bound = [
        item
        for item in npus
        if item["driver"] and item["state"] not in ("unreachable", "passthrough") and not item["vfs"]
    ]
    smi = facts["smi"]
    if smi["state"] == "value":
        missing = [item for item in bound if not item["in_smi"]]
        if missing:
            yield Problem(
                "npu_missing_in_smi",
                ERROR,
                "bound to the driver but not listed by %s: %s" % (smi["path"], where(missing)),
                "the card is not initialised: keep the host out of the cluster, read the driver's kernel log, reload the driver or reboot",
            )
        indices = Counter(item["index"] for item in npus if item["index"] is not None)
        twice = sorted(index for index, times in indices.items() if times > 1)
        if twice:
            users = [item for item in npus if item["index"] in twice]
            yield Problem(
                "duplicate_npu_index",
                WARNING,
                "the management tool gives index %s to several devices: %s"
                % (", ".join(map(str, twice)), where(users)),
                "the driver's state is stale, runtimes will see no device: stop the daemon, reload the driver or reboot",
            )
    elif smi["state"] == "timeout":
        yield Problem(
            "smi_timeout",
            ERROR,
            smi["detail"],
            "look for hung processes of the device in the kernel log; reload the driver or reboot",
        )
    elif smi["state"] == "failed":
        yield Problem(
            "smi_parse_failed" if smi["error"] == UNREADABLE else "smi_failed",
            ERROR if facts["driver"]["loaded"] else WARNING,
            smi["detail"],
            "run the tool by hand; a tool and a driver of different releases are the usual cause",
        )
    elif smi["state"] == "denied":
        yield Problem("smi_denied", WARNING, smi["detail"], "gather the facts with privilege escalation")
    for item in bound:
        if item["node"] is None:
            if item["in_smi"] or smi["state"] != "value":
                yield Problem(
                    "device_unmatched",
                    WARNING,
                    "no device name is known for %s: neither %s nor the management tool ties one to it"
                    % (item["address"], profile.class_dir),
                    "let the management tool answer (see the probe smi), then gather the facts again",
                )
        elif item["node"]["kind"] == "missing":
            yield Problem(
                "device_node_missing",
                ERROR,
                "%s of %s does not exist" % (item["node"]["path"], item["address"]),
                "run udevadm trigger; in a container or a minimal system make the node with the number in /proc/devices",
            )
        elif item["node"]["kind"] == "other":
            yield Problem(
                "device_node_not_char",
                ERROR,
                "%s of %s is not a character device" % (item["node"]["path"], item["address"]),
                "remove it (a bind mount of a missing node leaves a file or a directory) and run udevadm trigger",
            )
    for group in facts["groups"]:
        if group["devices"] and group["node"]["kind"] in ("missing", "other"):
            yield Problem(
                "group_node_missing",
                WARNING,
                "%s of the group of %s is no character device" % (group["node"]["path"], ", ".join(group["devices"])),
                "programs find no device without the node of their group: run udevadm trigger, or reload the driver",
            )
    for item in npus:
        status = item["status"]
        if item["state"] == "fault":
            word = status["word"]
            said = status["name"] if word is None or word.lower() in profile.healthy_words else word
            yield Problem(
                "status_fault",
                ERROR,
                "%s (%s) reports %s" % (item["address"], item["device"], said),
                "drain the host and reset the device or reload the driver; a card that stays in fault has to be replaced",
            )
        elif item["state"] == "busy":
            yield Problem(
                "status_not_ready",
                WARNING,
                "%s (%s) is %s, and only %s serves"
                % (item["address"], item["device"], status["name"], profile.ready_name),
                "wait until it is ready and gather the facts again",
            )
        elif item in bound and item["state"] == "unknown":
            yield Problem(
                "status_unknown",
                WARNING,
                "the health of %s (%s) cannot be told: status reads %r"
                % (item["address"], item["device"], status["raw"]),
                "treat it as not usable; ask the management tool, and compare driver and tool release",
            )


def find_problems(profile: VendorProfile, facts: Facts, expected: t.Sequence[str]) -> list[Problem]:
    """All problems, errors first, otherwise in the order of the rules."""
    found = list(bus_problems(profile, facts, expected))
    found += list(device_problems(profile, facts))
    found += list(driver_problems(profile, facts))
    found += list(next_boot_problems(facts))
    found += list(probe_problems(facts))
    order = {ERROR: 0, WARNING: 1, INFO: 2}
    named = [Problem(item.code, item.severity, item.detail, item.next_step, profile.name) for item in found]
    return sorted(named, key=lambda item: order[item.severity])
