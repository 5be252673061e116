# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a cluster is ours, and its removal."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._cluster.api import KINDS, ApiError, Cluster, Data
from .._cluster.lease import WriteLease
from .._components.registry import COMPONENT_LABEL, COMPONENTS, component_of
from .._objects.compare import change, object_label
from .._objects.model import Capabilities, Inputs
from .._objects.parts import INSTANCE, OURS, SELECTOR, applied_fields
from .inventory import KEPT, Inventory, Key, key_of, made_kinds, read_inventory
from .namespace import find_namespace, remove_namespace

# Names and containers of driver DaemonSets that earlier charts of the vendor made.
LEGACY_NAME = "rbln-k8s-driver-manager"
LEGACY_CONTAINER = "rbln-umd-installer"
_COMPONENT_ORDER = {row.key: number for number, row in enumerate(COMPONENTS)}
_KIND_ORDER = {key: number for number, key in enumerate(KINDS)}
_LATE = {"DaemonSet": 1, "ServiceMonitor": 2}


def list_ours(cluster: Cluster, kind: tuple[str, str], namespace: str, there: bool) -> list[Data]:
    """Objects of a kind with our labels; of the installation in `namespace`, which is `there` or not yet. A kind that is not served has none."""
    namespaced = KINDS[kind][2]
    if namespaced and not there:
        return []
    selector = SELECTOR if namespaced else "%s,%s=%s" % (SELECTOR, INSTANCE, namespace)
    try:
        return cluster.list(*kind, namespace if namespaced else "", selector)
    except ApiError as exc:
        if exc.status == 404:
            return []
        raise


def is_legacy(daemon_set: Data) -> bool:
    """Whether it is a driver DaemonSet of an earlier chart that belongs to nobody (000-08, 000-09)."""
    meta = daemon_set["metadata"]
    if meta.get("ownerReferences") or is_ours(daemon_set):
        return False
    spec = daemon_set["spec"]["template"]["spec"]
    names = {item["name"] for item in [*(spec.get("initContainers") or []), *spec["containers"]]}
    return bool(meta["name"].startswith(LEGACY_NAME) or LEGACY_CONTAINER in names)


def creation_order(item: Data) -> tuple[int, int, int]:
    """Sorts objects as they are created: by component, and in it what needs others last."""
    component = _COMPONENT_ORDER.get(component_of(item), -1)
    return component, _LATE.get(item["kind"], 0), _KIND_ORDER[(item["apiVersion"], item["kind"])]


def is_ours(item: Data) -> bool:
    return OURS.items() <= (item["metadata"].get("labels") or {}).items()


def is_going(item: Data) -> bool:
    return bool(item["metadata"].get("deletionTimestamp"))


def is_made_here(item: Data) -> bool:
    """Whether an object has our labels and was applied by our field manager: so has what a run made that could not record it."""
    return is_ours(item) and bool(applied_fields(item))


def nodes_of(daemon_set: Data, pods: t.Iterable[Data]) -> list[str]:
    """The nodes that pods of a DaemonSet are on."""
    uid = daemon_set["metadata"].get("uid")
    own = [pod for pod in pods if uid in _owners(pod)]
    return sorted({(pod.get("spec") or {}).get("nodeName") or "a node not chosen yet" for pod in own})


def guard(cluster: Cluster, namespace: str, items: t.Sequence[Data]) -> dict[str, list[str]]:
    """{label of a driver's DaemonSet: nodes it has pods on}: such a one stays, because a lost label must not unload a driver."""
    drivers = [item for item in items if item["kind"] == "DaemonSet" and component_of(item) == "driver"]
    if not drivers:
        return {}
    pods = cluster.list("v1", "Pod", namespace, SELECTOR)
    return {object_label(item): nodes for item in drivers for nodes in [nodes_of(item, pods)] if nodes}


