# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What rollouts leave on a node, and its removal with everything else that is ours."""

from __future__ import annotations

import json
import typing as t

from .._cluster.api import ApiError, Cluster, Data
from .._objects.parts import LABEL_PREFIX, MANAGER

# Who patches nodes in a rollout. Our labels of nodes have another owner, and keep it.
WRITER = MANAGER + "-rollout"
MERGE = "application/merge-patch+json"
STATE = LABEL_PREFIX + "npu-driver-upgrade-state"
TAINT = LABEL_PREFIX + "npu-driver-upgrade-failed"
# How often a node may be written by others between our look and our change.
TRIES = 10
# All annotations of rollouts; CORDONED says that the cordon is ours, FORMER what other annotations were before.
NOTES = LABEL_PREFIX + "npu-rollout."
CORDONED, FORMER = NOTES + "cordoned", NOTES + "former"


def is_cordoned(node: t.Mapping[str, t.Any]) -> bool:
    return bool((node.get("spec") or {}).get("unschedulable"))


def is_ours(node: t.Mapping[str, t.Any]) -> bool:
    """Whether a node is cordoned, and by us.

    Who has uncordoned it meanwhile and cordoned it again owns the field; a cordon of ours that others ended is none.
    """
    if not is_cordoned(node) or (node["metadata"].get("annotations") or {}).get(CORDONED) != "true":
        return False
    owners = [
        entry.get("manager")
        for entry in node["metadata"].get("managedFields") or []
        if "f:unschedulable" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
    ]
    return not owners or WRITER in owners


def former(text: t.Any) -> dict[str, str | None]:
    """What an annotation of ours keeps; nothing for one that others have damaged."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        found = {}
    kept = found if isinstance(found, dict) else {}
    return {str(key): value for key, value in kept.items() if value is None or isinstance(value, str)}


def in_service(node: t.Mapping[str, t.Any]) -> tuple[Data, dict[str, str | None]]:
    """(specification, annotations) to change so that a node is as before a rollout; what others changed since stays."""
    annotations = node["metadata"].get("annotations") or {}
    back = {key: value for key, value in former(annotations.get(FORMER)).items() if annotations.get(key) == "true"}
    spec: Data = {"unschedulable": None} if is_ours(node) else {}
    return {**spec, **without_taint(node)}, back


def without_taint(node: t.Mapping[str, t.Any]) -> Data:
    """The change of the specification that removes our taint; empty for a node without it."""
    taints = list((node.get("spec") or {}).get("taints") or [])
    left = [one for one in taints if one.get("key") != TAINT]
    return {"taints": left} if left != taints else {}


def is_marked(node: t.Mapping[str, t.Any]) -> bool:
    """Whether rollouts of ours left something on a node; the state alone may be that of the vendor's operator."""
    return any(key.startswith(NOTES) for key in node["metadata"].get("annotations") or {})


def remove_marks(cluster: Cluster, node: Data, dry_run: bool) -> bool:
    """Remove all of it; whether there was something. What others write to the node meanwhile is looked at again."""
    live: Data | None = node
    for attempt in range(1, TRIES + 1):
        if live is None or not is_marked(live):
            return False
        try:
            _write(cluster, live, dry_run)
            return True
        except ApiError as exc:
            if exc.status not in (404, 409) or attempt == TRIES:
                raise
        live = cluster.get("v1", "Node", node["metadata"]["name"])
    raise AssertionError("unreachable")


def _write(cluster: Cluster, node: Data, dry_run: bool) -> None:
    meta = node["metadata"]
    spec, back = in_service(node)
    notes = {key: None for key in meta.get("annotations") or {} if key.startswith(NOTES)}
    change = {
        "resourceVersion": meta.get("resourceVersion"),
        "labels": {STATE: None},
        "annotations": {**notes, **back},
    }
    query = {"fieldManager": WRITER, **({"dryRun": "All"} if dry_run else {})}
    path = cluster.path("v1", "Node", "", meta["name"])
    what = "Return node %s" % meta["name"]
    cluster.request("PATCH", path, what, query, {"metadata": change, "spec": spec}, MERGE)
