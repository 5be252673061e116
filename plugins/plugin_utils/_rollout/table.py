# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rollout that a run would make, as a table for people and as data for programs. Pure."""

from __future__ import annotations

import typing as t
from dataclasses import asdict, dataclass

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NONE

from .._plan.words import change, count, disruption, hosts
from .._text.screen import BAD, CHANGE, DISRUPT, TITLE, UNSURE, Line, some
from .fleet import LATER, Fleet, Going, seconds_of
from .settings import Settings

# More waves, groups of hosts, or pods than these are counted.
MOST_WAVES, MOST_GROUPS, MOST_NAMES = 12, 8, 8


@dataclass(frozen=True)
class Pods:
    """What becomes of the pods of a node: in words, the budgets that allow no disruption now, and what refuses it.

    `steps` say what to do about that; `leaving` are the uids of those that will be gone.
    """

    text: str = ""
    budgets: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """A host in the table. `why` says that a rollout had begun with it before."""

    host: str
    node: str
    pool: str
    wave: int
    changes: tuple[str, ...]
    disturbs: tuple[str, ...]
    services: tuple[str, ...] = ()
    pods: str = ""
    budgets: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    why: str = ""

    @property
    def key(self) -> tuple[t.Any, ...]:
        """What hosts of one group have in common."""
        return (self.changes, self.disturbs, self.services, self.pods, self.budgets, self.refused, self.why)


class Table(t.NamedTuple):
    """The rows of all hosts, wave by wave; seconds, or None for not known; how fast each pool goes.

    `left` are {host: why its node is left as it is}. `playbook` is the one whose defaults it has; `other` says how to
    see those of the other one.
    """

    waves: t.Sequence[t.Sequence[Row]]
    seconds: float | None
    pace: t.Sequence[str]
    left: t.Mapping[str, str]
    playbook: str = "site"
    other: str = ""


def row(one: Going, wave: int, pods: Pods) -> Row:
    return Row(
        one.host,
        one.node,
        one.pool,
        wave,
        tuple("%s %s" % (step["component"], change(step)) for step in one.steps),
        tuple(dict.fromkeys(text for text in (disruption(step, one.reboot) for step in one.steps) if text)),
        # Only a change of the driver stops them.
        tuple(one.services)
        if any(step["role"] == "driver" and step["disruption"] != NONE for step in one.steps)
        else (),
        pods.text,
        pods.budgets,
        pods.refused,
        "an earlier run has begun with it" if one.unfinished else "",
    )


def table(
    fleets: t.Sequence[Fleet], pods: t.Mapping[str, Pods], forks: int, playbook: str = "site", other: str = ""
) -> Table:
    """`pods` has those of each host. Waves have the numbers of the record, by which a person approves them."""
    rows: dict[int, list[Row]] = {}
    left: dict[str, str] = {}
    for fleet in fleets:
        for one in (one for wave in fleet.waves() for one in wave):
            if one.node in fleet.left:
                left[one.host] = fleet.left[one.node]
            else:
                number = fleet.wave_of(one.node)
                stays = fleet.stays(one)
                if stays:
                    left[one.host] = stays
                rows.setdefault(number, []).append(row(one, number, pods.get(one.host, Pods())))
    waves = [rows[number] for number in sorted(rows)]
    times = [seconds_of(fleet, forks) for fleet in fleets]
    known = [one for one in times if one is not None]
    pace = [
        "%s: %s" % (pool, ", ".join(_pace(own)))
        for pool, own in {one.pool: fleet.settings[one.pool] for fleet in fleets for one in fleet.going}.items()
    ]
    seconds = max(known) if known and len(known) == len(times) else None
    return Table(waves, seconds, pace, left, playbook, other)


def _pace(own: Settings) -> list[str]:
    told = ["at most %s of its nodes out of service" % own.max_unavailable]
    if own.max_parallel:
        told.append("%d at a time" % own.max_parallel)
    if own.failure_budget:
        told.append("failure budget %s" % own.failure_budget)
    if own.soak:
        told.append("%s between waves" % duration(own.soak))
    if own.approval:
        told.append("each wave after the first waits for an approval")
    if own.window:
        told.append("nodes begin only in its maintenance windows")
    if not own.slot_timeout:
        told.append("nodes wait for others for ever")
    if own.last_wave:
        told.append("this run ends after wave %d" % own.last_wave)
    return told


