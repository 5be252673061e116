# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of the single devices, as the PCI bus, the driver and its tool show them."""

from __future__ import annotations

import typing as t

from .._base.model import ERROR, INFO, WARNING
from .._base.records import replace
from .._base.versions import same_release
from .._host.host import ABSENT, VALUE
from .base import Context, Scope, Verdict, address_of, verdict_of, without_npus

# Part of the scope of the driver, in a table of its own.
SCOPE = Scope("driver")


@SCOPE.check()
def one_family(context: Context) -> Verdict | None:
    """The NPUs that the host's driver serves are of one family: one kernel driver serves one family."""
    families = sorted({npu["family"] for npu in context.served_npus if npu.get("family")})
    if not families:
        return None
    evidence = {"families": families}
    if len(families) == 1:
        return Verdict(True, "every NPU is of the family %s" % families[0], evidence)
    return Verdict(
        False,
        "one kernel driver serves one family, and this host has %s" % " and ".join(families),
        evidence,
        "Keep the cards of one family in this host, or give the others to virtual machines.",
    )


@SCOPE.check(INFO)
def products_known(context: Context) -> Verdict | None:
    """This collection knows the product of every NPU on the PCI bus."""
    npus = [npu for npu in context.npus if npu.get("in_pci") and npu.get("device_id")]
    if not npus:
        return None
    strange = [
        "%s (%s)" % (npu["address"], npu["device_id"])
        for npu in npus
        if npu["device_id"] not in context.profile.products
    ]
    return Verdict(
        not strange,
        "product not known: %s" % ", ".join(strange) if strange else "every product is known",
        {"unknown": strange},
        "Use a newer release of this collection, or check the device id against the PCI ID database.",
    )


@SCOPE.check(INFO)
def pf_without_vfs(context: Context) -> Verdict | None:
    """No physical function is split into virtual functions; a split one cannot be used as a device itself."""
    if not context.npus:
        return None
    split = [_name(npu) for npu in context.npus if npu.get("vfs")]
    return Verdict(
        not split,
        "split into virtual functions and not usable as devices themselves: %s" % ", ".join(split)
        if split
        else "no physical function is split",
        {"split": split},
        "Write 0 to their sriov_numvfs to use the whole card again.",
    )


@SCOPE.check()
def device_nodes(context: Context) -> Verdict | None:
    """Every bound NPU, and every device group, has a character device under /dev."""
    return without_npus(context, _nodes(context)) if context.served_npus else None


def _nodes(context: Context) -> Verdict:
    npus = [npu for npu in context.container_npus if npu.get("state") not in ("unbound", "unreachable")]
    bad, unknown, seen = [], [], []
    for npu in npus:
        node = npu.get("node") or {}
        if not npu.get("device"):
            unknown.append("%s has no device name" % npu["address"])
        elif node.get("kind") == "char":
            seen.append(node.get("path"))
        elif node.get("kind") in ("missing", "other"):
            what = "is missing" if node["kind"] == "missing" else "is not a character device"
            bad.append("%s of %s %s" % (node.get("path") or "/dev/" + npu["device"], npu["address"], what))
        else:
            unknown.append("the node of %s" % address_of(npu))
    for group in context.facts.get("groups") or []:
        node = group.get("node") or {}
        if node.get("kind") in ("missing", "other"):
            what = "is missing" if node["kind"] == "missing" else "is not a character device"
            bad.append("%s of device group %s %s" % (node.get("path"), group.get("id"), what))
    return verdict_of(
        bad,
        unknown,
        "%d character devices" % len(seen),
        {"nodes": seen},
        "Make the nodes (udevadm trigger --subsystem-match=%s), or reload the driver."
        % context.profile.class_dir.rsplit("/", 1)[-1],
    )


@SCOPE.check(WARNING)
def devices_named(context: Context) -> Verdict | None:
    """The driver's class in sysfs or the vendor's tool gives a device name for every bound NPU."""
    bound = _bound(context)
    if not bound:
        return None
    answered = context.part("smi").get("state") == VALUE
    # One that the tool does not list is named by device_counts.
    bad = [
        npu
        for npu in bound
        if npu.get("node") is None and not npu.get("device") and (npu.get("in_smi") or not answered)
    ]
    return Verdict(
        not bad,
        "no device name is known for %s: neither %s nor the tool gives one"
        % (", ".join(map(_name, bad)), context.profile.class_dir)
        if bad
        else "every device has a name",
        {"unnamed": [_name(npu) for npu in bad]},
        "Let the management tool answer (see the probe smi), then look again.",
    )


