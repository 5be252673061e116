# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The dpkg database as a file, dpkg and rpm output."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._packages import installed as packages
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import Tree, case, parse_dpkg_list

STATUS = """Package: rebellions
Status: install ok installed
Architecture: amd64
Version: 2.0.1-1
Depends: dkms
Description: driver
 Package: rebellions-in-text is no package
 Version: 9

Package: adduser
Status: install ok installed
Version: 3.134

Package: rebellions-tools
Status: deinstall ok config-files
Version: 1.3.73
Conffiles:
 /etc/x 00

Package: librbln-ml3
Status: install ok half-configured
Version: 3.2.2"""


def test_status_database() -> None:
    assert [
        (item["name"], item["version"], item["state"], item["architecture"])
        for item in packages.parse_dpkg_status(STATUS, PROFILE.package_patterns)
    ] == [
        ("rebellions", "2.0.1-1", "installed", "amd64"),
        ("rebellions-tools", "1.3.73", "config-files", ""),
        ("librbln-ml3", "3.2.2", "half-configured", ""),
    ]


@pytest.mark.parametrize("text", ["", "\n\n", "no database at all", "Status: install ok installed\n"])
def test_status_database_without_packages(text: str) -> None:
    assert packages.parse_dpkg_status(text, ["*"]) == []


def test_I02_removed_is_not_installed() -> None:
    assert [
        (item["name"], item["version"], item["state"])
        for item in parse_dpkg_list(case("I02-legacy-package", "dpkg-l.txt"))
    ] == [
        ("rebellions", "2.0.1", "installed"),
        ("rebellions-tools", "1.3.73", "config-files"),
    ]


def test_K01_list_without_versions() -> None:
    found = parse_dpkg_list(case("K01-headers-metapackage", "dpkg-l.txt"))
    assert [item["name"] for item in found] == [
        "linux-image-6.8.0-117-generic",
        "linux-image-6.8.0-138-generic",
        "linux-image-generic",
        "linux-headers-6.8.0-117-generic",
    ]
    assert {item["state"] for item in found} == {"installed"}


def test_rpm_query() -> None:
    text = (
        "rebellions\t2.0.1-1.el9\tx86_64\nrbln-container-toolkit\t0.2.3-1\tx86_64\nbash\t5.1\tx86_64\n"
        "warning: something\n"
    )
    assert packages.parse_rpm_query(text, PROFILE.package_patterns) == [
        {"name": "rebellions", "version": "2.0.1-1.el9", "state": "installed", "architecture": "x86_64"},
        {"name": "rbln-container-toolkit", "version": "0.2.3-1", "state": "installed", "architecture": "x86_64"},
    ]


def test_rpm_is_asked_only_without_a_dpkg_database(tmp_path: Path) -> None:
    tree = Tree(tmp_path).write("/var/lib/rpm/rpmdb.sqlite").write("/calls")
    tree.program(
        "/usr/bin/rpm",
        'echo called >> "$(dirname "$0")/../../calls"\nprintf \'rebellions\\t2.0.1-1.el9\\tx86_64\\n\'\n',
    )
    found, form, probe = packages.read_packages(tree.host(), PROFILE.package_patterns)
    assert ([item["name"] for item in found], form, probe.state) == (["rebellions"], "rpm", "value")
    tree.dpkg([("rebellions", "2.1.0", "install ok installed")])
    found, form, probe = packages.read_packages(tree.host(), PROFILE.package_patterns)
    assert ([item["version"] for item in found], form, probe.state) == (["2.1.0"], "deb", "value")
    assert len(tree.real("/calls").read_text(encoding="utf-8").splitlines()) == 1


def test_rpm_that_fails_is_not_no_packages(tmp_path: Path) -> None:
    tree = (
        Tree(tmp_path)
        .write("/var/lib/rpm/rpmdb.sqlite")
        .program("/usr/bin/rpm", "echo 'database is locked' >&2; exit 1\n")
    )
    found, form, probe = packages.read_packages(tree.host(), PROFILE.package_patterns)
    assert (found, form, probe.state) == ([], "rpm", "failed")
    assert "database is locked" in probe.detail


def test_no_database_at_all(tmp_path: Path) -> None:
    found, form, probe = packages.read_packages(Tree(tmp_path).host(), PROFILE.package_patterns)
    assert (found, form, probe.state) == ([], "", "absent")
