# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What differs between the wanted objects and a cluster; nothing is written."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._cluster.api import ApiError, Cluster, Data
from .._components.registry import COMPONENT_LABEL, component_of
from .._objects.compare import HASH, differs, object_label, with_hash
from .._objects.inputs import Inputs
from .._objects.model import Capabilities
from .._objects.names import OPERANDS
from .inventory import KEPT, Inventory, Key, key_of, made_kinds, read_inventory
from .namespace import find_namespace, is_kept_right, is_right
from .ours import creation_order, guard, is_going, is_legacy, is_made_here, is_ours, list_named, list_ours
from .settled import Settled, is_settled, settle, surface

_DAEMON_SETS = ("apps/v1", "DaemonSet")
MOST_NAMED = 5


@dataclass(frozen=True)
class Plan:
    """What differs between the wanted objects and the cluster.

    `write` are wanted keys that differ; `prune` live objects no longer wanted, in the order of their deletion; `kept`
    those of them that stay, with the nodes that need them; `legacy` driver DaemonSets of earlier charts; `strangers`
    have our labels and were not made here; `taken` are live objects of others under names that we want; `served` tells
    of the API server, `settled` what the cluster made of wanted objects.
    """

    namespace: Data | None
    wanted: t.Mapping[Key, Data]
    live: t.Mapping[Key, Data]
    write: frozenset[Key]
    prune: tuple[Data, ...]
    kept: tuple[tuple[Data, list[str]], ...]
    legacy: tuple[Data, ...]
    strangers: tuple[Data, ...]
    taken: tuple[Data, ...]
    inventory: Inventory | None
    served: str = ""
    settled: t.Mapping[Key, Settled] = field(default_factory=dict)

    @property
    def kept_keys(self) -> frozenset[Key]:
        return frozenset(key_of(item) for item, _nodes in self.kept)

    @property
    def differs(self) -> bool:
        known = frozenset(self.wanted) | self.kept_keys
        if self.write or self.prune or self.legacy or self.inventory is None:
            return True
        return self.inventory.keys != known or dict(self.inventory.settled) != dict(self.settled)


def plan_changes(cluster: Cluster, objects: t.Sequence[Data], inputs: Inputs, capabilities: Capabilities) -> Plan:
    """Look at the cluster and compare; nothing is written.

    NpuError for a second installation in it, or a namespace that is being deleted.
    """
    namespace = find_namespace(cluster, inputs)
    if namespace and is_going(namespace):
        raise NpuError(
            "The namespace %s is being deleted with all its objects. No object was written." % inputs["namespace"],
            "Wait until it is gone, then run again.",
        )
    inventory = read_inventory(cluster, inputs) if namespace else None
    wanted = {key_of(item): with_hash(item) for item in objects if item["kind"] != "Namespace"}
    live, legacy = _live(cluster, objects, wanted, inputs, capabilities, namespace is not None, inventory)
    left = [
        item
        for key, item in live.items()
        if key not in wanted and item["metadata"]["labels"].get(COMPONENT_LABEL) not in KEPT
    ]
    ended = [item for item in left if inventory is None or key_of(item) in inventory.keys]
    guarded = guard(cluster, inputs["namespace"], ended)
    recorded = inventory.keys if inventory else frozenset()
    served = surface(capabilities)
    settled = {key: record for key, record in (inventory.settled if inventory else {}).items() if key in wanted}
    write = _to_write(cluster, objects, wanted, live, namespace, settled, served)
    write -= _looked_at(cluster, inputs, [key for key in wanted if key in write], wanted, live, settled, served)
    return Plan(
        namespace,
        wanted,
        live,
        write,
        tuple(sorted((item for item in ended if object_label(item) not in guarded), key=creation_order, reverse=True)),
        tuple((item, guarded[object_label(item)]) for item in ended if object_label(item) in guarded),
        legacy,
        tuple(item for item in left if item not in ended and not is_going(item)),
        tuple(live[key] for key in wanted if key in live and key not in recorded and not is_made_here(live[key])),
        inventory,
        served,
        settled,
    )


