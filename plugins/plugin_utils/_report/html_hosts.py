# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a page tells of each host: a line that opens. Hosts with a fault come first; the others are folded away."""

from __future__ import annotations

import typing as t

from . import document as doc
from .html_matrix import anchor
from .html_parts import LONGEST, RESULTS, STATES, Ids, badge, duration, many, moment, next_step, own, sign, text

WORST = (doc.FAILED, doc.UNREACHABLE, doc.NOT_REACHED, doc.UNKNOWN)
# The most hosts that are open from the beginning, and that are not folded away.
OPEN, MOST = 3, 50
# Words of a version: the order in which a reader looks for them.
WORDS = (
    ("driver", "Driver"),
    ("firmware", "Firmware"),
    ("kernel", "Kernel"),
    ("os", "System"),
    ("runtime", "Runtime"),
    ("architecture", "Architecture"),
)
DISRUPTS = {"none": "", "restart": "restarts", "evict": "evicts pods", "reboot": "reboots"}
WHO = {doc.BY_RUN: "a run", doc.BY_PACKAGES: "a package manager", doc.BY_PERSON: "a person"}


class Short(t.NamedTuple):
    """How short texts are to be; where the page has told the next step of a check, None to tell it each time."""

    longest: int
    steps: dict[tuple[str, str], str] | None


def worst_first(hosts: t.Sequence[doc.Host]) -> list[doc.Host]:
    """By state, then by how much has not passed, then by name."""

    def place(host: doc.Host) -> tuple[int, int, int, str]:
        results = [one["result"] for one in host["checks"]["others"]]
        return (
            doc.STATES.index(host["state"]),
            -results.count(doc.FAILED),
            -sum(result in (doc.UNKNOWN, doc.WARNING) for result in results),
            host["name"],
        )

    return sorted(hosts, key=place)


def loud(host: doc.Host) -> bool:
    """Whether a reader should look at it: a fault, a check that is more than a note, or drift."""
    checks = any(one["result"] != doc.NOTE for one in host["checks"]["others"])
    return host["state"] in WORST or checks or bool(host["drift"])


def listed(hosts: t.Sequence[doc.Host], ids: Ids, pools: t.Mapping[str, int], longest: int) -> str:
    """All hosts in their order. `pools` has the number of each pool, by which the script filters.

    Longer texts of a host than `longest` are cut; then the next step of a check is also told once, and linked.
    """
    steps: dict[tuple[str, str], str] | None = None if longest == LONGEST else {}
    told = [
        (loud(host), _host(host, ids[host["name"]], pools, Short(longest, steps), number < OPEN))
        for number, host in enumerate(hosts)
    ]
    noisy = [line for noise, line in told if noise]
    quiet = [line for noise, line in told if not noise]
    parts = [_list(noisy[:MOST] or quiet)]
    if noisy[MOST:]:
        parts.append(_fold("%s with a fault" % many(len(noisy) - MOST, "more host"), noisy[MOST:]))
    if noisy and quiet:
        parts.append(_fold("%s without a fault" % many(len(quiet), "host"), quiet))
    return "".join(parts)


def _fold(title: str, lines: t.Sequence[str]) -> str:
    return '<details class="fold"><summary>%s</summary>%s</details>' % (title, _list(lines))


def _list(lines: t.Sequence[str]) -> str:
    return '<div class="hosts">%s</div>' % "".join(lines)


def _host(host: doc.Host, own_id: str, pools: t.Mapping[str, int], short: Short, first: bool) -> str:
    look = STATES[host["state"]]
    others = host["checks"]["others"]
    notes = ["%d %s" % (number, RESULTS[word].word) for word, number in _results(others)]
    facts = [
        many(host["npus"], "NPU") if host["npus"] is not None else "",
        own(host["versions"]["driver"], 60) if host["versions"]["driver"] else "",
        ", ".join(notes),
    ]
    head = '<span class="name">%s</span>%s<span class="facts">%s</span>' % (
        own(host["name"], 255),
        badge(look),
        "".join("<span>%s</span>" % one for one in facts if one),
    )
    return '<details class="host" data-state="%s" data-pool="%d"%s><summary>%s</summary>%s</details>' % (
        look.letter,
        pools[host["pool"]],
        " open" if first and host["state"] in WORST else "",
        head,
        _body(host, own_id, short),
    )


def _results(others: t.Sequence[doc.CheckResult]) -> list[tuple[str, int]]:
    told = [one["result"] for one in others]
    return [(word, told.count(word)) for word in doc.RESULTS if word in told]


