# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What pins packages: the files of dpkg, apt, dnf 4, dnf 5 and yum as people have them."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._packages.pins import (
    Pin,
    holds,
    is_pinned,
    read_pins,
)
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import Tree, case

CONF = "/etc/dnf/dnf.conf"
REPO = "/etc/yum.repos.d/site.repo"
LOCKS = "/etc/dnf/plugins/versionlock.list"
TOML = "/etc/dnf/versionlock.toml"
PREFS = "/etc/apt/preferences.d/site"
STATUS = {"/var/lib/dpkg/status": "Package: a\nStatus: install ok installed\n"}


def pins(root: Path, form: str, files: dict[str, str]) -> list[tuple[str, str, str, int, str]]:
    tree = Tree(root)
    for path, text in files.items():
        tree.write(path, text)
    return [tuple(pin) for pin in read_pins(tree.host(), form)[0] or ()]


@pytest.mark.parametrize(
    "files, expected",
    [
        # H09
        ({CONF: case("H09-dnf-exclude", "dnf.conf")}, [("kernel*", "exclude", CONF, 5, "")]),
        (
            {CONF: "[main]\nexcludepkgs = kernel-core, kernel-modules*\n  kernel-devel.x86_64\nbest=1\n"},
            [(name, "exclude", CONF, 2, "") for name in ("kernel-core", "kernel-devel.x86_64", "kernel-modules*")],
        ),
        ({CONF: "[main]\n#exclude=kernel*\nexclude=\n"}, []),
        (
            {REPO: "[baseos]\nname=x\nexclude=kernel* dkms\n[off]\nenabled = 0\nexclude=gcc\n"},
            [("dkms", "exclude", REPO, 3, "baseos"), ("kernel*", "exclude", REPO, 3, "baseos")],
        ),
        (
            {"/etc/dnf/libdnf5.conf.d/20-site.conf": "[main]\nexcludepkgs=gcc\n"},
            [("gcc", "exclude", "/etc/dnf/libdnf5.conf.d/20-site.conf", 2, "")],
        ),
        (
            {
                LOCKS: "# Added\nkernel-core-0:5.14.0-570.el9.*\n\n!dkms-0:3.1-1.*\n"
                "kernel-modules-core-0:6-1.el10.*\ngcc\n"
            },
            [("kernel-core", "versionlock", LOCKS, 2, ""), ("kernel-modules-core", "versionlock", LOCKS, 5, "")],
        ),
        (
            {LOCKS: "0:kernel-devel-5.14.0-570.el9.*\ngcc-11.5.0\n"},
            [("gcc", "versionlock", LOCKS, 2, ""), ("kernel-devel", "versionlock", LOCKS, 1, "")],
        ),
        ({LOCKS: "gcc-0:11-1.*\n", "/etc/dnf/plugins/versionlock.conf": "[main]\nenabled = 0\n"}, []),
        (
            {"/srv/locks": "gcc-0:11-1.*\n", "/etc/dnf/plugins/versionlock.conf": "[main]\nlocklist = /srv/locks\n"},
            [("gcc", "versionlock", "/srv/locks", 1, "")],
        ),
        (
            {
                TOML: 'version = "1.0"\n[[packages]]\nname = "kernel-core"\ncomment = "a"\n[[packages.conditions]]\n'
                'key = "evr"\ncomparator = "="\nvalue = "5-1"\n\n[[packages]]\nname = "dkms"\n'
                '[[packages.conditions]]\nkey = "evr"\ncomparator = "!="\nvalue = "3-1"\n'
            },
            [("kernel-core", "versionlock", TOML, 0, "")],
        ),
    ],
)
def test_pins_of_dnf(tmp_path: Path, files: dict[str, str], expected: list[tuple[str, str, str, int, str]]) -> None:
    assert pins(tmp_path, "rpm", files) == expected


def test_the_lists_of_yum_and_dnf_are_one_file_and_counted_once(tmp_path: Path) -> None:
    tree = Tree(tmp_path).write(LOCKS, "gcc-0:11-1.*\n").link("/etc/yum/pluginconf.d", "/etc/dnf/plugins")
    assert [pin.package for pin in read_pins(tree.host(), "rpm")[0] or ()] == ["gcc"]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("Package: linux-image-*\nPin: release *\nPin-Priority: -1\n", [("linux-image-*", 1, "")]),
        ("# a\n\nPackage: gcc dkms\nPin: version 5.15.*\nPin-Priority: 1001\n", [("dkms", 3, ""), ("gcc", 3, "")]),
        ("Package: *\nPin: origin mirror.example\nPin-Priority: -10\n", [("*", 1, "origin mirror.example")]),
        ("Package: *\nPin: release a=backports\nPin-Priority: 100\n", []),
        ("Package: nginx\nPin: origin x\nPin-Priority: 900\n", []),
        ("Package: gcc\nPin: version 12*\nPin-Priority: 100\n", []),
        ("Explanation: a\n b\nPackage: snapd\nPin: release a=*\nPin-Priority: -10\n", [("snapd", 1, "release a=*")]),
        ("Package: gcc\nPin: version 12\nPin-Priority:\n", []),
        (
            "# Package: not-this\nPackage: gcc\n# g++: the same\n dkms\n#Pin: version 1\nPin: version 12\n"
            "Pin-Priority: 1001\n",
            [("dkms", 2, ""), ("gcc", 2, "")],
        ),
    ],
)
def test_pins_of_apt(tmp_path: Path, text: str, expected: list[tuple[str, int, str]]) -> None:
    found = pins(
        tmp_path, "deb", {**STATUS, PREFS: text, "/etc/apt/preferences.d/x.bak": "Package: q\nPin-Priority: -1"}
    )
    assert found == [(name, "preferences", PREFS, line, some) for name, line, some in expected]


def test_what_a_pin_of_one_place_is_not() -> None:
    """A repository or an origin without a package leaves it to the others: the package is not held."""
    found = [
        Pin("kernel*", "exclude", CONF, 5),
        Pin("*", "preferences", PREFS, 1, "origin x"),
        Pin("gcc", "hold", "/x"),
    ]
    assert holds(found) == ["gcc", "kernel*"]


def test_a_file_that_cannot_be_read_is_not_no_pin(tmp_path: Path) -> None:
    tree = Tree(tmp_path).folder(CONF)
    found, probe = read_pins(tree.host(), "rpm")
    assert found is None and not probe.ok


@pytest.mark.parametrize(
    "name, pattern, wanted",
    [
        ("kernel-devel-5.14.0-570.12.1.el9_6.x86_64", "kernel*", True),
        ("kernel-devel-5.14.0-570.12.1.el9_6.x86_64", "kernel-devel", True),
        ("kernel-devel-5.14.0-570.12.1.el9_6.x86_64", "kernel-devel.x86_64", True),
        ("kernel-devel-5.14.0-570.12.1.el9_6.x86_64", "kernel", False),
        ("kernel-devel", "*.i686", False),
        ("linux-headers-6.8.0-117-generic", "linux-headers-*", True),
        ("gcc=4:12.2.0-3", "gcc", True),
        ("gcc", "gcc-12", False),
        ("gcc-12", "gcc", False),
        ("kernel-rt-devel-5.14.0-284.11.1.rt14.296.el9_2.x86_64", "kernel-rt-devel", True),
        ("librbln:i386", "librbln", True),
    ],
)
def test_which_package_a_pin_is_for(name: str, pattern: str, wanted: bool) -> None:
    assert is_pinned(name, [pattern]) is wanted
