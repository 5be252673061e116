# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a taint means that keeps our pods off a node: who removes it, and whether waiting helps. Pure.

A toleration is advised for nothing but what people have set: it would start pods before the network or storage of their
node is there, or on a node that is about to go.
"""

from __future__ import annotations

import datetime
import re
import typing as t

from .._objects.names import OPERANDS
from .._objects.placement import Data, taint_text
from .._text.line import line
from .records import PodProblem

# An unknown taint that a controller has set within so many seconds is the state of a node that starts or ends.
RECENT = 600.0
STAYS, STARTS, LEAVES, STATE = "Taint", "StartupTaint", "NodeLeaves", "NodeState"


class Cause(t.NamedTuple):
    """A kind of taint and who removes it, with {domain} and {word} of its key; `step` where the kind's does not fit."""

    kind: str
    who: str
    step: str = ""


# (keys, what they mean), the first that fits. The words of a key decide only what no row names.
KNOWN: tuple[tuple[str, Cause], ...] = (
    (
        r"node\.kubernetes\.io/out-of-service",
        Cause(STAYS, "an administrator", "Remove the taint when the node works again; people set and remove it."),
    ),
    (r"node\.kubernetes\.io/network-unavailable", Cause(STARTS, "its network plugin")),
    (r"node\.cloudprovider\.kubernetes\.io/uninitialized", Cause(STARTS, "the cloud controller manager")),
    (
        r"node\.cloudprovider\.kubernetes\.io/shutdown",
        Cause(STATE, "the cloud", "Start the machine of the node; its cloud says that it is off."),
    ),
    (r"node\.kubernetes\.io/.*", Cause(STATE, "the cluster")),
    (r"([^/]+\.)?cilium\.io/.*", Cause(STARTS, "Cilium")),
    (r"([^/]+\.)?istio\.io/.*", Cause(STARTS, "Istio")),
    (r"([^/]+\.)?(projectcalico\.org|tigera\.io)/.*", Cause(STARTS, "Calico")),
    (r"ebs\.csi\.aws\.com/.*", Cause(STARTS, "the Amazon EBS CSI driver")),
    (r"([^/]+\.)?csi\.[^/]+/.*", Cause(STARTS, "the CSI driver {domain}")),
    (r"node\.cluster\.x-k8s\.io/uninitialized", Cause(STARTS, "Cluster API")),
    (r"karpenter\.sh/unregistered", Cause(STARTS, "Karpenter")),
    (r"karpenter\.(sh|k8s\.aws)/.*", Cause(LEAVES, "the autoscaler (Karpenter)")),
    (
        r"(startup|ignore|status)-taint\.cluster-autoscaler\.kubernetes\.io/.*",
        Cause(STARTS, "the one that is called {word}"),
    ),
    (r"(ToBeDeleted|DeletionCandidate)[A-Za-z]*", Cause(LEAVES, "the autoscaler (Cluster Autoscaler)")),
    (r"aws-node-termination-handler/.*", Cause(LEAVES, "the node termination handler of AWS")),
    (
        r"medik8s\.io/remediation",
        Cause(STATE, "medik8s", "Wait until the repair of the node has ended, or look at its remediation."),
    ),
    (r"node-role\.kubernetes\.io/.*", Cause(STAYS, "an administrator")),
)
_STEPS = {
    STAYS: f"Add it to {OPERANDS}tolerations, or remove it from the node.",
    STARTS: "Wait for the agent of the node that removes the taint: %s. If it stays, read the log of this agent.",
    LEAVES: "Ask %s why the node goes; run again when it is kept or another one has come.",
    STATE: "Bring the node to Ready: look at its kubelet and network.",
}
_TOLD = {
    STAYS: "the taint %s is not tolerated",
    STARTS: "the node still starts: it has the taint %s",
    LEAVES: "the node is about to go: it has the taint %s",
    STATE: "the cluster keeps pods off the node by the taint %s",
}
# Words of keys, and of values that say nothing else.
_STARTS = re.compile(
    r"(not|un)[-_.]?(ready|initiali[sz]ed|registered|available|configured|provisioned|validated|healthy|running)"
    r"|(agent|driver|network|cni|storage|csi)[-_.]?(pending|missing|down)"
    r"|initiali[sz]ing|initiali[sz]ation|bootstrap|start[-_]?up|starting|booting|installing|provisioning|warm[-_]?up",
    re.I,
)
_LEAVES = re.compile(
    r"to[-_]?be[-_]?delet|deleti|deleting|disrupt|terminati|interrupt|preempt|reclaim|scal(e|ing)[-_]?down|drain|evict"
    r"|spot-itn|rebalanc",
    re.I,
)
# Field managers of people's tools, and of the kubelet, which sets what its configuration says and removes nothing.
_PEOPLE = re.compile(
    r"kubectl|oc\b|kubelet|kubeadm|k3s|rke2|k9s|helm|terraform|hashicorp|pulumi|ansible|openapi-generator|python"
    r"|node-fetch|lens|rancher|mozilla|curl|unknown|before-first-apply",
    re.I,
)
# Words of keys that name nobody.
_ANYBODY = ("node", "nodes", "kubernetes", "agent", "taint", "system", "cluster", "cloud", "controller", "manager")


