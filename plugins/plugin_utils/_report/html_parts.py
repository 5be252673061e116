# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pieces that all parts of a page are made of: escaped text, states, times, lists of hosts, next steps. Pure."""

from __future__ import annotations

import datetime
import html
import re
import typing as t

from .._answers.text import clean
from . import document as doc

# Longer texts are cut: one host with a broken tool must not make a page that nobody can open.
LONGEST = 2000
# More hosts of one list are folded away.
FEW = 12
# Where the page tells of each host.
Ids = t.Mapping[str, str]


class Look(t.NamedTuple):
    """How a state of a host, or a result of a check, is shown: its letter is its class; colour never tells it alone."""

    letter: str
    sign: str
    word: str


STATES = {
    doc.FAILED: Look("f", "\u2715", "failed"),
    doc.UNREACHABLE: Look("u", "\u2298", "unreachable"),
    doc.NOT_REACHED: Look("n", "\u2013", "not reached"),
    doc.UNKNOWN: Look("q", "?", "unknown"),
    doc.NOT_SEEN: Look("s", "\u25cc", "not seen"),
    doc.CHANGED: Look("c", "\u25c6", "changed"),
    doc.OK: Look("k", "\u2713", "ok"),
}
RESULTS = {
    doc.FAILED: Look("f", "\u2715", "failed"),
    doc.UNKNOWN: Look("q", "?", "unknown"),
    doc.WARNING: Look("w", "!", "warning"),
    doc.NOTE: Look("i", "i", "note"),
    doc.OK: Look("k", "\u2713", "passed"),
}


def text(value: t.Any, longest: int = LONGEST) -> str:
    """Text of others, which can be anything, as text of the page: no mark-up, no direction of its own."""
    told = str(value)
    if len(told) > longest:
        told = told[:longest] + " \u2026 [cut]"
    return html.escape(clean(told, True), quote=True)


def own(value: t.Any, longest: int = LONGEST) -> str:
    """The same inside a sentence of ours: letters of a script that goes from right to left do not turn it round."""
    told = text(value, longest)
    return told if told.isascii() else "<bdi>%s</bdi>" % told


def alike(told: str, host: str, word: str = "HOST") -> str:
    """A text with `word` for the name of its host, so that hosts with one cause meet."""
    if host not in told:
        return told
    return re.sub(r"(?<![\w.-])%s(?![\w-]|\.\w)" % re.escape(host), word, told)


def many(number: int, one: str, more: str = "") -> str:
    """`1 host`, `1,024 hosts`."""
    return "%s %s" % (count(number), one if number == 1 else more or one + "s")


def count(number: int) -> str:
    return format(number, ",")


def moment(stamp: str) -> str:
    """A stamp of the document, in UTC, as people read it. Empty for none."""
    if not stamp:
        return ""
    return '<time datetime="%s">%s UTC</time>' % (text(stamp, 40), text(stamp, 40).replace("T", " ").rstrip("Z"))


def clock(stamp: str) -> str:
    """The time of day of a stamp; empty for none."""
    return '<time datetime="%s">%s</time>' % (text(stamp, 40), text(stamp[11:16])) if stamp else ""


def seconds_between(begin: str, end: str) -> float:
    """Seconds between two stamps. 0 where one is none."""
    try:
        first, last = (datetime.datetime.fromisoformat(one.rstrip("Z")) for one in (begin, end))
    except ValueError:
        return 0.0
    return (last - first).total_seconds()


def duration(seconds: float | None) -> str:
    """`1 h 05 min`, `2 min 14 s`, `0.8 s`; `not known` for None."""
    if seconds is None:
        return "not known"
    if seconds < 9.95:
        return "%.1f s" % seconds
    whole = round(seconds)
    if whole < 60:
        return "%d s" % whole
    if whole < 3600:
        return "%d min %02d s" % divmod(whole, 60)
    return "%d h %02d min" % divmod(round(whole / 60), 60)


def sign(look: Look) -> str:
    """The sign alone, where the word follows or the link says it."""
    return '<span class="sign %s" aria-hidden="true">%s</span>' % (look.letter, look.sign)


def badge(look: Look) -> str:
    """The word; the style sheet sets the sign before it."""
    return '<b class="badge %s">%s</b>' % (look.letter, look.word)


def below(told: str) -> str:
    """A second line of a cell. Empty for none."""
    return '<span class="below">%s</span>' % told if told else ""


def link(name: str, ids: Ids) -> str:
    """A host, linked to what the page tells of it."""
    there = ids.get(name)
    return '<a href="#%s">%s</a>' % (there, own(name, 255)) if there else own(name, 255)


def names(hosts: t.Sequence[str], ids: Ids) -> str:
    """A list of hosts; a long one is folded after its first ones."""
    shown = ", ".join(link(name, ids) for name in hosts[:FEW])
    if len(hosts) <= FEW:
        return '<p class="names">%s</p>' % shown
    rest = ", ".join(link(name, ids) for name in hosts[FEW:])
    return '<p class="names">%s</p><details class="more"><summary>%s</summary><p class="names">%s</p></details>' % (
        shown,
        many(len(hosts) - FEW, "more host"),
        rest,
    )


def next_step(told: str, longest: int = LONGEST) -> str:
    """What to do; the script sets a button beside it that copies it. Empty for none."""
    return '<div class="next"><b>Next</b><span>%s</span></div>' % text(told, longest) if told else ""


def section(name: str, title: str, told: str, inner: str) -> str:
    """A part of the page, a landmark with its heading. `told` is a line below the heading; it may be empty."""
    lead = '<p class="lead">%s</p>' % told if told else ""
    return '<section id="%s" aria-labelledby="%s-title"><h2 id="%s-title">%s</h2>%s%s</section>' % (
        name,
        name,
        name,
        title,
        lead,
        inner,
    )


def table(caption: str, heads: t.Sequence[str], rows: t.Iterable[t.Sequence[str]], kind: str = "") -> str:
    """A table in a region of its own that scrolls, so that the page never does sideways. The first cell heads its row.

    `heads`: a name, with `#` before it for numbers. Cells are HTML.
    """
    classes = [' class="number"' if head.startswith("#") else "" for head in heads]
    top = "".join('<th scope="col"%s>%s</th>' % (own, head.lstrip("#")) for own, head in zip(classes, heads))
    lines = []
    for first, *others in rows:
        cells = "".join("<td%s>%s</td>" % (own, cell) for own, cell in zip(classes[1:], others))
        lines.append('<tr><th scope="row">%s</th>%s</tr>' % (first, cells))
    return (
        '<div class="scroll" tabindex="0" role="group" aria-label="%s"><table class="%s"><caption>%s</caption>'
        "<thead><tr>%s</tr></thead><tbody>%s</tbody></table></div>"
    ) % (caption, kind or "plain", caption, top, "".join(lines))
