# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The smoke workload: a Job whose one pod uses one NPU of one node, and what its end proves. Pure."""

from __future__ import annotations

import hashlib
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.mask import mask
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._components.containers import container
from .._components.digests import pin
from .._objects.inputs import Inputs
from .._objects.model import Object
from .._objects.names import OPERANDS
from .._objects.parts import NPU_KEY, image_reference, object_name, pull_secrets, texts
from .._objects.placement import Data
from .._text.line import line
from .pods import NOT_STARTED, about, explain_pod, newest_warning, said

NAME = "smoke"
SMOKE = OPERANDS + NAME
# Not a label of ours: no DaemonSet of ours, no prune and no removal may take the Job for one of its own.
LABEL = NPU_KEY + ".smoke"
# Seconds between two looks at the pod, and those for which a Job is kept for us after its time; then Kubernetes ends
# and removes it, also when this run was interrupted.
DELAY, KEPT = 5, 120


def smoke_job(inputs: Inputs, node: str) -> Object:
    """The Job for one node, always of the same name, so that what a run has left is found by the next one.

    Its pod meets the Pod Security level restricted unless `user` is 0. NpuError for an image that cannot be, or that
    lacks a digest where each must have one, and where the DRA driver leaves no resource that a container could name.
    """
    own, dra = inputs["smoke"], inputs["dra_driver"]
    if dra["enabled"] and not dra["extended_resource"]:
        raise NpuError(
            f"{SMOKE}.enabled is true, and with {OPERANDS}dra_driver no node offers {inputs['resource_name']}.",
            f"Set {SMOKE}.enabled to false, or {OPERANDS}dra_driver.extended_resource to true.",
        )
    name = object_name(inputs, NAME, hashlib.sha256(node.encode()).hexdigest()[:8])
    labels = {"app.kubernetes.io/name": NAME, LABEL: name}
    npu = {inputs["resource_name"]: "1"}
    resources = {**own["resources"], "limits": {**(own["resources"].get("limits") or {}), **npu}}
    if resources.get("requests"):
        resources["requests"] = {**resources["requests"], **npu}
    user = own["user"]
    this_node = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    pod: Object = {
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [this_node]}}
        },
        "automountServiceAccountToken": False,
        "containers": [
            container(
                NAME,
                image_reference(SMOKE + ".image", own["image"], inputs["registry"]),
                own["image"]["pull_policy"],
                command=own["command"],
                args=own["args"],
                env=own["env"],
                resources=resources,
                securityContext={"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            )
        ],
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "securityContext": {
            "runAsNonRoot": user != 0,
            "runAsUser": user,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationGracePeriodSeconds": 5,
        "tolerations": [{"key": NPU_KEY, "operator": "Exists"}, *inputs["tolerations"]],
    }
    secrets = pull_secrets(inputs, own["image"])
    job: Object = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": inputs["namespace"], "labels": texts(labels)},
        "spec": {
            "activeDeadlineSeconds": own["timeout"] + KEPT,
            "backoffLimit": 0,
            "template": {
                "metadata": {"labels": texts(labels)},
                "spec": {**pod, "imagePullSecrets": secrets} if secrets else pod,
            },
            "ttlSecondsAfterFinished": KEPT,
        },
    }
    pin([job], inputs)
    return job


def has_ended(pods: t.Sequence[Data]) -> bool:
    """Whether the workload has ended; its pod may run on with a sidecar."""
    for pod in pods[:1]:
        status = pod.get("status") or {}
        own = [one.get("state") or {} for one in status.get("containerStatuses") or [] if one.get("name") == NAME]
        return status.get("phase") in ("Succeeded", "Failed") or any(state.get("terminated") for state in own)
    return False


def smoke_progress(job: Object, node: str, pods: t.Sequence[Data], events: t.Sequence[Data]) -> str:
    """Why the workload has not ended yet."""
    if not pods:
        why = said(newest_warning(about(events, job["metadata"]["name"])))
        text = "it has no pod yet" + (": " + why if why else "")
    elif (pods[0].get("status") or {}).get("phase") == "Running":
        text = "it runs"
    else:
        text = explain_pod(pods[0], events)["detail"]
    return "node %s: the smoke workload: %s" % (node, text.rstrip("."))


def brief(job: Object) -> str:
    """What runs, for people: image, command and arguments."""
    one = job["spec"]["template"]["spec"]["containers"][0]
    return line(" ".join([one["image"], *one.get("command", []), *one.get("args", [])]), 300)


def _beside(states: Data) -> str:
    """What other containers of the pod do, that have not ended well: {name: state}."""
    ends = {name: (state.get("terminated") or {}).get("exitCode") for name, state in states.items()}
    said = [
        "%s %s" % (line(name, 63), "has not ended" if code is None else "ended with code %s" % code)
        for name, code in sorted(ends.items())
        if code != 0
    ]
    return " Beside it in the pod: %s." % ", ".join(said) if said else ""


def shown_log(found: Data) -> list[str]:
    """The last lines of the log that are not empty, without secrets: a workload may print what it was given."""
    text = mask("\n".join(map(str, found.get("log") or [])))
    return [one for one in text.split("\n") if one.strip()]


def smoke_verdict(inputs: Inputs, node: str, found: Data) -> tuple[bool, str]:
    """(whether the workload ran well, what to say of it).

    `found` has the pods of the Job, the last lines of the log, and, where the pod has not ended, warnings of the
    namespace.
    """
    job = smoke_job(inputs, node)
    pods, events = list(found.get("pods") or []), list(found.get("events") or [])
    log = line(" | ".join(shown_log(found)), 600)
    tail = " Its log ends with: %s." % log.rstrip(".") if log else " Its log is empty."
    place = "node %s: the smoke workload" % node
    if not pods:
        why = said(newest_warning(about(events, job["metadata"]["name"])))
        return False, "%s got no pod%s. Next: Read what refuses it, and allow it for the namespace %s." % (
            place,
            ": " + why if why else " within %d s" % inputs["smoke"]["timeout"],
            inputs["namespace"],
        )
    pod = max(pods, key=lambda one: str(one["metadata"].get("creationTimestamp") or ""))
    status = pod.get("status") or {}
    # Others are in it where an admission webhook adds a sidecar.
    states = {str(one.get("name")): one.get("state") or {} for one in status.get("containerStatuses") or []}
    ended = states.pop(NAME, {}).get("terminated")
    if ended and ended.get("reason") in NOT_STARTED:
        # Only the runtime's own message has the cause; there is no log. The pod runs on where it has a sidecar.
        own = [one for one in status["containerStatuses"] if one.get("name") == NAME]
        pod = {**pod, "status": {"phase": "Failed", "containerStatuses": own}}
        status, ended = pod["status"], None
    if ended and not (status.get("phase") == "Failed" and status.get("reason")):
        code, reason = ended.get("exitCode"), line(ended.get("reason") or "", 60)
        beside = _beside(states)
        if code == 0 and (beside or status.get("phase") != "Failed"):
            return True, "%s ended with code 0.%s%s" % (place, beside, tail)
        return False, "%s ended with code %s%s.%s Next: Run the command by hand on this node; %s names it." % (
            place,
            code,
            " (%s)" % reason if reason not in ("", "Error", "Completed") else "",
            tail,
            SMOKE,
        )
    if status.get("phase") == "Running":
        return False, "%s still runs after %d s.%s Next: Raise %s.timeout, or repair what it waits for." % (
            place,
            inputs["smoke"]["timeout"],
            tail,
            SMOKE,
        )
    problem = explain_pod(pod, events)
    return False, "%s did not start: %s. Next: %s" % (place, problem["detail"].rstrip("."), problem["next_step"])
