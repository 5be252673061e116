# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of one host while it is made: steps in order, stops, cautions."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ._model import ERROR, WARNING, Problem, Step

DRIVER_ROLE = "driver"
TOOLKIT_ROLE = "container_toolkit"
VALIDATOR_ROLE = "validator"
ROLE_ORDER = (DRIVER_ROLE, TOOLKIT_ROLE, VALIDATOR_ROLE)


@dataclass
class Draft:
    """What the parts of the planner add to; `by_policy` turns a policy of fail, warn or ignore into a stop, a caution or nothing."""

    vendor: str
    steps: t.List[Step] = field(default_factory=list)
    stops: t.List[Problem] = field(default_factory=list)
    cautions: t.List[Problem] = field(default_factory=list)
    stale_units: t.List[str] = field(default_factory=list)

    def step(self, **keys: t.Any) -> None:
        self.steps.append(Step(vendor=self.vendor, **keys))

    def stop(self, code: str, detail: str, next_step: str) -> None:
        self.stops.append(Problem(code, ERROR, detail, next_step, self.vendor))

    def caution(self, code: str, detail: str, next_step: str = "", severity: str = WARNING) -> None:
        self.cautions.append(Problem(code, severity, detail, next_step, self.vendor))

    def by_policy(self, policy: str, code: str, detail: str, next_step: str) -> None:
        if policy == "fail":
            self.stop(code, detail, next_step)
        elif policy == "warn":
            self.caution(code, detail, next_step)


def getter(wanted: t.Mapping[str, t.Any], prefix: str) -> t.Callable[[str], t.Any]:
    """Short names for the inputs of one role: getter(wanted, prefix)("version")."""

    def get(name: str) -> t.Any:
        return wanted["%s_%s" % (prefix, name)]

    return get


def needs_driver(facts: t.Mapping[str, t.Any]) -> bool:
    """True when a physical function is not given to virtual machines."""
    return any(npu["function"] == "pf" and npu["state"] != "passthrough" for npu in facts["npus"])
