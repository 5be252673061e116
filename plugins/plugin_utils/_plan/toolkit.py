# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The container toolkit's part of the plan: package, CDI spec, host tool, runtimes."""

from __future__ import annotations

import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NONE, RESTART

from .driver import DRIVER_STEP, RECOVER_STEP, RELOAD_STEP
from .situation import TOOLKIT_ROLE, Draft, getter, needs_driver


def plan_toolkit(
    draft: Draft,
    wanted: t.Mapping[str, t.Any],
    facts: t.Mapping[str, t.Any],
    runtimes: t.Mapping[str, t.Any],
    observed: t.Mapping[str, t.Any],
    driver_pending: bool,
    prefix: str,
) -> None:
    get = getter(wanted, prefix + "_container_toolkit")
    after = (
        next((step.id for step in draft.steps if step.id in (DRIVER_STEP, RELOAD_STEP, RECOVER_STEP)), DRIVER_STEP)
        if driver_pending
        else ""
    )
    if not needs_driver(facts):
        return
    if get("package"):
        have = {package["name"] for package in facts["driver"]["packages"] if package["state"] == "installed"}
        if get("package").split("=")[0] not in have:
            draft.step(
                id="toolkit.package",
                role=TOOLKIT_ROLE,
                component="vendor package",
                now=None,
                wanted=get("package"),
                reason="The package is not installed.",
                after=after,
            )
    cdi = observed["cdi"]
    if cdi["changed"] or driver_pending:
        draft.step(
            id="toolkit.cdi",
            role=TOOLKIT_ROLE,
            component="CDI spec",
            now=cdi["state"],
            wanted="known after %s" % after if after else "current",
            reason="The driver decides what the spec holds." if after else "The spec is %s." % cdi["state"],
            after=after,
        )
    tool = observed["host_tool"]
    if get("host_tool") and not tool["current"]:
        draft.step(
            id="toolkit.host_tool",
            role=TOOLKIT_ROLE,
            component="host tool",
            now="another build" if tool["sha256"] else "missing",
            wanted="current",
            reason="It keeps the host ready after a reboot and on device events.",
        )
    _runtimes(draft, get, runtimes, prefix)


def _runtimes(draft: Draft, get: t.Callable[[str], t.Any], runtimes: t.Mapping[str, t.Any], prefix: str) -> None:
    if runtimes["ambiguous"]:
        draft.stop("runtime_ambiguous", runtimes["ambiguous"]["reason"], runtimes["ambiguous"]["next_step"])
        return
    if not runtimes["selected"]:
        draft.by_policy(
            get("no_runtime"),
            "no_container_runtime",
            "No container runtime was found on this host.",
            "Install containerd, docker, cri-o or podman, or set %s_container_toolkit_no_runtime: ignore." % prefix,
        )
    for runtime in runtimes["runtimes"]:
        if (
            not runtime.get("selected", runtime["name"] in runtimes["selected"])
            or runtime["flavor"] == "docker-backend"
        ):
            continue
        name = "%s (%s)" % (runtime["name"], runtime["version"] or "version unknown")
        if runtime["refusal"]:
            draft.stop(
                "runtime_refused", "%s: %s" % (name, runtime["refusal"]["reason"]), runtime["refusal"]["next_step"]
            )
            continue
        stale = bool(
            runtime["process_stale"] and runtime["restart_unit"] and runtime["cdi"]["state"] in ("on", "on_by_default")
        )
        restart = bool(runtime["changes"]) or stale
        if restart and runtime["restart_unit"] and get("runtime_restart") != "if_required":
            draft.stop(
                "runtime_restart_not_allowed",
                "%s has to be restarted: %s."
                % (
                    name,
                    "; ".join(change["why"].rstrip(".") for change in runtime["changes"])
                    or "it is older than its configuration",
                ),
                "Set %s_container_toolkit_runtime_restart: if_required when its containers may see a restart." % prefix,
            )
            continue
        if runtime["changes"]:
            draft.step(
                id="toolkit.runtime.%s" % runtime["name"],
                role=TOOLKIT_ROLE,
                component=name,
                now="CDI %s" % runtime["cdi"]["state"],
                wanted="CDI on",
                reason="; ".join(change["why"].rstrip(".") for change in runtime["changes"]) + ".",
                disruption=RESTART if runtime["restart_unit"] else NONE,
            )
        elif restart:
            draft.stale_units.append(runtime["restart_unit"])
            draft.step(
                id="toolkit.restart.%s" % runtime["name"],
                role=TOOLKIT_ROLE,
                component=name,
                now="running with an older configuration",
                wanted="restarted",
                reason="The file is right and the process is older than the file.",
                disruption=RESTART,
            )
