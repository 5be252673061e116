# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report as Markdown that fits a message of a chat or a ticket: the worst first, the rest counted. Pure."""

from __future__ import annotations

import re
import typing as t

from .._plan.words import count, hosts
from .._rollout.table import duration
from .document import (
    ABORTED,
    FAILED,
    NOT_REACHED,
    OF_CACHE,
    OTHER,
    STATES,
    UNKNOWN,
    UNREACHABLE,
    WARNING,
    Document,
    Drift,
    Host,
    NotKnown,
    ObjectDrift,
)
from .html_parts import alike

# Characters of the whole, and of one cause.
MOST, CAUSE, STEP = 3500, 200, 160
BAD = (FAILED, UNREACHABLE, NOT_REACHED, UNKNOWN)
# Text of hosts is no Markdown: neither a link nor a mention of a person, and no HTML.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#|~@!&]|:(?=//))")
# GitHub looks for people, teams and tickets in the page that it has made: there a backslash is gone.
_NAMING = re.compile(r"(?<=[@#])(?=[A-Za-z0-9])")


def markdown(document: Document) -> str:
    """The message; at most MOST characters."""
    parts = [_head(document), *_failures(document), *_drift(document), *_warnings(document), *_news(document)]
    text = ""
    for at, part in enumerate(parts):
        rest = f"\n*... and {len(parts) - at} more in the full report.*\n"
        if len(text) + len(part) + len(rest) > MOST:
            return text + rest
        text += part
    return text


def escaped(text: str, longest: int = CAUSE) -> str:
    cut = text if len(text) <= longest else text[: longest - 3] + "..."
    return _NAMING.sub("\u200b", _SPECIAL.sub(r"\\\1", cut))


def _head(document: Document) -> str:
    made, counts = document["made"], document["summary"]
    states = ", ".join(f"{counts['states'][state]} {state}" for state in reversed(STATES) if counts["states"][state])
    title = f"## NPU report: {escaped(made['playbook'] or 'hosts')}"
    title += " (check mode)" if made["check"] else ""
    took = "" if made["seconds"] is None else f", {_took(made['seconds'])}"
    lines = [title, f"{made['at']}{took}, by {escaped(made['by'] or 'nobody known')}" + _job(made["job"])]
    if made["limit"]:
        lines.append(f"Limited to `{made['limit'].replace('`', '')[:CAUSE]}`")
    if made["ended"] == ABORTED:
        lines.append("**The run was aborted**; what it had not come to is missing.")
    if made["source"] == OF_CACHE:
        lines.append("From cached facts; no host was asked.")
    lines += ["", f"**{count(counts['hosts'], 'host')}: {states or 'none'}**"]
    lines += [f"NPUs: {'not known' if counts['npus'] is None else counts['npus']}, checks: {_checks(document)}"]
    changes = [
        (counts["changes"], "change"),
        (counts["objects"], "cluster object"),
        (counts["drift"], "drifted host"),
        (counts["objects_drifted"], "drifted object"),
    ]
    told = ", ".join(count(number, noun) for number, noun in changes if number)
    lines += [f"Done or found: {told}"] if told else []
    return "\n".join(lines) + "\n"


def _took(seconds: float) -> str:
    return f"{round(seconds)} s" if seconds < 90 else duration(seconds)


def _job(job: str) -> str:
    return f", job {escaped(job)}" if job else ""


def _checks(document: Document) -> str:
    return (
        ", ".join(f"{number} {result}" for result, number in document["summary"]["checks"].items() if number) or "none"
    )


def _failures(document: Document) -> list[str]:
    """A part for each cause: hosts with the same one share it."""
    found: dict[tuple[str, str, str], list[Host]] = {}
    for state in BAD:
        for one in document["hosts"]:
            if one["state"] == state:
                cause, step = _cause(one)
                key = (state, alike(cause, one["name"], "the host"), alike(step, one["name"]))
                found.setdefault(key, []).append(one)
    parts = []
    for (state, cause, step), alike_hosts in sorted(found.items(), key=lambda item: BAD.index(item[0][0])):
        names = [one["name"] for one in alike_hosts]
        cause, step = _cause(alike_hosts[0]) if len(names) == 1 else (cause, step)
        next_step = f"\n  Next: {escaped(step, STEP)}" if step else ""
        parts.append(f"- **{state}** {escaped(hosts(names))}: {escaped(cause)}{next_step}\n")
    return _titled("What is wrong", parts)


