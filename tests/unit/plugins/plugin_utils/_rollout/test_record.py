# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record as JSON: what is written is read back, and what is damaged is refused."""

from __future__ import annotations

import json
import typing as t

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.record import (
    NodeRecord,
    PoolRecord,
    Record,
    from_json,
    to_json,
)

SINCE = "2026-01-05T22:00:00Z"
NODES = {
    "a": NodeRecord("p", 1, "upgrade-done", SINCE, run="r1", seconds=61.5),
    "b": NodeRecord("p", 2, "host-change-required", SINCE, run="r2", former=("r0", "r1")),
    "c": NodeRecord("p", 2, "upgrade-failed", SINCE, "No driver is loaded.", "r2"),
    "d": NodeRecord("p", 2),
    "x": NodeRecord("gone", 0, "drain-required", SINCE, run="r0"),
}
RECORD = Record("r1", "goal", SINCE, "r2", {"p": PoolRecord((("a",), ("b", "c", "d")), 58.0)}, NODES)


def test_what_is_written_is_read_back() -> None:
    assert from_json(to_json(RECORD)) == RECORD
    assert from_json(to_json(Record("r", "g", SINCE, "r"))) == Record("r", "g", SINCE, "r")


def test_a_wave_has_its_nodes() -> None:
    assert RECORD.of_wave("p", 2) == {name: NODES[name] for name in "bcd"}
    assert RECORD.of_wave("p", 0) == RECORD.of_wave("other", 1) == {}


def test_a_thousand_nodes_stay_small() -> None:
    """A ConfigMap has at most 1 MiB, and each change of a node sends all of it."""
    names = [f"npu-node-{number:04d}.example.com" for number in range(1000)]
    pools = {f"ubuntu_22_04_k5_15_0_{part}_generic": names[part * 100 : part * 100 + 100] for part in range(10)}
    nodes = {
        name: NodeRecord(pool, 1, "upgrade-done", SINCE, run="r", seconds=300.1234)
        for pool, some in pools.items()
        for name in some
    }
    record = Record("r", "g", SINCE, "r", {pool: PoolRecord((tuple(some),)) for pool, some in pools.items()}, nodes)
    assert len(to_json(record)) < 150_000


def test_a_long_reason_does_not_fill_it() -> None:
    long = Record(
        "r", "g", SINCE, "r", RECORD.pools, {**NODES, "c": NodeRecord("p", 2, "upgrade-failed", SINCE, "x" * 9999)}
    )
    assert len(from_json(to_json(long)).nodes["c"].reason) == 300


def damaged(**changes: t.Any) -> str:
    return json.dumps({**json.loads(to_json(RECORD)), **changes})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{}",
        '{"version":1}',
        to_json(RECORD)[:-20],
        damaged(id=7),
        damaged(pools=[]),
        damaged(pools={"p": {}}),
        damaged(pools={"p": {"waves": [["a"], ["a"]]}}),
        damaged(pools={"p": {"waves": [[1]]}}),
        damaged(pools={"p": {"waves": ["a"]}}),
        damaged(pools={"p": {"waves": "ab"}}),
        damaged(pools={"p": {"waves": [], "seconds": -1}}),
        damaged(nodes={"a": {"state": "happy", "since": SINCE}}),
        damaged(nodes={"a": {"state": "upgrade-done"}}),
        damaged(nodes={"a": {"state": "upgrade-done", "since": SINCE, "seconds": float("nan")}}),
        damaged(nodes={"a": {"state": "upgrade-done", "since": SINCE, "run": 3}}),
        damaged(nodes={"a": {"state": "drain-required", "since": SINCE, "former": [7]}}),
        damaged(nodes={"a": {"state": "drain-required", "since": SINCE, "former": "r1"}}),
        damaged(nodes={"z": {"state": "upgrade-done", "since": SINCE, "pool": "p"}}),
        damaged(nodes={"z": {"state": "drain-required", "since": SINCE}}),
        '{"version":1,"pools":' + "[" * 100000,
    ],
)
def test_a_damaged_one_is_refused(text: str) -> None:
    with pytest.raises(NpuError, match="^The record of the rollout is damaged: .* Next: Look at the nodes"):
        from_json(text)


@pytest.mark.parametrize(
    "changes", [{"started": "yesterday"}, {"nodes": {"a": {"state": "upgrade-done", "since": "x"}}}]
)
def test_a_time_that_is_none_is_refused(changes: dict[str, t.Any]) -> None:
    with pytest.raises(NpuError, match="^The rollout has the time '(yesterday|x)', which"):
        from_json(damaged(**changes))


def test_one_of_a_newer_release_is_left_to_it() -> None:
    with pytest.raises(NpuError, match="^The record of the rollout has the version 2; this release knows 1"):
        from_json(damaged(version=2))
