# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver's part of the plan."""

from __future__ import annotations

import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import EVICT, INFO, NONE, REBOOT
from ansible_collections.rebellions.npu.plugins.module_utils._base.versions import same_release

from .situation import (
    DRIVER_ROLE,
    SECRET_QUERY,
    Data,
    Draft,
    Situation,
    confined,
    driver_files,
    failed_before,
    needs_driver,
)

DRIVER_STEP = "driver.install"
RELOAD_STEP = "driver.reload"
RECOVER_STEP = "driver.recover"
REBOOT_STEP = "driver.reboot"


def _preinstalled(draft: Draft, now: Situation) -> None:
    if now.unbuilt or now.bare:
        draft.stop(
            "driver_not_built",
            "Driver %s has no module for the running kernel, and %s_driver_source is preinstalled."
            % (now.unbuilt or now.present, now.prefix),
            "Install the headers of that kernel and run dkms autoinstall, boot a kernel that has the module, or set %s_driver_source to package or runfile."
            % now.prefix,
        )
    elif not now.installed:
        draft.stop(
            "driver_missing",
            "%s and %s_driver_source is preinstalled."
            % ("An installation of the driver has broken off" if now.traces else "No driver is installed", now.prefix),
            "Install the driver, or set %s_driver_source to package or runfile." % now.prefix,
        )
    elif now.version and not same_release(now.present, now.version):
        draft.stop(
            "driver_version_differs",
            "Driver %s is installed, %s is wanted, and %s_driver_source is preinstalled."
            % (now.present, now.version, now.prefix),
            "Set %s_driver_source to package or runfile, or %s_driver_version to %s."
            % (now.prefix, now.prefix, now.present),
        )


def _container(draft: Draft, now: Situation) -> None:
    if now.installed and now.driver["installed_via"] != "container":
        draft.stop(
            "driver_on_host",
            "Driver %s is installed on the host, and %s_driver_source is container."
            % (now.present or "of unknown version", now.prefix),
            "Remove it with the playbook remove, or set %s_driver_source: preinstalled." % now.prefix,
        )
    elif not now.installed:
        draft.caution(
            "driver_from_cluster", "The driver comes with the driver container of the cluster.", severity=INFO
        )


def _recover(draft: Draft, now: Situation, wanted: str) -> None:
    draft.step(
        id=RECOVER_STEP,
        role=DRIVER_ROLE,
        component="driver",
        now="interrupted at %s" % (now.change["step"] or "an unknown step"),
        wanted=wanted,
        reason="A change of the driver was interrupted.",
        disruption=now.disruption,
    )


def _reload(draft: Draft, now: Situation) -> bool:
    """Plan to load what is on disk; True when that is a step."""
    driver = now.driver
    on_disk, loaded = driver["version_on_disk"], driver["version_loaded"]
    if (
        not on_disk
        or driver["installed_via"] == "container"
        or not now.stopped
        and (not loaded or same_release(loaded, on_disk))
    ):
        return False
    if now.stopped:
        # Nothing can use a driver that is not loaded, so nothing has to be allowed.
        detail, acts = "Driver %s is on disk and not loaded." % on_disk, now.source != "preinstalled"
    else:
        detail, acts = (
            "Driver %s is on disk and %s is loaded." % (on_disk, loaded),
            now.get("replace") and now.source != "preinstalled",
        )
    if not acts:
        if now.stopped:
            draft.caution(
                "driver_not_loaded",
                detail,
                "Run modprobe %s, and read the kernel log when that is refused." % driver["module"],
            )
        else:
            draft.caution(
                "driver_reload_needed",
                detail,
                "Reboot the host, or unload and load the module when no process uses an NPU.",
            )
        return False
    draft.step(
        id=RELOAD_STEP,
        role=DRIVER_ROLE,
        component="driver",
        now=loaded,
        wanted=on_disk,
        reason=detail,
        disruption=NONE if now.stopped else EVICT,
    )
    return True


def _damaged(draft: Draft, now: Situation) -> None:
    draft.caution(
        "driver_module_damaged",
        now.damage,
        "Build it again by hand (dkms build --force, dkms install --force), or let this run install the driver again%s."
        % (", with %s_driver_replace: true" % now.prefix if now.source != "preinstalled" else " from a source"),
    )


