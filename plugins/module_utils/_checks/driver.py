# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of the driver as it runs: NPUs on the bus, loaded, in step with libraries and tool; and the whole scope."""

from __future__ import annotations

import posixpath
import typing as t

from .._base.model import ERROR, INFO, WARNING, Check, Problem
from .._base.versions import same_release
from .._host.host import ABSENT, DENIED, FAILED, TIMEOUT, TOO_LARGE, VALUE
from .._npu.pci import normalise_address
from . import device, installation
from .base import Context, Data, Scope, Verdict, address_of, verdict_of, without_npus

SCOPE = Scope("driver")
TABLES = (SCOPE, installation.SCOPE, device.SCOPE)
# What a user without root may not read, and nothing here needs.
OPTIONAL_LOOKS = ("machine_id", "system_uuid")
MOST_LIBRARIES = 5


def run_driver_checks(context: Context) -> list[Check]:
    """All checks of the scope driver, in the order of their tables."""
    return [record for table in TABLES for record in table.run(context)]


def find_problems(context: Context) -> list[Problem]:
    """The checks of the scope driver that do not hold, errors first. One that is not known is no problem."""
    order = (ERROR, WARNING, INFO)
    bad = [record for record in run_driver_checks(context) if record.ok is False]
    return [
        Problem(record.name, record.severity, record.detail, record.next_step, record.vendor)
        for record in sorted(bad, key=lambda record: order.index(record.severity))
    ]


def _probe_state(context: Context, *names: str) -> str:
    """Why a look failed, for a message: the first probe among `names` that is not a value."""
    probes = context.part("probes")
    for name in names:
        probe = probes.get(name) or {}
        if probe.get("state") not in (None, VALUE):
            return "%s: %s %s" % (name, probe["state"], probe.get("detail") or "")
    return ""


@SCOPE.check()
def npus_found(context: Context) -> Verdict | None:
    """At least one NPU, and every address that is expected, is on the PCI bus."""
    present = [npu.get("address") for npu in context.npus if npu.get("in_pci") is not False]
    expected = [
        normalise_address(str(address)) or str(address) for address in context.wanted.get("expected_addresses") or []
    ]
    evidence = {"present": present, "expected": expected}
    spelt = {normalise_address(address) for address in present}
    gone = [address for address in expected if address not in spelt]
    step = "Check seating and power of the card, then rescan the bus or reboot."
    denied = _probe_state(context, "pci")
    if denied and (gone or not present):
        return Verdict(
            None,
            "the PCI bus could not be read: %s" % denied,
            evidence,
            "Run with privilege escalation (become), with /sys mounted.",
        )
    if gone:
        return Verdict(False, "gone from the PCI bus: %s" % ", ".join(gone), evidence, step)
    if not present:
        return Verdict(False, "no NPU on the PCI bus", evidence, step)
    devices = context.wanted.get("expected_devices")
    if devices is not None and len(context.container_npus) != int(devices):
        detail = "%d NPUs on the PCI bus, %d expected" % (len(context.container_npus), int(devices))
        return Verdict(None if denied else False, detail, evidence, step)
    return Verdict(True, "%d on the PCI bus" % len(present), evidence)


@SCOPE.check()
def npus_reachable(context: Context) -> Verdict | None:
    """No card reads all ones (revision ff), and no card has left the PCI bus."""
    if not context.npus:
        return None
    lost = [npu for npu in context.npus if npu.get("state") == "unreachable"]
    gone = [npu for npu in lost if npu.get("in_pci") is False]
    bad = ["%s does not answer on the bus (reads ff)" % address_of(npu) for npu in lost if npu not in gone]
    bad += ["%s is known to the driver or its tool, but is not on the PCI bus" % address_of(npu) for npu in gone]
    return verdict_of(
        bad,
        [],
        "every NPU answers on the bus",
        {"unreachable": [npu["address"] for npu in lost]},
        "Drain the host, then reset the slot or power-cycle the host; if it comes back, "
        "check seating, riser, power and the hotplug handling of the switch.",
    )


@SCOPE.check(INFO)
def passthrough(context: Context) -> Verdict | None:
    """Lists the NPUs that are given to virtual machines. That is not a fault."""
    given = [npu["address"] for npu in context.npus if npu.get("state") == "passthrough"]
    if not given:
        return None
    return Verdict(True, "given to virtual machines, not for containers: %s" % ", ".join(given), {"passthrough": given})


@SCOPE.check()
def driver_loaded(context: Context) -> Verdict | None:
    """The kernel module is loaded."""
    return without_npus(context, _loaded(context)) if context.served_npus else None


