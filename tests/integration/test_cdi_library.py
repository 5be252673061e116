# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CDI project's own Go library and schema judge what is written here, and agree with the judgements made here."""

from __future__ import annotations

import copy
import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rebellions.npu.plugins.module_utils import _cdi, _host
from ansible_collections.rebellions.npu.plugins.module_utils._model import ERROR, WARNING, NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._vendor_rebellions import PROFILE

from tests.lab._go import program
from tests.unit.fixtures.cdi.cases import CASES, HERE, Case, full
from tests.unit.fixtures.cdi.tree import Tree

WRITTEN = [case for case in CASES if not case.error]
VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"hooks": "off"},
    {"legacy_hookname": True},
    {"form": "kubernetes"},
    {"container_library_path": "/opt/npu/lib", "selinux_context": "Z"},
)


@pytest.fixture(scope="module")
def judge() -> Any:
    binary = program("cdi-validate") / "cdi-validate"

    def ask(paths: list[Path], *flags: str) -> dict[Path, str]:
        """Verdict by path: empty for valid, else the reason."""
        done = subprocess.run([str(binary), *flags, *map(str, paths)], capture_output=True, text=True, timeout=120, check=False)
        verdicts: dict[Path, str] = {}
        for line in done.stdout.splitlines():
            for path in paths:
                if line.startswith(f"{path}: "):
                    word = line[len(f"{path}: ") :]
                    verdicts[path] = "" if word == "valid" else word
                    break
        assert set(verdicts) == set(paths), done.stdout + done.stderr
        return verdicts

    return ask


@pytest.mark.parametrize("case", WRITTEN, ids=[case.name for case in WRITTEN])
def test_library_and_schema_accept_every_specification(case: Case, tmp_path: Path, judge: Any) -> None:
    tree = Tree(tmp_path / "host")
    case.build(tree)
    tree.hook()
    paths = []
    for number, variant in enumerate(VARIANTS):
        options = {"machine": "x86_64", **case.options, **variant}
        try:
            spec = _cdi.build_spec(PROFILE, tree.host(_host), _cdi.CdiOptions(**options)).spec
        except NpuError as exc:
            assert "nothing to inject" in str(exc) and options.get("form") == "kubernetes"
            continue
        for form in ("yaml", "json"):
            paths.append(tmp_path / f"{number}.{form}")
            paths[-1].write_text(_cdi.dump_spec(spec, form))
    assert len(paths) >= 8
    assert judge(paths) == dict.fromkeys(paths, "")


@pytest.mark.parametrize("path", sorted((HERE / "cases").glob("*.yaml")), ids=lambda path: path.stem)
def test_cases_are_judged_alike(path: Path, judge: Any) -> None:
    """C01, C02, C03, C08: refused by the library means error here, tolerated means at most a warning."""
    problems = _cdi.validate_spec(_cdi.load_spec(path.read_text(), path.name))
    refused = judge([path], "-library")[path]
    assert bool(refused) == any(problem.severity == ERROR for problem in problems), refused


def test_vendor_output_is_judged_alike(judge: Any) -> None:
    paths = sorted(path for path in (HERE / "vendor").iterdir() if path.suffix in (".yaml", ".json"))
    assert len(paths) > 25
    verdicts = judge(paths, "-library")
    for path in paths:
        problems = _cdi.validate_spec(_cdi.load_spec(path.read_text(), path.name))
        assert bool(verdicts[path]) == any(problem.severity == ERROR for problem in problems), (path.name, verdicts[path], problems)
    by_schema = judge(paths)
    for path in paths:
        problems = _cdi.validate_spec(_cdi.load_spec(path.read_text(), path.name))
        assert not by_schema[path] or any(problem.severity in (ERROR, WARNING) for problem in problems), (path.name, by_schema[path])


