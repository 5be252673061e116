# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a DaemonSet runs where it should; if not: which pod on which node, why, and what to do.

Pure, on API objects.
"""

from __future__ import annotations

import math
import re
import typing as t

from .._cluster.refusals import refusal_step
from .._objects.names import OPERANDS
from .._objects.parts import NFD_LABELS, PRESENT_LABEL
from .._objects.placement import Data, matches, repelling, repelling_taints, selects
from .._text.line import line
from .pods import (
    HARMLESS,
    MORE_TIME,
    NOTHING_KNOWN,
    Known,
    about,
    event_key,
    explain_pod,
    newest_warning,
    pod_node,
    pod_ready,
    problem_of,
    rejection_step,
    said,
)
from .records import PodProblem, Verdict
from .revisions import REVISION_HASH, is_observed
from .taints import seconds, taint_problem

# Labels that Node Feature Discovery writes in its first round.
DISCOVERED = "feature.node.kubernetes.io/"
# What the API server says of a pod that it will not take however often it is asked.
_FINAL_REFUSALS = (
    "violates PodSecurity",
    "security context constraint",
    "insufficient quota to match these scopes",
    "no PriorityClass with name",
    "must specify",
    "usage per Container",
    "usage per Pod",
    "limit to request ratio",
)
# And what goes by itself: (words, next step).
_PASSING_REFUSALS = (
    (
        r"Operation cannot be fulfilled on resourcequotas",
        "Wait: the controller asks again; several writers have met at the quota of the namespace.",
    ),
    (
        r"failed calling webhook.*(connection refused|no endpoints|not found|deadline exceeded|timeout|EOF|reset)",
        "Wait until the pods of the webhook are ready. If they are, repair the webhook, or exclude this namespace.",
    ),
)
# Seconds after which a pod that runs and is not ready, or is to end, holds an update.
PATIENCE = 120.0
# Problems of a pod that is on its way: an update with one of them moves.
_MOVING = (*HARMLESS, "Terminating", "Pending", "Initialising", "NotReady")
NODE_LOST, OLD_POD, HELD = "NodeLost", "OldPod", "UpdateHeld"


def _rejected(daemon_set: Data, node: str, events: t.Sequence[Data]) -> Data | None:
    """The newest event by which the kubelet of a node has rejected a pod of a DaemonSet that is gone already."""
    start = daemon_set["metadata"]["name"] + "-"
    return newest_warning(
        event
        for event in events
        if str((event.get("involvedObject") or {}).get("name") or "").startswith(start)
        and node in ((event.get("source") or {}).get("host"), event.get("reportingInstance"))
        and rejection_step(str(event.get("reason") or ""))
    )


def of_generation(daemon_set: Data, pod: Data) -> bool | None:
    """Whether a pod was made from the newest template, by the number that the API server counts; None: not known."""
    wanted = (daemon_set["metadata"].get("annotations") or {}).get("deprecated.daemonset.template.generation")
    have = (pod["metadata"].get("labels") or {}).get("pod-template-generation")
    return None if wanted is None or have is None else str(wanted) == str(have)


def _current(daemon_set: Data, pod: Data, revision: str) -> bool:
    """Whether a pod is of the newest template, as the DaemonSet controller judges it: by generation or by hash.

    Where a template is wanted that was wanted before, its pods have an earlier generation and the right hash, and the
    controller keeps them. `revision` is that hash, empty when it is not known; what is not known counts as current.
    """
    counted = of_generation(daemon_set, pod)
    have = (pod["metadata"].get("labels") or {}).get(REVISION_HASH)
    same = have == revision if have and revision else None
    return counted is not False if same is None else bool(counted) or same


def is_owned(daemon_set: Data, pod: Data) -> bool:
    return any(
        owner.get("uid") == daemon_set["metadata"].get("uid") for owner in pod["metadata"].get("ownerReferences") or []
    )


def _rejection(daemon_set: Data, events: t.Sequence[Data], known: Known) -> PodProblem | None:
    """The problem when the API server refuses the pods of a DaemonSet; fatal when it will refuse every try."""
    newest = newest_warning(about(events, daemon_set["metadata"]["name"]))
    event = said(newest)
    if newest is None or not event.startswith("FailedCreate"):
        return None
    passing = next((step for words, step in _PASSING_REFUSALS if re.search(words, event)), "")
    step = passing or refusal_step(event)
    fatal = event_key(newest) in known.fresh and not passing and any(words in event for words in _FINAL_REFUSALS)
    if not step:
        forbidden = "serviceaccount" in event.lower() or "forbidden" in event.lower()
        step = (
            "Read what forbids the pod, and allow it for this namespace."
            if forbidden
            else "Look at the DaemonSet's events."
        )
    return problem_of("FailedCreate", "no pod is created: %s" % event.split(": ", 1)[1], step, fatal=fatal)


def _may_come(spec: Data, labels: Data) -> bool:
    """Whether a node would be selected if the discovery gave it the labels that it lacks."""

    def comes(key: str) -> bool:
        return key.startswith(DISCOVERED) and key not in labels

    if any(labels.get(key) != value and not comes(key) for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    terms = [term.get("matchExpressions") or [] for term in affinity.get("nodeSelectorTerms") or []]
    return not terms or any(all(matches(one, labels) or comes(one["key"]) for one in term) for term in terms)


def missing_pod(daemon_set: Data, node: Data, known: Known = NOTHING_KNOWN) -> PodProblem:
    """Why a node that has NPUs gets no pod."""
    name, spec = node["metadata"]["name"], daemon_set["spec"]["template"]["spec"]
    tainted = taint_problem(repelling(spec, node), node, known.now)
    stays = tainted["detail"] if tainted and tainted["fatal"] else ""
    if not selects(spec, node):
        labels = node["metadata"].get("labels") or {}
        undiscovered = known.discovery and not any(key.startswith(DISCOVERED) for key in labels)
        if undiscovered and not stays and _may_come(spec, labels):
            return problem_of(
                "NotDiscovered",
                "Node Feature Discovery has not labelled the node yet",
                "Wait for its first round. If no label comes, look at its pod on this node.",
                name,
            )
        seen = [key for key in (PRESENT_LABEL, *NFD_LABELS) if labels.get(key) == "true"]
        if not seen:
            return problem_of(
                "NoLabel",
                "the node has none of the labels %s%s"
                % (", ".join((PRESENT_LABEL, *NFD_LABELS)), stays and ", and " + stays),
                f"Let the host label its node ({OPERANDS}node_labels), or run Node Feature Discovery.",
                name,
                fatal=True,
            )
        gates = ["%s=%s" % item for item in sorted(labels.items()) if ".deploy." in item[0]]
        return problem_of(
            "NotSelected",
            "the node selector or affinity excludes the node; its gates are: %s%s"
            % (", ".join(gates) or "none", stays and "; and " + stays),
            f"Correct the node's labels, {OPERANDS}node_selector or {OPERANDS}node_affinity.",
            name,
            fatal=True,
        )
    return tainted or problem_of("NoPod", "the node has no pod yet", MORE_TIME, name)


def judge_daemon_set(
    daemon_set: Data,
    pods: t.Sequence[Data],
    events: t.Sequence[Data],
    nodes: t.Sequence[Data],
    scope: t.Collection[str] | None = None,
    known: Known = NOTHING_KNOWN,
) -> Verdict:
    """The verdict on one DaemonSet.

    `scope` names the nodes that must have a ready pod of the newest template; None means every node that the DaemonSet
    selects, and at least one. Problems on nodes outside the scope are warnings, and what the status counts there is
    nothing to those inside.
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
    observed = is_observed(daemon_set)
    if not observed:
        # The hash is of the template that the controller has seen.
        known = known._replace(revisions={})
    by_name = {node["metadata"]["name"]: node for node in nodes}
    selected = {name for name, node in by_name.items() if selects(spec, node)}
    must = set(scope) if scope is not None else {name for name in by_name if has_npu(by_name[name])} | selected
    own = [pod for pod in pods if is_owned(daemon_set, pod)]
    rejection = _rejection(daemon_set, events, known)
    if scope is None and not must:
        problems.append(
            problem_of(
                "NoNodes",
                "the DaemonSet selects no node: none has an NPU label",
                f"Label the nodes ({OPERANDS}node_labels), or run Node Feature Discovery.",
                fatal=not known.discovery,
            )
        )
    waits = daemon_set["spec"].get("updateStrategy", {}).get("type") == "OnDelete"
    found = {}
    seen = observed
    for name in sorted(must | selected):
        on_it = [pod for pod in own if pod_node(pod) == name]
        problem = _judge_node(daemon_set, by_name.get(name), name, on_it, events, rejection, known)
        if problem:
            found[name] = problem
    if not observed:
        # A ready pod of the newest generation needs no word of the controller: its status may lag behind.
        made = {pod_node(pod) for pod in own if pod_ready(pod) and of_generation(daemon_set, pod)}
        seen = scope is not None and bool(must) and must <= made
    if not seen:
        detail, step = "the controller has not seen the change yet", "Check that kube-controller-manager runs."
        for name in [""] if scope is None or not must else sorted(must - made - set(found)):
            problems.append(problem_of("NotObserved", detail, step, name))
    placed = {pod_node(pod) for pod in own}
    mine = {name: found[name] for name in found if name in placed}
    held = None if waits else _held(daemon_set, desired, mine, own, known.now)
    for name, problem in found.items():
        old = problem["reason"] == OLD_POD
        if old and held:
            problem = {**held, "node": name, "pod": problem["pod"]}
        (problems if name in must and not (old and waits) else verdict["warnings"]).append(problem)
    if (
        scope is None
        and not problems
        and not (0 < desired == verdict["ready"] and (waits or desired == verdict["updated"]))
    ):
        problems.append(
            problem_of(
                "Counts",
                f"{desired} wanted, {verdict['updated']} of the newest template, {verdict['ready']} ready",
                MORE_TIME,
            )
        )
    verdict["done"] = seen and not problems
    if verdict["done"]:
        # The status may lag behind the pods that have just been judged, and what is recorded of a finished wait would
        # differ when the next run looks.
        verdict["ready"] = max(verdict["ready"], len({pod_node(pod) for pod in own if pod_ready(pod)}))
        verdict["desired"] = max(verdict["desired"], verdict["ready"])
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
    known: Known,
) -> PodProblem | None:
    """What is wrong with the pods of a DaemonSet on one node; None for nothing."""
    if node is None:
        return no_node(name)
    found = _judge_pods(daemon_set, node, name, pods, events, rejection, known)
    return (_lost(node) or found) if found and not found["fatal"] else found


