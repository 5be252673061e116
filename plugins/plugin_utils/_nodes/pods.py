# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a pod is not ready, and what to do: its containers, its kubelet, its events. Pure, on API objects."""

from __future__ import annotations

import re
import types
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.mask import mask

from .._objects.names import INPUT, OPERANDS
from .._objects.placement import Data
from .._text.line import line
from .pulls import NO_RIGHT_TO_PULL, PULLS, pull_problem
from .records import PodProblem

WAIT_CONTAINER = "wait-for-host"
MORE_TIME = f"Give it more time: {OPERANDS}wait_timeout."
_HOST_PART = f"Run the host part for this node ({INPUT}driver, {INPUT}container_toolkit, {INPUT}validator)."
HARMLESS = ("ContainerCreating", "PodInitializing")
_OBJECTS_STEP = "Check the secrets and config maps that the pod names."
# The runtime could not start the container: it has ended, and there is no log.
NOT_STARTED = ("StartError", "ContainerCannotRun")
_STARTS = ("CreateContainerError", "RunContainerError", "CrashLoopBackOff", *NOT_STARTED)
# (what the message of one of these says, next step): the cause is better known than by the reason.
_CAUSES = (
    (r"CDI device", "Run `site` with --tags toolkit for this host: the runtime of its node does not know the device."),
    (r"no space left on device", "Free disk space on this node."),
    (r"exec format error", "Use an image for the architecture of this node."),
)
# Node Feature Discovery has labelled a node on which no host part has run: the host tool is not there.
_NO_HOST_TOOL = re.compile(r"chroot: .*: No such file or directory")
_NEXT_STEPS = (
    (("CreateContainerConfigError",), _OBJECTS_STEP),
    (NOT_STARTED, "Change what the message names; it is that of the runtime on this node."),
    (("CrashLoopBackOff", "Error", "RunContainerError"), "Read the log of this container on this node."),
    (("Unschedulable",), "Give the node room, or change the resource requests."),
)
# (reasons for which a container waits, what must be in the message) where no time helps.
_FINAL_WAITS = (
    (("InvalidImageName", "ErrImageNeverPull", "SignatureValidationFailed"), r""),
    (("CreateContainerConfigError",), r"not found|couldn't find key|runAsNonRoot|non-numeric user"),
    (("ErrImagePull", "ImagePullBackOff"), r"no match for platform|invalid reference format"),
)
# A secret or config map that a volume needs. Kubernetes makes kube-root-ca.crt itself, a moment after the namespace.
_NO_VOLUME = re.compile(
    r'(secret|configmap) "(?!kube-root-ca\.crt")[^"]+" not found|references non-existent secret key'
)
# Why a kubelet does not admit a pod, or ends it, by the reason in the status of the pod: (reasons, next step).
_REJECTIONS = (
    (r"OutOfpods", "Make room for one more pod on the node, or raise maxPods of its kubelet."),
    (
        r"OutOf.+|InsufficientResource.*",
        f"Make room on the node for what the message names, or lower {OPERANDS}<component>.resources.",
    ),
    (r"Evicted", "Free the disk or memory of the node that the message names."),
    (r"Preempt(ed|ing)", f"Make room on the node, or set a higher {OPERANDS}priority_class."),
    (
        r"NodeAffinity|NodeSelectorMismatching|MatchNodeSelector",
        "Correct the labels of the node, or the node selector in the annotations of the namespace.",
    ),
    (r"TaintToleration|NodeUnschedulable", "Remove the taint from the node."),
    (r"NodePorts|HostPortConflict", "Free the port on the node, or set another one for the component."),
    (
        r"UnexpectedAdmissionError|TopologyAffinityError|SMTAlignmentError",
        "Read the log of the kubelet on this node: a device plugin or a resource manager gave the pod nothing.",
    ),
    (r"(Node)?Shutdown|Terminated", "Wait until the node has started again; it shuts down."),
    (r"NodeLost", "Bring the node back, or delete its Node object."),
    (
        r"AppArmor|SysctlForbidden|Pod(OS|Level|Feature).+|InvalidNodeInfo|InPlacePodVertical.+|Unsupported.+",
        "Change what the message names on this node; its kubelet cannot run the pod as it is.",
    ),
)


