# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plans of all hosts and clusters of a run on one screen: equal plans once, the clusters, totals. Pure."""

from __future__ import annotations

import re
import typing as t
from collections import Counter
from dataclasses import dataclass, field

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import (
    DISRUPTIONS,
    EVICT,
    INFO,
    REBOOT,
    RESTART,
)

from .._objects.parts import GATE_PREFIX
from .._text.screen import BAD, CHANGE, DISRUPT, GOOD, TITLE, UNSURE, Line, some
from .words import MOST, WILL_FAIL, change, count, disruption, hosts, why

Data = t.Mapping[str, t.Any]
# A screen has some forty lines: more kinds of plan, labels or objects than these are counted.
MOST_GROUPS, MOST_LINES, MOST_NAMES = 8, 12, 8
# The code of all that is wrong on the controller: its text says which, and is the same for each host that it stops.
CONTROLLER = "controller"
# Characters of a text that somebody else has written.
LONGEST = 600
ACTIONS = {"created": "create", "changed": "change", "deleted": "remove"}
FAILED = ("failed", "not tried")
DISTURBED = {RESTART: "restart a container runtime", EVICT: "reload the driver", REBOOT: "reboot"}


@dataclass(frozen=True)
class HostPlan:
    """The plan of one host. `reboot` is the input driver_reboot; `error` says why there is no plan.

    `left` says why a rollout leaves the host as it is.
    """

    host: str
    steps: t.Sequence[Data] = ()
    stops: t.Sequence[Data] = ()
    cautions: t.Sequence[Data] = ()
    reboot: str = "never"
    error: str = ""
    left: str = ""


@dataclass(frozen=True)
class ClusterPlan:
    """What a dry run said of one cluster: {label of an object: action}, {host: record of its node}, errors by host."""

    name: str
    objects: t.Mapping[str, str] = field(default_factory=dict)
    nodes: t.Mapping[str, Data] = field(default_factory=dict)
    errors: t.Mapping[str, str] = field(default_factory=dict)
    warnings: t.Sequence[str] = ()

    @property
    def actions(self) -> Counter[str]:
        return Counter(self.objects.values())

    @property
    def relabelled(self) -> list[Data]:
        """Records of the nodes whose labels change; two hosts never have one node."""
        return [record for record in self.nodes.values() if record.get("changed")]

    @property
    def changes(self) -> bool:
        return bool(self.relabelled) or any(action in ACTIONS for action in self.objects.values())

    @property
    def refused(self) -> bool:
        return bool(self.errors) or any(action in FAILED for action in self.objects.values())


class Totals(t.TypedDict):
    """Hosts and objects counted."""

    hosts: int
    change: int
    unchanged: int
    left: int
    stopped: int
    unplanned: int
    clusters: int
    create: int
    modify: int
    remove: int
    label: int
    refused: int


def totals(plans: t.Sequence[HostPlan], clusters: t.Sequence[ClusterPlan]) -> Totals:
    """Each host counts once: a host that is stopped, or that a rollout leaves alone, changes nothing."""
    able = [plan for plan in plans if not plan.error and not plan.stops]
    going = [plan for plan in able if not plan.left]
    actions = sum((cluster.actions for cluster in clusters), Counter[str]())
    return {
        "hosts": len(plans),
        "change": sum(1 for plan in going if plan.steps),
        "unchanged": sum(1 for plan in going if not plan.steps),
        "left": len(able) - len(going),
        "stopped": sum(1 for plan in plans if plan.stops and not plan.error),
        "unplanned": sum(1 for plan in plans if plan.error),
        "clusters": len(clusters),
        "create": actions["created"],
        "modify": actions["changed"],
        "remove": actions["deleted"],
        "label": sum(len(cluster.relabelled) for cluster in clusters),
        "refused": sum(1 for cluster in clusters if cluster.refused),
    }


def pending(counted: Totals) -> bool:
    """Whether a run would change something."""
    return any(counted[name] for name in ("change", "create", "modify", "remove", "label"))


def screen(plans: t.Sequence[HostPlan], clusters: t.Sequence[ClusterPlan], more: str = "") -> list[Line]:
    """The lines of the screen. `more` says where what is only counted can be seen."""
    counted = totals(plans, clusters)
    title = f"Plan for {count(counted['hosts'], 'host')}"
    lines = [Line(title + (f" and {count(len(clusters), 'cluster')}" if clusters else ""), TITLE)]
    groups = _grouped(plans)
    for plan, names in groups[:MOST_GROUPS]:
        lines += [Line(""), *_group(plan, names)]
    left = [name for _plan, names in groups[MOST_GROUPS:] for name in names]
    if left:
        kinds = count(len(groups) - MOST_GROUPS, "more kind")
        lines += [Line(""), Line(f"{kinds} of plan for {count(len(left), 'host')}: {hosts(left)}.{more}", UNSURE)]
    for cluster in clusters[:MOST_GROUPS]:
        lines += [Line(""), *_cluster(cluster)]
    if len(clusters) > MOST_GROUPS:
        names = [cluster.name for cluster in clusters[MOST_GROUPS:]]
        lines += [Line(""), Line(f"{count(len(names), 'more cluster')}: {some(names, MOST)}.{more}", UNSURE)]
    return [*lines, Line(""), *_totals(counted, plans)]


