# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts of a run on one screen: a row for each, below it what is wrong or not known, and what to do. Pure.

Hosts with the same row or the same findings share it, and what is in order is only counted, so that a thousand hosts
still fit.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.rebellions.npu.plugins.module_utils._runtime.live import is_stopped

from .._answers.passed import passed_names
from .._text.line import line
from .._text.screen import BAD, GOOD, PLAIN, UNSURE, Line, some, table
from .records import NodeState

OK, FAILED, UNKNOWN, UNSEEN = "ok", "failed", "unknown", "not seen"
# What begins the names of what is found of a node.
CLUSTER = "cluster"
# Rows of the table, and groups of hosts with the same findings, that are shown before the others are counted.
ROWS, GROUPS = 40, 20
HEAD = ("host", "NPUs", "driver", "firmware", "system", "kernel", "runtime", "node", "checks")
# Characters of what a check has seen, and of what to do.
DETAIL, STEP = 300, 200
NONE, NOT_KNOWN = "none", "unknown"
# A firmware that no NPU tells, and a driver that does not tell its version.
UNSAID, LOADED = "-", "loaded"

Data = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class HostState:
    """A host: its facts, its runtimes, its checks (an observation or a proof), its node; or why it was not seen."""

    host: str
    facts: Data = field(default_factory=dict)
    runtimes: Data = field(default_factory=dict)
    record: Data = field(default_factory=dict)
    node: NodeState | None = None
    error: str = ""


@dataclass(frozen=True)
class Finding:
    """What is wrong: FAILED, unknown or a warning; `what` is scope/check, of a node cluster/NAME."""

    word: str
    what: str
    detail: str
    next_step: str = ""

    @property
    def text(self) -> str:
        # A node is one thing to a reader, whatever is wrong with it.
        what = CLUSTER if self.what.startswith(CLUSTER + "/") else self.what
        return "%s: %s%s" % (what, self.detail, " Next: " + self.next_step if self.next_step else "")

    @property
    def tone(self) -> str:
        return BAD if self.word == "FAILED" else UNSURE


def state_of(one: HostState) -> str:
    """Whether a host is ok, failed, unknown or was not seen: by the checks that block, and by its node."""
    if one.error:
        return UNSEEN
    words = {found.word for found in findings(one)}
    return FAILED if "FAILED" in words else UNKNOWN if "unknown" in words else OK


def findings(one: HostState) -> list[Finding]:
    """What is wrong or not known on a host, the worst first; info is not among it."""
    if one.error:
        return [Finding("FAILED", UNSEEN, line(one.error, DETAIL))]
    found = [made for check in one.record.get("checks") or () for made in _of_check(check)]
    found += _of_node(one.node) if one.node else []
    order = ("FAILED", "unknown", "warning")
    return sorted(found, key=lambda item: order.index(item.word))


def _of_check(check: Data) -> list[Finding]:
    if check["ok"] or check["severity"] == "info":
        return []
    # What does not stand in the way when it is false does not either when it is not known.
    word = "warning" if check["severity"] != "error" else "unknown" if check["ok"] is None else "FAILED"
    return [Finding(word, *told(check))]


def told(check: Data) -> tuple[str, str, str]:
    """(scope/name, what it has seen, what to do) of a check, for people."""
    what, detail = "%s/%s" % (check["scope"], check["name"]), line(check["detail"], DETAIL).rstrip(".")
    return what, detail + ".", line(check["next_step"] or "", STEP)


def _of_node(node: NodeState) -> list[Finding]:
    if node["error"]:
        what, _next, step = line(node["error"], DETAIL + STEP).partition(" Next: ")
        return [Finding("unknown", CLUSTER + "/node", what, step)]
    name, found = node["node"], []
    if not node["ready"]:
        text = "node %s is not Ready." % name
        found.append(Finding("FAILED", CLUSTER + "/node_ready", text, "Look at the kubelet of the node."))
    if node["cordoned"]:
        text = "node %s is cordoned%s." % (name, " and drained" if node["drained"] else "")
        step = "Run `kubectl uncordon %s` when it may work again." % name
        found.append(Finding("warning", CLUSTER + "/node_in_service", text, step))
    for taint in node["taints"]:
        text = "node %s has the taint %s, which keeps our pods off." % (name, taint)
        found.append(Finding("warning", CLUSTER + "/node_untainted", text, "Remove it when its cause is gone."))
    if node["expected"] is not None and node["allocatable"] != node["expected"]:
        text = "node %s offers %d of %d NPUs." % (name, node["allocatable"], node["expected"])
        step = "Run `ansible-playbook rebellions.npu.site --tags operands`."
        found.append(Finding("warning", CLUSTER + "/node_allocatable", text, step))
    return found


def _row(one: HostState) -> tuple[str, ...]:
    """The cells of a host, without its name."""
    if one.error:
        return ("", "", "", "", "", "", "", UNSEEN)
    count = (one.facts.get("counts") or {}).get("devices")
    seen = versions(one)
    return (
        NOT_KNOWN if count is None else str(count),
        *(seen[what] for what in ("driver", "firmware", "os", "kernel", "runtime")),
        node_words(one.node),
        _counts(one),
    )


