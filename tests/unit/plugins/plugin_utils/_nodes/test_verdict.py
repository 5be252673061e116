# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ready or not, and if not: which pod, which node, why, and what to do."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.pods import (
    Known,
    event_key,
    explain_pod,
    problem_text,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.verdict import judge_daemon_set
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_cases import case
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import objects, one

SECRET = "n0t-a-Real-one-7"
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


def test_K20_native_sidecar_hides_nothing() -> None:
    pod_of_case = case("K20-native-sidecar", "pod.yaml")
    problem = explain_pod(pod_of_case, [])
    assert problem["reason"] == "ImagePullBackOff" and "container device-plugin" in problem["detail"]
    assert [word for word in ("registry", "tag", "pull secret") if word not in problem["next_step"]] == []
    sidecar = pod_of_case["status"]["initContainerStatuses"][1]
    sidecar["started"] = False
    assert explain_pod(pod_of_case, [])["detail"] == "init container istio-proxy has not started yet"
    sidecar["state"] = {"waiting": {"reason": "CrashLoopBackOff"}}
    assert explain_pod(pod_of_case, [])["detail"] == "container istio-proxy: CrashLoopBackOff"
    sidecar["state"] = {"terminated": {"exitCode": 0}}
    assert "is to run beside the others, and ended with code 0" in explain_pod(pod_of_case, [])["detail"]


def test_K20_native_sidecar_that_is_not_ready_is_named_when_the_containers_are() -> None:
    pod_of_case = case("K20-native-sidecar", "pod.yaml")
    status = pod_of_case["status"]
    status["containerStatuses"][0].update(ready=True, state={"running": {}})
    status["initContainerStatuses"][1]["ready"] = False
    assert explain_pod(pod_of_case, [])["detail"] == "container istio-proxy runs and is not ready"


def test_a_readiness_gate_is_told() -> None:
    unready = {"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady", "message": "gate x is false"}
    assert "gate x is false" in explain_pod(pod("p1", "a", ready=False, conditions=[unready]), [])["detail"]


K31 = [case("K31-kubelet-rejection", "pod.yaml")["status"], *case("K31-kubelet-rejection", "other-statuses.yaml")]
FITS = (
    "room for one more pod",
    "Free the disk or memory",
    "labels of the node, or the node selector",
    "log of the kubelet",
)


@pytest.mark.parametrize("number", range(len(K31)))
def test_K31_kubelet_rejection_is_repeated(number: int) -> None:
    status = K31[number]
    problem = explain_pod({**case("K31-kubelet-rejection", "pod.yaml"), "status": status}, [])
    assert status["reason"] in problem["detail"] and status["message"].rstrip(".") in problem["detail"]
    assert FITS[number] in problem["next_step"] and problem["fatal"] is False


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("OutOfmemory", "Make room"),
        ("OutOfrebellions.ai/npu", "Make room"),
        ("OutOfephemeral-storage", "Make room"),
        ("Terminated", "has started again"),
        ("NodeShutdown", "has started again"),
        ("Preempting", "priority_class"),
        ("NodePorts", "Free the port"),
        ("TopologyAffinityError", "resource manager"),
        ("PodOSNotSupported", "cannot run the pod"),
        ("AppArmor", "cannot run the pod"),
        ("SomethingNew", "the kubelet's own"),
    ],
)
def test_K31_every_reason_of_a_kubelet_has_its_step(reason: str, words: str) -> None:
    rejected = pod("p1", "a", ready=False, phase="Failed", reason=reason, message="the kubelet says this")
    problem = explain_pod(rejected, [])
    assert reason in problem["detail"] and "the kubelet says this" in problem["detail"]
    assert words in problem["next_step"]


@pytest.mark.parametrize(
    "reason, message, step",
    [
        (
            "CreateContainerError",
            "failed to generate spec: CDI device injection failed: unresolvable CDI devices rebellions.ai/npu=1",
            "Run `site` with --tags toolkit",
        ),
        (
            "ErrImagePull",
            "toomanyrequests: You have reached your pull rate limit",
            "Give the pull secret (rbln_operands_image_pull_secrets) of",
        ),
        ("ErrImagePull", "write /var/lib/containerd/x: no space left on device", "Free disk space on this node."),
        ("CrashLoopBackOff", "exec /bin/plugin: exec format error", "Use an image for the architecture of this node."),
        # What a program could not reach is in its log, and is no registry.
        ("CrashLoopBackOff", "dial tcp 10.96.0.1:443: connection refused", "Read the log of this container"),
    ],
)
def test_the_next_step_is_that_of_the_cause_and_not_of_the_reason_alone(reason: str, message: str, step: str) -> None:
    waits = {"name": "c", "ready": False, "state": {"waiting": {"reason": reason, "message": message}}}
    status = {"phase": "Pending", "containerStatuses": [waits]}
    problem = explain_pod({"metadata": {"name": "p"}, "spec": {"nodeName": "n1"}, "status": status}, [])
    assert problem["next_step"].startswith(step) and message in problem["detail"]


