# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ready or not, and if not: which pod, which node, why, and what to do."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.verdict import judge_daemon_set, problem_text
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import objects, one

Data = dict[str, Any]
PRESENT = {"rebellions.ai/npu.present": "true"}
TEAM = {"key": "team", "value": "ml", "effect": "NoExecute"}
NPU = {"key": "rebellions.ai/npu", "value": "true", "effect": "NoSchedule"}


def daemon_set(
    desired: int, ready: int = 0, updated: int | None = None, generation: int = 1, observed: int = 1
) -> Data:
    item = one(objects(), "DaemonSet", "device-plugin")
    meta = {
        **item["metadata"],
        "uid": "ds-1",
        "generation": generation,
        "annotations": {"deprecated.daemonset.template.generation": "2"},
    }
    status = {
        "observedGeneration": observed,
        "desiredNumberScheduled": desired,
        "numberReady": ready,
        "updatedNumberScheduled": desired if updated is None else updated,
    }
    return {**item, "metadata": meta, "status": status}


def node(name: str, labels: Data | None = None, taints: list[Data] | None = None) -> Data:
    return {
        "metadata": {"name": name, "labels": PRESENT if labels is None else labels},
        "spec": {"taints": taints or []},
    }


def pod(
    name: str,
    node_name: str,
    ready: bool = True,
    bound: bool = True,
    template: str = "2",
    owner: str = "ds-1",
    **status: Any,
) -> Data:
    field = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node_name]}]}
    spec: Data = {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [field]}}}
    }
    if bound:
        spec["nodeName"] = node_name
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    meta = {"name": name, "labels": {"pod-template-generation": template}, "ownerReferences": [{"uid": owner}]}
    return {
        "metadata": meta,
        "spec": spec,
        "status": {"phase": "Running" if ready else "Pending", "conditions": conditions, **status},
    }


def event(name: str, reason: str, message: str, when: str = "2026-11-28T01:00:00Z", kind: str = "Warning") -> Data:
    return {
        "metadata": {},
        "involvedObject": {"name": name},
        "type": kind,
        "reason": reason,
        "message": message,
        "lastTimestamp": when,
    }


def waiting(name: str, reason: str, message: str = "", last: Data | None = None) -> Data:
    return {
        "name": name,
        "state": {"waiting": {"reason": reason, "message": message}},
        "lastState": {"terminated": last} if last else {},
    }


PSA = (
    'pods "rbln-device-plugin-x" is forbidden: violates PodSecurity "baseline:latest": hostPath '
    'volumes (volume "dev"), '
    'privileged (container "device-plugin" must not set privileged)'
)
FORBIDDEN = 'Error creating: pods "x" is forbidden: '
# What the DaemonSet controller says, to a part of the next step.
REFUSED = {
    FORBIDDEN
    + (
        "insufficient quota to match these scopes: [{PriorityClass In [system-node-critical]}]"
    ): "set another rbln_operands_priority_class",
    FORBIDDEN + "no PriorityClass with name npu was found": "Create the priority class",
    FORBIDDEN + "failed quota: q: must specify limits.cpu": "Set the resources that the quota asks for",
    FORBIDDEN + "maximum cpu usage per Container is 10m, but limit is 1": "within the LimitRange",
    FORBIDDEN
    + (
        "unable to validate against any security context constraint: [privileged]"
    ): "security context constraint privileged",
    (
        'Error creating: admission webhook "v.k.io" denied the request: no hostPath'
    ): "Change what the admission policy asks for",
    'Error creating: Internal error occurred: failed calling webhook "v.k.io"': "Repair the webhook",
    FORBIDDEN + 'error looking up service account n/s: serviceaccount "s" not found': "Read what forbids the pod",
}