def _cause(one: Host) -> tuple[str, str]:
    """(cause, next step) of a host, which may name it."""
    failure = one["failure"]
    if failure is not None:
        cause, step = failure["cause"], failure["next_step"]
    else:
        checks = [check for check in one["checks"]["others"] if check["result"] in (FAILED, UNKNOWN)]
        first = checks[0] if checks and one["state"] in (FAILED, UNKNOWN) else None
        cause = f"{first['id']}: {first['detail']}" if first else one["reason"]
        step = first["next_step"] if first else ""
    return cause, step


def _drift(document: Document) -> list[str]:
    found: dict[str, list[str]] = {}
    for one in document["hosts"]:
        for drift in one["drift"]:
            found.setdefault(drift_text(drift), []).append(one["name"])
    parts = [f"- {escaped(hosts(names))}: {escaped(text, 400)}\n" for text, names in found.items()]
    for cluster in document["clusters"]:
        told = [object_text(one) for one in cluster["drift"]]
        parts += [f"- cluster {escaped(cluster['name'])}: {escaped(text, 400)}\n" for text in told]
    lost: dict[str, list[str]] = {}
    for one in document["hosts"]:
        for what in one["not_known"]:
            lost.setdefault(lost_text(what), []).append(one["name"])
    unsure = [f"- {escaped(hosts(names))}: {escaped(text, 400)}\n" for text, names in lost.items()]
    return [*_titled("Drift", parts), *_titled("Not known any more", unsure)]


def drift_text(drift: Drift) -> str:
    """`driver: 3.1.0 -> 3.0.2, by a package manager (history.log ...)`."""
    return f"{drift['what']}: {drift['was']} -> {drift['is']}, {by_words(drift)}"


def object_text(drift: ObjectDrift) -> str:
    """`ConfigMap npu-system/x is missing`."""
    return f"{drift['object']} {'differs' if drift['is'] == OTHER else 'is ' + drift['is']}"


def lost_text(one: NotKnown) -> str:
    """`driver (was 3.1.0)`."""
    return f"{one['what']} (was {one['was']})" + (f": {one['why']}" if one["why"] else "")


def by_words(drift: Drift) -> str:
    """Who, when and how that is known."""
    who = {"run": "by a run of ours", "person": "by a person", "package manager": "by a package manager"}
    told = who.get(drift["by"], "nobody known")
    at = f" at {drift['at']}" if drift["at"] else ""
    return f"{told}{at}" + (f" ({drift['evidence']})" if drift["evidence"] else "")


def _warnings(document: Document) -> list[str]:
    found: dict[str, list[str]] = {}
    for one in document["hosts"]:
        for check in one["checks"]["others"]:
            if check["result"] == WARNING:
                found.setdefault(check["id"], []).append(one["name"])
    ranked = sorted(found.items(), key=lambda item: -len(item[1]))
    return _titled("Warnings", [f"- `{name}` on {escaped(hosts(names))}\n" for name, names in ranked])


def _news(document: Document) -> list[str]:
    compared = document["compared"]
    if compared is None:
        return []
    parts = [
        *[f"- new: {escaped(one['host'])} {escaped(one['what'])}\n" for one in compared["new_failures"]],
        *_versions(document),
        *[f"- repaired: {escaped(one['host'])} {escaped(one['what'])}\n" for one in compared["repaired"]],
        *([f"- new hosts: {escaped(hosts(compared['appeared']))}\n"] if compared["appeared"] else []),
        *([f"- gone: {escaped(hosts(compared['gone']))}\n"] if compared["gone"] else []),
    ]
    return _titled(f"Since {compared['at']}", parts)


def _versions(document: Document) -> list[str]:
    found: dict[tuple[str, str, str], list[str]] = {}
    for one in (document["compared"] or {"versions": []})["versions"]:
        found.setdefault((one["what"], one["before"], one["after"]), []).append(one["host"])
    return [
        f"- {what}: {escaped(before)} -> {escaped(after)} on {escaped(hosts(names))}\n"
        for (what, before, after), names in found.items()
    ]


def _titled(title: str, parts: t.Sequence[str]) -> list[str]:
    return [f"\n### {title}\n{parts[0]}", *parts[1:]] if parts else []
