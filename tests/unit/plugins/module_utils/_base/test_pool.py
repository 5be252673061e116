# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys of pools."""

from __future__ import annotations

import re

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.pool import pool_key


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (("ubuntu", "24.04", "6.8.0-117-generic"), "ubuntu_24_04_k6_8_0_117_generic"),
        (("rocky", "9.7", "5.14.0-611.55.1.el9_7.x86_64"), "rocky_9_7_k5_14_0_611_55_1_el9_7_x86_64"),
        (("debian", "sid", "6.12.9-amd64"), "debian_sid_k6_12_9_amd64"),
        (("debian", None, "6.12.9-amd64"), "debian_unknown_k6_12_9_amd64"),
        ((None, None, None), "unknown_unknown_kunknown"),
        (("Pop!_OS", "22.04", "6.8.0+rt~1"), "pop_os_22_04_k6_8_0_rt_1"),
    ],
)
def test_pool_key(parts: tuple[str | None, str | None, str | None], expected: str) -> None:
    assert pool_key(*parts) == expected
    assert re.match(r"^[a-z0-9_]+$", expected)
