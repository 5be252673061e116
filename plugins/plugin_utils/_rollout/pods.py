# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which pods of a node hold NPUs, and what becomes of each before the host part runs. Pure, on API objects."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE

from .._components.registry import COMPONENTS, component_of
from .._nodes.pods import pod_ready
from .._objects.compare import amount
from .._objects.names import INPUT
from .._objects.parts import LABEL_PREFIX, PART_OF
from .._text.line import line

Data = dict[str, t.Any]
Claims = t.Mapping[tuple[str, str], t.Mapping[str, t.Any]]
ROLLOUT = INPUT + "rollout_"
# Which pods leave a node: none, so that a node with some is refused; those that hold NPUs; or all that can.
REFUSE, NPU, ALL = "refuse", "npu", "all"
# Not an input: nothing has to leave, since pods run on while their runtime restarts.
KEEP = "keep"
# What becomes of data in an emptyDir, and of pods that no controller makes again.
DELETE = "delete"
_NAMES = {row.key: row.name for row in COMPONENTS}
_CDI = "cdi.k8s.io/"
_MIRROR = "kubernetes.io/config.mirror"
# Annotations by which a pod asks not to be evicted, and the value that asks; None for any.
ASKS_TO_STAY: tuple[tuple[str, str | None], ...] = (
    ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
    ("karpenter.sh/do-not-disrupt", "true"),
    ("karpenter.sh/do-not-evict", "true"),
    ("descheduler.alpha.kubernetes.io/prefer-no-eviction", None),
)
# Pods that one line names.
MOST_NAMED = 8


@dataclass(frozen=True)
class Policy:
    """What becomes of pods by the inputs; times in seconds.

    `wait_timeout` is the limit for the pods of `wait_selector` and for those that ask to stay; 0 waits for none.
    `grace` below 0 is each pod's own. `force` removes from the API a pod that ignores its grace period. `namespace` is
    that of our components, and `components` the names of those that leave by their gates. `dra_driver` is the name of
    the DRA driver.
    """

    pods: str = NPU
    empty_dir: str = DELETE
    unmanaged: str = REFUSE
    wait_selector: str = ""
    wait_timeout: float = 0.0
    evict_timeout: float = 300.0
    grace: int = -1
    force: bool = False
    namespace: str = ""
    components: tuple[str, ...] = ()
    dra_driver: str = "npu." + PROFILE.label_prefix


class Told(t.NamedTuple):
    """A pod and why it stays, is waited for, or stops the node; the step is for people."""

    pod: Data
    why: str
    step: str = ""


@dataclass(frozen=True)
class Leaving:
    """The pods of a node that count.

    `evict` are evicted; `going` are being deleted; `ours` leave by their gates; `waits` ask to stay; `refused` stop the
    node before its first eviction; `stays` remain on the node, of those that are not listed elsewhere.
    """

    evict: tuple[Data, ...] = ()
    going: tuple[Data, ...] = ()
    ours: tuple[Data, ...] = ()
    waits: tuple[Told, ...] = ()
    refused: tuple[Told, ...] = ()
    stays: tuple[Told, ...] = ()

    @property
    def pending(self) -> tuple[Data, ...]:
        """The pods that must be gone before the host part, without ours."""
        return (*self.evict, *self.going, *(told.pod for told in self.waits))

    def unready(self, policy: Policy) -> list[str]:
        """The components of ours on the node that are not ready."""
        pods = (*self.ours, *(told.pod for told in self.stays))
        return unready_of(pod for pod in pods if _is_ours(pod, policy))

    def text(self) -> str:
        """What becomes of the pods, on one line; empty when there is nothing to say."""
        parts = [
            (verb, [pod_name(pod) for pod in pods])
            for verb, pods in (("evicts", self.evict), ("waits for the end of", self.going), ("stops", self.ours))
        ]
        parts.append(("waits for", ["%s (%s)" % (pod_name(told.pod), told.why) for told in self.waits]))
        parts.append(("refuses", ["%s (%s)" % (pod_name(told.pod), told.why) for told in self.refused]))
        counts: dict[str, int] = {}
        for told in self.stays:
            counts[told.why] = counts.get(told.why, 0) + 1
        parts.append(("leaves", ["%d (%s)" % (number, why) for why, number in counts.items()]))
        return "; ".join("%s %s" % (verb, listed(names)) for verb, names in parts if names)