def _bound(context: Context) -> list[t.Mapping[str, t.Any]]:
    """The NPUs for containers that a kernel driver holds."""
    return [npu for npu in context.container_npus if npu.get("driver") and npu.get("state") != "unreachable"]


def _tool(context: Context) -> tuple[bool | None, str]:
    """Whether the vendor's tool answered; None when that cannot be said here."""
    smi = context.part("smi")
    state, detail = smi.get("state"), str(smi.get("detail") or "")
    if state == VALUE:
        return True, ""
    if state is None or (state == ABSENT and not context.host.runs_commands):
        return None, detail or "commands are not run here"
    if state == ABSENT:
        return False, detail or "not found"
    return None, "%s: %s" % (state, detail) if detail else str(state)


@SCOPE.check()
def tool_answers(context: Context) -> Verdict | None:
    """The vendor's tool is there and its JSON can be read."""
    if not context.container_npus:
        return None
    ok, why = _tool(context)
    name = context.profile.smi_names[0]
    if ok:
        warned = str(context.part("smi").get("detail") or "")
        told = "%s answers%s" % (name, ", and warns: " + warned if warned else "")
        return Verdict(True, told, {"kmd_version": context.part("smi").get("kmd_version")})
    return Verdict(
        ok,
        "%s did not answer: %s" % (name, why),
        {"state": context.part("smi").get("state")},
        "Install the driver's tools, load the driver, and run as root; a call that hangs needs a reload or reboot.",
    )


@SCOPE.check()
def device_counts(context: Context) -> Verdict | None:
    """The numbers on the PCI bus, in the tool, in /dev and usable are equal; the missing devices are named."""
    npus = context.container_npus
    if not npus:
        return None
    answered, why = _tool(context)
    on_bus = [npu for npu in npus if npu.get("in_pci") is not False]
    shown = [npu for npu in npus if npu.get("in_smi")]
    nodes = [npu for npu in npus if (npu.get("node") or {}).get("kind") == "char"]
    bus_known = (context.part("probes").get("pci") or {}).get("state") in (None, VALUE)
    unseen = [npu for npu in npus if (npu.get("node") or {}).get("kind") == "unknown"]
    usable = [npu for npu in npus if npu.get("usable")]
    missing = [_name(npu) for npu in on_bus if answered and npu not in shown]
    strange = [_name(npu) for npu in npus if bus_known and npu not in on_bus]
    unusable = [_name(npu) for npu in on_bus if npu not in usable and _name(npu) not in missing]
    evidence: dict[str, t.Any] = {
        "pci": len(on_bus),
        "tool": len(shown) if answered else None,
        "dev": len(nodes),
        "usable": len(usable),
    }
    evidence.update({"missing": missing, "unusable": unusable, "not_on_bus": strange})
    detail = "expected %d, the driver sees %s, %d under /dev, usable %d" % (
        len(on_bus),
        len(shown) if answered else "?",
        len(nodes),
        len(usable),
    )
    if strange:
        detail += "; not on the bus: %s" % ", ".join(strange)
    if missing:
        detail += "; missing: %s" % ", ".join(missing)
    if unusable:
        reasons = {_name(npu): _reason(npu) for npu in npus}
        detail += "; unusable: %s" % ", ".join("%s (%s)" % (address, reasons[address]) for address in unusable)
    step = "Do not join this host to a cluster: reload the driver or reboot, then look at the named cards."
    # What is known to be wrong is not hidden by what is not known.
    known = [npu for npu in on_bus if npu not in unseen]
    broken = any(_name(npu) in unusable for npu in known)
    if missing or strange or broken or len(nodes) < len(known):
        return Verdict(False, detail, evidence, step)
    if not bus_known or unseen:
        what = "the PCI bus cannot be read" if not bus_known else "%d device nodes cannot be looked at" % len(unseen)
        return Verdict(None, what, {"probes": context.part("probes")}, "Run as root with /sys and /dev mounted.")
    if answered is None:
        return Verdict(None, "%s (%s)" % (detail, why), evidence, step)
    return Verdict(True, detail, evidence)


