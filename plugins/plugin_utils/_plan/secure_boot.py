# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the kernel will accept the driver's module under Secure Boot, and whether the firmware of the cards fits the driver. Pure."""

from __future__ import annotations

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import EVICT, INFO
from ansible_collections.rebellions.npu.plugins.module_utils._base.versions import compare, same_release, split_kernel
from ansible_collections.rebellions.npu.plugins.module_utils._secure_boot import mok as _mok
from ansible_collections.rebellions.npu.plugins.module_utils._secure_boot.firmware import (
    UNKNOWN,
    UNSUPPORTED,
    enforcement,
)

from .driver import DRIVER_STEP
from .situation import DRIVER_ROLE, Draft, getter, needs_driver, wanted_version
from .support import SECURE_BOOT_STEP, Data, Rules, step_before, will_install

FIRMWARE_STEP = "driver.firmware"
ENROL = "enrol"
FLASH = "flash"
LATER = "later"
# From here on the kernel takes keys of the machine owner for modules only when shim says so.
MACHINE_KEYRING = (5, 18)


def _accepted(facts: Data, installing: bool, built_here: bool) -> None | bool | str:
    """Whether the kernel accepts the module of this plan: None when that cannot be told, LATER when only the installed file tells its signer."""
    driver, mok = facts["driver"], facts["mok"]
    if driver["loaded"] and not installing:
        return True
    if mok["signer_enrolled"] and not installing:
        return True
    if installing and not driver["dkms"] and mok["signer_enrolled"]:
        # What is there came signed; what comes may be signed by another.
        return LATER
    if installing or driver["dkms"]:
        if mok["state"] == _mok.ENROLLED:
            accepted = installing and mok["key_present"]
            return LATER if accepted and not driver["dkms"] and not built_here else accepted
        return None if mok["state"] == _mok.UNKNOWN else False
    return False if driver["signed"] is False else mok["signer_enrolled"]


def _enforced(facts: Data) -> str:
    """Why unsigned modules are refused, as the beginning of a sentence; empty when they are not, or that cannot be told."""
    why = enforcement(facts["secure_boot"], facts["mok"]["enforced_by"])
    return why[:1].upper() + why[1:]


def _cause(facts: Data, installing: bool) -> str:
    driver, mok = facts["driver"], facts["mok"]
    if not installing and driver["signed"] is False:
        return "the driver's module is not signed"
    if not installing and driver["signer"]:
        return "the driver's module is signed by %s, a key that this machine does not accept" % driver["signer"]
    if mok["state"] == _mok.NO_KEY or not mok["key_present"]:
        return "there is no key to sign the driver's module with"
    waits = "whose enrolment waits for the console" if mok["state"] == _mok.PENDING else "which is not enrolled"
    return "DKMS signs the driver's module with the key %s, %s" % (mok["subject"] or mok["certificate"], waits)


def _remedy(facts: Data, prefix: str) -> str:
    mok = facts["mok"]
    if facts["secure_boot"] == UNSUPPORTED:
        return (
            "No key can be enrolled without UEFI: sign the module with a key that the kernel has built in, or start the kernel without %s."
            % (mok["enforced_by"])
        )
    if mok["state"] == _mok.PENDING:
        return "%s The password is the one that was given with the request." % _mok.CONSOLE_STEPS
    if mok["state"] == _mok.ENROLLED and mok["key_present"]:
        return "The key is enrolled: build the module again, so that it is signed (dkms build --force, dkms install --force), and load it."
    enrol = "set %s_driver_secure_boot: enrol to have the request prepared" % prefix
    vendor = "a driver whose module is signed with a key that is enrolled already needs neither"
    if mok["state"] == _mok.NOT_ENROLLED and mok["key_present"]:
        return "Run mokutil --import %s with a one-time password. %s Or %s; %s." % (
            mok["certificate"],
            _mok.CONSOLE_STEPS,
            enrol,
            vendor,
        )
    return "%s%s, a key included. %s But %s." % (enrol[0].upper(), enrol[1:], _mok.CONSOLE_STEPS, vendor)


def _told_later(draft: Draft, facts: Data, enforced: str) -> None:
    signer, accepted = facts["driver"]["signer"], facts["mok"]["signer_enrolled"]
    draft.caution(
        "secure_boot_signer_later",
        "%s, and which key has signed the new module is known only when it is installed%s."
        % (enforced, "; that of the present one, %s, is accepted" % signer if signer and accepted else ""),
        "The check signature_accepted looks at it after the installation; a module that is refused leads back to the driver before.",
    )


