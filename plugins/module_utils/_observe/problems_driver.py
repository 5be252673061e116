# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Problems of the driver: against the kernel, against its other parts, after the next reboot; and looks that failed. Pure."""

from __future__ import annotations

import typing as t

from .._base.model import ERROR, WARNING, Problem
from .._base.vendor import VendorProfile
from .._base.versions import same_release
from .._secure_boot.firmware import ENABLED, UNSUPPORTED, enforcement

Facts = t.Mapping[str, t.Any]


def where(npus: t.Sequence[Facts]) -> str:
    """The NPUs by address, or by device name where there is none."""
    return ", ".join(item["address"] or item["device"] or "?" for item in npus)


def _differ(left: str | None, right: str | None) -> bool:
    """True when both are known and are not of one release."""
    return bool(left and right and left != right and not same_release(left, right))


def driver_problems(profile: VendorProfile, facts: Facts) -> t.Iterator[Problem]:
    """Driver against kernel, versions against each other, ways of installation against each other."""
    driver = facts["driver"]
    kernel = facts["kernel"]
    wanting = [item for item in facts["npus"] if item["state"] not in ("passthrough", "unreachable")]
    if wanting and driver["loaded"] is False:
        yield Problem(
            "driver_not_loaded",
            ERROR,
            "the kernel module %s is not loaded and %s need it" % (profile.module, where(wanting)),
            "load it with modprobe, or install the driver when there is none (installed now: %s)"
            % driver["installed_via"],
        )
    loose = [item for item in facts["npus"] if item["state"] == "unbound"]
    if loose and driver["loaded"]:
        yield Problem(
            "npu_unbound",
            ERROR,
            "the driver is loaded and does not hold %s" % where(loose),
            "look in the kernel log for the failed probe of the address; a driver build serves one family only",
        )
    loaded = driver["version_loaded"]
    if _differ(driver["version_on_disk"], loaded):
        yield Problem(
            "version_mismatch_loaded_disk",
            ERROR,
            "version %s is loaded and %s is on disk" % (loaded, driver["version_on_disk"]),
            "drain the host, then reload the module or reboot",
        )
    for item in facts["npus"]:
        if _differ(item["firmware"], loaded) and item["state"] != "unreachable":
            yield Problem(
                "firmware_mismatch",
                WARNING,
                "%s has firmware %s and the driver is %s" % (item["address"], item["firmware"], loaded),
                "flash the firmware that came with the driver while the driver is unloaded",
            )
    library = facts["libraries"]["version"]
    if _differ(library, loaded):
        yield Problem(
            "library_mismatch",
            WARNING,
            "the user libraries are %s and the driver is %s" % (library, loaded),
            "install libraries and driver of one release; replacing a link is not enough",
        )
    told = facts["smi"]["kmd_version"]
    if _differ(told, loaded):
        yield Problem(
            "tool_sees_other_driver",
            WARNING,
            "%s reports driver %s and the driver is %s" % (facts["smi"]["path"], told, loaded),
            "install tools and driver of one release, and look for a second copy of the tool",
        )
    package = driver["package"]
    newer = sorted(
        {row["version"] for row in driver["dkms"] if (profile.major_of(row["version"]) or 0) >= profile.legacy_below}
    )
    if driver["legacy"] and (driver["stamp"] or newer):
        other = driver["stamp"]["version"] if driver["stamp"] else ", ".join(newer)
        left = sorted({row["version"] for row in driver["dkms"]} - set(newer))
        there = (
            "the package %s %s" % (package["name"], package["version"])
            if package
            else "what the former package has left to DKMS (%s)" % ", ".join(left)
        )
        yield Problem(
            "legacy_package_and_runfile",
            ERROR,
            "%s and a runfile installation (%s) are both here" % (there, other),
            "drain the host, %s, then install from the runfile again"
            % ("remove the package" if package else "remove that from DKMS"),
        )
    versions = sorted({row["version"] for row in driver["dkms"]})
    if len(versions) > 1:
        now = {
            row["version"]
            for row in driver["dkms"]
            if row["kernel"] == kernel["running"] and row["state"] == "installed"
        }
        yield Problem(
            "two_dkms_versions",
            WARNING,
            "DKMS has several versions of the driver: %s; for the running kernel it installed %s"
            % (", ".join(versions), ", ".join(sorted(now)) or "none"),
            "remove those not wanted with dkms remove --all, or a kernel update builds them again",
        )
    for row in driver["dkms"]:
        if row["state"] == "failed":
            yield Problem(
                "dkms_build_failed",
                ERROR,
                "DKMS could not build %s %s for kernel %s" % (row["module"], row["version"], row["kernel"]),
                "read make.log in the build directory of that version; missing headers and an unsupported kernel are the usual causes",
            )
        elif row["state"] == "broken":
            yield Problem(
                "dkms_source_missing",
                WARNING,
                "DKMS has %s %s without its source, so it is built for no other kernel"
                % (row["module"], row["version"]),
                "install that version again, or remove it from DKMS when it is not wanted",
            )
    by = facts["mok"]["enforced_by"]
    why = enforcement(facts["secure_boot"], by)
    if why and driver["signed"] is False:
        yield Problem(
            "secure_boot_unsigned",
            ERROR,
            "%s and %s carries no signature" % (why, driver["module_path"]),
            "sign the module with a key %s, or %s"
            % (
                "enrolled by mokutil --import"
                if facts["secure_boot"] != UNSUPPORTED
                else "that the kernel has built in",
                "turn Secure Boot off" if facts["secure_boot"] == ENABLED else "start the kernel without %s" % by,
            ),
        )
    if driver["container_root"] and driver["installed_via"] not in ("container", "none"):
        yield Problem(
            "driver_host_and_container",
            WARNING,
            "a driver of the host (%s) and a driver root of a container (%s) are both here"
            % (driver["installed_via"], driver["container_root"]),
            "keep one: remove the driver DaemonSet from this node or the driver from the host",
        )


