# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One host goes through a rollout: it waits for its turn, its node leaves service and comes back."""

from __future__ import annotations

import datetime
import functools
import time
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._cluster.api import Cluster, Data, list_served
from .._components.registry import wanted
from .._nodes.marks import is_ours, without_taint
from .._nodes.pods import pod_ready
from .._nodes.readiness import (
    allocatable_npus,
    left_out,
    node_ready,
    number_text,
    slices_text,
    vfio_text,
    workload_of,
)
from .._objects.inputs import Inputs
from .._objects.model import CONTAINER
from .._objects.parts import SELECTOR
from .._text.line import line
from . import states
from .decide import Asks, Begin, Outcome, Skip, abandoned, ask, ended
from .evict import Left, leave_node
from .gates import Refuse, Wait, named
from .node import NodeWriter
from .outage import Clock, Sleep, patiently
from .pods import KEEP, Policy, component_name, listed, pod_name, unready_of
from .record import Record
from .settings import Settings
from .store import small, view_of
from .view import NodeView

SLICE = ("resource.k8s.io/v1", "ResourceSlice")
# The components that offer NPUs, by their keys.
PLUGIN, DRA, SANDBOX = OFFER = ("device_plugin", "dra_driver", "sandbox_device_plugin")
Tell = t.Callable[[str], None]
Now = t.Callable[[], datetime.datetime]
# Seconds between two looks.
PAUSE = 5.0
# Of a host that the act plan has not cut.
NO_TURN = (
    "This host has no turn in the rollout: its plan disturbs nothing, or the role has not planned in this play. Next:"
    f" Run the main tasks of the role, and then leave and return only for the hosts in {states.ROLLOUT}plan.hosts."
)
KEYWORDS = (
    f"Give the play that changes hosts the order, serial and strategy of {states.ROLLOUT}plan, or use the playbook"
    " upgrade."
)
# What is done before the host part begins: after a failure there the host is as it was.
BEFORE = (states.CORDON, states.JOBS, states.PODS, states.DRAIN)
# The host may have been changed.
BEGUN = (states.HOST, states.REBOOT, states.RESTART, states.VALIDATE, states.UNCORDON)


class Look(t.Protocol):
    @property
    def nodes(self) -> t.Sequence[NodeView]: ...


class Store(t.Protocol):
    """Where the record is: the ConfigMap of a cluster, or a file of the controller."""

    held: str
    approved: str

    def look(self) -> Look: ...

    def saw(self, node: Data) -> None: ...

    def change(self, judge: t.Callable[[Record | None], tuple[Record | None, t.Any]]) -> t.Any: ...


class Refused(NpuError):
    """A node that cannot begin in this run; nothing was done."""


class Back(t.NamedTuple):
    """What a node must be to be back: its NPUs, None for any number above zero, and the seconds that it may take."""

    inputs: Inputs
    expected: int | None
    timeout: float
    # Our components that were not ready before: they prove nothing, and the node did its work without them.
    unready: t.Collection[str] = ()
    # Those that had to leave it.
    stopped: t.Collection[str] = ()


