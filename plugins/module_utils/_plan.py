# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""plan(wanted, observed): what a run would do to one host, what stops it, what a person should know. Pure."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from . import _support
from ._model import DISRUPTIONS, ERROR, EVICT, INFO, NONE, RESTART, WARNING, Problem, Step
from ._versions import release_numbers, same_release

SCHEMA = 1
DRIVER_ROLE = "driver"
TOOLKIT_ROLE = "container_toolkit"
VALIDATOR_ROLE = "validator"
ROLE_ORDER = (DRIVER_ROLE, TOOLKIT_ROLE, VALIDATOR_ROLE)

DRIVER_STEP = "driver.install"
# Looks without which an absent driver is not known to be absent.
DRIVER_PROBES = ("module_loaded", "module_file", "dkms", "packages", "runfile_stamp")


@dataclass(frozen=True)
class Plan:
    """Steps in order, problems that stop the host, problems that only warn."""

    steps: t.List[Step] = field(default_factory=list)
    stops: t.List[Problem] = field(default_factory=list)
    cautions: t.List[Problem] = field(default_factory=list)
    stale_units: t.List[str] = field(default_factory=list)

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


@dataclass
class _Draft:
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


def _short(wanted: t.Mapping[str, t.Any], prefix: str) -> t.Callable[[str], t.Any]:
    def get(name: str) -> t.Any:
        return wanted["%s_%s" % (prefix, name)]

    return get


def _preflight(draft: _Draft, wanted: t.Mapping[str, t.Any], facts: t.Mapping[str, t.Any], matrix: t.Sequence[t.Mapping[str, t.Any]], prefix: str) -> None:
    get = _short(wanted, prefix + "_preflight")
    if facts["counts"]["functions"] == 0:
        draft.by_policy(
            get("no_npus"),
            "no_npus",
            "No NPU of vendor %s is on the PCI bus of this host." % facts["vendor"],
            "Check `lspci -nn`, seat the card, or take the host out of npu_nodes; %s_preflight_no_npus: warn lets it pass." % prefix,
        )
        return
    families = sorted({npu["family"] for npu in facts["npus"] if npu["family"]})
    if len(families) > 1:
        draft.stop(
            "two_families",
            "The host holds NPUs of the families %s, and one kernel driver build serves one family." % " and ".join(families),
            "Keep one family per host.",
        )
    driver = facts["driver"]
    version = wanted["%s_driver_version" % prefix] or driver["version_on_disk"] or driver["version_loaded"]
    host_os = facts["os"]
    pairs = [(host_os["id"], host_os["version_id"])]
    if (host_os["base_id"], host_os["base_version"]) not in pairs:
        pairs.append((host_os["base_id"], host_os["base_version"]))
    kernels = [("running", facts["kernel"]["running"])]
    if facts["kernel"]["next_boot"] and facts["kernel"]["next_boot"] != facts["kernel"]["running"]:
        kernels.append(("next boot", facts["kernel"]["next_boot"]))
    for label, kernel in kernels:
        verdict = _support.judge(matrix, version, families, pairs, kernel, prefix)
        detail = "%s (%s kernel)" % (verdict.detail, label)
        if verdict.state == _support.UNLISTED:
            draft.by_policy(get("unlisted"), "not_in_support_matrix", detail, verdict.next_step)
        elif verdict.state == _support.UNKNOWN and version:
            draft.caution("support_unknown", detail, verdict.next_step)
        elif verdict.state == _support.PARTLY:
            draft.caution("partly_tested", detail, severity=INFO)


def _needs_driver(facts: t.Mapping[str, t.Any]) -> bool:
    return any(npu["function"] == "pf" and npu["state"] != "passthrough" for npu in facts["npus"])


