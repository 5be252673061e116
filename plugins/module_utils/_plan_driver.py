# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver's part of the plan."""

from __future__ import annotations

import typing as t

from ._model import EVICT, INFO, NONE
from ._plan_draft import DRIVER_ROLE, Draft, getter, needs_driver
from ._versions import same_release

DRIVER_STEP = "driver.install"
# Looks without which an absent driver is not known to be absent.
DRIVER_PROBES = ("module_loaded", "module_file", "dkms", "packages", "runfile_stamp")


def plan_driver(draft: Draft, wanted: t.Mapping[str, t.Any], facts: t.Mapping[str, t.Any], prefix: str) -> bool:
    """Plan the driver; True when one will be installed by this run."""
    get = getter(wanted, prefix + "_driver")
    if not needs_driver(facts):
        if facts["npus"]:
            draft.caution("no_driver_needed", "Every NPU is given to virtual machines, so no driver is installed.", severity=INFO)
        return False
    driver = facts["driver"]
    source, version = get("source"), get("version")
    present = driver["version_on_disk"] or driver["version_loaded"]
    traces = driver["installed_via"] != "none" or driver["version_loaded"] is not None
    # What an installer left that broke off has no module; it protects nothing.
    installed = traces and (present is not None or bool(driver.get("loaded")) or driver["installed_via"] == "container")
    if source == "preinstalled":
        if not installed:
            draft.stop(
                "driver_missing",
                "%s and %s_driver_source is preinstalled."
                % ("An installation of the driver has broken off" if traces else "No driver is installed", prefix),
                "Install the driver, or set %s_driver_source to package or runfile." % prefix,
            )
        elif version and not same_release(present, version):
            draft.stop(
                "driver_version_differs",
                "Driver %s is installed, %s is wanted, and %s_driver_source is preinstalled." % (present, version, prefix),
                "Set %s_driver_source to package or runfile, or %s_driver_version to %s." % (prefix, prefix, present),
            )
        return False
    if driver["installed_via"] == "container":
        draft.stop(
            "driver_from_container",
            "A driver container owns the driver below %s." % driver["root"],
            "Remove the driver container first, or set %s_driver_source: preinstalled." % prefix,
        )
        return False
    hidden = [name for name in DRIVER_PROBES if facts["probes"].get(name, {}).get("state") in ("denied", "timeout", "failed")]
    if present is None and hidden:
        draft.stop(
            "driver_unknown",
            "Whether a driver is installed could not be found out: %s."
            % "; ".join("%s %s" % (name, facts["probes"][name]["detail"] or facts["probes"][name]["state"]) for name in hidden),
            "Give the user of the connection root by become, and run again.",
        )
        return False
    if installed and (not version or same_release(present, version)):
        if driver["version_loaded"] and driver["version_on_disk"] and not same_release(driver["version_loaded"], driver["version_on_disk"]):
            draft.caution(
                "driver_reload_needed",
                "Driver %s is on disk and %s is loaded." % (driver["version_on_disk"], driver["version_loaded"]),
                "Reboot the host, or unload and load the module when no process uses an NPU.",
            )
        return False
    if installed:
        if source == "runfile" and driver["legacy"]:
            draft.stop(
                "legacy_package_in_the_way",
                "Driver %s is the package of former releases; a runfile beside it leaves two module trees and mixed libraries." % present,
                "Remove the package first, then run again.",
            )
            return False
        if not get("replace"):
            draft.stop(
                "driver_replace_not_allowed",
                "Driver %s is installed and %s is wanted." % (present, version),
                "Set %s_driver_replace: true to let this run replace it, or %s_driver_version: '%s' to keep it." % (prefix, prefix, present),
            )
            return False
    draft.step(
        id=DRIVER_STEP,
        role=DRIVER_ROLE,
        component="driver",
        now=present,
        wanted=version or "newest of the source",
        reason="Another version is wanted." if installed else "An installation has broken off." if traces else "No driver is installed.",
        disruption=EVICT if installed else NONE,
    )
    return True
