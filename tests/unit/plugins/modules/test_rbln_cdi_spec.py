# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module on a tree: its output, exit code and what it leaves on disk."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rebellions.npu.plugins.modules import rbln_cdi_spec
from ansible_collections.rebellions.npu.tests.unit.fixtures.cdi.tree import Tree
from ansible_collections.rebellions.npu.tests.unit.fixtures.module_run import as_process, in_process

PATH = "/var/run/cdi/rbln.yaml"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    tree = Tree(tmp_path)
    tree.directory("/dev")
    tree.libc()
    tree.driver()
    tree.verbs()
    tree.tool("/usr/bin/rbln-smi")
    tree.host_tool()
    return tree


def arguments(tree: Tree, check: bool = False, **params: Any) -> dict[str, Any]:
    return {
        "root": str(tree.root),
        "form": "kubernetes",
        "machine": "x86_64",
        **params,
        "_ansible_check_mode": check,
    }


def run(tree: Tree, check: bool = False, **params: Any) -> tuple[int, dict[str, Any]]:
    return in_process("rbln_cdi_spec", arguments(tree, check, **params))


def files(tree: Tree) -> dict[str, bytes]:
    return {
        str(path.relative_to(tree.root)): path.read_bytes() for path in sorted(tree.root.rglob("*")) if path.is_file()
    }


def test_a_process_of_its_own_says_the_same(tree: Tree) -> None:
    assert as_process("rbln_cdi_spec", arguments(tree, check=True)) == run(tree, check=True)


def test_the_state_is_that_of_the_specification_and_not_of_its_file(tree: Tree, tmp_path: Path) -> None:
    """Ansible describes a file that exists at the path of a result."""
    path = tmp_path / "rbln.yaml"
    path.write_text("x", encoding="utf-8")
    rc, done = run(tree, path=str(path))
    assert (rc, done["state"]) == (0, "current") and not {"uid", "owner", "mode", "size"} & set(done)


def test_life_of_a_specification(tree: Tree) -> None:
    before = files(tree)
    rc, dry = run(tree, check=True)
    assert (rc, dry["changed"]) == (0, True) and files(tree) == before
    rc, done = run(tree)
    assert (rc, done["changed"], done["found"], done["state"]) == (0, True, "missing", "current")
    assert set(files(tree)) - set(before) == {PATH.lstrip("/")}
    written = files(tree)[PATH.lstrip("/")]
    assert dry["diff"]["after"].encode() == written
    spec = yaml.safe_load(written)
    assert [device["name"] for device in spec["devices"]] == ["all", "runtime"] and spec["cdiVersion"] == "0.3.0"
    stamp = os.stat(tree.root / PATH.lstrip("/"))
    rc, again = run(tree)
    assert (rc, again["changed"]) == (0, False)
    assert os.stat(tree.root / PATH.lstrip("/")) == stamp
    rc, judged = run(tree, state="validate")
    assert (rc, judged["valid"], judged["problems"]) == (0, True, [])
    rc, gone = run(tree, state="absent")
    assert (rc, gone["changed"]) == (0, True) and files(tree) == before


def test_invalid_file_fails_with_place_and_remedy(tree: Tree) -> None:
    tree.put(PATH, "cdiVersion: 0.5.0\nkind: rebellions.ai/npu\ndevices:\n- name: all\n  containerEdits: {}\n")
    rc, done = run(tree, state="validate")
    assert rc == 1 and done["failed"] and not done["valid"]
    assert done["msg"].startswith(PATH + ": devices[all].containerEdits: it is empty") and "Next: " in done["msg"]


def test_missing_library_is_a_warning(tree: Tree) -> None:
    (tree.root / "usr/lib/x86_64-linux-gnu/libibverbs.so.1").unlink()
    rc, done = run(tree)
    assert rc == 0 and [item["name"] for item in done["missing"]] == ["libibverbs.so.1"]
    assert any("libibverbs.so.1" in str(warning) for warning in done["warnings"])


@pytest.mark.parametrize(
    "params, message",
    [
        ({"form": "standalone"}, "There is no NPU device node below /dev. Next: "),
        ({"path": "/etc/cdi/rbln.conf"}, "does not end in .yaml or .json"),
        ({"hooks": "on", "host_tool": False}, "/usr/local/bin/rbln-cdi-hook cannot be used"),
        ({"driver_root": "/run/../x"}, "driver_root is"),
        ({"state": "gone"}, "value of state must be one of"),
        ({"groups": {"rbln0": "x"}}, "groups: the group of rbln0"),
    ],
)
def test_bad_input_is_one_message_and_no_file(tree: Tree, params: dict[str, Any], message: str) -> None:
    before = files(tree)
    rc, done = run(tree, **params)
    assert rc == 1 and message in done["msg"] and "Traceback" not in json.dumps(done)
    assert files(tree) == before


def test_c35_output_directory_is_a_file(tree: Tree) -> None:
    tree.put("/var/run/cdi", "x")
    rc, done = run(tree)
    assert (
        rc == 1
        and "/var/run/cdi/rbln.yaml cannot be read" in done["msg"]
        or "/var/run/cdi" in done["msg"]
        and "Next: " in done["msg"]
    )
    assert (tree.root / "var/run/cdi").read_text() == "x"


def test_documented_options_are_those_it_takes() -> None:
    documented = yaml.safe_load(rbln_cdi_spec.DOCUMENTATION)["options"]
    assert set(documented) == set(rbln_cdi_spec.ARGUMENTS)
    for name, entry in documented.items():
        given = rbln_cdi_spec.ARGUMENTS[name]
        assert entry["type"] == given["type"], name
        assert entry.get("default") == given.get("default"), name
        assert entry.get("choices") == given.get("choices"), name
        assert entry.get("elements") == given.get("elements"), name


def test_returned_values_are_documented(tree: Tree) -> None:
    documented = set(yaml.safe_load(rbln_cdi_spec.RETURN))
    for params in ({}, {"state": "validate"}, {"state": "absent"}):
        rc, done = run(tree, **params)
        assert rc == 0
        assert set(done) - {"changed", "diff", "invocation", "warnings"} <= documented
