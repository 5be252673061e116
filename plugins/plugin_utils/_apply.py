# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects into a cluster: list, compare, apply only what differs, prune what is ours and not wanted."""

from __future__ import annotations

import typing as t

from ._cluster import Cluster, Data
from ._compare import change, finish, object_key, with_hash, within
from ._namespace import apply_namespace
from ._prune import NAMESPACED_KINDS, OUR_KINDS, selector


def apply_objects(cluster: Cluster, objects: t.Sequence[Data], namespace: str, force: bool, dry_run: bool) -> list[Data]:
    """Bring the cluster to `objects`; one record {object, action, before, after} each, action created, changed, unchanged or deleted.

    Our objects that are no longer wanted are deleted; they are known by our labels and made from declared variables only, so that a
    limited run wants the same ones.
    """
    live_namespace = cluster.get("v1", "Namespace", namespace)
    changes: list[Data] = []
    live: dict[tuple[str, str, str], Data] = {}
    for api_version, kind in OUR_KINDS:
        scope = namespace if (api_version, kind) in NAMESPACED_KINDS else ""
        if scope and live_namespace is None:
            continue
        live.update({object_key(item): item for item in cluster.list(api_version, kind, scope, selector(namespace, scope))})
    wanted_keys = set()
    for item in objects:
        wanted_keys.add(object_key(item))
        if item["kind"] == "Namespace":
            changes.append(apply_namespace(cluster, item, live_namespace, dry_run))
        elif live_namespace is None and dry_run and item["metadata"].get("namespace"):
            changes.append(change(item, "created", None, item))
        else:
            changes.append(_apply_one(cluster, with_hash(item), live.get(object_key(item)), force, dry_run))
    for key, item in live.items():
        if key not in wanted_keys:
            cluster.delete(item, dry_run)
            changes.append(change(item, "deleted", item, None))
    return changes


def _apply_one(cluster: Cluster, item: Data, live: t.Optional[Data], force: bool, dry_run: bool) -> Data:
    if live is not None and item["kind"] != "Secret" and within(item, live):
        return change(item, "unchanged")
    created, after = cluster.apply(item, force, dry_run)
    return finish(item, live, after, created)


def summarise(changes: t.Sequence[Data]) -> dict[str, t.Any]:
    """{changed, objects: [label: action], diff} for a task result."""
    different = [one for one in changes if one["action"] not in ("unchanged", "kept")]
    return {
        "changed": bool(different),
        "objects": {one["object"]: one["action"] for one in changes},
        "diff": [
            {
                "before": one["before"],
                "after": one["after"],
                "before_header": one["object"],
                "after_header": "%s (%s)" % (one["object"], one["action"]),
            }
            for one in different
        ],
    }
