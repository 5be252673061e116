# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is new in a report against earlier ones. Pure.

A host is compared with the newest report that has seen it: a run over one host is no look at the others.
"""

from __future__ import annotations

import typing as t

from .._nodes.overview import is_known
from .document import (
    FAILED,
    OF_CACHE,
    VERSIONS,
    ClusterPart,
    Compared,
    Document,
    Host,
    NewFailure,
    Object,
    Repaired,
    VersionChange,
)
from .totals import summary


def last_looks(hosts: t.Iterable[str], earlier: t.Iterable[Document]) -> dict[str, Host]:
    """Each host as the newest of the earlier reports has seen it; `earlier` comes newest first and is read lazily."""
    wanted, found = set(hosts), dict[str, Host]()
    for document in earlier:
        for one in document["hosts"]:
            if one["name"] in wanted and one["pool"] and one["name"] not in found:
                found[one["name"]] = one
        if len(found) == len(wanted):
            break
    return found


def last_plans(hosts: t.Iterable[str], earlier: t.Iterable[Document]) -> tuple[str, dict[str, Host]]:
    """(when the newest report with a plan was made, each host as it was seen and planned last): drift is told of these.

    A look without a plan does not say what was as wanted, and one of cached facts not when that was.
    """
    wanted, found, at = set(hosts), dict[str, Host](), ""
    for document in earlier:
        copied = document["made"]["source"] == OF_CACHE
        for one in document["hosts"]:
            if one["planned"] is not None and one["seen"]:
                at = at or (one["seen"] if copied else document["made"]["at"])
                if one["name"] in wanted:
                    found.setdefault(one["name"], one)
        if len(found) == len(wanted):
            break
    return at, found


def last_clusters(names: t.Iterable[str], earlier: t.Iterable[Document]) -> dict[str, set[str]]:
    """{cluster: its objects that were not as wanted} by the newest earlier report for which it was asked.

    After a run that applied them, only those are left that it could not.
    """
    wanted, found = set(names), dict[str, set[str]]()
    for document in earlier:
        # What a report of cached facts has of clusters is that of the report before it.
        for one in document["clusters"] if document["made"]["source"] != OF_CACHE else []:
            if one["name"] in wanted and one["name"] not in found and (one["objects"] or one["unchanged"]):
                left = one["objects"] if document["made"]["check"] else _not_applied(one)
                found[one["name"]] = {item["object"] for item in left}
        if len(found) == len(wanted):
            break
    return found


def _not_applied(cluster: ClusterPart) -> list[Object]:
    return [item for item in cluster["objects"] if item["action"] in ("failed", "not tried")]


def compared(now: Document, last: Document, looks: t.Mapping[str, Host]) -> Document:
    """The report with what is new. `last` is the newest of the earlier ones, `looks` are of last_looks()."""
    new: list[NewFailure] = []
    repaired: list[Repaired] = []
    versions: list[VersionChange] = []
    for one in now["hosts"]:
        before = looks.get(one["name"])
        if before is None:
            continue
        old, current = _wrong(before), _wrong(one)
        new += [{"host": one["name"], "what": what, "detail": current[what]} for what in current if what not in old]
        repaired += [{"host": one["name"], "what": what} for what in old if _is_repaired(what, before, one, current)]
        versions += [
            {"host": one["name"], "what": what, "before": before["versions"][what], "after": one["versions"][what]}
            for what in VERSIONS
            if one["pool"]
            and before["versions"][what] != one["versions"][what]
            # What is not known has not changed.
            and is_known(what, before["versions"][what])
            and is_known(what, one["versions"][what])
        ]
    names, former = [one["name"] for one in now["hosts"]], [one["name"] for one in last["hosts"]]
    # With --limit the other hosts are not gone.
    narrow = bool(now["made"]["limit"] or last["made"]["limit"])
    found: Compared = {
        "at": last["made"]["at"],
        "run": last["made"]["run"],
        "new_failures": new,
        "repaired": repaired,
        "versions": versions,
        "appeared": [] if narrow else [name for name in names if name not in set(former)],
        "gone": [] if narrow else [name for name in former if name not in set(names)],
    }
    return {**now, "compared": found, "summary": summary(now["hosts"], now["clusters"], found)}


def _wrong(one: Host) -> dict[str, str]:
    """What has failed on a host, by the ids of checks; a task that failed by its name."""
    found = {check["id"]: check["detail"] for check in one["checks"]["others"] if check["result"] == FAILED}
    failure = one["failure"]
    return {**found, failure["task"]: failure["cause"]} if failure else found


def _is_repaired(what: str, before: Host, one: Host, current: t.Mapping[str, str]) -> bool:
    """A check is repaired when it passes; a task when the run has come to a good end on the host."""
    if any(check["id"] == what for check in before["checks"]["others"]):
        return what in one["checks"]["passed"]
    return not current and one["failure"] is None and bool(one["pool"])
