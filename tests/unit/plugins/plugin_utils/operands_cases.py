# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inputs of public field reports about the cluster side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

CASES = Path(__file__).resolve().parents[2] / "fixtures" / "nodes" / "cases"


def case(name: str, file: str) -> Any:
    """A file of a case: YAML or JSON as data."""
    return yaml.safe_load((CASES / name / file).read_text(encoding="utf-8"))