def _looked_at(
    cluster: Cluster,
    inputs: Inputs,
    keys: t.Sequence[Key],
    wanted: t.Mapping[Key, Data],
    live: t.Mapping[Key, Data],
    settled: dict[Key, Settled],
    served: str,
) -> frozenset[Key]:
    """Those of `keys` that an apply would not change, by a dry run; `settled` gets what the cluster made of them.

    Only an object that was made of this very input is asked about: something else changed it, or the server is another
    one. What the dry run does not allow is left to the apply, which says why.
    """
    found = set()
    for key in keys:
        item, there = wanted[key], live.get(key)
        known = (there["metadata"].get("annotations") or {}) if there and not is_going(there) else {}
        if there is None or known.get(HASH) != item["metadata"]["annotations"][HASH]:
            continue
        try:
            after = cluster.apply(item, inputs["force_conflicts"], True)[1]
        except ApiError:
            continue
        record = settle(item, after, served)
        if record and not differs(there, after):
            settled[key] = record
            found.add(key)
    return frozenset(found)


def _live(
    cluster: Cluster,
    objects: t.Sequence[Data],
    wanted: t.Mapping[Key, Data],
    inputs: Inputs,
    capabilities: Capabilities,
    exists: bool,
    inventory: Inventory | None,
) -> tuple[dict[Key, Data], tuple[Data, ...]]:
    """(objects of ours and those under the names of wanted ones, driver DaemonSets of earlier charts).

    `exists` is about the namespace.
    """
    kinds = dict.fromkeys(key[:2] for key in wanted)
    # Without an inventory it is not known what was made: then every kind is looked at, once.
    kinds.update(dict.fromkeys(sorted({key[:2] for key in inventory.keys}) if inventory else made_kinds(capabilities)))
    every_set: list[Data] = []
    if (
        exists
        and inputs["driver"]["remove_legacy"]
        and any(component_of(item) == "driver" and item["kind"] == "DaemonSet" for item in objects)
    ):
        # The sets of earlier charts lack our labels.
        every_set = cluster.list(*_DAEMON_SETS, inputs["namespace"])
        del kinds[_DAEMON_SETS]
    mine = [item for kind in kinds for item in list_ours(cluster, kind, inputs["namespace"], exists)]
    live = {key_of(item): item for item in (*mine, *(item for item in every_set if is_ours(item)))}
    live.update(_unlabelled(cluster, [key for key in wanted if key not in live and (exists or not key[2])]))
    return live, tuple(item for item in every_set if is_legacy(item))


def _to_write(
    cluster: Cluster,
    objects: t.Sequence[Data],
    wanted: t.Mapping[Key, Data],
    live: t.Mapping[Key, Data],
    namespace: Data | None,
    settled: t.Mapping[Key, Settled],
    served: str,
) -> frozenset[Key]:
    """The keys whose live object differs from the wanted one, is missing, or is being deleted."""
    write = {
        key
        for key, item in wanted.items()
        if key not in live or is_going(live[key]) or not is_settled(item, live[key], settled.get(key), served)
    }
    namespaces = {
        key_of(item)
        for item in objects
        if item["kind"] == "Namespace" and not is_right(item, namespace) and not is_kept_right(cluster, item, namespace)
    }
    return frozenset(write | namespaces)


def _unlabelled(cluster: Cluster, keys: t.Sequence[Key]) -> dict[Key, Data]:
    """The objects of `keys`, which may lack our labels.

    Several of a kind in our namespace take one request, because it holds little else.
    """
    places = dict.fromkeys(key[:3] for key in keys)
    names = {place: [key[3] for key in keys if key[:3] == place] for place in places}
    asked = [
        (*place, name) for place in places for name in ([""] if place[2] and len(names[place]) > 1 else names[place])
    ]
    found = {(*key[:3], item["metadata"]["name"]): item for key in asked for item in list_named(cluster, key)}
    return {key: found[key] for key in keys if key in found}


def refuse_taken(plan: Plan) -> None:
    """NpuError for names that others use: an apply would silently make their objects ours."""
    if plan.taken:
        more = " (and %d more)" % (len(plan.taken) - MOST_NAMED) if len(plan.taken) > MOST_NAMED else ""
        names = ", ".join(map(taken_text, plan.taken[:MOST_NAMED]))
        raise NpuError(
            f"{names}{more}: in the cluster already and not made here. No object was written.",
            f"Choose another name ({OPERANDS}name_prefix, or the input that names it), delete the object, "
            f"or make it ours with {OPERANDS}force_conflicts: true.",
        )


def taken_text(item: Data) -> str:
    """`Kind namespace/name (of MANAGERS)`."""
    managers = sorted(
        {entry["manager"] for entry in item["metadata"].get("managedFields") or [] if entry.get("manager")}
    )
    return "%s (of %s)" % (object_label(item), ", ".join(managers) or "an unknown manager")