class Turn:
    """The way of one node. Without `writer` the host has no cluster, and only the record knows where it is."""

    def __init__(
        self,
        store: Store,
        run: str,
        node: str,
        waits: Tell,
        writer: NodeWriter | None = None,
        now: Now = states.utc,
        clock: Clock = time.monotonic,
        sleep: Sleep = time.sleep,
    ) -> None:
        self._store, self._run, self._node = store, run, node
        self._waits, self._writer = waits, writer
        self._now, self._clock, self._sleep = now, clock, sleep

    def begin(
        self,
        settings: t.Mapping[str, Settings],
        metrics: t.Callable[[], bool | None],
        together: t.Collection[str] = (),
    ) -> Begin | Skip:
        """Wait until the node may begin. NpuError when it cannot begin in this run.

        `together` are the nodes of hosts that do not go on before this one has begun: it cannot wait for them.
        """
        start, answer = self._clock(), None
        while True:
            more = {"metrics": answer, "waited": self._clock() - start}
            seen = self._store.look().nodes
            outcome: Outcome = self._store.change(functools.partial(self._judge, settings, seen, more))
            if isinstance(outcome, Refuse):
                raise Refused("%s was left as it is. %s" % (self._node, outcome.reason), outcome.next_step)
            if not isinstance(outcome, Wait):
                return outcome
            stuck = [name for name in outcome.nodes if name in together]
            if stuck:
                raise Refused(
                    "%s was left as it is: %s. The play has the strategy linear, in which %s waits for %s too."
                    % (self._node, outcome.reason, named(stuck), self._node),
                    KEYWORDS,
                )
            if outcome.patient:
                start = self._clock()
            if outcome.needs == "metrics" and answer is None:
                answer = metrics()
                if answer is not None:
                    continue
            self._waits("%s waits for its turn: %s" % (self._node, outcome.reason))
            self._sleep(PAUSE)
            answer = None

    def _judge(
        self, settings: t.Mapping[str, Settings], seen: t.Sequence[NodeView], more: Data, record: Record | None
    ) -> tuple[Record | None, Outcome]:
        """What is to be written, and whether the node may begin; the node itself is asked before it does."""

        def asked(view: t.Sequence[NodeView]) -> tuple[Record | None, Outcome]:
            # The batches of the play are the waves: of those before, nobody begins any more.
            lost = abandoned(record, self._node) if record else ()
            by = Asks(self._run, self._store.held, self._store.approved, lost=lost, **more)
            return ask(settings, record, view, self._node, self._now(), by)

        after, outcome = asked(seen)
        if self._writer is None or not isinstance(outcome, Begin):
            return after, outcome
        # The shared look is some seconds old.
        fresh = view_of(small(self._writer.read()), record)
        return asked([*(one for one in seen if one.name != self._node), fresh])

    def cordon(self, turn: Begin, policy: Policy) -> bool:
        """Take the node out of service; whether its host may have been changed before, by a run that did not end."""
        writer = self._writer
        if writer is None:
            return False
        live = writer.current()
        # What others wrote is no state of ours, and a node that failed and was given back is as it was.
        unfinished = is_unfinished(live)
        before = state_of(live) if unfinished else ""
        begun = unfinished and before not in BEFORE
        state = before if before in BEGUN else states.HOST if begun else states.CORDON
        try:
            writer.cordon(state, turn.wave, not turn.cordon, policy.components)
        except NpuError as exc:
            # Nothing was done. A later wave may not wait for it, whoever was faster.
            self._end(states.FAILED, exc.message)
            raise
        self._store.saw(writer.current())
        return begun

    def drain(self, policy: Policy, tell: Tell, begun: bool = False) -> Left:
        """Empty the node.

        After a failure it is as it was before, or, with `begun`, it stays out of service.
        """
        writer = self._writer
        if writer is None:
            return Left([], [])
        try:
            if policy.pods == KEEP:
                look = functools.partial(_our_pods, writer.cluster, self._node, policy.namespace)
                left = Left(unready_of(patiently(writer.cluster, look, self._clock, self._sleep)), [])
            else:
                left = leave_node(writer, policy, tell, self._clock, self._sleep)
            writer.begin_host()
        except NpuError as exc:
            said = self._failed(writer, exc, begun)
            raise NpuError("%s %s" % (exc.message, said), exc.next_step) from None
        if left.unready:
            told = ", ".join(left.unready)
            tell("Node %s: not ready before its change, so not waited for after it: %s." % (self._node, told))
        return left

    def come_back(self, back: Back | None, uncordon: bool = True) -> bool:
        """After the host part has ended well. Whether anything was to be done; NpuError when the node is not back.

        Without `uncordon` the node waits for one more proof.
        """
        writer = self._writer
        if writer is None:
            return self._end(states.DONE, "")
        try:
            live = writer.read()
        except NpuError as exc:
            self._end(states.FAILED, exc.message)
            raise
        if not self._is_mine(live):
            self._lost(live)
            return False
        try:
            writer.open_gates()
            if back:
                self._wait_until_back(writer, back)
            if not uncordon:
                return writer.state(states.VALIDATE)
            writer.done()
            self._store.saw(writer.current())
        except NpuError as exc:
            said = self._failed(writer, exc, True)
            raise NpuError("%s %s" % (exc.message, said), exc.next_step) from None
        self._end(states.DONE, "")
        return True

    def failed(self, error: NpuError) -> str:
        """After a failure: what has become of the node, in words; empty when it was not taken out of service."""
        writer = self._writer
        if writer is None:
            self._end(states.FAILED, error.message)
            return ""
        try:
            live = writer.read()
        except NpuError as exc:
            self._end(states.FAILED, error.message)
            return exc.message
        if not self._is_mine(live):
            # Only where nobody has taken it over, or ended it.
            self._end(states.FAILED, error.message)
            return ""
        return self._failed(writer, error, state_of(live) not in BEFORE)

    def waits_for_reboot(self, reason: str) -> str:
        """The host part ends with a reboot that a person does: the node stays out of service until the next run."""
        writer = self._writer
        try:
            if writer is not None and self._is_mine(writer.read()):
                writer.state(states.REBOOT, reason)
        except NpuError as exc:
            self._end(states.FAILED, exc.message)
            raise
        # It holds no turn meanwhile, and is no failure.
        self._end(states.REBOOT, reason)
        return reason

    def _failed(self, writer: NodeWriter, error: NpuError, begun: bool) -> str:
        try:
            if begun:
                writer.fail(str(error))
            else:
                writer.give_back(str(error))
            # Before the record says so: others count the node by both.
            self._store.saw(writer.current())
        except NpuError as exc:
            # Deleted, or nobody may write it: it holds no turn all the same.
            self._end(states.FAILED, error.message)
            return "" if exc.message == error.message else exc.message
        self._end(states.FAILED, error.message)
        if begun:
            return "The node %s stays cordoned, with the taint %s." % (self._node, states.FAILED_TAINT)
        return "The host was not changed, and the node %s is back in service." % self._node

    def _is_mine(self, live: Data) -> bool:
        """Whether this run works on the node now, also where others wrote the label of its state."""
        run = (live["metadata"].get("annotations") or {}).get(states.RUN)
        ours = state_of(live) in states.UNDER_WAY or (is_ours(live) and not is_tainted(live))
        return run == self._run and ours

    def _lost(self, live: Data) -> None:
        """NpuError when the record has the node under way for this run, and the node does not say so."""
        what = "The node %s no longer says that the run %s works on it: its label %s is %s." % (
            self._node,
            self._run,
            states.LABEL,
            line((live["metadata"].get("labels") or {}).get(states.LABEL) or "absent", 60),
        )
        if self._end(states.FAILED, what):
            raise NpuError(what, "See whether it was created anew, and whether it is cordoned; then run again.")

    def _end(self, state: str, reason: str) -> bool:
        def judge(record: Record | None) -> tuple[Record | None, bool]:
            entry = record.nodes.get(self._node) if record else None
            if record is None or entry is None or not entry.under_way or entry.run != self._run:
                return None, False
            return ended(record, self._node, state, reason, self._now(), self._run), True

        return bool(self._store.change(judge))

    def _wait_until_back(self, writer: NodeWriter, back: Back) -> None:
        # The answer to the last change is the first look.
        start, node = self._clock(), t.cast("Data | None", writer.current())
        while True:
            look = functools.partial(not_back, writer.cluster, self._node, back, node)
            why = patiently(writer.cluster, look, self._clock, self._sleep)
            node = None
            if not why:
                return
            writer.state(states.RESTART)
            waited = self._clock() - start
            if waited >= back.timeout:
                raise NpuError(
                    "The node %s is not back after %d s: %s." % (self._node, back.timeout, why),
                    "Look at its pods and at its kubelet, and run again; or raise %sreturn_timeout." % states.ROLLOUT,
                )
            self._waits("Node %s: %d of %d s: waits until it is back: %s" % (self._node, waited, back.timeout, why))
            self._sleep(min(PAUSE, back.timeout - waited))