GOOD: dict[str, tuple[Data, list[Data], list[Data], set[str] | None]] = {
    "two of two": (daemon_set(2, 2), [pod("p1", "a"), pod("p2", "b")], [node("a"), node("b")], None),
    "a node without NPU needs no pod": (daemon_set(1, 1), [pod("p1", "a")], [node("a"), node("c", {})], None),
    "the NPU taint is tolerated": (daemon_set(1, 1), [pod("p1", "a")], [node("a", taints=[NPU])], None),
    "cordoned nodes keep their pod": (
        daemon_set(1, 1),
        [pod("p1", "a")],
        [node("a", taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}])],
        None,
    ),
    "scope: a broken node elsewhere": (
        daemon_set(2, 1),
        [pod("p1", "a"), pod("p2", "b", ready=False)],
        [node("a"), node("b")],
        {"a"},
    ),
    "a terminating pod beside its successor": (
        daemon_set(1, 1),
        [pod("p1", "a"), {**pod("old", "a"), "metadata": {**pod("old", "a")["metadata"], "deletionTimestamp": "x"}}],
        [node("a")],
        None,
    ),
    "pods of another owner are not looked at": (
        daemon_set(1, 1),
        [pod("p1", "a"), pod("x", "a", ready=False, owner="other")],
        [node("a")],
        None,
    ),
}


@pytest.mark.parametrize("case", GOOD)
def test_done(case: str) -> None:
    item, pods, nodes, scope = GOOD[case]
    verdict = judge_daemon_set(item, pods, [], nodes, scope)
    assert verdict["problems"] == []
    assert verdict["done"] is True


def test_trouble_outside_the_scope_is_a_warning() -> None:
    item, pods, nodes, scope = GOOD["scope: a broken node elsewhere"]
    assert [warning["node"] for warning in judge_daemon_set(item, pods, [], nodes, scope)["warnings"]] == ["b"]


