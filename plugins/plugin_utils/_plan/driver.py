# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver's part of the plan."""

from __future__ import annotations

import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.mask import mask
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import EVICT, INFO, NONE, REBOOT
from ansible_collections.rebellions.npu.plugins.module_utils._base.versions import same_release
from ansible_collections.rebellions.npu.plugins.module_utils._host.os import READ_ONLY

from .situation import DRIVER_ROLE, Case, Data, Draft, Situation, driver_files, failed_before, ours

DRIVER_STEP = "driver.install"
RELOAD_STEP = "driver.reload"
RECOVER_STEP = "driver.recover"
REBOOT_STEP = "driver.reboot"
OTHER_SOURCE = f"set {ours('driver_source')} to package or runfile"


def plan_driver(draft: Draft, case: Case) -> bool:
    """Plan the driver; True when this run will install, load or restore one."""
    if not case.needs_driver:
        if case.facts["npus"]:
            draft.caution(
                "no_driver_needed", "Every NPU is given to virtual machines, so no driver is installed.", severity=INFO
            )
        return False
    now = Situation(case)
    if not _is_this_runs(draft, now):
        return False
    if case.confined and now.source != "preinstalled":
        _confined(draft, now)
        return False
    if case.sealed:
        return _sealed(draft, now)
    _tell_state(draft, now)
    if now.source == "preinstalled":
        return _preinstalled(draft, now)
    if now.right and not (now.doubled and now.replace):
        return _as_it_is(draft, now)
    if now.change and now.fits and not now.change["touched"]:
        # Nothing was replaced, and the wanted driver is on disk: only what was stopped has to be started again.
        _recover(draft, now, now.present)
        return True
    return _install(draft, now)


def _is_this_runs(draft: Draft, now: Situation) -> bool:
    """Whether the driver of this host is for this run to plan, by the inputs."""
    if now.get("versions") and not now.version:
        names = sorted({str(npu["family"] or npu["product"] or "unknown") for npu in now.facts["npus"]})
        draft.stop(
            "driver_version_of_family_missing",
            f"{ours('driver_versions')} has no version for the family of this host's NPUs: {', '.join(names)}.",
            f"Add it; the names are as in the facts. The map has {', '.join(sorted(now.get('versions')))}.",
        )
    elif now.get("state") == "absent":
        draft.stop(
            "driver_not_wanted",
            f"{ours('driver_state')} is absent, so nothing can be made ready on this host.",
            f"Run the playbook remove, or set {ours('driver_state')}: present.",
        )
    elif now.source == "container":
        _container(draft, now)
    else:
        return True
    return False


def _container(draft: Draft, now: Situation) -> None:
    if now.installed and now.driver["installed_via"] != "container":
        draft.stop(
            "driver_on_host",
            f"Driver {now.present or 'of unknown version'} is installed on the host, "
            f"and {ours('driver_source')} is container.",
            f"Remove it with the playbook remove, or set {ours('driver_source')}: preinstalled.",
        )
    elif not now.installed:
        draft.caution(
            "driver_from_cluster", "The driver comes with the driver container of the cluster.", severity=INFO
        )


def _confined(draft: Draft, now: Situation) -> None:
    if now.fits and not now.bare and now.change is None and not now.tainted:
        return
    draft.stop(
        "driver_of_machine_below",
        f"This host is a container without the modules of its kernel {now.facts['kernel']['running']}: "
        "the driver belongs to the machine below.",
        f"Set {ours('driver_source')}: preinstalled (or container, where the cluster brings the driver), "
        "and install it on the machine itself.",
    )


def _sealed(draft: Draft, now: Situation) -> bool:
    """Plan for a driver that can come with the image of the host only; True when this run loads it."""
    if now.right:
        return _as_it_is(draft, now)
    image, version = now.case.image, f" {now.version}" if now.version else ""
    told = "/usr is mounted read-only" if image == READ_ONLY else f"its system comes as an image ({image})"
    draft.stop(
        "driver_of_image",
        f"Nothing can be installed on this host while it runs: {told}.",
        f"Put driver{version} into the image and boot it, with {ours('driver_source')}: preinstalled "
        "(or container, where the cluster brings the driver)"
        f"{', or mount /usr read-write.' if image == READ_ONLY else '.'}",
    )
    return False


def _tell_state(draft: Draft, now: Situation) -> None:
    """What the checks say of the installation, and this run may or may not repair."""
    unfinished = now.case.fails("package_finished")
    if unfinished and not now.case.confined:
        draft.caution_for(
            unfinished,
            f"{unfinished.next_step.rstrip('.')}; a change of the driver by this run finishes it first.",
        )
    twice = now.case.fails("one_driver_installed")
    if twice and now.doubled and (now.source == "preinstalled" or now.fits and not now.replace):
        draft.caution_for(
            twice,
            "Let this run remove the package and install the driver again with "
            f"{ours('driver_replace')}: true and a source, or do so by hand.",
        )


