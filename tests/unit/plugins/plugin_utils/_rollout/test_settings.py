# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inputs of pace: what is read, and what cannot work."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.settings import (
    Settings,
    read_pools,
    read_settings,
    share,
)


def test_nothing_given_is_all_nodes_at_once() -> None:
    assert read_settings({}) == Settings()
    assert read_settings({"waves": None, "window": None, "metrics": {}}) == Settings()


def test_everything_is_read() -> None:
    found = read_settings(
        {
            "waves": ["1", " 10 %", "50%", 40, "100%"],
            "max_unavailable": "25%",
            "max_parallel": "3",
            "failure_budget": "10%",
            "soak": "30m",
            "order": "rack",
            "rack_label": "example.com/rack",
            "approval": True,
            "last_wave": 2,
            "slot_timeout": 7200,
            "foreign_cordon": "upgrade",
            "metrics": {"url": "https://prometheus.example.com", "query": "up"},
        }
    )
    assert found == Settings(
        waves=(1, "10%", "50%", 40, "100%"),
        max_unavailable="25%",
        max_parallel=3,
        failure_budget="10%",
        soak=1800.0,
        order="rack",
        order_label="example.com/rack",
        approval=True,
        last_wave=2,
        slot_timeout=7200.0,
        foreign_cordon="upgrade",
        metrics=True,
    )
    assert read_settings({"order": "spread"}).order_label == "topology.kubernetes.io/zone"


@pytest.mark.parametrize(
    "given, seconds", [(0, 0), (90, 90), ("90", 90), ("90s", 90), ("1.5h", 5400), (" 2 d ", 172800), (0.5, 0.5)]
)
def test_a_time_has_a_unit_or_is_seconds(given: t.Any, seconds: float) -> None:
    assert read_settings({"soak": given}).soak == seconds


@pytest.mark.parametrize(
    "given, message",
    [
        ({"waves": [5, 5]}, r"rbln_rollout_waves\[1\] is 5: the wave does not grow after 5\."),
        ({"waves": [5, 1]}, r"rbln_rollout_waves\[1\] is 1: the wave does not grow after 5\."),
        ({"waves": ["50%", "10%"]}, r"rbln_rollout_waves\[1\] is 10%: the wave does not grow after 50%\."),
        ({"waves": [1, "100%", 50]}, r"rbln_rollout_waves\[2\] is 50: the wave does not grow after 1"),
        ({"waves": ["10%", 1]}, r"rbln_rollout_waves\[1\] is 1: the wave does not grow after 10%\."),
        ({"waves": ["100%", "100%"]}, r"rbln_rollout_waves\[1\] is 100%: the wave does not grow"),
        ({"waves": [0, 1]}, r"rbln_rollout_waves\[0\] is 0: the wave has no node\."),
        ({"waves": ["0%"]}, r"rbln_rollout_waves\[0\] is 0%: the wave has no node\."),
        ({"waves": [1, "101%"]}, r"rbln_rollout_waves\[1\] is 101%, which is more than all nodes\."),
        ({"waves": [True]}, r"rbln_rollout_waves\[0\] is True, which is not a number of nodes\."),
        ({"waves": [-1]}, r"rbln_rollout_waves\[0\] is -1, which is not a number of nodes\."),
        ({"waves": ["10.5%"]}, r"rbln_rollout_waves\[0\] is '10\.5%', which is not"),
        ({"waves": [[1]]}, r"rbln_rollout_waves\[0\] is '?\[1\]"),
        ({"max_unavailable": 0}, "rbln_rollout_max_unavailable is 0, so no node could ever begin"),
        ({"max_unavailable": "0%"}, "rbln_rollout_max_unavailable is 0%, so no node could ever begin"),
        ({"max_unavailable": "200%"}, "rbln_rollout_max_unavailable is 200%, which is more than all"),
        ({"max_unavailable": "few"}, "rbln_rollout_max_unavailable is 'few', which is not a number of nodes"),
        ({"failure_budget": "101%"}, "rbln_rollout_failure_budget is 101%"),
        ({"failure_budget": -1}, "rbln_rollout_failure_budget is -1"),
        ({"max_parallel": -1}, "rbln_rollout_max_parallel is -1, which is not a whole number from 0 on"),
        ({"max_parallel": True}, "rbln_rollout_max_parallel is True"),
        ({"soak": "soon"}, "rbln_rollout_soak is 'soon', which is not a duration"),
        ({"soak": -1}, "rbln_rollout_soak is -1, which is not a duration"),
        ({"soak": float("nan")}, "rbln_rollout_soak is nan"),
        ({"order": "random"}, "rbln_rollout_order is 'random'.*inventory, spread or rack"),
        ({"order": "rack"}, "rbln_rollout_order is rack, and rbln_rollout_rack_label is empty"),
        ({"order": "spread", "zone_label": ""}, "rbln_rollout_order is spread, and rbln_rollout_zone_label is empty"),
        ({"approval": "maybe"}, "rbln_rollout_approval is 'maybe'"),
        ({"last_wave": "x"}, "rbln_rollout_last_wave is 'x'"),
        ({"foreign_cordon": "ignore"}, "rbln_rollout_foreign_cordon is 'ignore'.*skip or upgrade"),
        ({"window": [{"from": "10:00", "to": "10:00"}]}, r"rbln_rollout_window\[0\] never opens"),
    ],
)
def test_what_cannot_work_is_one_clear_error(given: dict[str, t.Any], message: str) -> None:
    with pytest.raises(NpuError, match="^" + message) as caught:
        read_settings(given)
    assert " Next: " in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("waves", [[1, "10%", "50%", "100%"], ["10%", 5, "100%"], [1, 2, 3], ["100%"], 1, "25%"])
