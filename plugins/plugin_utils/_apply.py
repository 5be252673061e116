# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects into a cluster and out of it again: list, compare, apply only what differs, prune what is ours and not wanted."""

from __future__ import annotations

import hashlib
import json
import time
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._model import NpuError

from ._cluster import Cluster, Data
from ._labels import owned_labels
from ._object_parts import INSTANCE, LABEL_PREFIX, SELECTOR

HASH = LABEL_PREFIX + "applied-hash"
CREATED = LABEL_PREFIX + "namespace-created"
BEFORE = LABEL_PREFIX + "pod-security-before"
POD_SECURITY = "pod-security.kubernetes.io/"
RBAC = "rbac.authorization.k8s.io/v1"
NAMESPACED_KINDS = (("apps/v1", "DaemonSet"), ("v1", "Secret"), ("v1", "ConfigMap"), ("v1", "ServiceAccount"))
CLUSTER_KINDS = ((RBAC, "ClusterRoleBinding"), (RBAC, "ClusterRole"))
OUR_KINDS = NAMESPACED_KINDS + CLUSTER_KINDS
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
_SERVER_FIELDS = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp")


def with_hash(item: Data) -> Data:
    """The object with a digest of itself as annotation; a Secret gets none, because its digest would tell about its content."""
    if item["kind"] == "Secret":
        return item
    digest = hashlib.sha256(json.dumps(item, sort_keys=True).encode()).hexdigest()[:32]
    meta = dict(item["metadata"], annotations={**item["metadata"].get("annotations", {}), HASH: digest})
    return dict(item, metadata=meta)


