# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of the kernel driver, its libraries and its tool: everything below the container."""

from __future__ import annotations

import typing as t

from ._checks_base import Context, Scope, Verdict, address_of, verdict_of
from ._host import ABSENT, VALUE
from ._model import INFO, WARNING
from ._versions import same_release

SCOPE = Scope("driver")


def _probe_state(context: Context, *names: str) -> str:
    """Why a look failed, for a message: the first probe among `names` that is not a value."""
    probes = context.part("probes")
    for name in names:
        probe = probes.get(name) or {}
        if probe.get("state") not in (None, VALUE):
            return "%s: %s %s" % (name, probe["state"], probe.get("detail") or "")
    return ""


@SCOPE.check()
def npus_found(context: Context) -> t.Optional[Verdict]:
    """At least one NPU, and every address that is expected, is on the PCI bus."""
    present = [npu.get("address") for npu in context.npus if npu.get("in_pci") is not False]
    expected = [str(address).lower() for address in context.wanted.get("expected_addresses") or []]
    evidence = {"present": present, "expected": expected}
    gone = [address for address in expected if address not in present]
    step = "Check seating and power of the card, then rescan the bus or reboot."
    denied = _probe_state(context, "pci")
    if denied and not present:
        return Verdict(None, "the PCI bus could not be read: %s" % denied, evidence, "Run as root with /sys mounted.")
    if gone:
        return Verdict(False, "gone from the PCI bus: %s" % ", ".join(gone), evidence, step)
    if not present:
        return Verdict(False, "no NPU on the PCI bus", evidence, step)
    devices = context.wanted.get("expected_devices")
    if devices is not None and len(context.container_npus) != int(devices):
        return Verdict(False, "%d NPUs on the PCI bus, %d expected" % (len(context.container_npus), int(devices)), evidence, step)
    return Verdict(True, "%d on the PCI bus" % len(present), evidence)


@SCOPE.check()
def npus_reachable(context: Context) -> t.Optional[Verdict]:
    """No card reads all ones (revision ff): such a card fell off the bus."""
    if not context.npus:
        return None
    bad = ["%s does not answer on the bus (reads ff)" % address_of(npu) for npu in context.npus if npu.get("state") == "unreachable"]
    return verdict_of(
        bad, [], "every NPU answers on the bus", {"unreachable": [npu["address"] for npu in context.npus if npu.get("state") == "unreachable"]},
        "Reset the slot or reboot; if it comes back, check riser, power and hotplug handling of the switch.",
    )


@SCOPE.check(INFO)
def passthrough(context: Context) -> t.Optional[Verdict]:
    """Says which NPUs belong to virtual machines. Not a fault of the container driver."""
    given = [npu["address"] for npu in context.npus if npu.get("state") == "passthrough"]
    if not given:
        return None
    return Verdict(True, "given to virtual machines, not for containers: %s" % ", ".join(given), {"passthrough": given})


@SCOPE.check()
def driver_installed(context: Context) -> t.Optional[Verdict]:
    """A driver is on disk, unless every NPU belongs to virtual machines."""
    driver = context.part("driver")
    evidence = {"installed_via": driver.get("installed_via"), "version": driver.get("version_on_disk"), "root": driver.get("root")}
    if context.npus and not context.container_npus:
        return Verdict(True, "not needed: every NPU is given to virtual machines", evidence)
    if driver.get("installed_via") in (None, "unknown") and not driver.get("version_on_disk"):
        return Verdict(None, "not known whether a driver is installed", evidence, "Read the problems of the driver facts.")
    if driver.get("installed_via") == "none":
        return Verdict(False, "no driver is installed", evidence, "Install the driver.")
    return Verdict(True, "%s, installed by %s" % (driver.get("version_on_disk") or "version not known", driver.get("installed_via")), evidence)


@SCOPE.check()
def driver_loaded(context: Context) -> t.Optional[Verdict]:
    """The kernel module is loaded."""
    if not context.container_npus:
        return None
    driver = context.part("driver")
    evidence = {"loaded": driver.get("loaded"), "version": driver.get("version_loaded")}
    if driver.get("loaded") is None:
        return Verdict(None, "not known whether %s is loaded" % context.profile.module, evidence, "Run as root with /sys mounted.")
    if not driver["loaded"]:
        return Verdict(False, "the kernel module %s is not loaded" % context.profile.module, evidence,
                       "modprobe %s; if it is refused, read the kernel log (signature, missing build for this kernel)." % context.profile.module)
    return Verdict(True, "%s %s is loaded" % (context.profile.module, driver.get("version_loaded") or ""), evidence)


