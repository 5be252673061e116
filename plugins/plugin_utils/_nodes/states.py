# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the cluster says of the nodes of hosts, to be shown: it decides nothing."""

from __future__ import annotations

from .._cluster.api import ApiError, Cluster
from .._objects.inputs import Inputs
from .._objects.parts import NPU_KEY
from .._objects.placement import repelling_taints
from .match import find_nodes
from .nodes import Hosts
from .readiness import allocatable_npus, node_ready, npus_to_offer
from .records import NodeState

NO_NODE: NodeState = {
    "node": "",
    "ready": False,
    "cordoned": False,
    "drained": None,
    "taints": [],
    "allocatable": 0,
    "expected": None,
    "error": "",
}


def node_states(cluster: Cluster, hosts: Hosts, inputs: Inputs) -> dict[str, NodeState]:
    """Host to what the cluster says of its node; pods are asked for on cordoned nodes alone.

    The taints are those that none of our pods tolerates.
    """
    tolerations = [{"key": NPU_KEY, "operator": "Exists"}, *inputs["tolerations"]]
    nodes = {node["metadata"]["name"]: node for node in cluster.list("v1", "Node")}
    found = find_nodes(hosts.members, list(nodes.values()), hosts.others, hosts.strict)
    states: dict[str, NodeState] = {}
    for member in hosts.members:
        one = found[member["host"]]
        if one["error"]:
            states[member["host"]] = {**NO_NODE, "error": one["error"]}
            continue
        node = nodes[one["node"]]
        cordoned = bool((node.get("spec") or {}).get("unschedulable"))
        states[member["host"]] = {
            "node": one["node"],
            "ready": node_ready(node),
            "cordoned": cordoned,
            "drained": _is_drained(cluster, one["node"]) if cordoned else None,
            "taints": repelling_taints({"tolerations": tolerations}, node),
            "allocatable": allocatable_npus(node, inputs["resource_name"]),
            "expected": npus_to_offer(inputs, node, member["expected"]),
            "error": "",
        }
    return states


def _is_drained(cluster: Cluster, name: str) -> bool | None:
    """Whether only pods are left that a drain leaves: those of DaemonSets, of the node itself, and ended ones."""
    try:
        pods = cluster.list("v1", "Pod", fields="spec.nodeName=" + name)
    except ApiError:
        # Not everybody may list pods of all namespaces.
        return None
    return all(
        any(owner.get("kind") in ("DaemonSet", "Node") for owner in pod["metadata"].get("ownerReferences") or [])
        or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        for pod in pods
    )