def lines(found: Table) -> list[Line]:
    """The table for people; equal hosts of a wave once."""
    total = sum(map(len, found.waves))
    title = "Rollout of %s in %s, as the playbook %s goes"
    told = [Line(title % (count(total, "host"), count(len(found.waves), "wave"), found.playbook), TITLE)]
    if found.other:
        told.append(Line("  %s" % found.other))
    told += [Line("  pool %s" % text) for text in found.pace[:MOST_GROUPS]]
    for wave in found.waves[:MOST_WAVES]:
        told.append(Line("  Wave %d: %s" % (wave[0].wave, count(len(wave), "host")), TITLE))
        groups: dict[tuple[t.Any, ...], list[Row]] = {}
        for one in wave:
            groups.setdefault(one.key, []).append(one)
        for rows in list(groups.values())[:MOST_GROUPS]:
            told += _group(rows)
        left = [one.host for rows in list(groups.values())[MOST_GROUPS:] for one in rows]
        if left:
            told.append(Line("    and %s: %s" % (count(len(left), "more host"), hosts(left)), UNSURE))
    if len(found.waves) > MOST_WAVES:
        told.append(Line("  and %s" % count(len(found.waves) - MOST_WAVES, "more wave"), UNSURE))
    reasons: dict[str, list[str]] = {}
    for host, why in found.left.items():
        # What the pace says already.
        if why == LATER:
            continue
        reasons.setdefault(why, []).append(host)
    told += [
        Line("  Left as they are: %s, whose node %s" % (hosts(names), why), UNSURE) for why, names in reasons.items()
    ]
    if found.seconds is not None:
        told.append(Line("  Time: about %s, by earlier runs" % duration(found.seconds)))
    return told


def _group(rows: t.Sequence[Row]) -> list[Line]:
    one = rows[0]
    told = [Line("    %s" % hosts([row.host for row in rows]), TITLE)]
    told += [Line("      %s" % text, CHANGE) for text in one.changes]
    told += [Line("      [%s]" % text, DISRUPT) for text in one.disturbs]
    if one.why:
        told.append(Line("      %s" % one.why, UNSURE))
    if one.services:
        told.append(Line("      services that stop: %s" % some(one.services, MOST_NAMES), DISRUPT))
    if one.pods:
        told.append(Line("      pods: %s" % one.pods, DISRUPT))
    told += [Line("      budget in the way: %s" % text, UNSURE) for text in one.budgets[:MOST_NAMES]]
    told += [Line("      STOP  %s" % text, BAD) for text in one.refused[:MOST_NAMES]]
    return told


def duration(seconds: float) -> str:
    """`8 min`, `3 h 20 min`."""
    minutes = max(1, round(seconds / 60))
    return "%d min" % minutes if minutes < 60 else "%d h %d min" % divmod(minutes, 60)


def document(found: Table) -> dict[str, t.Any]:
    """The same for programs, with every host."""
    return {
        "waves": [[asdict(one) for one in wave] for wave in found.waves],
        "seconds": found.seconds,
        "pace": list(found.pace),
        "left": dict(found.left),
        "playbook": found.playbook,
    }


def summary(left: t.Mapping[str, t.Mapping[str, t.Any]], failures: t.Mapping[str, t.Mapping[str, t.Any]]) -> list[Line]:
    """How the rollout has ended, from {host: result of its leave} and {host: what failed}."""
    wrong = {host: str(one["msg"]) for host, one in failures.items() if one}
    stayed = {
        host: one for host, one in left.items() if one.get("refused") or (host not in wrong and not one.get("goes"))
    }
    never = "The run ended before its turn. Next: Run again."
    waiting = {host: wrong.get(host) or str(one.get("msg") or never) for host, one in stayed.items()}
    failed = {host: text for host, text in wrong.items() if host not in waiting}
    reboot = [host for host, one in left.items() if one.get("reboot") and host not in failed and host not in waiting]
    done = len(left) - len(failed) - len(waiting) - len(reboot)
    told = [Line("Rollout: %d done, %d failed, %d left as they are" % (done, len(failed), len(waiting)), TITLE)]
    told += [Line("  failed  %s: %s" % (host, text), BAD) for host, text in list(failed.items())[:MOST_GROUPS]]
    reasons: dict[str, list[str]] = {}
    for host, text in waiting.items():
        reasons.setdefault(text.removeprefix("%s was left as it is. " % host), []).append(host)
    rows = list(reasons.items())[:MOST_GROUPS]
    told += [Line("  left    %s: %s" % (hosts(names), text), UNSURE) for text, names in rows]
    if reboot:
        told.append(
            Line("  reboot  %s: out of service until then. Next: Reboot, and run again." % hosts(reboot), UNSURE)
        )
    return told