@SCOPE.check()
def driver_on_disk_is_loaded(context: Context) -> t.Optional[Verdict]:
    """The loaded release is the one on disk."""
    if not context.container_npus:
        return None
    driver = context.part("driver")
    disk, loaded = driver.get("version_on_disk"), driver.get("version_loaded")
    evidence = {"on_disk": disk, "loaded": loaded}
    if not disk or not loaded:
        return Verdict(None, "not known: on disk %s, loaded %s" % (disk or "?", loaded or "?"), evidence, "Install and load the driver.")
    if not same_release(disk, loaded):
        return Verdict(False, "loaded is %s, on disk is %s" % (loaded, disk), evidence, "Reload the module, or reboot, with nothing using the NPUs.")
    return Verdict(True, "loaded = on disk = %s" % disk, evidence)


@SCOPE.check()
def driver_is_wanted(context: Context) -> t.Optional[Verdict]:
    """The loaded release is the wanted one."""
    wanted = context.wanted.get("driver_version")
    if not wanted or not context.container_npus:
        return None
    loaded = context.part("driver").get("version_loaded")
    evidence = {"wanted": wanted, "loaded": loaded}
    if not loaded:
        return Verdict(None, "the loaded version is not known, %s is wanted" % wanted, evidence, "Load the driver.")
    return Verdict(same_release(loaded, wanted), "loaded is %s, wanted is %s" % (loaded, wanted), evidence, "Install driver %s." % wanted)


@SCOPE.check()
def npus_bound(context: Context) -> t.Optional[Verdict]:
    """Every NPU for containers is bound to a kernel driver."""
    if not context.container_npus:
        return None
    loose = [npu["address"] for npu in context.container_npus if npu.get("state") == "unbound"]
    return Verdict(not loose, "no kernel driver holds %s" % ", ".join(loose) if loose else "the driver holds every NPU", {"unbound": loose},
                   "Load the driver; if it is loaded, read the kernel log for the failed probe of the address.")


@SCOPE.check()
def device_nodes(context: Context) -> t.Optional[Verdict]:
    """Every bound NPU, and every device group, has a character device under /dev."""
    npus = [npu for npu in context.container_npus if npu.get("state") not in ("unbound", "unreachable")]
    if not context.container_npus:
        return None
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
            bad.append("%s of device group %s %s" % (node.get("path"), group.get("id"), "is missing" if node["kind"] == "missing" else "is not a character device"))
    return verdict_of(bad, unknown, "%d character devices" % len(seen), {"nodes": seen},
                      "Make the nodes (udevadm trigger --subsystem-match=%s), or reload the driver." % context.profile.class_dir.rsplit("/", 1)[-1])


def _tool(context: Context) -> t.Tuple[t.Optional[bool], str]:
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
def tool_answers(context: Context) -> t.Optional[Verdict]:
    """The vendor's tool is there and its JSON can be read."""
    if not context.container_npus:
        return None
    ok, why = _tool(context)
    name = context.profile.smi_names[0]
    if ok:
        return Verdict(True, "%s answers" % name, {"kmd_version": context.part("smi").get("kmd_version")})
    return Verdict(ok, "%s gives no answer: %s" % (name, why), {"state": context.part("smi").get("state")},
                   "Install the driver's tools, load the driver, and run as root; a call that hangs needs a reload or reboot.")


@SCOPE.check()
def device_counts(context: Context) -> t.Optional[Verdict]:
    """PCI = driver's tool = /dev = usable; names those missing from the tool and those not usable."""
    npus = context.container_npus
    if not npus:
        return None
    answered, why = _tool(context)
    on_bus = [npu for npu in npus if npu.get("in_pci") is not False]
    shown = [npu for npu in npus if npu.get("in_smi")]
    nodes = [npu for npu in npus if (npu.get("node") or {}).get("kind") == "char"]
    usable = [npu for npu in npus if npu.get("usable")]
    missing = [npu["address"] for npu in on_bus if answered and npu not in shown]
    strange = [npu["address"] for npu in npus if npu not in on_bus]
    unusable = [npu["address"] for npu in on_bus if npu not in usable and npu["address"] not in missing]
    evidence: t.Dict[str, t.Any] = {"pci": len(on_bus), "tool": len(shown) if answered else None, "dev": len(nodes), "usable": len(usable)}
    evidence.update({"missing": missing, "unusable": unusable, "not_on_bus": strange})
    detail = "expected %d, the driver sees %s, %d under /dev, usable %d" % (len(on_bus), len(shown) if answered else "?", len(nodes), len(usable))
    if strange:
        detail += "; not on the bus: %s" % ", ".join(strange)
    if missing:
        detail += "; missing: %s" % ", ".join(missing)
    if unusable:
        reasons = {npu["address"]: _reason(npu) for npu in npus}
        detail += "; unusable: %s" % ", ".join("%s (%s)" % (address, reasons[address]) for address in unusable)
    step = "Do not join this host to a cluster: reload the driver or reboot, then look at the named cards."
    if missing or strange or unusable or len(nodes) != len(on_bus):
        return Verdict(False, detail, evidence, step)
    if answered is None:
        return Verdict(None, "%s (%s)" % (detail, why), evidence, step)
    return Verdict(True, detail, evidence)


