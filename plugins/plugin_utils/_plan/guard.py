# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has to hold around the driver before it changes: headers and build tools, disk space, kernels. Pure.

Every part has the parameters (draft, case). BEFORE_DRIVER judges the host as it is. AFTER_DRIVER asks whether a driver
will be installed, so it runs after the driver's own part; its steps go in front of the driver's.
"""

from __future__ import annotations

import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import INFO, NONE
from ansible_collections.rebellions.npu.plugins.module_utils._base.versions import same_release
from ansible_collections.rebellions.npu.plugins.module_utils._kernel.build_tools import (
    missing_compiler,
    missing_packages,
)
from ansible_collections.rebellions.npu.plugins.module_utils._kernel.package_names import (
    header_metas,
    header_packages,
    install_command,
    kernel_family,
)
from ansible_collections.rebellions.npu.plugins.module_utils._npu.driver import DKMS_DIR
from ansible_collections.rebellions.npu.plugins.module_utils._packages.pins import is_pinned

from . import matrix as _support
from .driver import DRIVER_STEP, RELOAD_STEP
from .secure_boot import FIRMWARE_STEP, firmware, secure_boot
from .situation import DRIVER_ROLE, Case, Data, Draft, ours
from .support import (
    BUILD_STEP,
    HOLD_STEP,
    PREREQUISITES_STEP,
    judge_kernel,
    kernel_line,
    kernels_at_stake,
    pciehp,
    sdk,
    source,
    step_before,
    support,
    will_install,
)

MIB = 1024 * 1024
# How the wanted space is spread: user-space files and module trees below /usr; package cache, builds and kept
# installers below /var.
SHARES = (("/usr", 0.5), ("/var", 0.5))
BOOT_SHARE = 0.1


def prerequisites(draft: Draft, case: Case) -> None:
    """Headers of the running and the next kernel, and build tools; then the module where a kernel lacks it."""
    driver, kernel = case.driver, case.facts["kernel"]
    installing = will_install(draft)
    # A damaged build counts as none when the driver is installed again: nothing else would build it.
    again = kernel["running"] if installing and case.damage and not case.package_only else None
    without = [name for name in kernels_at_stake(case.facts) if kernel["modules"].get(name) is False or name == again]
    if not case.needs_driver or not installing and not (driver["dkms"] and without):
        return
    due = kernels_at_stake(case.facts) if installing else without
    bare = [name for name in due if not kernel["headers"].get(name)]
    names = header_packages(case.facts, bare)
    if not case.input("driver_kernel_hold"):
        names += header_metas(case.facts)
    names += missing_packages(case.facts["build"], case.input("driver_build_packages"))
    build_facts = case.facts["build"]
    compiler = missing_compiler(build_facts) if "gcc" in case.input("driver_build_packages") else ""
    # A kernel of the distribution was built with a compiler of the distribution.
    images = {row["name"] for row in kernel["packages"]}
    known = {f"linux-image-{kernel['running']}", f"linux-image-unsigned-{kernel['running']}"}
    if compiler.startswith("gcc-") and images & known:
        names.append(compiler)
    elif compiler and build_facts["compilers"]:
        draft.caution(
            "compiler_missing",
            f"Kernel {kernel['running']} was built by {compiler}; the host has {', '.join(build_facts['compilers'])}.",
            f"Install {compiler}, and let DKMS use it, when the module does not build.",
            severity=INFO,
        )
    _prepare(draft, case, bare, names)
    policy = case.input("driver_headers")
    if case.input("driver_source") not in ("package", "runfile") or policy == "check" and names:
        return
    build = [name for name in without if policy == "install" or name not in bare]
    if installing:
        # A package manager does nothing about a version that is installed: DKMS builds it for the kernel that lacks it.
        there = any(same_release(row["version"], case.judged_version) for row in driver["dkms"])
        build = [name for name in build if there and name == kernel["running"]]
    if build:
        draft.step(
            id=BUILD_STEP,
            role=DRIVER_ROLE,
            component="module",
            now=None,
            wanted=build,
            reason=f"The driver is not built for kernel {' and '.join(build)}.",
            disruption=NONE,
            after=DRIVER_STEP if installing else PREREQUISITES_STEP if draft.will(PREREQUISITES_STEP) else "",
        )


def _prepare(draft: Draft, case: Case, bare: t.Sequence[str], names: t.Sequence[str]) -> None:
    """Plan to install the packages `names`, or say that they are missing; `bare` are the kernels without headers."""
    policy = case.input("driver_headers")
    if bare and not header_packages(case.facts, bare) and policy != "ignore":
        draft.stop(
            "headers_missing",
            f"The headers of kernel {' and '.join(bare)} are missing, and the names of their packages are not known "
            f"on {case.facts['os']['pretty'] or 'this system'}.",
            f"Install them by hand, or set {ours('driver_headers')}: ignore when the driver brings built modules.",
        )
        return
    if not names or policy not in ("check", "install"):
        return
    told = f"Kernel {' and '.join(bare)} has no headers; " if bare else ""
    told = f"{told}building the module needs {', '.join(names)}."
    command, given = install_command(case.facts, names), case.input("driver_source")
    if policy == "install" and given in ("package", "runfile") and _pinned(draft, case, names):
        return
    if policy == "check":
        draft.stop("prerequisites_missing", told, f"{command}; or set {ours('driver_headers')}: install.")
    elif given in ("package", "runfile"):
        step_before(
            draft,
            id=PREREQUISITES_STEP,
            component="headers and build tools",
            now=None,
            wanted=list(names),
            reason=told,
            after="",
        )
    else:
        step = f"{command}; {ours('driver_source')} is {given}, so this run does not."
        draft.caution("prerequisites_missing", told, step)


def _pinned(draft: Draft, case: Case, names: t.Sequence[str]) -> bool:
    """Say which packages to install are excluded on the host; True when that stops the run.

    A hold and a version lock are left to the package manager, which knows whether the installed version is enough.
    """
    allowed = case.input("driver_package_allowed")
    for pin in case.facts["pins"] or ():
        found = [name for name in names if is_pinned(name, [pin["package"]]) and not is_pinned(name, allowed)]
        # A preference for a version lets that version be installed.
        if not found or pin["by"] not in ("exclude", "preferences"):
            continue
        where = f"{pin['path']} line {pin['line']}"
        detail = f"{', '.join(found)} cannot be installed: {where} excludes {pin['package']}"
        remedy = f"Change that line, or name the packages in {ours('driver_package_allowed')}."
        if pin["by"] == "exclude" and not pin["repository"]:
            draft.stop("packages_excluded", f"{detail}.", remedy)
            return True
        if pin["by"] == "exclude":
            draft.caution("packages_excluded", f"{detail} from {pin['repository']}.", remedy)
        else:
            draft.caution(
                "packages_excluded",
                f"{', '.join(found)} may not be installable: {where} has a preference for {pin['package']}.",
                "Change that preference when apt finds no candidate.",
            )
    return False


def kernel_hold(draft: Draft, case: Case) -> None:
    """Where asked for, keep the kernel: hold its packages and those that pull in the newest."""
    facts, given = case.facts, case.input("driver_source")
    if not case.input("driver_kernel_hold") or not case.needs_driver:
        return
    if given not in ("package", "runfile"):
        draft.caution(
            "kernel_not_held",
            f"{ours('driver_kernel_hold')} is true, and {ours('driver_source')} is {given}.",
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
    missing = [name for name in names if not is_pinned(name, facts["holds"])]
    if missing:
        step_before(
            draft,
            id=HOLD_STEP,
            component="kernel packages",
            now=sorted(set(names) - set(missing)),
            wanted=missing,
            reason=f"The kernel stays at {facts['kernel']['running']}.",
            after="",
        )


def kernel_guard(draft: Draft, case: Case) -> None:
    """Every kernel that could boot has the module; and the next one to arrive will have headers."""
    if not case.needs_driver or case.driver["installed_via"] in ("none", "container") or will_install(draft):
        return
    built = {name for step in draft.steps if step.id == BUILD_STEP for name in step.wanted}
    record = case.fails("kernels_have_module")
    for row in record.evidence["kernels"] if record else ():
        if row["module"] is False and not row["running"] and row["kernel"] not in built:
            _without_module(draft, case, row)
    metas = header_metas(case.facts)
    held = case.facts["holds"] or []
    images = ["linux-image-" + name[len("linux-headers-") :] for name in metas]
    free = [image for image in images if not is_pinned(image, held)]
    if case.driver["dkms"] and free and not case.input("driver_kernel_hold"):
        draft.caution(
            "next_kernel_without_headers",
            f"{', '.join(free)} brings kernels without headers, so the driver is not built for them.",
            f"{install_command(case.facts, metas)}, or set {ours('driver_kernel_hold')}: true.",
            severity=INFO,
        )


def _without_module(draft: Draft, case: Case, row: Data) -> None:
    """Say of one kernel that it has no module: of the next one by the check of the next boot, which is a warning."""
    following = case.fails("reboot_not_pending") if row["next_boot"] else None
    if following is not None and not following.evidence["without_module"]:
        following = None
    record = following or case.fails("kernels_have_module")
    if record is None:
        return
    outside = judge_kernel(case, row["kernel"]).state == _support.UNLISTED
    draft.caution_for(
        record,
        "Remove that kernel, or keep it from booting."
        if outside
        else f"Install its headers and run dkms autoinstall -k {row['kernel']}, or remove the kernel.",
        f"Kernel {row['kernel']} {'boots next' if row['next_boot'] else 'is installed'} and has no module of the driver"
        f"{'' if row['headers'] else ', nor headers to build one'}"
        f"{'; it is outside the support matrix' if outside else ''}.",
    )


def loadable(draft: Draft, case: Case) -> None:
    """Nothing keeps the module from being loaded: known before the old driver goes."""
    never, later = case.fails("module_not_blocked"), case.fails("module_loads_at_boot")
    if never and (will_install(draft) or draft.will(RELOAD_STEP, FIRMWARE_STEP)):
        draft.stop_for(never)
    elif never:
        draft.caution_for(never)
    if later:
        draft.caution_for(later)


def hardened(draft: Draft, case: Case) -> None:
    """Where DKMS builds, scripts of the driver's source can run."""
    if "noexec" not in case.mount_options("/var") or not (draft.will(BUILD_STEP) or will_install(draft)):
        return
    draft.caution(
        "build_noexec",
        f"DKMS builds below {DKMS_DIR}, and {case.facts['mounts']['/var'] or '/var'} is mounted noexec: "
        "scripts of the driver's source cannot run there.",
        "Where the build fails, mount it exec (mount -o remount,exec), "
        "or set dkms_tree in /etc/dkms/framework.conf to a directory on another file system.",
    )


