# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.rebellions.npu.plugins.module_utils._versions import compare, release_numbers, same_release, satisfies, split_kernel


@pytest.mark.parametrize(
    "text, numbers",
    [
        ("3.2.2", (3, 2, 2)),
        ("0.12.37-6eed3e9-release", (0, 12, 37)),
        ("1.2.3-rebel1", (1, 2, 3)),
        ("3.0.0~rc1", (3, 0, 0)),
        ("3.4.1+git5", (3, 4, 1)),
        ("N/A", ()),
    ],
)
def test_release_numbers(text: str, numbers: tuple[int, ...]) -> None:
    assert release_numbers(text) == numbers


@pytest.mark.parametrize("left, right, order", [((55, 9), (55, 75), -1), ((117,), (138,), -1), ((3, 2), (3, 2, 0), 0), ((3, 20), (3, 2), 1)])
def test_compare_is_numeric(left: tuple[int, ...], right: tuple[int, ...], order: int) -> None:
    assert compare(left, right) == order


@pytest.mark.parametrize(
    "left, right, same", [("3.2.2", "3.2.2-rebel1", True), ("3.2", "3.20", False), (None, "3.2.2", False), ("N/A", "N/A", False), ("3.2.2", "3.2.2.0", True)]
)
def test_same_release(left: str | None, right: str | None, same: bool) -> None:
    assert same_release(left, right) is same


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
        ("6.12.48+deb13-amd64", (6, 12, 48), (), "+deb13-amd64"),
        ("6.1.0-50-cloud-amd64", (6, 1, 0), (50,), "cloud-amd64"),
        ("6.18.5", (6, 18, 5), (), ""),
        ("kernel", (), (), "kernel"),
    ],
)
def test_split_kernel(release: str, base: tuple[int, ...], build: tuple[int, ...], flavour: str) -> None:
    assert split_kernel(release) == (base, build, flavour)
