# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of a page that say how the fleet is, each as one section, or nothing where a report has none of it."""

from __future__ import annotations

import typing as t
from collections import Counter

from . import document as doc
from . import svg
from .html_hosts import WORST, states
from .html_parts import (
    STATES,
    Ids,
    alike,
    badge,
    below,
    count,
    duration,
    link,
    many,
    moment,
    names,
    next_step,
    own,
    section,
    sign,
    table,
    text,
)

# More causes are folded away, more versions of one thing are counted.
FAULTS, VERSIONS = 8, 12


def glance(document: doc.Document, notes: t.Sequence[str]) -> str:
    """The first thing that a reader sees: the sentence, who and when, the counts, the notes of the report and ours."""
    parts = ["<h1>%s</h1>" % _sentence(document), _who(document["made"])]
    if document["hosts"]:
        parts += [_fleet(document["summary"]), _numbers(document)]
    parts += ['<p class="note">%s</p>' % text(note) for note in (*document["notes"], *notes)]
    return "".join(parts)


def _fleet(told: doc.Summary) -> str:
    tiles = "".join(
        '<li><a class="tile %s%s" href="#hosts" data-state="%s"><strong>%s</strong><span>%s%s</span></a></li>'
        % (look.letter, "" if number else " zero", look.letter, count(number), sign(look), look.word)
        for state, look in STATES.items()
        for number in (told["states"].get(state, 0),)
        # No other run than one that looks at no host has it.
        if number or state != doc.NOT_SEEN
    )
    shares = svg.shares(_shares(told["states"]))
    return '<div class="fleet">%s<ul class="tiles" aria-label="Hosts by state">%s</ul></div>' % (shares, tiles)


def _sentence(document: doc.Document) -> str:
    told, made = document["summary"], document["made"]
    hosts, bad = told["hosts"], sum(told["states"].get(state, 0) for state in WORST)
    if not hosts:
        return "The report has no host"
    whole = many(hosts, "host")
    if made["ended"] == doc.ABORTED:
        return "The run was aborted: %s of %s not done" % (count(bad), whole) if bad else "The run was aborted"
    if bad:
        return "%s of %s %s attention" % (count(bad), whole, "needs" if bad == 1 else "need")
    if told["drift"]:
        return "%s of %s %s drifted" % (count(told["drift"]), whole, "has" if told["drift"] == 1 else "have")
    if told["objects_drifted"]:
        number = told["objects_drifted"]
        return "%s of clusters %s drifted" % (many(number, "object"), "has" if number == 1 else "have")
    would = sum(_would_change(one, made["check"]) for one in document["hosts"])
    if would:
        return "%s of %s would change" % (count(would), whole)
    if not all(one["pool"] for one in document["hosts"]):
        return "Nothing has failed on %s" % whole
    changes = told["states"].get(doc.CHANGED, 0)
    good = "The host is" if hosts == 1 else "Both hosts are" if hosts == 2 else "All %s are" % whole
    return "%s as wanted%s" % (good, ", %s changed" % count(changes) if changes else "")


def _would_change(host: doc.Host, check: bool) -> bool:
    """Whether a run is still to do what is planned."""
    return bool(host["planned"] and not host["changes"]) or (check and host["state"] == doc.CHANGED)


def _who(made: doc.Made) -> str:
    parts = [
        ("", "<strong>%s</strong>" % own(made["playbook"], 200) if made["playbook"] else ""),
        ("", '<b class="badge c">check mode, nothing changed</b>' if made["check"] else ""),
        ("", '<b class="badge f">aborted</b>' if made["ended"] == doc.ABORTED else ""),
        ("", '<b class="badge n">from cached facts</b>' if made["source"] == doc.OF_CACHE else ""),
        ("", moment(made["began"] or made["at"])),
        ("took", duration(made["seconds"]) if made["seconds"] is not None else ""),
        ("by", own(made["by"], 200) if made["by"] else ""),
        ("job", own(made["job"], 120) if made["job"] else ""),
        ("limit", own(made["limit"], 300) if made["limit"] else ""),
        ("tags", own(", ".join(made["tags"]), 300) if made["tags"] and made["tags"] != ["all"] else ""),
        ("without", own(", ".join(made["skip_tags"]), 300) if made["skip_tags"] else ""),
    ]
    told = "".join(
        "<li>%s%s</li>" % ('<span class="dim">%s</span> ' % word if word else "", value)
        for word, value in parts
        if value
    )
    return '<ul class="who" aria-label="This run">%s</ul>' % told


