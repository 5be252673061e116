# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the account of a kubeconfig needs for a rollout, asked before the first node is cordoned."""

from __future__ import annotations

import typing as t

from .._cluster.api import Cluster
from .._cluster.capabilities import POLICY, discover, serves
from .._cluster.rights import Right, require_rights, rights_for
from .._components import label_policy
from .._components.registry import wanted as components
from .._objects.inputs import Inputs
from .._objects.model import Capabilities
from .evict import BUDGET, CLAIMS
from .pods import REFUSE
from .pods import Policy as Pods
from .turn import DRA, OFFER, SLICE

LEASE = ("coordination.k8s.io/v1", "Lease")


def require_rollout_rights(cluster: Cluster, wanted: t.Sequence[tuple[Inputs, Pods]], where: str) -> None:
    """NpuError that names every right that the account which `where` names lacks; all inputs are asked for at once."""
    capabilities = discover(cluster)
    rights: dict[str, list[Right]] = {}
    for inputs, pods in wanted:
        rights.setdefault(inputs["namespace"], []).extend(rollout_rights(inputs, pods, capabilities))
    for namespace, own in rights.items():
        require_rights(cluster, own, namespace, where)


def rollout_rights(inputs: Inputs, pods: Pods, capabilities: Capabilities) -> list[Right]:
    """The rights without which a rollout stops half way."""
    namespace = inputs["namespace"]
    wanted = rights_for([("v1", "Node")], ["get", "list", "patch"], "")
    wanted += rights_for([("v1", "Pod")], ["list"], "")
    if pods.pods != REFUSE:
        wanted.append(Right("create", "", "pods/eviction", ""))
        wanted += rights_for([BUDGET], ["list"], "")
        if pods.force:
            wanted += rights_for([("v1", "Pod")], ["delete"], "")
    if any(serves(capabilities, *version) for version in CLAIMS):
        wanted += rights_for([CLAIMS[0]], ["get"], "")
    offers = {row.key for row in components(inputs)}.intersection(OFFER)
    if DRA in offers or (not offers and serves(capabilities, *SLICE)):
        # Where none of ours offers NPUs, a DRA driver of others may.
        wanted += rights_for([SLICE], ["list"], "")
    wanted += rights_for([("v1", "ConfigMap"), LEASE], ["get", "create", "update"], namespace)
    if inputs["label_policy"]["enabled"] and serves(capabilities, *POLICY):
        wanted.append(Right("set", label_policy.GROUP, label_policy.RESOURCE, ""))
    return wanted
