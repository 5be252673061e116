# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of the driver on disk: how it was installed, its DKMS builds, its signature, the next boot."""

from __future__ import annotations

import typing as t

from .._base.model import INFO, WARNING
from .._base.records import replace
from .._base.versions import compare, release_numbers, same_release
from .._host.host import ABSENT, FAILED, TOO_LARGE, VALUE
from .._kernel.blocked import BLACKLIST, DISABLED, INSTALL, REFUSED, place_of
from .._npu.driver import BUILT, DIFFERS
from .._secure_boot.firmware import ENABLED, UNSUPPORTED, enforcement
from .base import Context, Data, Scope, Verdict, verdict_of, without_npus

# Part of the scope of the driver, in a table of its own.
SCOPE = Scope("driver")

# Looks without which an absent driver is not known to be absent.
DRIVER_PROBES = ("module_loaded", "module_file", "dkms", "packages", "runfile_stamp", "driver_journal")
# States of dpkg between nothing and installed.
UNFINISHED = ("half-installed", "unpacked", "half-configured")
OF_NO_HOST = (None, "none", "container")


def _rows(context: Context) -> list[Data]:
    return list(context.part("driver").get("dkms") or [])


def _package(context: Context) -> Data:
    return context.part("driver").get("package") or {}


def _present(driver: Data) -> str | None:
    return driver.get("version_on_disk") or driver.get("version_loaded")


def _stopped(driver: Data) -> bool:
    """The kernel is known to have no module of the driver."""
    return driver.get("loaded") is False and driver.get("version_loaded") is None


@SCOPE.check()
def driver_installed(context: Context) -> Verdict | None:
    """A driver is on disk, unless every NPU belongs to virtual machines."""
    verdict = _installed(context)
    # Split cards whose functions all belong to virtual machines still need the host's driver, and block nothing.
    split = bool(context.npus) and not context.container_npus
    return replace(verdict, severity=WARNING) if split and not verdict.ok else verdict


def _installed(context: Context) -> Verdict:
    driver = context.part("driver")
    via = driver.get("installed_via")
    evidence = {"installed_via": via, "version": driver.get("version_on_disk"), "root": driver.get("root")}
    if context.npus and not context.served_npus:
        return Verdict(True, "not needed: every NPU is given to virtual machines", evidence)
    unknown = Verdict(
        None, "not known whether a driver is installed", evidence, "Read the problems of the driver facts."
    )
    if via in (None, "unknown") and not driver.get("version_on_disk"):
        return unknown
    if via == "none":
        return Verdict(False, "no driver is installed", evidence, "Install the driver.")
    if not _present(driver) and driver.get("loaded") is False and via != "container":
        if any(context.probe(name).get("state", VALUE) not in (VALUE, ABSENT) for name in DRIVER_PROBES):
            return unknown
        return _broken_off(context, evidence)
    return Verdict(True, "%s, installed by %s" % (driver.get("version_on_disk") or "version not known", via), evidence)


def _broken_off(context: Context, evidence: Data) -> Verdict:
    built = [row["version"] for row in _rows(context) if row["state"] in BUILT]
    if not built:
        return Verdict(False, "an installation of the driver was interrupted", evidence, "Install the driver again.")
    return Verdict(
        False,
        "driver %s has no module for the running kernel" % built[-1],
        evidence,
        "Install the headers of that kernel and run dkms autoinstall, or boot a kernel that has the module.",
    )


@SCOPE.check(WARNING)
def driver_version_readable(context: Context) -> Verdict | None:
    """The version of the driver on disk has numbers that can be compared."""
    version = context.part("driver").get("version_on_disk")
    if not version:
        return None
    if not release_numbers(version):
        return Verdict(
            False,
            "the driver version on disk is %r, which has no number" % version,
            {"version": version},
            "Install a driver whose module and package report their version.",
        )
    return Verdict(True, "version %s" % version, {"version": version})


@SCOPE.check(WARNING)
def package_finished(context: Context) -> Verdict | None:
    """The package manager has finished what it began with the driver's package."""
    package = _package(context)
    if not package:
        return None
    evidence = {"package": package.get("name"), "version": package.get("version"), "state": package.get("state")}
    detail = "the package %s %s is %s" % (package.get("name"), package.get("version"), package.get("state"))
    if package.get("state") in UNFINISHED:
        return Verdict(False, detail, evidence, "Run dpkg --configure -a, which finishes it or says why it cannot.")
    return Verdict(True, detail, evidence)