def _numbers(document: doc.Document) -> str:
    told = document["summary"]
    checks = told["checks"]
    all_checks = sum(checks.values())
    objects = "and %s" % many(told["objects_drifted"], "object") if told["objects_drifted"] else ""
    rows = [
        ("NPUs", count(told["npus"]) if told["npus"] is not None else "not known", ""),
        ("Checks passed", count(checks.get(doc.OK, 0)), "of %s" % count(all_checks)),
        ("Checks failed", count(checks.get(doc.FAILED, 0)), _against(document)),
        ("Changes on hosts", count(told["changes"]), ""),
        ("Objects of clusters", count(told["objects"]), "changed"),
        ("Hosts drifted", count(told["drift"]), objects),
    ]
    return '<dl class="numbers">%s</dl>' % "".join(
        "<div><dt>%s</dt><dd>%s%s</dd></div>" % (title, value, ' <span class="dim">%s</span>' % more if more else "")
        for title, value, more in rows
    )


def _against(document: doc.Document) -> str:
    new, repaired = document["summary"]["new_failures"], document["summary"]["repaired"]
    if new is None or repaired is None:
        return ""
    return "%s new, %s repaired" % (count(new), count(repaired))


def failures(hosts: t.Sequence[doc.Host], ids: Ids, longest: int) -> str:
    """Each cause once, with the hosts that it stopped, the most frequent first."""
    groups: dict[tuple[str, ...], list[tuple[str, tuple[str, str, str]]]] = {}
    for host in hosts:
        if host["state"] in WORST:
            words = _cause(host)
            key = (host["state"], *(alike(word, host["name"]) for word in words))
            groups.setdefault(key, []).append((host["name"], words))
    if not groups:
        return ""
    cards = []
    order = sorted(groups.items(), key=lambda item: (doc.STATES.index(item[0][0]), -len(item[1]), item[1][0]))
    for (state, *common), members in order:
        own_hosts = [name for name, _words in members]
        alone = own_hosts[0] if len(own_hosts) == 1 else ""
        task, cause, step = members[0][1] if alone else common
        cards.append(
            '<article class="fault %s" data-hosts="%s"><header>%s<span class="who-is">%s</span>%s</header>'
            '<p class="why">%s</p>%s%s</article>'
            % (
                STATES[state].letter,
                " ".join(ids[name] for name in own_hosts),
                badge(STATES[state]),
                link(alone, ids) if alone else many(len(own_hosts), "host"),
                '<span class="where">%s</span>' % own(task, 200) if task else "",
                text(cause, longest) or "No cause is known.",
                next_step(step, longest),
                "" if alone else names(own_hosts, ids),
            )
        )
    told = "%s, by cause." % many(sum(map(len, groups.values())), "host")
    inner = '<div class="faults">%s</div>' % "".join(cards[:FAULTS])
    if len(cards) > FAULTS:
        inner += '<details class="fold"><summary>%s</summary><div class="faults">%s</div></details>' % (
            many(len(cards) - FAULTS, "more cause"),
            "".join(cards[FAULTS:]),
        )
    return section("failures", "What needs attention", told, inner)


def _cause(host: doc.Host) -> tuple[str, str, str]:
    """(task or check, cause, next step)."""
    failure = host["failure"]
    if failure:
        return failure["task"], failure["cause"], failure["next_step"]
    others = host["checks"]["others"]
    worst = [one for one in others if one["result"] == host["state"]]
    if not worst:
        return "", host["reason"], ""
    more = "\n%s: %s." % (many(len(worst) - 1, "more check"), host["state"]) if worst[1:] else ""
    detail = worst[0]["detail"] + more
    return worst[0]["id"], detail, worst[0]["next_step"]


def compared(document: doc.Document, ids: Ids, longest: int) -> str:
    """What is other than in the last report."""
    last = document["compared"]
    if last is None:
        return ""
    new = _by_what((one["what"], one["detail"], one["host"]) for one in last["new_failures"])
    repaired = _by_what((one["what"], "", one["host"]) for one in last["repaired"])
    versions = _by_what(
        (one["what"], "%s \u2192 %s" % (one["before"] or "none", one["after"] or "none"), one["host"])
        for one in last["versions"]
    )
    came = {("", ""): last["appeared"]} if last["appeared"] else {}
    gone = {("", ""): last["gone"]} if last["gone"] else {}
    lists = [
        ("New failures", "f", new),
        ("Repaired", "k", repaired),
        ("Versions", "c", versions),
        ("New hosts", "c", came),
        ("Hosts that are gone", "n", gone),
    ]
    columns = "".join(_column(title, colour, groups, ids, longest) for title, colour, groups in lists if groups)
    told = "Against the report of %s%s." % (
        moment(last["at"]) or "an unknown time",
        ", run <code>%s</code>" % own(last["run"], 80) if last["run"] else "",
    )
    inner = '<div class="columns">%s</div>' % columns if columns else "<p>Nothing is other than it was.</p>"
    return section("compared", "Since the last report", told, inner)


