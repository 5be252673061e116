# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""May a node begin now? Pure: from settings, the record, what the cluster shows, and the time.

Stamps are the wall clock of controllers. One that goes forward ends a soak early; of one that goes back, `settled`
sets stamps of the future to now, so a soak is at most as long again.
"""

from __future__ import annotations

import datetime
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._text.line import line
from .gates import Case, Refuse, Wait, gate, slots
from .record import NodeRecord, Record
from .settings import Settings
from .states import (
    ABORT,
    CORDON,
    DONE,
    FAILED,
    FINAL,
    HOLD,
    HOST,
    PAUSE,
    REBOOT,
    REQUIRED,
    ROLLOUT,
    SKIP,
    moment,
    stamp,
)
from .view import NodeView
from .window import opens

# Clocks of controllers may differ by this much.
SKEW = datetime.timedelta(minutes=1)


@dataclass(frozen=True)
class Begin:
    """It has a slot. `resume`: it was under way before. Without `cordon`, someone else's cordon stays."""

    wave: int
    resume: bool = False
    cordon: bool = True


@dataclass(frozen=True)
class Skip:
    """It is left as it is, and its host is no failure."""

    reason: str


Outcome = t.Union[Begin, Wait, Skip, Refuse]


@dataclass(frozen=True)
class Asks:
    """Who asks, and what it knows beside the record and the cluster.

    `held` and `approved` are what people say; `metrics` is what the query said, None when it was not asked or could not
    say. `lost` are nodes of this run that nobody works on any more; `waited` is for how many seconds this one has
    waited for others.
    """

    run: str
    held: str = ""
    approved: str = ""
    metrics: bool | None = None
    lost: t.Collection[str] = ()
    waited: float = 0.0


def ask(
    settings: t.Mapping[str, Settings],
    record: Record | None,
    view: t.Sequence[NodeView],
    node: str,
    now: datetime.datetime,
    by: Asks,
) -> tuple[Record | None, Outcome]:
    """What `may_begin` says, and the record in which the slot is taken. It is the same record when nothing changed."""
    if record is None:
        return None, Refuse(
            "The record of the rollout was deleted while the run went on.", "Run again: it reads the nodes' states."
        )
    if record.run == by.run:
        record = settled(record, now)
    entry, known = record.nodes.get(node), next((one for one in view if one.name == node), None)
    if entry and known and known.run != by.run:
        noted = entry.noted(known.state, known.run, now)
        record = record if noted is entry else _with(record, node, noted)
    outcome = may_begin(settings, record, view, node, now, by)
    if isinstance(outcome, Begin):
        return begun(record, node, now, by.run), outcome
    entry = record.nodes.get(node)
    if not isinstance(outcome, Skip) or not entry or entry.state != REQUIRED:
        return record, outcome
    kept = known and known.left_alone(settings[entry.pool])
    return (_without(record, node, entry) if kept else record), outcome


def may_begin(
    settings: t.Mapping[str, Settings],
    record: Record,
    view: t.Sequence[NodeView],
    node: str,
    now: datetime.datetime,
    by: Asks,
) -> Outcome:
    """Whether a node may begin now; nothing is changed."""
    seen = {one.name: one for one in view}
    entry = record.nodes.get(node)
    known = seen.get(node)
    cordon = known is None or not known.foreign
    if entry and entry.under_way and entry.run == by.run:
        return Begin(entry.wave, True, cordon)
    if record.run != by.run:
        return Refuse(f"The run {record.run} has taken over this rollout.", "Wait for its end, then run again.")
    if entry and entry.under_way:
        return Begin(entry.wave, True, cordon)
    if entry is None:
        return Skip(_left_out(known, settings))
    if entry.state == DONE:
        return Skip(f"It was upgraded at {entry.since}.")
    if entry.state == FAILED:
        return Refuse(f"Its upgrade failed: {entry.reason}", "Repair it and run again.")
    own = settings[entry.pool]
    if known is None:
        return Refuse("The cluster no longer has this node.", "Remove the host from the inventory, or join it again.")
    why = known.left_alone(own)
    if why:
        return Skip(f"The node {why}.")
    if own.last_wave and entry.wave > own.last_wave:
        return Skip(f"It is in wave {entry.wave}, and {ROLLOUT}last_wave is {own.last_wave}.")
    outcome = _judged(Case(own, record, seen, node, entry, frozenset(by.lost)), now, by)
    if outcome is None:
        return Begin(entry.wave, False, cordon)
    if not isinstance(outcome, Wait) or outcome.patient:
        return outcome
    if not own.slot_timeout:
        return replace(outcome, reason=f"{outcome.reason} (for ever: {ROLLOUT}slot_timeout is 0)")
    newest = max(record.started, *(one.since for one in record.nodes.values() if one.pool == entry.pool))
    idle = min(by.waited, (now - moment(newest)).total_seconds())
    if idle >= own.slot_timeout:
        return Refuse(
            f"No node began or ended for {idle:.0f} s: {outcome.reason}.",
            f"Remove the cause and run again, or raise {ROLLOUT}slot_timeout.",
        )
    return outcome


