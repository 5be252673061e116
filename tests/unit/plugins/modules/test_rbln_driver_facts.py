# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module on a tree, on this machine, and with the oldest Python of a managed host."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import Tree, ca22_host
from ansible_collections.rebellions.npu.tests.unit.fixtures.module_run import COLLECTIONS, as_process, in_process

ROOT = Path(__file__).resolve().parents[4]
SCHEMA = json.loads((ROOT / "docs/schemas/rbln_facts.schema.json").read_text(encoding="utf-8"))
MODULE = "rbln_driver_facts"


def call(arguments: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return in_process(MODULE, arguments)


@pytest.mark.parametrize("check", [False, True], ids=["run", "A06-check-mode"])
def test_facts_of_a_root(tmp_path: Path, check: bool) -> None:
    tree = ca22_host(tmp_path)
    code, result = call({"root": str(tmp_path), "_ansible_check_mode": check, "_ansible_diff": True})
    assert (code, result["changed"]) == (0, False)
    assert set(result) - {"invocation"} == {"changed", "ansible_facts"}
    facts = result["ansible_facts"]["rbln"]
    jsonschema.Draft202012Validator(SCHEMA).validate(facts)
    assert facts["counts"] == {"cards": 4, "functions": 4, "devices": 4, "usable": 4}
    assert facts["pool_key"] == "ubuntu_24_04_k6_8_0_117_generic"
    assert facts["smi"]["state"] == "absent"
    assert tree.smi_calls() == []


def test_options_reach_the_facts(tmp_path: Path) -> None:
    Tree(tmp_path).folder("/sys/bus/pci/devices").kernel("6.8.0-138-generic").write(
        "/srv/stamp", '{"version": "3.2.2"}'
    )
    arguments = {
        "root": str(tmp_path),
        "kernel": "6.8.0-138-generic",
        "expected_addresses": ["0000:83:00.0"],
        "runfile_stamp": "/srv/stamp",
    }
    facts = call(arguments)[1]["ansible_facts"]["rbln"]
    assert facts["kernel"]["running"] == "6.8.0-138-generic"
    assert facts["driver"]["installed_via"] == "runfile"
    assert [problem["code"] for problem in facts["problems"]] == ["npus_found"]


def test_this_machine(tmp_path: Path) -> None:
    code, result = as_process(MODULE, {})
    assert code == 0
    jsonschema.Draft202012Validator(SCHEMA).validate(result["ansible_facts"]["rbln"])


def test_bad_argument_is_one_error(tmp_path: Path) -> None:
    code, result = call({"root": str(tmp_path), "smi_timeout": "soon"})
    assert code == 1
    assert result["failed"] is True
    assert "smi_timeout" in result["msg"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"smi_timeout": 0}, "smi_timeout is 0.0. Next: Give it a number of seconds above 0."),
        (
            {"expected_addresses": ["83:00"]},
            "expected_addresses: not a PCI address: 83:00. Next: Write them as sysfs does, for example 0000:83:00.0.",
        ),
        (
            {"root": "/nowhere/at/all"},
            "root /nowhere/at/all: No such file or directory. Next: Give the directory that holds the system's files.",
        ),
    ],
)
def test_bad_value_names_place_and_remedy(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    code, result = call({"root": str(tmp_path), **arguments})
    assert (code, result["msg"]) == (1, message)


OBSERVE = """
import json, sys
from ansible_collections.rebellions.npu.plugins.module_utils._observe.facts import collect_facts
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
print(json.dumps([list(sys.version_info[:2]), collect_facts(PROFILE, Host(sys.argv[1]), {})]))
"""


def test_O01_oldest_python_of_a_managed_host(tmp_path: Path) -> None:
    """Python 3.8 gives the same facts; 3.6 of EL8 is below the stated minimum."""
    python = shutil.which("python3.8")
    # A shim of pyenv needs to be told that this one is wanted; others pass over the variable.
    env = dict(os.environ, PYTHONPATH=str(COLLECTIONS), PYTHONDONTWRITEBYTECODE="1", PYENV_VERSION="3.8")
    if python is None or subprocess.run([python, "-c", "pass"], env=env, capture_output=True, check=False).returncode:
        pytest.skip("no Python 3.8 here")
    ca22_host(tmp_path)
    found = []
    for program in (python, sys.executable):
        done = subprocess.run(
            [program, "-c", OBSERVE, str(tmp_path)], env=env, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        version, facts = json.loads(done.stdout)
        # Others write to this disk between the two looks.
        facts["disk"] = sorted(facts["disk"])
        found.append((version, facts))
    assert found[0][0] == [3, 8]
    assert found[0][1] == found[1][1]
