# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of a page that say what the run did: its waves, its changes, its times."""

from __future__ import annotations

import typing as t
from collections import Counter

from . import document as doc
from . import svg
from .html_hosts import DISRUPTS
from .html_parts import (
    Ids,
    alike,
    below,
    clock,
    duration,
    link,
    many,
    names,
    own,
    seconds_between,
    section,
    table,
    text,
)

# Bars of one table, and hosts among the slowest.
BARS, HOSTS = 12, 6
# More nodes of a rollout are shown by wave alone.
NODES = 100
# The words of a turn, and the look of a host whose state says the same.
TURNS = {
    "planned": "n",
    "done": "k",
    "failed": "f",
    "left": "n",
    "reboot": "w",
    "under way": "c",
}
ACTIONS = {"created": "k", "changed": "c", "deleted": "w", "failed": "f", "not tried": "n"}


def rollout(document: doc.Document, ids: Ids, longest: int) -> str:
    """The waves of an upgrade on one line of time."""
    turns = document["waves"]
    if not turns:
        return ""
    begins = [one["began"] for one in turns if one["began"]]
    ends = [one["ended"] for one in turns if one["ended"]]
    first = min(begins, default="")
    last = max([*ends, *begins], default="")
    whole = seconds_between(first, last)
    waves: dict[tuple[str, int], list[doc.Turn]] = {}
    for one in turns:
        waves.setdefault((one["cluster"], one["wave"]), []).append(one)
    rows, several = [], len({cluster for cluster, _wave in waves}) > 1
    for (cluster, number), wave in sorted(waves.items(), key=lambda item: (item[0][0], item[0][1] or 10**6)):
        title = ("Wave %d" % number if number else "In no wave") + (" of %s" % own(cluster, 120) if several else "")
        rows.append(_wave(title, wave, first, whole))
        if len(turns) <= NODES:
            rows += [_turn(one, first, whole, ids, longest) for one in wave]
    axis = '<span class="axis"><span>%s</span><span>%s</span></span>' % (clock(first), clock(last)) if whole > 0 else ""
    heads = ("Wave and host", "State", axis + '<span class="hidden">From and to</span>', "#Took", "Reason")
    told = "%s in %s%s." % (
        many(len(turns), "host"),
        many(len({one["wave"] for one in turns if one["wave"]}), "wave"),
        ", %s" % duration(whole) if whole > 0 else "",
    )
    return section("rollout", "Waves of the rollout", told, table("Waves", heads, rows, "timeline"))


def _wave(title: str, wave: t.Sequence[doc.Turn], first: str, whole: float) -> tuple[str, ...]:
    begins = [one["began"] for one in wave if one["began"]]
    ends = [one["ended"] for one in wave if one["ended"]]
    found = Counter(one["state"] for one in wave)
    told = " ".join('<b class="badge %s">%d %s</b>' % (TURNS[word], found[word], word) for word in TURNS if found[word])
    begin, end = min(begins, default=""), max([*ends, *begins], default="")
    drawn = _line(begin, end, first, whole, "wave")
    took = duration(seconds_between(begin, end)) if begin and ends else ""
    return "<strong>%s</strong>" % title, told, drawn, took, ""


def _turn(one: doc.Turn, first: str, whole: float, ids: Ids, longest: int) -> tuple[str, ...]:
    node = below(own(one["node"], 255)) if one["node"] and one["node"] != one["host"] else ""
    drawn = _line(one["began"], one["ended"] or one["began"], first, whole, TURNS[one["state"]])
    return (
        '<span class="turn">%s%s</span>' % (link(one["host"], ids), node),
        '<b class="badge %s">%s</b>' % (TURNS[one["state"]], one["state"]),
        drawn,
        duration(one["seconds"]) if one["seconds"] is not None else "",
        '<span class="evidence">%s</span>' % text(one["reason"], longest),
    )


def _line(begin: str, end: str, first: str, whole: float, colour: str) -> str:
    if not begin:
        return ""
    told = '<span class="hidden">%s to %s</span>' % (clock(begin), clock(end))
    return told + svg.span(seconds_between(first, begin), seconds_between(first, end), whole, colour)


