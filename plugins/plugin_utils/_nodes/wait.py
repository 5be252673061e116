# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The wait until each component is ready, or has failed, by its own deadline."""

from __future__ import annotations

import time
import typing as t
from dataclasses import dataclass, field

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._cluster.api import BUSY, TELL_EVERY, ApiError, Cluster, Data
from .._components.registry import component_of, wanted
from .._objects.inputs import Inputs
from .._objects.model import Component
from .._objects.names import OPERANDS
from .._objects.parts import SELECTOR, object_name
from .._objects.placement import selects
from .pods import Known, event_key, pod_node, pod_ready, problem_text
from .readiness import Allocatable, allocatable_text, discovered_text, endpoints_text, left_out, slices_text, vfio_text
from .records import NodeProblem, NodeRecord, Offer, PodProblem, Verdict, Waited, WaitProblem
from .revisions import Revisions
from .verdict import (
    DISCOVERED,
    HELD,
    OLD_POD,
    has_npu,
    judge_counters,
    judge_daemon_set,
    missing_pod,
    no_node,
)

# What no time helps may still be a moment of the server's own: caches that are behind, an object made anew.
FATAL_PATIENCE = 20.0
# Seconds after which all nodes are listed again where one outside of this run may hold an update.
LIST_AGAIN = 30.0
# More nodes than these are not asked for one by one.
SINGLE_NODES = 20
READY, FAILED, NOT_WAITED, PENDING = "ready", "failed", "not_waited", "pending"


