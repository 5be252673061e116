# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts and their nodes: which node a host is, and the labels of each."""

from __future__ import annotations

import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._cluster.api import ApiError, Cluster, Data
from .._objects.inputs import Inputs
from .._objects.names import INPUT
from .labels import (
    DISCOVERY_GATE,
    Seen,
    awaits_driver,
    expected_npus,
    lacks_proof,
    node_labels,
    owned_labels,
    settle_labels,
)
from .marks import is_marked, remove_marks
from .match import find_nodes
from .records import FoundNode, Member, Named, NodeRecord
from .verdict import has_npu


def member_record(
    host: str,
    inputs: Inputs,
    facts: t.Mapping[str, t.Any] | None,
    more: t.Mapping[str, t.Any] | None = None,
    proof: t.Mapping[str, t.Any] | None = None,
    driver_source: str = "",
    address: str = "",
    toolkit_source: str = "",
) -> Member:
    """What the acting host must know of `host`. Without facts its labels and NPUs are unknown (None).

    `facts` are those of its NPUs, `more` all of ansible_facts with the runtimes and the observation, `proof` the proof
    that this run made, `driver_source` and `toolkit_source` inputs of the host roles, `address` ansible_host. NpuError
    when the inputs lack what this host needs.
    """
    identity = (facts or {}).get("identity") or {}
    labels = None
    labelled = (
        inputs["enabled"] and inputs["node_labels"] and inputs["state"] == "present" and inputs["delivery"] != "render"
    )
    found = more or {}
    seen = Seen(
        facts or {},
        found.get(INPUT + "runtimes") or {},
        found.get(INPUT + "observed") or {},
        proof or {},
        driver_source,
        toolkit_source,
    )
    if facts and labelled:
        labels = node_labels(inputs, seen)
    return {
        "host": host,
        "node_name": inputs["node_name"],
        "address": address,
        "machine_id": identity.get("machine_id"),
        "system_uuid": identity.get("system_uuid"),
        "kubelet_name": identity.get("node_name"),
        "labels": labels,
        "driver_managed": driver_source not in ("", "preinstalled", "container"),
        "expected": expected_npus(inputs, seen),
        "lacks_proof": labels is not None and lacks_proof(inputs, seen),
        "awaits_driver": labels is not None and awaits_driver(inputs, seen),
    }


class Hosts(t.NamedTuple):
    """The hosts of a cluster: the members of this run, and what the inventory says of the others.

    With `strict` the word of a host proves no node.
    """

    members: t.Sequence[Member]
    others: t.Sequence[Named] = ()
    strict: bool = False


def match_members(cluster: Cluster, hosts: Hosts) -> dict[str, NodeRecord]:
    """Host to its node; nothing is labelled."""
    return _records(hosts.members, find_nodes(hosts.members, cluster.list("v1", "Node"), hosts.others, hosts.strict))


def _records(members: t.Sequence[Member], found: t.Mapping[str, FoundNode]) -> dict[str, NodeRecord]:
    """Host to its node, before anything is labelled."""
    return {
        member["host"]: {
            **found[member["host"]],
            "changed": False,
            "before": {},
            "after": {},
            "notes": [],
            "expected": member["expected"],
            "discovery": False,
        }
        for member in members
    }


def label_nodes(
    cluster: Cluster, hosts: Hosts, present: bool, dry_run: bool, closed: t.Collection[str] = ()
) -> dict[str, NodeRecord]:
    """Label the node of each member, or remove our labels from it; host to what happened.

    On the nodes of the hosts in `closed` the gate of a feature discovery that is no longer wanted is closed instead of
    removed: its pod ends, and the label still tells that it was there.
    """
    nodes = {node["metadata"]["name"]: node for node in cluster.list("v1", "Node")}
    found = find_nodes(hosts.members, list(nodes.values()), hosts.others, hosts.strict)
    result = _records(hosts.members, found)
    for member in hosts.members:
        record = result[member["host"]]
        if record["error"]:
            continue
        node, labels = nodes[record["node"]], member["labels"] if present else {}
        if labels is None:
            continue
        if present:
            record["discovery"] = DISCOVERY_GATE in owned_labels(node) and DISCOVERY_GATE not in labels
            if record["discovery"] and member["host"] in closed:
                labels = {**labels, DISCOVERY_GATE: "false"}
            labels, record["notes"] = settle_labels(labels, node)
        try:
            marked = not present and remove_marks(cluster, node, dry_run)
            _label_node(cluster, node, labels, dry_run, record)
            record["changed"] = record["changed"] or marked
        except NpuError as exc:
            record["error"] = str(exc)
            continue
        if present and member["lacks_proof"]:
            record["error"] = (
                "node %s: its host has not proven driver and toolkit, so its gates are closed "
                "and no workload finds an NPU. "
                "Next: Run rebellions.npu.site for this host; rebellions.npu.validate says what is wrong."
                % record["node"]
            )
    return result


def _label_node(cluster: Cluster, node: Data, labels: t.Mapping[str, str], dry_run: bool, record: NodeRecord) -> None:
    """Bring our labels of a node to `labels`, and record the change."""
    live = node["metadata"].get("labels") or {}
    owned = owned_labels(node)
    before = {name: live[name] for name in sorted(owned | set(labels)) if name in live}
    if owned == set(labels) and before == dict(labels):
        return
    if not _apply_labels(cluster, node, labels, dry_run) and labels:
        raise NpuError(
            "The node %s was deleted while this run labelled it." % node["metadata"]["name"],
            "Run again when the host has joined the cluster.",
        )
    record.update({"changed": before != dict(labels), "before": before, "after": dict(labels)})


def _apply_labels(cluster: Cluster, node: Data, labels: t.Mapping[str, str], dry_run: bool) -> bool:
    """Whether the node still exists.

    Its uid is in the request, because the apply would create a node of the name otherwise.
    """
    meta = {"name": node["metadata"]["name"], "uid": node["metadata"].get("uid"), "labels": dict(labels)}
    try:
        cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": meta}, False, dry_run)
    except ApiError as exc:
        # The second text is about a new node of the same name.
        if "uid mismatch" in str(exc) or "metadata.uid" in str(exc):
            return False
        raise
    return True


def labelled_nodes(cluster: Cluster) -> list[str]:
    """The nodes that carry labels of ours, or what rollouts left."""
    nodes = cluster.list("v1", "Node")
    return sorted(node["metadata"]["name"] for node in nodes if owned_labels(node) or is_marked(node))


def nodes_in_use(cluster: Cluster) -> list[str]:
    """The nodes that carry labels of ours, or have NPUs by any label, so that components of ours may be on them."""
    return sorted(
        node["metadata"]["name"] for node in cluster.list("v1", "Node") if owned_labels(node) or has_npu(node)
    )


def unlabel_nodes(cluster: Cluster, dry_run: bool) -> list[str]:
    """Remove our labels, and what rollouts left, from every node of the cluster; the names of those that had some."""
    found = []
    for node in cluster.list("v1", "Node"):
        marked = remove_marks(cluster, node, dry_run)
        if (owned_labels(node) and _apply_labels(cluster, node, {}, dry_run)) or marked:
            found.append(node["metadata"]["name"])
    return sorted(found)
