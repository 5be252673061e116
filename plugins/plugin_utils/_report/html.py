# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report as a page: one file that asks for nothing else, can be read without its script, and prints.

All text of a host is data: it is escaped, and the page's policy lets no other script and no other style run than the
two that are in it.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import typing as t
from pathlib import Path

from . import document as doc
from . import html_drift, html_hosts, html_matrix, html_run
from . import html_sections as sections
from .html_parts import LONGEST, STATES, Ids, count, many, moment, own, section, text

# The name of the collection, as people read it.
NAME = "rebellions.npu"
# Characters: a larger page is made again with shorter texts.
LARGEST, SHORTER = 4_700_000, (240, 60)
CUT = "Texts are cut after %d characters, as there are so many. The report as JSON has them whole."


def page(document: doc.Document) -> str:
    """The page of a report; the same report gives the same page. One too large to open is made with shorter texts."""
    told = _page(document, LONGEST, [])
    for longest in SHORTER:
        if len(told) > LARGEST:
            told = _page(document, longest, [CUT % longest])
    return told


def _page(document: doc.Document, longest: int, notes: t.Sequence[str]) -> str:
    hosts = html_hosts.worst_first(document["hosts"])
    ids = {host["name"]: "h%d" % number for number, host in enumerate(hosts)}
    pools = {pool["name"]: number for number, pool in enumerate(document["pools"])}
    for host in hosts:
        pools.setdefault(host["pool"], len(pools))
    columns = html_matrix.columns(hosts)
    told = [
        ("failures", "Attention", sections.failures(hosts, ids, longest)),
        ("checks", "Checks", _checks(hosts, ids, columns)),
        ("compared", "Since last", sections.compared(document, ids, longest)),
        ("hosts", "Hosts", _hosts(hosts, ids, pools, longest)),
        ("pools", "Pools", sections.pools(document)),
        ("drift", "Drift", html_drift.drift(document, ids, longest)),
        ("rollout", "Rollout", html_run.rollout(document, ids, longest)),
        ("changes", "Changes", html_run.changes(document, ids, longest)),
        ("timings", "Timings", html_run.timings(document, ids)),
    ]
    parts = [one for one in told if one[2]]
    style = _file("page.css") + html_matrix.rules(columns)
    script = _file("page.js")
    return "".join(
        (
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
            '<meta http-equiv="Content-Security-Policy" content="%s">' % _policy(style, script),
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">',
            "<title>%s</title><style>%s</style></head><body>" % (_title(document), style),
            '<a class="skip" href="#main">Skip to the content</a>',
            '<header class="top"><p class="brand">%s <span>report</span></p>' % NAME,
            sections.glance(document, notes),
            _contents([(name, title) for name, title, _inner in parts]),
            '</header><main id="main" tabindex="-1">',
            _filter(document, columns, pools) if hosts else "",
            *(inner for _name, _title, inner in parts),
            '<div id="tip" role="tooltip" hidden></div><div id="told" class="hidden" role="status"></div></main>',
            _foot(document["made"]),
            "<script>%s</script></body></html>\n" % script,
        )
    )


@functools.cache
def _file(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    def digest(told: str) -> str:
        return "'sha256-%s'" % base64.b64encode(hashlib.sha256(told.encode()).digest()).decode()

    return "default-src 'none'; style-src %s; script-src %s; img-src data:; base-uri 'none'; form-action 'none'" % (
        digest(style),
        digest(script),
    )


def _title(document: doc.Document) -> str:
    made, told = document["made"], document["summary"]
    bad = sum(told["states"].get(state, 0) for state in html_hosts.WORST)
    return "%s of %s: %s" % (count(bad), many(told["hosts"], "host"), text(made["playbook"] or NAME, 120))


def _contents(parts: t.Sequence[tuple[str, str]]) -> str:
    told = "".join('<li><a href="#%s">%s</a></li>' % one for one in parts)
    return '<nav aria-label="Contents"><ul>%s</ul></nav>' % told


def _checks(hosts: t.Sequence[doc.Host], ids: Ids, columns: t.Sequence[html_matrix.Column]) -> str:
    if not columns:
        return ""
    loud = any(not column.quiet for column in columns)
    choice = (
        '<label class="only"><input type="checkbox" id="only"> Only checks that did not pass everywhere</label>'
        if loud and any(column.quiet for column in columns)
        else ""
    )
    tools = '<div class="above">%s%s</div>' % (html_matrix.legend(), choice)
    return section(
        "checks", "Checks", html_matrix.said(columns, len(hosts)), tools + html_matrix.matrix(hosts, ids, columns)
    )


def _hosts(hosts: t.Sequence[doc.Host], ids: Ids, pools: t.Mapping[str, int], longest: int) -> str:
    if not hosts:
        return ""
    told = "Worst first. Each one opens."
    return section("hosts", "Hosts", told, html_hosts.listed(hosts, ids, pools, longest))


def _filter(document: doc.Document, columns: t.Sequence[html_matrix.Column], pools: t.Mapping[str, int]) -> str:
    """Of use with the script alone, which shows it."""
    states = [(look.letter, look.word) for state, look in STATES.items() if document["summary"]["states"].get(state)]
    loud = [(str(number), column.id) for number, column in enumerate(columns) if not column.quiet]
    named = [(str(number), name or "no pool known") for name, number in pools.items()]
    return (
        '<form id="filter" class="filter" role="search" aria-label="Filter hosts" hidden>'
        '<label class="find"><span>Search</span><input type="search" id="find" autocomplete="off" spellcheck="false" '
        'placeholder="Host, node, version, cause"></label>%s%s%s'
        '<p id="shown" role="status"></p><button type="reset">Show all</button></form>'
    ) % (
        _select("state", "State", "Any state", states),
        _select("pool", "Pool", "Any pool", named) if len(named) > 1 else "",
        _select("check", "Check", "Any check", loud) if loud else "",
    )


def _select(name: str, title: str, all_of_them: str, choices: t.Sequence[tuple[str, str]]) -> str:
    told = "".join('<option value="%s">%s</option>' % (value, text(word, 120)) for value, word in choices)
    return '<label><span>%s</span><select id="%s"><option value="">%s</option>%s</select></label>' % (
        title,
        "by-" + name,
        all_of_them,
        told,
    )


def _foot(made: doc.Made) -> str:
    parts = [
        "Made %s" % moment(made["at"]) if made["at"] else "",
        "%s %s" % (NAME, own(made["version"], 60)) if made["version"] else "",
        "ansible-core %s" % own(made["core"], 60) if made["core"] else "",
        "run <code>%s</code>" % own(made["run"], 80) if made["run"] else "",
    ]
    return "<footer><p>%s</p></footer>" % " \u00b7 ".join(part for part in parts if part)