def listed(names: t.Sequence[str]) -> str:
    """The first names, and how many more."""
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (" and %d more" % more if more > 0 else "")


def why_not(one: Told) -> str:
    """A pod, and why it may not leave."""
    return "%s %s" % (pod_name(one.pod), one.why)


def cannot_drain(node: str, refused: t.Sequence[str], steps: t.Iterable[str]) -> NpuError:
    """The error of a node with such pods."""
    return NpuError("Node %s cannot be drained: %s." % (node, listed(refused)), " ".join(dict.fromkeys(steps)))


def pod_name(pod: t.Mapping[str, t.Any]) -> str:
    """namespace/name."""
    meta = pod["metadata"]
    return line("%s/%s" % (meta.get("namespace") or "default", meta["name"]), 200)


def classify(pods: t.Iterable[Data], claims: Claims, policy: Policy, node: str = "") -> Leaving:
    """What becomes of each pod; those of other nodes than `node` do not count, whatever their name."""
    found: dict[str, list[t.Any]] = {key: [] for key in ("evict", "going", "ours", "waits", "refused", "stays")}
    for pod in pods:
        if node and (pod.get("spec") or {}).get("nodeName") != node:
            continue
        key, told = _judge(pod, claims, policy)
        found[key].append(told if key in ("waits", "refused", "stays") else pod)
    return Leaving(**{key: tuple(items) for key, items in found.items()})


def _judge(pod: Data, claims: Claims, policy: Policy) -> tuple[str, Told]:
    """(field of Leaving, pod with the reason)."""
    if is_finished(pod):
        return "stays", Told(pod, "finished")
    held = holds(pod, claims, policy.dra_driver)
    owner = controller_of(pod)
    daemon = owner.get("kind") == "DaemonSet"
    if daemon and _is_ours(pod, policy):
        if held or component_name(pod) in policy.components:
            return "ours", Told(pod, "")
        if pod["metadata"].get("deletionTimestamp"):
            # It is being replaced: the host part, which may reboot, waits for it.
            return "going", Told(pod, "")
        return "stays", Told(pod, "components that need no driver")
    if not held and policy.pods != ALL:
        return "stays", Told(pod, "hold no NPU")
    if _is_mirror(pod):
        if not held:
            return "stays", Told(pod, "static")
        step = "Move its manifest out of the kubelet's folder on this node until the run is over."
        return "refused", Told(pod, "%s and is static, so that the API cannot evict it" % held, step)
    if pod["metadata"].get("deletionTimestamp"):
        return "going", Told(pod, "")
    if daemon:
        if not held:
            return "stays", Told(pod, "of DaemonSets")
        step = "Keep the DaemonSet %s off this node, by its node selector, until the run is over." % owner_text(pod)
        return "refused", Told(pod, "%s and its DaemonSet would start it again" % held, step)
    if policy.pods == REFUSE:
        step = f"Stop the pod, or set {ROLLOUT}pods to npu so that pods with NPUs are evicted."
        return "refused", Told(pod, held, step)
    stays = asks_to_stay(pod)
    if stays:
        return "waits", Told(pod, "its annotation %s asks for no eviction" % stays)
    if not owner and policy.unmanaged != DELETE:
        step = f"Delete the pod yourself, or set {ROLLOUT}unmanaged to delete."
        return "refused", Told(pod, "no controller would start it again elsewhere", step)
    volume = _scratch(pod)
    if volume and policy.empty_dir != DELETE:
        step = f"Save its data and delete the pod, or set {ROLLOUT}empty_dir to delete."
        return "refused", Told(pod, "the data in its emptyDir %s would be lost" % line(volume, 100), step)
    return "evict", Told(pod, "")


def unready_of(pods: t.Iterable[t.Mapping[str, t.Any]]) -> list[str]:
    """The components that pods of ours belong to, of those that are not ready; not of one that is being replaced."""
    broken = (pod for pod in pods if not pod_ready(dict(pod)) and not pod["metadata"].get("deletionTimestamp"))
    return sorted({component_name(pod) for pod in broken} - {""})