VALUES: tuple[Any, ...] = (
    None, "", "x", "0", "-3", "a b", "rw", "rwm", "rx", 0, 1, -1, True, 0.5, [], {}, ["A=b"], ["A"], ["=b"], {"a": "b"}, "0.3.0", "0.4.0", "0.6.0", "0.7.0",
    "createContainer", "prestart", "c", "b", "rebellions.ai/npu", "npu", "a/b.c", "/dev/x",
)  # fmt: skip
BASE: dict[str, Any] = {
    "cdiVersion": "0.5.0",
    "kind": "rebellions.ai/npu",
    "annotations": {},
    "containerEdits": {"env": ["A=b"], "hooks": [{"hookName": "createContainer", "path": "/x", "args": ["x"], "env": ["A=b"], "timeout": 1}]},
    "devices": [
        {
            "name": "0",
            "annotations": {},
            "containerEdits": {
                "deviceNodes": [{"path": "/dev/rbln0", "hostPath": "/dev/rbln0", "type": "c", "major": 1, "minor": 1, "permissions": "rw", "uid": 0}],
                "mounts": [{"hostPath": "/x", "containerPath": "/x", "options": ["ro"], "type": "bind"}],
                "intelRdt": {"closID": "a", "enableCMT": True},
                "additionalGids": [1],
            },
        },
        {"name": "all", "containerEdits": {"env": ["A=b"]}},
    ],
}


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container and key in a value."""
    items = list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    return [(value, key) for key, _item in items] + [place for _key, item in items for place in places(item)]


def test_changed_specifications_are_judged_alike(tmp_path: Path, judge: Any) -> None:
    """One to three random changes to a specification that uses everything; the library and we refuse the same ones."""
    source = random.Random(20260202)
    specs = []
    for _round in range(1500):
        spec = copy.deepcopy(BASE)
        if source.random() < 0.7:
            del spec["devices"][0]["containerEdits"]["intelRdt"], spec["devices"][0]["containerEdits"]["additionalGids"]
        for _change in range(source.randrange(1, 4)):
            holder, key = source.choice(places(spec))
            if isinstance(holder, dict) and source.random() < 0.3:
                del holder[key]
            elif isinstance(holder, dict) and source.random() < 0.1:
                holder[source.choice(["extra", "env", "hookname", "mounts", "fileMode"])] = source.choice(VALUES)
            else:
                # A null in a list makes the library itself crash.
                holder[key] = source.choice(VALUES[1:] if isinstance(holder, list) else VALUES)
        specs.append(spec)
    paths = []
    for number, spec in enumerate(specs):
        paths.append(tmp_path / f"{number}.yaml")
        paths[-1].write_text(yaml.safe_dump(spec, sort_keys=False))
    verdicts: dict[Path, str] = {}
    for start in range(0, len(paths), 300):
        verdicts.update(judge(paths[start : start + 300], "-library"))
    wrong = []
    for path in paths:
        loaded = _cdi.load_spec(path.read_text(), path.name)
        errors = [problem.detail for problem in _cdi.validate_spec(loaded) if problem.severity == ERROR]
        if bool(errors) != bool(verdicts[path]):
            wrong.append((verdicts[path], errors, json.dumps(loaded)))
    assert 300 < sum(map(bool, verdicts.values())) < 1400
    assert wrong == [], "\n".join(f"library: {one}\nhere: {two}\n{three}\n" for one, two, three in wrong)


@pytest.mark.skipif(os.geteuid() != 0, reason="device nodes can only be made by root")
def test_real_device_nodes(tmp_path: Path, judge: Any) -> None:
    """The module as a process on a tree with real character devices, in the standalone form."""
    tree = Tree(tmp_path / "host")
    full(verbs=True)(tree)
    for name, minor in (("rbln0", 0), ("rbln10", 10), ("rbln2", 2), ("rsd0", 0)):
        tree.path(f"/dev/{name}")
        os.mknod(tree.root / "dev" / name, 0o020666, os.makedev(1, 3 if minor == 0 else minor))
    for name in ("rbln0", "rbln2", "rbln10"):
        tree.group(name, 0)
    found = _cdi.build_spec(PROFILE, _host.Host(str(tree.root)), _cdi.CdiOptions(machine="x86_64"))
    assert [device["name"] for device in found.spec["devices"]] == ["0", "2", "10", "rsd0", "all", "runtime"]
    assert _cdi.write_spec(_host.Host(str(tree.root)), "/var/run/cdi/rbln.yaml", _cdi.dump_spec(found.spec, "yaml"))
    path = tree.root / "var/run/cdi/rbln.yaml"
    assert judge([path]) == {path: ""}