@SCOPE.check(WARNING)
def module_file_intact(context: Context) -> Verdict | None:
    """The module file of the running kernel exists where expected, can be read, and is built for that kernel.

    Only what DKMS says to have built for this very kernel is held to its release: other builds may serve several
    kernels.
    """
    driver, probe = context.part("driver"), context.probe("module_file")
    path, running = driver.get("module_path"), context.part("kernel").get("running")
    built = any(row["kernel"] == running and row["state"] == "installed" for row in _rows(context))
    # Only the package manager knows of the driver: there is no module to load.
    bare = bool(
        _stopped(driver)
        and driver.get("version_on_disk")
        and _package(context)
        and not any(row["state"] in BUILT for row in _rows(context))
        and probe.get("state") == ABSENT
    )
    release = str(driver.get("vermagic") or "").partition(" ")[0]
    evidence = {"path": path, "kernel": running, "built_for": release or None, "package_only": bare}
    step = "Build it again (dkms build --force, dkms install --force), or install the driver again."
    bad = ""
    if not path and built and probe.get("state") == ABSENT:
        bad = "the module file that DKMS installed for kernel %s is missing" % running
    elif path and probe.get("state") in (FAILED, TOO_LARGE):
        bad = "the module file cannot be read: %s" % str(probe.get("detail") or path).rstrip(".")
    elif path and built and release and release != running:
        bad = "the module file %s is built for kernel %s" % (path, release)
    elif bare:
        package = _package(context)
        bad = "the package %s %s has no module for the running kernel" % (package.get("name"), package.get("version"))
    if bad:
        return Verdict(False, bad, evidence, step)
    if probe.get("state") not in (None, VALUE, ABSENT):
        return Verdict(None, "the module file is not known: %s" % probe["state"], evidence, "Run as root.")
    return Verdict(True, "%s can be read" % path, evidence) if path else None


def _stamped_beside(driver: Data, number: str | None) -> str:
    """The version of a stamp; empty for one without a version and for that of the package `number` itself."""
    stamp = driver.get("stamp") or {}
    version = str(stamp.get("version") or "")
    return "" if stamp.get("source") == "package" and same_release(version, number) else version


@SCOPE.check()
def module_not_blocked(context: Context) -> Verdict | None:
    """No line of modprobe.d, no kernel parameter and no sysctl keeps the module from being loaded at all."""
    verdict = _unblocked(context, (INSTALL, REFUSED, DISABLED), "nothing keeps the module from being loaded")
    # A module that is loaded already is lost at the next load only.
    return replace(verdict, severity=WARNING) if verdict and context.part("driver").get("loaded") else verdict


@SCOPE.check(WARNING)
def module_loads_at_boot(context: Context) -> Verdict | None:
    """The module is not on a blacklist, which would keep it from being loaded at the next boot."""
    return _unblocked(context, (BLACKLIST,), "the module is on no blacklist", "; it is not loaded at the next boot")


def _unblocked(context: Context, kinds: t.Sequence[str], good: str, effect: str = "") -> Verdict | None:
    blocks = context.part("driver").get("blocked_by")
    if blocks is None or not context.served_npus:
        return None
    bad = [block for block in blocks if block["kind"] in kinds]
    denied = context.probe("modprobe_d")
    if not bad and denied.get("state", VALUE) != VALUE:
        return Verdict(None, str(denied.get("detail")), {}, "Run as root.")
    told = ["%s says %s" % (place_of(block), block["text"]) for block in bad]
    disabled = any(block["kind"] == DISABLED for block in bad)
    step = "Remove that, and reboot." if disabled else "Remove that, and update the initramfs."
    return Verdict(not bad, "; ".join(told) + effect if bad else good, {"lines": bad}, step)


@SCOPE.check(WARNING)
def one_driver_installed(context: Context) -> Verdict | None:
    """The driver is installed once: not by the package of former releases and in another way as well."""
    driver, package = context.part("driver"), _package(context)
    if not driver.get("legacy"):
        return None
    rows, least = _rows(context), context.profile.legacy_below
    newer = sorted({row["version"] for row in rows if (context.profile.major_of(row["version"]) or 0) >= least})
    present, number = _present(driver), package.get("version")
    beside = bool(present and number and compare(release_numbers(present), release_numbers(number)) > 0)
    other = _stamped_beside(driver, number) or ", ".join(newer) or (present if beside else "")
    evidence = {"package": number, "other": other or None, "package_beside": beside}
    if not other:
        return Verdict(True, "only the package of former releases is here", evidence)
    left = sorted({row["version"] for row in rows} - set(newer))
    old = (
        "the package %s %s" % (package["name"], number)
        if package
        else "what the former package left in DKMS (%s)" % ", ".join(left)
    )
    act = "remove the package" if package else "remove that from DKMS"
    return Verdict(
        False,
        "%s and another installation of the driver (%s) are both here" % (old, other),
        evidence,
        "Drain the host, %s, then install the driver again." % act,
    )


