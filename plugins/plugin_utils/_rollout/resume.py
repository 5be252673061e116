# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record at the begin of a run: a new one, or the one of a run that was killed, with nothing done twice. Pure."""

from __future__ import annotations

import datetime
import math
import statistics
import typing as t
from dataclasses import dataclass, replace

from .record import NO_WAVE, NodeRecord, PoolRecord, Record
from .settings import Settings
from .states import DONE, FAILED, FINAL, REBOOT, REQUIRED, UNDER_WAY, moment, stamp
from .view import NodeView
from .waves import Waves, cut


def planned(
    record: Record | None,
    goal: str,
    run: str,
    pools: t.Mapping[str, t.Sequence[str]],
    settings: t.Mapping[str, Settings],
    view: t.Sequence[NodeView],
    hosts: t.Collection[str],
    observed: datetime.datetime,
    now: datetime.datetime,
) -> Record:
    """The record that this run owns from now on.

    `pools` has the nodes of this run, in order, that need something or carry an unfinished state; `hosts` are all nodes
    of the run as they were `observed`. With the same goal, what is done stays done, and what failed before that is
    tried again. With another goal only nodes under way are kept. Those that are not in `hosts` are then in no wave:
    their slot is taken, and nobody works on them. A rollout that has ended is not the same one again, whatever its
    goal: with something new to do the record has a new id, for which nobody has approved a wave.
    """
    same = record is not None and record.goal == goal
    need = {name: pool for pool, names in pools.items() for name in names}
    begin = _Start(need, frozenset(hosts), {one.name: one for one in view}, settings, observed, now)
    old = _former(record, begin)
    kept = {name: begin.kept(name, entry, same) for name, entry in old.items()}
    entries = {name: begin.in_known_pool(name, entry) for name, entry in kept.items() if entry}
    for name, pool in need.items():
        if name not in entries and not begin.left_alone(name, pool):
            entries[name] = NodeRecord(pool, NO_WAVE)
    nodes = {name: entry for name, entry in entries.items() if entry.under_way and name not in need}
    places = old if same else {}
    order = {name: place for place, name in enumerate(dict.fromkeys([*places, *need, *entries]))}
    found: dict[str, PoolRecord] = {}
    for pool, pace in settings.items():
        mine = [name for name, entry in entries.items() if entry.pool == pool and name not in nodes]
        mine.sort(key=lambda name: (begin.turn(name, entries[name], places), order[name]))
        waves = cut(mine, pace.waves)
        if waves:
            found[pool] = PoolRecord(waves, _typical(record, pool))
            nodes.update(_placed(waves, entries))
    if record is not None and same and not _has_ended(old, entries):
        return replace(record, run=run, pools=found, nodes=nodes)
    return Record(run, goal, stamp(now), run, found, nodes)


def _has_ended(old: t.Mapping[str, NodeRecord], entries: t.Mapping[str, NodeRecord]) -> bool:
    """Whether all that is kept had come to its end, and more is to be done than to try again what failed."""
    kept = {name: old[name].state for name in entries if name in old}
    new = any(entry.state == REQUIRED and kept.get(name) != FAILED for name, entry in entries.items())
    return new and all(state in FINAL for state in kept.values())


@dataclass(frozen=True)
class _Start:
    need: t.Mapping[str, str]
    hosts: frozenset[str]
    seen: t.Mapping[str, NodeView]
    settings: t.Mapping[str, Settings]
    observed: datetime.datetime
    now: datetime.datetime

    def left_alone(self, name: str, pool: str) -> bool:
        known = self.seen.get(name)
        return known is not None and bool(known.left_alone(self.settings[pool]))

    def turn(self, name: str, entry: NodeRecord, places: t.Mapping[str, NodeRecord]) -> tuple[int, float]:
        """Waves as they were, with new nodes last.

        First of all come nodes under way, and then those that failed and that we still keep out of service: others
        would wait for what they hold, in a wave before theirs.
        """
        known = self.seen.get(name)
        if entry.under_way:
            return 0, 0
        if entry.state == REQUIRED and known is not None and known.ours and known.down:
            return 1, 0
        return 2, places[name].wave if name in places else math.inf

    def in_known_pool(self, name: str, entry: NodeRecord) -> NodeRecord:
        """An upgrade may have changed the kernel of all hosts of a pool, which is then no more."""
        pool = entry.pool if entry.pool in self.settings else self.need.get(name, entry.pool)
        return replace(entry, pool=pool, wave=NO_WAVE)

    def kept(self, name: str, entry: NodeRecord, same: bool) -> NodeRecord | None:
        """What a former entry is now; None when it is forgotten."""
        known = self.seen.get(name)
        if known is None or not (same or entry.under_way):
            return None
        if entry.under_way and (name in self.need or name not in self.hosts or not same or entry.state != REBOOT):
            return entry if name in self.need or name not in self.hosts else None
        if entry.state in FINAL and (
            name not in self.hosts or moment(entry.since) >= self.observed.replace(microsecond=0)
        ):
            # Nobody of this run has looked at it since.
            return None if entry.state == FAILED and known.skip else entry
        if name in self.need:
            pool = self.need[name]
            return None if self.left_alone(name, pool) else NodeRecord(pool, NO_WAVE)
        if entry.state in (FAILED, REBOOT):
            # The host was repaired, or rebooted, by hand.
            return replace(entry, state=DONE, since=stamp(self.now), reason="")
        return entry if entry.state == DONE else None


def _former(record: Record | None, begin: _Start) -> dict[str, NodeRecord]:
    """What is known of earlier runs: the record, and what the nodes say that no record has or that was not noted.

    A node's state is written after its slot is taken and before its end is noted: where both differ otherwise, the
    record is the newer one.
    """
    found = dict(record.nodes) if record else {}
    for name, known in begin.seen.items():
        if name in found:
            found[name] = found[name].noted(known.state, known.run, begin.now)
        elif known.run and known.state in UNDER_WAY:
            found[name] = NodeRecord(known.pool, NO_WAVE, known.state, stamp(begin.now), run=known.run)
    return found


def _placed(waves: Waves, entries: t.Mapping[str, NodeRecord]) -> dict[str, NodeRecord]:
    return {name: replace(entries[name], wave=number) for number, wave in enumerate(waves, 1) for name in wave}


def _typical(record: Record | None, pool: str) -> float | None:
    """How long a node of the pool was away: the median of the last rollout that knows."""
    if record is None:
        return None
    known = [one.seconds for one in record.nodes.values() if one.pool == pool and one.seconds is not None]
    former = record.pools.get(pool)
    return statistics.median(known) if known else former.seconds if former else None
