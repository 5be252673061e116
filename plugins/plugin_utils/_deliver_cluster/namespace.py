# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The namespace of an installation: created or joined.

At the end restored, or deleted when we created it and it is empty.
"""

from __future__ import annotations

import json
import re
import time
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._cluster.api import ApiError, Cluster, Data, list_served
from .._nodes.labels import owned_labels
from .._nodes.nodes import nodes_in_use
from .._objects.compare import Change, change, differs, finish, object_label, within
from .._objects.inputs import Inputs
from .._objects.names import INPUT, OPERANDS
from .._objects.parts import LABEL_PREFIX, NODE_SELECTOR, applied_fields
from .._objects.parts import POLICY_LABEL as POLICY
from .ours import POD, owners
from .settled import settled_notes

CREATED = LABEL_PREFIX + "namespace-created"
BEFORE = LABEL_PREFIX + "pod-security-before"
POD_SECURITY = "pod-security.kubernetes.io/"
RBAC = "rbac.authorization.k8s.io/v1"
FOREIGN_KINDS = (
    POD,
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
# What Kubernetes, Istio and what copies the authorities of a site put into every namespace by themselves.
MADE_BY_CLUSTER = {
    "ServiceAccount": {"default"},
    "ConfigMap": {"kube-root-ca.crt", "istio-ca-root-cert", "istio-ca-crl", "odh-trusted-ca-bundle"},
}
# And what OpenShift with its pipelines does; elsewhere people may give these names.
MADE_BY_OPENSHIFT = {
    "ServiceAccount": {"builder", "deployer", "pipeline"},
    "ConfigMap": {"openshift-service-ca.crt", "config-service-cabundle", "config-trusted-cabundle"},
    "RoleBinding": {
        "system:image-pullers", "system:image-builders", "system:deployers", "openshift-pipelines-edit",
        "pipelines-scc-rolebinding",
    },
}  # fmt: skip
_OPENSHIFT_SIGNS = ("openshift-service-ca.crt", "system:image-pullers")
# Tokens and registry accounts of service accounts, those above and ours.
_TOKEN_TYPES = ("kubernetes.io/service-account-token", "kubernetes.io/dockercfg")
_TOKEN_OF = re.compile(r"\A(.+)-(?:token|dockercfg)-[a-z0-9]{5}\Z")
# Labels and annotations of copies that a controller makes and keeps of an object elsewhere.
_COPIES = (
    "trust.cert-manager.io/bundle",
    "generate.kyverno.io/policy-name",
    "generate.kyverno.io/source-name",
    "hnc.x-k8s.io/inherited-from",
    "reflector.v1.k8s.emberstack.com/reflects",
    "replicator.v1.mittwald.de/replicated-from-version",
    "kubed.appscode.com/origin",
    "clustersecret.io/version",
)
# Of Kubernetes itself, by its admission plugin PodNodeSelector.
_PLAIN_SELECTOR = "scheduler.alpha.kubernetes.io/node-selector"


def made_by_people(items: t.Sequence[Data], prefix: str = "") -> list[Data]:
    """Those of the objects of a namespace that its cluster has not made by itself and would not make again.

    `prefix` is that of our names.
    """
    made = {kind: set(names) for kind, names in MADE_BY_CLUSTER.items()}
    if any(item["metadata"]["name"] in _OPENSHIFT_SIGNS for item in items):
        for kind, names in MADE_BY_OPENSHIFT.items():
            made[kind] = made.get(kind, set()) | names
    return [item for item in items if not _is_leftover(item, made, prefix)]


def _is_leftover(item: Data, made: t.Mapping[str, set[str]], prefix: str) -> bool:
    meta, kind = item["metadata"], item["kind"]
    if meta["name"] in made.get(kind, ()):
        return True
    found = _TOKEN_OF.match(meta["name"])
    if kind == "Secret" and found and item.get("type") in _TOKEN_TYPES:
        return found[1] in made["ServiceAccount"] or bool(prefix and found[1].startswith(prefix + "-"))
    marks = {**(meta.get("labels") or {}), **(meta.get("annotations") or {})}
    return kind in ("ConfigMap", "Secret", "Role", "RoleBinding", "NetworkPolicy") and any(
        name in marks for name in _COPIES
    )


def find_namespace(cluster: Cluster, inputs: Inputs, alone: bool = True) -> Data | None:
    """Our namespace, or None.

    NpuError when this installation has another name prefix, or the cluster has another one and `alone` is set.
    """
    marked = {item["metadata"]["name"]: item for item in cluster.list("v1", "Namespace", "", POLICY)}
    own, prefix = marked.pop(inputs["namespace"], None), inputs["name_prefix"]
    if marked and alone:
        raise NpuError(
            "The cluster has an installation in the namespace %s, and a second one is wanted in %s."
            % (sorted(marked)[0], inputs["namespace"]),
            f"Set {INPUT}namespace to {sorted(marked)[0]}, or remove that one first ({OPERANDS}state: absent).",
        )
    if own is None:
        return cluster.get("v1", "Namespace", inputs["namespace"])
    theirs = (own["metadata"].get("labels") or {}).get(POLICY)
    if theirs != prefix:
        raise NpuError(
            "The installation in %s has %sname_prefix %s, and %s is wanted."
            % (inputs["namespace"], OPERANDS, theirs, prefix),
            f"Remove it with the former prefix first ({OPERANDS}state: absent).",
        )
    return own


def _namespace_wanted(item: Data, live: Data | None) -> Data:
    """The namespace to apply, with a note that we created it or of the Pod Security level that it had before."""
    annotations: Data = dict(item["metadata"].get("annotations") or {})
    if live is None:
        annotations[CREATED] = "true"
    else:
        known = live["metadata"].get("annotations") or {}
        annotations = _annotations_wanted(annotations, live)
        labels = live["metadata"].get("labels") or {}
        if known.get(CREATED) == "true":
            annotations[CREATED] = "true"
        elif BEFORE in known:
            annotations[BEFORE] = known[BEFORE]
        elif any(key.startswith(POD_SECURITY) for key in item["metadata"]["labels"]):
            mine = sorted(key for key in item["metadata"]["labels"] if key.startswith(POD_SECURITY))
            annotations[BEFORE] = json.dumps({key: labels.get(key) for key in mine}, sort_keys=True)
    meta = {key: value for key, value in item["metadata"].items() if key != "annotations"}
    if annotations:
        meta["annotations"] = annotations
    return dict(item, metadata=meta)


def _annotations_wanted(given: Data, live: Data) -> Data:
    """Those of `given` that a namespace gets: what it says itself, or an administrator said later, stays.

    In a namespace of others an empty node selector, which would lift that of the project, is not added.
    """
    known, owned = live["metadata"].get("annotations") or {}, _owned_annotations(live)
    ours = known.get(CREATED) == "true"
    return {
        key: value
        for key, value in given.items()
        if key in owned
        or (key not in known and (ours or key != NODE_SELECTOR or value))
        or (ours and known.get(key) == value)
    }


def _owned_annotations(live: Data) -> set[str]:
    """The annotations that are ours by server-side apply, but our own marks."""
    fields = [(one.get("f:metadata") or {}).get("f:annotations") or {} for one in applied_fields(live)]
    return {key[2:] for one in fields for key in one if key.startswith("f:")} - {CREATED, BEFORE}


def selector_notes(cluster: Cluster, item: Data, live: Data | None) -> list[str]:
    """A warning for each node selector of the namespace that leaves out nodes with NPUs, or may do so."""
    known = (live or {"metadata": {}})["metadata"].get("annotations") or {}
    keys = [NODE_SELECTOR] if NODE_SELECTOR in (item["metadata"].get("annotations") or {}) else []
    wanted = item["metadata"].get("annotations") or {}
    notes = []
    for key in (*keys, _PLAIN_SELECTOR):
        selector = known.get(key)
        if not selector or wanted.get(key) == selector:
            continue
        nodes = nodes_in_use(cluster)
        out = sorted(set(nodes) - _selected(cluster, selector))
        if nodes and not out:
            continue
        names = ", ".join(out[:10]) or "some"
        notes.append(
            f"The namespace {item['metadata']['name']} has the node selector {selector} ({key}), which leaves out "
            f"nodes with NPUs ({names}): pods there are rejected and made again without end. "
            "Next: Make the annotation empty, or give these nodes the labels."
        )
    return notes


def _selected(cluster: Cluster, selector: str) -> set[str]:
    """The nodes that a selector names; none when the API server cannot read it."""
    try:
        return {node["metadata"]["name"] for node in cluster.list("v1", "Node", "", selector)}
    except ApiError as exc:
        if exc.status != 400:
            raise
        return set()


def is_right(item: Data, live: Data | None) -> bool:
    """Whether the live namespace is as wanted."""
    wanted = _namespace_wanted(item, live)
    return (
        live is not None
        and within(wanted["metadata"], live["metadata"])
        and owned_labels(live) <= set(wanted["metadata"]["labels"])
        and _owned_annotations(live) <= set(wanted["metadata"].get("annotations") or {})
    )


def is_kept_right(cluster: Cluster, item: Data, live: Data | None) -> bool:
    """Whether an apply would change nothing, because an admission policy keeps the namespace as it is: by a dry run."""
    if live is None:
        return False
    try:
        return not differs(live, cluster.apply(_namespace_wanted(item, live), True, True)[1])
    except ApiError:
        return False


def kept_notes(item: Data, live: Data | None) -> list[str]:
    """What the cluster keeps otherwise than it is wanted."""
    return settled_notes(_namespace_wanted(item, live), live) if live and not is_right(item, live) else []


def apply_namespace(cluster: Cluster, item: Data, live: Data | None, dry_run: bool, write: bool) -> Change:
    """Apply only the Pod Security labels, our mark and annotations, and by force, because our pods need them."""
    if not write:
        return change(item, "unchanged")
    wanted = _namespace_wanted(item, live)
    created, after = cluster.apply(wanted, True, dry_run)
    return finish(item, live, after, created)


def remove_namespace(
    cluster: Cluster,
    live: Data,
    end: float,
    clock: t.Callable[[], float],
    notes: list[str],
    going: t.Sequence[Data] | None = None,
) -> list[Change]:
    """Delete a namespace that we created and that is empty, else give it back; `notes` tells why it stays.

    `end` is the time to give up by `clock`. With `going`, the objects that a real run would have deleted before, the
    answer is what would happen, and nothing is written.
    """
    name, dry_run = live["metadata"]["name"], going is not None
    annotations = live["metadata"].get("annotations") or {}
    if annotations.get(CREATED) != "true":
        return _restore_namespace(cluster, live, annotations.get(BEFORE), dry_run)
    prefix = str((live["metadata"].get("labels") or {}).get(POLICY) or "")
    found = [item for kind in FOREIGN_KINDS for item in list_served(cluster, *kind, name, metadata=kind == POD)]
    others = made_by_people(_without(found, going or ()), prefix)
    if others:
        _patch_namespace(cluster, name, {"labels": {POLICY: None}}, dry_run)
        held = sorted(object_label(item) for item in others)
        more = " and %d more" % (len(held) - 10) if len(held) > 10 else ""
        notes.append(
            f"The namespace {name} stays, because it holds {', '.join(held[:10])}{more}. "
            "Next: Delete it by hand when nothing in it is needed."
        )
        return [{**_record(name, "kept"), "after": {"holds": held[:10]}}]
    cluster.delete(dict(live, apiVersion="v1", kind="Namespace"), dry_run)
    while not dry_run and (left := cluster.get("v1", "Namespace", name)) is not None:
        if clock() > end:
            conditions = (left.get("status") or {}).get("conditions") or []
            texts = [item["message"] for item in conditions if item.get("status") == "True" and item.get("message")]
            raise NpuError(
                "The namespace %s is still there%s." % (name, ": " + "; ".join(texts).rstrip(".") if texts else ""),
                f"Remove what blocks its deletion, or give it more time: {OPERANDS}wait_timeout. Then run again.",
            )
        cluster.waits("Namespace %s is being deleted: waiting, %d s are left" % (name, end - clock()))
        time.sleep(1)
    return [_record(name, "deleted")]


def _record(name: str, action: str, before: Data | None = None, after: Data | None = None) -> Change:
    return change({"kind": "Namespace", "metadata": {"name": name}}, action, before, after)


def _without(items: t.Sequence[Data], going: t.Sequence[Data]) -> list[Data]:
    """`items` without objects that are going, and without the pods of these."""
    names = {(item["kind"], item["metadata"]["name"]) for item in going}
    uids = {item["metadata"].get("uid") for item in going} - {None}
    return [item for item in items if (item["kind"], item["metadata"]["name"]) not in names and not owners(item) & uids]


def _restore_namespace(cluster: Cluster, live: Data, before: str | None, dry_run: bool) -> list[Change]:
    """Remove our labels from a namespace that we did not create, and restore its former Pod Security labels."""
    try:
        labels: Data = {key: value for key, value in json.loads(before or "{}").items() if key.startswith(POD_SECURITY)}
    except (ValueError, AttributeError) as exc:
        raise NpuError(
            "The annotation %s of the namespace %s, which holds its former labels, cannot be read."
            % (BEFORE, live["metadata"]["name"]),
            "Set the former Pod Security labels of the namespace by hand, remove the annotation, and run again.",
        ) from exc
    if POLICY in (live["metadata"].get("labels") or {}):
        labels[POLICY] = None
    annotations: Data = dict.fromkeys([BEFORE, *sorted(_owned_annotations(live))])
    if not labels and len(annotations) == 1:
        return []
    after = _patch_namespace(cluster, live["metadata"]["name"], {"labels": labels, "annotations": annotations}, dry_run)
    return [_record(live["metadata"]["name"], "changed", live, after)]


def _patch_namespace(cluster: Cluster, name: str, meta: Data, dry_run: bool) -> Data:
    path = cluster.path("v1", "Namespace", "", name)
    query = {"fieldManager": "rebellions-npu-restore", **({"dryRun": "All"} if dry_run else {})}
    return cluster.request(
        "PATCH", path, "Restore namespace " + name, query, {"metadata": meta}, "application/merge-patch+json"
    )[1]
