# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The document of a report, as docs/schemas/report.schema.json has it: its types and its words. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._answers.answer import judge_of
from .._answers.shape import Wrong

SCHEMA = 1
FILE = "report.schema.json"
# States of a host, those that a reader looks for first.
FAILED, UNREACHABLE, NOT_REACHED, UNKNOWN = "failed", "unreachable", "not reached", "unknown"
NOT_SEEN, CHANGED, OK = "not seen", "changed", "ok"
STATES = (FAILED, UNREACHABLE, NOT_REACHED, UNKNOWN, NOT_SEEN, CHANGED, OK)
# Results of a check.
WARNING, NOTE = "warning", "note"
RESULTS = (FAILED, UNKNOWN, WARNING, NOTE)
WHOLE, ABORTED = "whole", "aborted"
OF_RUN, OF_CACHE = "run", "cache"
# Who has changed something.
BY_RUN, BY_PACKAGES, BY_PERSON = "run", "package manager", "person"
# What an object of a cluster is that has drifted.
MISSING, OTHER, LEFT_OVER = "missing", "other", "left over"
VERSIONS = ("os", "kernel", "architecture", "driver", "firmware", "runtime")


class Made(t.TypedDict):
    at: str
    began: str
    seconds: float | None
    run: str
    by: str
    job: str
    playbook: str
    check: bool
    limit: str
    tags: list[str]
    skip_tags: list[str]
    ended: str
    source: str
    version: str
    core: str


class Summary(t.TypedDict):
    hosts: int
    states: dict[str, int]
    checks: dict[str, int]
    npus: int | None
    changes: int
    objects: int
    drift: int
    objects_drifted: int
    new_failures: int | None
    repaired: int | None


class Pool(t.TypedDict):
    name: str
    hosts: int
    states: dict[str, int]
    npus: int | None
    products: dict[str, int]
    os: str
    kernel: str
    architecture: str
    wanted: list[str]
    drivers: dict[str, int]
    drift: int


class CheckResult(t.TypedDict):
    id: str
    result: str
    detail: str
    next_step: str


class Checks(t.TypedDict):
    passed: list[str]
    others: list[CheckResult]


class Planned(t.TypedDict):
    text: str
    disruption: str


class Failure(t.TypedDict):
    task: str
    cause: str
    next_step: str


# `is` is a keyword of Python.
Drift = t.TypedDict("Drift", {"what": str, "was": str, "is": str, "by": str, "at": str, "evidence": str})
ObjectDrift = t.TypedDict("ObjectDrift", {"object": str, "is": str})


class NotKnown(t.TypedDict):
    what: str
    was: str
    why: str


class Host(t.TypedDict):
    name: str
    state: str
    reason: str
    pool: str
    node: str
    node_state: str
    seen: str
    npus: int | None
    products: dict[str, int]
    versions: dict[str, str]
    wanted: dict[str, str]
    checks: Checks
    planned: list[Planned] | None
    changes: list[str]
    failure: Failure | None
    drift: list[Drift]
    not_known: list[NotKnown]
    seconds: float | None


class Turn(t.TypedDict):
    cluster: str
    pool: str
    wave: int
    host: str
    node: str
    state: str
    began: str
    ended: str
    seconds: float | None
    reason: str


class Object(t.TypedDict):
    object: str
    action: str


class ClusterPart(t.TypedDict):
    name: str
    hosts: int
    objects: list[Object]
    drift: list[ObjectDrift]
    unchanged: int
    errors: list[str]


class Timed(t.TypedDict):
    name: str
    seconds: float


class TimedTask(Timed):
    role: str
    play: str
    hosts: int
    slowest: str
    slowest_seconds: float


class Timings(t.TypedDict):
    plays: list[Timed]
    roles: list[Timed]
    tasks: list[TimedTask]


class NewFailure(t.TypedDict):
    host: str
    what: str
    detail: str


class Repaired(t.TypedDict):
    host: str
    what: str


class VersionChange(t.TypedDict):
    host: str
    what: str
    before: str
    after: str


class Compared(t.TypedDict):
    at: str
    run: str
    new_failures: list[NewFailure]
    repaired: list[Repaired]
    versions: list[VersionChange]
    appeared: list[str]
    gone: list[str]


class Document(t.TypedDict):
    schema: int
    made: Made
    summary: Summary
    pools: list[Pool]
    hosts: list[Host]
    waves: list[Turn]
    clusters: list[ClusterPart]
    timings: Timings
    compared: Compared | None
    notes: list[str]


def judged(data: t.Any) -> Document:
    """`data` as it may be used: its texts clean, its values what the schema allows. NpuError when it is no report."""
    try:
        found: Document = judge_of(FILE)(data)
    except Wrong as exc:
        raise NpuError(
            "This is no report: %s: %s." % (exc.where() or "all", exc.what),
            "Take a JSON report that this release has made, or leave it out.",
        ) from None
    return found
