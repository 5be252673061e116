# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a DaemonSet runs where it should; if not: which pod on which node, why, and what to do.

Pure, on API objects.
"""

from __future__ import annotations

import typing as t

from .._cluster.refusals import refusal_step
from .._objects.names import INPUT, OPERANDS
from .._objects.parts import NFD_LABELS, PRESENT_LABEL
from .._objects.placement import Data, repelling_taints, selects
from .._text.line import line
from .records import PodProblem, Verdict

WAIT_CONTAINER = "wait-for-host"
_MORE_TIME = f"Give it more time: {OPERANDS}wait_timeout."
_HOST_PART = f"Run the host part for this node ({INPUT}driver, {INPUT}container_toolkit, {INPUT}validator)."
_HARMLESS = ("ContainerCreating", "PodInitializing")
_NEXT_STEPS = (
    (
        ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"),
        f"Check {INPUT}registry, the image's tag or digest, and the pull secret.",
    ),
    (("CreateContainerConfigError",), "Check the secrets and config maps that the pod names."),
    (("CrashLoopBackOff", "Error", "RunContainerError", "StartError"), "Read the log of this container on this node."),
    (("Unschedulable",), "Give the node room, or change the resource requests."),
)


def _problem(
    reason: str, detail: str, next_step: str, node: str = "", pod: str = "", fatal: bool = False
) -> PodProblem:
    detail = line(detail)
    return {"node": node, "pod": pod, "reason": reason, "detail": detail, "next_step": next_step, "fatal": fatal}


def _next_step(reason: str) -> str:
    for reasons, step in _NEXT_STEPS:
        if reason in reasons:
            return step
    return "Look at the pod's events."


def problem_text(problem: PodProblem, name: str) -> str:
    """A problem for people; `name` is that of the DaemonSet or component."""
    place = " on node %s" % problem["node"] if problem["node"] else ""
    pod = ", pod %s" % problem["pod"] if problem["pod"] else ""
    return "%s%s%s: %s. Next: %s" % (name, place, pod, problem["detail"].rstrip("."), problem["next_step"])


def pod_node(pod: Data) -> str:
    """The node of a DaemonSet's pod, also before the scheduler has bound it."""
    spec = pod.get("spec") or {}
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    for term in affinity.get("nodeSelectorTerms") or []:
        for field in term.get("matchFields") or []:
            if field.get("key") == "metadata.name" and field.get("values"):
                return str(field["values"][0])
    return ""


def pod_ready(pod: Data) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    ready = any(item.get("type") == "Ready" and item.get("status") == "True" for item in conditions)
    return ready and not pod["metadata"].get("deletionTimestamp")


def last_event(events: t.Sequence[Data], name: str) -> str:
    """The message of the newest warning about an object, or empty."""
    found = [
        item
        for item in events
        if (item.get("involvedObject") or {}).get("name") == name and item.get("type") == "Warning"
    ]
    if not found:
        return ""
    newest = max(
        found,
        key=lambda item: str(
            item.get("lastTimestamp") or item.get("eventTime") or item["metadata"].get("creationTimestamp") or ""
        ),
    )
    return line("%s: %s" % (newest.get("reason", ""), newest.get("message", "")))


def explain_pod(pod: Data, events: t.Sequence[Data]) -> PodProblem:
    """Why a pod is not ready: the first container that waits or failed, else its phase, with the newest warning."""
    name, node = pod["metadata"]["name"], pod_node(pod)
    status = pod.get("status") or {}
    event = last_event(events, name)
    tail = " (last event: %s)" % event if event else ""
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            reason = condition.get("reason") or "Unschedulable"
            return _problem(
                reason,
                "not scheduled: %s%s" % (condition.get("message", reason), tail),
                _next_step("Unschedulable"),
                node,
                name,
            )
    for group in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(group) or []:
            found = _explain_container(container, group == "initContainerStatuses", tail)
            if found:
                return _problem(found[0], found[1], found[2], node, name)
    reason = line(status.get("reason") or status.get("phase") or "Pending", 60)
    return _problem(
        reason, "not ready, phase %s%s" % (status.get("phase", "unknown"), tail), _next_step(reason), node, name
    )


def _essence(message: t.Any) -> str:
    """The lines of a container's termination message that tell of a failure, else its last three.

    On one line and short.
    """
    lines = [line(one) for one in str(message or "").splitlines() if one.strip()]
    failed = [one for one in lines if one.startswith("FAILED")]
    return line("; ".join(failed or lines[-3:]), 600)


