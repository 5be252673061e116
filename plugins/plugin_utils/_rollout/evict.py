# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pods of a node leave it: jobs end, others are evicted, and a look of our own proves that none is left."""

from __future__ import annotations

import functools
import re
import time
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._cluster.api import BETAS, ApiError, Cluster, Data, list_served
from .._components import dra
from .._nodes.pods import pod_ready
from .._nodes.readiness import node_ready
from .._text.line import line
from . import states
from .budgets import budgets_of, in_the_way, why_kept
from .node import NodeWriter, gates_to_close
from .outage import Clock, Sleep, is_passing, patiently
from .pods import (
    ALL,
    ROLLOUT,
    Leaving,
    Policy,
    Told,
    cannot_drain,
    claim_names,
    classify,
    component_name,
    is_finished,
    listed,
    never_ends,
    pod_name,
    why_not,
)
from .returning import Returning

# The newest version first.
CLAIMS = (("resource.k8s.io/v1", "ResourceClaim"), *BETAS)
BUDGET = ("policy/v1", "PodDisruptionBudget")
# Seconds between two looks at the pods, and how much longer than its grace period a pod may take.
FIRST_PAUSE, PAUSE, LATE = 1.0, 5.0, 15.0
# The API server's own words before those of the webhook or of the policy, and for a webhook that does not answer.
_NO_WEBHOOK = "failed calling webhook"
_WEBHOOK = re.compile(
    r'(?:admission webhook "[^"]*" denied the request|ValidatingAdmissionPolicy [^\n]{1,600}? denied request'
    rf'|{_NO_WEBHOOK} "[^"]*").*',
    re.DOTALL,
)
Tell = t.Callable[[str], None]


def look_at(cluster: Cluster, node: str, policy: Policy) -> Leaving:
    """What becomes of the pods that are on a node now: one request, and one for each claim that they name."""
    return look_of(cluster, cluster.list("v1", "Pod", fields="spec.nodeName=" + node), node, policy)


def look_of(cluster: Cluster, pods: t.Sequence[Data], node: str, policy: Policy) -> Leaving:
    """What becomes of these pods of a node: one request for each claim that they name."""
    claims: dict[tuple[str, str], Data] = {}
    for pod in pods:
        if not is_finished(pod):
            space = str(pod["metadata"].get("namespace") or "default")
            for name in claim_names(pod):
                if (space, name) not in claims:
                    claims[(space, name)] = _claim(cluster, name, space)
    return classify(pods, claims, policy, node)


def _claim(cluster: Cluster, name: str, space: str) -> Data:
    """A claim; empty for one that is gone. Nobody uses it then: it stays as long as a pod has it."""
    for version, kind in CLAIMS:
        found = cluster.get(version, kind, name, space)
        if found:
            return found
    return {}


def list_budgets(cluster: Cluster) -> list[Data]:
    """Every PodDisruptionBudget of the cluster."""
    return list_served(cluster, *BUDGET)


class _Refusal(t.NamedTuple):
    """Status of the answer, 0 for none; the words of the webhook or policy that refused, empty for none."""

    status: int
    webhook: str