@pytest.mark.parametrize(
    "said",
    [
        "chroot: can't execute '/usr/local/libexec/x/host': No such file or directory",
        "chroot: failed to run command \u2018/opt/x/host\u2019: No such file or directory",
    ],
)
@pytest.mark.parametrize("again", [False, True])
def test_on_a_node_that_only_the_discovery_has_labelled_the_host_part_is_to_run(said: str, again: bool) -> None:
    """Nothing of ours is on its host, so the validator finds no tool there."""
    ended = {"exitCode": 127, "reason": "Error", "message": said}
    step = waiting("driver-validation", "CrashLoopBackOff", "back-off 10s", ended)
    step = step if again else {"name": "driver-validation", "state": {"terminated": ended}}
    problem = explain_pod(pod("p1", "a", ready=False, initContainerStatuses=[step]), [])
    assert said in problem["detail"] and problem["next_step"].startswith("Run the host part for this node (rbln_driver")


def test_K31_a_rejected_pod_that_is_gone_already_is_told_by_its_event() -> None:
    """The controller deletes it at once, and waits before it makes another one."""
    own = event("rbln-device-plugin-zzzzz", "OutOfpods", "Node didn't have enough resource: pods")
    told = {**own, "source": {"component": "kubelet", "host": "a"}}
    for shape in (told, {**own, "reportingInstance": "a"}):
        verdict = judge_daemon_set(daemon_set(1), [], [shape], [node("a")], {"a"})
        assert [one["reason"] for one in verdict["problems"]] == ["OutOfpods"]
        assert "enough resource: pods" in verdict["problems"][0]["detail"]
    elsewhere = {**told, "source": {"host": "b"}}
    assert judge_daemon_set(daemon_set(1), [], [elsewhere], [node("a")], {"a"})["problems"][0]["reason"] == "NoPod"


def test_K31_a_failed_pod_beside_its_successor_is_no_problem() -> None:
    pods = [pod("p0", "a", ready=False, phase="Failed", reason="Evicted"), pod("p1", "a")]
    assert judge_daemon_set(daemon_set(1, 1), pods, [], [node("a")], {"a"})["problems"] == []


def hashed(one: Data, value: str) -> Data:
    """A pod with the hash of its template."""
    labels = {**one["metadata"]["labels"], "controller-revision-hash": value}
    return {**one, "metadata": {**one["metadata"], "labels": labels}}


@pytest.mark.parametrize(
    ("template", "value", "newest", "reasons"),
    [
        ("1", "aa", "aa", []),
        ("1", "aa", "", ["OldPod"]),
        ("1", "aa", "bb", ["OldPod"]),
        ("2", "aa", "bb", []),
        ("", "aa", "aa", []),
    ],
    ids=["wanted again", "hash not known", "old by both", "right by its generation", "right by its hash"],
)
def test_a_pod_is_of_the_newest_template_by_generation_or_by_hash(
    template: str, value: str, newest: str, reasons: list[str]
) -> None:
    known = Known(revisions={"ds-1": newest} if newest else {})
    pods = [hashed(pod("p1", "a", template=template), value)]
    verdict = judge_daemon_set(daemon_set(2, 1), pods, [], [node("a")], {"a"}, known)
    assert ([one["reason"] for one in verdict["problems"]], verdict["done"]) == (reasons, not reasons)


def test_a_status_that_lags_fails_no_node_whose_pod_is_ready_and_new() -> None:
    item = daemon_set(2, 0, updated=0, generation=2, observed=1)
    nodes = [node("a"), node("b")]
    pods = [pod("p1", "a"), hashed(pod("p2", "b", template="1"), "aa")]
    assert judge_daemon_set(item, pods, [], nodes, {"a"})["done"]
    # The hash is of the template that the controller has seen, which is not the newest one.
    verdict = judge_daemon_set(item, pods, [], nodes, {"a", "b"}, Known(revisions={"ds-1": "aa"}))
    assert [(one["node"], one["reason"]) for one in verdict["problems"]] == [("b", "OldPod")]
    nothing = judge_daemon_set(item, [hashed(pods[0], ""), pod("p2", "b", template="")], [], nodes, {"a", "b"})
    assert [one["reason"] for one in nothing["problems"]] == ["OldPod"] and not nothing["done"]


