# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's part of rbln_plan: which groups of a host count as its pools."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.rebellions.npu.plugins.action.rbln_plan import _groups

OLD, NEW = "debian_12_k6_1_0_50", "debian_12_k6_1_0_47"
POOLS = ["npu_nodes", "npu_pool_" + OLD, "npu_pool_" + NEW]


@pytest.mark.parametrize(
    ("left", "now", "groups"),
    [
        (None, OLD, POOLS),
        ([OLD], NEW, ["npu_nodes", "npu_pool_" + NEW]),
        # Rebooted into the same kernel, or back into it: the pool is not left.
        ([OLD], OLD, POOLS),
        ([OLD, NEW], OLD, ["npu_nodes", "npu_pool_" + OLD]),
    ],
)
def test_pools_of_kernels_before_a_reboot_do_not_count(left: list[str] | None, now: str, groups: list[str]) -> None:
    variables: dict[str, t.Any] = {"group_names": POOLS, **({} if left is None else {"rbln_driver_pools_left": left})}
    # The plan of this run that is there already may be one from after the reboot.
    variables["rbln_preflight_plan"] = {"observation": {"ansible_facts": {"rbln": {"pool_key": now}}}}
    assert _groups(variables, now) == groups
