# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What keeps a node that is to be upgraded from its turn: the waves before it, failures, slots. Pure."""

from __future__ import annotations

import datetime
import typing as t
from dataclasses import dataclass

from .record import NodeRecord, Record
from .settings import Settings, share
from .states import APPROVED, FAILED, FINAL, JOBS, REQUIRED, ROLLOUT, moment, stamp
from .view import NodeView

_NAMED = 5


@dataclass(frozen=True)
class Wait:
    """It can begin later, at `until` where that is known. `needs` is "metrics" when only the query is missing.

    `patient` is a wait that has its own end, or that a person asked for: no limit ends it. `nodes` are those under way
    that it waits for.
    """

    reason: str
    until: datetime.datetime | None = None
    needs: str = ""
    patient: bool = False
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refuse:
    """It cannot begin in this run: its host fails with this."""

    reason: str
    next_step: str


@dataclass(frozen=True)
class Case:
    """A node that is to do, and all that is known beside it."""

    settings: Settings
    record: Record
    seen: t.Mapping[str, NodeView]
    node: str
    entry: NodeRecord
    lost: frozenset[str]

    def failed(self, name: str, one: NodeRecord) -> bool:
        return one.state == FAILED or name in self.lost and one.state not in FINAL

    def waits(self, reason: str, nodes: t.Iterable[str]) -> Wait:
        """For these nodes. One that waits for its jobs does so as long as it may by itself."""
        working = tuple(name for name in nodes if self.record.nodes[name].under_way)
        jobs = any(self.seen[name].state == JOBS for name in working if name in self.seen)
        return Wait(reason, patient=jobs, nodes=working)

    def left_alone(self, name: str) -> bool:
        known = self.seen.get(name)
        return known is None or bool(known.left_alone(self.settings))


