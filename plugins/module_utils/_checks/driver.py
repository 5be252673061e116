# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of the kernel driver, its libraries and its tool: installed, loaded, in step with its libraries, fit for the next boot."""

from __future__ import annotations

from .._base.model import INFO, WARNING
from .._base.versions import same_release
from .._host.host import VALUE
from .._npu.pci import normalise_address
from .._secure_boot.firmware import ENABLED, enforcement
from .base import Context, Scope, Verdict, address_of, verdict_of

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
    if denied and not present:
        return Verdict(None, "the PCI bus could not be read: %s" % denied, evidence, "Run as root with /sys mounted.")
    if gone:
        return Verdict(False, "gone from the PCI bus: %s" % ", ".join(gone), evidence, step)
    if not present:
        return Verdict(False, "no NPU on the PCI bus", evidence, step)
    devices = context.wanted.get("expected_devices")
    if devices is not None and len(context.container_npus) != int(devices):
        return Verdict(
            False, "%d NPUs on the PCI bus, %d expected" % (len(context.container_npus), int(devices)), evidence, step
        )
    return Verdict(True, "%d on the PCI bus" % len(present), evidence)


@SCOPE.check()
def npus_reachable(context: Context) -> Verdict | None:
    """No card reads all ones (revision ff): such a card fell off the bus."""
    if not context.npus:
        return None
    bad = [
        "%s does not answer on the bus (reads ff)" % address_of(npu)
        for npu in context.npus
        if npu.get("state") == "unreachable"
    ]
    return verdict_of(
        bad,
        [],
        "every NPU answers on the bus",
        {"unreachable": [npu["address"] for npu in context.npus if npu.get("state") == "unreachable"]},
        "Reset the slot or reboot; if it comes back, check riser, power and hotplug handling of the switch.",
    )


@SCOPE.check(INFO)
def passthrough(context: Context) -> Verdict | None:
    """Says which NPUs belong to virtual machines. Not a fault of the container driver."""
    given = [npu["address"] for npu in context.npus if npu.get("state") == "passthrough"]
    if not given:
        return None
    return Verdict(True, "given to virtual machines, not for containers: %s" % ", ".join(given), {"passthrough": given})


@SCOPE.check()
def driver_installed(context: Context) -> Verdict | None:
    """A driver is on disk, unless every NPU belongs to virtual machines."""
    driver = context.part("driver")
    evidence = {
        "installed_via": driver.get("installed_via"),
        "version": driver.get("version_on_disk"),
        "root": driver.get("root"),
    }
    if context.npus and not context.container_npus:
        return Verdict(True, "not needed: every NPU is given to virtual machines", evidence)
    if driver.get("installed_via") in (None, "unknown") and not driver.get("version_on_disk"):
        return Verdict(
            None, "not known whether a driver is installed", evidence, "Read the problems of the driver facts."
        )
    if driver.get("installed_via") == "none":
        return Verdict(False, "no driver is installed", evidence, "Install the driver.")
    return Verdict(
        True,
        "%s, installed by %s" % (driver.get("version_on_disk") or "version not known", driver.get("installed_via")),
        evidence,
    )


@SCOPE.check()
def driver_loaded(context: Context) -> Verdict | None:
    """The kernel module is loaded."""
    if not context.container_npus:
        return None
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
            "modprobe %s; if it is refused, read the kernel log (signature, missing build for this kernel)."
            % context.profile.module,
        )
    return Verdict(True, "%s %s is loaded" % (context.profile.module, driver.get("version_loaded") or ""), evidence)


@SCOPE.check()
def driver_on_disk_is_loaded(context: Context) -> Verdict | None:
    """The loaded release is the one on disk."""
    if not context.container_npus:
        return None
    driver = context.part("driver")
    disk, loaded = driver.get("version_on_disk"), driver.get("version_loaded")
    evidence = {"on_disk": disk, "loaded": loaded}
    if not disk or not loaded:
        return Verdict(
            None,
            "not known: on disk %s, loaded %s" % (disk or "?", loaded or "?"),
            evidence,
            "Install and load the driver.",
        )
    if not same_release(disk, loaded):
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
        "Install driver %s." % wanted,
    )


@SCOPE.check()
def npus_bound(context: Context) -> Verdict | None:
    """Every NPU for containers is bound to a kernel driver."""
    if not context.container_npus:
        return None
    loose = [npu["address"] for npu in context.container_npus if npu.get("state") == "unbound"]
    return Verdict(
        not loose,
        "no kernel driver holds %s" % ", ".join(loose) if loose else "the driver holds every NPU",
        {"unbound": loose},
        "Load the driver; if it is loaded, read the kernel log for the failed probe of the address.",
    )