def _loaded(context: Context) -> Verdict:
    driver = context.part("driver")
    evidence = {"loaded": driver.get("loaded"), "version": driver.get("version_loaded")}
    if driver.get("loaded") is None:
        return Verdict(
            None, "not known whether %s is loaded" % context.profile.module, evidence, "Run as root with /sys mounted."
        )
    if not driver["loaded"]:
        return Verdict(
            False,
            "the kernel module %s is not loaded" % context.profile.module,
            evidence,
            "Run modprobe %s, and read the kernel log when that is refused (signature, missing build for this kernel)."
            % context.profile.module,
        )
    return Verdict(True, "%s %s is loaded" % (context.profile.module, driver.get("version_loaded") or ""), evidence)


@SCOPE.check()
def driver_on_disk_is_loaded(context: Context) -> Verdict | None:
    """The loaded release is the one on disk."""
    return without_npus(context, _on_disk_and_loaded(context))


def _on_disk_and_loaded(context: Context) -> Verdict:
    driver = context.part("driver")
    disk, loaded = driver.get("version_on_disk"), driver.get("version_loaded")
    evidence = {"on_disk": disk, "loaded": loaded}
    if loaded and not disk and driver.get("installed_via") == "container":
        return Verdict(True, "loaded is %s, by a container that leaves no module on the host" % loaded, evidence)
    if not disk or not loaded:
        return Verdict(
            None,
            "not known: on disk %s, loaded %s" % (disk or "?", loaded or "?"),
            evidence,
            "Install and load the driver.",
        )
    if disk != loaded and not same_release(disk, loaded):
        return Verdict(
            False,
            "loaded is %s, on disk is %s" % (loaded, disk),
            evidence,
            "Reload the module, or reboot, with nothing using the NPUs.",
        )
    return Verdict(True, "loaded = on disk = %s" % disk, evidence)


@SCOPE.check()
def driver_is_wanted(context: Context) -> Verdict | None:
    """The loaded release is the wanted one."""
    wanted = context.wanted.get("driver_version")
    if not wanted or not context.container_npus:
        return None
    loaded = context.part("driver").get("version_loaded")
    evidence = {"wanted": wanted, "loaded": loaded}
    if not loaded:
        return Verdict(None, "the loaded version is not known, %s is wanted" % wanted, evidence, "Load the driver.")
    return Verdict(
        same_release(loaded, wanted),
        "loaded is %s, wanted is %s" % (loaded, wanted),
        evidence,
        "Install driver %s, or run `ansible-playbook rebellions.npu.site --tags driver`." % wanted,
    )


@SCOPE.check()
def npus_bound(context: Context) -> Verdict | None:
    """Every NPU for containers is bound to a kernel driver.

    One that is split into virtual functions is a warning.
    """
    if not context.served_npus:
        return None
    loose = [npu for npu in context.served_npus if npu.get("state") == "unbound"]
    addresses = [npu["address"] for npu in loose]
    verdict = Verdict(
        not loose,
        "no kernel driver holds %s" % ", ".join(addresses) if loose else "the driver holds every NPU",
        {"unbound": addresses},
        "Load the driver; if it is loaded, read the kernel log for the failed probe of the address.",
        "" if not loose or any(npu in context.container_npus for npu in loose) else WARNING,
    )
    return without_npus(context, verdict)


@SCOPE.check()
def library_is_driver(context: Context) -> Verdict | None:
    """Every user-space library has the release of the loaded driver, or the wanted one.

    By each file's own word. A library that tells no version cannot be judged.
    """
    return without_npus(context, _library(context))


def _library(context: Context) -> Verdict:
    part = context.part("libraries")
    found, files = part.get("version"), part.get("files")
    asked = context.wanted.get("library_version")
    wanted = asked or context.part("driver").get("version_loaded")
    told = [one for one in files or [] if one.get("version")]
    odd = [one for one in told if wanted and not same_release(one["version"], wanted)]
    mixed = bool(told) and (not found or 0 < len(odd) < len(told))
    evidence = {"library": found, "wanted": wanted, "odd": odd or (told if mixed else [])}
    if mixed:
        names = _versions(odd or told)
        detail = "the libraries are of several releases: %s; the driver is %s" % (names, wanted or "not known")
        return Verdict(False, detail, evidence, "Remove the libraries of other releases than the driver's.")
    step = "Install the libraries of the driver's release."
    if found and wanted and (odd if told else not same_release(found, wanted)):
        detail = "the libraries are %s, the driver is %s%s" % (found, wanted, ": " + _versions(odd) if odd else "")
        return Verdict(False, detail, evidence, step)
    severity = "" if asked else WARNING
    unread = _probe_state(context, "libraries") if context.probe("libraries").get("state") != ABSENT else ""
    if unread:
        return Verdict(None, "not every library could be read: %s" % unread.strip(), evidence, "Run as root.", severity)
    if not wanted or not found:
        what = "no library was found" if files == [] else "library %s" % (found or "says no version")
        return Verdict(None, "%s, driver %s" % (what, wanted or "not known"), evidence, step, severity)
    twice = _twice([str(one["path"]) for one in files or [] if not one.get("version")])
    if twice:
        detail = "%s say no version, so it is not known which one is the driver's" % " and ".join(twice)
        return Verdict(None, detail, evidence, "Remove the one that is not the driver's.", severity)
    return Verdict(True, "the libraries are %s, the driver is %s" % (found, wanted), evidence)


