# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a taint means: who removes it, whether waiting helps, and never a toleration for what goes by itself."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.taints import taint_problem
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_cases import case

Data = dict[str, Any]
# 2026-01-01T12:00:00Z.
NOON = 1767268800.0


def node(manager: str = "", when: str = "") -> Data:
    fields = {"f:spec": {"f:taints": {}}}
    managed = [{"manager": manager, "operation": "Update", "time": when, "fieldsV1": fields}] if manager else []
    return {"metadata": {"name": "npu-1", "managedFields": managed}}


def found(key: str, of: Data | None = None, **more: str) -> tuple[str, bool, str]:
    problem = taint_problem([{"key": key, "effect": "NoSchedule", **more}], of or node(), NOON)
    assert problem is not None and key in problem["detail"] and problem["node"] == "npu-1"
    return problem["reason"], problem["fatal"], problem["next_step"]


K18 = case("K18-startup-taints", "taints.yaml")


@pytest.mark.parametrize("number", range(len(K18)))
def test_K18_startup_taints(number: int) -> None:
    taint = dict(K18[number])
    kind, fatal, step = found(taint.pop("key"), **taint)
    assert fatal is (number == 7)
    assert ("agent of the node" in step) is (number < 5) and ("autoscaler" in step) is (number in (5, 6))
    assert ("toleration" in step) is (number == 7)
    assert kind == ("StartupTaint" if number < 5 else "NodeLeaves" if number < 7 else "Taint")


STARTS = [
    "node.cilium.io/agent-not-ready",
    "ignore-taint.cluster-autoscaler.kubernetes.io/cilium-agent-not-ready",
    "node.cloudprovider.kubernetes.io/uninitialized",
    "node.kubernetes.io/network-unavailable",
    "efs.csi.aws.com/agent-not-ready",
    "disk.csi.azure.com/agent-not-ready",
    "agent.datadoghq.com/not-ready",
    "splunk.net/agent-not-ready",
    "cni.istio.io/not-ready",
    "aci-containers-host/unavailable",
    "zalando.org/node-not-ready",
    "node.alpha.kubernetes.io/notReady-workload",
    "example.com/gpu-driver-not-installed-unhealthy",
    "node-not-ready",
    "example.com/BootstrapPending",
    "spotinst.io/initializing",
]
LEAVES = [
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    "karpenter.sh/disruption",
    "aws-node-termination-handler/spot-itn",
    "aws-node-termination-handler/scheduled-maintenance",
    "aws-node-termination-handler/asg-lifecycle-termination",
    "cloud.google.com/impending-node-termination",
    "medik8s.io/drain",
]
STATES = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.cloudprovider.kubernetes.io/shutdown",
    "medik8s.io/remediation",
]
STAYS = [
    "team",
    "dedicated",
    "nvidia.com/gpu",
    "node-role.kubernetes.io/control-plane",
    "node.kubernetes.io/out-of-service",
    "CriticalAddonsOnly",
    "example.com/spot",
    "maintenance",
    "drain",
    "kubernetes.azure.com/scalesetpriority",
]


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        *((key, "StartupTaint") for key in STARTS),
        *((key, "NodeLeaves") for key in LEAVES),
        *((key, "NodeState") for key in STATES),
        *((key, "Taint") for key in STAYS),
    ],
)
def test_a_taint_is_judged_by_its_key(key: str, kind: str) -> None:
    assert found(key)[:2] == (kind, kind == "Taint")


def test_a_value_can_say_that_a_node_starts() -> None:
    assert found("example.com/stack", value="not-ready")[0] == "StartupTaint"
    assert found("example.com/stack", value="not-ready-made")[0] == "Taint"


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"manager": "fabric-operator", "when": "2026-01-01T11:55:00Z"}, "StartupTaint"),
        ({"manager": "fabric-operator", "when": "2026-01-01T09:00:00Z"}, "Taint"),
        ({"manager": "kubectl-taint", "when": "2026-01-01T11:59:00Z"}, "Taint"),
        ({"manager": "kubelet", "when": "2026-01-01T11:59:00Z"}, "Taint"),
        # The taints are one field: another controller has removed its own.
        ({"manager": "cilium-operator-generic", "when": "2026-01-01T11:59:00Z"}, "Taint"),
        ({"manager": "kube-controller-manager", "when": "2026-01-01T11:59:00Z"}, "Taint"),
        ({"manager": "fabric-operator", "when": "yesterday"}, "Taint"),
    ],
)
def test_an_unknown_taint_is_judged_by_who_has_set_it_and_when(given: Data, kind: str) -> None:
    seen, _fatal, step = found("example.com/fabric", node(**given))
    assert seen == kind and ("fabric-operator" in step) is (kind == "StartupTaint")


@pytest.mark.parametrize(
    ("when", "kind"), [("2026-01-01T11:52:00Z", "StartupTaint"), ("2026-01-01T11:00:00Z", "Taint"), ("", "Taint")]
)
def test_only_controllers_write_the_time_of_a_taint(when: str, kind: str) -> None:
    assert found("example.com/fabric", timeAdded=when)[0] == kind


def test_what_stays_is_told_first_and_alone() -> None:
    taints = [{"key": "node.cilium.io/agent-not-ready", "effect": "NoSchedule"}, {"key": "team", "effect": "NoExecute"}]
    problem = taint_problem(taints, node(), NOON)
    assert problem is not None and problem["fatal"] and "cilium" not in problem["detail"]
    assert taint_problem([], node(), NOON) is None