def state_of(node: t.Mapping[str, t.Any]) -> str:
    """The state that the label of a node says; empty for none of ours."""
    found = str((node["metadata"].get("labels") or {}).get(states.LABEL) or "")
    return found if found in states.STATES else ""


def is_tainted(node: t.Mapping[str, t.Any]) -> bool:
    """Whether a failed rollout keeps pods from the node."""
    return bool(without_taint(node))


def is_unfinished(node: t.Mapping[str, t.Any]) -> bool:
    """Whether a rollout has begun with a node and not put it back. The vendor's operator writes the same label."""
    ours = states.RUN in (node["metadata"].get("annotations") or {})
    return ours and (state_of(node) in states.UNDER_WAY or is_ours(dict(node))) or is_tainted(node)


def was_given_back(node: t.Mapping[str, t.Any]) -> bool:
    """Whether a rollout has failed on a node that it put back into service, since its host was not changed."""
    ours = states.RUN in (node["metadata"].get("annotations") or {})
    return ours and state_of(node) == states.FAILED and not is_tainted(node) and not is_ours(dict(node))


def not_back(cluster: Cluster, name: str, back: Back, node: Data | None = None) -> str:
    """Why a node does not offer its NPUs yet; empty when it does. It is asked for when it is not given."""
    node = node or cluster.get("v1", "Node", name)
    if node is None:
        return "it was deleted"
    if not node_ready(node):
        return "it is not Ready"
    missing = _not_offered(cluster, node, back)
    if missing:
        return missing
    pods = _our_pods(cluster, name, back.inputs["namespace"])
    away = _offer_again(back, node).difference(map(component_name, pods))
    if away:
        return "it has no pod of %s" % listed(sorted(away))
    waits = [pod_name(pod) for pod in pods if not pod_ready(pod) and component_name(pod) not in back.unready]
    return "not ready: %s" % listed(waits) if waits else ""