def test_waves_that_grow_in_some_pool_are_taken(waves: t.Any) -> None:
    assert read_settings({"waves": waves}).waves


def test_a_pool_has_what_it_says_and_the_rest_from_all() -> None:
    found = read_pools({"max_unavailable": 2, "soak": 60, "pools": {"a": {"max_unavailable": "50%"}}}, ["a", "b"])
    assert (found["a"].max_unavailable, found["a"].soak) == ("50%", 60.0)
    assert (found["b"].max_unavailable, found["b"].soak) == (2, 60.0)
    # A key without a value does not take the limit of all pools away.
    assert (
        read_pools({"max_unavailable": 2, "pools": {"a": {"max_unavailable": None}}}, ["a"])["a"].max_unavailable == 2
    )
    assert read_pools({"pools": {"a": {"waves": "1, 50%"}}}, ["a"])["a"].waves == (1, "50%")


@pytest.mark.parametrize(
    "pools, message",
    [
        ({"ubuntu_24_04": {}}, r"rbln_rollout_pools\.ubuntu_24_04 is not a pool .*Did you mean ubuntu_22_04\?"),
        ({"ubuntu_22_04": {"max_unavailible": 1}}, r"rbln_rollout_pools\.ubuntu_22_04 has the unknown key max_una"),
        ({"ubuntu_22_04": {"max_unavailable": 0}}, r"rbln_rollout_pools\.ubuntu_22_04\.max_unavailable is 0, so no"),
        ({"ubuntu_22_04": {"waves": [2, 1]}}, r"rbln_rollout_pools\.ubuntu_22_04\.waves\[1\] is 1: the wave does"),
        ({"ubuntu_22_04": 3}, r"rbln_rollout_pools\.ubuntu_22_04 is 3\."),
        ([1], r"rbln_rollout_pools is \[1\]\."),
    ],
)
def test_a_pool_that_is_not_there_and_a_wrong_value_of_one_are_named(pools: t.Any, message: str) -> None:
    with pytest.raises(NpuError, match="^" + message):
        read_pools({"pools": pools}, ["ubuntu_22_04"])


@pytest.mark.parametrize(
    "size, total, count", [("10%", 100, 10), ("10%", 5, 1), ("25%", 9, 3), ("100%", 7, 7), ("0%", 9, 0), (4, 2, 4)]
)
def test_percentages_round_up(size: int | str, total: int, count: int) -> None:
    assert share(size, total) == count
