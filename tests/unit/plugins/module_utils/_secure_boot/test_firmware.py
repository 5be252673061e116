# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secure Boot from variables and from mokutil."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import DENIED, Host, Probe
from ansible_collections.rebellions.npu.plugins.module_utils._secure_boot import firmware as secureboot
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import Tree, case

B01 = "B01-secureboot-state"
TEXTS = case(B01, "mokutil-outputs.txt").split("---\n")
MEANINGS = ["enabled", "disabled", "disabled_setup_mode", "unsupported", "unsupported", "enabled_not_enforced"]
VARS = "/sys/firmware/efi/efivars/"
GLOBAL = "-8be4df61-93ca-11d2-aa0d-00e098032b8c"
SHIM = "-605dab50-e046-4300-abb6-3dd810dd8b23"


def test_B01_secureboot_state_every_text_has_a_meaning() -> None:
    assert len(TEXTS) == len(MEANINGS) == 6


@pytest.mark.parametrize(("text", "expected"), list(zip(TEXTS, MEANINGS)))
def test_B01_secureboot_state_mokutil(text: str, expected: str) -> None:
    assert secureboot.parse_mokutil(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SECUREBOOT ENABLED\r\n", "enabled"),
        ("Secure Boot: enabled (user)", "enabled"),
        ("Secure Boot is disabled", "disabled"),
        ("Secure Boot: disabled (setup)", "disabled_setup_mode"),
        ("SecureBoot disabled\nPlatform is in  Setup Mode", "disabled_setup_mode"),
        ("This system doesn\u2019t support Secure Boot", "unsupported"),
        ("This system does not support Secure Boot", "unsupported"),
        ("EFI variables not supported on this system", "unsupported"),
        ("SecureBoot enabled\nSecure Boot validation is disabled in shim", "enabled_not_enforced"),
        ("SecureBoot validation is disabled in shim", "unknown"),
        ("Cannot determine secure boot state.", "unknown"),
    ],
)
def test_B01_secureboot_state_other_wordings(text: str, expected: str) -> None:
    assert secureboot.parse_mokutil(text) == expected


@pytest.mark.parametrize("text", ["", "mokutil: command failed", "Failed to read SecureBoot"])
def test_mokutil_that_says_nothing(text: str) -> None:
    assert secureboot.parse_mokutil(text) == "unknown"


def test_B01_secureboot_state_efivar_of_the_case(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    for line in case(B01, "efivar.hex").splitlines():
        name, _colon, text = line.partition(":")
        tree.write(VARS + name + GLOBAL, bytes.fromhex(text))
    assert secureboot.read_secure_boot(tree.host())[0] == "enabled"


@pytest.mark.parametrize(
    ("secure", "setup", "shim", "expected"),
    [
        (b"\x06\0\0\0\x01", b"\x06\0\0\0\0", None, "enabled"),
        (b"\x06\0\0\0\x01", None, b"\x06\0\0\0\x01", "enabled_not_enforced"),
        (b"\x06\0\0\0\0", b"\x06\0\0\0\0", None, "disabled"),
        (b"\x06\0\0\0\0", b"\x06\0\0\0\x01", None, "disabled_setup_mode"),
        (b"\x06\0\0\0\0", None, None, "disabled"),
        (b"\x01", None, None, "unknown"),
        (b"", None, None, "unknown"),
        (None, b"\x06\0\0\0\0", None, "unsupported"),
    ],
)
def test_B01_secureboot_state_variables(
    tmp_path: Path, secure: bytes | None, setup: bytes | None, shim: bytes | None, expected: str
) -> None:
    tree = Tree(tmp_path).write(VARS + "Boot0000" + GLOBAL, "x")
    for name, value in (("SecureBoot" + GLOBAL, secure), ("SetupMode" + GLOBAL, setup), ("MokSBStateRT" + SHIM, shim)):
        if value is not None:
            tree.write(VARS + name, value)
    assert secureboot.read_secure_boot(tree.host())[0] == expected


def test_B01_secureboot_state_empty_efivars_is_unknown(tmp_path: Path) -> None:
    state, probe = secureboot.read_secure_boot(Tree(tmp_path).folder(VARS).host())
    assert (state, probe.state) == ("unknown", "absent")


def test_empty_efivars_asks_mokutil(tmp_path: Path) -> None:
    tree = Tree(tmp_path).folder(VARS).program("/usr/bin/mokutil", "echo 'SecureBoot enabled'\n")
    assert secureboot.read_secure_boot(tree.host())[0] == "enabled"


def test_mokutil_without_the_variables_of_a_uefi_machine_knows_nothing(tmp_path: Path) -> None:
    tree = (
        Tree(tmp_path)
        .folder(VARS)
        .program("/usr/bin/mokutil", "echo 'EFI variables are not supported on this system' >&2; exit 1\n")
    )
    state, probe = secureboot.read_secure_boot(tree.host())
    assert (state, probe.state, probe.detail) == ("unknown", "absent", "efivarfs is empty or not mounted")


def test_mokutil_on_standard_error_with_an_exit_code(tmp_path: Path) -> None:
    tree = (
        Tree(tmp_path)
        .folder(VARS)
        .program("/usr/bin/mokutil", 'echo "This system doesn\'t support Secure Boot" >&2; exit 255\n')
    )
    assert secureboot.read_secure_boot(tree.host())[0] == "unsupported"


def test_bios_machine(tmp_path: Path) -> None:
    assert secureboot.read_secure_boot(Tree(tmp_path).folder("/sys/firmware/acpi").host())[0] == "unsupported"


def test_no_sysfs_says_nothing(tmp_path: Path) -> None:
    assert secureboot.read_secure_boot(Tree(tmp_path).host())[0] == "unknown"


class Refusing(Host):
    def read_bytes(self, path: str, limit: int = 64) -> Probe:
        return Probe(DENIED, None, os.strerror(13)) if "SecureBoot" in path else super().read_bytes(path, limit)


def test_denied_is_unknown_and_says_denied(tmp_path: Path) -> None:
    Tree(tmp_path).write(VARS + "SecureBoot" + GLOBAL, b"\x06\0\0\0\x01")
    state, probe = secureboot.read_secure_boot(Refusing(str(tmp_path)))
    assert (state, probe.state) == ("unknown", "denied")
