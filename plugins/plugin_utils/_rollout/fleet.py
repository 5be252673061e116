# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts of a run that are to change, cut into waves: those of one cluster, or those without a cluster."""

from __future__ import annotations

import datetime
import hashlib
import itertools
import json
import typing as t
from dataclasses import dataclass, field

from .record import Record
from .resume import planned
from .settings import Settings, share
from .states import REQUIRED, ROLLOUT, utc
from .turn import Store
from .view import NodeView
from .waves import order_nodes
from .window import opens

Data = t.Mapping[str, t.Any]
# The inputs that say which driver a host is to have: while they stay, a run that was killed is the same rollout.
GOAL = ("driver_source", "driver_version", "driver_runfile_sha256", "driver_package_names")
# Pools whose windows open within this time go side by side: the first waits for the last no longer than that.
TOGETHER = datetime.timedelta(hours=1)
LATER = "is of a wave after %slast_wave" % ROLLOUT


@dataclass(frozen=True)
class Going:
    """A host whose plan disturbs something, or whose node a rollout has not finished.

    `steps` are those of its plan in this run; `reboot` and `services` are inputs of its driver; `offers` is whether its
    node offers NPUs, or did when the rollout began with it.
    """

    host: str
    node: str
    pool: str
    steps: t.Sequence[Data] = ()
    reboot: str = "never"
    services: t.Sequence[str] = ()
    unfinished: bool = False
    offers: bool = False


@dataclass
class Fleet:
    """Hosts that share one record. `nodes` are those of hosts that are to change, and of those that work as they are.

    `left` says why a node of `going` is in no wave.
    """

    going: list[Going]
    settings: t.Mapping[str, Settings]
    nodes: t.Collection[str]
    goal: str
    where: str = ""
    record: Record | None = None
    left: dict[str, str] = field(default_factory=dict)
    now: datetime.datetime = field(default_factory=utc)

    @property
    def limited(self) -> bool:
        """Whether hosts may have to wait for each other."""
        return any(one.limited for one in self.settings.values())

    def cut(self, store: Store, run: str, observed: datetime.datetime, now: datetime.datetime, write: bool) -> None:
        """Make this run the owner of the record; with `write` in the store too."""
        self.now = now
        view = store.look().nodes
        labels = {one.name: one for one in view}
        placed = [labels.get(one.node) or NodeView(one.node, one.pool) for one in self.going]
        pools = {
            pool: order_nodes([one for one, mine in zip(placed, self.going) if mine.pool == pool], own)
            for pool, own in self.settings.items()
        }

        def judge(record: Record | None) -> tuple[Record | None, Record]:
            fresh = planned(record, self.goal, run, pools, self.settings, view, self.nodes, observed, now)
            return (fresh if write else None), fresh

        self.record = store.change(judge)
        why = {one.name: one.left_alone(self.settings[mine.pool]) for one, mine in zip(placed, self.going)}
        self.left = {node: text for node, text in why.items() if text and not self.wave_of(node)}

    def waves(self) -> list[list[Going]]:
        """The hosts wave by wave, pools side by side; those of no wave come last.

        A host that waits has one of the forks, and the next wave of all pools begins when this one has ended. So pools
        whose window opens later have waves of their own, after those of the others, and the order within a wave is
        that of `_in_turn`.
        """
        if self.record is None:
            return [self.going]
        by_node = {one.node: one for one in self.going}
        names = [name for name in self.record.pools if name in self.settings]
        columns = {
            name: [[by_node.pop(node) for node in wave if node in by_node] for wave in self.record.pools[name].waves]
            for name in names
        }
        groups = self._by_opening(names)
        waves: list[list[Going]] = []
        for together in groups:
            for number, same in enumerate(itertools.zip_longest(*(columns[name] for name in together), fillvalue=[])):
                waves.append(self._in_turn(dict(zip(together, same)), number > 0))
        # What is under way waits for no window.
        begun = [one for wave in waves for one in wave if self.record.nodes[one.node].under_way]
        first = [*begun, *(one for one in waves[0] if one not in begun)] if waves else []
        rest = [[one for one in wave if one not in begun] for wave in waves[1:]]
        return [wave for wave in [first, *rest, list(by_node.values())] if wave]

    def _by_opening(self, pools: t.Sequence[str]) -> list[list[str]]:
        """The pools that go side by side, those that may go first of all first."""
        opening = {name: opens(self.settings[name].window, self.now) or self.now for name in pools}
        groups: list[list[str]] = []
        for name in sorted(pools, key=lambda name: opening[name]):
            if groups and opening[name] - opening[groups[-1][0]] <= TOGETHER:
                groups[-1].append(name)
            else:
                groups.append([name])
        return groups

    def _in_turn(self, hosts: t.Mapping[str, list[Going]], later: bool) -> list[Going]:
        """The hosts of one wave, of all pools in turn: of each as many as may be away at once.

        Of a later wave the pools come last that wait for a soak, a query or a person first.
        """
        order: list[Going] = []
        for waits in (False, True):
            rounds = [
                [own[at : at + self._width(pool)] for at in range(0, len(own), self._width(pool))]
                for pool, own in hosts.items()
                if waits == (later and self.settings[pool].gated)
            ]
            for same in itertools.zip_longest(*rounds, fillvalue=[]):
                order += [one for turn in itertools.zip_longest(*same) for one in turn if one]
        return order

    def _width(self, pool: str) -> int:
        """How many hosts of a pool may be away at once."""
        own, size = self.settings[pool], sum(one.pool == pool for one in self.going)
        return max(1, min(share(own.max_unavailable, size), own.max_parallel or size))

    def wave_of(self, node: str) -> int:
        entry = self.record.nodes.get(node) if self.record else None
        return entry.wave if entry else 0

    def stays(self, one: Going) -> str:
        """Why a host is left as it is in this run; empty when it goes. What is under way goes on in any wave."""
        entry = self.record.nodes.get(one.node) if self.record else None
        last = self.settings[one.pool].last_wave if entry and not entry.under_way else 0
        return LATER if 0 < last < self.wave_of(one.node) else self.left.get(one.node, "")


def goal_of(wanted: t.Iterable[Data], prefix: str) -> str:
    """The digest of what these hosts are to have; the order of the hosts does not count."""
    texts = {json.dumps([one.get(prefix + name) for name in GOAL], sort_keys=True, default=str) for one in wanted}
    return hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()[:16]


def batches(fleets: t.Sequence[Fleet]) -> list[list[str]]:
    """The hosts of all fleets, wave by wave."""
    return [
        [one.host for wave in same for one in wave]
        for same in itertools.zip_longest(*(fleet.waves() for fleet in fleets), fillvalue=[])
    ]


def seconds_of(fleet: Fleet, forks: int) -> float | None:
    """How long the rollout will take, by how long nodes were away before; None where no earlier run tells."""
    if fleet.record is None or not fleet.record.pools:
        return None
    found: list[float] = []
    for name, pool in fleet.record.pools.items():
        own = fleet.settings.get(name)
        if pool.seconds is None or own is None:
            return None
        size = sum(map(len, pool.waves))
        width = max(1, min(share(own.max_unavailable, size), own.max_parallel or forks, forks))
        due = [
            sum(1 for node in wave if fleet.record.nodes[node].state == REQUIRED)
            for wave in pool.waves[: own.last_wave or None]
        ]
        rounds = sum(-(-number // width) for number in due)
        found.append(rounds * pool.seconds + own.soak * max(0, sum(1 for number in due if number) - 1))
    return max(found)
