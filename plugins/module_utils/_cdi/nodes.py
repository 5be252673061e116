# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Device nodes of a host and the groups they are in."""

from __future__ import annotations

import posixpath
import re
import typing as t

from .._base.model import WARNING, Problem
from .._base.records import dataclass
from .._base.vendor import VendorProfile
from .._host.host import Host
from .._npu.smi import ask_smi, find_smi

# A device's number is its minor, and Linux has 20 bits for that.
NUMBER_LIMIT = 1 << 20
SMI_TIMEOUT = 10.0


@dataclass(frozen=True)
class Node:
    """A character device; `number` is that of its name."""

    name: str
    path: str
    number: int
    major: int
    minor: int


def find_nodes(profile: VendorProfile, host: Host, directory: str) -> tuple[list[Node], list[Node], list[Problem]]:
    """NPU nodes and group nodes of a directory by number; anything else with such a name is reported."""
    (nodes, groups), warnings = _find(profile, host, directory, (profile.device_prefix, profile.group_prefix))
    return nodes, groups, warnings


def find_storage(profile: VendorProfile, host: Host, directory: str) -> tuple[list[Node], list[Problem]]:
    """Storage nodes of a directory by number, as find_nodes does."""
    (nodes,), warnings = _find(profile, host, directory, (profile.storage_prefix,))
    return nodes, warnings


def _find(
    profile: VendorProfile, host: Host, directory: str, prefixes: t.Sequence[str]
) -> tuple[list[list[Node]], list[Problem]]:
    found: list[list[Node]] = [[] for _prefix in prefixes]
    warnings: list[Problem] = []
    listed = host.listdir(directory)
    if listed.state not in ("value", "absent"):
        warnings.append(
            Problem(
                "dev_unreadable",
                WARNING,
                "%s cannot be listed: %s." % (directory, listed.detail),
                "Run as root.",
                profile.name,
            )
        )
    for name in listed.get([]):
        for prefix, into in zip(prefixes, found):
            match = re.fullmatch(re.escape(prefix) + r"(0|[1-9][0-9]*)", name)
            if match is None:
                continue
            path = posixpath.join(directory, name)
            number = int(match.group(1))
            seen = host.stat(path, follow=False)
            if seen.ok and seen.value.kind == "char" and number < NUMBER_LIMIT:
                into.append(Node(name, path, number, seen.value.major, seen.value.minor))
                continue
            kind = seen.value.kind if seen.ok else seen.detail
            reason = (
                "its number is beyond what Linux can give"
                if seen.ok and kind == "char"
                else "it is not a character device (%s)" % kind
            )
            warnings.append(
                Problem(
                    "not_a_device",
                    WARNING,
                    "%s is left out: %s." % (path, reason),
                    "Remove it and load the driver again.",
                    profile.name,
                )
            )
    for nodes in found:
        nodes.sort(key=lambda node: node.number)
    return found, warnings


def find_groups(
    profile: VendorProfile, host: Host, nodes: t.Sequence[Node], given: t.Mapping[str, int] | None
) -> dict[str, int]:
    """Group by device node name: as given, else from sysfs, else from the management tool.

    A name that is not in the answer is unknown.
    """
    names = [node.name for node in nodes]
    if given is not None:
        return {name: int(given[name]) for name in names if given.get(name) is not None}
    result: dict[str, int] = {}
    for name in names:
        text = host.read_text("%s/%s/group_id" % (profile.class_dir, name)).get("").strip()
        if re.fullmatch(r"[0-9]{1,7}", text):
            result[name] = int(text)
    if len(result) < len(names) and host.runs_commands:
        for name, group in _groups_by_tool(profile, host).items():
            if name in names:
                result.setdefault(name, group)
    return result


def _groups_by_tool(profile: VendorProfile, host: Host) -> dict[str, int]:
    path = find_smi(host, profile)
    answer = ask_smi(host, profile, path, profile.smi_group_args, SMI_TIMEOUT).get({}) if path else {}
    return {
        item["device"]: item["group"]
        for item in answer.get("devices", [])
        if item["device"] and item["group"] is not None
    }
