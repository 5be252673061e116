# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""plan(wanted, observed): what a run would do to one host, what stops it, what a person should know. Pure."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import DISRUPTIONS, Problem, Step
from ansible_collections.rebellions.npu.plugins.module_utils._base.versions import release_numbers

from .driver import plan_driver
from .guard import AFTER_DRIVER, BEFORE_DRIVER
from .situation import ROLE_ORDER, VALIDATOR_ROLE, Draft, confined, getter, needs_driver
from .toolkit import plan_toolkit

SCHEMA = 1


@dataclass(frozen=True)
class Plan:
    """Steps in order, problems that stop the host, problems that only warn."""

    steps: list[Step] = field(default_factory=list)
    stops: list[Problem] = field(default_factory=list)
    cautions: list[Problem] = field(default_factory=list)
    stale_units: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, t.Any]:
        """Plain data in the shape of docs/schemas/plan.schema.json, but for what only the controller knows."""
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
            "disruption": DISRUPTIONS[worst],
        }


def _preflight(draft: Draft, wanted: t.Mapping[str, t.Any], facts: t.Mapping[str, t.Any], prefix: str) -> bool:
    """NPUs of one family are there; False when there are none, so that nothing else of the driver is judged."""
    get = getter(wanted, prefix + "_preflight")
    if facts["counts"]["functions"] == 0:
        draft.by_policy(
            get("no_npus"),
            "no_npus",
            "No NPU of vendor %s is on the PCI bus of this host." % facts["vendor"],
            "Check `lspci -nn`, seat the card, or take the host out of npu_nodes; %s_preflight_no_npus: warn lets it pass."
            % prefix,
        )
        return False
    families = sorted({npu["family"] for npu in facts["npus"] if npu["family"] and npu["state"] != "passthrough"})
    if len(families) > 1:
        draft.stop(
            "two_families",
            "The host holds NPUs of the families %s, and one kernel driver build serves one family."
            % " and ".join(families),
            "Move the cards so that each host has one family, or give one family to virtual machines.",
        )
    return True


def _validator(
    draft: Draft, wanted: t.Mapping[str, t.Any], observed: t.Mapping[str, t.Any], facts: t.Mapping[str, t.Any]
) -> None:
    if not needs_driver(facts):
        return
    markers = observed["markers"]
    if draft.steps:
        reason = "The host changes in this run."
    elif not observed["passed"]:
        reason = "A check has not passed."
    else:
        reason = "The ready files do not fit what was observed."
    if draft.steps or not markers["current"] or not observed["passed"]:
        draft.step(
            id="validator.markers",
            role=VALIDATOR_ROLE,
            component="ready files",
            now=markers["present"],
            wanted="written when every blocking check passes",
            reason=reason,
            after=draft.steps[-1].id if draft.steps else "",
        )


def plan(
    wanted: t.Mapping[str, t.Any],
    facts: t.Mapping[str, t.Any],
    runtimes: t.Mapping[str, t.Any],
    observed: t.Mapping[str, t.Any],
    matrix: t.Sequence[t.Mapping[str, t.Any]],
    group_names: t.Sequence[str] = (),
    *,
    prefix: str,
) -> Plan:
    """The plan of one host.

    `wanted` are normalised inputs, `facts`, `runtimes` and `observed` what one observation returned, `matrix` the rules of
    the support matrix, `prefix` the prefix of the vendor's input names. Any stop empties nothing: the steps are still shown.
    """
    draft = Draft(str(facts["vendor"]))
    pools = sorted(name for name in group_names if name.startswith("npu_pool_"))
    if len(pools) > 1:
        draft.stop(
            "two_pools",
            "The host is in the pools %s." % " and ".join(pools),
            "Keep it in one, or rename the inventory group.",
        )
    if facts["driver"]["version_on_disk"] and not release_numbers(facts["driver"]["version_on_disk"]):
        draft.caution(
            "driver_version_unreadable", "The driver version on disk is %r." % facts["driver"]["version_on_disk"]
        )
    if _preflight(draft, wanted, facts, prefix):
        for part in BEFORE_DRIVER:
            part(draft, wanted, facts, matrix, prefix)
    pending = plan_driver(draft, wanted, facts, prefix)
    # Kernels, headers and room of a container say nothing where the driver is the machine's below.
    for part in () if confined(facts) else AFTER_DRIVER:
        part(draft, wanted, facts, matrix, prefix)
    plan_toolkit(draft, wanted, facts, runtimes, observed, pending, prefix)
    _validator(draft, wanted, observed, facts)
    return Plan(draft.steps, draft.stops, draft.cautions, draft.stale_units)
