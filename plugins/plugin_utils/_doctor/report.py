# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the doctor says: one document for programs, and lines for people. Pure."""

from __future__ import annotations

import re
import shlex
import typing as t

from .._objects.names import INPUT
from .._text.line import line
from .._text.screen import BAD, GOOD, PLAIN, TITLE, UNSURE, Line, some
from .order import Found, state_of
from .signs import DOUBTFUL, UNKNOWN, WRONG

SCHEMA = 1
# Groups of hosts that are shown in full; causes of one group; lines of evidence of one cause.
GROUPS, CAUSES, EVIDENCE = 20, 8, 4
_WORDS = re.compile(r"\b(HOST|NODE|POD|NAMESPACE|DAEMONSET|UNIT|ADDRESS|NAME|PACKAGE|FILE)\b")
_LINK = re.compile(r"\[([^\]]+)\]\(([^)#]+)[^)]*\)")
# Characters of what a word in capitals stands for.
LONGEST = 300
_TONES = {WRONG: BAD, DOUBTFUL: UNSURE, UNKNOWN: UNSURE}
_STATES = ("faults", "not_reached", "warnings", "unknown", "ok")
_TOLD = {"not_reached": "not reached", "faults": "with faults", "warnings": "with warnings", "unknown": "not known"}

Data = dict[str, t.Any]


class Place(t.NamedTuple):
    """A host or a cluster, with its causes in order."""

    name: str
    found: tuple[Found, ...]


def plain(text: str, values: t.Mapping[str, str]) -> str:
    """A text of the page for a screen: its links are names of files, its words in capitals what they stand for.

    People copy its commands into a shell: what a host or a cluster has named is one word there.
    """
    linked = _LINK.sub(lambda found: "%s (docs/%s)" % (found[1], found[2]), text)
    words = {name: shlex.quote(line(value, LONGEST)) for name, value in values.items()}
    return _WORDS.sub(lambda found: words.get(found[1], found[1]), linked.replace("`", ""))


def _values(one: Found, host: str) -> dict[str, str]:
    values = {"HOST": host} if host else {}
    for sign in one.signs:
        for name, value in (*sign.values, ("NODE", sign.node)):
            if value:
                values.setdefault(name, value)
    return values


def _told(one: Found, host: str = "") -> Data:
    """One cause as docs/schemas/doctor.schema.json has it."""
    values = _values(one, host)
    return {
        "id": one.cause.id,
        "level": one.level,
        "what": one.cause.what,
        "evidence": [
            {"look": sign.look, "said": sign.said, "level": sign.level, "next_step": sign.step} for sign in one.signs
        ],
        "remedy": plain(one.cause.remedy, values),
        "prove": plain(one.cause.prove, values),
        "explained_by": list(one.explained_by),
        "cluster": one.cluster,
    }


def document(hosts: t.Sequence[Place], clusters: t.Sequence[Place]) -> Data:
    """All that was found."""
    return {
        "schema": SCHEMA,
        "hosts": {
            one.name: {"state": state_of(one.found), "causes": [_told(each, one.name) for each in one.found]}
            for one in hosts
        },
        "clusters": {
            one.name: {"state": state_of(one.found), "causes": [_told(each) for each in one.found]} for one in clusters
        },
    }


def first(place: Place, host: str = "") -> str:
    """The most likely cause in one sentence with its next step for a host; empty where nothing is wrong."""
    sure = [one for one in place.found if one.level == WRONG]
    if not sure:
        return ""
    # What stands first explains the rest, whether it is a fault by itself or not.
    told = _told(place.found[0], host)
    return "%s: %s Next: %s" % (told["id"], told["what"], told["remedy"])


