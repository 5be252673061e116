# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the cluster says of the nodes of hosts, to be shown."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.api import ApiError
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.nodes import Hosts
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.overview import HostState, findings
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.states import node_states
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs

Data = dict[str, Any]
READY = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"rebellions.ai/npu": "2"}}


class Cluster:
    """Nodes, and the pods of any of them; None are pods that may not be listed."""

    def __init__(self, nodes: list[Data], pods: list[Data] | None) -> None:
        self.nodes, self.pods, self.asked = nodes, pods, []  # type: ignore[var-annotated]

    def list(self, api: str, kind: str, namespace: str = "", selector: str = "", fields: str = "") -> list[Data]:
        self.asked.append((kind, fields))
        if kind == "Node":
            return self.nodes
        if self.pods is None:
            raise ApiError(403, "List Pod objects", {})
        return self.pods


def member(host: str) -> Any:
    return {
        "host": host,
        "node_name": host,
        "address": "",
        "machine_id": None,
        "system_uuid": None,
        "kubelet_name": None,
        "labels": None,
        "driver_managed": False,
        "expected": 2,
        "lacks_proof": False,
        "awaits_driver": False,
    }


def states(
    spec: Data, pods: list[Data] | None = None, status: Data | None = None, labels: Data | None = None, **given: Any
) -> tuple[Data, Any]:
    node = {"metadata": {"name": "n1", "labels": labels or {}}, "spec": spec, "status": status or READY}
    cluster = Cluster([node], pods)
    found = node_states(cluster, Hosts([member("n1"), member("n9")]), inputs(**given))  # type: ignore[arg-type]
    return found, cluster.asked


def owned(kind: str, phase: str = "Running") -> Data:
    return {"metadata": {"name": "p", "ownerReferences": [{"kind": kind}] if kind else []}, "status": {"phase": phase}}


def test_a_node_that_works_is_asked_for_nothing_more_and_a_host_without_one_has_the_reason() -> None:
    found, asked = states({})
    assert found["n1"] == {
        "node": "n1",
        "ready": True,
        "cordoned": False,
        "drained": None,
        "taints": [],
        "allocatable": 2,
        "expected": 2,
        "error": "",
    }
    assert asked == [("Node", "")] and "n9" in found["n9"]["error"] and "Next: " in found["n9"]["error"]


@pytest.mark.parametrize(
    "pods, drained",
    [
        ([], True),
        ([owned("DaemonSet"), owned("Node"), owned("Job", "Succeeded")], True),
        ([owned("DaemonSet"), owned("ReplicaSet")], False),
        ([owned("")], False),
        (None, None),
    ],
)
def test_a_cordoned_node_is_drained_when_only_what_a_drain_leaves_is_left(
    pods: list[Data] | None, drained: bool | None
) -> None:
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    found, asked = states({"unschedulable": True, "taints": [cordon]}, pods)
    assert (found["n1"]["cordoned"], found["n1"]["drained"], found["n1"]["taints"]) == (True, drained, [])
    assert asked[1:] == [("Pod", "spec.nodeName=n1")]


def test_only_taints_that_our_pods_do_not_tolerate_are_told_K18_startup_taints() -> None:
    taints = [
        {"key": "rebellions.ai/npu", "effect": "NoSchedule"},
        {"key": "team", "value": "a", "effect": "NoSchedule"},
        {"key": "soft", "effect": "PreferNoSchedule"},
        {"key": "ebs.csi.aws.com/agent-not-ready", "effect": "NoExecute"},
    ]
    tolerated = [{"key": "team", "operator": "Exists"}]
    assert states({"taints": taints})[0]["n1"]["taints"] == [
        "team=a:NoSchedule",
        "ebs.csi.aws.com/agent-not-ready:NoExecute",
    ]
    assert states({"taints": taints}, tolerations=tolerated)[0]["n1"]["taints"] == [
        "ebs.csi.aws.com/agent-not-ready:NoExecute"
    ]


def test_a_node_without_an_answer_of_its_kubelet_is_not_ready() -> None:
    found, _asked = states({}, status={"conditions": [{"type": "Ready", "status": "Unknown"}]})
    assert (found["n1"]["ready"], found["n1"]["allocatable"]) == (False, 0)


@pytest.mark.parametrize(
    "labels, given, words",
    [
        ({}, {}, ["warning"]),
        ({"rebellions.ai/npu.deploy.device-plugin": "false"}, {}, ["warning"]),
        ({"rebellions.ai/npu.deploy.skip": "true"}, {}, []),
        ({"rebellions.ai/npu.workload.config": "vm-passthrough"}, {}, []),
        ({}, {"device_plugin": {"enabled": False}}, []),
    ],
)
def test_a_node_that_is_not_to_offer_npus_to_containers_is_no_warning(
    labels: Data, given: Data, words: list[str]
) -> None:
    """The doctor judges by the same."""
    found, _asked = states({}, status={**READY, "allocatable": {}}, labels=labels, **given)
    assert [one.word for one in findings(HostState("n1", node=found["n1"]))] == words
