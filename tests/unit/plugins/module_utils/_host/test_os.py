# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""os-release of odd and of usual systems."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._host.os import (
    describe_os,
    parse_os_release,
    read_arch,
    read_os,
)
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import Tree, case

F10 = "F10-os-release-odd"
ROWS: list[tuple[str, str, tuple[str | None, ...]]] = [
    ("F10-os-release-odd sid", case(F10, "debian-sid"), ("debian", None, "debian", "debian", None, "sid")),
    ("F10-os-release-odd mint", case(F10, "mint"), ("linuxmint", "22.1", "debian", "ubuntu", "24.04", "noble")),
    ("F10-os-release-odd pop", case(F10, "pop"), ("pop", "22.04", "debian", "ubuntu", "22.04", "jammy")),
    ("F10-os-release-odd ol", case(F10, "ol"), ("ol", "9.6", "redhat", "rhel", "9.6", None)),
    ("F10-os-release-odd rocky", case(F10, "rocky"), ("rocky", "9.7", "redhat", "rhel", "9.7", None)),
    (
        "ubuntu",
        'ID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\nVERSION_CODENAME=noble\n',
        ("ubuntu", "24.04", "debian", "ubuntu", "24.04", "noble"),
    ),
    (
        "debian",
        'ID=debian\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\n',
        ("debian", "12", "debian", "debian", "12", "bookworm"),
    ),
    (
        "alma",
        'ID="almalinux"\nID_LIKE="rhel centos fedora"\nVERSION_ID="10.2"\n',
        ("almalinux", "10.2", "redhat", "rhel", "10.2", None),
    ),
    ("rhel", 'ID="rhel"\nID_LIKE="fedora"\nVERSION_ID="10.0"\n', ("rhel", "10.0", "redhat", "rhel", "10.0", None)),
    (
        "unknown el",
        'ID="newel"\nID_LIKE="rhel fedora"\nVERSION_ID="3"\nPLATFORM_ID="platform:el9"\n',
        ("newel", "3", "redhat", "rhel", "9", None),
    ),
    ("fedora", "ID=fedora\nVERSION_ID=42\n", ("fedora", "42", "redhat", "fedora", "42", None)),
    (
        "LMDE",
        'ID=linuxmint\nID_LIKE=debian\nVERSION_ID="6"\nDEBIAN_CODENAME=bookworm\n',
        ("linuxmint", "6", "debian", "debian", "12", "bookworm"),
    ),
    (
        "derivative of a base not known",
        "ID=elementary\nID_LIKE=ubuntu\nVERSION_ID=9\nUBUNTU_CODENAME=zippy\n",
        ("elementary", "9", "debian", "ubuntu", None, "zippy"),
    ),
    ("suse", 'ID="sles"\nID_LIKE="suse"\nVERSION_ID="15.6"\n', ("sles", "15.6", "suse", "sles", "15.6", None)),
    (
        "F10-os-release-odd stream",
        'ID="centos"\nID_LIKE="rhel fedora"\nVERSION_ID="9"\nPLATFORM_ID="platform:el9"\n',
        ("centos", "9", "redhat", "rhel", "9", None),
    ),
    (
        "F10-os-release-odd amazon",
        'ID="amzn"\nID_LIKE="fedora"\nVERSION_ID="2023"\nPLATFORM_ID="platform:al2023"\n',
        ("amzn", "2023", "redhat", "amzn", "2023", None),
    ),
    (
        "F10-os-release-odd no el platform",
        'ID="anolis"\nID_LIKE="rhel fedora centos"\nVERSION_ID="8.6"\nPLATFORM_ID="platform:an8"\n',
        ("anolis", "8.6", "redhat", "rhel", None, None),
    ),
    (
        "F10-os-release-odd fedora remix",
        "ID=remix\nID_LIKE=fedora\nVERSION_ID=7\nPLATFORM_ID=platform:f40\n",
        ("remix", "7", "redhat", "fedora", "40", None),
    ),
    (
        "F10-os-release-odd RHEL_VERSION",
        'ID="rhcos"\nID_LIKE="rhel fedora"\nVERSION_ID="4.16"\nPLATFORM_ID="platform:el9"\nRHEL_VERSION=9.4\n',
        ("rhcos", "4.16", "redhat", "rhel", "9.4", None),
    ),
    (
        "F10-os-release-odd sles for sap",
        'ID="sles_sap"\nID_LIKE="suse"\nVERSION_ID="15.6"\n',
        ("sles_sap", "15.6", "suse", "sles", "15.6", None),
    ),
    (
        "F10-os-release-odd leap",
        'ID="opensuse-leap"\nID_LIKE="suse opensuse"\nVERSION_ID="15.6"\n',
        ("opensuse-leap", "15.6", "suse", "opensuse-leap", "15.6", None),
    ),
    (
        "F10-os-release-odd only a code name",
        'ID=zorin\nID_LIKE="Ubuntu debian"\nVERSION_ID="17"\nVERSION_CODENAME=jammy\n',
        ("zorin", "17", "debian", "ubuntu", "22.04", "jammy"),
    ),
    (
        "F10-os-release-odd oracular",
        "ID=pop\nID_LIKE=ubuntu\nVERSION_ID=24.10\nUBUNTU_CODENAME=oracular\n",
        ("pop", "24.10", "debian", "ubuntu", "24.10", "oracular"),
    ),
    (
        "F10-os-release-odd raspbian",
        "ID=raspbian\nID_LIKE=debian\nVERSION_ID=12\nVERSION_CODENAME=bookworm\n",
        ("raspbian", "12", "debian", "debian", "12", "bookworm"),
    ),
    (
        "F10-os-release-odd kali",
        "ID=kali\nID_LIKE=debian\nVERSION_ID=2024.4\nVERSION_CODENAME=kali-rolling\n",
        ("kali", "2024.4", "debian", "debian", None, "kali-rolling"),
    ),
    (
        "F10-os-release-odd byte order mark and CRLF",
        '\ufeffID=ubuntu\r\nVERSION_ID="24.04"\r\n',
        ("ubuntu", "24.04", "debian", "ubuntu", "24.04", None),
    ),
    (
        "F10-os-release-odd devuan",
        'ID=devuan\nID_LIKE=debian\nVERSION_ID="6"\nVERSION_CODENAME=excalibur\n',
        ("devuan", "6", "debian", "debian", "13", "excalibur"),
    ),
    (
        "F10-os-release-odd point release",
        'ID=ubuntu\nVERSION_ID="24.04.3"\n',
        ("ubuntu", "24.04.3", "debian", "ubuntu", "24.04", None),
    ),
    (
        "F10-os-release-odd point release of debian",
        "ID=debian\nVERSION_ID=12.5\n",
        ("debian", "12.5", "debian", "debian", "12", None),
    ),
    ("arch", "ID=arch\n", ("arch", None, None, "arch", None, None)),
    ("empty", "", (None, None, None, None, None, None)),
]