def _name(npu: t.Mapping[str, t.Any]) -> str:
    """The address; without PCI a device may have none, then its name."""
    return str(npu.get("address") or npu.get("device") or "?")


def _reason(npu: t.Mapping[str, t.Any]) -> str:
    status = npu.get("status") or {}
    if npu.get("state") not in (None, "ok", "unknown"):
        return str(npu["state"])
    return str(
        status.get("word")
        or status.get("name")
        or ("status %s" % status["raw"] if status.get("raw") else "status not known")
    )


def _judged(context: Context) -> list[t.Mapping[str, t.Any]]:
    """The NPUs for containers, and the split physical functions that are in fault."""
    own = context.container_npus
    split = [npu for npu in context.served_npus if npu.get("vfs") and npu.get("state") == "fault"]
    return [*own, *(npu for npu in split if npu not in own)]


@SCOPE.check()
def device_status(context: Context) -> Verdict | None:
    """The driver's status number is that of a ready device, which means the same in every release.

    Unreadable is not healthy. A physical function that is split into virtual ones counts only when it is in fault.
    """
    npus = _judged(context)
    if not npus:
        return None
    bad, unknown, seen = [], [], {}
    for npu in npus:
        status = npu.get("status") or {}
        seen[npu["address"]] = status.get("raw")
        if status.get("raw") is None:
            unknown.append("status of %s" % address_of(npu))
        elif _is_ready(context, status):
            continue
        elif not _is_number(status["raw"]):
            unknown.append("status %r of %s" % (status["raw"], address_of(npu)))
        else:
            name = " (%s)" % status["name"] if status.get("name") else ""
            bad.append("%s has status %s%s" % (address_of(npu), status["raw"], name))
    step = "Wait until nothing uses the device; else reset it or reload the driver."
    good = "%s on every device" % context.profile.ready_name
    return without_npus(context, verdict_of(bad, unknown, good, {"status": seen}, step))


def _is_number(raw: t.Any) -> bool:
    return str(raw).strip().isdigit()


def _is_ready(context: Context, status: t.Mapping[str, t.Any]) -> bool:
    ready = str(status["raw"]).strip() == str(context.profile.ready_code)
    return ready or status.get("name") == context.profile.ready_name


@SCOPE.check(WARNING)
def device_health_known(context: Context) -> Verdict | None:
    """For every bound NPU, the driver or the vendor's tool reports whether it is healthy."""
    bound = _bound(context)
    if not bound:
        return None
    bad = [
        npu for npu in bound if npu.get("state") == "unknown" and not _is_number((npu.get("status") or {}).get("raw"))
    ]
    return verdict_of(
        [
            "the health of %s is not known: status reads %r" % (address_of(npu), (npu.get("status") or {}).get("raw"))
            for npu in bad
        ],
        [],
        "the health of every device is known",
        {"not_known": [_name(npu) for npu in bad]},
        "Treat it as not usable; ask the management tool, and compare driver and tool release.",
    )


@SCOPE.check()
def device_words(context: Context) -> Verdict | None:
    """The tool's health word is a known healthy one; any other is bad and is shown."""
    answered, _why = _tool(context)
    npus = _judged(context)
    if not npus or not answered:
        return None
    words = {npu["address"]: (npu.get("status") or {}).get("word") for npu in npus}
    bad = [
        "%s: %s" % (address, word)
        for address, word in words.items()
        if word is not None and word.lower() not in context.profile.healthy_words
    ]
    unknown = ["health of %s" % address for address, word in words.items() if word is None]
    verdict = verdict_of(
        bad,
        unknown,
        "%s on every device" % "/".join(context.profile.healthy_words),
        {"words": words},
        "Look up the word with the vendor's support; reset the device or reload the driver.",
    )
    return without_npus(context, verdict)


