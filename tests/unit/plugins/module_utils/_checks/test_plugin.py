# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the cluster makes of the NPUs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import Check
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._checks.plugin import SCOPE, settled
from ansible_collections.rebellions.npu.plugins.module_utils._checks.run import run_checks
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import Tree
from ansible_collections.rebellions.npu.tests.unit.fixtures.validate.data import CASES, changed, facts, runtimes

CHECKPOINT = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
NO_KUBELET = changed(runtimes(), "kubelet", "present", False)


def checks(
    root: Path, wanted: dict[str, Any], running: dict[str, Any] | None = None, look: dict[str, Any] | None = None
) -> dict[str, Check]:
    records = run_checks(PROFILE, Host(str(root)), look or facts(), running or runtimes(), {}, wanted, ("plugin",))
    return {record.name: record for record in records}


@pytest.mark.parametrize(
    "wanted, ok",
    [
        ({"node_allocatable": {"cpu": "8", "rebellions.ai/npu": "2"}}, True),
        ({"node_allocatable": {"rebellions.ai/npu": "1", "rebellions.ai/npu-vf1": "1"}}, True),
        ({"node_allocatable": 2}, True),
        ({"node_allocatable": "2"}, True),
        ({"node_allocatable": {"rebellions.ai/ATOM": "2"}, "resource_name": "rebellions.ai/ATOM"}, True),
        ({"node_allocatable": {"rebellions.ai/npu-vf4": "2"}, "resource_name": "rebellions.ai/ATOM"}, True),
        ({"node_allocatable": {"rebellions.ai/npu": "2"}, "resource_name": "rebellions.ai/ATOM"}, False),
        ({"node_allocatable": {"rebellions.ai/npu": "0"}, "expected_allocatable": 0}, True),
        ({"node_allocatable": {"cpu": "8"}}, False),
        ({"node_allocatable": {"rebellions.ai/npu": "3"}}, False),
        ({"node_allocatable": {"rebellions.ai/npux": "2"}}, False),
        ({"node_allocatable": {"rebellions.ai/npu": "2"}, "expected_allocatable": 4}, False),
        ({"node_allocatable": {"rebellions.ai/npu": "1k"}, "expected_allocatable": 1000}, True),
        ({"node_allocatable": {"rebellions.ai/npu": "1e3"}, "expected_allocatable": 1000}, True),
        ({"node_allocatable": {"rebellions.ai/npu": "2Ki"}, "expected_allocatable": 2048}, True),
        ({"node_allocatable": {"rebellions.ai/npu": "1E"}, "expected_allocatable": 10**18}, True),
        ({}, None),
        ({"node_allocatable": {"rebellions.ai/npu": "two"}}, None),
        ({"node_allocatable": {"rebellions.ai/npu": "-1"}}, None),
        ({"node_allocatable": {"rebellions.ai/npu": "9" * 5000}}, None),
    ],
)
def test_node_allocatable(tmp_path: Path, wanted: dict[str, Any], ok: bool | None) -> None:
    assert checks(tmp_path, wanted)["node_allocatable"].ok is ok


def test_only_usable_functions_for_containers_are_expected(tmp_path: Path) -> None:
    look = changed(facts(), "npus", 1, "usable", False)
    assert checks(tmp_path, {"node_allocatable": 1}, look=look)["node_allocatable"].ok is True
    look = changed(facts(), "npus", 1, "state", "passthrough")
    assert checks(tmp_path, {"node_allocatable": 1}, look=look)["node_allocatable"].ok is True
    look = changed(facts(), "npus", 1, "vfs", 4)
    assert checks(tmp_path, {"node_allocatable": 1}, look=look)["node_allocatable"].ok is True


@pytest.mark.parametrize(
    "text, ok",
    [
        (json.dumps({"Data": {"RegisteredDevices": {"rebellions.ai/npu": ["0", "1"]}}}), True),
        (json.dumps({"Data": {"RegisteredDevices": {"rebellions.ai/npu": ["0"], "other.com/gpu": ["1"]}}}), False),
        (json.dumps({"Data": {}}), False),
        (None, False),
        ("{", None),
    ],
)
def test_plugin_registered(tmp_path: Path, text: str | None, ok: bool | None) -> None:
    if text is not None:
        Tree(tmp_path).write(CHECKPOINT, text)
    record = checks(tmp_path, {})["plugin_registered"]
    assert record.ok is ok and record.severity == "warning"


def test_a_moved_root_does_not_move_the_record(tmp_path: Path) -> None:
    Tree(tmp_path).write(CHECKPOINT, json.dumps({"Data": {"RegisteredDevices": {"rebellions.ai/npu-vf4": ["0", "1"]}}}))
    moved = changed(runtimes(), "kubelet", "root_dir", "/data/kubelet")
    assert checks(tmp_path, {"resource_name": "rebellions.ai/REBEL"}, moved)["plugin_registered"].ok is True


def test_nothing_to_prove_without_a_kubelet(tmp_path: Path) -> None:
    found = checks(tmp_path, {}, NO_KUBELET)
    assert list(found) == ["node_allocatable"] and found["node_allocatable"].ok is True
    assert found["node_allocatable"].severity == "info" and "no kubelet" in found["node_allocatable"].detail
    assert checks(tmp_path, {"node_allocatable": 0}, NO_KUBELET)["node_allocatable"].ok is False
    assert [entry.name for entry in SCOPE.entries] == ["node_allocatable", "plugin_registered"]


@pytest.mark.parametrize("_id", ["P05-allocatable-race"])
def test_allocatable_right_after_a_restart_is_not_trusted(_id: str) -> None:
    samples = [json.loads(line) for line in (CASES / _id / "samples.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(samples) == 3
    assert [settled(samples[:count], 4)["settled"] for count in range(4)] == [False, False, False, False]
    assert settled(samples, 4)["since"] == 20
    good = dict(samples[-1], t=25)
    assert settled(samples + [good], 4) == {"settled": True, "since": 20}
    assert settled(samples + [good, dict(good, t=30, alloc="0")], 4) == {"settled": False, "since": None}
    assert settled([good, dict(good, ready=False)], 4)["settled"] is False
    assert settled([good, good], 5)["settled"] is False
    for alloc in ("", "4k", None, True, [], 4.5, {"rebellions.ai/npu": "x"}):
        assert settled([good, dict(good, alloc=alloc)], 4, "rebellions.ai/npu") == {"settled": False, "since": None}
    assert (
        settled(
            [dict(good, alloc={"rebellions.ai/npu": "3", "rebellions.ai/npu-vf4": "1"})] * 2, 4, "rebellions.ai/npu"
        )["settled"]
        is True
    )
