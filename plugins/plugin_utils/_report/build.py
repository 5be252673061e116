# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The document of a run. Pure."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from .._nodes.overview import HostState, node_words
from .._plan.words import change, natural
from .._text.line import line
from . import document as doc
from .document import ClusterPart, Document, Failure, Host, Made, Planned, Turn, judged
from .look import results
from .run import HostLog, Run
from .totals import pools, summary
from .waves import NEVER, waves
from .words import LONGEST, parted, shown, text, when

# Errors of a cluster that are told.
ERRORS = 20


@dataclass(frozen=True)
class Stats:
    """How Ansible counts the hosts at the end; none where it was aborted."""

    failed: t.Collection[str] = ()
    unreachable: t.Collection[str] = ()


@dataclass
class About:
    """What of a run is no event."""

    by: str = ""
    job: str = ""
    playbook: str = ""
    limit: str = ""
    tags: t.Sequence[str] = ()
    skip_tags: t.Sequence[str] = ()
    version: str = ""
    core: str = ""
    notes: list[str] = field(default_factory=list)


def document(run: Run, about: About, stats: Stats | None, now: float) -> Document:
    """The report of a run; without `stats` it was aborted."""
    names = shown(run.hosts)
    hosts = [_host(name, names[name], run, stats) for name in sorted(run.hosts, key=natural)]
    clusters = _clusters(run)
    made: Made = {
        "at": when(now), "began": when(run.began), "seconds": round(max(0.0, now - run.began), 1), "run": run.id,
        "by": about.by, "job": about.job, "playbook": about.playbook, "check": run.foretells, "limit": about.limit,
        "tags": list(about.tags), "skip_tags": list(about.skip_tags),
        "ended": doc.ABORTED if stats is None else doc.WHOLE, "source": doc.OF_RUN, "version": about.version,
        "core": about.core,
    }  # fmt: skip
    return whole(made, hosts, clusters, waves(run, hosts, names), run.clock.timings(now), about.notes)


def whole(
    made: Made,
    hosts: list[Host],
    clusters: list[ClusterPart],
    waves: list[Turn],
    timings: doc.Timings,
    notes: t.Sequence[str],
) -> Document:
    """The parts as a document, counted, its texts clean; not yet compared."""
    made = {**made, "limit": text(made["limit"])}
    return judged(
        {
            "schema": doc.SCHEMA,
            "made": made,
            "summary": summary(hosts, clusters, None),
            "pools": pools(hosts),
            "hosts": hosts,
            "waves": waves,
            "clusters": clusters,
            "timings": timings,
            "compared": None,
            "notes": [text(note) for note in notes],
        }
    )


def host_entry(name: str, one: HostLog) -> Host:
    """A host as it was seen, and what a run would do to it; its state is still to be judged."""
    look, node = one.look, one.node
    others = list(look.checks)
    if node:
        others += results(HostState(name, node=t.cast("t.Any", node)))
    return {
        "name": name,
        "state": doc.OK,
        "reason": "",
        "pool": look.pool,
        "node": _node(one),
        "node_state": _node_state(one),
        "seen": when(one.seen),
        "npus": look.npus,
        "products": dict(sorted(look.products.items())),
        "versions": {what: line(look.versions[what], LONGEST) for what in doc.VERSIONS},
        "wanted": {"driver": str(one.plan.get("version") or "")},
        "checks": {
            "passed": sorted(look.passed),
            "others": [
                {**check, "detail": text(check["detail"]), "next_step": text(check["next_step"])} for check in others
            ],
        },
        "planned": [_step(step) for step in one.plan["steps"]] if one.plan else None,
        "changes": [text(made) for made in one.changes],
        "failure": None,
        "drift": [],
        "not_known": [],
        "seconds": None,
    }


def _node(one: HostLog) -> str:
    judged_node = (one.judged.get("node") or {}).get("node")
    return line(one.node.get("node") or judged_node or "", 255)


def _node_state(one: HostLog) -> str:
    if one.node:
        return node_words(t.cast("t.Any", one.node))
    offer = one.judged.get("allocatable") or {}
    return f"{offer['allocatable']} of {offer['expected']} allocatable" if offer.get("expected") is not None else ""


def _step(step: t.Mapping[str, t.Any]) -> Planned:
    return {"text": text(f"{step['component']}: {change(step)}"), "disruption": step["disruption"]}


