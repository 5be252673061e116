# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the report of a run adds to it: CPU seconds of the callback against those of the run, in the same run."""

from __future__ import annotations

import typing as t

from ._contenders import HERE, ansible, inventory, measured, site
from ._hosts import FOLDER, NAMES, Hosts

# Of the CPU time of the controller, with all four formats.
SHARE_LIMIT = 0.03
COST = FOLDER / "report.seconds"


def reported(hosts: Hosts, names: t.Sequence[str] = NAMES) -> tuple[float, float]:
    """(CPU seconds of the callback, of the controller) of an unchanged run of the host part."""
    COST.unlink(missing_ok=True)
    more = {
        "ANSIBLE_CALLBACK_PLUGINS": str(HERE / "callbacks"),
        "ANSIBLE_CALLBACKS_ENABLED": "report_cost,rebellions.npu.rbln_report",
        "BENCH_REPORT": str(COST),
        "RBLN_REPORT_PATH": str(FOLDER / "reports"),
        "RBLN_REPORT_FORMATS": "html,json,markdown,junit",
    }
    argv = ["ansible-playbook", "-i", inventory(names, site()), "playbooks/site.yml", "--skip-tags", "operands"]
    spent = measured(hosts, argv, {**ansible(hosts), **more}, "ours")
    return float(COST.read_text(encoding="utf-8")), spent.controller