def _reason(npu: t.Mapping[str, t.Any]) -> str:
    status = npu.get("status") or {}
    if npu.get("state") not in (None, "ok", "unknown"):
        return str(npu["state"])
    return str(status.get("word") or status.get("name") or ("status %s" % status["raw"] if status.get("raw") else "status not known"))


@SCOPE.check()
def device_status(context: Context) -> t.Optional[Verdict]:
    """The driver's status number is READY, the only value with one meaning in every release; unreadable is not healthy."""
    if not context.container_npus:
        return None
    bad, unknown, seen = [], [], {}
    for npu in context.container_npus:
        status = npu.get("status") or {}
        seen[npu["address"]] = status.get("raw")
        if status.get("raw") is None:
            unknown.append("status of %s" % address_of(npu))
        elif str(status["raw"]).strip() == "0" or status.get("name") == "READY":
            continue
        elif not str(status["raw"]).strip().isdigit():
            unknown.append("status %r of %s" % (status["raw"], address_of(npu)))
        else:
            bad.append("%s has status %s%s" % (address_of(npu), status["raw"], " (%s)" % status["name"] if status.get("name") else ""))
    return verdict_of(bad, unknown, "READY on every device", {"status": seen}, "Wait until nothing uses the device; else reset it or reload the driver.")


@SCOPE.check()
def device_words(context: Context) -> t.Optional[Verdict]:
    """The tool's health word is a known healthy one; any other is bad and is shown."""
    answered, dummy = _tool(context)
    if not context.container_npus or not answered:
        return None
    words = {npu["address"]: (npu.get("status") or {}).get("word") for npu in context.container_npus}
    bad = ["%s: %s" % (address, word) for address, word in words.items() if word is not None and word.lower() not in context.profile.healthy_words]
    unknown = ["health of %s" % address for address, word in words.items() if word is None]
    return verdict_of(bad, unknown, "%s on every device" % "/".join(context.profile.healthy_words), {"words": words},
                      "Look up the word with the vendor's support; reset the device or reload the driver.")


@SCOPE.check()
def firmware_is_driver(context: Context) -> t.Optional[Verdict]:
    """Every device's firmware carries the release of the loaded driver, or the wanted firmware release."""
    if not context.container_npus:
        return None
    wanted = context.wanted.get("firmware_version") or context.part("driver").get("version_loaded")
    found = {npu["address"]: npu.get("firmware") for npu in context.container_npus}
    evidence = {"firmware": found, "wanted": wanted}
    if not wanted:
        return Verdict(None, "the driver's version is not known", evidence, "Load the driver.")
    bad = ["%s has firmware %s, not %s" % (address, version, wanted) for address, version in found.items() if version and not same_release(version, wanted)]
    unknown = ["firmware of %s" % address for address, version in found.items() if not version]
    return verdict_of(bad, unknown, "firmware = %s" % wanted, evidence, "Flash the firmware that belongs to the driver, then load the driver again.")


@SCOPE.check()
def library_is_driver(context: Context) -> t.Optional[Verdict]:
    """The user-space libraries carry the release of the loaded driver, or the wanted one. Libraries that say no version cannot be judged."""
    if not context.container_npus:
        return None
    found = context.part("libraries").get("version")
    wanted = context.wanted.get("library_version") or context.part("driver").get("version_loaded")
    evidence = {"library": found, "wanted": wanted}
    step = "Install the libraries of the driver's release."
    if not wanted or not found:
        asked = bool(context.wanted.get("library_version"))
        return Verdict(None, "library %s, driver %s" % (found or "says no version", wanted or "not known"), evidence, step, "" if asked else WARNING)
    return Verdict(same_release(found, wanted), "the libraries are %s, the driver is %s" % (found, wanted), evidence, step)


