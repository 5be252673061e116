# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of a rollout: who has a slot, what was done, in which waves. Plain data and its JSON."""

from __future__ import annotations

import datetime
import json
import typing as t
from dataclasses import dataclass, field, replace

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._text.line import line
from .states import FINAL, REBOOT, REQUIRED, STATES, UNDER_WAY, moment, stamp
from .waves import Waves

Data = dict[str, t.Any]
VERSION = 1
# A node under way that is in no wave: nobody of this run works on it.
NO_WAVE = 0
_REASON = 300


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node: `state` since when (a stamp), and which run works or worked on it. Waves count from 1."""

    pool: str
    wave: int
    state: str = REQUIRED
    since: str = ""
    reason: str = ""
    run: str = ""
    # How long it was away, None where that is not known.
    seconds: float | None = None
    # The runs it was taken over from. One that lives all the same may have ended it.
    former: tuple[str, ...] = ()

    @property
    def under_way(self) -> bool:
        return self.state in UNDER_WAY

    def noted(self, state: str, run: str, now: datetime.datetime) -> NodeRecord:
        """What the node says, where a run has ended it that was killed before it noted so, or that was taken over."""
        if self.under_way and state in FINAL and run in (self.run, *self.former):
            return replace(self, state=state, since=stamp(now), run=run, former=())
        return self


@dataclass(frozen=True)
class PoolRecord:
    waves: Waves = ()
    # How long a node was away in earlier rollouts, None where that is not known.
    seconds: float | None = None


@dataclass(frozen=True)
class Record:
    """`run` is the one run that may begin nodes. `goal` is the digest of what is wanted."""

    id: str
    goal: str
    started: str
    run: str
    pools: t.Mapping[str, PoolRecord] = field(default_factory=dict)
    nodes: t.Mapping[str, NodeRecord] = field(default_factory=dict)

    def waits_for_reboot(self, node: NodeRecord) -> bool:
        """Whether this run has done its part of a node, and a person has to reboot it; the next run takes it up."""
        return node.state == REBOOT and node.run == self.run and node.wave > 0

    def of_wave(self, pool: str, wave: int) -> dict[str, NodeRecord]:
        names = self.pools[pool].waves[wave - 1] if pool in self.pools and wave > 0 else ()
        return {name: self.nodes[name] for name in names}


def to_json(record: Record) -> str:
    """As small as it can be: each change of a node writes all of it, and a ConfigMap has at most 1 MiB."""
    nodes = {name: _node_data(record, node) for name, node in record.nodes.items() if node.state != REQUIRED}
    pools = {name: _filled({"waves": pool.waves, "seconds": pool.seconds}) for name, pool in record.pools.items()}
    data = {"version": VERSION, "id": record.id, "goal": record.goal, "started": record.started, "run": record.run}
    return json.dumps({**data, "pools": pools, "nodes": nodes}, separators=(",", ":"), ensure_ascii=False)


def from_json(text: str) -> Record:
    """NpuError when it is damaged or of a newer release."""
    try:
        data = json.loads(text)
        version = data["version"]
        if version == VERSION:
            return _record(data)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise NpuError(
            f"The record of the rollout is damaged: {line(exc, 200)}.",
            "Look at the nodes' upgrade states, delete the record and run again; finished nodes are left as they are.",
        ) from exc
    raise NpuError(
        f"The record of the rollout has the version {line(repr(version), 60)}; this release knows {VERSION}.",
        "Run the release of the collection that began the rollout, or a newer one.",
    )


def _node_data(record: Record, node: NodeRecord) -> Data:
    run = "" if node.run == record.run else node.run
    pool = "" if node.wave else node.pool
    return _filled(
        {
            "state": node.state,
            "since": node.since,
            "reason": line(node.reason, _REASON),
            "run": run,
            "former": node.former,
            "pool": pool,
            "seconds": None if node.seconds is None else round(node.seconds, 1),
        }
    )


def _filled(data: Data) -> Data:
    return {key: value for key, value in data.items() if value not in ("", None, ())}


def _record(data: Data) -> Record:
    texts = {key: _text(data, key) for key in ("id", "goal", "started", "run")}
    moment(texts["started"])
    pools, nodes = {}, {}
    for pool, item in data["pools"].items():
        waves = tuple(_names(wave) for wave in _list(item["waves"]))
        pools[pool] = PoolRecord(waves, _number(item, "seconds"))
        for number, wave in enumerate(waves, 1):
            for name in wave:
                if name in nodes:
                    raise ValueError(f"{name} is in two waves")
                nodes[name] = NodeRecord(pool, number)
    for name, item in data["nodes"].items():
        state, since = _text(item, "state"), _text(item, "since")
        placed = nodes.get(name) or NodeRecord(_text(item, "pool"), NO_WAVE)
        if state not in STATES or not placed.wave and state in FINAL:
            raise ValueError(f"{name} has the state {state!r}")
        moment(since)
        nodes[name] = NodeRecord(
            placed.pool,
            placed.wave,
            state,
            since,
            _text(item, "reason", ""),
            _text(item, "run", texts["run"]),
            _number(item, "seconds"),
            _names(item.get("former", [])),
        )
    return Record(**texts, pools=pools, nodes=nodes)


def _list(value: t.Any) -> list[t.Any]:
    """A text is no list of its letters."""
    if not isinstance(value, list):
        raise ValueError(f"{value!r} is not a list")
    return value


def _names(value: t.Any) -> tuple[str, ...]:
    found = tuple(_list(value))
    for name in found:
        if not isinstance(name, str) or not name:
            raise ValueError(f"{name!r} is not a name")
    return found


def _text(item: Data, key: str, default: str | None = None) -> str:
    value = item[key] if default is None else item.get(key, default)
    if not isinstance(value, str):
        raise ValueError(f"{key} is {value!r}")
    return value


def _number(item: Data, key: str) -> float | None:
    value = item.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e9):
        raise ValueError(f"{key} is {value!r}")
    return value
