# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The records that everything reads: problem, check, step. Data whose texts hold no secret."""

from __future__ import annotations

import typing as t

from .mask import mask, masked
from .records import asdict, dataclass, field

ERROR = "error"
WARNING = "warning"
INFO = "info"

NONE = "none"
RESTART = "restart"
EVICT = "evict"
REBOOT = "reboot"
DISRUPTIONS = (NONE, RESTART, EVICT, REBOOT)


class ProblemData(t.TypedDict):
    """A problem as docs/schemas/problem.schema.json has it."""

    code: str
    severity: str
    detail: str
    next_step: str
    vendor: str


class CheckData(t.TypedDict):
    """A check as docs/schemas/check.schema.json has it."""

    name: str
    scope: str
    ok: bool | None
    severity: str
    detail: str
    evidence: dict[str, t.Any]
    next_step: str
    seconds: float
    vendor: str


class StepData(t.TypedDict):
    """A step as docs/schemas/step.schema.json has it."""

    id: str
    role: str
    component: str
    now: t.Any
    wanted: t.Any
    reason: str
    disruption: str
    after: str
    vendor: str


def _mask_texts(item: t.Any, *names: str) -> None:
    """Mask the secrets in fields of a frozen record: it may repeat what programs and files say."""
    for name in names:
        object.__setattr__(item, name, masked(getattr(item, name)))


@dataclass(frozen=True)
class Problem:
    """Something a person should know: a stable code, how bad it is, what was seen, what to do."""

    code: str
    severity: str
    detail: str
    next_step: str = ""
    vendor: str = ""

    def __post_init__(self) -> None:
        _mask_texts(self, "detail", "next_step")

    def to_dict(self) -> ProblemData:
        return t.cast("ProblemData", asdict(self))


@dataclass(frozen=True)
class Check:
    """One proof. `ok` is None when it could not be found out; `seconds` is how long the look took."""

    name: str
    scope: str
    ok: bool | None
    severity: str = ERROR
    detail: str = ""
    evidence: dict[str, t.Any] = field(default_factory=dict)
    next_step: str = ""
    seconds: float = 0.0
    vendor: str = ""

    def __post_init__(self) -> None:
        _mask_texts(self, "detail", "evidence", "next_step")

    def to_dict(self) -> CheckData:
        return t.cast("CheckData", asdict(self))


@dataclass(frozen=True)
class Step:
    """One act of a plan. `disruption` is one of DISRUPTIONS; `after` names the step that has to end first."""

    id: str
    role: str
    component: str
    now: t.Any
    wanted: t.Any
    reason: str
    disruption: str = NONE
    after: str = ""
    vendor: str = ""

    def __post_init__(self) -> None:
        _mask_texts(self, "now", "wanted", "reason")

    def to_dict(self) -> StepData:
        return t.cast("StepData", asdict(self))


class NpuError(Exception):
    """Bad input or a state that cannot be worked with: what, where, and what to do next."""

    def __init__(self, message: str, next_step: str = "") -> None:
        # Errors repeat what programs, servers and files say.
        self.message = mask(message)
        self.next_step = mask(next_step)
        super().__init__(self.message)

    def __str__(self) -> str:
        return "%s Next: %s" % (self.message, self.next_step) if self.next_step else self.message