@SCOPE.check()
def library_is_driver(context: Context) -> Verdict | None:
    """The user-space libraries carry the release of the loaded driver, or the wanted one. Libraries that say no version cannot be judged."""
    if not context.container_npus:
        return None
    found = context.part("libraries").get("version")
    wanted = context.wanted.get("library_version") or context.part("driver").get("version_loaded")
    evidence = {"library": found, "wanted": wanted}
    step = "Install the libraries of the driver's release."
    if not wanted or not found:
        asked = bool(context.wanted.get("library_version"))
        return Verdict(
            None,
            "library %s, driver %s" % (found or "says no version", wanted or "not known"),
            evidence,
            step,
            "" if asked else WARNING,
        )
    return Verdict(
        same_release(found, wanted), "the libraries are %s, the driver is %s" % (found, wanted), evidence, step
    )


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


@SCOPE.check()
def signature_accepted(context: Context) -> Verdict | None:
    """Where signatures are enforced the module is signed with a key that this machine accepts. A loaded module was accepted."""
    driver, mok = context.part("driver"), context.part("mok")
    state, by = context.facts.get("secure_boot"), mok.get("enforced_by")
    why = enforcement(state, by)
    if not why or not context.container_npus:
        return None
    signer, accepted = driver.get("signer"), mok.get("signer_enrolled")
    evidence = {
        "secure_boot": state,
        "enforced_by": by,
        "signer": signer,
        "loaded": driver.get("loaded"),
        "signer_enrolled": accepted,
        "key": mok.get("state"),
    }
    if driver.get("loaded"):
        return Verdict(True, "signed by %s" % (signer or "a key the kernel accepted"), evidence)
    if driver.get("signed") is False:
        off = "turn Secure Boot off" if state == ENABLED else "start the kernel without that"
        return Verdict(
            False,
            "%s and the module is not signed" % why,
            evidence,
            "Sign the module with an enrolled key, or %s." % off,
        )
    who = signer or "a key without a name"
    if accepted is False:
        return Verdict(
            False,
            "the module is signed by %s, which this machine does not accept" % who,
            evidence,
            "Enrol that key with mokutil --import and confirm it at the console, or sign with an enrolled key.",
        )
    if accepted is None:
        return Verdict(
            None,
            "signed by %s; whether this machine accepts it is not known" % who,
            evidence,
            "Run as root with efivarfs mounted.",
        )
    return Verdict(True, "signed by %s, an enrolled key" % who, evidence)


@SCOPE.check(INFO)
def kernels_have_module(context: Context) -> Verdict | None:
    """Every installed kernel that could boot has the driver's module."""
    rows = context.part("kernel").get("guard") or []
    if (
        not context.container_npus
        or not rows
        or context.part("driver").get("installed_via") in (None, "none", "container")
    ):
        return None
    bad = [
        "kernel %s has no %s module%s"
        % (row["kernel"], context.profile.module, "" if row["headers"] else " and no headers")
        for row in rows
        if row["module"] is False
    ]
    unknown = ["module of kernel %s" % row["kernel"] for row in rows if row["module"] is None]
    return verdict_of(
        bad,
        unknown,
        "built for %s" % ", ".join(row["kernel"] for row in rows),
        {"kernels": [dict(row) for row in rows]},
        "Install the headers of these kernels and build the module (dkms autoinstall -k KERNEL), or remove the kernels.",
    )


@SCOPE.check(WARNING)
def reboot_not_pending(context: Context) -> Verdict | None:
    """No reboot is waiting, and the kernel of the next boot has the driver's module."""
    kernel = context.part("kernel")
    following = kernel.get("next_boot")
    built = kernel.get("modules") or {}
    evidence = {
        "reboot_required": context.facts.get("reboot_required"),
        "running": kernel.get("running"),
        "next_boot": following,
    }
    if context.container_npus and following and built.get(following) is False:
        return Verdict(
            False,
            "the next boot is into %s, which has no %s module" % (following, context.profile.module),
            evidence,
            "Install that kernel's headers and build the module before rebooting.",
        )
    if context.container_npus and following and following not in built:
        return Verdict(
            None,
            "not known whether %s has the %s module" % (following, context.profile.module),
            evidence,
            "Run as root.",
        )
    if context.facts.get("reboot_required"):
        return Verdict(False, "a reboot is pending", evidence, "Reboot at the next window.")
    return Verdict(True, "no reboot is pending", evidence)
