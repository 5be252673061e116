# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory: a ConfigMap that names what was made, so that only that is ever pruned."""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass, field

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._cluster.api import KINDS, Cluster, Data
from .._cluster.capabilities import serves
from .._objects.inputs import Inputs
from .._objects.model import Capabilities
from .._objects.names import DRIVER_KIND, POLICY_KIND
from .._objects.parts import metadata, object_name
from .settled import Settled

COMPONENT = "inventory"
# Objects of ours that no builder makes: they stay until everything goes.
KEPT = (COMPONENT, "lease", "status", "takeover", "rollout")
# Kinds that are only read.
_READ = (
    "Namespace",
    "Node",
    "Pod",
    "Event",
    "PersistentVolumeClaim",
    "PodDisruptionBudget",
    "ControllerRevision",
    "Deployment",
    "StatefulSet",
    "Job",
    "CronJob",
    "EndpointSlice",
    "ResourceSlice",
    "ResourceClaim",
    "CustomResourceDefinition",
    POLICY_KIND[1],
    DRIVER_KIND[1],
)
Key = tuple[str, str, str, str]


@dataclass(frozen=True)
class Inventory:
    """Keys (apiVersion, kind, namespace, name) of what was made, and what the cluster made of some of them."""

    keys: frozenset[Key] = frozenset()
    settled: t.Mapping[Key, Settled] = field(default_factory=dict)


def key_of(item: Data) -> Key:
    return item["apiVersion"], item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]


def made_kinds(capabilities: Capabilities) -> list[tuple[str, str]]:
    """Every kind that we can make and the cluster serves."""
    return [key for key in KINDS if key[1] not in _READ and serves(capabilities, *key)]


def read_inventory(cluster: Cluster, inputs: Inputs) -> Inventory | None:
    """The inventory. None when nothing was made yet, an earlier release made it, or the inventory was deleted."""
    found = cluster.get("v1", "ConfigMap", object_name(inputs, COMPONENT), inputs["namespace"])
    if found is None:
        return None
    try:
        entries = json.loads((found.get("data") or {})["objects.json"])
        keys = frozenset(t.cast(Key, tuple(entry["object"])) for entry in entries)
        settled = {
            t.cast(Key, tuple(entry["object"])): Settled(
                entry["of"], tuple((tuple(path), found) for path, found in entry["settled"])
            )
            for entry in entries
            if entry.get("settled")
        }
        if any(len(key) != 4 or key[:2] not in KINDS for key in keys):
            raise ValueError("an entry names an unknown kind")
    except (KeyError, TypeError, ValueError) as exc:
        raise NpuError(
            "The inventory ConfigMap %s/%s cannot be read: %s."
            % (inputs["namespace"], object_name(inputs, COMPONENT), exc),
            "Restore it, or delete it: the next run then removes everything that has our labels and is not wanted.",
        ) from exc
    return Inventory(keys, settled)


def inventory_object(inputs: Inputs, inventory: Inventory) -> Data:
    """The ConfigMap; the same bytes for the same content."""
    entries: list[Data] = []
    for key in sorted(inventory.keys):
        entry: Data = {"object": list(key)}
        if key in inventory.settled:
            record = inventory.settled[key]
            entry.update(of=record.of, settled=[[list(path), found] for path, found in record.fields])
        entries.append(entry)
    meta = metadata(inputs, COMPONENT, object_name(inputs, COMPONENT))
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": meta,
        "data": {"objects.json": json.dumps(entries, indent=1) + "\n"},
    }


def write_inventory(cluster: Cluster, inputs: Inputs, inventory: Inventory) -> None:
    cluster.apply(inventory_object(inputs, inventory), True, False)