def _our_pods(cluster: Cluster, node: str, namespace: str) -> list[Data]:
    return cluster.list("v1", "Pod", namespace, SELECTOR, "spec.nodeName=" + node)


def _offering(inputs: Inputs, node: Data) -> list[str]:
    """The components of ours, by key, that offer the NPUs of a node."""
    rows = [row for row in wanted(inputs) if row.key in OFFER]
    return [row.key for row in rows if not left_out(inputs, row.key, row.name, node)]


def _offer_again(back: Back, node: Data) -> set[str]:
    """The components without whose pod what a node offers is no proof: it outlives the pod that we stopped.

    The slices of a DRA driver stay, and a kubelet reports the resource of a device plugin for ten seconds more.
    """
    if back.expected == 0:
        return set()
    mine = _offering(back.inputs, node)
    rows = [row for row in wanted(back.inputs) if row.key in mine and row.name not in back.unready]
    return {row.name for row in rows if row.key == DRA or row.name in back.stopped}


def _not_offered(cluster: Cluster, node: Data, back: Back) -> str:
    """What a node does not offer yet, by the component that offers its NPUs; where none is ours, by that of others."""
    if back.expected == 0:
        return ""
    name, resource = node["metadata"]["name"], back.inputs["resource_name"]
    mine = _offering(back.inputs, node)
    ours = any(row.key in OFFER for row in wanted(back.inputs))
    others = not ours and workload_of(back.inputs, node["metadata"].get("labels") or {}) == CONTAINER
    offered = allocatable_npus(node, resource)
    few = ""
    if (others or PLUGIN in mine) and offered < (1 if back.expected is None else back.expected):
        few = "%d %s allocatable, %s expected" % (offered, resource, number_text(back.expected))
    if few and not others:
        return few
    said = vfio_text(node, resource) if SANDBOX in mine else ""
    if few or (DRA in mine and SANDBOX not in mine):
        slices = list_served(cluster, *SLICE, fields="spec.nodeName=" + name)
        said = slices_text(name, back.expected, slices, back.inputs["dra_driver"]["driver_name"])
    # Others may offer them by a DRA driver of theirs.
    return said and (few or said.partition(" Next: ")[0].rstrip("."))
