# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the kernel will accept the driver's module under Secure Boot, and whether the firmware of the cards fits the driver. Pure."""

from __future__ import annotations

import typing as t

from . import _mok
from ._model import EVICT
from ._plan_draft import DRIVER_ROLE, Draft, getter, needs_driver
from ._plan_driver import DRIVER_STEP
from ._plan_situation import wanted_version
from ._plan_support import SECURE_BOOT_STEP, Data, Rules, step_before, will_install
from ._secureboot import ENABLED, UNKNOWN
from ._versions import same_release

FIRMWARE_STEP = "driver.firmware"
ENROL = "enrol"
FLASH = "flash"


def _accepted(facts: Data, installing: bool) -> t.Optional[bool]:
    """Whether the kernel accepts the module of this plan; None when that cannot be told."""
    driver, mok = facts["driver"], facts["mok"]
    if driver["loaded"] and not installing:
        return True
    if mok["signer_enrolled"]:
        # A new release comes from the same signer as the one that is there.
        return True
    if installing or driver["dkms"]:
        if mok["state"] == _mok.ENROLLED:
            return True if installing and mok["key_present"] else False
        return None if mok["state"] == _mok.UNKNOWN else False
    return False if driver["signed"] is False else mok["signer_enrolled"]


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
    if mok["state"] == _mok.PENDING:
        return "%s The password is the one that was given with the request." % _mok.CONSOLE_STEPS
    if mok["state"] == _mok.ENROLLED and mok["key_present"]:
        return "The key is enrolled: build the module again, so that it is signed (dkms build --force, dkms install --force), and load it."
    enrol = "set %s_driver_secure_boot: enrol to have the request prepared" % prefix
    vendor = "a driver whose module is signed with a key that is enrolled already needs neither"
    if mok["state"] == _mok.NOT_ENROLLED and mok["key_present"]:
        return "Run mokutil --import %s with a one-time password. %s Or %s; %s." % (mok["certificate"], _mok.CONSOLE_STEPS, enrol, vendor)
    return "%s%s, a key included. %s But %s." % (enrol[0].upper(), enrol[1:], _mok.CONSOLE_STEPS, vendor)


def secure_boot(draft: Draft, wanted: Data, facts: Data, matrix: Rules, prefix: str) -> None:
    """Under Secure Boot the module is signed with a key that this machine accepts, or what the console needs is said or prepared."""
    driver, installing = facts["driver"], will_install(draft)
    if facts["secure_boot"] not in (ENABLED, UNKNOWN) or not needs_driver(facts):
        return
    if not installing and driver["installed_via"] in ("none", "container"):
        return
    accepted = _accepted(facts, installing)
    if accepted:
        return
    if facts["secure_boot"] == UNKNOWN:
        if installing:
            draft.caution(
                "secure_boot_unknown",
                "Whether Secure Boot is on could not be found out.",
                "Mount efivarfs or install mokutil; if it is on, an unsigned module is refused when it is loaded.",
            )
        return
    if wanted["%s_driver_secure_boot" % prefix] == ENROL and not (facts["mok"]["state"] == _mok.ENROLLED and facts["mok"]["key_present"]):
        step_before(
            draft,
            id=SECURE_BOOT_STEP,
            component="machine owner's key",
            now=facts["mok"]["state"],
            wanted=_mok.ENROLLED,
            reason="Secure Boot is on, and %s." % _cause(facts, installing),
            after="",
        )
    elif accepted is None:
        draft.caution(
            "secure_boot_unknown",
            "Secure Boot is on, and whether this machine accepts the signer of the module could not be found out.",
            "Run as root with efivarfs mounted; mokutil --list-enrolled shows what is accepted.",
        )
    else:
        draft.stop("secure_boot_unsigned", "Secure Boot is on, and %s." % _cause(facts, installing), _remedy(facts, prefix))


def firmware(draft: Draft, wanted: Data, facts: Data, matrix: Rules, prefix: str) -> None:
    """Every card's firmware carries the release of the driver; another is told, or flashed where that is asked for."""
    get = getter(wanted, prefix + "_driver")
    installing = will_install(draft)
    driver = facts["driver"]
    release = wanted_version(wanted, facts, prefix) if installing else driver["version_on_disk"] or driver["version_loaded"]
    if get("firmware") == "ignore" or not needs_driver(facts) or not release:
        return
    cards = [npu for npu in facts["npus"] if npu["function"] == "pf" and npu["state"] not in ("passthrough", "unreachable") and npu["firmware"]]
    other = {npu["address"]: npu["firmware"] for npu in cards if not same_release(npu["firmware"], release)}
    if not other:
        return
    told = "The firmware is %s, and the driver %s %s." % (
        ", ".join("%s on %s" % (version, address) for address, version in sorted(other.items())), "will be" if installing else "is", release)
    if get("firmware") != FLASH:
        draft.caution("firmware_differs", told, "Set %s_driver_firmware: flash with %s_driver_firmware_dir, or flash it by hand while the driver is unloaded."
                      % (prefix, prefix))
    elif not get("firmware_dir"):
        draft.stop("firmware_dir_missing", told, "Set %s_driver_firmware_dir to the directory of the firmware files on the host." % prefix)
    elif not installing and not get("replace"):
        draft.stop(
            "firmware_flash_not_allowed",
            told,
            "Flashing unloads the driver: set %s_driver_replace: true, or %s_driver_firmware: compare." % (prefix, prefix),
        )
    else:
        draft.step(
            id=FIRMWARE_STEP,
            role=DRIVER_ROLE,
            component="firmware",
            now=other,
            wanted=release,
            reason="The firmware of %d card%s is of another release than the driver." % (len(other), "" if len(other) == 1 else "s"),
            disruption=EVICT,
            after=DRIVER_STEP if installing else "",
        )
