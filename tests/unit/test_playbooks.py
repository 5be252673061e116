# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the playbooks have in common: inputs are judged first, by one judge, and a failure is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SITE: list[dict[str, Any]] = yaml.safe_load((ROOT / "playbooks" / "site.yml").read_text(encoding="utf-8"))
PLAYBOOKS = sorted((ROOT / "playbooks").glob("*.yml"))
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
    (told,) = result["tasks"]
    assert "ansible.builtin.fail" in told and group in told["vars"]["__rbln_why"]
    text = told["vars"]["__rbln_left_alone"]
    assert "rbln_failure_budget is" in text and " Next: " in text


def test_check_mode_shows_the_plan_where_a_cluster_refuses_it_and_fails_after_that() -> None:
    cluster, result = SITE[-2:]
    shown = cluster["tasks"][-1]
    assert "rebellions.npu.rbln_plan_show" in shown and shown["when"] == "ansible_check_mode"
    assert cluster["vars"] == {"__rbln_operands_fail": "{{ not ansible_check_mode }}"}
    assert "rbln_operands_result.msg" in result["tasks"][0]["vars"]["__rbln_why"]


def roles_of(path: Path) -> list[dict[str, Any]]:
    """The imports and includes of roles in the plays, in their order."""
    tasks = [task for play in yaml.safe_load(path.read_text(encoding="utf-8")) for task in play.get("tasks") or []]
    flat = [inner for task in tasks for inner in task.get("block") or [task]]
    return [task[key] for task in flat for key in task if key.endswith(("import_role", "include_role"))]


@pytest.mark.parametrize("path", PLAYBOOKS, ids=lambda path: path.stem)
def test_names_are_judged_in_every_playbook_and_values_by_our_own_judge(path: Path) -> None:
    """Ansible's judge of a role's arguments refuses the empty text of a survey."""
    roles = roles_of(path)
    assert [role for role in roles if role.get("tasks_from") == "inputs"] != []
    # Only tasks/main.yml has a spec that Ansible would judge by.
    judged = [role for role in roles if "tasks_from" not in role]
    assert judged and [role for role in judged if role.get("rolespec_validate") is not False] == []


def test_a_role_in_a_role_is_not_judged_by_ansible_either() -> None:
    """After a reboot the plan is made again, and the inputs are those of the survey."""
    found = []
    for path in (ROOT / "roles").glob("*/tasks/*.yml"):
        for task in yaml.safe_load(path.read_text(encoding="utf-8")):
            inner = [*task.get("block", []), *task.get("rescue", []), task]
            found += [one[key] for one in inner for key in one if key.endswith(("import_role", "include_role"))]
    assert len(found) >= 8 and [role for role in found if role.get("rolespec_validate") is not False] == []
