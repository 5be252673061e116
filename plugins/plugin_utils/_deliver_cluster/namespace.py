# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The namespace of an installation: made or joined, given back as it was, removed when it was ours and is empty."""

from __future__ import annotations

import json
import time
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._cluster.api import ApiError, Cluster, Data
from .._nodes.labels import owned_labels
from .._objects.compare import change, finish, object_label, within
from .._objects.model import Inputs
from .._objects.parts import LABEL_PREFIX
from .._objects.parts import POLICY_LABEL as POLICY

CREATED = LABEL_PREFIX + "namespace-created"
BEFORE = LABEL_PREFIX + "pod-security-before"
POD_SECURITY = "pod-security.kubernetes.io/"
RBAC = "rbac.authorization.k8s.io/v1"
FOREIGN_KINDS = (
    ("v1", "Pod"),
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("batch/v1", "Job"),
    ("batch/v1", "CronJob"),
    ("v1", "Service"),
    ("v1", "PersistentVolumeClaim"),
    ("v1", "Secret"),
    ("v1", "ConfigMap"),
    ("v1", "ServiceAccount"),
    (RBAC, "Role"),
    (RBAC, "RoleBinding"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("coordination.k8s.io/v1", "Lease"),
    ("monitoring.coreos.com/v1", "ServiceMonitor"),
    ("resource.k8s.io/v1", "ResourceClaim"),
)
MADE_BY_KUBERNETES = {
    ("ServiceAccount", "default"),
    ("ConfigMap", "kube-root-ca.crt"),
    ("ConfigMap", "openshift-service-ca.crt"),
}


def find_namespace(cluster: Cluster, inputs: Inputs, alone: bool = True) -> Data | None:
    """Our namespace, or None when it is not there. NpuError when this installation has other names, or is to be `alone` and the cluster has another."""
    marked = {item["metadata"]["name"]: item for item in cluster.list("v1", "Namespace", "", POLICY)}
    own, prefix = marked.pop(inputs["namespace"], None), inputs["name_prefix"]
    if marked and alone:
        raise NpuError(
            "The cluster has an installation in the namespace %s, and a second one is wanted in %s."
            % (sorted(marked)[0], inputs["namespace"]),
            "Set rbln_namespace to %s, or remove that one first (rbln_operands_state: absent)." % sorted(marked)[0],
        )
    if own is None:
        return cluster.get("v1", "Namespace", inputs["namespace"])
    if own["metadata"]["labels"][POLICY] != prefix:
        raise NpuError(
            "The installation in %s has rbln_operands_name_prefix %s, and %s is wanted."
            % (inputs["namespace"], own["metadata"]["labels"][POLICY], prefix),
            "Remove it with the former prefix first (rbln_operands_state: absent).",
        )
    return own


def _namespace_wanted(item: Data, live: Data | None) -> Data:
    """The namespace to apply: it remembers that we made it, or which Pod Security level it had before us."""
    annotations: Data = {}
    if live is None:
        annotations[CREATED] = "true"
    else:
        known = (live["metadata"].get("annotations") or {}) if live else {}
        labels = live["metadata"].get("labels") or {}
        if known.get(CREATED) == "true":
            annotations[CREATED] = "true"
        elif BEFORE in known:
            annotations[BEFORE] = known[BEFORE]
        elif any(key.startswith(POD_SECURITY) for key in item["metadata"]["labels"]):
            mine = sorted(key for key in item["metadata"]["labels"] if key.startswith(POD_SECURITY))
            annotations[BEFORE] = json.dumps({key: labels.get(key) for key in mine}, sort_keys=True)
    meta = dict(item["metadata"])
    if annotations:
        meta["annotations"] = annotations
    return dict(item, metadata=meta)


def is_right(item: Data, live: Data | None) -> bool:
    """Whether the live namespace is as wanted."""
    wanted = _namespace_wanted(item, live)
    return (
        live is not None
        and within(wanted["metadata"], live["metadata"])
        and owned_labels(live) <= set(wanted["metadata"]["labels"])
    )


def apply_namespace(cluster: Cluster, item: Data, live: Data | None, dry_run: bool) -> Data:
    """Only the Pod Security labels and our mark are applied, and by force: whoever wrote them before, our pods need them."""
    if is_right(item, live):
        return change(item, "unchanged")
    wanted = _namespace_wanted(item, live)
    created, after = cluster.apply(wanted, True, dry_run)
    return finish(item, live, after, created)


def remove_namespace(cluster: Cluster, live: Data, end: float, clock: t.Callable[[], float]) -> list[Data]:
    name = live["metadata"]["name"]
    annotations = live["metadata"].get("annotations") or {}
    if annotations.get(CREATED) != "true":
        return _restore_namespace(cluster, live, annotations.get(BEFORE))
    others = []
    for api_version, kind in FOREIGN_KINDS:
        others += [
            item
            for item in _list(cluster, api_version, kind, name)
            if (kind, item["metadata"]["name"]) not in MADE_BY_KUBERNETES
        ]
    if others:
        _patch_namespace(cluster, name, {"labels": {POLICY: None}})
        return [
            {
                "object": "Namespace " + name,
                "action": "kept",
                "before": {},
                "after": {"holds": sorted(object_label(item) for item in others)[:10]},
            }
        ]
    cluster.delete(dict(live, apiVersion="v1", kind="Namespace"), False)
    while True:
        left = cluster.get("v1", "Namespace", name)
        if left is None:
            break
        if clock() > end:
            conditions = (left.get("status") or {}).get("conditions") or []
            held = "; ".join(
                item["message"] for item in conditions if item.get("status") == "True" and item.get("message")
            )
            raise NpuError(
                "The namespace %s is still there%s." % (name, ": " + held.rstrip(".") if held else ""),
                "Remove what holds it, or give it more time: rbln_operands_wait_timeout. Then run again.",
            )
        time.sleep(1)
    return [{"object": "Namespace " + name, "action": "deleted", "before": {}, "after": {}}]


def _list(cluster: Cluster, api_version: str, kind: str, namespace: str) -> list[Data]:
    """Objects of a kind; none where the kind is not served."""
    try:
        return cluster.list(api_version, kind, namespace)
    except ApiError as exc:
        if exc.status == 404:
            return []
        raise


def _restore_namespace(cluster: Cluster, live: Data, before: str | None) -> list[Data]:
    """Give up our labels in a namespace that is not ours, and put the Pod Security labels back that it had."""
    try:
        labels: Data = {key: value for key, value in json.loads(before or "{}").items() if key.startswith(POD_SECURITY)}
    except (ValueError, AttributeError) as exc:
        raise NpuError(
            "The annotation %s of the namespace %s, which tells its former labels, cannot be read."
            % (BEFORE, live["metadata"]["name"]),
            "Set the namespace's Pod Security labels as they were, remove the annotation, and run again.",
        ) from exc
    if POLICY in (live["metadata"].get("labels") or {}):
        labels[POLICY] = None
    if not labels:
        return []
    after = _patch_namespace(cluster, live["metadata"]["name"], {"labels": labels, "annotations": {BEFORE: None}})
    return [change({"kind": "Namespace", "metadata": {"name": live["metadata"]["name"]}}, "changed", live, after)]


def _patch_namespace(cluster: Cluster, name: str, meta: Data) -> Data:
    path = cluster.path("v1", "Namespace", "", name)
    query = {"fieldManager": "rebellions-npu-restore"}
    return cluster.request(
        "PATCH", path, "Restore namespace " + name, query, {"metadata": meta}, "application/merge-patch+json"
    )[1]