def disk(draft: Draft, case: Case) -> None:
    """Disk space for an installation, added up where several directories lie on one file system."""
    wanted_mib = case.input("driver_disk_free")
    if not will_install(draft) or wanted_mib <= 0:
        return
    needs: dict[str, float] = {}
    paths: dict[str, list[str]] = {}
    for path, share in SHARES:
        mount = case.facts["mounts"][path] or path
        needs[mount] = needs.get(mount, 0.0) + share * wanted_mib
        paths.setdefault(mount, []).append(path)
    for mount, amount in needs.items():
        free = case.facts["disk"][paths[mount][0]]
        if free is None:
            draft.caution(
                "disk_unknown", f"The free space of the file system {mount} could not be found out.", "Run as root."
            )
        elif free < amount * MIB:
            draft.stop(
                "disk_full",
                f"The file system {mount} (for {' and '.join(paths[mount])}) has {free // MIB} MiB free, "
                f"and {int(amount)} MiB are wanted.",
                "Free space there (old kernels, package caches), "
                f"or lower {ours('driver_disk_free')} from {wanted_mib}.",
            )


def boot_room(draft: Draft, case: Case) -> None:
    """Space in /boot for one more initial ram disk: packages make a new one before they remove the old one."""
    facts = case.facts
    wanted_mib, free, size = case.input("driver_disk_free"), facts["disk"]["/boot"], facts["initramfs"] or 0
    changes = draft.will(DRIVER_STEP, PREREQUISITES_STEP, BUILD_STEP)
    if not changes or wanted_mib <= 0 or free is None or any(stop.code == "disk_full" for stop in draft.stops):
        return
    mount = facts["mounts"]["/boot"] or "/boot"
    old = [row["kernel"] for row in facts["kernel"]["guard"] if not row["running"] and not row["next_boot"]]
    remedy = (
        f"Remove kernels that are no longer used: {', '.join(old)}."
        if old
        else "Enlarge it; only the running and the next kernel are installed, so there is none to remove."
    )
    present = f"; the present one has {-(-size // MIB)} MiB" if size else ""
    if free < max(size, 1) and facts["os"]["family"] == "debian":
        draft.stop(
            "boot_full",
            f"The file system {mount} has {free // MIB} MiB free, "
            f"and the packages of this change make an initial ram disk there{present}.",
            remedy,
        )
    elif free < max(size, BOOT_SHARE * wanted_mib * MIB) and mount not in [
        facts["mounts"][path] or path for path, _share in SHARES
    ]:
        draft.caution(
            "disk_low",
            f"The file system {mount} has {free // MIB} MiB free, "
            f"and an initial ram disk may need {int(size // MIB or BOOT_SHARE * wanted_mib)} MiB.",
            remedy,
        )


Part = t.Callable[[Draft, Case], None]
BEFORE_DRIVER: tuple[Part, ...] = (support, sdk, kernel_line, pciehp)
AFTER_DRIVER: tuple[Part, ...] = (
    source,
    prerequisites,
    kernel_hold,
    secure_boot,
    firmware,
    kernel_guard,
    loadable,
    hardened,
    disk,
    boot_room,
)
# Kernels, headers and room come with the image of a host.
ON_IMAGE: tuple[Part, ...] = (secure_boot, firmware, loadable)