def document(plans: t.Sequence[HostPlan], clusters: t.Sequence[ClusterPlan]) -> dict[str, t.Any]:
    """The same for programs, with every host by its name."""
    return {
        "hosts": {
            plan.host: {
                "steps": list(plan.steps),
                "stops": list(plan.stops),
                "cautions": list(plan.cautions),
                "error": plan.error,
            }
            for plan in plans
        },
        "clusters": {
            cluster.name: {
                "objects": dict(cluster.objects),
                "nodes": dict(cluster.nodes),
                "errors": dict(cluster.errors),
                "warnings": list(cluster.warnings),
            }
            for cluster in clusters
        },
        "totals": totals(plans, clusters),
    }


def _warnings(plan: HostPlan) -> list[Data]:
    return [item for item in plan.cautions if item["severity"] != INFO]


def _steps(plan: HostPlan) -> list[Line]:
    """A line for each step, in columns."""
    rows = [(str(step["component"]), change(step), step) for step in plan.steps]
    width = max((len(component) for component, _text, _step in rows), default=0)
    lines = []
    for component, text, step in rows:
        disturbs, reason = disruption(step, plan.reboot), why(step, len(rows) == 1)
        parts = [part for part in (f"  {component:<{width}}  {text}", disturbs and f"[{disturbs}]", reason) if part]
        style = BAD if step["wanted"] == WILL_FAIL else DISRUPT if disturbs else CHANGE
        lines.append(Line(_short("  ".join(parts)), style))
    return lines


def _key(plan: HostPlan) -> tuple[t.Any, ...]:
    """What hosts of one group have in common. Details of problems name devices of one host, so their codes count."""
    return (
        plan.error,
        plan.left,
        tuple(_steps(plan)),
        tuple(sorted(_kind(item) for item in plan.stops)),
        tuple(sorted(_kind(item) for item in _warnings(plan))),
    )


def _kind(item: Data) -> tuple[str, str]:
    return str(item["code"]), str(item["detail"]) if item["code"] == CONTROLLER else ""


def _grouped(plans: t.Sequence[HostPlan]) -> list[tuple[HostPlan, list[str]]]:
    """(the plan of the first host, hosts): what stops first, then what disturbs most, the bigger group first."""
    found: dict[tuple[t.Any, ...], tuple[HostPlan, list[str]]] = {}
    for plan in plans:
        found.setdefault(_key(plan), (plan, []))[1].append(plan.host)

    def rank(item: tuple[HostPlan, list[str]]) -> tuple[bool, bool, int, bool, int]:
        plan, names = item
        worst = max((DISRUPTIONS.index(step["disruption"]) for step in plan.steps), default=0)
        return (not plan.error, not plan.stops, -worst, not plan.steps, -len(names))

    return sorted(found.values(), key=rank)


def _group(plan: HostPlan, names: t.Sequence[str]) -> list[Line]:
    lines = [Line(f"{count(len(names), 'host')}: {hosts(names)}", TITLE)]
    if plan.error:
        return [*lines, Line(_short(f"  NO PLAN  {plan.error}"), BAD)]
    # The same problem on several hosts may name other devices there.
    on = f" (on {plan.host})" if len(names) > 1 else ""
    lines += [_problem("STOP", item, on, BAD) for item in plan.stops[:MOST_LINES]]
    if len(plan.stops) > MOST_LINES:
        lines.append(Line(f"  and {count(len(plan.stops) - MOST_LINES, 'more stop')}", BAD))
    if plan.stops and plan.steps:
        lines.append(Line("  Without the stop:"))
    elif plan.left:
        lines += [Line(_short(f"  LEFT  Its node {plan.left}."), UNSURE), Line("  Without that:")]
    lines += _steps(plan)
    warnings = _warnings(plan)
    lines += [_problem("NOTE", item, on, UNSURE) for item in warnings[:MOST_LINES]]
    if len(warnings) > MOST_LINES:
        lines.append(Line(f"  and {count(len(warnings) - MOST_LINES, 'more note')}", UNSURE))
    return lines if plan.steps or plan.stops else [*lines, Line("  nothing to do", GOOD)]


def _problem(word: str, item: Data, on: str, style: str) -> Line:
    step = f" Next: {item['next_step']}" if item["next_step"] else ""
    on = "" if item["code"] == CONTROLLER else on
    return Line(_short(f"  {word}  {item['code']}{on}: {item['detail']}{step}"), style)