def _versions(files: t.Sequence[Data]) -> str:
    more = " and %d more" % (len(files) - MOST_LIBRARIES) if len(files) > MOST_LIBRARIES else ""
    return ", ".join("%s is %s" % (one["path"], one["version"]) for one in files[:MOST_LIBRARIES]) + more


def _twice(paths: t.Sequence[str]) -> list[str]:
    """The first of the libraries that lie in two directories, by both paths; empty when there is none."""
    for path in paths:
        same = [other for other in paths if posixpath.basename(other) == posixpath.basename(path)]
        if len(same) > 1:
            return same
    return []


@SCOPE.check(WARNING)
def daemon_running(context: Context) -> Verdict | None:
    """The management daemon, when its unit is installed, is active."""
    daemon = context.part("daemon")
    if not daemon.get("unit"):
        return None
    state = daemon.get("state")
    evidence = {"unit": daemon["unit"], "state": state, "enabled": daemon.get("enabled")}
    if state in (None, "unknown"):
        return Verdict(
            None, "the state of %s is not known" % daemon["unit"], evidence, "systemctl status %s" % daemon["unit"]
        )
    return Verdict(
        state == "active", "%s is %s" % (daemon["unit"], state), evidence, "systemctl status %s" % daemon["unit"]
    )


@SCOPE.check(WARNING)
def tool_is_driver(context: Context) -> Verdict | None:
    """The driver's release that the vendor's tool reports is the loaded one."""
    smi, loaded = context.part("smi"), context.part("driver").get("version_loaded")
    told = smi.get("kmd_version")
    if not told or not loaded:
        return None
    name = smi.get("path") or context.profile.smi_names[0]
    return Verdict(
        told == loaded or same_release(told, loaded),
        "%s reports driver %s, loaded is %s" % (name, told, loaded),
        {"tool": told, "loaded": loaded},
        "Install tools and driver of one release, and look for a second copy of the tool.",
    )


def _looks(context: Context, state: str, *without: str) -> list[str]:
    """The looks of the facts that ended in a state."""
    probes = context.part("probes")
    return [name for name in sorted(probes) if probes[name].get("state") == state and name not in without]


def _told(context: Context, names: t.Sequence[str]) -> list[str]:
    return ["%s: %s" % (name, context.probe(name).get("detail") or context.probe(name)["state"]) for name in names]


@SCOPE.check(WARNING)
def looks_allowed(context: Context) -> Verdict | None:
    """No look at the host was denied; what a denied look would show is unknown, not absent."""
    denied = _looks(context, DENIED)
    detail = "not allowed to read: %s" % ", ".join(denied) if denied else "every look was allowed"
    return Verdict(not denied, detail, {"denied": denied}, "Run with privilege escalation (become).")


@SCOPE.check(WARNING)
def looks_in_time(context: Context) -> Verdict | None:
    """Every command answered in time; what a late one would show is unknown, not absent."""
    late = _looks(context, TIMEOUT, *OPTIONAL_LOOKS)
    hung = "smi" in late
    step = "Run the named command on the host by hand; give it more time when the host is busy."
    if hung:
        step = "Look for hung processes of the device in the kernel log; reload the driver or reboot."
    return verdict_of(_told(context, late), [], "every look ended in time", {"late": late}, step)


@SCOPE.check(WARNING)
def looks_worked(context: Context) -> Verdict | None:
    """No look failed in another way, such as a file or an answer that cannot be read."""
    failed = [
        *_looks(context, FAILED, *OPTIONAL_LOOKS),
        *_looks(context, TOO_LARGE, *OPTIONAL_LOOKS),
    ]
    step = "Look at the named file or command on the host."
    if "smi" in failed:
        step = "Run the tool by hand; a tool and a driver of different releases are the usual cause."
    told = _told(context, failed)
    # Nothing else says that expected NPUs could not be looked for.
    if context.probe("pci").get("state") == ABSENT and context.wanted.get("expected_addresses"):
        failed, told = [*failed, "pci"], [*told, "pci: this system shows no PCI bus below /sys"]
    return verdict_of(told, [], "no look failed", {"failed": failed}, step)
