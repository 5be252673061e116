# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The only writer of a node in a rollout: cordon, state, taint, gates, each change in one request."""

from __future__ import annotations

import datetime
import functools
import json
import time
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._cluster.api import ApiError, Cluster, Data
from .._nodes.labels import owned_labels
from .._nodes.marks import FORMER, MERGE, TRIES, WRITER, former, in_service, is_cordoned, is_ours, without_taint
from .._text.line import line
from . import states
from .outage import Clock, Sleep, patiently

T = t.TypeVar("T")
# Annotations by which autoscalers leave a node alone.
ALONE = ("cluster-autoscaler.kubernetes.io/scale-down-disabled", "karpenter.sh/do-not-disrupt")
_LONGEST = 500


class NodeWriter:
    """Changes one node for one run. Each change is judged on the node as it is at the moment of the write."""

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        run: str,
        now: t.Callable[[], datetime.datetime] = states.utc,
        clock: Clock = time.monotonic,
        sleep: Sleep = time.sleep,
    ) -> None:
        self.cluster, self.name, self.run = cluster, name, run
        self._now, self._clock, self._sleep = now, clock, sleep
        self._node: Data | None = None

    def read(self) -> Data:
        """The node as it is now. NpuError when it was deleted."""
        found: Data | None = self._patiently(functools.partial(self.cluster.get, "v1", "Node", self.name))
        if found is None:
            raise self._deleted()
        self._node = found
        return found

    def current(self) -> Data:
        """The node as this run has last seen it."""
        return self._node or self.read()

    def cordon(self, state: str, wave: int, upgrade_foreign: bool = False, components: t.Iterable[str] = ()) -> bool:
        """Take the node out of service with `state`; False when that had been done.

        `components` are those that will leave it: their open gates are noted in the same request. NpuError for a cordon
        of others, unless `upgrade_foreign`: then it stays theirs.
        """
        gates = [states.GATE_PREFIX + name for name in components]

        def judge(node: Data) -> Data | None:
            annotations = _annotations(node)
            closed = is_cordoned(node)
            ours = is_ours(node)
            if closed and not ours and not upgrade_foreign:
                raise NpuError(
                    "The node %s is cordoned, and not by this collection." % self.name,
                    f"Uncordon it, or set {states.ROLLOUT}foreign_cordon to upgrade, which leaves it cordoned.",
                )
            before = former(annotations.get(FORMER))
            alone = {key: "true" for key in ALONE if annotations.get(key) != "true"}
            for key in alone:
                before.setdefault(key, annotations.get(key))
            own = {
                states.RUN: self.run,
                states.WAVE: str(wave),
                states.REASON: None,
                states.CORDONED: "true" if ours or not closed else None,
                FORMER: json.dumps(before, sort_keys=True) if before else None,
                **_noted(node, [key for key in gates if _labels(node).get(key) == "true"]),
                **alone,
            }
            return _with_spec(self._patch(node, state, own), {} if closed else {"unschedulable": True})

        return self._change(judge, "Cordon node %s" % self.name, begins=True)

    def state(self, state: str, reason: str = "") -> bool:
        """Say what is being done now."""
        reasons = {states.REASON: line(reason, _LONGEST) if reason else None}
        return self._change(lambda node: self._patch(node, state, reasons), "Label node %s %s" % (self.name, state))

    def begin_host(self) -> None:
        """Say that its host changes now. NpuError where others uncordoned the node: it takes new pods."""

        def judge(node: Data) -> Data | None:
            if not is_cordoned(node):
                raise NpuError(
                    "The node %s was uncordoned by others, or created anew, while it was drained." % self.name,
                    "Find who uncordons it, such as another tool for upgrades or reboots, and run again.",
                )
            return self._patch(node, states.HOST, {states.REASON: None})

        if not self._change(judge, "Label node %s %s" % (self.name, states.HOST)):
            # Nothing was written, so nothing said that the node is as it was at the last look.
            judge(self.read())

    def done(self) -> bool:
        """After success: in service again when the cordon is ours; the state says so."""
        self.open_gates()
        return self._change(lambda node: self._end(node, states.DONE, ""), "Return node %s" % self.name)

    def works_again(self) -> bool:
        """What a node that was given back says of its failure is over: its host has nothing left to do."""

        def judge(node: Data) -> Data | None:
            failed = _labels(node).get(states.LABEL) == states.FAILED and not without_taint(node)
            return self._patch(node, states.DONE, {states.REASON: None}) if failed else None

        return self._change(judge, "Label node %s %s" % (self.name, states.DONE), begins=True)

    def give_back(self, reason: str) -> bool:
        """After a failure that changed nothing on the host: as it was before, with the reason.

        A node that an earlier failure keeps out of service stays out.
        """
        if without_taint(self.current()):
            return self.fail(reason)
        self.open_gates()
        return self._change(lambda node: self._end(node, states.FAILED, reason), "Return node %s" % self.name)

    def fail(self, reason: str) -> bool:
        """After a failure that changed the host, or may have: the node stays cordoned, with a taint and the reason."""

        def judge(node: Data) -> Data | None:
            own: Data = {states.REASON: line(reason, _LONGEST)}
            spec: Data = {}
            if not without_taint(node):
                at = _labels(node).get(states.LABEL) or states.FAILED
                spec["taints"] = [*_taints(node), {"key": states.FAILED_TAINT, "value": at, "effect": "NoSchedule"}]
            if not is_cordoned(node):
                spec["unschedulable"], own[states.CORDONED] = True, "true"
            return _with_spec(self._patch(node, states.FAILED, own), spec)

        return self._change(judge, "Keep node %s out of service" % self.name)

    def close_gates(self, components: t.Iterable[str]) -> bool:
        """Let these components of ours leave the node; their gates are noted on the node first."""
        keys = [states.GATE_PREFIX + name for name in components]

        def note(node: Data) -> Data | None:
            own = _noted(node, keys)
            theirs = {key: "false" for key in former(own.get(states.GATES)) if _is_theirs(node, key)}
            return self._patch(node, "", own, theirs)

        def close(node: Data) -> dict[str, str | None]:
            return dict.fromkeys(_kept_gates(node), "false")

        noted = self._change(note, "Close gates of node %s" % self.name)
        return self._apply_gates(close) or noted

    def open_gates(self) -> bool:
        """Let our components come back after the host part: each gate as before `close_gates`, and no taint of ours.

        The note of the gates stays until the end.
        """

        def judge(node: Data) -> Data | None:
            return _with_spec(self._patch(node, "", {}, _their_gates(node)), without_taint(node))

        opened = self._apply_gates(_kept_gates)
        return self._change(judge, "Open gates of node %s" % self.name) or opened

    def _apply_gates(self, wanted: t.Callable[[Data], dict[str, str | None]]) -> bool:
        """Give our gates these values, or remove those of None, as the manager that our labels of nodes have."""
        for _attempt in range(TRIES):
            node = self.current()
            live, mine = _labels(node), owned_labels(node)
            labels: dict[str, str | None] = {key: live[key] for key in mine if key in live}
            labels.update({key: value for key, value in wanted(node).items() if not _is_theirs(node, key)})
            after = {key: value for key, value in labels.items() if value is not None}
            if after == {key: live[key] for key in mine if key in live}:
                return False
            meta = {key: node["metadata"].get(key) for key in ("name", "uid", "resourceVersion")}
            item = {"apiVersion": "v1", "kind": "Node", "metadata": {**meta, "labels": after}}
            try:
                self._node = self._patiently(functools.partial(self.cluster.apply, item, False, False))[1]
                return True
            except ApiError as exc:
                if exc.status != 409:
                    raise
                self._node = None
        raise self._busy()

    def _end(self, node: Data, state: str, reason: str) -> Data | None:
        spec, back = in_service(node)
        own: dict[str, str | None] = {
            states.REASON: line(reason, _LONGEST) if reason else None,
            states.CORDONED: None,
            states.GATES: None,
            FORMER: None,
            **back,
        }
        return _with_spec(self._patch(node, state, own, _their_gates(node)), spec)

    def _patch(
        self, node: Data, state: str, own: t.Mapping[str, str | None], more: t.Mapping[str, str | None] | None = None
    ) -> Data | None:
        """The patch to this state, annotations and labels; None when the node has them. A new state gets its time."""
        labels: dict[str, str | None] = {**({states.LABEL: state} if state else {}), **(more or {})}
        annotations = dict(own)
        if state and _labels(node).get(states.LABEL) != state:
            annotations[states.SINCE] = states.stamp(self._now())
        if state and _annotations(node).get(states.RUN) != self.run:
            annotations[states.RUN] = self.run
        meta = {
            name: {key: value for key, value in wanted.items() if live.get(key) != value}
            for name, wanted, live in (
                ("labels", labels, _labels(node)),
                ("annotations", annotations, _annotations(node)),
            )
        }
        meta = {name: values for name, values in meta.items() if values}
        return {"metadata": meta} if meta else None

    def _change(self, judge: t.Callable[[Data], Data | None], what: str, begins: bool = False) -> bool:
        """Write what `judge` makes of the node; False for None. What others write meanwhile is judged again.

        NpuError when another run works on the node now. One that `begins` takes it over from the run that it has seen.
        """
        path = self.cluster.path("v1", "Node", "", self.name)
        before = {None, self.run, *([_annotations(self.current()).get(states.RUN)] if begins else [])}
        for _attempt in range(TRIES):
            node = self.current()
            run = _annotations(node).get(states.RUN)
            if run not in before:
                raise NpuError(
                    "Another run of the rollout has taken over the node %s: %s." % (self.name, line(run, 60)),
                    "Wait for its end, then run again.",
                )
            patch = judge(node)
            if patch is None:
                return False
            meta = {**patch.get("metadata", {}), "resourceVersion": node["metadata"]["resourceVersion"]}
            body = {**patch, "metadata": meta}
            try:
                ask = functools.partial(
                    self.cluster.request, "PATCH", path, what, {"fieldManager": WRITER}, body, MERGE
                )
                self._node = self._patiently(ask)[1]
                return True
            except ApiError as exc:
                if exc.status == 404:
                    raise self._deleted() from None
                if exc.status != 409:
                    raise
                self._node = None
        raise self._busy()

    def _patiently(self, ask: t.Callable[[], T]) -> T:
        return patiently(self.cluster, ask, self._clock, self._sleep)

    def _deleted(self) -> NpuError:
        return NpuError(
            "The node %s was deleted while the rollout worked on it." % self.name,
            "Join the host to the cluster again, then run again.",
        )

    def _busy(self) -> NpuError:
        return NpuError(
            "The node %s is written by others all the time: %d changes in a row were too late." % (self.name, TRIES),
            "Find who writes it: kubectl get node %s -o yaml --show-managed-fields." % self.name,
        )


