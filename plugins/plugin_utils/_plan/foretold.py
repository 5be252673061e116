# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host as it will be when the steps of its plan have succeeded: what check mode judges later parts by. Pure."""

from __future__ import annotations

import typing as t

from .driver import DRIVER_STEP, REBOOT_STEP, RECOVER_STEP, RELOAD_STEP
from .repairs import unrepaired
from .situation import DRIVER_ROLE, TOOLKIT_ROLE, VALIDATOR_ROLE, Data, ours
from .support import SECURE_BOOT_STEP
from .words import MARKERS_STEP

# The tags of the playbook site.
TAGS = {DRIVER_ROLE: "driver", TOOLKIT_ROLE: "toolkit", VALIDATOR_ROLE: "validate"}
# An NPU in these states is not for the driver of the host.
APART = ("passthrough", "unreachable")


def seen_or_foretold(dry_run: bool, facts: dict[str, t.Any], variables: Data) -> tuple[dict[str, t.Any], t.Any]:
    """(facts of a host, its proof), by the variables that the roles register.

    A real run comes to the cluster after the host part, so a dry run takes the host as that part will leave it.
    """
    proof, plan = variables.get(ours("validator_proof")), variables.get(ours("preflight_plan"))
    kind = ours("").rstrip("_")
    if not dry_run or not isinstance(plan, dict) or not facts.get(kind):
        return facts, proof
    observed = facts.get(f"{kind}_observed") or {}
    after, coming = foretold(of_this_run(plan, variables, observed), facts[kind])
    return {**facts, kind: after}, proof or coming or None


def of_this_run(plan: Data, variables: Data, observed: Data | None = None) -> Data:
    """A plan without the steps that this run leaves out by their tags; `observed` to judge the proof without them."""
    roles = _left_out(variables)
    if not roles:
        return plan
    steps = [step for step in plan.get("steps") or () if step["role"] not in roles]
    return {**plan, "steps": steps, "unrepaired": unrepaired(observed or {}, [step["id"] for step in steps])}


def host_part(variables: Data) -> bool:
    """Whether this run does any of the host part, by its tags."""
    return len(_left_out(variables)) < len(TAGS)


def _left_out(variables: Data) -> set[str]:
    """The roles of the host part that the tags of this run leave out."""
    chosen, skipped = ({*(variables.get(f"ansible_{key}_tags") or ())} for key in ("run", "skip"))
    return {
        role
        for role, tag in TAGS.items()
        if (chosen and not chosen & {"all", "tagged", tag}) or skipped & {"all", "tagged", tag}
    }


def foretold(plan: Data, facts: Data) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
    """(facts of the NPUs, proof) after the plan; both as they are where the plan has no step.

    The proof is empty where none will be made, or where no step repairs a check that keeps it from passing. A version
    that only the source of the driver knows is not foretold: its labels are left out.
    """
    steps = {step["id"]: step for step in plan.get("steps") or ()}
    after = dict(facts)
    # A run ends at a key that somebody has to confirm at the console.
    if not steps or plan.get("stops") or SECURE_BOOT_STEP in steps:
        return after, {}
    change = next((steps[name] for name in (DRIVER_STEP, RELOAD_STEP, RECOVER_STEP) if name in steps), None)
    if change is not None:
        after["driver"] = {**(facts.get("driver") or {}), **_driver(plan, facts, change)}
        after["npus"] = [_served(npu) for npu in facts.get("npus") or ()]
        usable = sum(1 for npu in after["npus"] if npu.get("usable"))
        after["counts"] = {**(facts.get("counts") or {}), "usable": usable}
    if REBOOT_STEP in steps:
        kernel = facts.get("kernel") or {}
        after["kernel"] = {**kernel, "running": kernel.get("next_boot") or kernel.get("running")}
    if MARKERS_STEP in steps:
        return after, {} if plan.get("unrepaired") else {"passed": True}
    # A change of the driver removes the ready files.
    return after, {"passed": False} if change is not None else {}


def _driver(plan: Data, facts: Data, step: Data) -> dict[str, t.Any]:
    present = facts.get("driver") or {}
    source = str((plan.get("wanted") or {}).get(ours("driver_source")) or present.get("installed_via") or "")
    if step["id"] != DRIVER_STEP:
        version = present.get("version_on_disk") or present.get("version_loaded")
        return {"loaded": True, "version_on_disk": version, "version_loaded": version}
    version = (plan.get("wanted") or {}).get(ours("driver_version")) or None
    return {"loaded": True, "installed_via": source, "version_on_disk": version, "version_loaded": version}


def _served(npu: Data) -> dict[str, t.Any]:
    """An NPU with its driver."""
    if npu.get("state") in APART:
        return dict(npu)
    return {**npu, "state": "ok", "usable": not npu.get("vfs"), "needs_driver": False}
