# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The manifests that the action writes on the controller, and takes away again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.action.rbln_operands import ActionModule
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster.manifests import write_manifests
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs


def render(monkeypatch: pytest.MonkeyPatch, folder: Path, check: bool = False, **given: Any) -> dict[str, Any]:
    """Whether the act render changed something, and the files that are there afterwards."""
    found = inputs(enabled=True, delivery="render", render_dir=str(folder), **given)
    action = object.__new__(ActionModule)
    monkeypatch.setattr(action, "_inputs", lambda _variables: found, raising=False)
    action._dry_run = check
    monkeypatch.setattr(action, "_task", SimpleNamespace(diff=False), raising=False)
    return {"changed": action._render({}, {})["changed"], "files": sorted(path.name for path in folder.glob("*"))}


def test_manifests_are_written_once_and_removed_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder, other = tmp_path / "out", tmp_path / "out" / "other.yaml"
    assert render(monkeypatch, folder, check=True) == {"changed": True, "files": []}
    assert render(monkeypatch, folder) == {"changed": True, "files": ["rbln-system.yaml"]}
    before = (folder / "rbln-system.yaml").read_bytes()
    assert (
        render(monkeypatch, folder) == {"changed": False, "files": ["rbln-system.yaml"]}
        and (folder / "rbln-system.yaml").read_bytes() == before
    )
    other.write_text("mine")
    assert render(monkeypatch, folder, check=True, state="absent") == {
        "changed": True,
        "files": ["other.yaml", "rbln-system.yaml"],
    }
    assert render(monkeypatch, folder, state="absent") == {"changed": True, "files": ["other.yaml"]}
    assert render(monkeypatch, folder, state="absent") == {"changed": False, "files": ["other.yaml"]}


@pytest.mark.parametrize(
    ("proxy", "mode"), [("http://proxy:3128", 0o644), ("http://svc:n0t-a-Real-one@proxy:3128", 0o600)]
)
def test_S02_manifests_with_a_password_are_for_their_owner_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, proxy: str, mode: int
) -> None:
    found = inputs(enabled=True, delivery="render", render_dir=str(tmp_path), http_proxy=proxy)
    result = write_manifests(found, False, True)
    path = tmp_path / "rbln-system.yaml"
    assert proxy in path.read_text() and path.stat().st_mode & 0o777 == mode
    assert "n0t-a-Real-one" not in str(result)
    assert any("holds a secret" in text for text in result["warnings"]) is (mode == 0o600)


@pytest.mark.parametrize(
    ("differences", "told"),
    [([], ["nothing would change"]), ([{"object": "Node n1", "action": "deleted", "error": ""}], ["Node n1: deleted"])],
)
def test_diff_tells_people_what_would_change(
    monkeypatch: pytest.MonkeyPatch, differences: list[dict[str, Any]], told: list[str]
) -> None:
    action, shown = object.__new__(ActionModule), []
    monkeypatch.setattr(
        action, "_work", lambda *_arguments: SimpleNamespace(diff=lambda: {"differences": differences}), raising=False
    )
    monkeypatch.setattr(action, "_display", SimpleNamespace(display=shown.append), raising=False)
    assert action._diff({}, {}) == {"differences": differences} and shown == told