def screen(hosts: t.Sequence[Place], clusters: t.Sequence[Place]) -> list[Line]:
    """Clusters first, then hosts; those of which the same is to be said share it."""
    lines: list[Line] = []
    for place in clusters:
        if place.found:
            lines += [*_part("cluster %s:" % place.name, place.found, ""), Line("")]
    groups: dict[tuple[t.Any, ...], list[Place]] = {}
    for place in hosts:
        if place.found:
            groups.setdefault(_alike(place), []).append(place)
    shown = sorted(groups.values(), key=lambda mine: _STATES.index(state_of(mine[0].found)))
    for mine in shown[:GROUPS]:
        names = [place.name for place in mine]
        lines += [*_part("%s:" % some(names), mine[0].found, names[0] if len(names) == 1 else "", names[0]), Line("")]
    left = sum(map(len, shown[GROUPS:]))
    if left:
        lines += [Line("... and %d hosts more. Next: Look at them with --limit." % left), Line("")]
    return [*lines, _total(hosts, clusters)]


def _alike(place: Place) -> tuple[t.Any, ...]:
    """What hosts share that have the same causes for the same reasons; their own names are no difference."""
    return tuple(
        (
            one.cause.id,
            one.explained_by,
            tuple((sign.look, _shared(sign.said, place.name), _shared(sign.step, place.name)) for sign in one.signs),
        )
        for one in place.found
    )


def _shared(text: str, host: str) -> str:
    """A text about a host as it is for each host of a group."""
    return re.sub(r"(?<![\w.-])%s(?!\.?\w|-)" % re.escape(host), "HOST", text) if host else text


def _evidence(told: Data, of: str) -> list[Line]:
    """What was seen, each with its own next step: it is nearer to the case than the remedy. `of` are several hosts."""
    lines, steps = [], {told["remedy"]}
    for item in told["evidence"][:EVIDENCE]:
        lines.append(Line("      seen   %s: %s." % (item["look"], _shared(item["said"], of))))
        step = _shared(item["next_step"], of).replace("`", "")
        if step and step not in steps:
            lines.append(Line("      next   %s" % step))
        steps.add(step)
    if len(told["evidence"]) > EVIDENCE:
        lines.append(Line("      seen   ... and %d more" % (len(told["evidence"]) - EVIDENCE)))
    return lines


def _part(title: str, found: t.Sequence[Found], host: str, of: str = "") -> list[Line]:
    """The causes of a cluster, of one host, or of several alike, of which `of` is one."""
    lines = [Line(title, TITLE)]
    roots, after = [one for one in found if not one.explained_by], set[str]()
    for number, one in enumerate(roots[:CAUSES], 1):
        told = _told(one, host)
        sure = {WRONG: "", DOUBTFUL: " (a warning)", UNKNOWN: " (not known)"}[one.level]
        where = " [cluster %s]" % one.cluster if one.cluster else ""
        lines.append(Line("  %d %s%s%s: %s" % (number, one.cause.id, where, sure, told["what"]), _TONES[one.level]))
        lines += _evidence(told, "" if host else of)
        lines += [Line("      do     %s" % told["remedy"]), Line("      prove  %s" % told["prove"])]
        for other in found:
            if one.cause.id not in other.explained_by or other.cause.id in after:
                continue
            after.add(other.cause.id)
            sign = other.signs[0]
            lines.append(Line("      so     %s: %s: %s." % (other.cause.id, sign.look, sign.said)))
    if len(roots) > CAUSES:
        more = "  ... and %d causes more. Next: Read them with %sdoctor_format: json."
        lines.append(Line(more % (len(roots) - CAUSES, INPUT)))
    return lines


def _total(hosts: t.Sequence[Place], clusters: t.Sequence[Place]) -> Line:
    states = [state_of(place.found) for place in hosts]
    parts = ["%d %s" % (states.count(one), _TOLD.get(one, one)) for one in _STATES if one in states]
    text = "%d host%s: %s" % (len(hosts), "" if len(hosts) == 1 else "s", ", ".join(parts) or "none")
    of_clusters = [state_of(place.found) for place in clusters]
    if clusters:
        wrong = sum(one != "ok" for one in of_clusters)
        text += "; %d cluster%s: %s" % (
            len(clusters), "" if len(clusters) == 1 else "s", "%d not in order" % wrong if wrong else "ok"
        )  # fmt: skip
    every = {*states, *of_clusters}
    tone = BAD if every & {"faults", "not_reached"} else UNSURE if every - {"ok"} else GOOD if every else PLAIN
    return Line(text, tone)
