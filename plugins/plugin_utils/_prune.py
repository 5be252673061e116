# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a cluster is ours, and its removal."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._model import NpuError

from ._cluster import KINDS, ApiError, Cluster, Data
from ._compare import change, object_label
from ._inventory import KEPT, made_kinds
from ._lease import WriteLease
from ._model_cluster import Capabilities, Inputs
from ._namespace import find_namespace, remove_namespace
from ._object_parts import INSTANCE, OURS, SELECTOR
from ._registry import COMPONENT_LABEL, component_of

# Names and containers of driver DaemonSets that earlier charts of the vendor made.
LEGACY_NAME = "rbln-k8s-driver-manager"
LEGACY_CONTAINER = "rbln-umd-installer"


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


def is_ours(item: Data) -> bool:
    return OURS.items() <= (item["metadata"].get("labels") or {}).items()


def nodes_of(daemon_set: Data, pods: t.Iterable[Data]) -> list[str]:
    """The nodes that pods of a DaemonSet are on."""
    uid = daemon_set["metadata"].get("uid")
    own = [pod for pod in pods if any(owner.get("uid") == uid for owner in pod["metadata"].get("ownerReferences") or [])]
    return sorted({(pod.get("spec") or {}).get("nodeName") or "a node not chosen yet" for pod in own})


def guard(cluster: Cluster, namespace: str, items: t.Sequence[Data]) -> dict[str, list[str]]:
    """{label of a driver's DaemonSet: nodes it has pods on}: such a one stays, because a lost label must not unload a driver."""
    drivers = [item for item in items if item["kind"] == "DaemonSet" and component_of(item) == "driver"]
    if not drivers:
        return {}
    pods = cluster.list("v1", "Pod", namespace, SELECTOR)
    return {object_label(item): nodes for item in drivers for nodes in [nodes_of(item, pods)] if nodes}


def remove_objects(cluster: Cluster, inputs: Inputs, capabilities: Capabilities, dry_run: bool, clock: t.Callable[[], float] = time.monotonic) -> list[Data]:
    """Delete everything that carries our labels and wait until the lists are empty; then the namespace, if it was ours and is empty."""
    name = inputs["namespace"]
    namespace = find_namespace(cluster, inputs)
    kinds = [key for key in made_kinds(capabilities) if namespace or not KINDS[key][2]]
    found = ours(cluster, name, kinds)
    if dry_run:
        for item in found:
            cluster.delete(item, True)
        return [change(item, "deleted", item, None) for item in found if not _is_kept(item)]
    end = clock() + inputs["wait_timeout"]
    changes: list[Data] = []
    lease = WriteLease(cluster, inputs)
    if namespace and found:
        lease.take()
    for item in sorted(found, key=lambda item: item["kind"] != "DaemonSet"):
        if not _is_kept(item):
            cluster.delete(item, False)
            changes.append(change(item, "deleted", item, None))
    watched = kinds + ([("v1", "Pod")] if namespace else [])
    while True:
        left = ours(cluster, name, watched)
        last = [item for item in left if _is_kept(item)]
        if len(last) == len(left):
            for item in sorted(last, key=lambda item: item["kind"] == "Lease"):
                cluster.delete(item, False)
            break
        if clock() > end:
            rest = [item for item in left if item not in last]
            raise NpuError(
                "After %d s these objects are still there: %s." % (inputs["wait_timeout"], ", ".join(object_label(item) for item in rest[:10])),
                "Look at their finalizers and at the kubelets of their nodes.",
            )
        time.sleep(1)
    if namespace:
        changes += remove_namespace(cluster, namespace, end, clock)
    return changes


def ours(cluster: Cluster, namespace: str, kinds: t.Iterable[tuple[str, str]]) -> list[Data]:
    return [item for kind in kinds for item in list_ours(cluster, kind, namespace, True)]


def _is_kept(item: Data) -> bool:
    return (item["metadata"].get("labels") or {}).get(COMPONENT_LABEL) in KEPT