@SCOPE.check(WARNING)
def driver_has_one_owner(context: Context) -> Verdict | None:
    """The driver belongs to the host or to a driver container, not to both."""
    driver = context.part("driver")
    root, via = driver.get("container_root"), driver.get("installed_via")
    if not root:
        return None
    evidence = {"container_root": root, "installed_via": via}
    if via in ("container", "none"):
        return Verdict(True, "only a driver container brings a driver", evidence)
    return Verdict(
        False,
        "a driver of the host (%s) and a driver root of a container (%s) are both here" % (via, root),
        evidence,
        "Keep one: remove the driver DaemonSet from this node, or the driver from the host.",
    )


@SCOPE.check(WARNING)
def dkms_one_version(context: Context) -> Verdict | None:
    """DKMS has one version of the driver."""
    rows = _rows(context)
    versions = sorted({row["version"] for row in rows})
    if not versions:
        return None
    running = context.part("kernel").get("running")
    now = sorted({row["version"] for row in rows if row["kernel"] == running and row["state"] == "installed"})
    evidence = {"versions": versions, "running_kernel": now}
    if len(versions) == 1:
        return Verdict(True, "DKMS has driver %s" % versions[0], evidence)
    return Verdict(
        False,
        "DKMS has several versions of the driver: %s; for the running kernel it installed %s"
        % (", ".join(versions), ", ".join(now) or "none"),
        evidence,
        "Remove those that are not wanted (dkms remove --all), or a kernel update builds them again.",
    )


def _in_state(context: Context, state: str) -> list[Data]:
    return [row for row in _rows(context) if row["state"] == state]


@SCOPE.check(WARNING)
def dkms_builds(context: Context) -> Verdict | None:
    """No build of the driver by DKMS has failed."""
    if not _rows(context):
        return None
    failed = _in_state(context, "failed")
    return verdict_of(
        ["DKMS could not build %s %s for kernel %s" % (row["module"], row["version"], row["kernel"]) for row in failed],
        [],
        "no build has failed",
        {"failed": [dict(row) for row in failed]},
        "Read make.log in the build directory of that version; "
        "missing headers and an unsupported kernel are the usual causes.",
    )


@SCOPE.check(WARNING)
def dkms_module_in_place(context: Context) -> Verdict | None:
    """The module file of the running kernel is of a version that DKMS has installed for this kernel."""
    driver, running = context.part("driver"), context.part("kernel").get("running")
    path, version = driver.get("module_path"), driver.get("version_on_disk")
    rows = [row for row in _rows(context) if row["kernel"] == running and row["state"] in ("installed", DIFFERS)]
    if not rows or not path or not version:
        return None
    versions = sorted({row["version"] for row in rows})
    evidence = {"path": path, "version": version, "dkms": versions}
    if not any(row["state"] == "installed" and same_release(row["version"], version) for row in rows):
        return Verdict(
            False,
            "%s is %s, and DKMS has installed %s for this kernel" % (path, version, ", ".join(versions)),
            evidence,
            "Run dkms install --force for the wanted version, or remove the other file and run depmod -a.",
        )
    return Verdict(True, "%s is the module of DKMS" % path, evidence)


@SCOPE.check(WARNING)
def dkms_sources(context: Context) -> Verdict | None:
    """DKMS has the source of every version of the driver, so that it can build it for new kernels."""
    if not _rows(context):
        return None
    broken = _in_state(context, "broken")
    return verdict_of(
        [
            "DKMS has %s %s without its source, so it is built for no other kernel" % (row["module"], row["version"])
            for row in broken
        ],
        [],
        "every version has its source",
        {"without_source": [dict(row) for row in broken]},
        "Install that version again, or remove it from DKMS when it is not wanted.",
    )


def _why_enforced(context: Context) -> str:
    return enforcement(context.facts.get("secure_boot"), context.part("mok").get("enforced_by"))


def _sign_it(context: Context) -> str:
    """What to do about a module without a signature."""
    state, by = context.facts.get("secure_boot"), context.part("mok").get("enforced_by")
    key = "that the kernel has built in" if state == UNSUPPORTED else "enrolled by mokutil --import"
    off = "turn Secure Boot off" if state == ENABLED else "start the kernel without %s" % by
    return "Sign the module with a key %s, or %s." % (key, off)