class Drain:
    """One node leaves service: the pods that the policy names go, or NpuError says which one did not, and why.

    `stage` is called with the state of the node before a step that takes time.
    """

    def __init__(
        self,
        cluster: Cluster,
        node: str,
        policy: Policy,
        stage: t.Callable[[str], t.Any] = lambda state: None,
        clock: Clock = time.monotonic,
        sleep: Sleep = time.sleep,
    ) -> None:
        self._cluster, self._node, self._policy = cluster, node, policy
        self._stage, self._clock, self._sleep = stage, clock, sleep
        # By the uid of a pod: when it was first seen to end, and the last refusal to evict it.
        self._ends: dict[str, float] = {}
        self._refusals: dict[str, _Refusal] = {}
        self._returning = Returning()
        # The components of ours that were not ready at the first look.
        self.unready: list[str] = []

    def run(self, tell: Tell) -> Leaving:
        """Wait for jobs, then evict; what was listed before the first act. The rest of the node's pods at the end."""
        leaving = self._look()
        self.unready = leaving.unready(self._policy)
        if leaving.pending or leaving.refused or leaving.ours:
            tell("Node %s: %s." % (self._node, leaving.text()))
        self._refuse(leaving)
        leaving = self._wait_for_jobs(leaving)
        return self._evict(leaving)

    def _look(self) -> Leaving:
        ask = functools.partial(look_at, self._cluster, self._node, self._policy)
        return patiently(self._cluster, ask, self._clock, self._sleep)

    def _refuse(self, leaving: Leaving) -> None:
        """NpuError that names every pod that may not leave."""
        if leaving.refused:
            raise cannot_drain(self._node, [*map(why_not, leaving.refused)], [one.step for one in leaving.refused])

    def _wait_for_jobs(self, leaving: Leaving) -> Leaving:
        """Until no pod of the selector runs on the node and none asks to stay.

        After the limit the pods of the selector are evicted as others are; those that ask to stay end the drain.
        """
        limit, start = self._policy.wait_timeout, self._clock()
        jobs = self._jobs() if limit else []
        if jobs or leaving.waits:
            self._stage(states.JOBS)
        while jobs or leaving.waits:
            waited = self._clock() - start
            if waited >= limit:
                if leaving.waits:
                    raise self._asks_to_stay(leaving.waits, limit)
                break
            names = [*map(pod_name, jobs), *(pod_name(one.pod) for one in leaving.waits)]
            self._cluster.waits(
                "Node %s: %d of %d s: waits for %s" % (self._node, waited, limit, listed(list(dict.fromkeys(names))))
            )
            self._sleep(min(PAUSE, limit - waited))
            leaving = self._look()
            self._refuse(leaving)
            jobs = self._jobs()
        return leaving

    def _jobs(self) -> list[Data]:
        selector = self._policy.wait_selector
        if not selector:
            return []
        ask = functools.partial(
            self._cluster.list, "v1", "Pod", selector=selector, fields="spec.nodeName=" + self._node
        )
        found = patiently(self._cluster, ask, self._clock, self._sleep)
        return [pod for pod in found if not is_finished(pod) and not never_ends(pod)]

    def _asks_to_stay(self, waits: t.Sequence[Told], limit: float) -> NpuError:
        told = ["%s (%s)" % (pod_name(one.pod), one.why) for one in waits]
        return NpuError(
            "Node %s cannot be drained: after %d s these pods still run and ask to stay: %s."
            % (self._node, limit, listed(told)),
            f"Let them end, remove the annotation, or raise {ROLLOUT}wait_timeout.",
        )

    def _evict(self, leaving: Leaving) -> Leaving:
        limit, start = self._policy.evict_timeout, self._clock()
        pause = FIRST_PAUSE
        if leaving.pending:
            self._stage(states.DRAIN if self._policy.pods == ALL else states.PODS)
        while leaving.pending:
            now = self._clock()
            for pod in leaving.going:
                self._ends.setdefault(_uid(pod), now)
            back = self._returning.found(leaving.evict)
            if back:
                raise cannot_drain(self._node, [*map(why_not, back)], [one.step for one in back])
            for pod in leaving.evict:
                self._evict_pod(pod)
            for pod in leaving.going if self._policy.force else ():
                if self._is_late(pod, now):
                    self._delete(pod)
            waited = self._clock() - start
            if waited >= limit:
                raise self._stuck(leaving, limit)
            names = listed([pod_name(pod) for pod in leaving.pending])
            self._cluster.waits("Node %s: %d of %d s: waits until %s left" % (self._node, waited, limit, names))
            self._sleep(min(pause, limit - waited))
            pause = min(2 * pause, PAUSE)
            leaving = self._look()
            if self._returning.may_follow and not leaving.pending:
                # A StatefulSet starts its next pod when the last one has ended.
                self._sleep(PAUSE)
                leaving = self._look()
            self._refuse(leaving)
        return leaving

    def _evict_pod(self, pod: Data) -> None:
        """Ask once for the eviction of exactly this pod. What a later look settles is no error; the rest is."""
        meta = pod["metadata"]
        options: Data = {"preconditions": {"uid": meta["uid"]}}
        if self._policy.grace >= 0:
            options["gracePeriodSeconds"] = self._policy.grace
        target = {"name": meta["name"], "namespace": meta["namespace"]}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": target, "deleteOptions": options}
        path = self._cluster.path("v1", "Pod", meta["namespace"], meta["name"]) + "/eviction"
        what = "Evict pod %s of node %s" % (pod_name(pod), self._node)
        try:
            self._cluster.request("POST", path, what, {}, body, tries=1)
            self._refusals.pop(_uid(pod), None)
            self._returning.evicted(pod)
        except NpuError as exc:
            status = exc.status if isinstance(exc, ApiError) else 0
            if status == 500:
                self._refuse_several(pod, what)
            webhook = _webhook(exc)
            if webhook or is_passing(exc):
                self._refusals[_uid(pod)] = _Refusal(status, webhook)
            elif status not in (404, 409) and not (isinstance(exc, ApiError) and _namespace_ends(exc)):
                raise

    def _refuse_several(self, pod: Data, what: str) -> None:
        """NpuError when more than one budget selects the pod, which Kubernetes answers with this status."""
        several = budgets_of(pod, self._budgets())
        if len(several) > 1:
            raise NpuError(
                "%s: %d PodDisruptionBudgets select it, and Kubernetes evicts no such pod: %s."
                % (what, len(several), listed([pod_name(one) for one in several])),
                "Let one budget select the pod, or delete the pod yourself.",
            )

    def _budgets(self) -> list[Data]:
        """Every PodDisruptionBudget; none where a busy server does not say, which ends no drain."""
        try:
            return list_budgets(self._cluster)
        except NpuError as exc:
            if not is_passing(exc):
                raise
            return []

    def _is_late(self, pod: Data, now: float) -> bool:
        since = self._ends.get(_uid(pod), now)
        return now - since > _grace(pod) + LATE

    def _delete(self, pod: Data) -> None:
        """Remove a pod that ignores its grace period from the API; its kubelet may not have stopped it."""
        meta = pod["metadata"]
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": meta["uid"]},
        }
        path = self._cluster.path("v1", "Pod", meta["namespace"], meta["name"])
        try:
            self._cluster.request("DELETE", path, "Delete pod %s" % pod_name(pod), {}, body, tries=1)
        except NpuError as exc:
            if not is_passing(exc) and not (isinstance(exc, ApiError) and exc.status in (404, 409)):
                raise

    def _stuck(self, leaving: Leaving, limit: float) -> NpuError:
        """Why each pod is still there."""
        now = self._clock()
        told: list[str] = []
        steps: list[str] = []
        lost = self._is_lost() if leaving.going else False
        budgets = self._budgets() if any(map(self._refused_by_budget, leaving.evict)) else []
        for pod in leaving.evict:
            refusal = self._refusals.get(_uid(pod))
            status = refusal.status if refusal else None
            found = budgets_of(pod, budgets) if self._refused_by_budget(pod) else []
            if found:
                closed = in_the_way(pod, found)
                why, step = why_kept(next((one for one in found if pod_name(one) in closed), found[0]), pod)
                told.append("%s: %s" % (pod_name(pod), why))
                steps.append(step)
            elif refusal and refusal.webhook:
                told.append("%s: %s" % (pod_name(pod), refusal.webhook))
                steps.append(_webhook_step(refusal.webhook))
            elif status:
                told.append("%s: the API server answered with HTTP %d" % (pod_name(pod), status))
                steps.append("Check the state of the API server, and run again.")
            elif status == 0:
                told.append("%s: the API server did not answer" % pod_name(pod))
                steps.append("Check the API server, and run again.")
            else:
                told.append("%s was evicted and is not ending" % pod_name(pod))
                steps.append("Look for a webhook that answers for evictions.")
        for pod in leaving.going:
            grace = _grace(pod)
            if lost:
                told.append("%s cannot end, since the node is not Ready" % pod_name(pod))
                steps.append("Bring the node back (its kubelet, its network, its power), and run again.")
            elif self._is_late(pod, now):
                why, step = self._why_late(pod, leaving)
                told.append("%s: its grace period of %d s is over and it %s" % (pod_name(pod), grace, why))
                steps.append(step)
            else:
                told.append("%s still ends, for which it has %d s" % (pod_name(pod), grace))
                steps.append(f"Raise {ROLLOUT}evict_timeout above its grace period.")
        for one in leaving.waits:
            told.append("%s came meanwhile, and %s" % (pod_name(one.pod), one.why))
            steps.append("Let it end, or remove the annotation.")
        return NpuError(
            "Node %s was not drained within %d s: %s." % (self._node, limit, listed(told)),
            " ".join(dict.fromkeys(steps)),
        )

    @staticmethod
    def _why_late(pod: Data, leaving: Leaving) -> tuple[str, str]:
        """(what a pod waits for after its grace period, what to do)."""
        finalizers, claims = pod["metadata"].get("finalizers"), claim_names(pod)
        ours = (*leaving.ours, *(told.pod for told in leaving.stays))
        if finalizers:
            return "waits for its finalizer %s" % line(finalizers[0], 100), "Find who removes the finalizer."
        if claims and not any(component_name(one) == dra.NAME and pod_ready(one) for one in ours):
            # After a boot without a driver this pod cannot start, and no driver is in use.
            return (
                "holds the ResourceClaim %s, which the kubelet gives back only while a pod of %s runs on the node"
                % (line(claims[0], 100), dra.NAME),
                f"Let that pod run, or, where no driver is loaded on the host, set {ROLLOUT}force to true.",
            )
        return "ignores it", f"Stop the pod on its node, or set {ROLLOUT}force to true."

    def _is_lost(self) -> bool:
        """Whether no kubelet ends pods on the node; False where a busy server does not say."""
        try:
            node = self._cluster.get("v1", "Node", self._node)
        except NpuError as exc:
            if not is_passing(exc):
                raise
            return False
        return node is not None and not node_ready(node)

    def _refused_by_budget(self, pod: Data) -> bool:
        refusal = self._refusals.get(_uid(pod))
        return bool(refusal and refusal.status == 429 and not refusal.webhook)


