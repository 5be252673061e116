# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The words of a rollout that people see on nodes, and what each state means."""

from __future__ import annotations

import datetime
import re
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE

from .._nodes import marks
from .._objects import parts
from .._objects.names import INPUT
from .._text.line import line

ROLLOUT = INPUT + "rollout_"
_PREFIX = PROFILE.label_prefix

# Of a node: the label whose value is one of STATES, the label of a person who wants it left alone, and a failed one.
LABEL = marks.STATE
SKIP = f"{_PREFIX}/npu-driver-upgrade.skip"
FAILED_TAINT = marks.TAINT
# Annotations of a node. RUN names the run that works on it: only this run may go on.
RUN = f"{_PREFIX}/npu-rollout.run"
WAVE = f"{_PREFIX}/npu-rollout.wave"
SINCE = f"{_PREFIX}/npu-rollout.since"
REASON = f"{_PREFIX}/npu-rollout.reason"
CORDONED = marks.CORDONED
GATES = f"{_PREFIX}/npu-rollout.gates"
GATE_PREFIX = parts.GATE_PREFIX
# Of the ConfigMap with the record.
HOLD = f"{_PREFIX}/npu-rollout"
APPROVED = f"{_PREFIX}/npu-rollout.approved"
PAUSE, ABORT, RESUME = "pause", "abort", "resume"

REQUIRED = "upgrade-required"
CORDON = "cordon-required"
JOBS = "wait-for-jobs-required"
PODS = "pod-deletion-required"
DRAIN = "drain-required"
RESTART = "pod-restart-required"
HOST = "host-change-required"
REBOOT = "reboot-required"
VALIDATE = "validation-required"
UNCORDON = "uncordon-required"
DONE = "upgrade-done"
FAILED = "upgrade-failed"

# What is being done now: the node is ours, and not yet back.
UNDER_WAY = (CORDON, JOBS, PODS, DRAIN, HOST, REBOOT, RESTART, VALIDATE, UNCORDON)
FINAL = (DONE, FAILED)
STATES = (REQUIRED, *UNDER_WAY, *FINAL)

_STAMP = "%Y-%m-%dT%H:%M:%SZ"
_STAMP_FORM = re.compile(r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z\Z")


def utc() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)


def held_of(said: t.Any) -> str:
    """The word by which a person holds a rollout, also one that is misspelt; empty where it goes on."""
    word = line(said or "", 60).strip().lower()
    return "" if word == RESUME else word


def stamp(now: datetime.datetime) -> str:
    """A moment as records and annotations have it: UTC, whole seconds. As texts they sort like the moments."""
    return now.astimezone(datetime.timezone.utc).strftime(_STAMP)


def moment(text: str) -> datetime.datetime:
    """The moment of a stamp. NpuError when it is none."""
    try:
        if _STAMP_FORM.match(text):
            return datetime.datetime.fromisoformat(text[:-1] + "+00:00")
    except ValueError:
        pass
    raise NpuError(
        f"The rollout has the time {line(repr(text), 60)}, which is not such as 2026-01-31T22:00:00Z.",
        "Delete the record of the rollout and run again; finished nodes have nothing left to do.",
    )