@SCOPE.check()
def signature_accepted(context: Context) -> Verdict | None:
    """Where signatures are enforced the module is signed with a key that this machine accepts.

    A loaded module was accepted.
    """
    why = _why_enforced(context)
    if not why:
        return None
    return without_npus(context, _accepted(context, why))


def _accepted(context: Context, why: str) -> Verdict:
    driver, mok = context.part("driver"), context.part("mok")
    signer, accepted = driver.get("signer"), mok.get("signer_enrolled")
    evidence = {
        "secure_boot": context.facts.get("secure_boot"),
        "enforced_by": mok.get("enforced_by"),
        "signer": signer,
        "loaded": driver.get("loaded"),
        "signer_enrolled": accepted,
        "key": mok.get("state"),
    }
    if driver.get("loaded"):
        return Verdict(True, "signed by %s" % (signer or "a key the kernel accepted"), evidence)
    if driver.get("signed") is False:
        return Verdict(False, "%s and the module is not signed" % why, evidence, _sign_it(context))
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


@SCOPE.check(WARNING)
def next_load_accepted(context: Context) -> Verdict | None:
    """Where signatures are enforced and the driver is loaded, the module file that the next load reads is signed."""
    driver, why = context.part("driver"), _why_enforced(context)
    if not why or not driver.get("loaded") or driver.get("signed") is None:
        return None
    evidence = {"path": driver.get("module_path"), "signed": driver["signed"], "signer": driver.get("signer")}
    if driver["signed"]:
        return Verdict(True, "%s is signed" % (driver.get("module_path") or "the module file"), evidence)
    return Verdict(
        False,
        "%s and %s carries no signature: the next load is refused"
        % (why, driver.get("module_path") or "the module file"),
        evidence,
        _sign_it(context),
    )


@SCOPE.check(INFO)
def kernels_have_module(context: Context) -> Verdict | None:
    """Every installed kernel that could boot has the driver's module."""
    rows = context.part("kernel").get("guard") or []
    # A container without the modules of its kernel tells nothing of the kernels of the machine below, and an image
    # nothing of those of other images.
    rows = [row for row in rows if row["running"]] if context.part("os").get("image") else rows
    if context.facts.get("in_container") and context.part("kernel").get("module_tree") is False:
        return None
    if not context.served_npus or not rows or context.part("driver").get("installed_via") in OF_NO_HOST:
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
        "Install the headers of these kernels and build the module (dkms autoinstall -k KERNEL), "
        "or remove the kernels.",
    )


@SCOPE.check(WARNING)
def reboot_not_pending(context: Context) -> Verdict | None:
    """No reboot is waiting, and the kernel of the next boot has the driver's module, or headers to build it."""
    kernel = context.part("kernel")
    following = kernel.get("next_boot")
    built = kernel.get("modules") or {}
    evidence: dict[str, t.Any] = {
        "reboot_required": context.facts.get("reboot_required"),
        "running": kernel.get("running"),
        "next_boot": following,
        "without_module": False,
    }
    # The modules of the next image are not seen from this one.
    if context.served_npus and following and not context.part("os").get("image"):
        if built.get(following) is False:
            lack = _lacks_module(context, kernel, str(following))
            if lack is not None:
                return Verdict(False, lack[0], dict(evidence, without_module=True), lack[1])
        elif built.get(following) is None:
            return Verdict(
                None,
                "not known whether %s has the %s module" % (following, context.profile.module),
                evidence,
                "Run as root.",
            )
    if context.facts.get("reboot_required"):
        reasons = "; ".join(str(item["detail"]) for item in context.facts.get("reboot_reasons") or [])
        return Verdict(
            False,
            "a reboot is pending%s" % (": " + reasons if reasons else ""),
            evidence,
            "Reboot at the next window.",
        )
    return Verdict(True, "no reboot is pending", evidence)


def _lacks_module(context: Context, kernel: Data, following: str) -> tuple[str, str] | None:
    """Detail and next step when the next boot is without the driver; None where no driver of the host is expected."""
    own = context.part("driver").get("installed_via") not in OF_NO_HOST
    headers = (kernel.get("headers") or {}).get(following)
    if not own and (headers or following == kernel.get("running")):
        return None
    detail = "the next boot is into %s, which has no %s module" % (following, context.profile.module)
    if headers:
        return detail, "Build it before the reboot: dkms autoinstall -k %s." % following
    return (
        detail + " and no headers to build it",
        "Install the headers package of that kernel and build the module, or hold the kernel at %s."
        % kernel.get("running"),
    )