def _body(host: doc.Host, own_id: str, short: Short) -> str:
    longest = short.longest
    failure = host["failure"]
    parts = []
    if failure:
        parts.append(
            '<div class="cause"><p><span class="task">%s</span>%s</p>%s</div>'
            % (own(failure["task"], 200), text(failure["cause"], longest), next_step(failure["next_step"], longest))
        )
    elif host["reason"]:
        parts.append('<div class="cause"><p>%s</p></div>' % text(host["reason"], longest))
    checks = [_check(one, anchor(own_id, number), short) for number, one in enumerate(host["checks"]["others"])]
    parts.append(_part("Checks that have not passed", checks))
    parts.append(_part("Changed by this run", ["<li>%s</li>" % text(one, longest) for one in host["changes"]]))
    if not host["changes"]:
        parts.append(_part("Planned", [_planned(one, longest) for one in host["planned"] or ()]))
    parts.append(_part("Drift", ["<li>%s</li>" % _drifted(one, longest) for one in host["drift"]]))
    parts.append(_part("Not known any more", ["<li>%s</li>" % _lost(one, longest) for one in host["not_known"]]))
    parts.append(_facts(host))
    # A link to what is inside opens it, without the script too.
    return '<div id="%s" class="body">%s</div>' % (own_id, "".join(parts))


def _part(title: str, items: t.Sequence[str]) -> str:
    return "<h3>%s</h3><ul>%s</ul>" % (title, "".join(items)) if items else ""


def _check(one: doc.CheckResult, there: str, short: Short) -> str:
    step = next_step(one["next_step"], short.longest)
    if step and short.steps is not None:
        first = short.steps.setdefault((one["id"], one["next_step"]), there)
        step = step if first == there else '<div class="next"><a href="#%s">Next step</a></div>' % first
    return '<li id="%s" class="check">%s<code>%s</code><span class="detail">%s</span>%s</li>' % (
        there,
        badge(RESULTS[one["result"]]),
        own(one["id"], 120),
        text(one["detail"], short.longest),
        step,
    )


def _planned(one: doc.Planned, longest: int) -> str:
    word = DISRUPTS[one["disruption"]]
    return "<li>%s%s</li>" % (text(one["text"], longest), ' <b class="badge w">%s</b>' % word if word else "")


def _drifted(one: doc.Drift, longest: int) -> str:
    when = " at %s" % moment(one["at"]) if one["at"] else ""
    who = WHO.get(one["by"], "unknown")
    return '<strong>%s</strong>: %s \u2192 %s <span class="dim">by %s%s. %s</span>' % (
        own(one["what"], 120),
        own(one["was"] or "nothing", longest),
        own(one["is"] or "nothing", longest),
        who,
        when,
        text(one["evidence"], longest),
    )


def _lost(one: doc.NotKnown, longest: int) -> str:
    why = ": %s" % text(one["why"], longest) if one["why"] else ""
    return "<strong>%s</strong>, was %s%s" % (own(one["what"], 120), own(one["was"], longest), why)


def _facts(host: doc.Host) -> str:
    rows = [(title, own(host["versions"][key], 200)) for key, title in WORDS if host["versions"][key]]
    if host["wanted"]["driver"]:
        rows.insert(1, ("Wanted driver", own(host["wanted"]["driver"], 120)))
    products = ", ".join("%d \u00d7 %s" % (number, own(name, 120)) for name, number in host["products"].items())
    rows += [
        (title, told)
        for title, told in (
            ("NPUs", products),
            ("Node", own(host["node"], 255) if host["node"] else ""),
            ("Node is", own(host["node_state"], 200) if host["node_state"] else ""),
            ("Pool", own(host["pool"], 200) if host["pool"] else ""),
            ("Seen", moment(host["seen"])),
            ("Tasks took", duration(host["seconds"]) if host["seconds"] is not None else ""),
            ("Checks passed", str(len(host["checks"]["passed"])) if host["checks"]["passed"] else ""),
        )
        if told
    ]
    return '<dl class="facts">%s</dl>' % "".join("<div><dt>%s<dd>%s</div>" % row for row in rows)


def states(told: t.Mapping[str, int]) -> str:
    """Counts by state, in a row, those that are not zero."""
    some = [(STATES[state], told.get(state, 0)) for state in doc.STATES if told.get(state, 0)]
    return " ".join('<span class="part">%s%d\u00a0%s</span>' % (sign(look), number, look.word) for look, number in some)