@pytest.mark.parametrize("desired, ready, expected", [(3, 1, (3, 2)), (0, 0, (2, 2)), (3, 3, (3, 3))])
def test_the_counts_of_a_finished_wait_are_not_behind_its_pods(
    desired: int, ready: int, expected: tuple[int, int]
) -> None:
    """Else the next run finds other counts, and writes the status of an unchanged installation again."""
    nodes = [node(name) for name in "abc"]
    pods = [pod("p1", "a"), pod("p2", "b"), pod("p3", "c", ready=False), pod("p4", "c", owner="other")]
    verdict = judge_daemon_set(daemon_set(desired, ready), pods, [], nodes, {"a", "b"})
    assert verdict["done"] and (verdict["desired"], verdict["ready"]) == expected
    waiting = judge_daemon_set(daemon_set(desired, ready), pods, [], nodes, {"a", "b", "c"})
    assert not waiting["done"] and (waiting["desired"], waiting["ready"]) == (desired, ready)


def k21(strategy: Data | None = None) -> tuple[Data, list[Data], list[Data]]:
    name = "K21-rollout-held-by-lost-node"
    item = case(name, "daemonset.yaml")
    item["spec"]["template"] = {"spec": {}}
    item["spec"]["updateStrategy"] = strategy or item["spec"]["updateStrategy"]
    nodes = [
        {
            "metadata": {**one["metadata"], "labels": PRESENT},
            "spec": {"taints": one.get("taints", [])},
            "status": {"conditions": [{"type": "Ready", "status": one["ready"], "message": "Kubelet stopped"}]},
        }
        for one in case(name, "nodes.yaml")
    ]
    pods = [
        pod(one["name"], one["node"], one["ready"], template=one["template-generation"], owner="ds")
        for one in case(name, "pods.yaml")
    ]
    return item, pods, nodes


def test_K21_rollout_held_by_lost_node() -> None:
    item, pods, nodes = k21()
    problems = judge_daemon_set(item, pods, [], nodes, set(case("K21-rollout-held-by-lost-node", "run.yml")["scope"]))
    (problem,) = problems["problems"]
    assert problem["node"] == "npu-1" and "the update is held" in problem["detail"] and problem["fatal"] is False
    assert "1 of 1 allowed pods is unavailable, on npu-2 (the node is lost)" in problem["detail"]
    assert problem["next_step"].startswith("Bring npu-2 back or delete its Node; or raise maxUnavailable")
    assert {one["node"]: one["reason"] for one in problems["warnings"]} == {"npu-2": "NodeLost", "npu-3": "UpdateHeld"}
    # The old pod of the lost node, on its way for ever.
    pods[1]["metadata"]["deletionTimestamp"] = "x"
    assert judge_daemon_set(item, pods, [], nodes, {"npu-1"})["problems"][0]["reason"] == "UpdateHeld"


@pytest.mark.parametrize(
    ("strategy", "reason"),
    [
        ({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}, "UpdateHeld"),
        ({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "50%"}}, "OldPod"),
        ({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}, "UpdateHeld"),
        ({"type": "RollingUpdate"}, "UpdateHeld"),
    ],
)
def test_K21_what_may_be_unavailable_is_counted_as_the_controller_does(strategy: Data, reason: str) -> None:
    item, pods, nodes = k21(strategy)
    (problem,) = judge_daemon_set(item, pods, [], nodes, {"npu-1"})["problems"]
    assert problem["reason"] == reason
    assert ("wait_timeout" in problem["next_step"]) is (reason == "OldPod")


def test_K21_an_update_moves_while_a_pod_starts_and_is_held_by_one_that_cannot() -> None:
    item, pods, nodes = k21()
    nodes[1]["status"]["conditions"][0]["status"], nodes[1]["spec"] = "True", {}
    pods[1]["status"]["containerStatuses"] = [waiting("device-plugin", "ContainerCreating")]
    (problem,) = judge_daemon_set(item, pods, [], nodes, {"npu-1"})["problems"]
    assert problem["reason"] == "OldPod" and "wait_timeout" in problem["next_step"]
    pods[1]["status"]["containerStatuses"] = [waiting("device-plugin", "ErrImagePull", "no such image")]
    (problem,) = judge_daemon_set(item, pods, [], nodes, {"npu-1"})["problems"]
    assert "on npu-2 (ErrImagePull)" in problem["detail"]
    assert problem["next_step"].startswith("Repair the pod on npu-2; or raise maxUnavailable")


