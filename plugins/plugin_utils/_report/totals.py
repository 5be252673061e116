# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is counted of the hosts of a report: the summary and the pools. Pure."""

from __future__ import annotations

import typing as t
from collections import Counter

from .document import FAILED, NOTE, OK, STATES, UNKNOWN, WARNING, ClusterPart, Compared, Document, Host, Pool, Summary

MADE = ("created", "changed", "deleted")
# The states of hosts as people read them: from good to bad.
_ORDER = tuple(reversed(STATES))


def states_of(hosts: t.Sequence[Host]) -> dict[str, int]:
    found = Counter(one["state"] for one in hosts)
    return {state: found[state] for state in _ORDER}


def summary(hosts: t.Sequence[Host], clusters: t.Sequence[ClusterPart], compared: Compared | None) -> Summary:
    results = Counter(check["result"] for one in hosts for check in one["checks"]["others"])
    return {
        "hosts": len(hosts),
        "states": states_of(hosts),
        "checks": {
            OK: sum(len(one["checks"]["passed"]) for one in hosts),
            **{result: results[result] for result in (FAILED, UNKNOWN, WARNING, NOTE)},
        },
        "npus": _npus(hosts),
        "changes": sum(len(one["changes"]) for one in hosts),
        "objects": sum(one["action"] in MADE for cluster in clusters for one in cluster["objects"]),
        "drift": sum(bool(one["drift"]) for one in hosts),
        "objects_drifted": sum(len(cluster["drift"]) for cluster in clusters),
        "new_failures": None if compared is None else len(compared["new_failures"]),
        "repaired": None if compared is None else len(compared["repaired"]),
    }


def recounted(document: Document) -> Document:
    """The report with its counts as its hosts are now."""
    hosts = document["hosts"]
    return {
        **document,
        "summary": summary(hosts, document["clusters"], document["compared"]),
        "pools": pools(hosts),
    }


def pools(hosts: t.Sequence[Host]) -> list[Pool]:
    """The pools of the hosts by name; hosts that are not known are the last one, without a name."""
    found: dict[str, list[Host]] = {}
    for one in hosts:
        found.setdefault(one["pool"], []).append(one)
    return [_pool(name, found[name]) for name in sorted(found, key=lambda name: (not name, name))]


def _pool(name: str, hosts: t.Sequence[Host]) -> Pool:
    products: Counter[str] = Counter()
    for one in hosts:
        products.update(one["products"])
    seen = [one["versions"] for one in hosts if name]
    return {
        "name": name,
        "hosts": len(hosts),
        "states": states_of(hosts),
        "npus": _npus(hosts),
        "products": dict(sorted(products.items())),
        # A pool is made of them: they are the same on its hosts.
        "os": seen[0]["os"] if seen else "",
        "kernel": seen[0]["kernel"] if seen else "",
        "architecture": seen[0]["architecture"] if seen else "",
        "wanted": sorted({one["wanted"]["driver"] for one in hosts} - {""}),
        "drivers": dict(sorted(Counter(versions["driver"] for versions in seen).items())),
        "drift": sum(bool(one["drift"]) for one in hosts),
    }


def _npus(hosts: t.Sequence[Host]) -> int | None:
    known = [one["npus"] for one in hosts if one["npus"] is not None]
    return sum(known) if known else None