def _preinstalled(draft: Draft, now: Situation) -> bool:
    if now.change:
        _recover(draft, now, "as before the change")
        return True
    _as_preinstalled(draft, now)
    if now.damage and not now.bare:
        _damaged(draft, now)
    elif not now.damage:
        _reload(draft, now)
    return False


def _as_preinstalled(draft: Draft, now: Situation) -> None:
    """A driver that others install has to be there, and to be the wanted one."""
    record = now.case.check("module_file_intact" if now.bare else "driver_installed")
    image = now.case.image
    if record is not None and (now.bare or not now.installed):
        draft.stop_for(
            record,
            f"Put the driver into the image of this host ({image}), and boot it."
            if image
            else f"{record.next_step.rstrip('.')}; {ours('driver_source')} is preinstalled, "
            f"so this run does not. Or {OTHER_SOURCE}.",
        )
    elif now.version and not same_release(now.present, now.version):
        way = f"Put driver {now.version} into the image ({image}), or set" if image else f"S{OTHER_SOURCE[1:]}, or"
        draft.stop(
            "driver_version_differs",
            f"Driver {now.present} is installed, {now.version} is wanted, and {ours('driver_source')} is preinstalled.",
            f"{way} {ours('driver_version')} to {now.present}.",
        )


def _recover(draft: Draft, now: Situation, wanted: str) -> None:
    draft.step(
        id=RECOVER_STEP,
        role=DRIVER_ROLE,
        component="driver",
        now=f"interrupted at {now.change['step'] or 'an unknown step'}",
        wanted=wanted,
        reason="A change of the driver was interrupted.",
        disruption=now.disruption,
    )


def _reload(draft: Draft, now: Situation) -> bool:
    """Plan to load what is on disk; True when that is a step."""
    driver = now.driver
    on_disk, loaded = driver["version_on_disk"], driver["version_loaded"]
    if not on_disk or driver["installed_via"] == "container":
        return False
    if not now.stopped and (not loaded or loaded == on_disk or same_release(loaded, on_disk)):
        return False
    # Nothing can use a driver that is not loaded, so loading it needs no permission.
    if now.source == "preinstalled" or not (now.stopped or now.replace):
        record = now.case.fails("driver_loaded" if now.stopped else "driver_on_disk_is_loaded")
        if record:
            draft.caution_for(record)
        return False
    told = "not loaded" if now.stopped else f"{loaded} is loaded"
    draft.step(
        id=RELOAD_STEP,
        role=DRIVER_ROLE,
        component="driver",
        now=loaded,
        wanted=on_disk,
        reason=f"Driver {on_disk} is on disk and {told}.",
        disruption=NONE if now.stopped else EVICT,
    )
    return True


def _damaged(draft: Draft, now: Situation) -> None:
    record = now.case.fails("module_file_intact")
    if record:
        how = f"with {ours('driver_replace')}: true" if now.source != "preinstalled" else "from a source"
        draft.caution_for(
            record,
            f"Put the driver into the image of this host again ({now.case.image})."
            if now.case.image
            else "Build it again by hand (dkms build --force, dkms install --force), "
            f"or let this run install the driver again, {how}.",
        )


def _failed_before(draft: Draft, entry: Data, stops: bool = True) -> None:
    detail = (
        f"Driver {entry.get('version')} failed its validation on this host at {entry.get('time')}: "
        f"{str(entry.get('reason'))[:300]}"
    )
    step = f"Want another version, or set {ours('driver_retry')}: true to try this one again."
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
        _failed_before(draft, refused)
    else:
        return _reload(draft, now)
    return False


def _install(draft: Draft, now: Situation) -> bool:
    """Plan an installation; True when this run changes the driver."""
    files = driver_files(now.case.wanted, now.facts)
    refused = failed_before(now.facts, now.version, files[0]["sha256"] if len(files) == 1 else "")
    if refused and not now.get("retry") and not (now.fits and now.change is None):
        if now.change:
            # The host is restored first; the next run gets the stop.
            _recover(draft, now, "as before the change")
        _failed_before(draft, refused, stops=not now.change)
        return bool(now.change)
    if not _may_replace(draft, now) or not _source_is_given(draft, now, files):
        return False
    if now.orphans and not now.fits:
        draft.caution(
            "legacy_left_to_dkms",
            f"DKMS has {', '.join(now.orphans)}, and the package that brought it is gone: "
            "it stays, and DKMS builds it for new kernels too.",
            f"Once the new driver works: {'; '.join(f'dkms remove {name} --all' for name in now.orphans)}.",
        )
    draft.step(
        id=DRIVER_STEP,
        role=DRIVER_ROLE,
        component="driver",
        now=now.present,
        wanted=now.version or "newest of the source",
        reason=_reason(now),
        disruption=now.disruption,
    )
    if now.get("reboot") == "always":
        draft.step(
            id=REBOOT_STEP,
            role=DRIVER_ROLE,
            component="host",
            now="running",
            wanted="rebooted",
            reason=f"{ours('driver_reboot')} asks for it after each change of the driver.",
            disruption=REBOOT,
            after=DRIVER_STEP,
        )
    return True


