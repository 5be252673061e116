# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the kernel will accept the driver's module, and whether the firmware of the cards fits the driver. Pure."""

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
from .situation import DRIVER_ROLE, Case, Data, Draft, ours
from .support import SECURE_BOOT_STEP, step_before, will_install

FIRMWARE_STEP = "driver.firmware"
ENROL = "enrol"
FLASH = "flash"
LATER = "later"
# From here on the kernel takes keys of the machine owner for modules only when shim says so.
MACHINE_KEYRING = (5, 18)


def _accepted(facts: Data, installing: bool, built_here: bool) -> None | bool | str:
    """Whether the kernel accepts the module of this plan.

    None when that is unknown, LATER when only the installed file names its signer.
    """
    driver, mok = facts["driver"], facts["mok"]
    if driver["loaded"] and not installing:
        return True
    if mok["signer_enrolled"] and not installing:
        return True
    if installing and not driver["dkms"] and mok["signer_enrolled"]:
        # The present module came signed; the new one may be signed by another.
        return LATER
    if installing or driver["dkms"]:
        if mok["state"] == _mok.ENROLLED:
            accepted = installing and mok["key_present"]
            return LATER if accepted and not driver["dkms"] and not built_here else accepted
        return None if mok["state"] == _mok.UNKNOWN else False
    return False if driver["signed"] is False else mok["signer_enrolled"]


def _enforced(facts: Data) -> str:
    """Why unsigned modules are refused, as the beginning of a sentence; empty when they are not, or it is not known."""
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


def _remedy(facts: Data) -> str:
    mok = facts["mok"]
    if facts["secure_boot"] == UNSUPPORTED:
        return (
            "No key can be enrolled without UEFI: sign the module with a key that the kernel has built in, "
            f"or start the kernel without {mok['enforced_by']}."
        )
    if mok["state"] == _mok.PENDING:
        return f"{_mok.CONSOLE_STEPS} The password is the one that was given with the request."
    if mok["state"] == _mok.ENROLLED and mok["key_present"]:
        return (
            "The key is enrolled: build the module again, so that it is signed "
            "(dkms build --force, dkms install --force), and load it."
        )
    enrol = f"set {ours('driver_secure_boot')}: enrol to have the request prepared"
    vendor = "a driver whose module is signed with an enrolled key needs neither"
    if mok["state"] == _mok.NOT_ENROLLED and mok["key_present"]:
        return (
            f"Run mokutil --import {mok['certificate']} with a one-time password. {_mok.CONSOLE_STEPS} "
            f"Or {enrol}; {vendor}."
        )
    return f"S{enrol[1:]}, a key included. {_mok.CONSOLE_STEPS} But {vendor}."


def _signer_later(draft: Draft, facts: Data, enforced: str) -> None:
    signer, accepted = facts["driver"]["signer"], facts["mok"]["signer_enrolled"]
    present = f"; that of the present one, {signer}, is accepted" if signer and accepted else ""
    draft.caution(
        "secure_boot_signer_later",
        f"{enforced}, and which key signed the new module is known only when it is installed{present}.",
        "The check signature_accepted looks at it after the installation; "
        "when the module is refused, the run rolls back to the previous driver.",
    )


def _trust(draft: Draft, case: Case, usable: bool) -> None:
    """An enrolled key that the kernel is not told to take for modules, where a module is yet to be loaded."""
    facts, mok = case.facts, case.facts["mok"]
    base = split_kernel(facts["kernel"]["running"] or "")[0]
    if not usable or mok["trusted"] is not False or compare(base, MACHINE_KEYRING) < 0:
        return
    if will_install(draft) or not facts["driver"]["loaded"]:
        draft.caution(
            "mok_not_trusted",
            f"The key {mok['subject'] or mok['certificate']} is enrolled, "
            "but the kernel is not set to trust such keys for modules (MokListTrustedRT).",
            "If the module is refused: mokutil --trust-mok, reboot, and confirm it at the console.",
            severity=INFO,
        )


