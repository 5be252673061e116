# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What site.yml does with failures."""

from __future__ import annotations

from typing import Any

import yaml
from tests.tools.paths import ROOT

SITE: list[dict[str, Any]] = yaml.safe_load((ROOT / "playbooks" / "site.yml").read_text(encoding="utf-8"))
STOPPING = {"ansible.builtin.fail", "ansible.builtin.assert"}


def test_the_plays_before_the_last_fail_no_batch() -> None:
    """When all hosts of a batch fail, Ansible leaves out the later plays, and nothing says what had failed before."""
    batched = [play for play in SITE if "serial" in play]
    assert [play["name"] for play in batched] == ["3 Hosts"] and SITE[-1]["name"] == "5 Result"
    bare = [task for task in batched[0]["tasks"] if "rescue" not in task]
    assert len(bare) == 1 and [task["name"] for task in bare if STOPPING & set(task)] == []


def test_a_host_that_the_budget_leaves_alone_is_in_no_later_part_and_fails() -> None:
    hosts, cluster, result = SITE[-3:]
    group = hosts["tasks"][0]["ansible.builtin.group_by"]["key"]
    acting = [*hosts["tasks"][1:], *(task for task in cluster["tasks"] if "ansible.builtin.include_role" in task)]
    assert len(acting) == 3 and [task["name"] for task in acting if group not in str(task["when"])] == []
    told = [task["ansible.builtin.fail"]["msg"] for task in result["tasks"] if group in task["when"]]
    assert len(told) == 1 and "rbln_failure_budget is" in told[0] and " Next: " in told[0]
