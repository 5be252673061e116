# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster opened before any host is changed: whether it answers, what the account may do, which node each host is."""

from __future__ import annotations

import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._cluster.api import Cluster, Data
from .._cluster.capabilities import discover
from .._cluster.rights import Right, require_rights, rights_for
from .._components.render import build
from .._nodes.match import find_nodes, without_node
from .._nodes.records import Member, Named
from .._objects.inputs import Inputs
from .._objects.model import Capabilities, Context
from .._objects.names import INPUT
from .operator import COEXIST, RESTORE

# Hosts whose errors are told one by one.
MOST_HOSTS = 5


def open_cluster(cluster: Cluster, inputs: Inputs, where: str) -> None:
    """NpuError when the API server does not answer, or the account lacks rights that a run needs."""
    capabilities = discover(cluster)
    require_rights(cluster, rights_of(inputs, capabilities), inputs["namespace"], where)


def rights_of(inputs: Inputs, capabilities: Capabilities) -> list[Right]:
    """The rights without which a run with these inputs fails, whatever the cluster has already."""
    namespace = inputs["namespace"]
    wanted = rights_for([("v1", "Node")], ["list"], namespace)
    if inputs["coexistence"] in (COEXIST, RESTORE):
        return wanted
    if inputs["node_labels"]:
        wanted += rights_for([("v1", "Node")], ["patch"], namespace)
    wanted += rights_for([("coordination.k8s.io/v1", "Lease")], ["get", "create", "update"], namespace)
    if inputs["rollback"]:
        wanted += rights_for([("v1", "Pod")], ["list", "delete"], namespace)
    made = build(Context(inputs, capabilities))
    kinds = [(item["apiVersion"], item["kind"]) for item in made if item["kind"] != "Namespace"]
    return wanted + rights_for(kinds, ["list", "create", "patch"], namespace)


def nodes_of(
    cluster: Cluster, members: t.Sequence[Member], others: t.Sequence[Named], strict: bool
) -> dict[str, tuple[Data, str]]:
    """Host to its Node, or an empty one with why it has none: it is no node, or claims that of another host."""
    return _nodes_in(list_nodes(cluster), members, others, strict)


def list_nodes(cluster: Cluster) -> list[Data]:
    """All nodes, as far as they tell which host they are and whether they work.

    The rest goes as each page comes: thousands of nodes with the images that they hold fill the memory.
    """

    def part(node: Data) -> Data:
        status = node.get("status") or {}
        return {
            "metadata": {key: value for key, value in node["metadata"].items() if key != "managedFields"},
            "spec": node.get("spec") or {},
            "status": {key: status[key] for key in ("addresses", "allocatable", "nodeInfo") if key in status},
        }

    return cluster.list("v1", "Node", part=part)


def nodes_to_leave(
    nodes: t.Sequence[Data], members: t.Sequence[Member], others: t.Sequence[Named], strict: bool
) -> dict[str, tuple[Data, str]]:
    """`nodes_of` these nodes without the hosts that are none at all, which nobody has to take out of service."""
    apart = without_node(members, nodes, others)
    return {host: one for host, one in _nodes_in(nodes, members, others, strict).items() if host not in apart}


def _nodes_in(
    listed: t.Sequence[Data], members: t.Sequence[Member], others: t.Sequence[Named], strict: bool
) -> dict[str, tuple[Data, str]]:
    nodes = {node["metadata"]["name"]: node for node in listed}
    found = find_nodes(members, listed, others, strict)
    return {host: (nodes.get(one["node"], {}), one["error"]) for host, one in found.items()}


def strangers(found: t.Mapping[str, tuple[Data, str]], where: str) -> list[tuple[NpuError, list[str]]]:
    """(error, hosts) of the hosts without a node, as `nodes_of` has found them."""
    wrong = {host: error for host, (_node, error) in found.items() if error}
    if len(wrong) > MOST_HOSTS:
        names = ", ".join(list(wrong)[:MOST_HOSTS])
        first = next(iter(wrong.values())).partition(" Next: ")[0]
        return [
            (
                NpuError(
                    "%d hosts have no node of their own in the cluster %s: %s and %d more. The first: %s"
                    % (len(wrong), where, names, len(wrong) - MOST_HOSTS, first),
                    f"Join them to the cluster, check {INPUT}kubeconfig and {INPUT}kube_context, or set "
                    f"{INPUT}node_name for each.",
                ),
                list(wrong),
            )
        ]
    told = []
    for host, text in wrong.items():
        what, _next, step = text.partition(" Next: ")
        told.append((NpuError(what, step), [host]))
    return told


def named_member(said: Named, facts: t.Mapping[str, t.Any]) -> Member:
    """A host by what the inventory says and what it says itself (the facts of its NPUs), for the look at its node."""
    identity = facts.get("identity") or {}
    return {
        **said,
        "machine_id": identity.get("machine_id"),
        "system_uuid": identity.get("system_uuid"),
        "kubelet_name": identity.get("node_name"),
        "labels": None,
        "driver_managed": False,
        "expected": None,
        "lacks_proof": False,
        "awaits_driver": False,
    }
