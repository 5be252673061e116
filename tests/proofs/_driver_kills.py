# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A driver change that is cut off at each of its points.

A kill or a power failure cuts it off, on several hosts at once.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration._driver import FAULTY, NEW, OLD, PACKAGES, Drivers, many, role_book, seen, works
from tests.integration._driver_killer import arm, disarm, make_killer, play_and_cut
from tests.integration._hosts import Fingerprint
from tests.integration._play import Data, play
from tests.proofs._proof import SAMPLE, Part

# In a command: how long it has been at work, in seconds.
DELAYS = (0.05, 0.4)


@dataclass
class Change:
    """What is cut off: from which driver, by which inputs, and where the runs after it lead."""

    name: str
    start: str | None
    inputs: Data
    end: str | None
    source: str = "runfile"
    book: str = "main"
    # The first point of interest, by the beginning of its name.
    begins: str = ""
    fails: bool = False
    stride: int = 1
    points: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Cut:
    number: int
    label: str
    mode: str
    delay: float

    def __str__(self) -> str:
        return "%s %s%s" % (
            "killed" if self.mode == "kill" else "power lost",
            self.label,
            " for %g s" % self.delay if self.label.startswith("in ") else "",
        )


class Kills:
    def __init__(self, drivers: Drivers, hosts: t.Sequence[str]) -> None:
        self.drivers, self.hosts, self.lab = drivers, list(hosts), drivers.lab
        self.env = make_killer()
        self.clean: dict[str, Fingerprint] = {}

    def start(self, change: Change) -> None:
        """Bring the hosts to where the change begins, nothing noted of versions that failed."""
        rest = [host for host in self.hosts if not self._is_at(host, change.start)]
        if rest and change.start is None:
            self.drivers.remove(*rest).good(rest)
        elif rest:
            self.drivers.good({host: many(change.start or "", rbln_driver_retry=True) for host in rest})
        for host in self.hosts:
            self.lab.exec(host, ["rm", "-f", "/var/lib/rbln/refused.json"])

    def _is_at(self, host: str, version: str | None) -> bool:
        state = seen(self.lab, host)
        if version is None:
            return bool(state["state"] is None and not state["packages"])
        return bool(
            state["loaded"] == version
            and (state["stamp"] or {}).get("version") == version
            and state["stamp"]["source"] == "runfile"
        )

    def cuts(self, change: Change) -> list[Cut]:
        """All cuts of a change, kills and power failures in turn; a long command is cut twice."""
        host = self.hosts[0]
        self.start(change)
        arm(self.lab, host)
        run = play(role_book(tasks_from=change.book), self._where({host: change.inputs}), env=self.env)
        change.points = disarm(self.lab, host)
        assert (run.code != 0) == change.fails, (run.code, [one.msg for one in run.failed()])
        assert len(change.points) > 8, change.points
        first = next((number for number, label in enumerate(change.points) if label.startswith(change.begins)), 0)
        found = []
        for number, label in list(enumerate(change.points))[first :: change.stride]:
            for delay in DELAYS if label.startswith("in ") else (0.0,):
                found.append(Cut(number, label, "power" if len(found) % 3 == 2 else "kill", delay))
        if SAMPLE:
            found = [
                next(cut for cut in found if cut.label == "in run installer --silent" and cut.mode == mode)
                for mode in ("kill", "power")
            ]
        return found

    def _where(self, inputs: t.Mapping[str, Data]) -> Path:
        for host in inputs:
            self.drivers.hosts.state[host] = "dirty"
        return self.drivers.hosts.inventory(*inputs, host_vars=inputs, name="kills")

    def run(self, part: Part, change: Change) -> None:
        """Cut the change at every point, len(hosts) points at a time."""
        cuts = self.cuts(change)
        for at in range(0, len(cuts), len(self.hosts)):
            group = dict(zip(self.hosts, cuts[at : at + len(self.hosts)]))
            try:
                self._batch(part, change, group)
            except Exception as exc:
                part.bad(
                    "%s, %s" % (change.name, "; ".join(map(str, group.values()))),
                    "%s: %s" % (type(exc).__name__, str(exc)[:1500]),
                )
                self.drivers.hosts.virgin(*group)
        part.note = "%d points, %d cuts" % (len(change.points), len(cuts))

    def _batch(self, part: Part, change: Change, group: t.Mapping[str, Cut]) -> None:
        self.start(change)
        for host, cut in group.items():
            arm(self.lab, host, cut.number, cut.mode, cut.delay)
        book, where = role_book(tasks_from=change.book), self._where({host: change.inputs for host in group})
        run = play_and_cut(
            self.lab, book, where, self.env, [host for host, cut in group.items() if cut.mode == "power"]
        )
        told: dict[str, str] = {}
        for host, cut in group.items():
            passed = disarm(self.lab, host)
            state = seen(self.lab, host)
            try:
                assert passed[cut.number : cut.number + 1] == [cut.label], passed
                between(state, change)
            except AssertionError as exc:
                told[host] = "after the cut: %s" % str(exc)[:1500]
        again = play(book, where)
        third = play(book, where)
        for host, cut in group.items():
            name = "%s, %s" % (change.name, cut)
            with part.case(name):
                assert host not in told, told[host]
                assert change.fails or again.failed(host) == [], "the next run fails: %s" % again.failed(host)[-1].msg
                converged(seen(self.lab, host), change)
                assert third.changed(host) == [], third.changed(host)
                assert change.fails == bool(third.failed(host)), [one.msg for one in third.failed(host)]
        assert run.code != 0 or any(cut.label.startswith(("after end", "in ")) for cut in group.values()), (
            "nothing was cut off"
        )


def between(state: Data, change: Change) -> None:
    """The host tells the truth about itself.

    It is as before, as wanted, or a journal says what is at work and the way back is whole.
    """
    journal = state["journal"]
    target = change.inputs["rbln_driver_version"] or None
    if journal is None:
        assert state["loaded"] in (change.start, target), state
        assert (
            set(state["packages"].values()) in ({change.start} - {None}, {target} - {None}) and state["broken"] == []
        ), state
        return
    assert journal["previous"]["version"] == change.start, journal
    assert state["loaded"] in (change.start, target, None, ""), state
    assert state["ready"] == [] or change.book == "absent", state
    if change.start is not None and change.book == "main":
        assert "runfile-" + change.start in state["kept"], state["kept"]


def converged(state: Data, change: Change) -> None:
    if change.end is None:
        assert (state["packages"], state["broken"], state["loaded"], state["on_disk"], state["state"]) == (
            {},
            [],
            None,
            None,
            None,
        ), state
        assert (state["holds"], state["devices"]) == ([], []), state
        return
    works(state, change.end, change.source)
    assert state["holds"] == state["stamp"]["held"] == sorted(PACKAGES), state
    assert len(state["kept"]) <= 2, state["kept"]


def changes() -> list[Change]:
    """The changes that are cut off, the longest first."""
    upgrade = Change("upgrade", OLD, many(NEW), NEW)
    if SAMPLE:
        return [upgrade]
    return [
        upgrade,
        Change("way back", OLD, many(FAULTY), OLD, begins="after run systemctl start", fails=True),
        Change("removal", OLD, {**many(""), "rbln_driver_source": "runfile"}, None, book="absent"),
        Change("first installation", None, many(OLD), OLD, stride=2),
    ]