@pytest.mark.parametrize(("age", "reason"), [(60, "OldPod"), (600, "UpdateHeld")])
def test_K21_a_pod_that_is_never_ready_or_never_ends_holds_an_update(age: int, reason: str) -> None:
    item, pods, nodes = k21()
    nodes[1]["status"]["conditions"][0]["status"], nodes[1]["spec"] = "True", {}
    running = {"name": "device-plugin", "ready": False, "state": {"running": {}}}
    noon, known = "2026-01-01T12:00:00Z", Known(now=1767268800.0 + age)
    pods[1]["status"]["containerStatuses"] = [running]
    pods[1]["metadata"]["creationTimestamp"] = noon
    assert judge_daemon_set(item, pods, [], nodes, {"npu-1"}, known)["problems"][0]["reason"] == reason
    pods[1]["metadata"].update(creationTimestamp="2025-01-01T12:00:00Z", deletionTimestamp=noon)
    assert judge_daemon_set(item, pods, [], nodes, {"npu-1"}, known)["problems"][0]["reason"] == reason


def test_a_lost_node_is_told_as_lost() -> None:
    item, pods, nodes = k21()
    (problem,) = judge_daemon_set(item, pods, [], nodes, {"npu-2"})["problems"]
    assert problem["reason"] == "NodeLost" and "lost, its kubelet reports nothing: Kubelet stopped" in problem["detail"]
    assert "delete its Node" in problem["next_step"] and problem["fatal"] is False
    nodes[1]["status"]["conditions"][0].update(status="False", message="cni plugin not initialized")
    (problem,) = judge_daemon_set(item, pods, [], nodes, {"npu-2"})["problems"]
    assert (
        "not Ready: cni plugin not initialized" in problem["detail"]
        and "Bring the node to Ready" in problem["next_step"]
    )


def waits(reason: str, message: str = "") -> list[Data]:
    return [pod("p1", "a", ready=False, containerStatuses=[waiting("device-plugin", reason, message)])]


CREATING = waits("ContainerCreating")
MOUNTED = waits("ContainerCreating")
MOUNTED[0]["status"]["conditions"] = [{"type": "PodReadyToStartContainers", "status": "True"}]
MOUNT = event("p1", "FailedMount", 'MountVolume.SetUp failed for volume "x" : secret "y" not found')
ROOT_CA = event("p1", "FailedMount", 'MountVolume.SetUp failed for volume "k" : configmap "kube-root-ca.crt" not found')
PULL = event("p1", "FailedToRetrieveImagePullSecret", "Unable to retrieve some image pull secrets (rbln-registry)")
# pods, events that came during the wait, whether no time helps
HEALS: dict[str, tuple[list[Data], list[Data], bool]] = {
    "a pull with back-off": (waits("ImagePullBackOff", "503 Service Unavailable"), [], False),
    "a pull without its secret": (waits("ErrImagePull", "401 Unauthorized"), [PULL], True),
    "a name that cannot be": (waits("InvalidImageName", "couldn't parse image reference"), [], True),
    "an image that is never pulled": (waits("ErrImageNeverPull"), [], True),
    "an image of another architecture": (
        waits("ErrImagePull", "no match for platform in manifest: not found"),
        [],
        True,
    ),
    "a secret that is missing": (waits("CreateContainerConfigError", 'secret "x" not found'), [], True),
    "root where it is not allowed": (
        waits("CreateContainerConfigError", "container has runAsNonRoot and image will run as root"),
        [],
        True,
    ),
    "a cache that is behind": (
        waits("CreateContainerConfigError", "services have not yet been read at least once"),
        [],
        False,
    ),
    "a crash": (waits("CrashLoopBackOff"), [], False),
    "a volume without its secret": (CREATING, [MOUNT], True),
    "a volume that has come since": (MOUNTED, [MOUNT], False),
    "one of several secrets, and a slow registry": (waits("ErrImagePull", "TLS handshake timeout"), [PULL], False),
    "the authorities of a new namespace": (CREATING, [ROOT_CA], False),
}


@pytest.mark.parametrize("case_name", HEALS)
def test_what_heals_by_itself_is_told_from_what_does_not(case_name: str) -> None:
    pods, events, fatal = HEALS[case_name]
    fresh = Known(fresh={event_key(one) for one in events})
    (problem,) = judge_daemon_set(daemon_set(1), pods, events, [node("a")], {"a"}, fresh)["problems"]
    assert problem["fatal"] is fatal
    if events:
        # An event of an earlier try may tell of what has been repaired since.
        (problem,) = judge_daemon_set(daemon_set(1), pods, events, [node("a")], {"a"})["problems"]
        assert problem["fatal"] is False