@SCOPE.check()
def npu_index_unique(context: Context) -> t.Optional[Verdict]:
    """Every device has an index of its own. When clients die, all may collapse to one although the tool exits 0."""
    indexes = {npu["address"]: npu["index"] for npu in context.container_npus if npu.get("index") is not None}
    if len(indexes) < 2:
        return None
    twice = sorted(address for address, index in indexes.items() if list(indexes.values()).count(index) > 1)
    detail = "driver state stale, reload or reboot: %s share an index" % ", ".join(twice) if twice else "every device has an index of its own"
    return Verdict(not twice, detail, {"indexes": indexes}, "Stop what uses the NPUs, then reload the driver or reboot.")


@SCOPE.check(WARNING)
def link_full(context: Context) -> t.Optional[Verdict]:
    """Every PCI link runs at the best speed and width that card and slot allow."""
    npus = [npu for npu in context.container_npus if npu.get("state") != "unreachable" and npu.get("function") != "vf"]
    if not npus:
        return None
    bad, unknown, links = [], [], {}
    for npu in npus:
        link = npu.get("link") or {}
        links[npu["address"]] = dict(link)
        if link.get("degraded"):
            bad.append("%s runs at %s GT/s x%s of %s GT/s x%s" % (
                address_of(npu), link.get("speed_gts"), link.get("width"), link.get("max_speed_gts"), link.get("max_width")))
        elif link.get("degraded") is None:
            unknown.append("link of %s" % address_of(npu))
    return verdict_of(bad, unknown, "every link is at its best", {"links": links}, "Check slot, riser and BIOS settings of the card.")


@SCOPE.check(INFO)
def numa_known(context: Context) -> t.Optional[Verdict]:
    """The NUMA node of every NPU is known."""
    if not context.npus:
        return None
    nodes = {npu["address"]: npu.get("numa_node") for npu in context.npus}
    unknown = [address for address, node in nodes.items() if node is None]
    return verdict_of([], ["NUMA node of %s" % address for address in unknown], "NUMA nodes %s" % ", ".join(sorted(set(str(node) for node in nodes.values()))),
                      {"numa": nodes}, "Turn the NUMA domains on in the BIOS if the host has more than one socket.")


@SCOPE.check(WARNING)
def daemon_running(context: Context) -> t.Optional[Verdict]:
    """The management daemon, when its unit is installed, is active."""
    daemon = context.part("daemon")
    if not daemon.get("unit"):
        return None
    state = daemon.get("state")
    evidence = {"unit": daemon["unit"], "state": state, "enabled": daemon.get("enabled")}
    if state in (None, "unknown"):
        return Verdict(None, "the state of %s is not known" % daemon["unit"], evidence, "systemctl status %s" % daemon["unit"])
    return Verdict(state == "active", "%s is %s" % (daemon["unit"], state), evidence, "systemctl status %s" % daemon["unit"])


@SCOPE.check()
def signature_accepted(context: Context) -> t.Optional[Verdict]:
    """Under Secure Boot the module is signed. A loaded module was accepted."""
    if context.facts.get("secure_boot") != "enabled" or not context.container_npus:
        return None
    driver = context.part("driver")
    evidence = {"secure_boot": "enabled", "signer": driver.get("signer"), "loaded": driver.get("loaded")}
    if driver.get("loaded") or driver.get("signer"):
        return Verdict(True, "signed by %s" % (driver.get("signer") or "a key the kernel accepted"), evidence)
    return Verdict(False, "Secure Boot is on and the module is not signed", evidence, "Sign the module with an enrolled key, or turn Secure Boot off.")


@SCOPE.check(WARNING)
def reboot_not_pending(context: Context) -> t.Optional[Verdict]:
    """No reboot is waiting, and the kernel of the next boot has the driver's module."""
    kernel = context.part("kernel")
    following = kernel.get("next_boot")
    built = kernel.get("modules") or {}
    evidence = {"reboot_required": context.facts.get("reboot_required"), "running": kernel.get("running"), "next_boot": following}
    if context.container_npus and following and built.get(following) is False:
        return Verdict(False, "the next boot is into %s, which has no %s module" % (following, context.profile.module), evidence,
                       "Install that kernel's headers and build the module before rebooting.")
    if context.facts.get("reboot_required"):
        return Verdict(False, "a reboot is pending", evidence, "Reboot at the next window.")
    return Verdict(True, "no reboot is pending", evidence)
