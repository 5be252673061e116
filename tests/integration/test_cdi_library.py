# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CDI project's own Go library and schema judge what is written here, and agree with the judgements made here."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import ERROR, WARNING, NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.build import build_spec
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.options import CdiOptions
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.spec import dump_spec, load_spec
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.validate import validate_spec
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.write import write_spec
from ansible_collections.rebellions.npu.plugins.module_utils._host import host

from tests.integration._cdi_library import disagreements, judge
from tests.unit.fixtures.cdi.table import CASES, HERE, Case, full
from tests.unit.fixtures.cdi.tree import Tree

WRITTEN = [case for case in CASES if not case.error]
VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"hooks": "off"},
    {"legacy_hookname": True},
    {"form": "kubernetes"},
    {"container_library_path": "/opt/npu/lib", "selinux_context": "Z"},
)


@pytest.mark.parametrize("case", WRITTEN, ids=[case.name for case in WRITTEN])
def test_library_and_schema_accept_every_specification(case: Case, tmp_path: Path) -> None:
    tree = Tree(tmp_path / "host")
    case.build(tree)
    tree.hook()
    paths = []
    for number, variant in enumerate(VARIANTS):
        options = {"machine": "x86_64", **case.options, **variant}
        try:
            spec = build_spec(PROFILE, tree.host(host), CdiOptions(**options)).spec
        except NpuError as exc:
            assert "nothing to inject" in str(exc) and options.get("form") == "kubernetes"
            continue
        for form in ("yaml", "json"):
            paths.append(tmp_path / f"{number}.{form}")
            paths[-1].write_text(dump_spec(spec, form))
    assert len(paths) >= 8
    assert judge(paths) == dict.fromkeys(paths, "")


@pytest.mark.parametrize("path", sorted((HERE / "cases").glob("*.yaml")), ids=lambda path: path.stem)
def test_cases_are_judged_alike(path: Path) -> None:
    """C01, C02, C03, C08: refused by the library means error here, tolerated means at most a warning."""
    problems = validate_spec(load_spec(path.read_text(), path.name))
    refused = judge([path], "-library")[path]
    assert bool(refused) == any(problem.severity == ERROR for problem in problems), refused


def test_vendor_output_is_judged_alike() -> None:
    paths = sorted(path for path in (HERE / "vendor").iterdir() if path.suffix in (".yaml", ".json"))
    assert len(paths) > 25
    verdicts = judge(paths, "-library")
    for path in paths:
        problems = validate_spec(load_spec(path.read_text(), path.name))
        assert bool(verdicts[path]) == any(problem.severity == ERROR for problem in problems), (
            path.name,
            verdicts[path],
            problems,
        )
    by_schema = judge(paths)
    for path in paths:
        problems = validate_spec(load_spec(path.read_text(), path.name))
        assert not by_schema[path] or any(problem.severity in (ERROR, WARNING) for problem in problems), (
            path.name,
            by_schema[path],
        )


def test_changed_specifications_are_judged_alike(tmp_path: Path) -> None:
    """The library and we refuse the same ones."""
    refused, wrong = disagreements(tmp_path, random.Random(20260202), 1500)
    assert 300 < refused < 1400
    assert wrong == [], "\n".join(wrong)


@pytest.mark.skipif(os.geteuid() != 0, reason="device nodes can only be made by root")
def test_real_device_nodes(tmp_path: Path) -> None:
    """The module as a process on a tree with real character devices, in the standalone form."""
    tree = Tree(tmp_path / "host")
    full(verbs=True)(tree)
    for name, minor in (("rbln0", 0), ("rbln10", 10), ("rbln2", 2), ("rsd0", 0)):
        tree.path(f"/dev/{name}")
        os.mknod(tree.root / "dev" / name, 0o020666, os.makedev(1, 3 if minor == 0 else minor))
    for name in ("rbln0", "rbln2", "rbln10"):
        tree.group(name, 0)
    found = build_spec(PROFILE, host.Host(str(tree.root)), CdiOptions(machine="x86_64"))
    assert [device["name"] for device in found.spec["devices"]] == ["0", "2", "10", "rsd0", "all", "runtime"]
    assert write_spec(host.Host(str(tree.root)), "/var/run/cdi/rbln.yaml", dump_spec(found.spec, "yaml"))
    path = tree.root / "var/run/cdi/rbln.yaml"
    assert judge([path]) == {path: ""}
