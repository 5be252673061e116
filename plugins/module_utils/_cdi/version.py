# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions of the CDI specification and what each one brought.

Source: the CDI project's SPEC.md and the version rules of its Go library.
"""

from __future__ import annotations

import typing as t

VERSIONS = ("0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
EARLIEST = "0.3.0"


def all_edits(spec: t.Mapping[str, t.Any]) -> t.Iterator[t.Mapping[str, t.Any]]:
    """The edits of the specification and of its devices, as far as they are maps."""
    devices = spec.get("devices")
    holders: list[t.Any] = [spec] + (list(devices) if isinstance(devices, list) else [])
    for holder in holders:
        edits = holder.get("containerEdits") if isinstance(holder, dict) else None
        if isinstance(edits, dict):
            yield edits


def items(edits: t.Mapping[str, t.Any], key: str) -> t.Iterator[t.Mapping[str, t.Any]]:
    """The maps in a list of the edits."""
    value = edits.get(key)
    for item in value if isinstance(value, list) else []:
        if isinstance(item, dict):
            yield item


def minimum_version(spec: t.Mapping[str, t.Any]) -> str:
    """The lowest cdiVersion that allows everything the specification uses."""
    devices = list(items(spec, "devices"))
    edits = list(all_edits(spec))
    rdts = [item["intelRdt"] for item in edits if item.get("intelRdt") is not None]
    new_rdt = any(
        isinstance(rdt, dict) and (rdt.get("schemata") is not None or rdt.get("enableMonitoring")) for rdt in rdts
    )
    if new_rdt or any(item.get("netDevices") for item in edits):
        return "1.1.0"
    if rdts or any(item.get("additionalGids") for item in edits):
        return "0.7.0"
    kind = spec.get("kind")
    dotted = isinstance(kind, str) and "/" in kind and "." in kind.split("/", 1)[1]
    if dotted or spec.get("annotations") or any(device.get("annotations") for device in devices):
        return "0.6.0"
    names = [str(device.get("name")) for device in devices if device.get("name") is not None]
    if any(name and not (name[0].isascii() and name[0].isalpha()) for name in names):
        return "0.5.0"
    if any(node.get("hostPath") for item in edits for node in items(item, "deviceNodes")):
        return "0.5.0"
    if any(mount.get("type") for item in edits for mount in items(item, "mounts")):
        return "0.4.0"
    return EARLIEST