def _reason(now: Situation) -> str:
    """Why the driver is installed."""
    if now.change:
        return f"A change of the driver was interrupted at {now.change['step'] or 'an unknown step'}."
    if now.tainted:
        return "The last change failed, and rolling it back failed too."
    if now.repaired and (now.fits or not now.installed):
        return now.damage or now.broken
    if now.fits and now.doubled:
        return "The package of former releases is also installed; it is removed."
    if now.driver["legacy"] and not now.orphans and now.version and now.source == "runfile":
        return "Another version is wanted; the package of former releases is removed first."
    if now.installed:
        return "Another version is wanted."
    if now.unbuilt:
        return f"Driver {now.unbuilt} has no module for the running kernel."
    return "An installation was interrupted." if now.traces else "No driver is installed."


def _may_replace(draft: Draft, now: Situation) -> bool:
    """Whether this run may put a driver in the place of the present one, which may be none, another, or not known."""
    if now.present is None and now.hidden:
        draft.stop(
            "driver_unknown",
            f"Whether a driver is installed could not be found out: {'; '.join(now.hidden)}.",
            "Give the user of the connection root by become, and run again.",
        )
        return False
    if now.driver["installed_via"] == "container":
        draft.stop(
            "driver_from_container",
            f"A driver container owns the driver below {now.driver['root']}.",
            f"Remove the driver container first, or set {ours('driver_source')}: container.",
        )
        return False
    # A driver that cannot be loaded is repaired, not replaced.
    repair = now.fits and now.stopped and (now.damage or now.broken)
    if now.installed and not now.change and not now.replace and not repair:
        draft.stop(
            "driver_replace_not_allowed",
            f"Driver {now.present} is installed and {now.version} is wanted.",
            f"Set {ours('driver_replace')}: true to let this run replace it, "
            f"or {ours('driver_version')}: '{now.present}' to keep it.",
        )
        return False
    return True


def _source_is_given(draft: Draft, now: Situation, files: t.Sequence[Data]) -> bool:
    """Whether there is something to install from, which can be verified and leaks no secret."""
    if now.source == "runfile" and not files:
        draft.stop(
            "driver_source_missing",
            f"{ours('driver_source')} is runfile, and {ours('driver_runfile')} is not set.",
            "Give the installer from the vendor's support and its SHA-256.",
        )
        return False
    if now.source == "package" and not files and not now.get("package_names"):
        draft.stop(
            "driver_source_missing",
            f"{ours('driver_source')} is package, and neither {ours('driver_package_names')} "
            f"nor {ours('driver_package_files')} is set.",
            "Name the driver packages, or give their files with SHA-256.",
        )
        return False
    if _has_secret(now, files):
        draft.stop(
            "driver_source_with_password",
            "The address of the driver holds a name or a password, which would reach logs.",
            "Put them into ~/.netrc of the controller; for a repository, into auth.conf.d of the host. "
            "Fetch a signed address to a path beforehand.",
        )
        return False
    bare = [file["src"] for file in files if not file["sha256"]]
    if bare:
        draft.stop(
            "driver_digest_missing",
            f"The SHA-256 of {', '.join(bare)} is not set.",
            f"Set {ours('driver_runfile_sha256')}, or give {ours('driver_runfile_digests')} "
            f"the version {now.version or 'that is wanted'}.",
        )
        return False
    if now.source == "runfile" and now.get("runfile_keyring") and not files[0].get("signature"):
        draft.stop(
            "driver_signature_missing",
            f"{ours('driver_runfile_keyring')} is set, and {ours('driver_runfile_signature')} is not: "
            "nothing would be verified by these keys.",
            f"Set {ours('driver_runfile_signature')}, or remove the keyring.",
        )
        return False
    repository = now.get("repository")
    if repository and not (repository.get("url") and repository.get("key")):
        draft.stop(
            "driver_repository_incomplete",
            f"{ours('driver_repository')} has no {'key' if repository.get('url') else 'url'}.",
            "Give url, and as key the file or the address of the public key that signs the repository.",
        )
        return False
    return True


def holds_secret(address: str) -> bool:
    """Whether an address has a name, a password or a token, for which the plan refuses it."""
    return "://" in address and (mask(address) != address or "@" in address.partition("://")[2].partition("/")[0])


def _has_secret(now: Situation, files: t.Sequence[Data]) -> bool:
    addresses = [file["src"] for file in files] + [file.get("signature", "") for file in files]
    return any(map(holds_secret, [*addresses, *(str(now.get("repository").get(key, "")) for key in ("url", "key"))]))