def _explain_container(container: Data, init: bool, tail: str) -> tuple[str, str, str] | None:
    state, last = container.get("state") or {}, (container.get("lastState") or {}).get("terminated") or {}
    waiting, ended = state.get("waiting"), state.get("terminated") or last
    name = container.get("name", "")
    if (
        (ended or {}).get("reason") == "OOMKilled"
        and not container.get("ready")
        and (waiting or {}).get("reason") in (None, "CrashLoopBackOff")
    ):
        # Its log does not mention it.
        return (
            "OOMKilled",
            "container %s was killed for the memory it used%s" % (name, tail),
            f"Raise the memory limit: {OPERANDS}<component>.resources.",
        )
    if waiting and waiting.get("reason") not in _HARMLESS:
        reason = waiting.get("reason") or "Waiting"
        message = _essence(ended.get("message") or waiting.get("message"))
        step = _HOST_PART if name == WAIT_CONTAINER else _next_step(reason)
        return reason, "container %s: %s%s%s" % (name, reason, ": " + message if message else "", tail), step
    if init and "running" in state:
        if name == WAIT_CONTAINER:
            return (
                "WaitsForHost",
                "it waits for the ready files of the host",
                _HOST_PART,
            )
        return (
            "Initialising",
            "init container %s is still running%s" % (name, tail),
            _MORE_TIME,
        )
    if state.get("terminated") and state["terminated"].get("exitCode"):
        message = _essence(ended.get("message"))
        return (
            "Error",
            "container %s ended with code %s%s%s" % (name, ended["exitCode"], ": " + message if message else "", tail),
            _next_step("Error"),
        )
    if "running" in state and not init and not container.get("ready"):
        return (
            "NotReady",
            "container %s runs and is not ready%s" % (name, tail),
            "Read the log of this container on this node.",
        )
    if waiting and tail:
        return (
            waiting.get("reason") or "Waiting",
            "container %s: %s%s" % (name, waiting.get("reason"), tail),
            "Look at the pod's events.",
        )
    return None


def _current(daemon_set: Data, pod: Data) -> bool:
    """Whether a pod was made from the newest template; unknown generations count as current."""
    wanted = (daemon_set["metadata"].get("annotations") or {}).get("deprecated.daemonset.template.generation")
    have = (pod["metadata"].get("labels") or {}).get("pod-template-generation")
    return wanted is None or have is None or str(wanted) == str(have)


def _owned(daemon_set: Data, pod: Data) -> bool:
    return any(
        owner.get("uid") == daemon_set["metadata"].get("uid") for owner in pod["metadata"].get("ownerReferences") or []
    )


def _rejection(daemon_set: Data, events: t.Sequence[Data]) -> PodProblem | None:
    """The problem when the API server refuses the pods of a DaemonSet."""
    event = last_event(events, daemon_set["metadata"]["name"])
    if not event.startswith("FailedCreate"):
        return None
    step = refusal_step(event)
    if not step:
        forbidden = "serviceaccount" in event.lower() or "forbidden" in event.lower()
        step = (
            "Read what forbids the pod, and allow it for this namespace."
            if forbidden
            else "Look at the DaemonSet's events."
        )
    return _problem("FailedCreate", "no pod is created: %s" % event.split(": ", 1)[1], step)


def missing_pod(daemon_set: Data, node: Data) -> PodProblem:
    """Why a node that has NPUs gets no pod."""
    name, spec = node["metadata"]["name"], daemon_set["spec"]["template"]["spec"]
    taints = repelling_taints(spec, node)
    if not selects(spec, node):
        labels = node["metadata"].get("labels") or {}
        seen = [key for key in (PRESENT_LABEL, *NFD_LABELS) if labels.get(key) == "true"]
        if not seen:
            return _problem(
                "NoLabel",
                "the node has none of the labels %s" % ", ".join((PRESENT_LABEL, *NFD_LABELS)),
                f"Let the host label its node ({OPERANDS}node_labels), or run Node Feature Discovery.",
                name,
                fatal=True,
            )
        gates = ["%s=%s" % item for item in sorted(labels.items()) if ".deploy." in item[0]]
        return _problem(
            "NotSelected",
            "the node selector or affinity excludes the node; its gates are: %s" % (", ".join(gates) or "none"),
            f"Correct the node's labels, {OPERANDS}node_selector or {OPERANDS}node_affinity.",
            name,
            fatal=True,
        )
    own = [taint for taint in taints if taint.startswith(("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"))]
    if own:
        return _problem(
            "NodeState",
            "the cluster keeps pods off the node by the taint %s" % ", ".join(own),
            "Bring the node to Ready: look at its kubelet and network.",
            name,
        )
    if taints:
        return _problem(
            "Taint",
            "the taint %s is not tolerated" % ", ".join(taints),
            f"Add it to {OPERANDS}tolerations, or remove it from the node.",
            name,
            fatal=True,
        )
    return _problem("NoPod", "the node has no pod yet", _MORE_TIME, name)


