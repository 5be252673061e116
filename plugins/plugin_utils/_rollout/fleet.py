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
from .states import REQUIRED
from .turn import Store
from .view import NodeView
from .waves import order_nodes

Data = t.Mapping[str, t.Any]
# The inputs that say which driver a host is to have: while they stay, a run that was killed is the same rollout.
GOAL = ("driver_source", "driver_version", "driver_runfile_sha256", "driver_package_names")


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
    """Hosts that share one record. `nodes` are those of all hosts of the run in it, changed or not.

    `left` says why a node of `going` is in no wave.
    """

    going: list[Going]
    settings: t.Mapping[str, Settings]
    nodes: t.Collection[str]
    goal: str
    where: str = ""
    record: Record | None = None
    left: dict[str, str] = field(default_factory=dict)

    @property
    def limited(self) -> bool:
        """Whether hosts may have to wait for each other."""
        return any(one.limited for one in self.settings.values())

    def cut(self, store: Store, run: str, observed: datetime.datetime, now: datetime.datetime, write: bool) -> None:
        """Make this run the owner of the record; with `write` in the store too."""
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
        """The hosts wave by wave, of all pools in turn; those of no wave come last.

        In turn, since a host that waits for its pool's max_unavailable has one of the forks.
        """
        if self.record is None:
            return [self.going]
        by_node = {one.node: one for one in self.going}
        columns = [
            [[by_node.pop(name) for name in wave if name in by_node] for wave in pool.waves]
            for pool in self.record.pools.values()
        ]
        together = [
            [one for turn in itertools.zip_longest(*same) for one in turn if one]
            for same in itertools.zip_longest(*columns, fillvalue=[])
        ]
        return [wave for wave in [*together, list(by_node.values())] if wave]

    def wave_of(self, node: str) -> int:
        entry = self.record.nodes.get(node) if self.record else None
        return entry.wave if entry else 0


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