def versions(one: HostState) -> dict[str, str]:
    """What a host that was seen runs, in words."""
    facts = one.facts
    system = facts.get("os") or {}
    firmware = sorted({str(npu.get("firmware")) for npu in facts.get("npus") or () if npu.get("firmware")})
    return {
        "os": " ".join(str(part) for part in (system.get("id"), system.get("version_id")) if part) or NOT_KNOWN,
        "kernel": str((facts.get("kernel") or {}).get("running") or NOT_KNOWN),
        "architecture": str(system.get("arch") or NOT_KNOWN),
        "driver": _driver(facts.get("driver") or {}),
        "firmware": ", ".join(firmware) or UNSAID,
        "runtime": _runtime(one.runtimes),
    }


def is_known(what: str, version: str) -> bool:
    """Whether words of versions() name one, or say that there is none."""
    if what == "runtime" and version != NONE:
        # `containerd` alone did not tell it.
        return all(" " in one for one in version.split(", "))
    return version not in ("", UNSAID, LOADED, NOT_KNOWN)


def _driver(driver: Data) -> str:
    loaded, on_disk = driver.get("version_loaded"), driver.get("version_on_disk")
    if loaded:
        return str(loaded) + (" (%s on disk)" % on_disk if on_disk and on_disk != loaded else "")
    if driver.get("loaded") is None:
        return NOT_KNOWN
    if driver["loaded"]:
        return LOADED
    return "%s, not loaded" % on_disk if on_disk else NONE


def _runtime(runtimes: Data) -> str:
    found = [one for one in runtimes.get("runtimes") or () if one.get("selected")]
    told = [
        " ".join(part for part in (one["name"], one.get("version") or "", "STOPPED" if is_stopped(one) else "") if part)
        for one in found
    ]
    unclear = "runtimes" not in runtimes or runtimes.get("ambiguous")
    return ", ".join(told) or (NOT_KNOWN if unclear else NONE)


def node_words(node: NodeState | None) -> str:
    if node is None:
        return "-"
    if node["error"]:
        return NOT_KNOWN
    words = ["Ready" if node["ready"] else "NotReady"]
    words += [("drained" if node["drained"] else "cordoned")] if node["cordoned"] else []
    words += ["tainted"] if node["taints"] else []
    return ", ".join([*words, "%d allocatable" % node["allocatable"]])


def _counts(one: HostState) -> str:
    """How many checks are in order, and how many are not."""
    checks = one.record.get("checks") or ()
    counts = {"ok": sum(map(len, passed_names(one.record).values()))}
    words = [made.word for check in checks for made in _of_check(check)]
    for word, told in (("FAILED", "failed"), ("unknown", "unknown"), ("warning", "warning")):
        counts[told] = words.count(word)
    return ", ".join("%d %s" % (count, word) for word, count in counts.items() if count or word == "ok")


def _worst(found: t.Sequence[Finding]) -> int:
    return min((("FAILED", "unknown", "warning").index(one.word) for one in found), default=3)


def overview(hosts: t.Sequence[HostState]) -> list[Line]:
    """The lines of the screen."""
    rows: dict[tuple[str, ...], list[HostState]] = {}
    groups: dict[tuple[Finding, ...], list[HostState]] = {}
    for one in hosts:
        rows.setdefault((*_row(one), state_of(one)), []).append(one)
        found = tuple(findings(one))
        if found:
            groups.setdefault(found, []).append(one)
    shown = sorted(rows.items(), key=lambda item: min(_worst(findings(one)) for one in item[1]))
    cells = [(some([one.host for one in found], 3), *row[:-1]) for row, found in shown[:ROWS]]
    tones = [{OK: GOOD, UNKNOWN: UNSURE}.get(row[-1], BAD) for row, _found in shown[:ROWS]]
    lines = table(HEAD, cells, tones)
    if len(shown) > ROWS:
        left = sum(len(found) for _row_cells, found in shown[ROWS:])
        lines.append(Line("... and %d hosts more. Next: Look at them with --limit." % left))
    worst = sorted(groups.items(), key=lambda item: _worst(item[0]))
    for found, concerned in worst[:GROUPS]:
        lines += [Line(""), Line("%s:" % some([one.host for one in concerned]))]
        lines += [Line("  %-8s %s" % (one.word, one.text), one.tone) for one in found]
    if len(worst) > GROUPS:
        left = sum(len(concerned) for _found, concerned in worst[GROUPS:])
        lines += [Line(""), Line("... and %d hosts more with other findings. Next: Look at them with --limit." % left)]
    return [*lines, Line(""), _total(hosts)]


def _total(hosts: t.Sequence[HostState]) -> Line:
    states = [state_of(one) for one in hosts]
    parts = ["%d %s" % (states.count(state), state) for state in (OK, FAILED, UNKNOWN, UNSEEN) if state in states]
    bad = any(state in (FAILED, UNSEEN) for state in states)
    tone = BAD if bad else UNSURE if UNKNOWN in states else GOOD if states else PLAIN
    return Line("%d host%s: %s" % (len(hosts), "" if len(hosts) == 1 else "s", ", ".join(parts) or "none"), tone)