def named(names: t.Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def gate(case: Case, now: datetime.datetime, approved: str) -> list[Wait | Refuse]:
    """What the node's own wave and those before it say."""
    found: list[Wait | Refuse] = []
    last = ""
    for number in range(1, case.entry.wave + 1):
        nodes = case.record.of_wave(case.entry.pool, number)
        failed = [name for name, one in nodes.items() if case.failed(name, one)]
        budget = share(case.settings.failure_budget, len(nodes))
        if budget and len(failed) >= budget:
            found.append(_spent(case, number, failed))
        if number == case.entry.wave:
            break
        reboot = [name for name, one in nodes.items() if case.record.waits_for_reboot(one)]
        if reboot:
            found.append(
                Refuse(
                    f"Wave {number} is not proven yet: {named(reboot)} has to be rebooted by a person.",
                    f"Reboot {reboot[0]} and run again.",
                )
            )
        due = [name for name, one in nodes.items() if name not in failed and _due(case, name, one)]
        if due:
            found.append(case.waits(f"wave {number} has not ended: {named(due)}", due))
        elif not failed and all(one.state == REQUIRED for one in nodes.values()):
            found.append(
                Refuse(
                    f"Wave {number} proved nothing: all its nodes were left alone.",
                    "Run again: the waves are then cut without them.",
                )
            )
        last = max([last, *(one.since for one in nodes.values())])
    if case.entry.wave > 1:
        found += _between(case, now, last, approved)
    return found


def _due(case: Case, name: str, one: NodeRecord) -> bool:
    if one.under_way:
        return not case.record.waits_for_reboot(one)
    return one.state == REQUIRED and not case.left_alone(name)


def _spent(case: Case, number: int, failed: t.Sequence[str]) -> Refuse:
    first = failed[0]
    why = case.record.nodes[first].reason or "the run lost it"
    return Refuse(
        f"The rollout has stopped: in wave {number}, {named(failed)} failed, as many as {ROLLOUT}failure_budget"
        f" ({case.settings.failure_budget}) allows. {first}: {why}",
        f"Repair {first} and run again: failed nodes are tried first.",
    )


def _between(case: Case, now: datetime.datetime, last: str, approved: str) -> list[Wait | Refuse]:
    """`last` is when the last node of an earlier wave began or ended."""
    found: list[Wait | Refuse] = []
    soak = datetime.timedelta(seconds=case.settings.soak)
    rest = min(moment(last) + soak - now, soak) if soak and last else datetime.timedelta()
    if rest > datetime.timedelta():
        found.append(Wait(f"wave {case.entry.wave - 1} soaks until {stamp(now + rest)}", now + rest, patient=True))
    if case.settings.approval and not _approves(approved, case.entry.wave):
        what = f"wave {case.entry.wave} is not approved: annotate the ConfigMap with {APPROVED}={case.entry.wave}"
        found.append(Wait(what, patient=True))
    return found


def _approves(text: str, wave: int) -> bool:
    words = set(text.replace(",", " ").lower().split())
    return "all" in words or str(wave) in words


def slots(case: Case) -> list[Wait | Refuse]:
    """Whether the pool can spare one more node, and one more may be under way."""
    found: list[Wait | Refuse] = []
    active = [name for name, one in case.record.nodes.items() if _active(case, name, one)]
    if case.settings.max_parallel and len(active) >= case.settings.max_parallel:
        found.append(case.waits(f"{ROLLOUT}max_parallel is {case.settings.max_parallel}: {named(active)}", active))
    known = case.seen[case.node]
    # One that we keep out of service, since it failed, takes nothing more away.
    return found if known.ours and known.down else found + _unavailable(case)


def _unavailable(case: Case) -> list[Wait | Refuse]:
    mine = [one for one in case.seen.values() if _pool(case, one) == case.entry.pool]
    away = {one.name: why for one in mine if one.name != case.node for why in [_away(case, one)] if why}
    stuck = [name for name, why in away.items() if why[1]]
    limit = share(case.settings.max_unavailable, len(mine))
    what = f"{ROLLOUT}max_unavailable is {case.settings.max_unavailable} ({limit} of {len(mine)} nodes)"
    if len(stuck) >= limit:
        who = named([f"{name} {away[name][0]}" for name in stuck])
        return [
            Refuse(
                f"{what}, and nodes that nobody works on hold all of it: {who}.",
                f"Repair {stuck[0]} and run again with it, or raise {ROLLOUT}max_unavailable.",
            )
        ]
    if len(away) >= limit:
        told = f"{what}: {named([f'{name} {why[0]}' for name, why in away.items()])}"
        return [case.waits(told, (name for name in away if name in case.record.nodes))]
    return []


def _pool(case: Case, one: NodeView) -> str:
    """An upgrade may change the kernel, and with it the pool that the node shows."""
    entry = case.record.nodes.get(one.name)
    return entry.pool if entry else one.pool


def _active(case: Case, name: str, one: NodeRecord) -> bool:
    if one.pool != case.entry.pool or name in case.lost or case.record.waits_for_reboot(one):
        return False
    return one.under_way and one.wave > 0


def _away(case: Case, one: NodeView) -> tuple[str, bool] | None:
    """Why a node counts as unavailable, and whether nobody works on it; None when it is there."""
    entry = case.record.nodes.get(one.name)
    if entry and case.record.waits_for_reboot(entry):
        return "waits for a reboot by a person", True
    if entry and entry.under_way and not (entry.wave and one.name not in case.lost):
        return f"was left under way by the run {entry.run}", True
    if entry and entry.under_way:
        return "is under way", False
    # Where the node does not say so yet, what is shown is older than the failure.
    if entry and entry.state == FAILED and (one.down or (one.state, one.run) != (FAILED, entry.run)):
        return "failed", True
    if not one.down:
        return None
    if one.ours:
        # In a wave it is tried again by this run.
        why = "failed before" if one.state == FAILED else f"was left cordoned by the run {one.run}"
        return why, entry is None or one.name in case.lost
    return ("is not Ready" if not one.ready else "is about to go" if one.leaves else "is cordoned"), False