@dataclass
class _State:
    """How far a component is, in seconds: `since` all it needs has ended, `fatal` since waiting does not help.

    `without` are the nodes that lack what it needs, and `because` tells why: only the other nodes are waited for.
    """

    row: Component
    sets: list[str]
    state: str = PENDING
    since: float | None = None
    fatal: float | None = None
    seconds: float = 0.0
    text: str = ""
    verdicts: list[Verdict] = field(default_factory=list)
    problems: list[NodeProblem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    without: set[str] = field(default_factory=set)
    because: str = ""
    must: set[str] = field(default_factory=set)


@dataclass
class _Look:
    """One look at the cluster; pods and events are asked for when they are needed."""

    sets: dict[str, Data]
    nodes: dict[str, Data]
    seconds: float
    pods: list[Data] | None = None
    events: list[Data] | None = None


class Waiter:
    """Looks repeatedly until every component has ended: ready, fatal for a while, or past its deadline.

    `objects` are those that were applied; `failures` maps a component whose objects were refused to the reason; `nodes`
    are the records of the hosts of this run. `tell` gets every TELL_EVERY seconds a line for each component that is
    waited for. `only` names one component.
    """

    def __init__(
        self,
        cluster: Cluster,
        inputs: Inputs,
        nodes: t.Mapping[str, NodeRecord],
        objects: t.Sequence[Data],
        failures: t.Mapping[str, str],
        clock: t.Callable[[], float] = time.monotonic,
        sleep: t.Callable[[float], None] = time.sleep,
        tell: t.Callable[[str], None] = lambda line: None,
        now: t.Callable[[], float] = time.time,
        only: str = "",
    ) -> None:
        self._cluster, self._inputs, self._clock, self._sleep = cluster, inputs, clock, sleep
        self._tell, self._now = tell, now
        self._told_at = 0.0
        # Events of the first look with events: others came since.
        self._old_events: set[str] | None = None
        # When all nodes were listed, and whether a node outside of this run may hold what is waited for.
        self._listed, self._again = 0.0, False
        self._revisions = Revisions(cluster, inputs["namespace"])
        self._hosts = {record["node"]: record for record in nodes.values() if record["node"] and not record["error"]}
        self._allocatable = Allocatable(inputs["resource_name"])
        self._offers: dict[str, Offer] = {}
        self._nodes: dict[str, Data] = {}
        sets: dict[str, list[str]] = {}
        for item in objects:
            if item["kind"] == "DaemonSet":
                sets.setdefault(component_of(item), []).append(item["metadata"]["name"])
        rows = [row for row in wanted(inputs) if row.pods and only in ("", row.key)]
        self._states = {row.key: _State(row, sets.get(row.key, [])) for row in rows}
        # Components without pods and components no longer wanted are not waited for, but their failure counts.
        self._refused = {key: reason for key, reason in failures.items() if key not in self._states}
        for key, reason in failures.items():
            if key in self._states:
                self._end(self._states[key], FAILED, 0.0, reason)

    def run(self) -> Waited:
        """Wait; the result tells how each component ended."""
        start = seen = self._clock()
        while True:
            seconds = self._clock() - start
            failed = ""
            try:
                self._pass(seconds)
                seen = self._clock()
            except NpuError as exc:
                # A server that restarts or is busy is waited for, like pods.
                fatal = isinstance(exc, ApiError) and exc.status not in BUSY
                if fatal or self._clock() - seen >= self._inputs["wait_timeout"]:
                    raise
                waited, limit = self._clock() - seen, self._inputs["wait_timeout"]
                failed = "API server: waiting, %d of %d s: %s" % (waited, limit, exc.message)
            if seconds - self._told_at >= TELL_EVERY:
                self._told_at = seconds
                for text in [failed] if failed else self._waits(seconds):
                    self._tell(text)
            if all(one.state != PENDING for one in self._states.values()):
                return self._result(round(self._clock() - start, 1))
            self._sleep(self._inputs["wait_delay"])

    def _pass(self, seconds: float) -> None:
        look: _Look | None = None
        for one in self._states.values():
            if one.state != PENDING or not self._may_start(one, seconds):
                continue
            look = look or self._look(seconds)
            self._judge(one, look)
            if not one.problems:
                self._end(one, READY, seconds, "")
                continue
            one.fatal = (
                (one.fatal if one.fatal is not None else seconds)
                if all(problem["fatal"] for problem in one.problems)
                else None
            )
            if seconds - (one.since or 0.0) >= self._deadline(one.row) or (
                one.fatal is not None and seconds - one.fatal >= FATAL_PATIENCE
            ):
                self._end(one, FAILED, seconds, "; ".join(problem["text"] for problem in one.problems))

    def _waits(self, seconds: float) -> list[str]:
        """What is waited for: of each component how many of how many nodes, how long, and why."""
        lines = []
        behind = [one.row.name for one in self._states.values() if one.state == PENDING and one.since is None]
        for one in self._states.values():
            if one.state != PENDING or one.since is None:
                continue
            bad = {problem["node"] for problem in one.problems}
            ready = "0" if "" in bad else str(len(one.must - bad))
            causes: dict[str, list[NodeProblem]] = {}
            for problem in one.problems:
                causes.setdefault(problem["cause"], []).append(problem)
            why = [
                problems[0]["text"] + (" (and on %d more)" % (len(problems) - 1) if len(problems) > 1 else "")
                for problems in sorted(causes.values(), key=len, reverse=True)
            ]
            count = "%s: %s of %d nodes ready" % (one.row.name, ready, len(one.must))
            waited = "%d of %d s" % (seconds - one.since, self._deadline(one.row))
            lines.append("%s, %s: %s" % (count, waited, " | ".join(why[:3])))
        if behind:
            lines.append("not begun: %s" % ", ".join(behind))
        return lines

    def _may_start(self, one: _State, seconds: float) -> bool:
        """Whether everything that the component needs has ended; then its clock starts.

        It ends itself when one of them failed everywhere.
        """
        needs = [self._states[key] for key in one.row.needs if key in self._states]
        broken = [need.row.key for need in needs if need.state in (FAILED, NOT_WAITED)]
        nodes = {problem["node"] for key in broken for problem in self._states[key].problems}
        because = "not waited for, because it needs %s" % " and ".join(broken)
        if "" in nodes:
            self._end(one, NOT_WAITED, seconds, because)
            one.problems = [{**one.problems[0], "node": node} for node in sorted(nodes)]
        elif one.since is None and all(need.state != PENDING for need in needs):
            one.since, one.without, one.because = seconds, nodes, because
        return one.state == PENDING and one.since is not None

    @staticmethod
    def _end(one: _State, state: str, seconds: float, text: str) -> None:
        one.state, one.seconds, one.text = state, round(seconds, 1), text
        if state != READY and not one.problems:
            one.problems = [_problem("", "%s: %s" % (one.row.name, text), state, True)]
        if one.without:
            if state == READY:
                one.state, one.text = NOT_WAITED, one.because
            one.problems += [
                _problem(node, "%s: %s" % (one.row.name, one.because), NOT_WAITED, True) for node in sorted(one.without)
            ]

    def _deadline(self, row: Component) -> float:
        return float(int(self._inputs["deadlines"].get(row.key) or 0) or row.deadline or self._inputs["wait_timeout"])

    def _look(self, seconds: float) -> _Look:
        namespace = self._inputs["namespace"]
        sets = {
            item["metadata"]["name"]: item for item in self._cluster.list("apps/v1", "DaemonSet", namespace, SELECTOR)
        }
        few = len(self._hosts) <= SINGLE_NODES and self._inputs["wait_scope"] == "run"
        again = self._again and seconds - self._listed >= LIST_AGAIN
        if not self._nodes or not few or again:
            self._listed = seconds
            self._nodes = {item["metadata"]["name"]: item for item in self._cluster.list("v1", "Node")}
        else:
            live = {name: self._cluster.get("v1", "Node", name) for name in self._hosts}
            self._nodes = {name: found for name, found in {**self._nodes, **live}.items() if found}
        self._again = False
        return _Look(sets, self._nodes, seconds)

    def _known(self, look: _Look) -> Known:
        """What a verdict has to know beside the objects."""
        unlabelled = not self._inputs["node_labels"] or any(one["expected"] is None for one in self._hosts.values())
        discovery = unlabelled or any(
            key.startswith(DISCOVERED) for node in look.nodes.values() for key in node["metadata"].get("labels") or {}
        )
        keys = {event_key(event) for event in look.events or ()}
        return Known(self._now(), discovery, keys - (self._old_events or set()), self._revisions.of(look.sets))

    def _events(self, look: _Look) -> list[Data]:
        if look.events is None:
            look.events = self._cluster.list("v1", "Event", self._inputs["namespace"], fields="type=Warning")
            if self._old_events is None:
                self._old_events = {event_key(event) for event in look.events}
        return look.events

    def _pods(self, look: _Look) -> list[Data]:
        if look.pods is None:
            look.pods = self._cluster.list("v1", "Pod", self._inputs["namespace"], SELECTOR)
        return look.pods

    def _judge(self, one: _State, look: _Look) -> None:
        """Verdicts, problems and warnings of a component at this look."""
        one.verdicts, one.problems, one.warnings = [], [], []
        must, told = self._must(one.row, look)
        must -= one.without
        one.must = must
        one.warnings += told
        sets = [look.sets[name] for name in one.sets if name in look.sets]
        for name in one.sets:
            if name not in look.sets:
                text = "The DaemonSet %s does not exist. Next: Run again." % name
                one.problems.append(_problem("", text, "NoDaemonSet", True))
        covered: set[str] = set()
        for item in sets:
            spec = item["spec"]["template"]["spec"]
            mine = {name for name in must if name in look.nodes and selects(spec, look.nodes[name])}
            twice = "node %s: two DaemonSets of %s select it, one is %s. Next: Correct their selectors."
            for name in sorted(mine & covered):
                text = twice % (name, one.row.name, item["metadata"]["name"])
                one.problems.append(_problem(name, text, "TwoDaemonSets", True))
            covered |= mine
            if len(sets) > 1 and not mine:
                # It selects no node of this run, but its counts are part of the result.
                one.verdicts.append(judge_daemon_set(item, [], [], [], mine))
                continue
            self._verdict(one, item, mine if len(sets) > 1 else must, look)
        for name in sorted(must - covered) if len(sets) != 1 else ():
            node = look.nodes.get(name)
            if node is None:
                self._explain(one, no_node(name), one.row.name)
            elif sets:
                self._explain(one, missing_pod(sets[0], node, self._known(look)), one.row.name)
        if not one.sets and must and one.row.key == "driver":
            names = ", ".join(sorted(must)[:10])
            text = "driver: no pool is known for %s. Next: Label these nodes, or name their pools." % names
            one.problems.append(_problem("", text, "NoPool", True))
        if self._inputs["wait_scope"] == "cluster" and not any(has_npu(node) for node in look.nodes.values()):
            text = (
                f"{one.row.name}: no node of the cluster has an NPU label. "
                f"Next: Label the nodes ({OPERANDS}node_labels), or run Node Feature Discovery."
            )
            one.problems.append(_problem("", text, "NoNodes", not self._known(look).discovery))
        self._prove(one, must, look)

    def _must(self, row: Component, look: _Look) -> tuple[set[str], list[str]]:
        """The nodes that must have the component, of this run or of the cluster; and why others are left out."""
        if self._inputs["wait_scope"] == "cluster":
            names = [name for name, node in look.nodes.items() if has_npu(node)]
        else:
            names = [
                name for name, record in self._hosts.items() if record["expected"] is None or record["expected"] > 0
            ]
        must: set[str] = set()
        told: list[str] = []
        for name in names:
            why = left_out(self._inputs, row.key, row.name, look.nodes[name]) if name in look.nodes else ""
            if why and self._inputs["wait_scope"] == "run":
                told.append("%s on node %s: not expected, %s." % (row.name, name, why))
            if not why:
                must.add(name)
        return must, told

    def _verdict(self, one: _State, item: Data, scope: set[str], look: _Look) -> None:
        """Judge one DaemonSet: by its counters, else by its pods, and by events only when something is wrong."""
        nodes = list(look.nodes.values())
        verdict = judge_counters(item, scope, look.nodes) if scope else None
        if verdict is None:
            known = Known(revisions=self._revisions.of(look.sets))
            verdict = judge_daemon_set(item, self._pods(look), [], nodes, scope, known)
            told = [*verdict["problems"], *verdict["warnings"]]
            if any(one["reason"] in (OLD_POD, HELD) for one in told) and self._revisions.ask(item, look.sets):
                known = Known(revisions=self._revisions.of(look.sets))
                verdict = judge_daemon_set(item, self._pods(look), [], nodes, scope, known)
            if verdict["problems"]:
                events = self._events(look)
                verdict = judge_daemon_set(item, self._pods(look), events, nodes, scope, self._known(look))
        one.verdicts.append(verdict)
        for problem in verdict["problems"]:
            self._explain(one, problem, verdict["name"])
            self._again = self._again or problem["reason"] in (HELD, OLD_POD)
        one.warnings += [problem_text(warning, verdict["name"]) for warning in verdict["warnings"]]

    @staticmethod
    def _explain(one: _State, problem: PodProblem, name: str) -> None:
        one.problems.append(_problem(problem["node"], problem_text(problem, name), problem["reason"], problem["fatal"]))

    def _prove(self, one: _State, must: set[str], look: _Look) -> None:
        """What the component proves beyond its pods, on the nodes of this run."""
        plugin = one.row.key == "device_plugin"
        known = {name: record["expected"] for name, record in self._hosts.items() if name in look.nodes}
        mine = {
            name: expected
            for name, expected in known.items()
            if expected is not None and (name in must or (plugin and expected == 0 and name not in one.without))
        }
        if plugin:
            self._prove_allocatable(one, mine, look)
        if one.problems or not one.sets:
            return
        for name, text in self._lacking(one, must, mine, look).items():
            if text:
                one.problems.append(_problem(name, text, "NotProven"))

    def _prove_allocatable(self, one: _State, expected: t.Mapping[str, int], look: _Look) -> None:
        """Compare the allocatable NPUs of nodes with the expected ones, where nothing else is wrong."""
        explained = {problem["node"] for problem in one.problems}
        # Without problems and without a list of pods the counters have said that every pod is ready.
        ready: set[str] | None = None
        # Where the operator's plugin runs, no pod is ours.
        if one.sets and (one.problems or look.pods is not None):
            ready = {pod_node(pod) for pod in self._pods(look) if _runs(pod, one.row.name)}
        self._offers = {
            name: self._allocatable.look(look.nodes[name], number, ready is None or name in ready, look.seconds)
            for name, number in expected.items()
        }
        for name, offer in self._offers.items():
            if not offer["settled"] and name not in explained:
                text = allocatable_text(name, offer, self._inputs["resource_name"])
                one.problems.append(_problem(name, text, "NotAllocatable" if offer["plugin_ready"] else "NotReady"))

    def _lacking(
        self, one: _State, must: t.Collection[str], expected: t.Mapping[str, int], look: _Look
    ) -> dict[str, str]:
        """{node, or "" for the whole cluster: what is missing, or ""} of a component with its own proof."""
        key, inputs = one.row.key, self._inputs
        if key == "sandbox_device_plugin":
            return {name: vfio_text(look.nodes[name], inputs["resource_name"]) for name in must}
        if key == "dra_driver":
            slices = self._cluster.list("resource.k8s.io/v1", "ResourceSlice")
            driver = inputs["dra_driver"]["driver_name"]
            return {name: slices_text(name, number, slices, driver) for name, number in expected.items()}
        if key == "feature_discovery":
            return {name: discovered_text(look.nodes[name]) for name in must}
        if key == "metrics_exporter" and inputs["metrics_exporter"]["service"]["enabled"] and must:
            service = object_name(inputs, one.row.name)
            chosen = "kubernetes.io/service-name=" + service
            found = self._cluster.list("discovery.k8s.io/v1", "EndpointSlice", inputs["namespace"], chosen)
            return {"": endpoints_text(service, found)}
        return {}

    def _result(self, seconds: float) -> Waited:
        states = self._states.values()
        problems: list[WaitProblem] = [
            {"component": one.row.key, "node": problem["node"], "text": problem["text"], "fatal": problem["fatal"]}
            for one in states
            if one.state in (FAILED, NOT_WAITED)
            for problem in one.problems
        ]
        problems += [
            {"component": key, "node": "", "text": "%s: %s" % (key, reason), "fatal": True}
            for key, reason in self._refused.items()
        ]
        return {
            "ok": not problems,
            "fatal": bool(problems) and all(problem["fatal"] for problem in problems),
            "components": {
                key: {
                    "state": one.state,
                    "seconds": one.seconds,
                    "desired": sum(verdict["desired"] for verdict in one.verdicts),
                    "ready": sum(verdict["ready"] for verdict in one.verdicts),
                    "text": one.text,
                }
                for key, one in self._states.items()
            },
            "daemonsets": [verdict for one in states for verdict in one.verdicts],
            "allocatable": self._offers,
            "problems": problems,
            "warnings": [warning for one in states for warning in one.warnings],
            "seconds": seconds,
            "nodes": sorted(self._nodes),
            "judged": sorted(self._nodes if self._inputs["wait_scope"] == "cluster" else self._hosts),
        }


def _problem(node: str, text: str, cause: str, fatal: bool = False) -> NodeProblem:
    return {"node": node, "text": text, "fatal": fatal, "cause": cause}


def _runs(pod: Data, component: str) -> bool:
    return pod_ready(pod) and pod["metadata"]["labels"].get("app.kubernetes.io/component") == component