class Left(t.NamedTuple):
    """Of a node that was emptied: the components of ours that were not ready before, and those that had to leave."""

    unready: list[str]
    stopped: list[str]


def leave_node(
    writer: NodeWriter,
    policy: Policy,
    tell: Tell,
    clock: Clock = time.monotonic,
    sleep: Sleep = time.sleep,
) -> Left:
    """Empty a node that `writer` has cordoned: its pods by the policy, then our components that use the driver.

    NpuError names what did not leave; the host is unchanged then.
    """
    cluster, name = writer.cluster, writer.name
    drain = Drain(cluster, name, policy, writer.state, clock, sleep)
    leaving = drain.run(tell)
    running = {component_name(pod) for pod in leaving.ours}
    left_by = Left(drain.unready, sorted(running))
    closing = gates_to_close(writer.current(), dict.fromkeys((*policy.components, *sorted(running))), running)
    if not closing:
        return left_by
    writer.close_gates(closing)
    start = clock()
    while running:
        waited = clock() - start
        left = patiently(cluster, functools.partial(look_at, cluster, name, policy), clock, sleep)
        if left.pending or left.refused:
            # What the scheduler had bound before the cordon.
            Drain(cluster, name, policy, writer.state, clock, sleep).run(tell)
            continue
        if not left.ours:
            break
        names = listed([pod_name(pod) for pod in left.ours])
        if waited >= policy.evict_timeout:
            raise NpuError(
                "Node %s: components of this collection did not leave within %d s: %s."
                % (name, policy.evict_timeout, names),
                "Check the DaemonSet controller of the cluster, and the kubelet of this node.",
            )
        cluster.waits("Node %s: %d of %d s: waits until %s left" % (name, waited, policy.evict_timeout, names))
        sleep(min(PAUSE, FIRST_PAUSE + waited))
    return left_by


def _uid(pod: t.Mapping[str, t.Any]) -> str:
    return str(pod["metadata"]["uid"])


def _grace(pod: t.Mapping[str, t.Any]) -> int:
    """Seconds that a pod which is being deleted has to end."""
    return int(pod["metadata"].get("deletionGracePeriodSeconds") or 0)


def _webhook(exc: NpuError) -> str:
    """What a webhook or policy says that refused; it may let the pod go once its application has moved."""
    said = _WEBHOOK.search(str(exc.body.get("message") or "")) if isinstance(exc, ApiError) else None
    return line(said.group(), 300).rstrip(".") if said else ""


def _webhook_step(said: str) -> str:
    if said.startswith(_NO_WEBHOOK):
        return "Let the pods of this webhook run on other nodes, or remove the webhook."
    return f"Ask the owner of this rule, or raise {ROLLOUT}evict_timeout."


def _namespace_ends(exc: ApiError) -> bool:
    """Whether a refusal says that the pod goes with its namespace."""
    details = exc.body.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    return exc.status == 403 and any(
        isinstance(cause, dict) and cause.get("reason") == "NamespaceTerminating" for cause in causes or []
    )