@SCOPE.check(WARNING)
def firmware_is_driver(context: Context) -> Verdict | None:
    """Firmware of every device, and of its management controller where reported, has the loaded driver's release.

    An error when a release is wanted. A split physical function counts only where it tells its firmware.
    """
    asked = context.wanted.get("firmware_version")
    wanted = asked or context.part("driver").get("version_loaded")
    severity = ERROR if asked else ""
    others = [npu for npu in context.served_npus if npu not in context.container_npus and npu.get("firmware")]
    npus = [*context.container_npus, *(npu for npu in others if npu.get("state") != "unreachable")]
    if not npus:
        return None
    cards = {_name(npu): {"firmware": npu.get("firmware"), "smc": npu.get("smc")} for npu in npus}
    evidence = {
        "firmware": {address: card["firmware"] for address, card in cards.items()},
        "smc": {address: card["smc"] for address, card in cards.items()},
        "wanted": wanted,
    }
    if not wanted:
        return Verdict(None, "the driver's version is not known", evidence, "Load the driver.", severity)
    bad, unknown = compare_firmware(wanted, cards)
    step = "Flash the firmware that belongs to the driver while the driver is unloaded, then load it again."
    found = verdict_of(bad, unknown, "firmware = %s" % wanted, evidence, step)
    return replace(found, severity=severity)


def compare_firmware(
    release: str | None, cards: t.Mapping[str, t.Mapping[str, str | None]]
) -> tuple[list[str], list[str]]:
    """What differs from a release, and what is not known, in words for people.

    `cards` has {firmware, smc} by address; the management controller is judged only where it says a version.
    """
    bad: list[str] = []
    unknown: list[str] = []
    for address, versions in cards.items():
        firmware, smc = versions.get("firmware"), versions.get("smc")
        if not firmware:
            unknown.append("firmware of %s" % address)
        elif not same_release(firmware, release):
            bad.append("%s has firmware %s, not %s" % (address, firmware, release))
        if smc and not same_release(smc, release):
            bad.append("%s has %s on its management controller, not %s" % (address, smc, release))
    return bad, unknown


@SCOPE.check()
def npu_index_unique(context: Context) -> Verdict | None:
    """Every device has its own index. After clients die, all may show the same index although the tool exits 0."""
    indexes = {npu["address"]: npu["index"] for npu in context.container_npus if npu.get("index") is not None}
    if len(indexes) < 2:
        return None
    twice = sorted(address for address, index in indexes.items() if list(indexes.values()).count(index) > 1)
    detail = (
        "driver state stale, reload or reboot: %s share an index" % ", ".join(twice)
        if twice
        else "every device has an index of its own"
    )
    return Verdict(
        not twice, detail, {"indexes": indexes}, "Stop what uses the NPUs, then reload the driver or reboot."
    )


@SCOPE.check(WARNING)
def link_full(context: Context) -> Verdict | None:
    """Every PCI link runs at the best speed and width that card and slot allow."""
    npus = [npu for npu in context.npus if npu.get("state") != "unreachable"]
    own = [npu for npu in context.container_npus if npu in npus and npu.get("function") != "vf"]
    bad, unknown, links = [], [], {}
    for npu in npus:
        link = npu.get("link") or {}
        if npu in own or link.get("degraded"):
            links[npu["address"]] = dict(link)
        if link.get("degraded"):
            now, best = (link.get("speed_gts"), link.get("width")), (link.get("max_speed_gts"), link.get("max_width"))
            bad.append("%s runs at %s GT/s x%s of %s GT/s x%s" % (address_of(npu), *now, *best))
        elif link.get("degraded") is None and npu in own:
            unknown.append("link of %s" % address_of(npu))
    if not own and not bad:
        return None
    step = "Check slot, riser and BIOS link settings; a slot with fewer lanes than the card is a known cause."
    return verdict_of(bad, unknown, "every link is at its best", {"links": links}, step)


@SCOPE.check(INFO)
def numa_known(context: Context) -> Verdict | None:
    """The NUMA node of every NPU is known."""
    if not context.npus:
        return None
    nodes = {npu["address"]: npu.get("numa_node") for npu in context.npus}
    unknown = [address for address, node in nodes.items() if node is None]
    return verdict_of(
        [],
        ["NUMA node of %s" % address for address in unknown],
        "NUMA nodes %s" % ", ".join(sorted(set(str(node) for node in nodes.values()))),
        {"numa": nodes},
        "Turn the NUMA domains on in the BIOS if the host has more than one socket.",
    )
