# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has to hold around the driver before it changes: headers and build tools, room, kernels. Pure.

Every part has the parameters (draft, wanted, facts, matrix, prefix). BEFORE_DRIVER judges the host as it is. AFTER_DRIVER asks whether a
driver will be installed, so it follows the driver's own step in time; its steps go in front of it.
"""

from __future__ import annotations

import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import INFO, NONE, WARNING
from ansible_collections.rebellions.npu.plugins.module_utils._base.versions import same_release
from ansible_collections.rebellions.npu.plugins.module_utils._kernel.build_tools import missing_packages
from ansible_collections.rebellions.npu.plugins.module_utils._kernel.package_names import (
    header_metas,
    header_packages,
    install_command,
    kernel_family,
)

from . import matrix as _support
from .driver import DRIVER_STEP
from .secure_boot import firmware, secure_boot
from .situation import DRIVER_ROLE, Draft, damaged_module, getter, needs_driver
from .support import (
    BUILD_STEP,
    HOLD_STEP,
    PREREQUISITES_STEP,
    Data,
    Rules,
    families,
    judged_version,
    kernel_line,
    kernels_at_stake,
    os_pairs,
    pciehp,
    sdk,
    source,
    step_before,
    support,
    will_install,
)

MIB = 1024 * 1024
# How the wanted room is spread: user-space files and module trees below /usr, package cache, builds and kept installers below /var.
SHARES = (("/usr", 0.5), ("/var", 0.5))
BOOT_SHARE = 0.1


def prerequisites(draft: Draft, wanted: Data, facts: Data, matrix: Rules, prefix: str) -> None:
    """Headers of the running and of the next kernel, and the tools to build a module with; then the module for kernels that lack it."""
    get = getter(wanted, prefix + "_driver")
    driver, kernel = facts["driver"], facts["kernel"]
    installing = will_install(draft)
    # A build that is damaged counts as none when the driver is installed again: nobody else would build it.
    again = kernel["running"] if installing and damaged_module(facts) else None
    without = [name for name in kernels_at_stake(facts) if kernel["modules"].get(name) is False or name == again]
    if not needs_driver(facts) or not installing and not (driver["dkms"] and without):
        return
    due = kernels_at_stake(facts) if installing else without
    bare = [name for name in due if not kernel["headers"].get(name)]
    names = header_packages(facts, bare)
    if not get("kernel_hold"):
        names += header_metas(facts)
    names += missing_packages(facts["build"], get("build_packages"))
    policy, changes = get("headers"), get("source") in ("package", "runfile")
    if bare and not header_packages(facts, bare) and policy != "ignore":
        draft.stop(
            "headers_missing",
            "The headers of kernel %s are missing, and the names of their packages are not known on %s."
            % (" and ".join(bare), facts["os"]["pretty"] or "this system"),
            "Install them by hand, or set %s_driver_headers: ignore when the driver brings built modules." % prefix,
        )
    elif names and policy == "check":
        draft.stop(
            "prerequisites_missing",
            _lack(bare, names),
            "%s; or set %s_driver_headers: install." % (install_command(facts, names), prefix),
        )
    elif names and policy == "install" and changes:
        step_before(
            draft,
            id=PREREQUISITES_STEP,
            component="headers and build tools",
            now=None,
            wanted=names,
            reason=_lack(bare, names),
            after="",
        )
    elif names and policy == "install":
        draft.caution(
            "prerequisites_missing",
            _lack(bare, names),
            "%s; %s_driver_source is %s, so this run does not."
            % (install_command(facts, names), prefix, get("source")),
        )
    if not changes or policy == "check" and names:
        return
    build = [name for name in without if policy == "install" or name not in bare]
    if installing:
        # A package manager does nothing about a version that it has already: DKMS is to build it for the kernel that it lacks.
        there = any(same_release(row["version"], judged_version(wanted, facts, prefix)) for row in driver["dkms"])
        build = [name for name in build if there and name == kernel["running"]]
    if build:
        draft.step(
            id=BUILD_STEP,
            role=DRIVER_ROLE,
            component="module",
            now=None,
            wanted=build,
            reason="The driver is not built for kernel %s." % " and ".join(build),
            disruption=NONE,
            after=DRIVER_STEP
            if installing
            else PREREQUISITES_STEP
            if any(step.id == PREREQUISITES_STEP for step in draft.steps)
            else "",
        )


def _lack(bare: t.Sequence[str], names: t.Sequence[str]) -> str:
    told = "Kernel %s has no headers; " % " and ".join(bare) if bare else ""
    return "%sbuilding the module needs %s." % (told, ", ".join(names))


def kernel_hold(draft: Draft, wanted: Data, facts: Data, matrix: Rules, prefix: str) -> None:
    """Where asked for, keep the kernel: hold its packages and those that pull in the newest."""
    get = getter(wanted, prefix + "_driver")
    if not get("kernel_hold") or not needs_driver(facts):
        return
    if get("source") not in ("package", "runfile"):
        draft.caution(
            "kernel_not_held",
            "%s_driver_kernel_hold is true, and %s_driver_source is %s." % (prefix, prefix, get("source")),
            "The kernel is held only together with a driver that this collection installs.",
        )
        return
    names = kernel_family(facts)
    if facts["holds"] is None or not names:
        draft.caution(
            "kernel_not_held",
            "Which packages hold the kernel could not be found out.",
            "Run as root; hold the kernel by hand.",
        )
        return
    missing = [name for name in names if name not in facts["holds"]]
    if missing:
        step_before(
            draft,
            id=HOLD_STEP,
            component="kernel packages",
            now=sorted(set(names) & set(facts["holds"])),
            wanted=missing,
            reason="The kernel stays at %s." % facts["kernel"]["running"],
            after="",
        )


def kernel_guard(draft: Draft, wanted: Data, facts: Data, matrix: Rules, prefix: str) -> None:
    """Every kernel that could boot has the module; and the next one to arrive will have headers."""
    get = getter(wanted, prefix + "_driver")
    driver = facts["driver"]
    if not needs_driver(facts) or driver["installed_via"] in ("none", "container") or will_install(draft):
        return
    version = judged_version(wanted, facts, prefix)
    built = {name for step in draft.steps if step.id == BUILD_STEP for name in step.wanted}
    for row in facts["kernel"]["guard"]:
        if row["module"] is not False or row["running"] or row["kernel"] in built:
            continue
        verdict = _support.judge(matrix, version, families(facts), os_pairs(facts), row["kernel"], prefix)
        outside = verdict.state == _support.UNLISTED
        draft.caution(
            "kernel_without_module",
            "Kernel %s %s and has no module of the driver%s%s."
            % (
                row["kernel"],
                "boots next" if row["next_boot"] else "is installed",
                "" if row["headers"] else ", nor headers to build one",
                "; it is outside the support matrix" if outside else "",
            ),
            "Remove that kernel, or keep it from booting."
            if outside
            else "Install its headers and run dkms autoinstall -k %s, or remove the kernel." % row["kernel"],
            severity=WARNING if row["next_boot"] else INFO,
        )
    metas = header_metas(facts)
    held = facts["holds"] or []
    images = ["linux-image-" + name[len("linux-headers-") :] for name in metas]
    if driver["dkms"] and any(image not in held for image in images) and not get("kernel_hold"):
        draft.caution(
            "next_kernel_without_headers",
            "%s brings kernels without headers, so the driver is not built for them." % ", ".join(images),
            "%s, or set %s_driver_kernel_hold: true." % (install_command(facts, metas), prefix),
            severity=INFO,
        )


def disk(draft: Draft, wanted: Data, facts: Data, matrix: Rules, prefix: str) -> None:
    """Room for an installation, added up where several directories lie on one file system."""
    wanted_mib = wanted["%s_driver_disk_free" % prefix]
    if not will_install(draft) or wanted_mib <= 0:
        return
    needs: dict[str, float] = {}
    paths: dict[str, list[str]] = {}
    for path, share in SHARES:
        mount = facts["mounts"][path] or path
        needs[mount] = needs.get(mount, 0.0) + share * wanted_mib
        paths.setdefault(mount, []).append(path)
    for mount, amount in needs.items():
        free = facts["disk"][paths[mount][0]]
        if free is None:
            draft.caution(
                "disk_unknown", "The room on the file system %s could not be found out." % mount, "Run as root."
            )
        elif free < amount * MIB:
            draft.stop(
                "disk_full",
                "The file system %s (for %s) has %d MiB free, and %d MiB are wanted."
                % (mount, " and ".join(paths[mount]), free // MIB, amount),
                "Make room there (old kernels, package caches), or lower %s_driver_disk_free from %d."
                % (prefix, wanted_mib),
            )


def boot_room(draft: Draft, wanted: Data, facts: Data, matrix: Rules, prefix: str) -> None:
    """Room in /boot for one more initial ram disk, which packages of a change make beside the present one before they replace it."""
    wanted_mib, free, size = wanted["%s_driver_disk_free" % prefix], facts["disk"]["/boot"], facts["initramfs"] or 0
    changes = [step for step in draft.steps if step.id in (DRIVER_STEP, PREREQUISITES_STEP, BUILD_STEP)]
    if not changes or wanted_mib <= 0 or free is None or any(stop.code == "disk_full" for stop in draft.stops):
        return
    mount = facts["mounts"]["/boot"] or "/boot"
    old = [row["kernel"] for row in facts["kernel"]["guard"] if not row["running"] and not row["next_boot"]]
    remedy = (
        "Remove kernels that are no longer used: %s." % ", ".join(old)
        if old
        else "Make it larger: no kernel is installed but those that run now or next."
    )
    if free < max(size, 1) and facts["os"]["family"] == "debian":
        draft.stop(
            "boot_full",
            "The file system %s has %d MiB free, and the packages of this change make an initial ram disk there%s."
            % (mount, free // MIB, "; the present one has %d MiB" % -(-size // MIB) if size else ""),
            remedy,
        )
    elif free < max(size, BOOT_SHARE * wanted_mib * MIB) and mount not in [
        facts["mounts"][path] or path for path, _share in SHARES
    ]:
        draft.caution(
            "disk_low",
            "The file system %s has %d MiB free, and an initial ram disk may need %d MiB."
            % (mount, free // MIB, size // MIB or BOOT_SHARE * wanted_mib),
            remedy,
        )


Part = t.Callable[[Draft, Data, Data, Rules, str], None]
BEFORE_DRIVER: tuple[Part, ...] = (support, sdk, kernel_line, pciehp)
AFTER_DRIVER: tuple[Part, ...] = (
    source,
    prerequisites,
    kernel_hold,
    secure_boot,
    firmware,
    kernel_guard,
    disk,
    boot_room,
)
