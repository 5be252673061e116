# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A wanted object beside the live one: whether they differ, where, and how it is shown. Pure."""

from __future__ import annotations

import hashlib
import json
import typing as t

from ._object_parts import LABEL_PREFIX

Data = dict[str, t.Any]
HASH = LABEL_PREFIX + "applied-hash"
_SERVER_FIELDS = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp")


def with_hash(item: Data) -> Data:
    """The object with a digest of itself as annotation; a Secret gets none, because its digest would tell about its content."""
    if item["kind"] == "Secret":
        return item
    digest = hashlib.sha256(json.dumps(item, sort_keys=True).encode()).hexdigest()[:32]
    meta = dict(item["metadata"], annotations={**item["metadata"].get("annotations", {}), HASH: digest})
    return dict(item, metadata=meta)


def within(wanted: t.Any, live: t.Any) -> bool:
    """True when every value of `wanted` is in `live`; lists have the same length, and live may hold more keys (defaults)."""
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(within(value, live.get(key)) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(live, list) and len(wanted) == len(live) and all(within(one, other) for one, other in zip(wanted, live))
    if wanted in ("", False) and live is None:
        return True
    return bool(wanted == live)


def visible(item: t.Optional[Data]) -> Data:
    """What a person compares: no status, nothing that the server counts, no content of a Secret."""
    if not item:
        return {}
    result = {key: value for key, value in item.items() if key != "status"}
    meta = {key: value for key, value in (item.get("metadata") or {}).items() if key not in _SERVER_FIELDS}
    annotations = {key: value for key, value in (meta.get("annotations") or {}).items() if key not in (HASH, "deprecated.daemonset.template.generation")}
    meta.pop("annotations", None)
    if annotations:
        meta["annotations"] = annotations
    result["metadata"] = meta
    if item.get("kind") == "Secret":
        result["data"] = {key: "(hidden)" for key in item.get("data") or {}}
    return result


def reduce_diff(before: t.Any, after: t.Any) -> tuple[t.Any, t.Any]:
    """Only what differs, on both sides."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return before, after
    left: Data = {}
    right: Data = {}
    for key in sorted(set(before) | set(after)):
        if before.get(key) == after.get(key):
            continue
        if key in before and key in after:
            left[key], right[key] = reduce_diff(before[key], after[key])
        elif key in before:
            left[key] = before[key]
        else:
            right[key] = after[key]
    return left, right


def object_label(item: Data) -> str:
    meta = item["metadata"]
    return "%s %s" % (item["kind"], "/".join(part for part in (meta.get("namespace"), meta["name"]) if part))


def object_key(item: Data) -> tuple[str, str, str]:
    return item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]


def change(item: Data, action: str, before: t.Optional[Data] = None, after: t.Optional[Data] = None) -> Data:
    left, right = reduce_diff(visible(before), visible(after))
    if before and after and item["kind"] == "Secret" and before.get("data") != after.get("data"):
        left["data"], right["data"] = "(hidden)", "(hidden, and different)"
    return {"object": object_label(item), "action": action, "before": left, "after": right}


def finish(item: Data, live: t.Optional[Data], after: Data, created: bool) -> Data:
    if created or live is None:
        return change(item, "created" if created else "changed", live, after)
    return change(item, "unchanged" if _comparable(live) == _comparable(after) else "changed", live, after)


def _comparable(item: Data) -> Data:
    """An object without what the server counts, content of a Secret included, for comparison only."""
    shown = visible(item)
    return dict(shown, data=item["data"]) if "data" in item else shown