def no_node(name: str) -> PodProblem:
    return problem_of("NoNode", "the node is no longer in the cluster", "Correct the inventory.", name, fatal=True)


def _lost(node: Data) -> PodProblem | None:
    """The problem of a node whose kubelet has stopped to report, or reports that it is not ready."""
    name = node["metadata"]["name"]
    for one in (node.get("status") or {}).get("conditions") or []:
        if one.get("type") != "Ready" or one.get("status") == "True":
            continue
        words = line(one.get("message") or one.get("reason") or "", 300).rstrip(".")
        detail = "the node is %s%s" % (
            "not Ready" if one.get("status") == "False" else "lost, its kubelet reports nothing",
            ": " + words if words else "",
        )
        step = "Bring the node back: look at the machine, its kubelet and its network; or delete its Node object."
        if one.get("status") == "False":
            step = "Bring the node to Ready: look at its kubelet and network."
        return problem_of(NODE_LOST, detail, step, name)
    return None


def _allowed(daemon_set: Data, desired: int) -> int:
    """How many pods may be unavailable during an update, or with a surge, how many more there may be."""
    rolling = (daemon_set["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}
    for value in (rolling.get("maxUnavailable", 1), rolling.get("maxSurge", 0)):
        text = str(value)
        count = math.ceil(desired * int(text[:-1]) / 100) if text.endswith("%") else int(text)
        if count:
            return count
    return 1


def _moves(problem: PodProblem, pods: t.Sequence[Data], now: float) -> bool:
    """Whether the pod of a problem is on its way, and not one that is never ready or never ends."""
    if problem["reason"] not in ("NotReady", "Terminating"):
        return problem["reason"] in _MOVING
    meta: Data = next((pod["metadata"] for pod in pods if pod["metadata"]["name"] == problem["pod"]), {})
    began = seconds(meta.get("deletionTimestamp") or meta.get("creationTimestamp"))
    return began is None or now - began <= PATIENCE


def _held(
    daemon_set: Data, desired: int, found: t.Mapping[str, PodProblem], pods: t.Sequence[Data], now: float
) -> PodProblem | None:
    """The problem of every node whose old pod stays because others use up what may be unavailable.

    None while the update moves. `found` are the problems of the nodes that have a pod: the controller counts no others.
    """
    broken = {name: one for name, one in found.items() if one["reason"] != OLD_POD}
    allowed = _allowed(daemon_set, desired)
    if len(broken) < allowed or any(_moves(one, pods, now) for one in broken.values()):
        return None
    lost = [name for name, one in broken.items() if one["reason"] in (NODE_LOST, "NodeState", "NodeLeaves")]
    others = [name for name in broken if name not in lost]
    steps = ["bring %s back or delete its Node" % name for name in lost[:3]]
    steps += ["repair the pod on %s" % name for name in others[:3]]
    steps.append(f"raise maxUnavailable ({OPERANDS}update_strategy)")
    step = "; or ".join(steps)
    told = [
        "%s (%s)" % (name, "the node is lost" if name in lost else broken[name]["reason"]) for name in lost + others
    ]
    detail = "the update is held, so the pod is still the old one: %d of %d allowed pods %s unavailable, on %s" % (
        len(broken),
        allowed,
        "is" if len(broken) == 1 else "are",
        ", ".join(told[:5]),
    )
    return problem_of(HELD, detail, step[0].upper() + step[1:])


def _judge_pods(
    daemon_set: Data,
    node: Data,
    name: str,
    pods: t.Sequence[Data],
    events: t.Sequence[Data],
    rejection: PodProblem | None,
    known: Known,
) -> PodProblem | None:
    living = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    # The controller deletes a pod that failed and makes another one.
    living = [pod for pod in living if (pod.get("status") or {}).get("phase") != "Failed"] or living
    if not living:
        missing = missing_pod(daemon_set, node, known)
        if missing["reason"] == "NoPod" and pods:
            return problem_of(
                "Terminating",
                "the old pod has not ended yet",
                "Look at the kubelet of the node.",
                name,
                pods[0]["metadata"]["name"],
            )
        if missing["reason"] == "NoPod" and rejection:
            return {**rejection, "node": name}
        gone = _rejected(daemon_set, name, events) if missing["reason"] == "NoPod" else None
        if gone:
            reason = line(gone["reason"], 60)
            detail = "the kubelet rejects every pod, and the controller deletes it: %s" % said(gone)
            return problem_of(reason, detail, rejection_step(reason), name, gone["involvedObject"]["name"])
        return missing
    waiting = [pod for pod in living if not pod_ready(pod)]
    if waiting:
        return explain_pod(waiting[0], events, known)
    revision = known.revisions.get(str(daemon_set["metadata"].get("uid")), "")
    if not any(_current(daemon_set, pod, revision) for pod in living):
        by_hand = (daemon_set["spec"].get("updateStrategy") or {}).get("type") == "OnDelete"
        return problem_of(
            OLD_POD,
            "the pod is not of the newest template yet",
            "Drain the node and delete the pod: the update strategy is OnDelete." if by_hand else MORE_TIME,
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
    counts = {int(status.get(name) or 0) for name in ("numberReady", "updatedNumberScheduled", "numberAvailable")}
    if not is_observed(item) or not desired or counts != {desired} or int(status.get("numberMisscheduled") or 0):
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