def _failed_before(draft: Draft, now: Situation, entry: Data, stops: bool = True) -> None:
    detail = "Driver %s failed its validation on this host at %s: %s" % (
        entry.get("version"),
        entry.get("time"),
        str(entry.get("reason"))[:300],
    )
    step = "Want another version, or set %s_driver_retry: true to try this one again." % now.prefix
    if stops:
        draft.stop("driver_failed_before", detail, step)
    else:
        draft.caution("driver_failed_before", detail, step)


def _as_it_is(draft: Draft, now: Situation) -> bool:
    """Plan what a driver of the right version needs; True when that is a step."""
    refused = failed_before(now.facts, now.present, "") if now.stopped else None
    if now.damage:
        _damaged(draft, now)
    elif refused and not now.get("retry"):
        _failed_before(draft, now, refused)
    else:
        return _reload(draft, now)
    return False


def _may_replace(draft: Draft, now: Situation) -> bool:
    """Whether a driver may be put in place of what is there, which may be nothing, something else, or not known."""
    if now.present is None and now.hidden:
        draft.stop(
            "driver_unknown",
            "Whether a driver is installed could not be found out: %s." % "; ".join(now.hidden),
            "Give the user of the connection root by become, and run again.",
        )
        return False
    if now.driver["installed_via"] == "container":
        draft.stop(
            "driver_from_container",
            "A driver container owns the driver below %s." % now.driver["root"],
            "Remove the driver container first, or set %s_driver_source: container." % now.prefix,
        )
        return False
    # A driver that can not be loaded is repaired, not replaced.
    if (
        now.installed
        and not now.change
        and not now.get("replace")
        and not (now.fits and now.stopped and (now.damage or now.broken))
    ):
        draft.stop(
            "driver_replace_not_allowed",
            "Driver %s is installed and %s is wanted." % (now.present, now.version),
            "Set %s_driver_replace: true to let this run replace it, or %s_driver_version: '%s' to keep it."
            % (now.prefix, now.prefix, now.present),
        )
        return False
    return True


def _source_is_given(draft: Draft, now: Situation, files: t.Sequence[Data]) -> bool:
    if now.source == "runfile" and not files:
        draft.stop(
            "driver_source_missing",
            "%s_driver_source is runfile, and %s_driver_runfile is not set." % (now.prefix, now.prefix),
            "Give the installer from the vendor's support and its SHA-256.",
        )
        return False
    if now.source == "package" and not files and not now.get("package_names"):
        draft.stop(
            "driver_source_missing",
            "%s_driver_source is package, and neither %s_driver_package_names nor %s_driver_package_files is set."
            % ((now.prefix,) * 3),
            "Name the driver packages, or give their files with SHA-256.",
        )
        return False
    addresses = (
        [file["src"] for file in files]
        + [file.get("signature", "") for file in files]
        + [str(now.get("repository").get("url", ""))]
    )
    if any(
        "@" in address.partition("://")[2].partition("/")[0] or "://" in address and SECRET_QUERY.search(address)
        for address in addresses
    ):
        draft.stop(
            "driver_source_with_password",
            "The address of the driver holds a name or a password, which would reach logs.",
            "Put them into ~/.netrc of the controller; for a repository, into auth.conf.d of the host. A signed address is fetched to a path beforehand.",
        )
        return False
    bare = [file["src"] for file in files if not file["sha256"]]
    if bare:
        draft.stop(
            "driver_digest_missing",
            "The SHA-256 of %s is not set." % ", ".join(bare),
            "Set %s_driver_runfile_sha256, or give %s_driver_runfile_digests the version %s."
            % (now.prefix, now.prefix, now.version or "that is wanted"),
        )
        return False
    return True


