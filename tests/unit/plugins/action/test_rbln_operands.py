# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The act that labels, applies and waits in one process."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.action import rbln_operands as action
from ansible_collections.rebellions.npu.plugins.module_utils._model import NpuError

NODES = {"h": {"node": "n", "error": "", "changed": True, "before": {}, "after": {"a": "b"}, "notes": ["note"], "expected": 1}}
CHANGE = {"object": "Namespace x", "action": "unchanged", "before": {}, "after": {}}


def run(monkeypatch: pytest.MonkeyPatch, dry_run: bool = False, broken: bool = False) -> dict[str, Any]:
    def apply_objects(*_args: Any) -> list[dict[str, Any]]:
        if broken:
            raise NpuError("The server is gone.", "Start it.")
        return [CHANGE]

    class Waiter:
        def __init__(self, *_args: Any) -> None:
            pass

        def run(self) -> dict[str, Any]:
            return {"ok": True, "warnings": ["slow"], "seconds": 1, "problems": []}

    class Cluster:
        requests = 3

    module: Any = action.ActionModule.__new__(action.ActionModule)
    module._dry_run = dry_run
    monkeypatch.setattr(module, "_inputs", lambda _vars: {"namespace": "x", "force_conflicts": False, "wait": True})
    monkeypatch.setattr(module, "_cluster", lambda _inputs: Cluster())
    monkeypatch.setattr(action, "label_nodes", lambda *_args: NODES)
    monkeypatch.setattr(action, "build", lambda _ctx: [])
    monkeypatch.setattr(action, "apply_objects", apply_objects)
    monkeypatch.setattr(action, "Waiter", Waiter)
    result: dict[str, Any] = module._run({"members": []}, {})
    return result


def test_one_result_of_all_three(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch)
    assert result["changed"] and len(result["diff"]) == 1 and result["objects"] == {"Namespace x": "unchanged"} and result["waited"]["ok"]
    assert result["warnings"] == ["note", "slow"] and result["requests"] == 3


def test_check_mode_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "waited" not in run(monkeypatch, dry_run=True)


def test_a_failure_keeps_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, broken=True)
    assert result["failed"] and "The server is gone" in result["msg"] and result["nodes"] == NODES
