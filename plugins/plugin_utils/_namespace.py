# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The namespace of an installation: made or joined, given back as it was, removed when it was ours and is empty."""

from __future__ import annotations

import json
import time
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._model import NpuError

from ._cluster import Cluster, Data
from ._compare import change, finish, object_label, within
from ._labels import owned_labels
from ._object_parts import LABEL_PREFIX

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
)
MADE_BY_KUBERNETES = {("ServiceAccount", "default"), ("ConfigMap", "kube-root-ca.crt"), ("ConfigMap", "openshift-service-ca.crt")}


def _namespace_wanted(item: Data, live: t.Optional[Data]) -> Data:
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
        elif item["metadata"]["labels"]:
            annotations[BEFORE] = json.dumps({key: labels.get(key) for key in sorted(item["metadata"]["labels"])}, sort_keys=True)
    meta = dict(item["metadata"])
    if annotations:
        meta["annotations"] = annotations
    return dict(item, metadata=meta)


def apply_namespace(cluster: Cluster, item: Data, live: t.Optional[Data], dry_run: bool) -> Data:
    """Only the Pod Security labels are applied, and by force: whoever wrote them before, our pods need them."""
    wanted = _namespace_wanted(item, live)
    if live is not None and within(wanted["metadata"], live["metadata"]) and owned_labels(live) <= set(wanted["metadata"]["labels"]):
        return change(item, "unchanged")
    created, after = cluster.apply(wanted, True, dry_run)
    return finish(item, live, after, created)


def remove_namespace(cluster: Cluster, live: Data, end: float, clock: t.Callable[[], float]) -> list[Data]:
    name = live["metadata"]["name"]
    annotations = live["metadata"].get("annotations") or {}
    if annotations.get(CREATED) != "true":
        return _restore_namespace(cluster, live, annotations.get(BEFORE))
    others = []
    for api_version, kind in FOREIGN_KINDS:
        others += [item for item in cluster.list(api_version, kind, name) if (kind, item["metadata"]["name"]) not in MADE_BY_KUBERNETES]
    if others:
        return [{"object": "Namespace " + name, "action": "kept", "before": {}, "after": {"holds": sorted(object_label(item) for item in others)[:10]}}]
    cluster.delete(dict(live, apiVersion="v1", kind="Namespace"), False)
    while cluster.get("v1", "Namespace", name) is not None:
        if clock() > end:
            raise NpuError("The namespace %s is still there." % name, "Look at its status.conditions.")
        time.sleep(1)
    return [{"object": "Namespace " + name, "action": "deleted", "before": {}, "after": {}}]


def _restore_namespace(cluster: Cluster, live: Data, before: t.Optional[str]) -> list[Data]:
    """Give up our labels in a namespace that is not ours, and put the Pod Security labels back that it had."""
    if before is None:
        return []
    name = live["metadata"]["name"]
    labels = {key: value for key, value in json.loads(before).items() if key.startswith(POD_SECURITY)}
    body = {"metadata": {"labels": labels, "annotations": {BEFORE: None}}}
    path = cluster.path("v1", "Namespace", "", name)
    after = cluster.request("PATCH", path, "Restore namespace " + name, {"fieldManager": "rebellions-npu-restore"}, body, "application/merge-patch+json")[1]
    return [change({"kind": "Namespace", "metadata": {"name": name}}, "changed", live, after)]
