# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Order and waves."""

from __future__ import annotations

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.settings import Settings
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.view import NodeView
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.waves import cut, order_nodes, rounds

ZONES = {"a1": "a", "a2": "a", "a3": "a", "b1": "b", "c1": "c", "c2": "c", "x1": ""}
NODES = [NodeView(name, "pool", labels={"zone": zone} if zone else {}) for name, zone in ZONES.items()]


@pytest.mark.parametrize(
    "order, names",
    [
        ("inventory", ["a1", "a2", "a3", "b1", "c1", "c2", "x1"]),
        ("spread", ["a1", "b1", "c1", "x1", "a2", "c2", "a3"]),
    ],
)
def test_order(order: str, names: list[str]) -> None:
    label = "" if order == "inventory" else "zone"
    assert order_nodes(NODES, Settings(order=order, order_label=label)) == names


def test_racks_go_one_after_the_other_as_they_are_first_seen() -> None:
    mixed = [NODES[4], NODES[0], NODES[6], NODES[5], NODES[1]]
    assert order_nodes(mixed, Settings(order="rack", order_label="zone")) == ["c1", "c2", "a1", "a2", "x1"]


@pytest.mark.parametrize(
    "count, waves, sizes",
    [
        (100, (1, "10%", "50%", "100%"), [1, 9, 40, 50]),
        (1000, (1, "10%", "50%", "100%"), [1, 99, 400, 500]),
        # A wave that adds nothing falls out.
        (5, (1, "10%", "50%", "100%"), [1, 2, 2]),
        (1, (1, "10%", "50%", "100%"), [1]),
        (2, ("50%", "100%"), [1, 1]),
        # What the sizes leave over is one more wave.
        (10, (1, "30%"), [1, 2, 7]),
        (10, (3, 5), [3, 2, 5]),
        (10, (20,), [10]),
        (10, (), [10]),
        (0, (1, "100%"), []),
        # In a small pool, 5 nodes are fewer than its half.
        (8, ("75%", 5, "100%"), [6, 2]),
    ],
)
def test_sizes_count_from_the_first_wave_on(count: int, waves: tuple[int | str, ...], sizes: list[int]) -> None:
    names = [str(number) for number in range(count)]
    found = cut(names, waves)
    assert [len(wave) for wave in found] == sizes
    assert [name for wave in found for name in wave] == names


def test_the_waves_of_several_pools_go_side_by_side() -> None:
    pools = {"a": (("a1",), ("a2", "a3")), "b": (("b1",),), "c": (("c1", "c2"), ("c3",), ("c4",))}
    assert rounds(pools) == [["a1", "b1", "c1", "c2"], ["a2", "a3", "c3"], ["c4"]]
    assert rounds({}) == []