def is_finished(pod: t.Mapping[str, t.Any]) -> bool:
    """Whether its containers have ended for good; its devices are free then."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def never_ends(pod: t.Mapping[str, t.Any]) -> bool:
    """Whether a pod runs as long as its node does, so that nobody can wait for its end."""
    return _is_mirror(pod) or controller_of(pod).get("kind") == "DaemonSet"


def component_name(pod: t.Mapping[str, t.Any]) -> str:
    """The component that a pod belongs to, by the name that its gate has; empty for none."""
    return _NAMES.get(component_of(dict(pod)), "")


def _is_ours(pod: t.Mapping[str, t.Any], policy: Policy) -> bool:
    meta = pod["metadata"]
    part = (meta.get("labels") or {}).get("app.kubernetes.io/part-of")
    own = policy.namespace and meta.get("namespace") == policy.namespace and part == PART_OF
    return bool(own and component_name(pod))


def holds(pod: t.Mapping[str, t.Any], claims: Claims, dra_driver: str) -> str:
    """By what a pod holds an NPU; empty for one that holds none.

    Requests and limits of every kind of container, of the pod, and its overhead; devices that it claims; devices that
    its annotations name for the runtime.
    """
    spec = pod.get("spec") or {}
    parts = [spec, *(item for key in ("containers", "initContainers") for item in spec.get(key) or [])]
    for part in parts:
        resources = part.get("resources") or {}
        for amounts in (resources.get("requests"), resources.get("limits")):
            for name, value in (amounts or {}).items():
                # What is no amount is not nothing.
                if name.startswith(LABEL_PREFIX) and amount(value) != 0:
                    return "has %s" % line(name, 100)
    for name in claim_names(pod):
        claim = claims.get((str(pod["metadata"].get("namespace") or "default"), name))
        if claim and _is_claim_of(claim, dra_driver):
            return "has the ResourceClaim %s" % line(name, 100)
    for key, value in (pod["metadata"].get("annotations") or {}).items():
        devices = str(value).split(",") if key.startswith(_CDI) else []
        if any(device.strip().startswith(LABEL_PREFIX) for device in devices):
            return "has the annotation %s" % line(key, 100)
    return ""


def claim_names(pod: t.Mapping[str, t.Any]) -> list[str]:
    """The names of the ResourceClaims of a pod, those that were made from templates for it too."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    named = [one.get("resourceClaimName") for one in spec.get("resourceClaims") or []]
    made = [one.get("resourceClaimName") for one in status.get("resourceClaimStatuses") or []]
    extended = (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName")
    return [str(name) for name in dict.fromkeys([*named, *made, extended]) if name]


def _is_claim_of(claim: t.Mapping[str, t.Any], dra_driver: str) -> bool:
    """Whether devices of the DRA driver were allocated to a claim, or are asked for by a class of its name."""

    def named(value: t.Any) -> bool:
        return str(value) in (dra_driver, "vfio-" + dra_driver) or str(value).endswith("." + PROFILE.label_prefix)

    allocation = (claim.get("status") or {}).get("allocation")
    if allocation:
        return any(named(one.get("driver")) for one in (allocation.get("devices") or {}).get("results") or [])
    for request in ((claim.get("spec") or {}).get("devices") or {}).get("requests") or []:
        choices = [request, request.get("exactly") or {}, *(request.get("firstAvailable") or [])]
        if any(named(one.get("deviceClassName")) for one in choices):
            return True
    return False


def asks_to_stay(pod: t.Mapping[str, t.Any]) -> str:
    """The annotation, as key=value, by which a pod asks not to be evicted; empty for none."""
    annotations = pod["metadata"].get("annotations") or {}
    for key, value in ASKS_TO_STAY:
        if key in annotations and (value is None or str(annotations[key]).lower() == value):
            return line("%s=%s" % (key, annotations[key]), 150)
    return ""


def controller_of(pod: t.Mapping[str, t.Any]) -> t.Mapping[str, t.Any]:
    """The owner that makes a pod again; empty for none."""
    owners = pod["metadata"].get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), {})


def owner_text(pod: t.Mapping[str, t.Any]) -> str:
    """namespace/name of the controller of a pod."""
    return line("%s/%s" % (pod["metadata"].get("namespace") or "default", controller_of(pod).get("name")), 200)


def _is_mirror(pod: t.Mapping[str, t.Any]) -> bool:
    return _MIRROR in (pod["metadata"].get("annotations") or {}) or controller_of(pod).get("kind") == "Node"


def _scratch(pod: t.Mapping[str, t.Any]) -> str:
    """The first volume whose data ends with the pod."""
    volumes = (pod.get("spec") or {}).get("volumes") or []
    return next((str(one.get("name")) for one in volumes if "emptyDir" in one), "")
