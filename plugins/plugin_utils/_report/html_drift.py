# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of a page that says what has drifted, on hosts and in clusters, and what is not known any more."""

from __future__ import annotations

import typing as t

from . import document as doc
from .html_parts import Ids, link, many, moment, own, section, table, text


def drift(document: doc.Document, ids: Ids, longest: int) -> str:
    hosts = [one for one in document["hosts"] if one["drift"]]
    clusters = [one for one in document["clusters"] if one["drift"]]
    lost = [one for one in document["hosts"] if one["not_known"]]
    if not hosts and not clusters and not lost:
        return ""
    told = [many(len(hosts), "host")] if hosts else []
    told += [many(sum(len(one["drift"]) for one in clusters), "object")] if clusters else []
    one = len(told) == 1 and told[0].startswith("1 ")
    words = ("is", "it") if one else ("are", "them")
    lead = "%s %s not as the last report left %s." % (" and ".join(told), *words) if told else ""
    parts = [_hosts(hosts, ids, longest), _clusters(clusters), _lost(lost, ids, longest)]
    return section("drift", "Drift", lead, "".join(parts))


def _hosts(hosts: t.Sequence[doc.Host], ids: Ids, longest: int) -> str:
    rows = [
        (
            link(host["name"], ids),
            own(one["what"], 120),
            " \u2192 ".join(own(one[key] or "nothing", longest) for key in ("was", "is")),
            '<b class="badge %s">%s</b>' % ("c" if one["by"] == doc.BY_RUN else "w", text(one["by"], 60)),
            moment(one["at"]) or '<span class="dim">not known</span>',
            '<span class="evidence">%s</span>' % text(one["evidence"], longest),
        )
        for host in hosts
        for one in host["drift"]
    ]
    return table("Drift", ("Host", "What", "Was, and is now", "By", "When", "Known by"), rows) if rows else ""


def _clusters(clusters: t.Sequence[doc.ClusterPart]) -> str:
    rows = [
        (
            own(one["object"], 300),
            own(cluster["name"] or "without a name", 255),
            '<b class="badge w">%s</b>' % text(one["is"], 60),
        )
        for cluster in clusters
        for one in cluster["drift"]
    ]
    return table("Drift of clusters", ("Object", "Cluster", "Is"), rows) if rows else ""


def _lost(hosts: t.Sequence[doc.Host], ids: Ids, longest: int) -> str:
    """No drift: nobody knows whether it has changed."""
    rows = [
        (link(host["name"], ids), own(one["what"], 120), own(one["was"], longest), text(one["why"], longest))
        for host in hosts
        for one in host["not_known"]
    ]
    return (
        "<h3>Not known any more</h3>" + table("Not known any more", ("Host", "What", "Was", "Why"), rows)
        if rows
        else ""
    )