class Known(t.NamedTuple):
    """What the objects do not tell.

    `now` in seconds of the epoch; whether Node Feature Discovery or others label nodes, so that labels may come;
    `fresh` names the events (`event_key`) that came during the wait; `revisions` has by the uid of a DaemonSet the hash
    of its newest template.
    """

    now: float = 0.0
    discovery: bool = False
    fresh: t.Collection[str] = ()
    revisions: t.Mapping[str, str] = types.MappingProxyType({})


NOTHING_KNOWN = Known()


def problem_of(
    reason: str, detail: str, next_step: str, node: str = "", pod: str = "", fatal: bool = False
) -> PodProblem:
    detail = line(detail)
    return {"node": node, "pod": pod, "reason": reason, "detail": detail, "next_step": next_step, "fatal": fatal}


def _next_step(reason: str, message: str = "") -> str:
    if _NO_HOST_TOOL.search(message):
        return _HOST_PART
    for words, cure in _CAUSES if reason in _STARTS else ():
        if re.search(words, message):
            return cure
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


def event_key(event: Data) -> str:
    """What distinguishes an event from its own repetition."""
    series = event.get("series") or {}
    when = _event_time(event)
    return "%s %s %s" % (event["metadata"].get("name"), series.get("count") or event.get("count"), when)


def _event_time(event: Data) -> str:
    series = event.get("series") or {}
    return str(
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"].get("creationTimestamp")
        or ""
    )


def newest_warning(events: t.Iterable[Data]) -> Data | None:
    """The newest of the warnings, if there is one."""
    return max((one for one in events if one.get("type") == "Warning"), key=_event_time, default=None)


def said(event: Data | None) -> str:
    """`reason: message` of an event; empty for none."""
    return line("%s: %s" % (event.get("reason", ""), event.get("message", ""))) if event else ""


def about(events: t.Sequence[Data], name: str) -> list[Data]:
    """The events of one object."""
    return [event for event in events if (event.get("involvedObject") or {}).get("name") == name]


def rejection_step(reason: str) -> str:
    """The next step for a kubelet's reason in the status of a pod; empty for one that is not known."""
    return next((step for reasons, step in _REJECTIONS if re.fullmatch(reasons, reason)), "")


def explain_pod(pod: Data, events: t.Sequence[Data], known: Known = NOTHING_KNOWN) -> PodProblem:
    """Why a pod is not ready.

    The kubelet's own reason, else the first container that waits or failed, else its phase, with the newest warning.
    """
    name, node = pod["metadata"]["name"], pod_node(pod)
    status = pod.get("status") or {}
    mine = about(events, name)
    newest = newest_warning(mine)
    event = said(newest)
    tail = " (last event: %s)" % event if event else ""
    if status.get("phase") == "Failed" and status.get("reason"):
        reason, message = line(status["reason"], 60), line(status.get("message") or "")
        detail = "the kubelet rejects or ends the pod: %s%s%s" % (reason, ": " + message if message else "", tail)
        step = rejection_step(reason) or "Change what the message names; it is the kubelet's own."
        return problem_of(reason, detail, step, node, name)
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            reason = condition.get("reason") or "Unschedulable"
            return problem_of(
                reason,
                "not scheduled: %s%s" % (condition.get("message", reason), tail),
                _next_step("Unschedulable"),
                node,
                name,
            )
    sidecars = {
        one.get("name")
        for one in (pod.get("spec") or {}).get("initContainers") or []
        if one.get("restartPolicy") == "Always"
    }
    steps = status.get("initContainerStatuses") or []
    # A sidecar that has started runs beside the containers, and is as ready as they are.
    beside = [one for one in steps if one.get("name") in sidecars and one.get("started")]
    groups = (([one for one in steps if one not in beside], True), (status.get("containerStatuses") or [], False))
    for group, init in (*groups, (beside, False)):
        for container in group:
            found = _explain_container(container, init, container.get("name") in sidecars, tail, mine)
            if found:
                return _final_or_not(problem_of(*found, node, name), status, mine, known)
    reason = line(status.get("reason") or status.get("phase") or "Pending", 60)
    gates = [
        str(one["message"])
        for one in status.get("conditions") or []
        if one.get("type") == "Ready" and one.get("reason") == "ReadinessGatesNotReady" and one.get("message")
    ]
    told = [*([status["message"]] if status.get("message") else []), *gates]
    why = "".join(": " + line(one) for one in told)
    return problem_of(
        reason, "not ready, phase %s%s%s" % (status.get("phase", "unknown"), why, tail), _next_step(reason), node, name
    )


