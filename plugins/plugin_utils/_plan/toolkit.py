# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The container toolkit's part of the plan: package, CDI specification, host tool, runtimes."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import RESTART, WARNING, Check

from .driver import DRIVER_STEP, RECOVER_STEP, RELOAD_STEP
from .situation import TOOLKIT_ROLE, Case, Data, Draft, ours

# How a person says what the host does not show.
BY_HAND = (
    f"The inputs are {ours('container_toolkit_runtimes')} for the name, and {ours('container_toolkit_runtime_unit')}, "
    f"{ours('container_toolkit_runtime_config_file')}, {ours('container_toolkit_runtime_dropin_dir')} and "
    f"{ours('container_toolkit_runtime_socket')}."
)
# Flavors whose unit runs the agent and the kubelet too.
ONE_UNIT = ("k3s", "rke2", "k0s")


def plan_toolkit(draft: Draft, case: Case, driver_pending: bool) -> None:
    # Before the runtimes, so that one restart serves both.
    _proxies(draft, case)
    if not case.needs_driver:
        return
    changes = (step.id for step in draft.steps if step.id in (DRIVER_STEP, RELOAD_STEP, RECOVER_STEP))
    after = next(changes, DRIVER_STEP) if driver_pending else ""
    # The daemon of a toolkit in a container writes the specification and configures its runtime itself.
    by_host = case.input("container_toolkit_source") == "host"
    if by_host:
        _package(draft, case, after)
    # Before the specification, which names it as a hook: containers do not start when a hook is missing.
    _host_tool(draft, case)
    if by_host:
        _specification(draft, case, driver_pending, after)
        _runtimes(draft, case)


def _package(draft: Draft, case: Case, after: str) -> None:
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


def _host_tool(draft: Draft, case: Case) -> None:
    tool = case.observed["host_tool"]
    options = case.mount_options("/usr/local")
    barred = "noexec" if "noexec" in options else "read-only" if "ro" in options and not tool["current"] else ""
    if not case.input("container_toolkit_host_tool") or (tool["current"] and not barred):
        return
    if barred:
        draft.caution(
            "host_tool_not_placed",
            f"The host tool is not placed or cannot run: /usr/local is mounted {barred}. "
            "Without it nothing renews the CDI specification and the ready files at boot. Where the vendor's hook is "
            "missing too, a container finds the libraries only where its loader looks into their directory.",
            f"Run the playbook after each boot and set {ours('container_toolkit_hooks')}: never, which sets "
            f"LD_LIBRARY_PATH, or set {ours('container_toolkit_host_tool')}: false.",
        )
        return
    draft.step(
        id="toolkit.host_tool",
        role=TOOLKIT_ROLE,
        component="host tool",
        now="another build" if tool["sha256"] else "missing",
        wanted="current",
        reason="It keeps the host ready after a reboot and on device events.",
    )


def _specification(draft: Draft, case: Case, driver_pending: bool, after: str) -> None:
    cdi = case.observed["cdi"]
    if cdi["changed"] or driver_pending:
        draft.step(
            id="toolkit.cdi",
            role=TOOLKIT_ROLE,
            component="CDI spec",
            now=cdi["state"],
            wanted=f"known after {after}" if after else "current",
            reason="The driver decides what the spec holds." if after else _why_spec(cdi),
            after=after,
        )


def _why_spec(cdi: Data) -> str:
    reasons = [] if cdi["state"] == "current" else [f"The spec is {cdi['state']}."]
    return " ".join(reasons + [f"{repair}." for repair in cdi.get("repairs", [])])


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
            draft.stop_for(replace(unclear, next_step=f"{unclear.next_step.rstrip('.')}. {BY_HAND}"))
            return
        codes = [problem["code"] for problem in case.runtimes.get("problems") or []]
        if case.runtimes["runtimes"] and "runtime_not_found" in codes:
            draft.stop_for(
                unclear, f"Install it, or name a runtime of this host in {ours('container_toolkit_runtimes')}."
            )
            return
        draft.by_policy_for(
            case.input("container_toolkit_no_runtime"),
            unclear,
            f"Install containerd, docker, cri-o or podman, or set {ours('container_toolkit_no_runtime')}: ignore.",
        )
    for runtime in _chosen(case):
        _runtime(draft, case, runtime)


def _chosen(case: Case) -> list[Data]:
    return [
        runtime
        for runtime in case.runtimes["runtimes"]
        if runtime.get("selected", runtime["name"] in case.runtimes["selected"])
        and runtime["flavor"] != "docker-backend"
    ]


