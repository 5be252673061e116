# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter pool_key on facts and on node labels."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.rebellions.npu.plugins.filter.pool_key import FilterModule, to_pool_key

NFD = "feature.node.kubernetes.io/"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            {"os": {"id": "ubuntu", "version_id": "24.04"}, "kernel": {"running": "6.8.0-117-generic"}},
            "ubuntu_24_04_k6_8_0_117_generic",
        ),
        (
            {"os": {"id": "debian", "version_id": None, "codename": "sid"}, "kernel": {"running": "6.12.9-amd64"}},
            "debian_sid_k6_12_9_amd64",
        ),
        (
            {
                NFD + "system-os_release.ID": "rhel",
                NFD + "system-os_release.VERSION_ID": "9.6",
                NFD + "kernel-version.full": "5.14.0-570.el9_6.x86_64",
            },
            "rhel_9_6_k5_14_0_570_el9_6_x86_64",
        ),
        (
            {NFD + "system-os_release.ID": "debian", NFD + "kernel-version.full": "6.12.9-amd64"},
            "debian_unknown_k6_12_9_amd64",
        ),
    ],
)
def test_pool_key(source: dict[str, Any], expected: str) -> None:
    assert FilterModule().filters()["pool_key"](source) == expected


@pytest.mark.parametrize("source", [None, "ubuntu", [], {}, {"os": "ubuntu"}, {NFD + "system-os_release.ID": "rhel"}])
def test_neither_facts_nor_labels(source: Any) -> None:
    with pytest.raises(AnsibleFilterError, match="Next: "):
        to_pool_key(source)
