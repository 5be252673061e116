# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a cluster is ours, and its removal."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._model import NpuError

from ._cluster import Cluster, Data
from ._compare import change, object_label
from ._namespace import RBAC, remove_namespace
from ._object_parts import INSTANCE, SELECTOR

NAMESPACED_KINDS = (("apps/v1", "DaemonSet"), ("v1", "Secret"), ("v1", "ConfigMap"), ("v1", "ServiceAccount"))
CLUSTER_KINDS = ((RBAC, "ClusterRoleBinding"), (RBAC, "ClusterRole"))
OUR_KINDS = NAMESPACED_KINDS + CLUSTER_KINDS


def remove_objects(cluster: Cluster, namespace: str, timeout: float, dry_run: bool, clock: t.Callable[[], float] = time.monotonic) -> list[Data]:
    """Delete everything that carries our labels and wait until the lists are empty; then the namespace, if it was ours and is empty."""
    live_namespace = cluster.get("v1", "Namespace", namespace)
    changes: list[Data] = []
    kinds = OUR_KINDS if live_namespace else CLUSTER_KINDS
    for item in ours(cluster, namespace, kinds):
        cluster.delete(item, dry_run)
        changes.append(change(item, "deleted", item, None))
    if dry_run:
        return changes
    end = clock() + timeout
    watched = kinds + ((("v1", "Pod"),) if live_namespace else ())
    while True:
        left = ours(cluster, namespace, watched)
        if not left:
            break
        if clock() > end:
            raise NpuError(
                "After %d s these objects are still there: %s." % (timeout, ", ".join(object_label(item) for item in left[:10])),
                "Look at their finalizers and at the kubelets of their nodes.",
            )
        time.sleep(1)
    if live_namespace:
        changes += remove_namespace(cluster, live_namespace, end, clock)
    return changes


def selector(namespace: str, scope: str) -> str:
    return SELECTOR if scope else "%s,%s=%s" % (SELECTOR, INSTANCE, namespace)


def ours(cluster: Cluster, namespace: str, kinds: t.Iterable[tuple[str, str]]) -> list[Data]:
    found: list[Data] = []
    for api_version, kind in kinds:
        scope = "" if (api_version, kind) in CLUSTER_KINDS else namespace
        found += cluster.list(api_version, kind, scope, selector(namespace, scope))
    return found
