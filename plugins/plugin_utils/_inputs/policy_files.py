# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Policy files and the role's variables together: later files win over earlier ones, variables win over files."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._objects.names import OPERANDS
from .normalise import normalise
from .policy_keys import Path, Spec, rows
from .policy_read import DRIVER, POLICY, Document, read_documents
from .policy_translate import Translated, translate

Tree = dict[str, t.Any]
INSTANCES = "driver_instances"
# A driver has its own nodes: an instance that took the selector of all would have it twice.
NOT_INHERITED = ("node_selector",)
_FALLBACK = re.compile(r"default\('([^']*)', true\)")
_NAME = re.compile(r"\b%s([a-z_]+(?:\[[0-9]+\])?(?:\.[\w\[\]-]+)*)" % OPERANDS)


@dataclasses.dataclass(frozen=True)
class Policy:
    """All files together: inputs without the role's prefix, their places by path, notes on what was left out."""

    tree: Tree
    sources: t.Mapping[Path, str]
    notes: tuple[str, ...]


def read_policy(files: t.Sequence[str], ignore: t.Sequence[str], spec: Spec) -> Policy:
    """Read all files in order; a later one wins. Driver instances are a mapping by name in the tree.

    NpuError names file and key.
    """
    documents = [document for path in files for document in read_documents(path)]
    policies = [document for document in documents if document.kind == POLICY]
    if len(policies) > 1:
        raise NpuError(
            "%s and %s are both a %s, and a cluster has one only." % (policies[0].label, policies[1].label, POLICY),
            "Remove one of them.",
        )
    known = rows(spec)
    several = len(_driver_names(documents)) > 1
    tree: Tree = {}
    sources: dict[Path, str] = {}
    notes: list[str] = []
    ignored: set[str] = set()
    for document in documents:
        found = translate(document, known, ignore, document.name if several and document.kind == DRIVER else "")
        tree = deep_merge(tree, nested(found))
        sources.update(found.sources)
        notes += found.notes
        ignored |= found.ignored
    if several:
        tree.setdefault("driver", {}).setdefault("enabled", True)
    notes += [f"{OPERANDS}policy_ignore names {item}, which no file has." for item in ignore if item not in ignored]
    return Policy(tree, sources, tuple(notes))


def _driver_names(documents: t.Sequence[Document]) -> dict[str, str]:
    """Names of all driver objects and the file of each."""
    names: dict[str, str] = {}
    for document in documents:
        if document.kind == DRIVER:
            if not document.name:
                raise NpuError("%s: metadata.name is not set." % document.label, "Name the driver.")
            if document.name in names:
                raise NpuError(
                    "%s and %s are both the %s %s." % (names[document.name], document.label, DRIVER, document.name),
                    "Give each its own name.",
                )
            names[document.name] = document.label
    return names


def nested(found: Translated) -> Tree:
    tree: Tree = {}
    for path, value in found.values.items():
        part = tree
        for name in path[:-1]:
            part = part.setdefault(name, {})
        part[path[-1]] = value
    return tree


def deep_merge(below: t.Mapping[str, t.Any], above: t.Mapping[str, t.Any]) -> Tree:
    """A new tree: mappings are merged key by key, of anything else `above` wins."""
    result = dict(below)
    for name, value in above.items():
        old = result.get(name)
        result[name] = deep_merge(old, value) if isinstance(old, t.Mapping) and isinstance(value, t.Mapping) else value
    return result


def overlay(policy: Policy, raw: t.Mapping[str, t.Any], spec: Spec) -> tuple[Tree, dict[Path, str]]:
    """(raw inputs, place in a file of each that came from one): the role's variables on top of the files.

    A mapping wins key by key; anything else wins when it is not the role's default, which cannot be told from a
    variable that is not set.
    """
    result = dict(raw)
    said: Tree = {}
    for name, value in policy.tree.items():
        full = OPERANDS + name
        below: t.Any = [{**own, "name": key} for key, own in value.items()] if name == INSTANCES else value
        if spec[full].get("type") == "dict":
            said[name] = plain_mapping(full, raw.get(full))
            result[full] = deep_merge(below, said[name])
        elif _is_default(raw.get(full), spec[full]):
            result[full] = below
        else:
            said[name] = raw[full]
    sources = {path: place for path, place in policy.sources.items() if not _has(said, path)}
    return result, sources


def plain_mapping(name: str, value: t.Any) -> Tree:
    """A mapping, or the text of one, with nothing filled in."""
    return t.cast(Tree, normalise({name: value}, {name: {"type": "dict", "default": {}}})[name])


def _is_default(value: t.Any, entry: t.Mapping[str, t.Any]) -> bool:
    default = entry.get("default", [] if entry["type"] == "list" else None)
    if isinstance(default, str) and "{{" in default:
        fallback = _FALLBACK.search(default)
        default = fallback.group(1) if fallback else []
    return value is None or value == default


def _has(tree: t.Any, path: Path) -> bool:
    for name in path:
        if not isinstance(tree, t.Mapping):
            return True
        if name not in tree:
            return False
        tree = tree[name]
    return not isinstance(tree, t.Mapping)


def inherit(raw: t.Mapping[str, t.Any]) -> Tree:
    """Raw inputs whose driver instances have all that the driver says and they do not."""
    full, driver = OPERANDS + INSTANCES, OPERANDS + "driver"
    items = normalise({full: raw.get(full)}, {full: {"type": "list", "elements": "dict", "default": []}})[full]
    if not items:
        return dict(raw)
    base = {key: value for key, value in plain_mapping(driver, raw.get(driver)).items() if key not in NOT_INHERITED}
    return {**raw, full: [deep_merge(base, item) for item in items]}


def located(error: NpuError, sources: t.Mapping[Path, str], raw: t.Mapping[str, t.Any]) -> NpuError:
    """The error with the place in a policy file that its input came from, or as it was."""
    match = _NAME.search(error.message)
    if not match:
        return error
    path: Path = tuple(re.sub(r"\[[0-9]+\]", "", part) for part in match.group(1).split("."))
    candidates: list[Path] = [path]
    index = re.match(INSTANCES + r"\[([0-9]+)\]", match.group(1))
    items = raw.get(OPERANDS + INSTANCES)
    if index and isinstance(items, list) and int(index.group(1)) < len(items):
        candidates = [
            (INSTANCES, str(dict(items[int(index.group(1))]).get("name", "")), *path[1:]),
            ("driver", *path[1:]),
        ]
    for candidate in candidates:
        for length in range(len(candidate), 0, -1):
            place = sources.get(candidate[:length])
            if not place and length == 1 and candidate[0] == INSTANCES:
                # What concerns several instances names none of their keys.
                place = next((found for where, found in sources.items() if where[0] == INSTANCES), None)
            if place:
                return NpuError(error.message, ("%s (%s)" % (error.next_step, place)).strip())
    return error
