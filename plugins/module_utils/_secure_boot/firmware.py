# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""UEFI Secure Boot, from the firmware's variables, else from mokutil."""

from __future__ import annotations

import re

from .._host.host import ABSENT, Host, Limit, Probe

EFI_DIR = "/sys/firmware/efi"
EFIVARS_DIR = "/sys/firmware/efi/efivars"
GLOBAL_GUID = "8be4df61-93ca-11d2-aa0d-00e098032b8c"
SHIM_GUID = "605dab50-e046-4300-abb6-3dd810dd8b23"

ENABLED = "enabled"
DISABLED = "disabled"
SETUP_MODE = "disabled_setup_mode"
NOT_ENFORCED = "enabled_not_enforced"
UNSUPPORTED = "unsupported"
UNKNOWN = "unknown"


def enforcement(state: str | None, by: str | None) -> str:
    """Why unsigned modules are refused, by the facts `secure_boot` and `mok.enforced_by`; else empty."""
    if state == ENABLED:
        return "Secure Boot is on"
    return "the kernel refuses unsigned modules by %s" % by if by else ""


def parse_mokutil(text: str) -> str:
    """Meaning of the output of `mokutil --sb-state` (both streams); its exit code is not reliable on BIOS machines."""
    lowered = " ".join(re.sub(r"secure[ -]?boot:?", "secureboot", text.lower().replace("\u2019", "'")).split())
    if re.search(
        r"efi variables (?:are )?not supported|(?:doesn't|does not) support secureboot|"
        r"secureboot (?:is )?(?:not supported|unsupported)",
        lowered,
    ):
        return UNSUPPORTED
    if re.search(r"secureboot (?:is )?enabled", lowered):
        return NOT_ENFORCED if "validation is disabled in shim" in lowered else ENABLED
    if re.search(r"secureboot (?:is )?disabled", lowered):
        return SETUP_MODE if re.search(r"setup mode|\(setup\)", lowered) else DISABLED
    return UNKNOWN


def decode_efivar(data: bytes) -> int | None:
    """Value of a one-byte EFI variable after its four attribute bytes, else None."""
    return data[4] if len(data) == 5 else None


def _variable(host: Host, name: str, guid: str) -> Probe:
    return host.read_bytes("%s/%s-%s" % (EFIVARS_DIR, name, guid), Limit.ATTRIBUTE)


def read_secure_boot(host: Host, timeout: float = 5.0) -> tuple[str, Probe]:
    """State and the probe that decided it.

    A machine without /sys/firmware/efi was not started by UEFI (unsupported). An efivars directory that is empty is not
    mounted, which says nothing (unknown).
    """
    efi = host.listdir(EFI_DIR)
    if not efi.ok:
        if efi.state == ABSENT and host.listdir("/sys/firmware").get([]):
            return UNSUPPORTED, efi
        return UNKNOWN, efi
    names = host.listdir(EFIVARS_DIR)
    if names.get([]):
        secure = _variable(host, "SecureBoot", GLOBAL_GUID)
        if secure.state == ABSENT:
            return UNSUPPORTED, secure
        value = decode_efivar(secure.get(b""))
        if value == 1:
            shim = decode_efivar(_variable(host, "MokSBStateRT", SHIM_GUID).get(b""))
            return (NOT_ENFORCED if shim == 1 else ENABLED), secure
        if value == 0:
            setup = decode_efivar(_variable(host, "SetupMode", GLOBAL_GUID).get(b""))
            return (SETUP_MODE if setup == 1 else DISABLED), secure
        if secure.ok:
            secure = Probe("failed", None, "the variable SecureBoot does not have one byte after its attributes")
        names = secure
    asked = host.run(["mokutil", "--sb-state"], timeout)
    if asked.ok:
        said = asked.value.out + "\n" + asked.value.err
        state = parse_mokutil(said)
        if state == UNSUPPORTED and "efi variables" in said.lower():
            # The machine was booted by UEFI; only efivarfs is not mounted.
            return UNKNOWN, Probe(ABSENT, None, "efivarfs is empty or not mounted")
        return state, asked
    return UNKNOWN, names if not names.ok else Probe(ABSENT, None, "efivarfs is empty or not mounted")