def _cluster(cluster: ClusterPlan) -> list[Line]:
    lines = [Line(f"Cluster {cluster.name}", TITLE)]
    lines += _refusals(cluster)
    found: dict[tuple[str, str], list[str]] = {}
    for label, action in cluster.objects.items():
        kind, _space, name = label.partition(" ")
        found.setdefault((action, kind), []).append(name)
    for wanted in (*FAILED, *ACTIONS):
        lines += [
            Line(f"  {ACTIONS.get(action, 'REFUSED'):<7} {kind} {some(names, MOST_NAMES)}", _style(action))
            for (action, kind), names in sorted(found.items())
            if action == wanted
        ]
    lines += _labels(cluster)
    lines += [Line(_short(f"  NOTE  {text}"), UNSURE) for text in cluster.warnings[:MOST_LINES]]
    return lines if cluster.changes or cluster.refused else [*lines, Line("  nothing to do", GOOD)]


def _style(action: str) -> str:
    return BAD if action in FAILED else DISRUPT if action == "deleted" else CHANGE


def _refusals(cluster: ClusterPlan) -> list[Line]:
    """Why hosts of the cluster would fail, each reason once."""
    reasons: dict[str, list[str]] = {}
    for host, text in cluster.errors.items():
        # A message about one host begins with its name.
        reasons.setdefault(text.removeprefix(f"{host}: "), []).append(host)
    lines = [Line(_short(f"  STOP  {hosts(names)}: {text}"), BAD) for text, names in reasons.items()]
    left = len(lines) - MOST_LINES
    return lines[:MOST_LINES] + ([Line(f"  and {count(left, 'more stop')}", BAD)] if left > 0 else [])


def _labels(cluster: ClusterPlan) -> list[Line]:
    """The labels of nodes, equal changes once."""
    found: dict[str, list[str]] = {}
    for record in cluster.relabelled:
        found.setdefault(_label_change(record["before"], record["after"]), []).append(record["node"])
    rows = sorted(found.items(), key=lambda item: -len(item[1]))
    lines = [Line(f"  label   {count(len(names), 'node')} ({hosts(names)}): {text}", CHANGE) for text, names in rows]
    left = sum(len(names) for _text, names in rows[MOST_LINES:])
    return lines[:MOST_LINES] + ([Line(f"  label   {count(left, 'more node')}", CHANGE)] if left else [])


def _label_change(before: Data, after: Data) -> str:
    """The changed labels of a node in words: gates by what they open, others by name while they are few."""
    names = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    gates = [name for name in names if name.startswith(GATE_PREFIX)]
    plain = [name for name in names if name not in gates]
    opened = [name.removeprefix(GATE_PREFIX) for name in gates if after.get(name) == "true"]
    shut = [name.removeprefix(GATE_PREFIX) for name in gates if after.get(name) == "false"]
    gone = [name for name in names if name not in after]
    parts = []
    if gone and not after:
        return f"remove {count(len(gone), 'label')}"
    if len(plain) > 3:
        parts.append(count(len(plain), "label"))
    else:
        parts += [f"{name} {before.get(name, 'not set')} -> {after.get(name, 'not set')}" for name in plain]
    parts += [f"gate open for {', '.join(opened)}"] if opened else []
    parts += [f"gate closed for {', '.join(shut)}"] if shut else []
    removed = [name.removeprefix(GATE_PREFIX) for name in gates if name not in after]
    parts += [f"gate removed for {', '.join(removed)}"] if removed else []
    return "; ".join(parts)


def _totals(counted: Totals, plans: t.Sequence[HostPlan]) -> list[Line]:
    words = [
        f"{counted['change']} to change",
        f"{counted['unchanged']} as wanted",
        *([f"{counted['left']} left as they are"] if counted["left"] else []),
        *([f"{counted['stopped']} stopped"] if counted["stopped"] else []),
        *([f"{counted['unplanned']} without a plan"] if counted["unplanned"] else []),
    ]
    bad = counted["stopped"] or counted["unplanned"]
    lines = [Line(f"Hosts: {', '.join(words)}.", BAD if bad else CHANGE if counted["change"] else GOOD)]
    kinds = Counter(
        kind
        for plan in plans
        if not plan.stops and not plan.error and not plan.left
        for kind in {step["disruption"] for step in plan.steps}
        if kind in DISTURBED
    )
    if counted["change"]:
        told = [
            f"{count(kinds[kind], 'host')} {_verb(text, kinds[kind])}"
            for kind, text in DISTURBED.items()
            if kinds[kind]
        ]
        lines.append(Line(f"Disruption: {', '.join(told) or 'none'}.", DISRUPT if told else GOOD))
    if counted["clusters"]:
        text = (
            f"Clusters: {counted['create']} to create, {counted['modify']} to change, {counted['remove']} to remove, "
            f"{count(counted['label'], 'node')} to label"
        )
        refused = f"; {count(counted['refused'], 'cluster')} refused" if counted["refused"] else ""
        style = BAD if refused else CHANGE if pending({**counted, "change": 0}) else GOOD
        lines.append(Line(f"{text}{refused}.", style))
    return lines


def _verb(words: str, number: int) -> str:
    """`reload the driver` of one host is `reloads the driver`."""
    first, space, rest = words.partition(" ")
    return f"{first}s{space}{rest}" if number == 1 else words


def _short(text: str) -> str:
    line = re.sub(r"\s*\n\s*", " ", text.rstrip())
    return line if len(line) <= LONGEST else line[: LONGEST - 3] + "..."
