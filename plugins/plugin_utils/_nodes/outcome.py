# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the work on a cluster means for one host. Pure."""

from __future__ import annotations

import json
import os
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

_SHORT, _AROUND = 200, 30
# Errors with one next step that are told before the others are counted: a wrong registry fails every component.
MOST_TOLD = 2

Data = t.Mapping[str, t.Any]


def judge_host(host: str, outcome: Data) -> dict[str, t.Any]:
    """The task result for `host`; `result` has cluster, acted_by, ok, objects, node, daemonsets, allocatable, error.

    `outcome` holds cluster, actor, error (why nothing was done), the round in which it was chosen who acts, and
    applied: what the actor registered of its work (round, objects, nodes or path, waited, failed, msg), which may be
    missing or skipped. A host fails by problems of its own node and by those without a node, never by problems of
    another host's node; and when there is no record of it. The key `again` is there where the work is to be done once
    more.
    """
    cluster = outcome.get("cluster") or ""
    applied = outcome.get("applied")
    work: Data = applied if isinstance(applied, t.Mapping) else {}
    result: dict[str, t.Any] = {
        "cluster": cluster,
        "acted_by": outcome.get("actor") or "",
        "objects": work.get("objects", {}),
        "node": {},
        "daemonsets": [],
        "allocatable": None,
        "ok": True,
        "error": "",
    }
    if not cluster:
        return {"changed": False, "result": result, "msg": "%s belongs to no cluster." % host}
    nodes = work.get("nodes") or {}
    record = nodes.get(host) or {}
    result["node"] = {key: record[key] for key in ("node", "proof", "after", "notes", "expected") if key in record}
    waited = work.get("waited") or {}
    result["daemonsets"] = [
        {key: verdict[key] for key in ("name", "desired", "ready", "updated", "done")}
        for verdict in waited.get("daemonsets") or []
    ]
    result["allocatable"] = (waited.get("allocatable") or {}).get(record.get("node"))
    error = (
        outcome.get("error")
        or (work.get("failed") and (work.get("msg") or "The work on the cluster failed without a message."))
        or ""
    )
    # In check mode the work goes on to its end, and is judged.
    if work.get("features") and not work.get("objects") and not error:
        return {"changed": False, "result": result, "msg": "%s: the work goes on." % host, "again": _again(work)}
    left_out = "" if error else _left_out(host, outcome, work)
    errors = [left_out] if left_out else _errors(host, record, nodes, waited, str(error))
    if errors:
        result.update(ok=False, error=_joined(errors))
        return {"changed": False, "failed": True, "result": result, "msg": "%s: %s" % (host, result["error"])}
    more = {"again": _again(work)} if work.get("features") or work.get("brought") else {}
    return {"changed": False, "result": result, "msg": _good_news(host, result, work), **more}


def _again(work: Data) -> dict[str, t.Any]:
    """The hosts for which the work is done once more, after they have done, or shown, something."""
    return {name: list(work.get(name) or []) for name in ("features", "brought")}


def _joined(errors: t.Sequence[str]) -> str:
    """One message of several: what has the same next step is said together, the first of it and how much more."""
    steps: dict[str, list[str]] = {}
    for one in dict.fromkeys(errors):
        what, _next, step = one.partition(" Next: ")
        steps.setdefault(step, []).append(what)
    told = []
    for step, found in steps.items():
        rest = len(found) - MOST_TOLD
        text = " | ".join(found[:MOST_TOLD]) + (" (and %d more)" % rest if rest > 0 else "")
        told.append("%s Next: %s" % (text, step) if step else text)
    return " | ".join(told)


def _left_out(host: str, outcome: Data, work: Data) -> str:
    """Why nobody has worked for this host, though nothing failed; empty when somebody has."""
    actor = outcome.get("actor")
    if not actor:
        what = "No host of the play acts for the cluster of this host."
    elif host not in (work.get("nodes") or {}) and "path" not in work:
        what = f"{actor} acted for the cluster without this host."
    elif host != actor and outcome.get("round") != work.get("round"):
        what = f"{actor} acted for the cluster, but not in the same task as this host."
    else:
        return ""
    step = (
        "Give the play the strategy linear: with free, host_pinned or mitogen_free, hosts reach this point one by one. "
        "Then run again."
    )
    return str(NpuError(what, step))


def _errors(host: str, record: Data, nodes: Data, waited: Data, error: str) -> list[str]:
    if record.get("error"):
        return [record["error"]]
    if not waited or not record:
        return [error] if error else []
    # A host without a node has an empty name; problems without a node concern every host.
    others = {other["node"] for name, other in nodes.items() if name != host and other["node"]}
    return [problem["text"] for problem in waited.get("problems") or [] if problem["node"] not in others]


def _good_news(host: str, result: Data, work: Data) -> str:
    allocatable = result["allocatable"]
    if allocatable:
        return "%s is node %s: %d of %d NPUs allocatable." % (
            host,
            result["node"]["node"],
            allocatable["allocatable"],
            allocatable["expected"],
        )
    if work.get("msg") and not work.get("waited"):
        # Something that a removal left, and why.
        return "%s: %s" % (host, work["msg"])
    return "%s: the cluster is as wanted." % host


def difference_lines(differences: t.Sequence[Data]) -> list[str]:
    """What applying would change, for people: an object per line, and below it each changed field."""
    lines = []
    for one in differences:
        lines.append(
            "%s: %s%s" % (one["object"], one["action"], ", but refused: %s" % one["error"] if one["error"] else "")
        )
        if one["action"] == "changed":
            lines += ["  %s: %s" % (field["path"], _brief(field["before"], field["after"])) for field in one["fields"]]
    return lines or ["nothing would change"]


def _brief(before: t.Any, after: t.Any) -> str:
    """`before -> after`; long values without their common beginning."""
    texts = [
        "(none)" if value is None else json.dumps(value, sort_keys=True, ensure_ascii=False)
        for value in (before, after)
    ]
    same = max(0, len(os.path.commonprefix(texts)) - _AROUND) if max(map(len, texts)) > _SHORT else 0
    cut = ["..." + text[same:] if same else text for text in texts]
    return " -> ".join(text if len(text) <= _SHORT else text[: _SHORT - 3] + "..." for text in cut)