def within(wanted: t.Any, live: t.Any) -> bool:
    """True when every value of `wanted` is in `live`; lists have the same length, and live may hold more keys (defaults)."""
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(within(value, live.get(key)) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(live, list) and len(wanted) == len(live) and all(within(one, other) for one, other in zip(wanted, live))
    if wanted in ("", False) and live is None:
        return True
    return bool(wanted == live)


def visible(item: t.Optional[Data]) -> Data:
    """What a person compares: no status, nothing that the server counts, no content of a Secret."""
    if not item:
        return {}
    result = {key: value for key, value in item.items() if key != "status"}
    meta = {key: value for key, value in (item.get("metadata") or {}).items() if key not in _SERVER_FIELDS}
    annotations = {key: value for key, value in (meta.get("annotations") or {}).items() if key not in (HASH, "deprecated.daemonset.template.generation")}
    meta.pop("annotations", None)
    if annotations:
        meta["annotations"] = annotations
    result["metadata"] = meta
    if item.get("kind") == "Secret":
        result["data"] = {key: "(hidden)" for key in item.get("data") or {}}
    return result


def reduce_diff(before: t.Any, after: t.Any) -> tuple[t.Any, t.Any]:
    """Only what differs, on both sides."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return before, after
    left: Data = {}
    right: Data = {}
    for key in sorted(set(before) | set(after)):
        if before.get(key) == after.get(key):
            continue
        if key in before and key in after:
            left[key], right[key] = reduce_diff(before[key], after[key])
        elif key in before:
            left[key] = before[key]
        else:
            right[key] = after[key]
    return left, right


def _label(item: Data) -> str:
    meta = item["metadata"]
    return "%s %s" % (item["kind"], "/".join(part for part in (meta.get("namespace"), meta["name"]) if part))


def _key(item: Data) -> tuple[str, str, str]:
    return item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]


def _change(item: Data, action: str, before: t.Optional[Data] = None, after: t.Optional[Data] = None) -> Data:
    left, right = reduce_diff(visible(before), visible(after))
    if before and after and item["kind"] == "Secret" and before.get("data") != after.get("data"):
        left["data"], right["data"] = "(hidden)", "(hidden, and different)"
    return {"object": _label(item), "action": action, "before": left, "after": right}


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
        live.update({_key(item): item for item in cluster.list(api_version, kind, scope, _selector(namespace, scope))})
    wanted_keys = set()
    for item in objects:
        wanted_keys.add(_key(item))
        if item["kind"] == "Namespace":
            changes.append(_apply_namespace(cluster, item, live_namespace, dry_run))
        elif live_namespace is None and dry_run and item["metadata"].get("namespace"):
            changes.append(_change(item, "created", None, item))
        else:
            changes.append(_apply_one(cluster, with_hash(item), live.get(_key(item)), force, dry_run))
    for key, item in live.items():
        if key not in wanted_keys:
            cluster.delete(item, dry_run)
            changes.append(_change(item, "deleted", item, None))
    return changes


def _apply_namespace(cluster: Cluster, item: Data, live: t.Optional[Data], dry_run: bool) -> Data:
    """Only the Pod Security labels are applied, and by force: whoever wrote them before, our pods need them."""
    wanted = _namespace_wanted(item, live)
    if live is not None and within(wanted["metadata"], live["metadata"]) and owned_labels(live) <= set(wanted["metadata"]["labels"]):
        return _change(item, "unchanged")
    created, after = cluster.apply(wanted, True, dry_run)
    return _finish(item, live, after, created)


def _apply_one(cluster: Cluster, item: Data, live: t.Optional[Data], force: bool, dry_run: bool) -> Data:
    if live is not None and item["kind"] != "Secret" and within(item, live):
        return _change(item, "unchanged")
    created, after = cluster.apply(item, force, dry_run)
    return _finish(item, live, after, created)


def _finish(item: Data, live: t.Optional[Data], after: Data, created: bool) -> Data:
    if created or live is None:
        return _change(item, "created" if created else "changed", live, after)
    return _change(item, "unchanged" if _comparable(live) == _comparable(after) else "changed", live, after)


def _comparable(item: Data) -> Data:
    """An object without what the server counts, content of a Secret included, for comparison only."""
    shown = visible(item)
    return dict(shown, data=item["data"]) if "data" in item else shown


def remove_objects(cluster: Cluster, namespace: str, timeout: float, dry_run: bool, clock: t.Callable[[], float] = time.monotonic) -> list[Data]:
    """Delete everything that carries our labels and wait until the lists are empty; then the namespace, if it was ours and is empty."""
    live_namespace = cluster.get("v1", "Namespace", namespace)
    changes: list[Data] = []
    kinds = OUR_KINDS if live_namespace else CLUSTER_KINDS
    for item in _ours(cluster, namespace, kinds):
        cluster.delete(item, dry_run)
        changes.append(_change(item, "deleted", item, None))
    if dry_run:
        return changes
    end = clock() + timeout
    watched = kinds + ((("v1", "Pod"),) if live_namespace else ())
    while True:
        left = _ours(cluster, namespace, watched)
        if not left:
            break
        if clock() > end:
            raise NpuError(
                "After %d s these objects are still there: %s." % (timeout, ", ".join(_label(item) for item in left[:10])),
                "Look at their finalizers and at the kubelets of their nodes.",
            )
        time.sleep(1)
    if live_namespace:
        changes += _remove_namespace(cluster, live_namespace, end, clock)
    return changes


def _selector(namespace: str, scope: str) -> str:
    return SELECTOR if scope else "%s,%s=%s" % (SELECTOR, INSTANCE, namespace)


def _ours(cluster: Cluster, namespace: str, kinds: t.Iterable[tuple[str, str]]) -> list[Data]:
    found: list[Data] = []
    for api_version, kind in kinds:
        scope = "" if (api_version, kind) in CLUSTER_KINDS else namespace
        found += cluster.list(api_version, kind, scope, _selector(namespace, scope))
    return found


def _remove_namespace(cluster: Cluster, live: Data, end: float, clock: t.Callable[[], float]) -> list[Data]:
    name = live["metadata"]["name"]
    annotations = live["metadata"].get("annotations") or {}
    if annotations.get(CREATED) != "true":
        return _restore_namespace(cluster, live, annotations.get(BEFORE))
    others = []
    for api_version, kind in FOREIGN_KINDS:
        others += [item for item in cluster.list(api_version, kind, name) if (kind, item["metadata"]["name"]) not in MADE_BY_KUBERNETES]
    if others:
        return [{"object": "Namespace " + name, "action": "kept", "before": {}, "after": {"holds": sorted(_label(item) for item in others)[:10]}}]
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
    return [_change({"kind": "Namespace", "metadata": {"name": name}}, "changed", live, after)]


def summarise(changes: t.Sequence[Data]) -> dict[str, t.Any]:
    """{changed, objects: [label: action], diff} for a task result."""
    different = [change for change in changes if change["action"] not in ("unchanged", "kept")]
    return {
        "changed": bool(different),
        "objects": {change["object"]: change["action"] for change in changes},
        "diff": [
            {
                "before": change["before"],
                "after": change["after"],
                "before_header": change["object"],
                "after_header": "%s (%s)" % (change["object"], change["action"]),
            }
            for change in different
        ],
    }
