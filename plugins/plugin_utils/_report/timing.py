# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long plays, roles, tasks and hosts took. Each event costs two look-ups in dicts."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from .document import Timed, TimedTask, Timings

# Tasks that a report names.
MOST = 50


@dataclass
class _Task:
    role: str
    name: str
    play: int
    first: float
    last: float
    # Of the host that took longest.
    longest: float = 0.0
    slowest: str = ""
    hosts: int = 0


@dataclass
class Clock:
    plays: list[tuple[str, float]] = field(default_factory=list)
    tasks: dict[tuple[int, str], _Task] = field(default_factory=dict)
    busy: dict[str, float] = field(default_factory=dict)
    _begun: dict[tuple[str, str], float] = field(default_factory=dict)

    def play(self, name: str, now: float) -> None:
        # With serial, each batch begins the play again.
        if not self.plays or self.plays[-1][0] != name:
            self.plays.append((name, now))

    def start(self, host: str, uuid: str, role: str, name: str, now: float) -> None:
        self._begun[host, uuid] = now
        self._task(uuid, role, name, now)

    def end(self, host: str, uuid: str, role: str, name: str, now: float) -> None:
        began = self._begun.pop((host, uuid), now)
        task, took = self._task(uuid, role, name, began), now - began
        task.last, task.hosts = max(task.last, now), task.hosts + 1
        self.busy[host] = self.busy.get(host, 0.0) + took
        if took >= task.longest:
            task.longest, task.slowest = took, host

    def _task(self, uuid: str, role: str, name: str, now: float) -> _Task:
        key = (len(self.plays) - 1, uuid)
        found = self.tasks.get(key)
        if found is None:
            found = self.tasks[key] = _Task(role, name, len(self.plays) - 1, now, now)
        return found

    def timings(self, end: float) -> Timings:
        ends = [*(began for _name, began in self.plays[1:]), end]
        plays: list[Timed] = [
            {"name": name, "seconds": _seconds(last - began)} for (name, began), last in zip(self.plays, ends)
        ]
        roles: dict[str, float] = {}
        same: dict[tuple[int, str, str], list[_Task]] = {}
        for task in self.tasks.values():
            same.setdefault((task.play, task.role, task.name), []).append(task)
            if task.role:
                roles[task.role] = roles.get(task.role, 0.0) + task.last - task.first
        tasks = sorted((self._timed(found) for found in same.values()), key=lambda one: -one["seconds"])
        return {
            "plays": plays,
            "roles": [
                {"name": name, "seconds": _seconds(took)}
                for name, took in sorted(roles.items(), key=lambda one: -one[1])
            ],
            "tasks": tasks[:MOST],
        }

    def _timed(self, found: t.Sequence[_Task]) -> TimedTask:
        """A task; hosts that go by themselves have copies of it."""
        worst = max(found, key=lambda one: one.longest)
        return {
            "name": found[0].name,
            "role": found[0].role,
            "play": self.plays[found[0].play][0] if self.plays else "",
            "seconds": _seconds(max(one.last for one in found) - min(one.first for one in found)),
            "hosts": sum(one.hosts for one in found),
            "slowest": worst.slowest,
            "slowest_seconds": _seconds(worst.longest),
        }


def _seconds(value: float) -> float:
    return round(max(0.0, value), 1)