def _driver(draft: _Draft, wanted: t.Mapping[str, t.Any], facts: t.Mapping[str, t.Any], prefix: str) -> bool:
    """Plan the driver; True when one will be installed by this run."""
    get = _short(wanted, prefix + "_driver")
    if not _needs_driver(facts):
        if facts["npus"]:
            draft.caution("no_driver_needed", "Every NPU is given to virtual machines, so no driver is installed.", severity=INFO)
        return False
    driver = facts["driver"]
    source, version = get("source"), get("version")
    present = driver["version_on_disk"] or driver["version_loaded"]
    traces = driver["installed_via"] != "none" or driver["version_loaded"] is not None
    # What an installer left that broke off has no module; it protects nothing.
    installed = traces and (present is not None or bool(driver.get("loaded")) or driver["installed_via"] == "container")
    if source == "preinstalled":
        if not installed:
            draft.stop(
                "driver_missing",
                "%s and %s_driver_source is preinstalled."
                % ("An installation of the driver has broken off" if traces else "No driver is installed", prefix),
                "Install the driver, or set %s_driver_source to package or runfile." % prefix,
            )
        elif version and not same_release(present, version):
            draft.stop(
                "driver_version_differs",
                "Driver %s is installed, %s is wanted, and %s_driver_source is preinstalled." % (present, version, prefix),
                "Set %s_driver_source to package or runfile, or %s_driver_version to %s." % (prefix, prefix, present),
            )
        return False
    if driver["installed_via"] == "container":
        draft.stop(
            "driver_from_container",
            "A driver container owns the driver below %s." % driver["root"],
            "Remove the driver container first, or set %s_driver_source: preinstalled." % prefix,
        )
        return False
    hidden = [name for name in DRIVER_PROBES if facts["probes"].get(name, {}).get("state") in ("denied", "timeout", "failed")]
    if present is None and hidden:
        draft.stop(
            "driver_unknown",
            "Whether a driver is installed could not be found out: %s."
            % "; ".join("%s %s" % (name, facts["probes"][name]["detail"] or facts["probes"][name]["state"]) for name in hidden),
            "Give the user of the connection root by become, and run again.",
        )
        return False
    if installed and (not version or same_release(present, version)):
        if driver["version_loaded"] and driver["version_on_disk"] and not same_release(driver["version_loaded"], driver["version_on_disk"]):
            draft.caution(
                "driver_reload_needed",
                "Driver %s is on disk and %s is loaded." % (driver["version_on_disk"], driver["version_loaded"]),
                "Reboot the host, or unload and load the module when no process uses an NPU.",
            )
        return False
    if installed:
        if source == "runfile" and driver["legacy"]:
            draft.stop(
                "legacy_package_in_the_way",
                "Driver %s is the package of former releases; a runfile beside it leaves two module trees and mixed libraries." % present,
                "Remove the package first, then run again.",
            )
            return False
        if not get("replace"):
            draft.stop(
                "driver_replace_not_allowed",
                "Driver %s is installed and %s is wanted." % (present, version),
                "Set %s_driver_replace: true to let this run replace it, or %s_driver_version: '%s' to keep it." % (prefix, prefix, present),
            )
            return False
    draft.step(
        id=DRIVER_STEP,
        role=DRIVER_ROLE,
        component="driver",
        now=present,
        wanted=version or "newest of the source",
        reason="Another version is wanted." if installed else "An installation has broken off." if traces else "No driver is installed.",
        disruption=EVICT if installed else NONE,
    )
    return True


def _toolkit(
    draft: _Draft,
    wanted: t.Mapping[str, t.Any],
    facts: t.Mapping[str, t.Any],
    runtimes: t.Mapping[str, t.Any],
    observed: t.Mapping[str, t.Any],
    driver_pending: bool,
    prefix: str,
) -> None:
    get = _short(wanted, prefix + "_container_toolkit")
    after = DRIVER_STEP if driver_pending else ""
    if not _needs_driver(facts):
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


def _runtimes(draft: _Draft, get: t.Callable[[str], t.Any], runtimes: t.Mapping[str, t.Any], prefix: str) -> None:
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
        if not runtime.get("selected", runtime["name"] in runtimes["selected"]) or runtime["flavor"] == "docker-backend":
            continue
        name = "%s (%s)" % (runtime["name"], runtime["version"] or "version unknown")
        if runtime["refusal"]:
            draft.stop("runtime_refused", "%s: %s" % (name, runtime["refusal"]["reason"]), runtime["refusal"]["next_step"])
            continue
        stale = bool(runtime["process_stale"] and runtime["restart_unit"] and runtime["cdi"]["state"] in ("on", "on_by_default"))
        restart = bool(runtime["changes"]) or stale
        if restart and runtime["restart_unit"] and get("runtime_restart") != "if_required":
            draft.stop(
                "runtime_restart_not_allowed",
                "%s has to be restarted: %s."
                % (name, "; ".join(change["why"].rstrip(".") for change in runtime["changes"]) or "it is older than its configuration"),
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


def _validator(draft: _Draft, wanted: t.Mapping[str, t.Any], observed: t.Mapping[str, t.Any], facts: t.Mapping[str, t.Any]) -> None:
    if not _needs_driver(facts):
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
    draft = _Draft(str(facts["vendor"]))
    pools = sorted(name for name in group_names if name.startswith("npu_pool_"))
    if len(pools) > 1:
        draft.stop("two_pools", "The host is in the pools %s." % " and ".join(pools), "Keep it in one, or rename the inventory group.")
    if facts["driver"]["version_on_disk"] and not release_numbers(facts["driver"]["version_on_disk"]):
        draft.caution("driver_version_unreadable", "The driver version on disk is %r." % facts["driver"]["version_on_disk"])
    _preflight(draft, wanted, facts, matrix, prefix)
    pending = _driver(draft, wanted, facts, prefix)
    _toolkit(draft, wanted, facts, runtimes, observed, pending, prefix)
    _validator(draft, wanted, observed, facts)
    return Plan(draft.steps, draft.stops, draft.cautions, draft.stale_units)