BAD: dict[str, tuple[Data, list[Data], list[Data], list[Data], set[str] | None, str, str, list[str], bool]] = {
    # item, pods, events, nodes, scope, reason, node, words, fatal
    "P01-toleration-mismatch desired 0, the taint is named": (
        daemon_set(0),
        [],
        [],
        [node("node-a", taints=[NPU, TEAM])],
        None,
        "Taint",
        "node-a",
        ["team=ml:NoExecute", "rbln_operands_tolerations"],
        True,
    ),
    "P01-toleration-mismatch desired 0, no label": (
        daemon_set(0),
        [],
        [],
        [node("node-a", {"kubernetes.io/os": "linux"}, [NPU])],
        {"node-a"},
        "NoLabel",
        "node-a",
        ["rebellions.ai/npu.present", "pci-1200_1eff", "rbln_operands_node_labels"],
        True,
    ),
    "P01-toleration-mismatch desired 0, no NPU node at all": (
        daemon_set(0),
        [],
        [],
        [node("node-a", {})],
        None,
        "NoNodes",
        "",
        ["selects no node: none has an NPU label"],
        True,
    ),
    "gate closed by somebody": (
        daemon_set(0),
        [],
        [],
        [node("a", {**PRESENT, "rebellions.ai/npu.deploy.device-plugin": "false"})],
        {"a"},
        "NotSelected",
        "a",
        ["rebellions.ai/npu.deploy.device-plugin=false"],
        True,
    ),
    "one of two nodes is tainted": (
        daemon_set(1, 1),
        [pod("p1", "a")],
        [],
        [node("a"), node("b", taints=[TEAM])],
        None,
        "Taint",
        "b",
        ["team=ml:NoExecute"],
        True,
    ),
    "the node itself is not ready": (
        daemon_set(0),
        [],
        [],
        [node("a", taints=[{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}])],
        None,
        "NodeState",
        "a",
        ["node.kubernetes.io/unreachable:NoSchedule", "kubelet"],
        False,
    ),
    "S01-podsecurity rejection is read from the DaemonSet's events": (
        daemon_set(1),
        [],
        [event("rbln-device-plugin", "FailedCreate", PSA)],
        [node("a")],
        None,
        "FailedCreate",
        "a",
        ['violates PodSecurity "baseline:latest"', "rbln_operands_pod_security"],
        False,
    ),
    **{
        "no pod is created: %s" % words: (
            daemon_set(1),
            [],
            [event("rbln-device-plugin", "FailedCreate", said)],
            [node("a")],
            None,
            "FailedCreate",
            "a",
            [words],
            False,
        )
        for said, words in REFUSED.items()
    },
    "quota": (
        daemon_set(1),
        [],
        [event("rbln-device-plugin", "FailedCreate", "exceeded quota: pods")],
        [node("a")],
        None,
        "FailedCreate",
        "a",
        ["exceeded quota", "Raise the quota"],
        False,
    ),
    "controller has not looked": (
        daemon_set(1, 1, generation=2, observed=1),
        [pod("p1", "a")],
        [],
        [node("a")],
        None,
        "NotObserved",
        "",
        ["controller"],
        False,
    ),
    "the old pod stays": (
        daemon_set(1),
        [{**pod("p0", "a"), "metadata": {**pod("p0", "a")["metadata"], "deletionTimestamp": "x"}}],
        [],
        [node("a")],
        None,
        "Terminating",
        "a",
        ["p0", "not ended"],
        False,
    ),
    "pod missing yet": (daemon_set(1), [], [], [node("a")], None, "NoPod", "a", ["no pod yet"], False),
    "old template": (
        daemon_set(1, 1, updated=0),
        [pod("p1", "a", template="1")],
        [],
        [node("a")],
        None,
        "OldPod",
        "a",
        ["p1", "newest template"],
        False,
    ),
    "image pull": (
        daemon_set(1),
        [
            pod(
                "p1",
                "a",
                ready=False,
                containerStatuses=[waiting("device-plugin", "ImagePullBackOff", "Back-off pulling image r/x:1")],
            )
        ],
        [
            event("p1", "Failed", "old", "2026-11-28T00:00:00Z"),
            event("p1", "Failed", "401 Unauthorized", "2026-11-28T01:00:00Z"),
        ],
        [node("a")],
        None,
        "ImagePullBackOff",
        "a",
        ["p1", "device-plugin", "r/x:1", "401 Unauthorized", "rbln_registry"],
        False,
    ),
    "crash loop tells the last words": (
        daemon_set(1),
        [
            pod(
                "p1",
                "a",
                ready=False,
                containerStatuses=[
                    waiting(
                        "device-plugin", "CrashLoopBackOff", "back-off 10s", {"exitCode": 1, "message": "no rbln-smi"}
                    )
                ],
            )
        ],
        [],
        [node("a")],
        None,
        "CrashLoopBackOff",
        "a",
        ["no rbln-smi", "log"],
        False,
    ),
    "killed for its memory": (
        daemon_set(1),
        [
            pod(
                "p1",
                "a",
                ready=False,
                containerStatuses=[
                    waiting("device-plugin", "CrashLoopBackOff", "", {"exitCode": 137, "reason": "OOMKilled"})
                ],
            )
        ],
        [],
        [node("a")],
        None,
        "OOMKilled",
        "a",
        ["device-plugin was killed for the memory", "resources"],
        False,
    ),
    "killed for its memory, and the next image is not there": (
        daemon_set(1),
        [
            pod(
                "p1",
                "a",
                ready=False,
                containerStatuses=[
                    waiting("device-plugin", "ErrImagePull", "", {"exitCode": 137, "reason": "OOMKilled"})
                ],
            )
        ],
        [],
        [node("a")],
        None,
        "ErrImagePull",
        "a",
        ["pull secret"],
        False,
    ),
    "of a long log the failures are told": (
        daemon_set(1),
        [
            pod(
                "p1",
                "a",
                ready=False,
                initContainerStatuses=[
                    waiting(
                        "toolkit-validation",
                        "CrashLoopBackOff",
                        "",
                        {"exitCode": 1, "message": "ok      a\nFAILED   b: CDI is off\nok      c\nfailed\n"},
                    )
                ],
            )
        ],
        [],
        [node("a")],
        None,
        "CrashLoopBackOff",
        "a",
        ["toolkit-validation: CrashLoopBackOff: FAILED b: CDI is off. Next"],
        False,
    ),
    "waits for the host": (
        daemon_set(1),
        [pod("p1", "a", ready=False, initContainerStatuses=[{"name": "wait-for-host", "state": {"running": {}}}])],
        [],
        [node("a")],
        None,
        "WaitsForHost",
        "a",
        ["ready files", "rbln_driver"],
        False,
    ),
    "gave up waiting for the host": (
        daemon_set(1),
        [
            pod(
                "p1",
                "a",
                ready=False,
                initContainerStatuses=[
                    waiting(
                        "wait-for-host",
                        "CrashLoopBackOff",
                        "",
                        {"exitCode": 1, "message": "no /run/rbln/validations/driver-ready after 600 s"},
                    )
                ],
            )
        ],
        [],
        [node("a")],
        None,
        "CrashLoopBackOff",
        "a",
        ["driver-ready after 600 s", "rbln_driver"],
        False,
    ),
    "unschedulable": (
        daemon_set(1),
        [
            pod(
                "p1",
                "a",
                ready=False,
                bound=False,
                conditions=[
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "Insufficient cpu",
                    }
                ],
            )
        ],
        [],
        [node("a")],
        None,
        "Unschedulable",
        "a",
        ["Insufficient cpu", "room"],
        False,
    ),
    "volume cannot be mounted": (
        daemon_set(1),
        [pod("p1", "a", ready=False, containerStatuses=[waiting("device-plugin", "ContainerCreating")])],
        [event("p1", "FailedMount", "hostPath type check failed: /usr is not a directory")],
        [node("a")],
        None,
        "ContainerCreating",
        "a",
        ["hostPath type check failed"],
        False,
    ),
    "node left the cluster": (
        daemon_set(0),
        [],
        [],
        [],
        {"gone"},
        "NoNode",
        "gone",
        ["no longer in the cluster"],
        True,
    ),
    "counts that do not agree": (
        daemon_set(2, 1),
        [pod("p1", "a")],
        [],
        [node("a")],
        None,
        "Counts",
        "",
        ["2 wanted"],
        False,
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_not_done_says_why(case: str) -> None:
    item, pods, events, nodes, scope, reason, where, words, fatal = BAD[case]
    verdict = judge_daemon_set(item, pods, events, nodes, scope)
    assert verdict["done"] is False
    assert [(problem["reason"], problem["node"], problem["fatal"]) for problem in verdict["problems"]] == [
        (reason, where, fatal)
    ]
    text = problem_text(verdict["problems"][0], verdict["name"])
    assert [word for word in words if word not in text] == []
    assert "Next: " in text and text.startswith("rbln-device-plugin")


def test_what_a_kubelet_writes_stays_one_printable_line() -> None:
    """Messages of containers, conditions and events are text of a node."""
    bad = "\x1b]0;title\x07\x9b31mred\u202e\u2028" + "line\n" * 9000
    unscheduled = [{"type": "PodScheduled", "status": "False", "reason": bad, "message": bad}]
    ended = {"exitCode": 1, "reason": "Error", "message": bad}
    pods = {
        "n1": pod("p1", "n1", False, containerStatuses=[waiting("c", "CrashLoopBackOff", bad, ended)]),
        "n2": pod("p2", "n2", False, reason=bad),
        "n3": {**pod("p3", "n3", False), "status": {"phase": "Pending", "conditions": unscheduled}},
    }
    events = [event(one["metadata"]["name"], "Failed", bad) for one in pods.values()]
    nodes = [node(name) for name in (*pods, "n4")]
    rejected = [event("rbln-device-plugin", "FailedCreate", bad)]
    verdict = judge_daemon_set(daemon_set(4), list(pods.values()), events + rejected, nodes, {*pods, "n4"})
    told = {problem["node"]: problem_text(problem, verdict["name"]) for problem in verdict["problems"]}
    assert sorted(told) == ["n1", "n2", "n3", "n4"]
    for text in told.values():
        assert text.isprintable() and len(text) < 1500 and " Next: " in text
        assert "red" in text