def changes(document: doc.Document, ids: Ids, longest: int) -> str:
    """What the run has changed, or would: each change once with its hosts, then the objects of each cluster."""
    check = document["made"]["check"]
    made: dict[tuple[str, str], list[str]] = {}
    for host in document["hosts"]:
        if host["changes"] and not check:
            told = [(one, "none") for one in host["changes"]]
        elif check or document["made"]["source"] == doc.OF_CACHE:
            told = [(one["text"], one["disruption"]) for one in host["planned"] or ()]
        else:
            told = []
        for what, disruption in dict.fromkeys(told):
            made.setdefault((alike(what, host["name"]), disruption), []).append(host["name"])
    items = "".join(
        "<li>%s%s%s</li>"
        % (
            text(what, longest),
            ' <b class="badge w">%s</b>' % DISRUPTS[disruption] if DISRUPTS[disruption] else "",
            names(hosts, ids),
        )
        for (what, disruption), hosts in sorted(made.items(), key=lambda item: (-len(item[1]), item[0]))
    )
    parts = ['<ul class="changes">%s</ul>' % items] if items else []
    parts += [_cluster(one) for one in document["clusters"]]
    if not parts:
        return ""
    done = document["made"]["source"] == doc.OF_RUN and not check
    title = "Changes of this run" if done else "What a run would change"
    return section("changes", title, "", "".join(parts))


def _cluster(cluster: doc.ClusterPart) -> str:
    rows = [
        (
            own(one["object"], 300),
            '<b class="badge %s">%s</b>' % (ACTIONS[one["action"]], one["action"]),
        )
        for one in cluster["objects"]
    ]
    name = own(cluster["name"], 255) if cluster["name"] else "without a name"
    told = "%s, %s unchanged." % (many(cluster["hosts"], "host"), many(cluster["unchanged"], "object"))
    errors = "".join('<p class="note">%s</p>' % text(one) for one in cluster["errors"])
    objects = table("Objects of cluster %s" % text(cluster["name"], 255), ("Object", "Action"), rows) if rows else ""
    return '<h3>Cluster %s</h3><p class="dim">%s</p>%s%s' % (name, told, errors, objects)


def timings(document: doc.Document, ids: Ids) -> str:
    told = document["timings"]
    hosts = sorted(
        ({"name": one["name"], "seconds": one["seconds"]} for one in document["hosts"] if one["seconds"]),
        key=lambda one: -t.cast(float, one["seconds"]),
    )
    parts = [
        _bars("Plays", [(own(one["name"], 200), one["seconds"]) for one in told["plays"]]),
        _bars("Slowest roles", [(own(one["name"], 200), one["seconds"]) for one in told["roles"]]),
        _bars("Slowest hosts", [(link(str(one["name"]), ids), t.cast(float, one["seconds"])) for one in hosts[:HOSTS]]),
        _bars("Slowest tasks", [(_task(one, ids), one["seconds"]) for one in told["tasks"]]),
    ]
    if not any(parts):
        return ""
    return section("timings", "Where the time went", "", '<div class="columns bars">%s</div>' % "".join(parts))


def _task(one: doc.TimedTask, ids: Ids) -> str:
    by = " \u00b7 ".join(own(word, 120) for word in (one["role"], one["play"]) if word)
    slow = "slowest %s, %s" % (link(one["slowest"], ids), duration(one["slowest_seconds"])) if one["slowest"] else ""
    return own(one["name"], 200) + below("%s, %s" % (by, slow) if by and slow else by or slow)


def _bars(title: str, rows: t.Sequence[tuple[str, float]]) -> str:
    if not rows:
        return ""
    most = max(seconds for _name, seconds in rows)
    lines = "".join(
        '<li><span class="version">%s</span>%s<span class="amount">%s</span></li>'
        % (name, svg.scaled(seconds, most), duration(seconds))
        for name, seconds in rows[:BARS]
    )
    return "<div><h3>%s</h3><ul>%s</ul></div>" % (title, lines)
