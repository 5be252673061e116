# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The manifests that policies render to. Four are stored whole, the others as differences to objects of those four.

A file of differences has a part for each object in order: `--- POLICY NUMBER`, the object of a whole policy that it
starts from (NUMBER counts from 0), `+++ OBJECT`, and the hunks of a unified diff without context; no hunks for an
equal object.
"""

from __future__ import annotations

import difflib
import pathlib
import re
from collections.abc import Mapping

FOLDER = pathlib.Path(__file__).parents[2] / "fixtures" / "operands"
WHOLE = ("01-defaults", "02-everything-in-containers", "03-sandbox", "06-driver-pools")
_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@\n$")
_FROM = re.compile(r"^--- (\S+) (\d+)\n$")
NOTHING = ("nothing", 0)


def names() -> list[str]:
    """The policies that are stored."""
    return sorted(path.stem for path in FOLDER.iterdir())


def golden(name: str) -> str:
    """The manifests of a policy as they are stored."""
    if name in WHOLE:
        return (FOLDER / (name + ".manifests")).read_text(encoding="utf-8")
    return apply((FOLDER / (name + ".diff")).read_text(encoding="utf-8"))


def documents(text: str) -> list[list[str]]:
    """The objects of a YAML stream, each as its lines."""
    found: list[list[str]] = []
    for line in text.splitlines(keepends=True):
        if line == "---\n":
            found.append([])
        found[-1].append(line)
    return found


def apply(differences: str) -> str:
    """The manifests that a file of differences stands for."""
    wholes = {name: documents(golden(name)) for name in WHOLE}
    made: list[str] = []
    lines = differences.splitlines(keepends=True)
    at = 0
    while at < len(lines):
        start = _FROM.match(lines[at])
        assert start and lines[at + 1].startswith("+++ "), lines[at]
        base = [] if start[1] == NOTHING[0] else wholes[start[1]][int(start[2])]
        at, done = at + 2, 0
        while at < len(lines) and (hunk := _HUNK.match(lines[at])):
            removed, added = (1 if count is None else int(count) for count in hunk.group(2, 3))
            place = int(hunk[1]) - (1 if removed else 0)
            old, new = lines[at + 1 : at + 1 + removed], lines[at + 1 + removed : at + 1 + removed + added]
            assert [line[1:] for line in old] == base[place : place + removed], lines[at]
            made += base[done:place] + [line[1:] for line in new]
            done, at = place + removed, at + 1 + removed + added
        made += base[done:]
    return "".join(made)


def differences(text: str, wholes: Mapping[str, str]) -> str:
    """The file of differences for manifests, from the objects of whole policies that need the fewest lines."""
    bases = {(name, number): item for name, whole in wholes.items() for number, item in enumerate(documents(whole))}
    return "".join(_shortest(item, {NOTHING: [], **bases}) for item in documents(text))


def _shortest(item: list[str], bases: Mapping[tuple[str, int], list[str]]) -> str:
    label = " ".join(
        next(line for line in item if line.startswith(start)).split()[1] for start in ("kind: ", "  name: ")
    )
    found = []
    for (policy, number), base in bases.items():
        lines = list(difflib.unified_diff(base, item, f"{policy} {number}", label, n=0))
        found.append(lines or [f"--- {policy} {number}\n", f"+++ {label}\n"])
    return "".join(min(found, key=len))
