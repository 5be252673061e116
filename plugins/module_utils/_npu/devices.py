# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver's devices as the kernel shows them: its sysfs class and the nodes in /dev."""

from __future__ import annotations

import posixpath
import typing as t

from .._base.records import dataclass, field
from .._base.vendor import VendorProfile
from .._base.versions import natural_key
from .._host.host import ABSENT, Host, Limit, Probe
from .pci import ADDRESS

CLASS_ATTRIBUTES = ("status", "group_id", "kernel_version", "fw_ver", "smc_ver", "card_name", "dram_total")


@dataclass(frozen=True)
class ClassDevice:
    """One entry of the driver's sysfs class: its name, the PCI address it links to, attributes as stripped text."""

    name: str
    address: str | None = None
    attributes: t.Mapping[str, str] = field(default_factory=dict)


def read_class(host: Host, profile: VendorProfile) -> tuple[list[ClassDevice], Probe]:
    """Devices of the driver's class in natural order."""
    names = host.listdir(profile.class_dir)
    found = []
    for name in sorted(names.get([]), key=natural_key):
        if not profile.device_pattern.match(name):
            continue
        base = posixpath.join(profile.class_dir, name)
        attributes = {}
        for key in CLASS_ATTRIBUTES:
            text = host.read_text(posixpath.join(base, key), Limit.ATTRIBUTE)
            if text.ok:
                attributes[key] = text.value.strip()
        linked = posixpath.basename(host.resolve(posixpath.join(base, "device")).get(""))
        found.append(ClassDevice(name, linked if ADDRESS.match(linked) else None, attributes))
    return found, names


def class_version(classes: t.Sequence[ClassDevice]) -> str | None:
    """Driver version as the class tells it, or None."""
    return next((item.attributes["kernel_version"] for item in classes if item.attributes.get("kernel_version")), None)


def read_nodes(host: Host, profile: VendorProfile) -> tuple[dict[str, dict[str, t.Any]], Probe]:
    """Nodes of devices, groups and storage in /dev by name, natural order: {path, major, minor, mode, kind}.

    `kind` is char, missing, other or unknown (it may not be looked at, which the probe says then); major and minor are
    None unless it is char.
    """
    names = probe = host.listdir("/dev")
    nodes = {}
    for name in sorted(names.get([]), key=natural_key):
        if (
            profile.device_pattern.match(name)
            or profile.group_pattern.match(name)
            or profile.storage_pattern.match(name)
        ):
            nodes[name] = describe_node(host, name)
            if nodes[name]["kind"] == "unknown" and probe.ok:
                probe = host.stat(nodes[name]["path"])
    return nodes, probe


def describe_node(host: Host, name: str) -> dict[str, t.Any]:
    path = posixpath.join("/dev", name)
    probe = host.stat(path)
    info = probe.get()
    if info is None:
        kind = "missing" if probe.state == ABSENT else "unknown"
        return {"path": path, "major": None, "minor": None, "mode": None, "kind": kind}
    char = info.kind == "char"
    return {
        "path": path,
        "major": info.major if char else None,
        "minor": info.minor if char else None,
        "mode": "%04o" % info.mode,
        "kind": "char" if char else "other",
    }