def _by_what(rows: t.Iterable[tuple[str, str, str]]) -> dict[tuple[str, str], list[str]]:
    groups: dict[tuple[str, str], list[str]] = {}
    for what, detail, host in rows:
        groups.setdefault((what, alike(detail, host)), []).append(host)
    return dict(sorted(groups.items(), key=lambda item: -len(item[1])))


def _column(
    title: str, colour: str, groups: t.Mapping[tuple[str, str], t.Sequence[str]], ids: Ids, longest: int
) -> str:
    items = "".join(
        "<li>%s%s%s</li>"
        % (
            "<code>%s</code> " % own(what, 120) if what else "",
            '<span class="detail">%s</span>' % text(detail, longest) if detail else "",
            names(hosts, ids),
        )
        for (what, detail), hosts in groups.items()
    )
    number = sum(map(len, groups.values()))
    return '<div><h3>%s <b class="badge %s">%s</b></h3><ul>%s</ul></div>' % (title, colour, count(number), items)


def pools(document: doc.Document) -> str:
    if not document["pools"]:
        return ""
    rows = []
    for pool in document["pools"]:
        wanted = ", ".join(own(one, 120) for one in pool["wanted"]) or '<span class="dim">not chosen</span>'
        system = " ".join(own(one, 120) for one in (pool["os"], pool["architecture"]) if one)
        rows.append(
            (
                "%s%s" % (own(pool["name"], 200) if pool["name"] else "no pool known", below(states(pool["states"]))),
                "%s%s" % (count(pool["hosts"]), svg.shares(_shares(pool["states"]))),
                "%s%s" % (_known(pool["npus"]), below(", ".join(own(name, 120) for name in pool["products"]))),
                "%s%s" % (system, below(own(pool["kernel"], 120) if pool["kernel"] else "")),
                wanted,
                _drivers(pool),
                count(pool["drift"]) if pool["drift"] else "0",
            )
        )
    heads = ("Pool", "#Hosts", "#NPUs", "System", "Driver wanted", "Driver present", "#Drifted")
    told = "A pool has one system and one kernel. A driver that is not the wanted one is marked."
    inner = table("Pools", heads, rows, "pools") + _versions(document["hosts"])
    return section("pools", "Pools and versions", told, inner)


def _known(number: int | None) -> str:
    return count(number) if number is not None else '<span class="dim">not known</span>'


def _shares(told: t.Mapping[str, int]) -> list[tuple[str, int]]:
    return [(STATES[state].letter, told.get(state, 0)) for state in reversed(doc.STATES)]


def _drivers(pool: doc.Pool) -> str:
    told = []
    for version, hosts in sorted(pool["drivers"].items(), key=lambda item: -item[1]):
        right = not pool["wanted"] or version in pool["wanted"]
        mark = "" if right else '<b class="badge w">not wanted</b> '
        amount = '<span class="dim">%s</span>' % many(hosts, "host")
        told.append("<li>%s%s %s</li>" % (mark, own(version or "none", 120), amount))
    return "<ul>%s</ul>" % "".join(told) if told else '<span class="dim">not known</span>'


def _versions(hosts: t.Sequence[doc.Host]) -> str:
    """How many hosts have which version of what; a fleet in step has one line of each."""
    parts = []
    for key, title in (("driver", "Driver"), ("firmware", "Firmware"), ("kernel", "Kernel"), ("runtime", "Runtime")):
        found = Counter(host["versions"][key] for host in hosts if host["versions"][key])
        if found:
            most = found.most_common(1)[0][1]
            lines = "".join(
                '<li><span class="version">%s</span>%s<span class="amount">%s</span></li>'
                % (own(version, 120), svg.scaled(number, most), count(number))
                for version, number in found.most_common(VERSIONS)
            )
            more = len(found) - VERSIONS
            rest = '<li class="dim">and %s</li>' % many(more, "more version") if more > 0 else ""
            parts.append("<div><h3>%s</h3><ul>%s%s</ul></div>" % (title, lines, rest))
    return '<div class="columns versions">%s</div>' % "".join(parts) if parts else ""