def _with_spec(patch: Data | None, spec: Data) -> Data | None:
    return {**(patch or {}), "spec": spec} if spec else patch


def gates_to_close(node: t.Mapping[str, t.Any], components: t.Iterable[str], running: t.Collection[str]) -> list[str]:
    """The components, by name, whose gate is open on this node or whose pods are on it."""
    labels = _labels(node)
    return [name for name in components if name in running or labels.get(states.GATE_PREFIX + name) == "true"]


def _kept_gates(node: t.Mapping[str, t.Any]) -> dict[str, str | None]:
    """What the gates were before we closed them; None for one that was not there."""
    return former(_annotations(node).get(states.GATES))


def _noted(node: t.Mapping[str, t.Any], gates: t.Iterable[str]) -> dict[str, str | None]:
    """The annotation with the values of these gates besides those that it has; none for nothing to keep."""
    kept, labels = _kept_gates(node), _labels(node)
    for key in gates:
        if labels.get(key) != "false":
            kept[key] = labels.get(key)
    return {states.GATES: json.dumps(kept, sort_keys=True)} if kept else {}


def _their_gates(node: t.Mapping[str, t.Any]) -> dict[str, str | None]:
    """The former values of the gates that others have set."""
    return {key: value for key, value in _kept_gates(node).items() if _is_theirs(node, key)}


def _is_theirs(node: t.Mapping[str, t.Any], key: str) -> bool:
    """Whether a label was set by others: it is there, and not by the manager of our labels."""
    return key in _labels(node) and key not in owned_labels(dict(node))


def _labels(node: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    return dict(node["metadata"].get("labels") or {})


def _annotations(node: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    return dict(node["metadata"].get("annotations") or {})


def _taints(node: t.Mapping[str, t.Any]) -> list[Data]:
    return list((node.get("spec") or {}).get("taints") or [])
