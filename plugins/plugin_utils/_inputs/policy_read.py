# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Policy files to documents: duplicate keys and templates are refused, the form of each document is detected."""

from __future__ import annotations

import dataclasses
import os
import re
import typing as t

import yaml
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE

from .._objects.names import OPERANDS, OPERATOR
from .normalise import nearest
from .roles import Loader

POLICY, DRIVER, CHART = OPERATOR.policy[1], OPERATOR.driver[1], "chart"
KINDS = (POLICY, DRIVER)
GROUP = PROFILE.label_prefix
_KEPT_METADATA = ("name", "labels")
_TEMPLATE = re.compile(r"\{\{.*?\}\}|\{\{-?|\{%")
_VARIABLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*[^}]*\}")
# A shell in the container reads these, so that a variable there is none of the file.
_SHELL_KEYS = ("args", "env", "command")


@dataclasses.dataclass(frozen=True)
class Document:
    """One document of a file: `label` names it in messages, `body` has its sections, `root` comes before their keys."""

    label: str
    kind: str
    name: str
    body: t.Mapping[str, t.Any]
    root: str
    notes: tuple[str, ...]


class _Unique(Loader):  # type: ignore[misc]
    """A key that is said twice is an error: YAML would take the last and say nothing."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> t.Any:
        seen = set()
        for key, _value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, "the key %s appears twice" % key.value, key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_documents(path: str) -> list[Document]:
    """Documents of one file on the controller. NpuError names the file, and the line or key."""
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as exc:
        raise NpuError(
            "%s cannot be read: %s." % (path, getattr(exc, "strerror", None) or exc),
            f"Correct {OPERANDS}policy_files.",
        ) from exc
    for number, line in enumerate(text.splitlines(), 1):
        if _TEMPLATE.search(line) and not line.lstrip().startswith("#"):
            raise NpuError(
                "%s, line %d: there is a template." % (path, number),
                "Name a file of values, or what `helm template` has made of it.",
            )
    try:
        bodies = [body for body in yaml.load_all(text, Loader=_Unique) if body is not None]
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)
        where = ", line %d" % (mark.line + 1) if mark else ""
        raise NpuError(
            "%s%s is not valid YAML: %s." % (path, where, getattr(exc, "problem", None) or exc), "Correct the file."
        ) from exc
    flat: list[t.Any] = []
    for body in bodies:
        flat += body.get("items") or [] if isinstance(body, t.Mapping) and body.get("kind") == "List" else [body]
    documents = []
    for number, body in enumerate(flat, 1):
        label = "%s, document %d" % (path, number) if len(flat) > 1 else path
        _refuse_variables(label, body, "")
        documents.append(_document(label, body))
    return documents


def _refuse_variables(label: str, value: t.Any, path: str) -> None:
    if isinstance(value, t.Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise NpuError(
                    "%s: %s%s has the key %r, which is not text." % (label, path, "" if path else "the file", key),
                    "Quote it.",
                )
            if key not in _SHELL_KEYS:
                _refuse_variables(label, item, "%s.%s" % (path, key) if path else key)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            _refuse_variables(label, item, "%s[%d]" % (path, number))
    elif isinstance(value, str) and _VARIABLE.search(value):
        raise NpuError(
            "%s: %s is %r, and nothing replaces the variable." % (label, path, value),
            "Write the value, or set the role's variable.",
        )


def _document(label: str, body: t.Any) -> Document:
    if not isinstance(body, t.Mapping):
        raise NpuError(
            "%s holds %s in place of a mapping." % (label, type(body).__name__),
            f"Name a {POLICY}, a {DRIVER} or values of the chart.",
        )
    if "apiVersion" not in body and "kind" not in body:
        return Document(label, CHART, "", body, "", ())
    kind, version = str(body.get("kind", "")), str(body.get("apiVersion", ""))
    if version.partition("/")[0] != GROUP or kind not in KINDS:
        near = nearest(kind, KINDS)
        raise NpuError(
            "%s is a %s of %s, which is not a policy." % (label, kind or "object without kind", version or "no API"),
            "%sUse only %s of %s." % ("Did you mean %s? " % near if near else "", " and ".join(KINDS), GROUP),
        )
    unknown = sorted(set(body) - {"apiVersion", "kind", "metadata", "spec", "status"})
    if unknown:
        near = nearest(unknown[0], ("metadata", "spec", "status"))
        raise NpuError(
            "%s: %s is not known." % (label, unknown[0]), "Did you mean %s?" % near if near else "Put it under spec."
        )
    metadata, spec = ({} if body.get(name) is None else body[name] for name in ("metadata", "spec"))
    for name, value in (("metadata", metadata), ("spec", spec)):
        if not isinstance(value, t.Mapping):
            raise NpuError("%s: %s must be a mapping, not %s." % (label, name, type(value).__name__), "Correct it.")
    left = ["metadata." + key for key in sorted(set(metadata) - set(_KEPT_METADATA))] + (
        ["status"] if "status" in body else []
    )
    notes = (
        (
            "%s: %s left out: only the cluster keeps such."
            % (label, ", ".join(left) + (" are" if len(left) > 1 else " is")),
        )
        if left
        else ()
    )
    return Document(label, kind, str(metadata.get("name") or ""), spec, "spec.", notes)