QUOTA = FORBIDDEN + 'Operation cannot be fulfilled on resourcequotas "q": the object has been modified'
WEBHOOK = 'Error creating: Internal error occurred: failed calling webhook "v.k.io": failed to call webhook: Post "x": '


@pytest.mark.parametrize(
    ("said", "words", "fatal"),
    [
        (PSA, "pod_security", True),
        (FORBIDDEN + "unable to validate against any security context constraint: []", "privileged", True),
        (FORBIDDEN + "failed quota: q: must specify limits.cpu", "resources that the quota asks for", True),
        (FORBIDDEN + "exceeded quota: q, requested: pods=1, used: pods=9", "Raise the quota", False),
        (QUOTA, "the controller asks again", False),
        (WEBHOOK + "dial tcp 10.0.0.1:443: connect: connection refused", "Wait until the pods of the webhook", False),
        (WEBHOOK + 'no endpoints available for service "v"', "Wait until the pods of the webhook", False),
        (WEBHOOK + "context deadline exceeded", "Wait until the pods of the webhook", False),
        (WEBHOOK + "x509: certificate signed by unknown authority", "Repair the webhook", False),
    ],
)
def test_K17_a_refusal_that_passes_is_told_from_one_that_stays(said: str, words: str, fatal: bool) -> None:
    refused = event("rbln-device-plugin", "FailedCreate", said)
    for known, expected in ((Known(fresh={event_key(refused)}), fatal), (Known(), False)):
        (problem,) = judge_daemon_set(daemon_set(1), [], [refused], [node("a")], {"a"}, known)["problems"]
        assert problem["fatal"] is expected and words in problem["next_step"]


def test_the_first_round_of_the_discovery_is_waited_for() -> None:
    bare, looked = node("a", {}), node("a", {"feature.node.kubernetes.io/cpu-cpuid.AVX": "true"})
    rows = ((bare, True, "NotDiscovered"), (bare, False, "NoLabel"), (looked, True, "NoLabel"))
    for where, discovery, reason in rows:
        (problem,) = judge_daemon_set(daemon_set(0), [], [], [where], {"a"}, Known(discovery=discovery))["problems"]
        assert (problem["reason"], problem["fatal"]) == (reason, reason == "NoLabel")
    # What the discovery cannot bring.
    zoned = daemon_set(0)
    zoned["spec"] = {**zoned["spec"], "template": {"spec": {"nodeSelector": {"zone": "a"}}}}
    (problem,) = judge_daemon_set(zoned, [], [], [bare], {"a"}, Known(discovery=True))["problems"]
    assert problem["fatal"] is True


def test_P01_toleration_mismatch_names_the_taint_beside_the_label_that_is_missing() -> None:
    found, status = (case("P01-toleration-mismatch", name) for name in ("node.yaml", "ds-status.json"))
    item = {**daemon_set(0), "status": status["status"]}
    for known in (Known(), Known(discovery=True)):
        (problem,) = judge_daemon_set(item, [], [], [found], {"node-a"}, known)["problems"]
        assert problem["fatal"] is True and "rebellions.ai/npu.present" in problem["detail"]
        # The taint of NPUs is tolerated whatever its value is.
        assert "the taint team=ml:NoExecute is not tolerated" in problem["detail"]
        assert "rebellions.ai/npu=true" not in problem["detail"]


@pytest.mark.parametrize(
    "said",
    [
        "DB_PASSWORD=%s",
        "cannot reach http://joe:%s@proxy:3128",
        # The lines that are told are the last ones, without those that say what it is.
        "-----BEGIN PRIVATE KEY-----\na\nb\nc\n%s\nd",
    ],
)
def test_no_problem_of_a_pod_repeats_a_secret_of_its_log(said: str) -> None:
    ended = {"exitCode": 1, "message": said % SECRET}
    status = {"containerStatuses": [{"name": "p", "state": {"terminated": ended}}]}
    pod = {"metadata": {"name": "p"}, "spec": {"nodeName": "n"}, "status": status}
    events = [{"type": "Warning", "metadata": {}, "involvedObject": {"name": "p"}, "message": said % SECRET}]
    told = problem_text(explain_pod(pod, events), "plugin")
    assert SECRET not in told and "********" in told
