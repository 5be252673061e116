# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""plan(case): what a run would do to one host, what stops it, what a person should know. Pure."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import (
    DISRUPTIONS,
    ERROR,
    Problem,
    ProblemData,
    Step,
    StepData,
)

from .driver import DRIVER_STEP, plan_driver
from .guard import AFTER_DRIVER, BEFORE_DRIVER, ON_IMAGE
from .repairs import unrepaired
from .situation import ROLE_ORDER, VALIDATOR_ROLE, Case, Data, Draft, ours
from .support import PREREQUISITES_STEP
from .toolkit import plan_toolkit
from .words import CHANGING, MARKERS_STEP, WILL_FAIL

SCHEMA = 1


class PlanData(t.TypedDict):
    """A plan as docs/schemas/plan.schema.json has it, but for what only the action plugin adds."""

    schema: int
    steps: list[StepData]
    stops: list[ProblemData]
    cautions: list[ProblemData]
    roles: list[str]
    acts: dict[str, list[str]]
    stale_units: list[str]
    unrepaired: list[str]
    disruption: str


@dataclass(frozen=True)
class Plan:
    """Steps in order, problems that stop the host, problems that only warn.

    `unrepaired` are the checks for which the proof at the end will fail.
    """

    steps: list[Step] = field(default_factory=list)
    stops: list[Problem] = field(default_factory=list)
    cautions: list[Problem] = field(default_factory=list)
    stale_units: list[str] = field(default_factory=list)
    unrepaired: list[str] = field(default_factory=list)

    def to_dict(self) -> PlanData:
        acts: dict[str, list[str]] = {role: [] for role in ROLE_ORDER}
        for step in self.steps:
            act = step.id.split(".")[1]
            act = "runtime" if act == "restart" else act
            if act not in acts[step.role]:
                acts[step.role].append(act)
        worst = max((DISRUPTIONS.index(step.disruption) for step in self.steps), default=0)
        return {
            "schema": SCHEMA,
            "steps": [step.to_dict() for step in self.steps],
            "stops": [stop.to_dict() for stop in self.stops],
            "cautions": [caution.to_dict() for caution in self.cautions],
            "roles": [role for role in ROLE_ORDER if acts[role]],
            "acts": acts,
            "stale_units": self.stale_units,
            "unrepaired": self.unrepaired,
            "disruption": DISRUPTIONS[worst],
        }


def _preflight(draft: Draft, case: Case) -> bool:
    """NPUs of one family are there; False when none is seen, so that nothing else of the driver is judged.

    Whether there are any is not known where the PCI bus could not be read: no policy passes that.
    """
    if not case.facts["npus"]:
        found = case.check("npus_found")
        if found is not None and found.ok is None:
            draft.stop_for(found)
        elif found is not None and found.ok is not True:
            draft.by_policy_for(
                case.input("preflight_no_npus"),
                found,
                f"{found.next_step.rstrip('.')}, take the host out of npu_nodes, "
                f"or accept it with {ours('preflight_no_npus')}: warn.",
            )
        return False
    mixed = case.fails("one_family")
    if mixed:
        draft.stop_for(mixed)
    return True


def _unpassed(observed: Data, names: t.Container[str] | None = None) -> str:
    """Which checks keep the ready files away: those that do not hold, and those that could not be judged."""
    failed, unknown = (
        ", ".join(name for name in observed.get(key) or () if names is None or name in names)
        for key in ("failed", "unknown")
    )
    parts = [f"These checks do not hold: {failed}."] if failed else []
    parts += [f"These checks could not be judged: {unknown}."] if unknown else []
    return " ".join(parts) or "A check has not passed."


def _validator(draft: Draft, case: Case) -> list[str]:
    """Plan the proof; the checks for which it will fail."""
    if not case.needs_driver or case.driver_to_come:
        return []
    markers, passed = case.observed["markers"], case.observed["passed"]
    if not draft.steps and markers["current"] and passed:
        return []
    ids = [step.id for step in draft.steps]
    # What is stopped lacks steps, and comes to no proof.
    lost = [] if draft.stops else unrepaired(case.observed, [*ids, MARKERS_STEP])
    if draft.steps:
        reason = f"{_unpassed(case.observed, lost)} No step repairs that." if lost else CHANGING
    elif not passed:
        reason = _unpassed(case.observed)
    else:
        reason = "The ready files do not fit what was observed."
    draft.step(
        id=MARKERS_STEP,
        role=VALIDATOR_ROLE,
        component="ready files",
        now=markers["present"],
        wanted=WILL_FAIL if lost else "written when every blocking check passes",
        reason=reason,
        after=ids[-1] if ids else "",
    )
    return lost


def plan(case: Case, group_names: t.Sequence[str] = ()) -> Plan:
    """The plan of one host that is in these groups. A stop removes no step: the steps are still shown."""
    draft = Draft(str(case.facts["vendor"]))
    pools = sorted(name for name in group_names if name.startswith("npu_pool_"))
    if len(pools) > 1:
        draft.stop(
            "two_pools",
            f"The host is in the pools {' and '.join(pools)}.",
            "Keep it in one, or rename the inventory group.",
        )
    unreadable = case.fails("driver_version_readable")
    if unreadable:
        draft.caution_for(unreadable)
    if _preflight(draft, case) and not case.sealed:
        for part in BEFORE_DRIVER:
            part(draft, case)
    pending = plan_driver(draft, case)
    # Kernels, headers and disk space of a container say nothing where the driver belongs to the machine below.
    for part in () if case.confined else ON_IMAGE if case.image else AFTER_DRIVER:
        part(draft, case)
    plan_toolkit(draft, case, pending)
    lost = _validator(draft, case)
    return Plan(draft.steps, draft.stops, draft.cautions, draft.stale_units, lost)


def from_bundle(steps: t.Sequence[StepData], wanted: Data) -> dict[str, t.Any] | None:
    """What these steps take from the offline bundle on the host, as the look at it wants that; None for nothing."""
    named = {step["id"]: step["wanted"] for step in steps}
    directory = wanted[ours("driver_bundle")]
    if not directory or not named.keys() & {DRIVER_STEP, PREREQUISITES_STEP}:
        return None
    packages = DRIVER_STEP in named and wanted[ours("driver_source")] == "package"
    return {
        "directory": directory,
        "packages": named.get(PREREQUISITES_STEP) or [],
        "driver_names": wanted[ours("driver_package_names")] if packages else [],
    }


def lacks_bundle(detail: str, next_step: str, vendor: str) -> Problem:
    """The stop of a host whose bundle is not there, or lacks something that the driver's steps take from it."""
    return Problem("bundle_not_ready", ERROR, detail, next_step, vendor)
