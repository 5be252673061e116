# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CDI project's own Go library as a judge, and changed specifications for it and for us."""

from __future__ import annotations

import copy
import json
import random
import subprocess
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import ERROR
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.spec import load_spec
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.validate import validate_spec

from tests.lab._go import program

VALUES: tuple[Any, ...] = (
    None, "", "x", "0", "-3", "a b", "rw", "rwm", "rx", 0, 1, -1, True, 0.5, [], {}, ["A=b"], ["A"], ["=b"], {"a": "b"},
    "0.3.0", "0.4.0", "0.6.0", "0.7.0",
    "createContainer", "prestart", "c", "b", "rebellions.ai/npu", "npu", "a/b.c", "/dev/x",
)  # fmt: skip
BASE: dict[str, Any] = {
    "cdiVersion": "0.5.0",
    "kind": "rebellions.ai/npu",
    "annotations": {},
    "containerEdits": {
        "env": ["A=b"],
        "hooks": [{"hookName": "createContainer", "path": "/x", "args": ["x"], "env": ["A=b"], "timeout": 1}],
    },
    "devices": [
        {
            "name": "0",
            "annotations": {},
            "containerEdits": {
                "deviceNodes": [
                    {
                        "path": "/dev/rbln0",
                        "hostPath": "/dev/rbln0",
                        "type": "c",
                        "major": 1,
                        "minor": 1,
                        "permissions": "rw",
                        "uid": 0,
                    }
                ],
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
    items = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    return [(value, key) for key, _item in items] + [place for _key, item in items for place in places(item)]


def judge(paths: list[Path], *flags: str) -> dict[Path, str]:
    """Verdict by path: empty for valid, else the reason. `-library` asks the parser alone, without the schema."""
    binary = program("cdi-validate") / "cdi-validate"
    done = subprocess.run(
        [str(binary), *flags, *map(str, paths)], capture_output=True, text=True, timeout=120, check=False
    )
    verdicts: dict[Path, str] = {}
    for line in done.stdout.splitlines():
        path, _colon, word = line.partition(": ")
        if Path(path) in paths:
            verdicts[Path(path)] = "" if word == "valid" else word
    assert set(verdicts) == set(paths), done.stdout + done.stderr
    return verdicts


def changed_specification(source: random.Random) -> dict[str, Any]:
    """A specification that uses everything, with one to three random changes."""
    spec = copy.deepcopy(BASE)
    if source.random() < 0.7:
        del spec["devices"][0]["containerEdits"]["intelRdt"], spec["devices"][0]["containerEdits"]["additionalGids"]
    for _change in range(source.randrange(1, 4)):
        holder, key = source.choice(places(spec))
        if isinstance(holder, dict) and source.random() < 0.3:
            del holder[key]
        elif isinstance(holder, dict) and source.random() < 0.1:
            holder[source.choice(["extra", "env", "hookname", "mounts", "fileMode"])] = copy.deepcopy(
                source.choice(VALUES)
            )
        else:
            # A null in a list makes the library itself crash.
            holder[key] = copy.deepcopy(source.choice(VALUES[1:] if isinstance(holder, list) else VALUES))
    return spec


def disagreements(folder: Path, source: random.Random, count: int) -> tuple[int, list[str]]:
    """(specifications the library refuses, those on which we do not agree with it) of `count` changed ones."""
    paths = [folder / f"{number}.yaml" for number in range(count)]
    for path in paths:
        path.write_text(yaml.safe_dump(changed_specification(source), sort_keys=False))
    verdicts: dict[Path, str] = {}
    for start in range(0, count, 300):
        verdicts.update(judge(paths[start : start + 300], "-library"))
    wrong = []
    for path in paths:
        loaded = load_spec(path.read_text(), path.name)
        errors = [problem.detail for problem in validate_spec(loaded) if problem.severity == ERROR]
        if bool(errors) != bool(verdicts[path]):
            wrong.append(f"library: {verdicts[path]}\nhere: {errors}\n{json.dumps(loaded)}")
    return sum(map(bool, verdicts.values())), wrong