def seconds(stamp: t.Any) -> float | None:
    """An RFC 3339 time in seconds of the epoch; None for what is none."""
    try:
        return datetime.datetime.fromisoformat(str(stamp).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def _recent(stamp: t.Any, now: float) -> bool:
    when = seconds(stamp) if stamp else None
    return when is not None and abs(now - when) <= RECENT


def _setter(key: str, node: Data, now: float) -> str:
    """The controller that has changed the taints of the node lately, when its name has a word of the key; else empty.

    The taints are one field: who has removed another taint owns all of them.
    """
    words = [word for word in re.split(r"[^a-z0-9]+", key.lower()) if len(word) > 3 and word not in _ANYBODY]
    for entry in node["metadata"].get("managedFields") or []:
        taints = ((entry.get("fieldsV1") or {}).get("f:spec") or {}).get("f:taints")
        manager = str(entry.get("manager") or "").lower()
        if taints is None or _PEOPLE.match(manager) or not any(word in manager for word in words):
            continue
        if _recent(entry.get("time"), now):
            return manager
    return ""


def _known(key: str) -> Cause | None:
    return next((known for keys, known in KNOWN if re.fullmatch(keys, key)), None)


def leaving(node: t.Mapping[str, t.Any]) -> str:
    """The taint by which a program that we know says that it removes the node; empty for none.

    The words of other keys do not tell: a node that may be preempted has its taint as long as it lives.
    """
    for taint in (node.get("spec") or {}).get("taints") or []:
        known = _known(str(taint.get("key") or ""))
        if known and known.kind == LEAVES and taint.get("effect") != "PreferNoSchedule":
            return line(taint_text(taint), 100)
    return ""


def cause(taint: Data, node: Data, now: float) -> Cause:
    """What a taint means, by its key, else by its words, else by who has set it and when.

    Who cannot be told and what was there for longer has been set by people, and stays.
    """
    key, value = str(taint.get("key") or ""), str(taint.get("value") or "")
    domain, _slash, word = key.rpartition("/")
    known = _known(key)
    if known:
        return known._replace(who=known.who.format(domain=domain, word=word))
    who = domain or word
    if _STARTS.search(word) or _STARTS.fullmatch(value):
        return Cause(STARTS, who)
    # Without a domain it is a word of people.
    if domain and _LEAVES.search(word):
        return Cause(LEAVES, who)
    setter = _setter(key, node, now)
    # Only controllers write the time of a taint.
    if setter or _recent(taint.get("timeAdded"), now):
        return Cause(STARTS, setter or who)
    return Cause(STAYS, "an administrator")


def taint_problem(taints: t.Sequence[Data], node: Data, now: float) -> PodProblem | None:
    """The problem of a node whose taints keep our pods off; None without taints. What stays is told first, alone."""
    found = [(cause(taint, node, now), taint_text(taint)) for taint in taints]
    for kind in (STAYS, LEAVES, STATE, STARTS):
        mine = [(one, text) for one, text in found if one.kind == kind]
        if mine:
            who = " and ".join(dict.fromkeys(one.who for one, _text in mine))
            step = next((one.step for one, _text in mine if one.step), "") or _STEPS[kind]
            return {
                "node": node["metadata"]["name"],
                "pod": "",
                "reason": kind,
                "detail": line(_TOLD[kind] % ", ".join(text for _one, text in mine)),
                "next_step": step % who if "%s" in step else step,
                "fatal": kind == STAYS,
            }
    return None