@pytest.mark.parametrize(("text", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_describe(text: str, expected: tuple[str | None, ...]) -> None:
    found = describe_os(parse_os_release(text))
    assert (
        tuple(found[key] for key in ("id", "version_id", "family", "base_id", "base_version", "codename")) == expected
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("NAME='Linux Mint'", {"NAME": "Linux Mint"}),
        ('NAME="a \\"b\\" \\$c"', {"NAME": 'a "b" $c'}),
        ("NAME=Pop!_OS # comment", {"NAME": "Pop!_OS"}),
        ("# NAME=x", {}),
        ("NAME='open", {}),
        ("just words", {}),
        ("NAME=", {"NAME": ""}),
        ("  NAME=x\r", {"NAME": "x"}),
    ],
)
def test_F10_shell_quoting(line: str, expected: dict[str, str]) -> None:
    assert parse_os_release(line + "\n") == expected


def test_usr_lib_is_read_when_etc_has_none(tmp_path: Path) -> None:
    found, probe = read_os(Tree(tmp_path).write("/usr/lib/os-release", "ID=debian\nVERSION_ID=13\n").host())
    assert (found["id"], found["version_id"], probe.state) == ("debian", "13", "value")


def test_code_name_of_debian_version(tmp_path: Path) -> None:
    tree = Tree(tmp_path).write("/etc/os-release", "ID=debian\n").write("/etc/debian_version", "forky/sid\n")
    assert read_os(tree.host())[0]["codename"] == "sid"


@pytest.mark.parametrize(("machine", "expected"), [(62, "x86_64"), (183, "aarch64"), (9999, None)])
def test_arch(tmp_path: Path, machine: int, expected: str | None) -> None:
    assert (
        read_arch(
            Tree(tmp_path).write("/bin/sh", b"\x7fELF\x02\x01" + b"\0" * 12 + machine.to_bytes(2, "little")).host()
        )
        == expected
    )


def test_arch_of_no_elf(tmp_path: Path) -> None:
    assert read_arch(Tree(tmp_path).write("/bin/sh", "#!").host()) is None


@pytest.mark.parametrize("own", [None, "", " \n"], ids=["absent", "empty", "blank"])
def test_F10_os_release_odd_falls_back_to_the_vendors_file(tmp_path: Path, own: str | None) -> None:
    tree = Tree(tmp_path).write("/usr/lib/os-release", "ID=rocky\nVERSION_ID=9.7\n")
    if own is not None:
        tree.write("/etc/os-release", own)
    assert read_os(tree.host())[0]["base_version"] == "9.7"
