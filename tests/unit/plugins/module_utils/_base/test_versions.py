# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.versions import (
    compare,
    release_numbers,
    same_release,
    satisfies,
    split_kernel,
    upstream_version,
)


@pytest.mark.parametrize(
    "text, numbers",
    [
        ("3.2.2", (3, 2, 2)),
        ("0.12.37-6eed3e9-release", (0, 12, 37)),
        ("1.2.3-rebel1", (1, 2, 3)),
        ("3.0.0~rc1", (3, 0, 0)),
        ("3.4.1+git5", (3, 4, 1)),
        ("1:3.2.2-1", (3, 2, 2)),
        ("3.4.0rc1", (3, 4, 0)),
        ("3.4.0.dev3", (3, 4, 0)),
        ("3.4.0_beta2", (3, 4, 0)),
        ("3.2.2^20260101git1", (3, 2, 2)),
        ("v1.7.27", (1, 7, 27)),
        ("0.11.1.post1", (0, 11, 1, 1)),
        ("N/A", ()),
    ],
)
def test_release_numbers(text: str, numbers: tuple[int, ...]) -> None:
    assert release_numbers(text) == numbers


@pytest.mark.parametrize(
    "left, right, order", [((55, 9), (55, 75), -1), ((117,), (138,), -1), ((3, 2), (3, 2, 0), 0), ((3, 20), (3, 2), 1)]
)
def test_compare_is_numeric(left: tuple[int, ...], right: tuple[int, ...], order: int) -> None:
    assert compare(left, right) == order


@pytest.mark.parametrize(
    "left, right, same",
    [
        ("3.2.2", "3.2.2-rebel1", True),
        ("3.2", "3.20", False),
        (None, "3.2.2", False),
        ("N/A", "N/A", False),
        ("3.2.2", "3.2.2.0", True),
    ],
)
def test_same_release(left: str | None, right: str | None, same: bool) -> None:
    assert same_release(left, right) is same


@pytest.mark.parametrize(
    "text",
    [
        "3.4.0~rc1",
        "3.4.0-rc1",
        "3.4.0rc1",
        "3.4.0_beta2",
        "3.4.0b2",
        "3.4.0.dev3",
        "1:3.4.0~rc1-1",
        "3.4.0-0.1.rc2.el9",
        "3.4.0~alpha",
        "3.4.0-PRE1",
    ],
)
def test_U06_noop_upgrade_a_pre_release_is_not_its_release(text: str) -> None:
    assert not same_release(text, "3.4.0") and not same_release("3.4.0", text)
    assert same_release(text, text)


@pytest.mark.parametrize(
    "left, right, same",
    [("3.4.0~rc1", "3.4.0-rc.1", True), ("3.4.0rc1", "1:3.4.0~rc1-2", True), ("3.4.0~rc1", "3.4.0~rc2", False)],
)
def test_U06_noop_upgrade_two_pre_releases(left: str, right: str, same: bool) -> None:
    assert same_release(left, right) is same


@pytest.mark.parametrize(
    "text",
    [
        "3.2.2-1",
        "1:3.2.2-1",
        "3.2.2+git.abc",
        "3.2.2+git.b12",
        "3.2.2-b12c3d4-release",
        "3.2.2-1~22.04.1",
        "3.2.2~ubuntu24.04",
        "3.2.2-1.el9",
        "3.2.2^git1",
    ],
)
def test_U06_noop_upgrade_a_build_is_its_release(text: str) -> None:
    assert same_release(text, "3.2.2") and same_release("3.2.2-rebel1", text)


@pytest.mark.parametrize(
    "text, version", [("2.0.1", "2.0.1"), ("1:2.0.1-1", "2.0.1"), ("3.4.0~rc1-2.el9", "3.4.0~rc1")]
)
def test_what_a_package_holds(text: str, version: str) -> None:
    assert upstream_version(text) == version


@pytest.mark.parametrize(
    "version, constraints, holds",
    [
        ("3.2.2", [">=3.2", "<3.4"], True),
        ("3.4.0", [">=3.2", "<3.4"], False),
        ("3.10.0", [">3.9"], True),
        ("3.2.2", ["3.2.2"], True),
        ("3.2.2-x", ["==3.2.2"], True),
        ("3.2.2", ["!=3.2.2"], False),
        ("3.2.2", ["<=3.2.1"], False),
        ("3.2.2", [], True),
    ],
)
def test_satisfies(version: str, constraints: list[str], holds: bool) -> None:
    assert satisfies(version, constraints) is holds


def test_a_bad_constraint_is_an_error() -> None:
    with pytest.raises(ValueError, match="newest"):
        satisfies("3.2.2", ["newest"])


@pytest.mark.parametrize(
    "release, base, build, flavour",
    [
        ("6.8.0-117-generic", (6, 8, 0), (117,), "generic"),
        ("6.8.0-1024-aws", (6, 8, 0), (1024,), "aws"),
        ("5.14.0-570.116.1.el9_6.x86_64", (5, 14, 0), (570, 116, 1), ""),
        ("6.12.0-55.75.1.el10_0", (6, 12, 0), (55, 75, 1), ""),
        ("5.14.0-570.116.1.el9_6.x86_64+rt", (5, 14, 0), (570, 116, 1), "rt"),
        ("5.14.0-570.116.1.el9_6.aarch64+64k", (5, 14, 0), (570, 116, 1), "64k"),
        ("5.14.0-284.30.1.rt14.315.el9_2.x86_64", (5, 14, 0), (284, 30, 1), "rt14.315"),
        ("6.12.0-100.28.2.el10uek.x86_64", (6, 12, 0), (100, 28, 2), "uek"),
        ("6.12.5-1.el9.elrepo.x86_64", (6, 12, 5), (1,), "elrepo"),
        ("6.12.48+deb13-amd64", (6, 12, 48), (), "amd64"),
        ("6.12.38+deb13-cloud-amd64", (6, 12, 38), (), "cloud-amd64"),
        ("6.9.7+bpo-rt-amd64", (6, 9, 7), (), "rt-amd64"),
        ("6.1.0-0.deb11.28-amd64", (6, 1, 0), (0,), "amd64"),
        ("6.8.12-060812-generic", (6, 8, 12), (60812,), "mainline"),
        ("6.8.0-060800rc7-generic", (6, 8, 0), (60800,), "mainline"),
        ("6.1.0-50-cloud-amd64", (6, 1, 0), (50,), "cloud-amd64"),
        ("6.18.5", (6, 18, 5), (), ""),
        ("kernel", (), (), "kernel"),
    ],
)
def test_split_kernel(release: str, base: tuple[int, ...], build: tuple[int, ...], flavour: str) -> None:
    assert split_kernel(release) == (base, build, flavour)
