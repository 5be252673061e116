# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""rbln_validate and rbln_observe on a tree."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import ca22_host
from ansible_collections.rebellions.npu.tests.unit.fixtures.module_run import as_process, in_process

DIR = "run/rbln/validations"


def markers(root: Path) -> list[str]:
    return sorted(os.listdir(root / DIR)) if (root / DIR).is_dir() else []


@pytest.mark.parametrize("module", ["rbln_validate", "rbln_observe"])
def test_a_process_of_its_own_says_the_same(tmp_path: Path, module: str) -> None:
    ca22_host(tmp_path)
    arguments = {"root": str(tmp_path), "scopes": ["driver"]}
    (code, result), (expected, other) = as_process(module, arguments), in_process(module, arguments)
    assert (code, set(result)) == (expected, set(other))
    # The evidence has times of the look.
    assert [(one["name"], one["ok"]) for one in result.get("checks", [])] == [
        (one["name"], one["ok"]) for one in other.get("checks", [])
    ]


def test_check_mode_says_what_would_change_and_changes_nothing(tmp_path: Path) -> None:
    ca22_host(tmp_path)
    arguments = {"root": str(tmp_path), "scopes": ["driver"], "unknown_blocks": False, "driver_version": "3.2.2"}
    code, dry = in_process("rbln_validate", dict(arguments, _ansible_check_mode=True))
    assert (code, dry["changed"], dry["passed"], markers(tmp_path)) == (0, True, True, [])
    code, first = in_process("rbln_validate", arguments)
    assert (code, first["changed"], markers(tmp_path)) == (0, True, [".driver-ctr-ready", "driver-ready"])
    assert first["changes"] == dry["changes"] and first["diff"] == dry["diff"]
    assert (
        first["ansible_facts"]["rbln_proof"]["checks"] == first["checks"]
        and first["ansible_facts"]["rbln"]["counts"]["cards"] == 4
    )
    code, again = in_process("rbln_validate", arguments)
    assert (code, again["changed"], again["changes"]) == (0, False, [])
    code, gone = in_process("rbln_validate", {"root": str(tmp_path), "scopes": [], "markers": "remove"})
    assert (code, gone["changed"], gone["checks"], markers(tmp_path)) == (0, True, [], [])
    assert set(gone["ansible_facts"]) == {"rbln_proof"}


def test_failure_is_one_error_with_the_remedies(tmp_path: Path) -> None:
    ca22_host(tmp_path)
    arguments = {"root": str(tmp_path), "scopes": ["driver"], "driver_version": "3.4.0", "unknown_blocks": False}
    code, result = in_process("rbln_validate", arguments)
    assert (code, result["failed"], result["failed_checks"]) == (1, True, ["driver_is_wanted"])
    assert "driver/driver_is_wanted: loaded is 3.2.2, wanted is 3.4.0. Next: Install driver 3.4.0, " in result["msg"]
    code, result = in_process("rbln_validate", dict(arguments, fail_on_blocking=False))
    assert (code, result["passed"], result["state"], markers(tmp_path)) == (0, False, "failed", [])
    # A playbook shows the proof and says this at its end.
    assert "driver/driver_is_wanted: " in result["msg"] and "rbln" in result["ansible_facts"]


def test_what_could_not_be_found_out_has_not_passed(tmp_path: Path) -> None:
    ca22_host(tmp_path)
    code, result = in_process("rbln_validate", {"root": str(tmp_path), "scopes": ["driver"]})
    assert (code, result["state"], result["failed_checks"]) == (1, "unknown", []) and "tool_answers" in result[
        "unknown_checks"
    ]


@pytest.mark.parametrize("module", ["rbln_validate", "rbln_observe"])
@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"blocking": ["errors"]}, "'errors'"),
        ({"options": {"driver_version": 3.2}}, "driver_version is 3.2"),
        ({"options": {"nonsense": 1}}, "'nonsense' is not an option"),
        ({"cdi": {"form": "x"}}, "form is 'x'"),
        ({"scopes": ["moon"]}, "moon"),
    ],
)
def test_bad_input_is_one_error(tmp_path: Path, module: str, arguments: dict[str, Any], words: str) -> None:
    code, result = in_process(module, dict(arguments, root=str(tmp_path)))
    assert (code, result["failed"]) == (1, True) and words in result["msg"] and os.listdir(tmp_path) == []


def test_observation(tmp_path: Path) -> None:
    ca22_host(tmp_path)
    code, result = in_process(
        "rbln_observe", {"root": str(tmp_path), "options": {"cdi": {"form": "kubernetes"}}, "scopes": ["driver"]}
    )
    facts = result["ansible_facts"]
    assert (code, result["changed"], sorted(facts)) == (0, False, ["rbln", "rbln_observed", "rbln_runtimes"])
    assert {check["scope"] for check in facts["rbln_observed"]["checks"]} == {"driver"}
    assert (
        facts["rbln_observed"]["cdi"]["state"] == "missing" and facts["rbln_observed"]["host_tool"]["current"] is None
    )
