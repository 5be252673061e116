# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs that write a report, and the report."""

from __future__ import annotations

import json
from typing import Any

from tests.integration._play import FOLDER

REPORTS = FOLDER / "reports"


def reporting() -> dict[str, str]:
    return {"ANSIBLE_CALLBACKS_ENABLED": "rebellions.npu.rbln_report", "RBLN_REPORT_PATH": str(REPORTS)}


def newest(book: str) -> Any:
    """The newest report of a playbook."""
    return json.loads(max(REPORTS.glob("*-rebellions.npu.%s-*.json" % book)).read_text(encoding="utf-8"))