def next_boot_problems(facts: Facts) -> t.Iterator[Problem]:
    """Will the driver still be there after the next reboot?"""
    kernel = facts["kernel"]
    upcoming = kernel["next_boot"]
    served = any(item["state"] != "passthrough" for item in facts["npus"])
    if (
        not upcoming
        or not served
        or facts["driver"]["installed_via"] in ("none", "container")
        and upcoming == kernel["running"]
    ):
        return
    if upcoming not in kernel["modules"]:
        return
    if not kernel["headers"].get(upcoming) and not kernel["modules"].get(upcoming):
        yield Problem(
            "headers_missing_next_boot",
            WARNING,
            "kernel %s boots next and has no headers, so the driver cannot be built for it" % upcoming,
            "install the headers package of that kernel (or the headers meta package), or hold the kernel at %s"
            % kernel["running"],
        )
    elif (
        upcoming != kernel["running"]
        and facts["driver"]["installed_via"] not in ("none", "container")
        and not kernel["modules"].get(upcoming)
    ):
        yield Problem(
            "module_missing_next_boot",
            WARNING,
            "kernel %s boots next and the driver is not built for it" % upcoming,
            "build it before the reboot: dkms autoinstall -k %s" % upcoming,
        )


def probe_problems(facts: Facts) -> t.Iterator[Problem]:
    """Looks that were refused or failed: what they would have told is unknown, not absent."""
    denied = sorted(name for name, probe in facts["probes"].items() if probe["state"] == "denied" and name != "smi")
    if denied:
        yield Problem(
            "permission_denied",
            WARNING,
            "not allowed to read: %s" % ", ".join(denied),
            "gather the facts with privilege escalation",
        )
    for name, probe in sorted(facts["probes"].items()):
        if name in ("smi", "machine_id", "system_uuid"):
            continue
        if probe["state"] in ("failed", "timeout"):
            yield Problem(
                "probe_failed",
                WARNING,
                "%s: %s" % (name, probe["detail"] or probe["state"]),
                "look at the named file or command on the host",
            )
