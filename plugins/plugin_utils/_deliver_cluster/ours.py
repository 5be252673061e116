# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which objects of a cluster are ours, and in which order they are made. Questions only: nothing is written."""

from __future__ import annotations

import typing as t

from .._cluster.api import KINDS, Cluster, Data, list_served
from .._components.registry import COMPONENT_LABEL, COMPONENTS, component_of
from .._objects.compare import object_label
from .._objects.names import OPERATOR
from .._objects.parts import INSTANCE, OURS, SELECTOR, applied_fields
from .inventory import KEPT, Inventory, Key, key_of

_COMPONENT_ORDER = {row.key: number for number, row in enumerate(COMPONENTS)}
_KIND_ORDER = {key: number for number, key in enumerate(KINDS)}
# Made last: nothing must select what is not there yet.
_LATE = {"DaemonSet": 1, "ServiceMonitor": 2}
POD = ("v1", "Pod")


def list_ours(cluster: Cluster, kind: tuple[str, str], namespace: str, exists: bool) -> list[Data]:
    """Objects of a kind that have our labels and belong to the installation in `namespace`, which may not exist yet.

    Of pods, which are many, only the metadata.
    """
    if not KINDS[kind][2]:
        return list_served(cluster, *kind, "", "%s,%s=%s" % (SELECTOR, INSTANCE, namespace))
    return list_served(cluster, *kind, namespace, SELECTOR, metadata=kind == POD) if exists else []


def list_all(cluster: Cluster, namespace: str, kinds: t.Iterable[tuple[str, str]]) -> list[Data]:
    """Objects of several kinds that have our labels."""
    return [item for kind in kinds for item in list_ours(cluster, kind, namespace, True)]


def list_named(cluster: Cluster, key: Key) -> list[Data]:
    """The object of a key, or all of its kind when the name is empty; they may lack our labels.

    A list, because the right to get these kinds is not needed otherwise.
    """
    return list_served(cluster, *key[:3], "", "metadata.name=" + key[3] if key[3] else "")


def is_ours(item: Data) -> bool:
    """Whether an object has our labels."""
    return OURS.items() <= (item["metadata"].get("labels") or {}).items()


def is_made_here(item: Data) -> bool:
    """Whether an object has our labels and our field manager: a run may have died before it recorded it."""
    return is_ours(item) and bool(applied_fields(item))


def is_kept(item: Data) -> bool:
    """Whether it is our own bookkeeping (inventory, Lease, status, record of a takeover), which goes last."""
    return (item["metadata"].get("labels") or {}).get(COMPONENT_LABEL) in KEPT


def is_foreign(item: Data, inventory: Inventory | None) -> bool:
    """Whether an object has our labels but was not made by us: the inventory does not name it."""
    return inventory is not None and not is_kept(item) and key_of(item) not in inventory.keys


def is_going(item: Data) -> bool:
    """Whether an object is being deleted."""
    return bool(item["metadata"].get("deletionTimestamp"))


def is_legacy(daemon_set: Data) -> bool:
    """Whether it is a driver DaemonSet of an earlier chart: the vendor's name or container, no owner, not ours."""
    meta = daemon_set["metadata"]
    if meta.get("ownerReferences") or is_ours(daemon_set):
        return False
    spec = daemon_set["spec"]["template"]["spec"]
    names = {item["name"] for item in [*(spec.get("initContainers") or []), *spec["containers"]]}
    return bool(meta["name"].startswith(OPERATOR.legacy_daemon_set) or OPERATOR.legacy_container in names)


def creation_order(item: Data) -> tuple[int, int, int]:
    """Sorts objects as they are created: by component, and within it what needs others last."""
    component = _COMPONENT_ORDER.get(component_of(item), -1)
    return component, _LATE.get(item["kind"], 0), _KIND_ORDER[(item["apiVersion"], item["kind"])]


def owners(item: Data) -> set[str | None]:
    """The uids of the owners of an object."""
    return {owner.get("uid") for owner in item["metadata"].get("ownerReferences") or []}


def nodes_of(daemon_set: Data, pods: t.Iterable[Data]) -> list[str]:
    """The nodes on which a DaemonSet has pods."""
    uid = daemon_set["metadata"].get("uid")
    own = [pod for pod in pods if uid in owners(pod)]
    return sorted({(pod.get("spec") or {}).get("nodeName") or "a node not chosen yet" for pod in own})


def guard(cluster: Cluster, namespace: str, items: t.Sequence[Data]) -> dict[str, list[str]]:
    """{label of a driver's DaemonSet: nodes on which it has pods}.

    These stay: a lost label must not unload a driver.
    """
    drivers = [item for item in items if item["kind"] == "DaemonSet" and component_of(item) == "driver"]
    if not drivers:
        return {}
    pods = cluster.list("v1", "Pod", namespace, SELECTOR)
    return {object_label(item): nodes for item in drivers for nodes in [nodes_of(item, pods)] if nodes}