def judge_daemon_set(
    daemon_set: Data,
    pods: t.Sequence[Data],
    events: t.Sequence[Data],
    nodes: t.Sequence[Data],
    scope: t.Collection[str] | None = None,
) -> Verdict:
    """The verdict on one DaemonSet.

    `scope` names the nodes that must have a ready pod of the newest template; None means every node that the DaemonSet
    selects, and at least one. Problems on nodes outside the scope are warnings.
    """
    status, spec = daemon_set.get("status") or {}, daemon_set["spec"]["template"]["spec"]
    desired = int(status.get("desiredNumberScheduled") or 0)
    verdict: Verdict = {
        "name": daemon_set["metadata"]["name"],
        "done": False,
        "desired": desired,
        "ready": int(status.get("numberReady") or 0),
        "updated": int(status.get("updatedNumberScheduled") or 0),
        "problems": [],
        "warnings": [],
    }
    problems = verdict["problems"]
    observed = int(status.get("observedGeneration") or 0) >= int(daemon_set["metadata"].get("generation") or 0)
    if not observed:
        problems.append(
            _problem(
                "NotObserved", "the controller has not seen the change yet", "Check that kube-controller-manager runs."
            )
        )
    by_name = {node["metadata"]["name"]: node for node in nodes}
    selected = {name for name, node in by_name.items() if selects(spec, node)}
    must = set(scope) if scope is not None else {name for name in by_name if has_npu(by_name[name])} | selected
    own = [pod for pod in pods if _owned(daemon_set, pod)]
    rejection = _rejection(daemon_set, events)
    if scope is None and not must:
        problems.append(
            _problem(
                "NoNodes",
                "the DaemonSet selects no node: none has an NPU label",
                f"Label the nodes ({OPERANDS}node_labels), or run Node Feature Discovery.",
                fatal=True,
            )
        )
    waits = daemon_set["spec"].get("updateStrategy", {}).get("type") == "OnDelete"
    for name in sorted(must | selected):
        found = _judge_node(
            daemon_set, by_name.get(name), name, [pod for pod in own if pod_node(pod) == name], events, rejection
        )
        if found:
            old = waits and found["reason"] == "OldPod"
            (problems if name in must and not old else verdict["warnings"]).append(found)
    if (
        scope is None
        and not problems
        and not (0 < desired == verdict["ready"] and (waits or desired == verdict["updated"]))
    ):
        problems.append(
            _problem(
                "Counts",
                f"{desired} wanted, {verdict['updated']} of the newest template, {verdict['ready']} ready",
                _MORE_TIME,
            )
        )
    verdict["done"] = observed and not problems
    return verdict


def has_npu(node: Data) -> bool:
    """Whether a node has NPUs, by our own label or the discovery's."""
    labels = node["metadata"].get("labels") or {}
    return any(labels.get(key) == "true" for key in (PRESENT_LABEL, *NFD_LABELS))


def _judge_node(
    daemon_set: Data,
    node: Data | None,
    name: str,
    pods: t.Sequence[Data],
    events: t.Sequence[Data],
    rejection: PodProblem | None,
) -> PodProblem | None:
    """What is wrong with the pods of a DaemonSet on one node; None for nothing."""
    if node is None:
        return _problem("NoNode", "the node is no longer in the cluster", "Correct the inventory.", name, fatal=True)
    living = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    if not living:
        missing = missing_pod(daemon_set, node)
        if missing["reason"] == "NoPod" and pods:
            return _problem(
                "Terminating",
                "the old pod has not ended yet",
                "Look at the kubelet of the node.",
                name,
                pods[0]["metadata"]["name"],
            )
        return {**rejection, "node": name} if missing["reason"] == "NoPod" and rejection else missing
    waiting = [pod for pod in living if not pod_ready(pod)]
    if waiting:
        return explain_pod(waiting[0], events)
    if not any(_current(daemon_set, pod) for pod in living):
        return _problem(
            "OldPod",
            "the pod is not of the newest template yet",
            "Give it more time; with the update strategy OnDelete drain the node and delete the pod.",
            name,
            living[0]["metadata"]["name"],
        )
    return None


def judge_counters(item: Data, scope: set[str], nodes: t.Mapping[str, Data]) -> Verdict | None:
    """The verdict when the counters of a DaemonSet say that it runs on all its nodes, with those of `scope` among them.

    Else None.
    """
    status, spec = item.get("status") or {}, item["spec"]["template"]["spec"]
    desired = int(status.get("desiredNumberScheduled") or 0)
    observed = int(status.get("observedGeneration") or 0) >= int(item["metadata"].get("generation") or 0)
    counts = {int(status.get(name) or 0) for name in ("numberReady", "updatedNumberScheduled", "numberAvailable")}
    if not observed or not desired or counts != {desired} or int(status.get("numberMisscheduled") or 0):
        return None
    if any(
        name not in nodes or not selects(spec, nodes[name]) or repelling_taints(spec, nodes[name]) for name in scope
    ):
        return None
    return {
        "name": item["metadata"]["name"],
        "done": True,
        "desired": desired,
        "ready": desired,
        "updated": desired,
        "problems": [],
        "warnings": [],
    }