def _host(name: str, told: str, run: Run, stats: Stats | None) -> Host:
    one = run.hosts[name]
    found = host_entry(told, one)
    found["seconds"] = round(run.clock.busy.get(name, 0.0), 1)
    found["failure"] = _failure(name, one, stats)
    found["state"], found["reason"] = _state(one, found, run, stats)
    return found


def _failure(name: str, one: HostLog, stats: Stats | None) -> Failure | None:
    if stats is not None and name not in stats.failed and name not in stats.unreachable and not one.kept:
        return None
    if one.left_alone and not one.kept:
        return None
    task, told = one.kept or one.failed or ("", "")
    if told and told == one.judged.get("error"):
        # The last play repeats it.
        task = str(one.judged["task"])
    stops = [] if one.kept else one.plan.get("stops") or []
    if stops:
        more = f" (and {len(stops) - 1} more)" if len(stops) > 1 else ""
        return {"task": "Plan", "cause": text(stops[0]["detail"]) + more, "next_step": text(stops[0]["next_step"])}
    if not told:
        # Aborted before anything has failed, or Ansible has counted what no task told.
        return None if stats is None else {"task": task, "cause": "It failed without a message.", "next_step": ""}
    cause, step = parted(told)
    return {"task": line(task, 200), "cause": cause, "next_step": step}


def _state(one: HostLog, found: Host, run: Run, stats: Stats | None) -> tuple[str, str]:
    """(state, why) of a host, the worst first."""
    failure = found["failure"]
    if failure is not None:
        state = doc.UNREACHABLE if one.unreachable and not one.begun else doc.FAILED
        return state, f"{failure['task']}: {failure['cause']}" if failure["task"] else failure["cause"]
    if not one.results:
        return doc.NOT_REACHED, "The run ended before it." if stats is None else "No task has run on it."
    if one.left_alone:
        return doc.NOT_REACHED, parted(one.failed[1] if one.failed else NEVER)[0]
    if one.left and not one.left.get("goes") and not run.foretells:
        return doc.NOT_REACHED, parted(str(one.left.get("msg") or NEVER))[0]
    if stats is None and found["planned"] and not run.foretells and not one.proven:
        if one.begun:
            return doc.UNKNOWN, "The run was aborted while it changed this host."
        return doc.NOT_REACHED, "The run was aborted before it changed this host."
    if one.wrong and not one.look.seen:
        return doc.UNKNOWN, text(one.wrong)
    if one.changed is not None and one.changed > (one.seen or 0):
        # Its checks are older than the change.
        return doc.CHANGED, "A reboot is due." if one.reboot else ""
    if not one.look.seen and not one.changes:
        why = (
            f"{one.ignored[0]}: {parted(one.ignored[1])[0]}" if one.ignored else "No task of this run has looked at it."
        )
        return doc.NOT_SEEN, text(why)
    return judge(found, doc.CHANGED if one.changes else doc.OK)


def judge(found: Host, good: str) -> tuple[str, str]:
    """(state, why) by the checks of a host that nothing else speaks against."""
    for result, state in ((doc.FAILED, doc.FAILED), (doc.UNKNOWN, doc.UNKNOWN)):
        ids = [check["id"] for check in found["checks"]["others"] if check["result"] == result]
        if ids:
            more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
            return state, f"{', '.join(ids[:3])}{more}: {'failed' if state == doc.FAILED else 'not known'}."
    return good, ""


def _clusters(run: Run) -> list[ClusterPart]:
    """The clusters that hosts are of, with what the work on each has done, or would do."""
    members: dict[str, list[str]] = {}
    for name, one in run.hosts.items():
        if one.cluster:
            members.setdefault(one.cluster, []).append(name)
    return [_cluster(cluster, members[cluster], run) for cluster in sorted(members)]


def _cluster(cluster: str, members: t.Sequence[str], run: Run) -> ClusterPart:
    objects: dict[str, str] = {}
    for name in members:
        objects.update((run.works.get(name) or {}).get("objects") or {})
    errors = dict.fromkeys(text(run.hosts[name].judged.get("error") or "") for name in members)
    told: list[doc.Object] = [
        {"object": line(label, LONGEST), "action": action}
        for label, action in sorted(objects.items())
        if action != "unchanged"
    ]
    return {
        "name": line(cluster, LONGEST),
        "hosts": len(members),
        "objects": told,
        "drift": [],
        "unchanged": len(objects) - len(told),
        "errors": [error for error in errors if error][:ERRORS],
    }