def secure_boot(draft: Draft, wanted: Data, facts: Data, matrix: Rules, prefix: str) -> None:
    """Where signatures are enforced the module is signed with a key that this machine accepts, or what the console needs is said or prepared."""
    get, driver, mok = getter(wanted, prefix + "_driver"), facts["driver"], facts["mok"]
    installing, enforced = will_install(draft), _enforced(facts)
    if not enforced and facts["secure_boot"] != UNKNOWN or not needs_driver(facts):
        return
    if not installing and driver["installed_via"] in ("none", "container"):
        return
    # Without headers nothing is built, as the inputs say: the driver brings its modules.
    accepted = _accepted(facts, installing, get("headers") != "ignore")
    usable = mok["state"] == _mok.ENROLLED and mok["key_present"]
    if not enforced:
        if installing and accepted is not True:
            draft.caution(
                "secure_boot_unknown",
                "Whether Secure Boot is on could not be found out.",
                "Mount efivarfs or install mokutil; if it is on, an unsigned module is refused when it is loaded.",
            )
    elif accepted is True:
        base = split_kernel(facts["kernel"]["running"] or "")[0]
        if (
            usable
            and mok["trusted"] is False
            and compare(base, MACHINE_KEYRING) >= 0
            and (installing or not driver["loaded"])
        ):
            draft.caution(
                "mok_not_trusted",
                "The key %s is enrolled, and the kernel is not told to take such keys for modules (MokListTrustedRT)."
                % (mok["subject"] or mok["certificate"]),
                "If the module is refused: mokutil --trust-mok, reboot, and confirm it at the console.",
                severity=INFO,
            )
    elif accepted == LATER:
        _told_later(draft, facts, enforced)
    elif get("secure_boot") == ENROL and not usable and facts["secure_boot"] != UNSUPPORTED:
        step_before(
            draft,
            id=SECURE_BOOT_STEP,
            component="machine owner's key",
            now=mok["state"],
            wanted=_mok.ENROLLED,
            reason="%s, and %s." % (enforced, _cause(facts, installing)),
            after="",
        )
    elif accepted is None:
        draft.caution(
            "secure_boot_unknown",
            "%s, and whether this machine accepts the signer of the module could not be found out." % enforced,
            "Run as root with efivarfs mounted; mokutil --list-enrolled shows what is accepted.",
        )
    else:
        draft.stop(
            "secure_boot_unsigned", "%s, and %s." % (enforced, _cause(facts, installing)), _remedy(facts, prefix)
        )


def firmware(draft: Draft, wanted: Data, facts: Data, matrix: Rules, prefix: str) -> None:
    """Every card's firmware carries the release of the driver; another is told, or flashed where that is asked for."""
    get = getter(wanted, prefix + "_driver")
    installing = will_install(draft)
    driver = facts["driver"]
    release = (
        wanted_version(wanted, facts, prefix) if installing else driver["version_on_disk"] or driver["version_loaded"]
    )
    if get("firmware") == "ignore" or not needs_driver(facts) or not release:
        return
    cards = [
        npu
        for npu in facts["npus"]
        if npu["function"] == "pf" and npu["state"] not in ("passthrough", "unreachable") and npu["firmware"]
    ]
    other = {npu["address"]: npu["firmware"] for npu in cards if not same_release(npu["firmware"], release)}
    if not other:
        return
    told = "The firmware is %s, and the driver %s %s." % (
        ", ".join("%s on %s" % (version, address) for address, version in sorted(other.items())),
        "will be" if installing else "is",
        release,
    )
    if get("firmware") != FLASH:
        draft.caution(
            "firmware_differs",
            told,
            "Set %s_driver_firmware: flash with %s_driver_firmware_dir, or flash it by hand while the driver is unloaded."
            % (prefix, prefix),
        )
    elif not get("firmware_dir"):
        draft.stop(
            "firmware_dir_missing",
            told,
            "Set %s_driver_firmware_dir to the directory of the firmware files on the host." % prefix,
        )
    elif not installing and not get("replace"):
        draft.stop(
            "firmware_flash_not_allowed",
            told,
            "Flashing unloads the driver: set %s_driver_replace: true, or %s_driver_firmware: compare."
            % (prefix, prefix),
        )
    else:
        draft.step(
            id=FIRMWARE_STEP,
            role=DRIVER_ROLE,
            component="firmware",
            now=other,
            wanted=release,
            reason="The firmware of %d card%s is of another release than the driver."
            % (len(other), "" if len(other) == 1 else "s"),
            disruption=EVICT,
            after=DRIVER_STEP if installing else "",
        )
