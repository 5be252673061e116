# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge a CDI specification: what a CDI reader refuses is an error, what it only tolerates is a warning.

Source of the rules: the CDI project's SPEC.md, its JSON schema, and the checks of its Go library.
"""

from __future__ import annotations

import typing as t

from .._base.model import ERROR, WARNING, Problem
from .._base.regex import regex
from .version import EARLIEST, VERSIONS, all_edits, items, minimum_version

HOOK_NAMES = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
NO_PERMISSIONS = "none"
NODE_TYPES = ("", "b", "c", "u", "p")
ANNOTATIONS_LIMIT = 256 * 1024

# Field name: type of its value. A list type has the item's type in it.
_TEXTS: list[t.Any] = ["text"]
SPEC_FIELDS: dict[str, t.Any] = {
    "cdiVersion": "text", "kind": "text", "annotations": "map", "devices": ["device"], "containerEdits": "edits",
}  # fmt: skip
FIELDS: dict[str, dict[str, t.Any]] = {
    "device": {"name": "text", "annotations": "map", "containerEdits": "edits"},
    "edits": {
        "env": _TEXTS, "deviceNodes": ["node"], "hooks": ["hook"], "mounts": ["mount"],
        "intelRdt": "rdt", "additionalGids": ["unsigned"], "netDevices": ["net"],
    },
    "node": {
        "path": "text", "hostPath": "text", "type": "text", "major": "integer", "minor": "integer",
        "fileMode": "unsigned", "permissions": "text", "uid": "unsigned", "gid": "unsigned",
    },
    "hook": {"hookName": "text", "path": "text", "args": _TEXTS, "env": _TEXTS, "timeout": "integer"},
    "mount": {"hostPath": "text", "containerPath": "text", "options": _TEXTS, "type": "text"},
    "rdt": {
        "closID": "text", "l3CacheSchema": "text", "memBwSchema": "text", "enableCMT": "boolean",
        "enableMBM": "boolean",
        "schemata": _TEXTS, "enableMonitoring": "boolean",
    },
    "net": {"hostInterfaceName": "text", "name": "text"},
}  # fmt: skip

_QUALIFIER = regex(r"^[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?\Z")
_DEVICE_NAME = regex(r"^[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?\Z")
_ANNOTATION = regex(r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?\Z")


def validate_spec(spec: t.Any) -> list[Problem]:
    """Problems of a loaded specification, errors and warnings; `detail` begins with the place."""
    return _Judge().judge(spec)


class _Judge:
    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def error(self, code: str, place: str, what: str, next_step: str = "Write the specification again.") -> None:
        self.problems.append(Problem(code, ERROR, "%s: %s" % (place or "the file", what), next_step))

    def warning(self, code: str, place: str, what: str, next_step: str = "Write the specification again.") -> None:
        self.problems.append(Problem(code, WARNING, "%s: %s" % (place or "the file", what), next_step))

    def judge(self, spec: t.Any) -> list[Problem]:
        if not isinstance(spec, dict):
            self.error("cdi_not_a_map", "", "it holds no map at its top")
            return self.problems
        clean = self.typed(spec, SPEC_FIELDS, "")
        self.version(clean)
        self.kind(clean.get("kind", ""))
        self.annotations(clean.get("annotations"), "annotations")
        if clean.get("containerEdits") is not None:
            self.edits(clean["containerEdits"], "containerEdits")
        devices = clean.get("devices")
        if devices is None:
            self.warning("cdi_devices_missing", "devices", "it is missing, so the file gives no device")
        elif not devices:
            self.warning("cdi_devices_empty", "devices", "it is empty, so the file gives no device")
        seen: set[str] = set()
        for number, device in enumerate(devices or []):
            self.device(device, number, seen)
        return self.problems

    # Types first: everything after works on values of the right type.

    def typed(self, value: dict[t.Any, t.Any], fields: t.Mapping[str, t.Any], place: str) -> dict[str, t.Any]:
        """The map with known keys in their right spelling and typed values; the rest is reported and left out."""
        clean: dict[str, t.Any] = {}
        spelling = {name.lower(): name for name in fields}
        # The library reads the keys in this order, and of two spellings the later one counts.
        for key, item in sorted(value.items(), key=lambda pair: str(pair[0])):
            where = "%s.%s" % (place, key) if place else str(key)
            name = spelling.get(str(key).lower())
            if name is None:
                self.error("cdi_unknown_field", where, "no version of CDI has this field", "Remove it.")
                continue
            if key != name and (name not in value or value[name] != item):
                self.warning(
                    "cdi_field_spelling", where, "it should be %s; some readers take it for another field" % name
                )
            if item is None:
                self.warning("cdi_null", where, "it is null; leave it out instead")
                continue
            fitted = self.fit(item, fields[name], where)
            if fitted is not None:
                clean[name] = fitted
        return clean

    def fit(self, item: t.Any, kind: t.Any, where: str) -> t.Any:
        if isinstance(kind, list):
            if not isinstance(item, list):
                self.error("cdi_wrong_type", where, "a list was expected")
                return None
            if kind[0] == "text" and all(isinstance(one, str) for one in item):
                return item
            fitted = []
            for number, one in enumerate(item):
                place = "%s[%d]" % (where, number)
                if one is None:
                    self.error("cdi_null_item", place, "an item of a list may not be null")
                    continue
                value = self.fit(one, kind[0], place)
                if value is not None:
                    fitted.append(value)
            return fitted
        if kind == "text":
            return self.text(item, where)
        if kind in ("integer", "unsigned"):
            if isinstance(item, bool) or not isinstance(item, int):
                self.error("cdi_wrong_type", where, "a whole number was expected")
                return None
            low, high = (0, 2**32) if kind == "unsigned" else (-(2**63), 2**63)
            if not low <= item < high:
                self.error("cdi_out_of_range", where, "%d is not from %d to %d" % (item, low, high - 1))
                return None
            return item
        if kind == "boolean":
            if not isinstance(item, bool):
                self.error("cdi_wrong_type", where, "true or false was expected")
                return None
            return item
        if not isinstance(item, dict):
            self.error("cdi_wrong_type", where, "a map was expected")
            return None
        return item if kind == "map" else self.typed(item, FIELDS[kind], where)

    def text(self, item: t.Any, where: str) -> str | None:
        if isinstance(item, str):
            return item
        if isinstance(item, (bool, int, float)):
            self.warning("cdi_not_text", where, "%s is not text; put it in quotes" % item, "Put the value in quotes.")
            return str(item).lower() if isinstance(item, bool) else str(item)
        self.error("cdi_wrong_type", where, "text was expected")
        return None

    # Then the rules.

    def version(self, spec: dict[str, t.Any]) -> None:
        declared = spec.get("cdiVersion")
        if declared is None:
            self.error("cdi_version_missing", "cdiVersion", "it is missing")
            return
        number = declared[1:] if declared.startswith("v") else declared
        if number not in VERSIONS:
            self.error(
                "cdi_version_unknown",
                "cdiVersion",
                "%r is not a version of CDI (known: %s)" % (declared, ", ".join(VERSIONS)),
            )
            return
        needed = minimum_version(spec)
        if VERSIONS.index(number) < VERSIONS.index(needed):
            reason = "the oldest that is read" if needed == EARLIEST else "what the file uses"
            self.error(
                "cdi_version_too_low",
                "cdiVersion",
                "it says %s and must say at least %s, %s" % (declared, needed, reason),
            )

    def kind(self, kind: str) -> None:
        vendor, slash, name = kind.partition("/")
        if not slash or not _QUALIFIER.match(vendor) or not _QUALIFIER.match(name):
            self.error("cdi_kind", "kind", "%r is not of the form vendor.example/class" % kind)

    def annotations(self, value: dict[t.Any, t.Any] | None, place: str) -> None:
        size = 0
        for key, item in (value or {}).items():
            if not isinstance(key, str) or not _ANNOTATION.match(key.lower() if "/" not in key else key):
                self.error("cdi_annotation", "%s.%s" % (place, key), "the name of an annotation is not valid")
            if not isinstance(item, str):
                self.error("cdi_annotation", "%s.%s" % (place, key), "the value of an annotation must be text")
            size += len(str(key)) + len(str(item))
        if size > ANNOTATIONS_LIMIT:
            self.error("cdi_annotation", place, "annotations take more than %d bytes" % ANNOTATIONS_LIMIT)

    def device(self, device: dict[str, t.Any], number: int, seen: set[str]) -> None:
        name = device.get("name", "")
        place = "devices[%s]" % (name or number)
        if not _DEVICE_NAME.match(name):
            self.error("cdi_device_name", place, "%r is not a valid device name" % name)
        if name and name in seen:
            self.error("cdi_device_twice", place, "the name stands twice")
        seen.add(name)
        self.annotations(device.get("annotations"), place + ".annotations")
        edits = device.get("containerEdits")
        if edits is None or not any(value or key == "intelRdt" for key, value in edits.items()):
            self.error(
                "cdi_empty_edits",
                place + ".containerEdits",
                "it is empty, and a reader then refuses every device of the file",
            )
        else:
            self.edits(edits, place + ".containerEdits")

    def edits(self, edits: dict[str, t.Any], place: str) -> None:
        self.environment(edits.get("env"), place + ".env")
        for number, node in enumerate(edits.get("deviceNodes", [])):
            where = "%s.deviceNodes[%d]" % (place, number)
            if not node.get("path"):
                self.error("cdi_path_missing", where, "path is missing")
            if node.get("type", "") not in NODE_TYPES:
                self.error("cdi_node_type", where, "type %r is not one of b, c, u, p" % node["type"])
            if node.get("permissions") != NO_PERMISSIONS and set(node.get("permissions", "")) - set("rwm"):
                self.error("cdi_permissions", where, "permissions %r may only hold r, w and m" % node["permissions"])
        for number, hook in enumerate(edits.get("hooks", [])):
            where = "%s.hooks[%d]" % (place, number)
            if hook.get("hookName", "") not in HOOK_NAMES:
                self.error(
                    "cdi_hook_name",
                    where,
                    "hookName %r is not one of %s" % (hook.get("hookName", ""), ", ".join(HOOK_NAMES)),
                )
            if not hook.get("path"):
                self.error("cdi_path_missing", where, "path is missing")
            self.environment(hook.get("env"), where + ".env")
        for number, mount in enumerate(edits.get("mounts", [])):
            for key in ("hostPath", "containerPath"):
                if not mount.get(key):
                    self.error("cdi_path_missing", "%s.mounts[%d]" % (place, number), "%s is missing" % key)
        for number, device in enumerate(edits.get("netDevices", [])):
            for key in ("hostInterfaceName", "name"):
                if not device.get(key):
                    self.error("cdi_net_device", "%s.netDevices[%d]" % (place, number), "%s is missing" % key)
                elif device[key] in [other.get(key) for other in edits["netDevices"][:number]]:
                    self.error(
                        "cdi_net_device",
                        "%s.netDevices[%d]" % (place, number),
                        "%s %s stands twice" % (key, device[key]),
                    )
        closid = edits.get("intelRdt", {}).get("closID", "")
        # A single slash is the root class.
        if closid != "/" and (len(closid) >= 4096 or closid in (".", "..") or "/" in closid or "\n" in closid):
            self.error("cdi_closid", place + ".intelRdt", "closID is not a file name")

    def environment(self, env: list[str] | None, place: str) -> None:
        for item in env or []:
            if item.find("=") <= 0:
                self.error("cdi_environment", place, "%r is not NAME=value" % item)


def spelled(spec: dict[t.Any, t.Any]) -> dict[str, t.Any]:
    """The specification as readers take it: known fields, whatever their capitals, with values of the right type."""
    return _Judge().typed(spec, SPEC_FIELDS, "")


def plain(value: t.Any) -> t.Any:
    """The meaning of a specification: no nulls and empty collections, devices by name, names as text."""
    if isinstance(value, dict):
        kept = {}
        for key, item in value.items():
            item = plain(item)
            if item is None or item == {} or item == []:
                continue
            if key in ("name", "cdiVersion", "kind") and not isinstance(item, (str, dict, list)):
                item = str(item)
            kept[key] = item
        devices = kept.get("devices")
        if isinstance(devices, list) and all(isinstance(device, dict) for device in devices):
            kept["devices"] = sorted(devices, key=lambda device: str(device.get("name")))
        return kept
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def same_meaning(one: t.Any, other: t.Any) -> bool:
    """True when a reader takes both for the same, whatever the order of keys and devices."""
    return bool(plain(one) == plain(other))


def device_names(spec: t.Any) -> list[str]:
    """Fully qualified names (kind=name) in a loaded specification, as far as it can be read."""
    if not isinstance(spec, dict) or not isinstance(spec.get("devices"), list):
        return []
    names = [device.get("name") for device in spec["devices"] if isinstance(device, dict)]
    return ["%s=%s" % (spec.get("kind"), name) for name in names if name is not None]


def host_paths(spec: t.Any) -> list[str]:
    """Every path the specification expects on the host, sorted: mounts, hooks and device nodes."""
    found: set[str] = set()
    for edits in all_edits(spec) if isinstance(spec, dict) else ():
        for key, names in (("mounts", ("hostPath",)), ("hooks", ("path",)), ("deviceNodes", ("hostPath", "path"))):
            for item in items(edits, key):
                path = next((item[name] for name in names if item.get(name)), None)
                if isinstance(path, str):
                    found.add(path)
    return sorted(found)
