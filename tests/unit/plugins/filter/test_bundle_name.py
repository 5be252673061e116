# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter bundle_name: what a host says of its system names a folder, or nothing."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.filter.bundle_name import FilterModule

GOOD = {"id": "debian", "version_id": "13", "arch": "x86_64"}


@pytest.mark.parametrize(
    "change, expected",
    [
        ({}, "debian-13-x86_64"),
        ({"version_id": None}, "debian-rolling-x86_64"),
        ({"id": "opensuse-leap", "version_id": "15.6"}, "opensuse-leap-15.6-x86_64"),
        ({"id": "../../etc"}, ""),
        ({"id": "/etc"}, ""),
        ({"id": "a/b"}, ""),
        ({"id": ".."}, ""),
        ({"id": None}, ""),
        ({"id": "debian\n"}, ""),
        ({"version_id": "13/.."}, ""),
        ({"version_id": "{{ lookup('pipe', 'id') }}"}, ""),
        ({"arch": ""}, ""),
        ({"arch": "\x1b[2J"}, ""),
        ({"arch": ["x86_64"]}, ""),
    ],
)
def test_bundle_name(change: dict[str, Any], expected: str) -> None:
    assert FilterModule().filters()["bundle_name"]({**GOOD, **change}) == expected


def test_no_mapping() -> None:
    assert FilterModule().filters()["bundle_name"]("debian") == ""