def plan_driver(draft: Draft, wanted: Data, facts: Data, prefix: str) -> bool:
    """Plan the driver; True when this run will install, load or put back one."""
    if not needs_driver(facts):
        if facts["npus"]:
            draft.caution(
                "no_driver_needed", "Every NPU is given to virtual machines, so no driver is installed.", severity=INFO
            )
        return False
    now = Situation(wanted, facts, prefix)
    if now.get("versions") and not now.version:
        draft.stop(
            "driver_version_of_family_missing",
            "%s_driver_versions has no version for the family of this host's NPUs: %s."
            % (prefix, ", ".join(sorted({str(npu["family"] or npu["product"] or "unknown") for npu in facts["npus"]}))),
            "Add it; the names are as in the facts. The map has %s." % ", ".join(sorted(now.get("versions"))),
        )
        return False
    if now.get("state") == "absent":
        draft.stop(
            "driver_not_wanted",
            "%s_driver_state is absent, so nothing can be made ready on this host." % prefix,
            "Run the playbook remove, or set %s_driver_state: present." % prefix,
        )
        return False
    if now.source == "container":
        _container(draft, now)
        return False
    if now.broken and not confined(facts):
        draft.caution(
            "driver_package_broken",
            now.broken,
            "dpkg --configure -a finishes it or says why not; a change of the driver by this run puts it right first.",
        )
    repaired = (now.damage or now.broken) and (now.stopped or now.get("replace")) and now.source != "preinstalled"
    right = (
        now.change is None
        and now.fits
        and not now.tainted
        and not repaired
        and now.driver["installed_via"] != "container"
    )
    if confined(facts) and now.source != "preinstalled":
        if now.fits and not now.bare and now.change is None and not now.tainted:
            return False
        draft.stop(
            "driver_of_machine_below",
            "This host is a container without the modules of its kernel %s: the driver belongs to the machine below."
            % facts["kernel"]["running"],
            "Set %s_driver_source: preinstalled (or container, where the cluster brings the driver), and install it on the machine itself."
            % prefix,
        )
        return False
    if now.doubled and (now.source == "preinstalled" or now.fits and not now.get("replace")):
        draft.caution(
            "legacy_package_left",
            "Driver %s is here, and so is the package %s %s."
            % (now.present, now.driver["package"]["name"], now.driver["package"]["version"]),
            "Let this run take the package away and install again with %s_driver_replace: true and a source, or do so by hand."
            % prefix,
        )
    if now.source == "preinstalled":
        if now.change:
            _recover(draft, now, "as before the change")
            return True
        _preinstalled(draft, now)
        if now.damage and not now.bare:
            _damaged(draft, now)
        elif not now.damage:
            _reload(draft, now)
        return False
    if right and not (now.doubled and now.get("replace")):
        return _as_it_is(draft, now)
    if now.change and now.fits and not now.change["touched"]:
        # Nothing had been replaced, and what is on the disk is what is wanted: only what was stopped is owed.
        _recover(draft, now, now.present)
        return True
    files = driver_files(wanted, facts, prefix)
    refused = failed_before(facts, now.version, files[0]["sha256"] if len(files) == 1 else "")
    if refused and not now.get("retry") and not (now.fits and now.change is None):
        if now.change:
            # The host is put right first; the next run is told.
            _recover(draft, now, "as before the change")
        _failed_before(draft, now, refused, stops=not now.change)
        return bool(now.change)
    if not _may_replace(draft, now) or not _source_is_given(draft, now, files):
        return False
    if now.change:
        reason = "A change of the driver was interrupted at %s." % (now.change["step"] or "an unknown step")
    elif now.tainted:
        reason = "The last change failed and so did the way back."
    elif repaired and (now.fits or not now.installed):
        reason = now.damage or now.broken
    elif now.fits and now.doubled:
        reason = "The package of former releases is here as well, and goes."
    elif now.driver["legacy"] and not now.orphans and now.version and now.source == "runfile":
        reason = "Another version is wanted; the package of former releases goes first."
    elif now.installed:
        reason = "Another version is wanted."
    elif now.unbuilt:
        reason = "Driver %s has no module for the running kernel." % now.unbuilt
    else:
        reason = "An installation has broken off." if now.traces else "No driver is installed."
    if now.orphans and not now.fits:
        draft.caution(
            "legacy_left_to_dkms",
            "DKMS has %s, and the package that brought it is gone: it stays, and is built for new kernels as well."
            % ", ".join(now.orphans),
            "Once the new driver works: %s." % "; ".join("dkms remove %s --all" % name for name in now.orphans),
        )
    draft.step(
        id=DRIVER_STEP,
        role=DRIVER_ROLE,
        component="driver",
        now=now.present,
        wanted=now.version or "newest of the source",
        reason=reason,
        disruption=now.disruption,
    )
    if now.get("reboot") == "always":
        draft.step(
            id=REBOOT_STEP, role=DRIVER_ROLE, component="host", now="running", wanted="rebooted", reason="Asked for after each change of the driver.",
            disruption=REBOOT, after=DRIVER_STEP,
        )  # fmt: skip
    return True