def _judged(case: Case, now: datetime.datetime, by: Asks) -> Wait | Refuse | None:
    """What is against it: first what ends it, then what passes. None: nothing."""
    found = [
        Refuse(
            f"The rollout was aborted: its ConfigMap has the label {HOLD}={ABORT}.", "Remove the label and run again."
        )
        if by.held == ABORT
        else None,
        _paused(by.held),
        *gate(case, now, by.approved),
        _window(case.settings, now),
        *slots(case),
    ]
    against = [one for one in found if one is not None]
    for kind in (Refuse, Wait):
        for one in against:
            if isinstance(one, kind):
                return one
    if case.settings.metrics and case.entry.wave > 1 and not by.metrics:
        said = "did not answer yet" if by.metrics is None else "says no"
        return Wait(f"the query of {ROLLOUT}metrics {said}", needs="metrics")
    return None


def _paused(held: str) -> Wait | None:
    """A word that nobody knows may be a misspelt one: to go on would be the worse mistake."""
    if held in ("", ABORT):
        return None
    odd = "" if held == PAUSE else f", which is neither {PAUSE} nor {ABORT}"
    return Wait(f"the rollout is paused: its ConfigMap has the label {HOLD}={held}{odd}", patient=True)


def _window(settings: Settings, now: datetime.datetime) -> Wait | None:
    until = opens(settings.window, now)
    return Wait(f"the maintenance window opens at {stamp(until)}", until, patient=True) if until else None


def _left_out(known: NodeView | None, settings: t.Mapping[str, Settings]) -> str:
    why = known.left_alone(settings[known.pool]) if known and known.pool in settings else ""
    return f"The node {why}." if why else f"It was left out before, by a cordon or by the label {SKIP}."


def begun(record: Record, node: str, now: datetime.datetime, run: str) -> Record:
    """The record with a slot for the node; one that is taken over keeps its state and its time."""
    entry = record.nodes[node]
    if entry.state == REBOOT:
        # It no longer waits for a person: it has a slot again, and how long the person took tells nothing of the next.
        entry = replace(entry, state=HOST, since=stamp(now))
        record = _with(record, node, entry)
    if entry.under_way:
        return (
            record
            if entry.run == run
            else _with(record, node, replace(entry, run=run, former=(*entry.former, entry.run)))
        )
    return _with(record, node, replace(entry, state=CORDON, since=stamp(now), reason="", run=run))


def ended(record: Record | None, node: str, state: str, reason: str, now: datetime.datetime, run: str) -> Record:
    """The record with the node done, failed, given back as REQUIRED (nothing was changed), or left at REBOOT.

    NpuError when another run has taken it over. A second time it changes nothing.
    """
    entry = record.nodes.get(node) if record else None
    if record is None or entry is None or entry.run != run:
        other = entry.run if entry and entry.run else "no record has it"
        raise NpuError(f"Another run has taken over the node {node}: {other}.", "Wait for its end, then run again.")
    if entry.state in FINAL:
        return record
    if not entry.wave:
        return replace(record, nodes={name: one for name, one in record.nodes.items() if name != node})
    if state == REQUIRED:
        return _with(record, node, NodeRecord(entry.pool, entry.wave))
    if state == REBOOT:
        return _with(record, node, replace(entry, state=state, since=stamp(now), reason=line(reason)))
    away = (now - moment(entry.since)).total_seconds()
    seconds = away if state == DONE and away >= 0 else None
    final = replace(entry, state=state, since=stamp(now), reason=line(reason), seconds=seconds, former=())
    return _with(record, node, final)


def abandoned(record: Record, node: str) -> frozenset[str]:
    """What a run that goes wave by wave has lost when it asks for this node: those before it that have not ended."""
    own = record.nodes.get(node)
    return frozenset(
        name
        for name, one in record.nodes.items()
        if own and one.pool == own.pool and 0 < one.wave < own.wave and one.state not in FINAL
        if not record.waits_for_reboot(one)
    )


def settled(record: Record, now: datetime.datetime) -> Record:
    """The record with no stamp in the future: a clock has gone back."""
    latest = stamp(now + SKEW)
    ahead = {
        name: replace(one, since=stamp(now))
        for name, one in record.nodes.items()
        if one.state in FINAL and one.since > latest
    }
    return replace(record, nodes={**record.nodes, **ahead}) if ahead else record


def _without(record: Record, node: str, entry: NodeRecord) -> Record:
    """The record without a node that was left alone: no wave waits for it, or takes it for a failure."""
    pool = record.pools[entry.pool]
    waves = tuple(tuple(name for name in wave if name != node) for wave in pool.waves)
    nodes = {name: one for name, one in record.nodes.items() if name != node}
    return replace(record, pools={**record.pools, entry.pool: replace(pool, waves=waves)}, nodes=nodes)


def _with(record: Record, node: str, entry: NodeRecord) -> Record:
    return replace(record, nodes={**record.nodes, node: entry})
