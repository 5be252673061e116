# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The labels that a host gives its own node, from the host's facts."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._versions import release_numbers

from ._object_parts import GATE_PREFIX, LABEL_PREFIX, MANAGER, NPU_KEY, PRESENT_LABEL

COMPONENTS = ("device-plugin", "validator")
_INVALID = re.compile(r"[^A-Za-z0-9_.-]+")


def label_value(value: t.Any) -> str:
    """A legal label value: other characters become `_`, at most 63, and a letter or digit at both ends."""
    return _INVALID.sub("_", str(value))[:63].strip("_.-")


def node_labels(facts: t.Mapping[str, t.Any], components: t.Sequence[str] = COMPONENTS) -> dict[str, str]:
    """npu.present, count, product, family, driver-version.* and one gate per component.

    The names are those of the vendor's feature discovery. Count is of devices; what is not known is left out; the gates are true
    only when the host has an NPU that containers can use.
    """
    npus = facts.get("npus") or []
    counts = facts.get("counts") or {}
    labels = {PRESENT_LABEL: "true" if npus else "false"}
    usable = int(counts.get("usable") or 0)
    if npus:
        labels[NPU_KEY + ".count"] = str(counts.get("devices") or counts.get("functions") or len(npus))
        for name in ("product", "family"):
            value = next((npu[name] for npu in npus if npu.get(name)), None)
            if value:
                labels["%s.%s" % (NPU_KEY, name)] = label_value(value)
        labels.update(_version_labels((facts.get("driver") or {}).get("version_loaded")))
    for component in components:
        labels[GATE_PREFIX + component] = "true" if usable > 0 else "false"
    return labels


def _version_labels(version: t.Optional[str]) -> dict[str, str]:
    if not version:
        return {}
    labels = {LABEL_PREFIX + "driver-version.full": label_value(version)}
    for name, number in zip(("major", "minor", "patch"), release_numbers(version)):
        labels["%sdriver-version.%s" % (LABEL_PREFIX, name)] = str(number)
    return labels


def owned_labels(node: t.Mapping[str, t.Any], manager: str = MANAGER) -> set[str]:
    """The labels of a node that a field manager owns by server-side apply."""
    names: set[str] = set()
    for entry in node["metadata"].get("managedFields") or []:
        if entry.get("manager") == manager and entry.get("operation") == "Apply":
            fields = ((entry.get("fieldsV1") or {}).get("f:metadata") or {}).get("f:labels") or {}
            names |= {name[2:] for name in fields if name.startswith("f:")}
    return names


def settle_labels(wanted: t.Mapping[str, str], node: t.Mapping[str, t.Any]) -> tuple[dict[str, str], list[str]]:
    """(labels to apply, notes): a label that somebody else has set is theirs; another value than ours is noted."""
    live = node["metadata"].get("labels") or {}
    ours = owned_labels(node)
    apply: dict[str, str] = {}
    notes = []
    for name, value in wanted.items():
        if name not in live or name in ours:
            apply[name] = value
        elif live[name] != value:
            notes.append("%s=%s was set by somebody else and stays; this host would set %s" % (name, live[name], value))
    return apply, notes
