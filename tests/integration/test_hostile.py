# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host answers what it wants: it fails alone, and nothing of it reaches the controller."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration._hostile import Hostile

pytestmark = pytest.mark.usefixtures("staged")


def test_an_honest_host_passes(tmp_path: Path) -> None:
    control = Hostile(tmp_path, ["good"])
    before = control.files()
    run = control.play("discover").good(["good"])
    assert run.one("Show what was found", "good").data["msg"]["counts"]["usable"] == 4
    assert control.files() == before and control.asked("good") == ["rbln_observe"]
