# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The matrix of a page: a row for each host, a column for each check.

A passed check costs a few bytes. Any other is a link to what the host's part of the page says of it; the script shows
that text beside the cell. Rows are cut into bodies that the browser lays out when they come into view.
"""

from __future__ import annotations

import typing as t
from collections import Counter

from . import document as doc
from .html_parts import RESULTS, STATES, Ids, many, own, sign, text

# Rows of one body.
ROWS = 20
SCOPES = ("driver", "toolkit", "plugin", "vfio", "cluster")


class Column(t.NamedTuple):
    scope: str
    name: str
    # Hosts by result, of those it applies to.
    results: Counter[str]

    @property
    def id(self) -> str:
        return "%s/%s" % (self.scope, self.name) if self.scope else self.name

    @property
    def quiet(self) -> bool:
        """Whether it has passed on all hosts."""
        return not any(self.results[word] for word in doc.RESULTS)


def columns(hosts: t.Sequence[doc.Host]) -> list[Column]:
    """All checks of all hosts: by scope, and in it by name."""
    found: dict[str, Counter[str]] = {}
    for host in hosts:
        for name in host["checks"]["passed"]:
            found.setdefault(name, Counter())[doc.OK] += 1
        for one in host["checks"]["others"]:
            found.setdefault(one["id"], Counter())[one["result"]] += 1

    def place(name: str) -> tuple[int, str, str]:
        scope = name.partition("/")[0]
        return (SCOPES.index(scope) if scope in SCOPES else len(SCOPES), scope, name)

    return [Column(*_split(name), found[name]) for name in sorted(found, key=place)]


def _split(name: str) -> tuple[str, str]:
    scope, slash, rest = name.partition("/")
    return (scope, rest) if slash else ("", scope)


def anchor(host: str, number: int) -> str:
    """Where a page tells of a host's check: the number is its place among those that have not passed."""
    return "%s-%d" % (host, number)


def rules(cols: t.Sequence[Column]) -> str:
    """What the style sheet has to know of these columns: how many each scope has."""
    return "".join(".s%d{--all:%d}" % (number, len(group)) for number, (_scope, group) in enumerate(_scopes(cols)))


def _scopes(cols: t.Sequence[Column]) -> list[tuple[str, list[Column]]]:
    groups: dict[str, list[Column]] = {}
    for column in cols:
        groups.setdefault(column.scope, []).append(column)
    return list(groups.items())


def matrix(hosts: t.Sequence[doc.Host], ids: Ids, cols: t.Sequence[Column]) -> str:
    """`hosts` in the order of their rows; `ids` has the anchor of each."""
    groups = _scopes(cols)
    top = "".join(
        '<th scope="colgroup" colspan="%d" class="s%d"><span>%s</span></th>'
        % (len(own_columns), number, text(scope or "other", 60))
        for number, (scope, own_columns) in enumerate(groups)
    )
    begins = {own_columns[0].id for _scope, own_columns in groups}
    names = "".join(_head(column, column.id in begins) for column in cols)
    classes = {column.id: (" z" if column.quiet else "") + (" b" if column.id in begins else "") for column in cols}
    passed = {name: '<td class="k%s">\u2713' % more for name, more in classes.items()}
    empty = {name: '<td class="%s">' % more.strip() for name, more in classes.items()}
    lines = [_row(host, ids[host["name"]], classes, passed, empty) for host in hosts]
    bodies = ["<tbody>%s</tbody>" % "".join(lines[at : at + ROWS]) for at in range(0, len(lines), ROWS)]
    return (
        '<div id="grid" class="grid" tabindex="0" role="region" aria-label="Matrix of hosts and checks"><table>'
        "<caption>Each row is a host, each column a check.</caption>"
        '<thead><tr class="scopes"><td></td>%s</tr><tr><th scope="col">Host</th>%s</tr></thead>%s</table></div>'
    ) % (top, names, "".join(bodies))


def _head(column: Column, begins: bool) -> str:
    classes = " ".join(word for word, yes in (("z", column.quiet), ("b", begins)) if yes)
    told = ", ".join("%d %s" % (column.results[word], RESULTS[word].word) for word in RESULTS if column.results[word])
    return '<th scope="col"%s data-told="%s"><span><i>%s</i>%s</span></th>' % (
        ' class="%s"' % classes if classes else "",
        told,
        text(column.scope + "/", 60) if column.scope else "",
        text(column.name, 60),
    )


def _row(
    host: doc.Host, own_id: str, classes: t.Mapping[str, str], passed: t.Mapping[str, str], empty: t.Mapping[str, str]
) -> str:
    look = STATES[host["state"]]
    cells = dict(empty)
    for name in host["checks"]["passed"]:
        cells[name] = passed[name]
    for number, one in enumerate(host["checks"]["others"]):
        result = RESULTS[one["result"]]
        cells[one["id"]] = '<td class="%s"><a href="#%s" aria-label="%s">%s</a>' % (
            result.letter + classes[one["id"]],
            anchor(own_id, number),
            result.word,
            result.sign,
        )
    inner = "".join(cells.values())
    if not host["checks"]["passed"] and not host["checks"]["others"]:
        inner = '<td class="none" colspan="%d">%s: no checks' % (max(len(classes), 1), look.word)
    return '<tr data-host="%s"><th scope="row">%s<a href="#%s">%s</a></th>%s</tr>' % (
        own_id,
        sign(look),
        own_id,
        own(host["name"], 255),
        inner,
    )


def legend() -> str:
    told = "".join("<li>%s%s</li>" % (sign(look), look.word) for look in RESULTS.values())
    none = '<li><span class="sign none" aria-hidden="true"></span>does not apply</li>'
    return '<ul class="legend" aria-label="Signs of the matrix">%s%s</ul>' % (told, none)


def said(cols: t.Sequence[Column], hosts: int) -> str:
    """The line below the heading."""
    quiet = sum(column.quiet for column in cols)
    return "%s on %s. %s passed everywhere." % (
        many(len(cols), "check"),
        many(hosts, "host"),
        "All" if quiet == len(cols) else many(quiet, "check"),
    )