def secure_boot(draft: Draft, case: Case) -> None:
    """Where signatures are enforced the module is signed with a key that this machine accepts.

    Else what the console needs is said or prepared.
    """
    facts, driver, mok = case.facts, case.driver, case.facts["mok"]
    installing, enforced = will_install(draft), _enforced(facts)
    if not enforced and facts["secure_boot"] != UNKNOWN or not case.needs_driver:
        return
    if not installing and driver["installed_via"] in ("none", "container"):
        return
    # Without headers nothing is built, as the inputs say: the driver brings its modules.
    accepted = _accepted(facts, installing, case.input("driver_headers") != "ignore")
    usable = mok["state"] == _mok.ENROLLED and mok["key_present"]
    if not enforced:
        if installing and accepted is not True:
            draft.caution(
                "secure_boot_unknown",
                "Whether Secure Boot is on could not be found out.",
                "Mount efivarfs or install mokutil; if it is on, an unsigned module is refused when it is loaded.",
            )
    elif accepted is True:
        _trust(draft, case, usable)
    elif accepted == LATER:
        _signer_later(draft, facts, enforced)
    elif case.input("driver_secure_boot") == ENROL and not usable and facts["secure_boot"] != UNSUPPORTED:
        step_before(
            draft,
            id=SECURE_BOOT_STEP,
            component="machine owner's key",
            now=mok["state"],
            wanted=_mok.ENROLLED,
            reason=f"{enforced}, and {_cause(facts, installing)}.",
            after="",
        )
    else:
        _refused(draft, case, enforced, accepted)


def _refused(draft: Draft, case: Case, enforced: str, accepted: None | bool | str) -> None:
    """Say that the module is refused, or may be: the check says it of the present module, the plan of the next one."""
    installing = will_install(draft)
    record = None if installing else case.check("signature_accepted")
    if accepted is None:
        if record is not None and record.ok is None:
            draft.caution_for(record)
            return
        draft.caution(
            "secure_boot_unknown",
            f"{enforced}, and whether this machine accepts the signer of the module could not be found out.",
            "Run as root with efivarfs mounted; mokutil --list-enrolled shows what is accepted.",
        )
    elif record is not None and record.ok is False:
        draft.stop_for(record, _remedy(case.facts))
    else:
        draft.stop("secure_boot_unsigned", f"{enforced}, and {_cause(case.facts, installing)}.", _remedy(case.facts))


def firmware(draft: Draft, case: Case) -> None:
    """Every card's firmware has the release of the driver; another is reported, or flashed where that is asked for."""
    installing, driver = will_install(draft), case.driver
    release = case.version if installing else driver["version_on_disk"] or driver["version_loaded"]
    wish = case.input("driver_firmware")
    if wish == "ignore" or not case.needs_driver or not release:
        return
    cards = [
        npu
        for npu in case.facts["npus"]
        if npu["function"] == "pf" and npu["state"] not in ("passthrough", "unreachable") and npu["firmware"]
    ]
    other = {npu["address"]: npu["firmware"] for npu in cards if not same_release(npu["firmware"], release)}
    if not other:
        return
    found = ", ".join(f"{version} on {address}" for address, version in sorted(other.items()))
    told = f"The firmware is {found}, and the driver {'will be' if installing else 'is'} {release}."
    if wish != FLASH:
        _firmware_differs(draft, case, told)
    elif not case.input("driver_firmware_dir"):
        draft.stop(
            "firmware_dir_missing",
            told,
            f"Set {ours('driver_firmware_dir')} to the directory of the firmware files on the host.",
        )
    elif not installing and not case.input("driver_replace"):
        draft.stop(
            "firmware_flash_not_allowed",
            told,
            f"Flashing unloads the driver: set {ours('driver_replace')}: true, or {ours('driver_firmware')}: compare.",
        )
    else:
        draft.step(
            id=FIRMWARE_STEP,
            role=DRIVER_ROLE,
            component="firmware",
            now=other,
            wanted=release,
            reason=f"The firmware of {len(other)} card{'' if len(other) == 1 else 's'} is not the driver's release.",
            disruption=EVICT,
            after=DRIVER_STEP if installing else "",
        )


def _firmware_differs(draft: Draft, case: Case, told: str) -> None:
    """Say that firmware differs: the check says it of the present driver, the plan of the coming one."""
    step = (
        f"Set {ours('driver_firmware')}: flash with {ours('driver_firmware_dir')}, "
        "or flash it by hand while the driver is unloaded."
    )
    record = None if will_install(draft) else case.fails("firmware_is_driver")
    if record is not None:
        draft.caution_for(record, step)
    else:
        draft.caution("firmware_differs", told, step)