def remove_objects(
    cluster: Cluster,
    inputs: Inputs,
    capabilities: Capabilities,
    dry_run: bool,
    at_last: t.Callable[[], None] = lambda: None,
    clock: t.Callable[[], float] = time.monotonic,
    changes: list[Data] | None = None,
) -> list[Data]:
    """Delete what is ours and wait until the lists are empty; then the namespace, if it was ours and is empty.

    The answer is `changes`, which tells what was done also when an NpuError ends it. Ours is what carries our labels and is in the
    inventory, or all that carries them when there is no inventory.
    `at_last` is called when all components and their pods are gone, before what is noted of the installation goes.
    """
    changes = [] if changes is None else changes
    namespace = find_namespace(cluster, inputs, alone=False)
    inventory = read_inventory(cluster, inputs) if namespace else None
    kinds = [key for key in made_kinds(capabilities) if namespace or not KINDS[key][2]]
    found = list_all(cluster, inputs["namespace"], kinds)
    mine = [item for item in found if not _is_foreign(item, inventory)]
    if dry_run:
        changes += [change(item, "kept") for item in found if _is_foreign(item, inventory)]
        for item in mine:
            cluster.delete(item, True)
        at_last()
        changes += [change(item, "deleted", item, None) for item in mine if not _is_kept(item)]
        return changes
    lease = WriteLease(cluster, inputs)
    held = bool(namespace and mine)
    check = lease.check if held else lambda: None
    if held:
        lease.take()
    end = clock() + inputs["wait_timeout"]
    try:
        if held:
            # Who held the Lease may have made more.
            inventory = read_inventory(cluster, inputs)
            found = list_all(cluster, inputs["namespace"], kinds)
            mine = [item for item in found if not _is_foreign(item, inventory)]
        changes += [change(item, "kept") for item in found if _is_foreign(item, inventory)]
        for item in sorted(mine, key=lambda item: item["kind"] != "DaemonSet"):
            if not _is_kept(item):
                check()
                cluster.delete(item, False)
                changes.append(change(item, "deleted", item, None))
        last = _wait_until_gone(
            cluster, inputs, kinds + ([("v1", "Pod")] if namespace else []), inventory, end, clock, check
        )
        at_last()
        for item in sorted(last, key=lambda item: item["kind"] == "Lease"):
            check()
            cluster.delete(item, False)
    except BaseException:
        if held:
            lease.give_up()
        raise
    if namespace:
        changes += remove_namespace(cluster, namespace, end, clock)
    return changes


def _wait_until_gone(
    cluster: Cluster,
    inputs: Inputs,
    kinds: t.Sequence[tuple[str, str]],
    inventory: Inventory | None,
    end: float,
    clock: t.Callable[[], float],
    check: t.Callable[[], None],
) -> list[Data]:
    """Wait until of ours only inventory, Lease and the like are there; these are the answer. NpuError that names what is left.

    `check` keeps the Lease, which would run out before a long wait ends. Only the kinds of what was left are looked at again, and all of
    them once more at the end.
    """
    looked = list(kinds)
    while True:
        check()
        found = list_all(cluster, inputs["namespace"], looked)
        foreign = {
            item["metadata"].get("uid") for item in found if item["kind"] != "Pod" and _is_foreign(item, inventory)
        }
        left = [
            item
            for item in found
            if not (_owners(item) & foreign if item["kind"] == "Pod" else _is_foreign(item, inventory))
        ]
        rest = [item for item in left if not _is_kept(item)]
        if not rest and len(looked) == len(kinds):
            return left
        if not rest:
            looked = list(kinds)
            continue
        if clock() > end:
            raise NpuError(
                "After %d s these objects are still there: %s."
                % (inputs["wait_timeout"], ", ".join(object_label(item) for item in rest[:10])),
                "Look at their finalizers and at the kubelets of their nodes.",
            )
        names = {item["kind"] for item in rest}
        # Whose pods these are is seen by their DaemonSets.
        looked = [kind for kind in kinds if kind[1] in names or (kind[1] == "DaemonSet" and "Pod" in names)]
        time.sleep(1)


class Stuck(NpuError):
    """An object whose deletion does not end. Its `status` is no answer of the API."""

    status = 0


def wait_for_deletion(
    cluster: Cluster,
    item: Data,
    timeout: float,
    check: t.Callable[[], None],
    clock: t.Callable[[], float] = time.monotonic,
) -> None:
    """Wait until an object that is being deleted is gone: what is applied to it would go with it. `check` keeps the Lease."""
    end = clock() + timeout
    while any(live["metadata"].get("uid") == item["metadata"].get("uid") for live in list_named(cluster, key_of(item))):
        if clock() > end:
            finalizers = ", ".join(item["metadata"].get("finalizers") or []) or "none"
            raise Stuck(
                "%s is being deleted, and after %d s is still there (finalizers: %s)."
                % (object_label(item), timeout, finalizers),
                "Look at who has to remove the finalizers, and run again.",
            )
        time.sleep(1)
        check()


def list_named(cluster: Cluster, key: Key) -> list[Data]:
    """The object of a key, or all of its kind when the name is empty; they may lack our labels.

    It is listed, because the right to get these kinds is not needed otherwise.
    """
    try:
        return cluster.list(*key[:3], "", "metadata.name=" + key[3] if key[3] else "")
    except ApiError as exc:
        if exc.status == 404:
            return []
        raise


def list_all(cluster: Cluster, namespace: str, kinds: t.Iterable[tuple[str, str]]) -> list[Data]:
    return [item for kind in kinds for item in list_ours(cluster, kind, namespace, True)]


def _owners(item: Data) -> set[t.Any]:
    return {owner.get("uid") for owner in item["metadata"].get("ownerReferences") or []}


def _is_foreign(item: Data, inventory: Inventory | None) -> bool:
    """Whether an object with our labels was made by somebody else: the inventory does not have it."""
    return inventory is not None and not _is_kept(item) and key_of(item) not in inventory.keys


def _is_kept(item: Data) -> bool:
    return (item["metadata"].get("labels") or {}).get(COMPONENT_LABEL) in KEPT
