# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The container toolkit's part of the plan: package, CDI specification, host tool, runtimes."""

from __future__ import annotations

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NONE, RESTART, WARNING, Check

from .driver import DRIVER_STEP, RECOVER_STEP, RELOAD_STEP
from .situation import TOOLKIT_ROLE, Case, Data, Draft, ours


def plan_toolkit(draft: Draft, case: Case, driver_pending: bool) -> None:
    if not case.needs_driver:
        return
    if case.input("container_toolkit_source") == "host":
        _own(draft, case, driver_pending)
    tool = case.observed["host_tool"]
    if case.input("container_toolkit_host_tool") and not tool["current"]:
        draft.step(
            id="toolkit.host_tool",
            role=TOOLKIT_ROLE,
            component="host tool",
            now="another build" if tool["sha256"] else "missing",
            wanted="current",
            reason="It keeps the host ready after a reboot and on device events.",
        )
    # The daemon of a toolkit in a container configures its runtime itself.
    if case.input("container_toolkit_source") == "host":
        _runtimes(draft, case)


def _own(draft: Draft, case: Case, driver_pending: bool) -> None:
    """Plan what the host does itself: the vendor's package and the specification."""
    changes = (step.id for step in draft.steps if step.id in (DRIVER_STEP, RELOAD_STEP, RECOVER_STEP))
    after = next(changes, DRIVER_STEP) if driver_pending else ""
    package = case.input("container_toolkit_package")
    have = {item["name"] for item in case.driver["packages"] if item["state"] == "installed"} if package else set()
    if package and package.split("=")[0] not in have:
        draft.step(
            id="toolkit.package",
            role=TOOLKIT_ROLE,
            component="vendor package",
            now=None,
            wanted=package,
            reason="The package is not installed.",
            after=after,
        )
    cdi = case.observed["cdi"]
    if cdi["changed"] or driver_pending:
        draft.step(
            id="toolkit.cdi",
            role=TOOLKIT_ROLE,
            component="CDI spec",
            now=cdi["state"],
            wanted=f"known after {after}" if after else "current",
            reason="The driver decides what the spec holds." if after else f"The spec is {cdi['state']}.",
            after=after,
        )


def _runtime_known(case: Case) -> Check | None:
    """The record of that check. No toolkit check is asked for where machines have all functions of split cards."""
    record = case.check("runtime_known", "toolkit")
    ambiguous, selected = case.runtimes["ambiguous"], case.runtimes["selected"]
    clear = selected and not ambiguous
    if record is not None or clear or case.check("not_for_containers", "toolkit") is None:
        return record
    detail = str(ambiguous["reason"]) if ambiguous else "no container runtime was found"
    step = str(ambiguous["next_step"]) if ambiguous else ""
    return Check("runtime_known", "toolkit", False, WARNING, detail, next_step=step)


def _runtimes(draft: Draft, case: Case) -> None:
    unclear = _runtime_known(case)
    if unclear is not None and unclear.ok is False:
        if case.runtimes["ambiguous"]:
            draft.stop_for(unclear)
            return
        draft.by_policy_for(
            case.input("container_toolkit_no_runtime"),
            unclear,
            f"Install containerd, docker, cri-o or podman, or set {ours('container_toolkit_no_runtime')}: ignore.",
        )
    for runtime in case.runtimes["runtimes"]:
        selected = runtime.get("selected", runtime["name"] in case.runtimes["selected"])
        if selected and runtime["flavor"] != "docker-backend":
            _runtime(draft, case, runtime)


def _runtime(draft: Draft, case: Case, runtime: Data) -> None:
    """Plan one runtime: its configuration and its restart."""
    name = f"{runtime['name']} ({runtime['version'] or 'version unknown'})"
    if runtime["refusal"]:
        draft.stop("runtime_refused", f"{name}: {runtime['refusal']['reason']}", runtime["refusal"]["next_step"])
        return
    cdi_on = runtime["cdi"]["state"] in ("on", "on_by_default")
    stale = bool(runtime["process_stale"] and runtime["restart_unit"] and cdi_on)
    restart = bool(runtime["changes"]) or stale
    why = "; ".join(change["why"].rstrip(".") for change in runtime["changes"])
    if restart and runtime["restart_unit"] and case.input("container_toolkit_runtime_restart") != "if_required":
        allow = f"Set {ours('container_toolkit_runtime_restart')}: if_required"
        draft.stop(
            "runtime_restart_not_allowed",
            f"{name} has to be restarted: {why or 'it is older than its configuration'}.",
            f"{allow} when its containers may see a restart.",
        )
    elif runtime["changes"]:
        draft.step(
            id=f"toolkit.runtime.{runtime['name']}",
            role=TOOLKIT_ROLE,
            component=name,
            now=f"CDI {runtime['cdi']['state']}",
            wanted="CDI on",
            reason=why + ".",
            disruption=RESTART if runtime["restart_unit"] else NONE,
        )
    elif restart:
        draft.stale_units.append(runtime["restart_unit"])
        draft.step(
            id=f"toolkit.restart.{runtime['name']}",
            role=TOOLKIT_ROLE,
            component=name,
            now="running with an older configuration",
            wanted="restarted",
            reason="The file is right and the process is older than the file.",
            disruption=RESTART,
        )