def _proxies(draft: Draft, case: Case) -> None:
    """Plan the proxies of the runtimes. Where it is not known which runtime is meant, its own problem says so."""
    asked = case.proxies
    if asked is None or (case.runtimes["ambiguous"] and case.input("container_toolkit_source") == "host"):
        return
    if asked["problem"]:
        draft.stop("runtime_proxies_refused", asked["problem"], asked["next_step"])
        return
    for runtime in _chosen(case):
        if runtime["name"] not in asked["changed"]:
            continue
        detail = (
            f"{_label(runtime)} shall have a proxy, and no range is excepted from it. Network plugins have the "
            "environment of their runtime, so they would ask the API server through the proxy."
        )
        remedy = f"Set {ours('cluster_cidrs')} to the ranges of nodes, services and pods."
        ranges = any("/" in name for name in asked["no_proxy"])
        if not ranges and runtime["flavor"] in ONE_UNIT:
            draft.stop("runtime_proxy_ranges_missing", detail, remedy)
            continue
        if not ranges and runtime.get("serves_kubelet"):
            draft.caution("runtime_proxy_ranges_missing", detail, remedy)
        if _may_restart(draft, case, runtime, "its proxies change"):
            draft.step(
                id=f"toolkit.proxies.{runtime['name']}",
                role=TOOLKIT_ROLE,
                component=_component(runtime),
                now="other proxies",
                wanted="the wanted proxies",
                reason="The unit has other proxies or exceptions.",
                disruption=RESTART,
            )


def _label(runtime: Data) -> str:
    return f"{runtime['name']} ({runtime['version'] or 'version unknown'})"


def _component(runtime: Data) -> str:
    """The runtime as a step names it: with the distribution whose unit runs it, which restarts as a whole."""
    flavor = runtime["flavor"]
    return _label({**runtime, "name": f"{runtime['name']} of {flavor}"}) if flavor in ONE_UNIT else _label(runtime)


def _may_restart(draft: Draft, case: Case, runtime: Data, why: str) -> bool:
    """Whether a runtime that has to be restarted can and may be; else a stop."""
    if not runtime["restart_unit"]:
        draft.stop(
            "runtime_unit_unknown",
            f"{_label(runtime)} has to be restarted ({why}), and no systemd unit is known that runs it.",
            f"Name its unit in {ours('container_toolkit_runtime_unit')}, and {runtime['name']} alone in "
            f"{ours('container_toolkit_runtimes')}.",
        )
        return False
    if case.input("container_toolkit_runtime_restart") != "if_required":
        draft.stop(
            "runtime_restart_not_allowed",
            f"{_label(runtime)} has to be restarted: {why}.",
            f"Set {ours('container_toolkit_runtime_restart')}: if_required when its containers may see a restart.",
        )
        return False
    return True


def _runtime(draft: Draft, case: Case, runtime: Data) -> None:
    """Plan one runtime: its configuration and its restart."""
    name = _label(runtime)
    if runtime["refusal"]:
        draft.stop("runtime_refused", f"{name}: {runtime['refusal']['reason']}", runtime["refusal"]["next_step"])
        return
    for owner in runtime["owners"]:
        step = owner["next_step"][:1].upper() + owner["next_step"][1:]
        policy = case.input("container_toolkit_owned_config")
        draft.by_policy(
            "fail" if owner["refuse"] and policy == "warn" else policy,
            "runtime_config_owned",
            f"{name}: {owner['path']} is written by {owner['name']}, which may undo the change.",
            f"{step}; then set {ours('container_toolkit_owned_config')}: ignore.",
        )
    cdi_on = runtime["cdi"]["state"] in ("on", "on_by_default")
    restart = bool(runtime["changes"]) or bool(runtime["process_stale"] and cdi_on)
    why = "; ".join(change["why"].rstrip(".") for change in runtime["changes"])
    if restart and not _may_restart(draft, case, runtime, why or "it is older than its configuration"):
        return
    if runtime["changes"]:
        draft.step(
            id=f"toolkit.runtime.{runtime['name']}",
            role=TOOLKIT_ROLE,
            component=_component(runtime),
            now=f"CDI {runtime['cdi']['state']}",
            wanted="CDI on",
            reason=why + ".",
            disruption=RESTART,
        )
    elif restart:
        draft.stale_units.append(runtime["restart_unit"])
        draft.step(
            id=f"toolkit.restart.{runtime['name']}",
            role=TOOLKIT_ROLE,
            component=_component(runtime),
            now="running with an older configuration",
            wanted="restarted",
            reason="The file is right and the process is older than the file.",
            disruption=RESTART,
        )
