# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The status of an installation as a ConfigMap, for people who look at the cluster and not at a run."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._cluster.api import TRIES, ApiError, Cluster, Data
from .._objects.compare import object_label, with_hash, within
from .._objects.inputs import Inputs
from .._objects.names import OPERANDS
from .._objects.parts import metadata, object_name
from .ours import is_ours

COMPONENT = "status"
MOST_NODES = 50
# Component to the condition of a node that lacks it.
CONDITIONS = {
    "driver": "DriverMissing",
    "container_toolkit": "ToolkitMissing",
    "metrics_exporter": "MonitoringMissing",
    "smd": "MonitoringMissing",
    "feature_discovery": "DiscoveryMissing",
}
_BY_CHECK = {"driver-validation": "DriverMissing", "toolkit-validation": "ToolkitMissing"}


def status_object(inputs: Inputs, waited: t.Mapping[str, t.Any], before: t.Mapping[str, t.Any] | None = None) -> Data:
    """The ConfigMap for the result of a wait. It holds no times, so that it is written only when something differs.

    Nodes of `before`, the live status, stay when this wait did not look at them: a run of some hosts says nothing about
    the others.

    `status.json`: {ready, components: {key: {state, desired, ready, reason}}, nodes: {name: {ready_for_pooling,
    conditions, reasons}}}, of nodes only those that are not ready, at most 50.
    """
    live, judged = waited.get("nodes") or (), waited.get("judged")
    told = (before or {}).get("nodes") or {} if judged is not None else {}
    nodes: dict[str, Data] = {
        name: entry for name, entry in told.items() if name not in (judged or ()) and (not live or name in live)
    }
    ready = waited["ok"] and not nodes
    for problem in waited["problems"]:
        if not problem["node"]:
            continue
        entry = nodes.setdefault(problem["node"], {"ready_for_pooling": False, "conditions": [], "reasons": []})
        if problem["text"].startswith("%s: not waited for" % problem["component"].replace("_", "-")):
            entry["reasons"].append(problem["text"])
            continue
        found = CONDITIONS.get(problem["component"]) or next(
            (name for check, name in _BY_CHECK.items() if check in problem["text"]), "NotReady"
        )
        if found not in entry["conditions"]:
            entry["conditions"] = sorted([*entry["conditions"], found])
        entry["reasons"].append(problem["text"])
    content = {
        "ready": ready,
        "components": {
            key: {"state": one["state"], "desired": one["desired"], "ready": one["ready"], "reason": one["text"]}
            for key, one in waited["components"].items()
        },
        "nodes": {name: nodes[name] for name in sorted(nodes)[:MOST_NODES]},
        "nodes_not_shown": max(0, len(nodes) - MOST_NODES),
    }
    meta = metadata(inputs, COMPONENT, object_name(inputs, COMPONENT))
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": meta,
        "data": {"status.json": json.dumps(content, indent=1, sort_keys=True) + "\n"},
    }


def write_status(cluster: Cluster, inputs: Inputs, waited: t.Mapping[str, t.Any]) -> bool:
    """Write the status when it differs, and tell whether it did.

    No Lease is held: after a conflict with another run it is read again.
    """
    for attempt in range(1, TRIES + 1):
        live = cluster.get("v1", "ConfigMap", object_name(inputs, COMPONENT), inputs["namespace"])
        item = with_hash(status_object(inputs, waited, _content(live)))
        if live is not None and not is_ours(live):
            raise NpuError(
                "The %s exists already and is not ours." % object_label(item),
                f"Delete it, or set another {OPERANDS}name_prefix.",
            )
        if live is not None and within(item, live):
            return False
        if live is not None:
            item["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"]
        try:
            cluster.apply(item, True, False)
        except ApiError as exc:
            if exc.status != 409 or attempt == TRIES:
                raise
        else:
            break
    return True


def _content(live: Data | None) -> Data:
    """The nodes of a status; empty for one that does not exist or cannot be read. Entries that are not ours go."""
    try:
        content = json.loads(((live or {}).get("data") or {}).get("status.json") or "{}")
    except (ValueError, RecursionError):
        return {}
    nodes = content.get("nodes") if isinstance(content, dict) else None
    return {"nodes": {name: one for name, one in nodes.items() if _is_entry(one)}} if isinstance(nodes, dict) else {}


def _is_entry(one: t.Any) -> bool:
    return (
        isinstance(one, dict)
        and set(one) == {"ready_for_pooling", "conditions", "reasons"}
        and one["ready_for_pooling"] is False
        and all(
            isinstance(one[key], list) and all(isinstance(text, str) for text in one[key])
            for key in ("conditions", "reasons")
        )
    )
