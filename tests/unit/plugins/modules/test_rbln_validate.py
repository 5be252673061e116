# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""rbln_validate and rbln_observe as processes of their own, the way a managed host runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ansible
import pytest
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import Tree, ca22_host

ANSIBLE = Path(ansible.__file__).resolve().parent.parent
START = """
import runpy, sys
from ansible.module_utils import basic
basic._ANSIBLE_ARGS = sys.stdin.buffer.read()
basic._ANSIBLE_PROFILE = "legacy"
runpy.run_module("ansible_collections.rebellions.npu.plugins.modules.%s", run_name="__main__")
"""
DIR = "run/rbln/validations"


def call(module: str, arguments: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    collections = Path(str(sys.modules[Tree.__module__].__file__)).absolute().parents[7]
    env = dict(os.environ, PYTHONPATH=os.pathsep.join([str(collections), str(ANSIBLE)]), PYTHONDONTWRITEBYTECODE="1")
    text = json.dumps({"ANSIBLE_MODULE_ARGS": arguments})
    done = subprocess.run(
        [sys.executable, "-c", START % module],
        input=text,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.lstrip().startswith("{"), done.stderr
    return done.returncode, json.loads(done.stdout)


def markers(root: Path) -> list[str]:
    return sorted(os.listdir(root / DIR)) if (root / DIR).is_dir() else []


def test_check_mode_says_what_would_change_and_changes_nothing(tmp_path: Path) -> None:
    ca22_host(tmp_path)
    arguments = {"root": str(tmp_path), "scopes": ["driver"], "unknown_blocks": False, "driver_version": "3.2.2"}
    code, dry = call("rbln_validate", dict(arguments, _ansible_check_mode=True))
    assert (code, dry["changed"], dry["passed"], markers(tmp_path)) == (0, True, True, [])
    code, first = call("rbln_validate", arguments)
    assert (code, first["changed"], markers(tmp_path)) == (0, True, [".driver-ctr-ready", "driver-ready"])
    assert first["changes"] == dry["changes"] and first["diff"] == dry["diff"]
    assert (
        first["ansible_facts"]["rbln_proof"]["checks"] == first["checks"]
        and first["ansible_facts"]["rbln"]["counts"]["cards"] == 4
    )
    code, again = call("rbln_validate", arguments)
    assert (code, again["changed"], again["changes"]) == (0, False, [])
    code, gone = call("rbln_validate", {"root": str(tmp_path), "scopes": [], "markers": "remove"})
    assert (code, gone["changed"], gone["checks"], markers(tmp_path)) == (0, True, [], [])
    assert set(gone["ansible_facts"]) == {"rbln_proof"}


def test_failure_is_one_error_with_the_remedies(tmp_path: Path) -> None:
    ca22_host(tmp_path)
    arguments = {"root": str(tmp_path), "scopes": ["driver"], "driver_version": "3.4.0", "unknown_blocks": False}
    code, result = call("rbln_validate", arguments)
    assert (code, result["failed"], result["failed_checks"]) == (1, True, ["driver_is_wanted"])
    assert "driver/driver_is_wanted: loaded is 3.2.2, wanted is 3.4.0. Next: Install driver 3.4.0." in result["msg"]
    code, result = call("rbln_validate", dict(arguments, fail_on_blocking=False))
    assert (code, result["passed"], result["state"], markers(tmp_path)) == (0, False, "failed", [])


def test_what_could_not_be_found_out_has_not_passed(tmp_path: Path) -> None:
    ca22_host(tmp_path)
    code, result = call("rbln_validate", {"root": str(tmp_path), "scopes": ["driver"]})
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
    code, result = call(module, dict(arguments, root=str(tmp_path)))
    assert (code, result["failed"]) == (1, True) and words in result["msg"] and os.listdir(tmp_path) == []


def test_observation(tmp_path: Path) -> None:
    ca22_host(tmp_path)
    code, result = call(
        "rbln_observe", {"root": str(tmp_path), "options": {"cdi": {"form": "kubernetes"}}, "scopes": ["driver"]}
    )
    facts = result["ansible_facts"]
    assert (code, result["changed"], sorted(facts)) == (0, False, ["rbln", "rbln_observed", "rbln_runtimes"])
    assert {check["scope"] for check in facts["rbln_observed"]["checks"]} == {"driver"}
    assert (
        facts["rbln_observed"]["cdi"]["state"] == "missing" and facts["rbln_observed"]["host_tool"]["current"] is None
    )