def _has_volumes(status: Data) -> bool:
    """Whether the kubelet has passed the volumes of a pod: what once was missing for them has come."""
    return any(
        one.get("type") == "PodReadyToStartContainers" and one.get("status") == "True"
        for one in status.get("conditions") or []
    )


def _final_or_not(problem: PodProblem, status: Data, events: t.Sequence[Data], known: Known) -> PodProblem:
    """The problem of a container, fatal when no time helps: what it needs does not exist or can never be right."""
    reason, detail = problem["reason"], problem["detail"]
    final = any(reason in reasons and re.search(words, detail) for reasons, words in _FINAL_WAITS)
    # An event of an earlier try may tell of what has been repaired since.
    fresh = [event for event in events if event_key(event) in known.fresh]
    if reason in ("ErrImagePull", "ImagePullBackOff"):
        lacks = [event for event in fresh if event.get("reason") == "FailedToRetrieveImagePullSecret"]
        # Some of several pull secrets may be missing for ever; a registry that is slow for a moment is another cause.
        if lacks and NO_RIGHT_TO_PULL.search(detail):
            words = "%s; %s" % (detail, said(newest_warning(lacks)))
            return {**problem, "detail": line(words), "fatal": True}
    if reason in HARMLESS and not _has_volumes(status) and _NO_VOLUME.search(said(newest_warning(fresh))):
        return {**problem, "next_step": _OBJECTS_STEP, "fatal": True}
    return {**problem, "fatal": final}


def _essence(message: t.Any) -> str:
    """The lines of a container's termination message that tell of a failure, else its last three.

    On one line and short.
    """
    # Before it is cut: the first lines of a secret say that it is one.
    lines = [line(one) for one in mask(str(message or "")).splitlines() if one.strip()]
    failed = [one for one in lines if one.startswith("FAILED")]
    return line("; ".join(failed or lines[-3:]), 600)


def _explain_container(
    container: Data, init: bool, sidecar: bool, tail: str, events: t.Sequence[Data]
) -> tuple[str, str, str] | None:
    """(reason, detail, next step) of a container that is not ready, or of an init container that has not ended.

    `events` are those about its pod, and `tail` tells the newest warning of them.
    """
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
    if waiting and waiting.get("reason") in PULLS:
        warnings = [one for one in events if one.get("type") == "Warning"]
        return pull_problem(container, sorted(warnings, key=_event_time, reverse=True))
    if waiting and waiting.get("reason") not in HARMLESS:
        reason = waiting.get("reason") or "Waiting"
        message = _essence(ended.get("message") or waiting.get("message"))
        step = _HOST_PART if name == WAIT_CONTAINER else _next_step(reason, message + tail)
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
            "init container %s %s%s" % (name, "has not started yet" if sidecar else "is still running", tail),
            MORE_TIME,
        )
    if init and sidecar and state.get("terminated"):
        return (
            "Error",
            "init container %s is to run beside the others, and ended with code %s%s"
            % (name, ended.get("exitCode"), tail),
            _next_step("Error"),
        )
    if state.get("terminated") and state["terminated"].get("exitCode"):
        message = _essence(ended.get("message"))
        reason = ended["reason"] if ended.get("reason") in NOT_STARTED else "Error"
        return (
            reason,
            "container %s ended with code %s%s%s" % (name, ended["exitCode"], ": " + message if message else "", tail),
            _next_step(reason, message + tail),
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
