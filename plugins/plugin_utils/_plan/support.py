# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host, its driver and its SDK are allowed to be, by the rules of the support matrix; and what all parts of the driver's plan share. Pure.

Every part has the parameters (draft, wanted, facts, matrix, prefix).
"""

from __future__ import annotations

import fnmatch
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import INFO, NONE

from . import matrix as _support
from .driver import DRIVER_STEP
from .situation import DRIVER_ROLE, Draft, needs_driver, wanted_version

Data = t.Mapping[str, t.Any]
Rules = t.Sequence[t.Mapping[str, t.Any]]

PREREQUISITES_STEP = "driver.prerequisites"
BUILD_STEP = "driver.build"
HOLD_STEP = "driver.hold"
SECURE_BOOT_STEP = "driver.secure_boot"
# In the order of the acts; what is not listed comes after them.
BEFORE = (PREREQUISITES_STEP, HOLD_STEP, SECURE_BOOT_STEP)


def will_install(draft: Draft) -> bool:
    return any(step.id == DRIVER_STEP for step in draft.steps)


def step_before(draft: Draft, **keys: t.Any) -> None:
    """Add a step of the driver's role in front of those that act on the driver itself."""
    draft.step(role=DRIVER_ROLE, disruption=NONE, **keys)
    added = draft.steps.pop()
    at = next(
        (at for at, step in enumerate(draft.steps) if step.role != DRIVER_ROLE or step.id not in BEFORE),
        len(draft.steps),
    )
    draft.steps.insert(at, added)


def os_pairs(facts: Data) -> list[tuple[str | None, str | None]]:
    """(id, version) of the host's system, and of the system it is built from where that is another."""
    host_os = facts["os"]
    pairs = [(host_os["id"], host_os["version_id"]), (host_os["base_id"], host_os["base_version"])]
    return list(dict.fromkeys(pairs))


def families(facts: Data) -> list[str]:
    """Product families of the NPUs that the driver of this host serves."""
    return sorted({npu["family"] for npu in facts["npus"] if npu["family"] and npu["state"] != "passthrough"})


def judged_version(wanted: Data, facts: Data, prefix: str) -> str | None:
    """The driver that the host will have: the wanted one, else the one that is there."""
    driver = facts["driver"]
    return wanted_version(wanted, facts, prefix) or driver["version_on_disk"] or driver["version_loaded"]


def kernels_at_stake(facts: Data) -> list[str]:
    """The running kernel, and the next one where it is another."""
    return list(dict.fromkeys(name for name in (facts["kernel"]["running"], facts["kernel"]["next_boot"]) if name))


def rows(wanted: Data, facts: Data, matrix: Rules, prefix: str) -> list[t.Mapping[str, t.Any]]:
    """The rules of the support matrix that apply to this host and its driver."""
    return _support.rows_for(matrix, judged_version(wanted, facts, prefix), families(facts), os_pairs(facts))


def support(draft: Draft, wanted: Data, facts: Data, matrix: Rules, prefix: str) -> None:
    """Driver, family, operating system and kernels against the support matrix; a rule's own severity goes before the policy."""
    version = judged_version(wanted, facts, prefix)
    running = facts["kernel"]["running"]
    for kernel in kernels_at_stake(facts) or [None]:
        verdict = _support.judge(matrix, version, families(facts), os_pairs(facts), kernel, prefix)
        detail = "%s (%s kernel)" % (verdict.detail, "running" if kernel == running else "next boot")
        if verdict.state == _support.UNLISTED:
            draft.by_policy(
                verdict.severity or wanted["%s_preflight_unlisted" % prefix],
                "not_in_support_matrix",
                detail,
                verdict.next_step,
            )
        elif verdict.state == _support.UNKNOWN and version:
            draft.caution("support_unknown", detail, verdict.next_step)
        elif verdict.state == _support.PARTLY:
            draft.caution("partly_tested", detail, severity=INFO)
    fit, arch = rows(wanted, facts, matrix, prefix), facts["os"]["arch"]
    if fit and arch and not any(arch in (rule.get("arch") or _support.ARCH) for rule in fit):
        draft.by_policy(
            fit[0].get("severity") or wanted["%s_preflight_unlisted" % prefix],
            "arch_not_in_support_matrix",
            "The architecture %s is not in the support matrix of driver %s." % (arch, version),
            "Add a rule with arch to %s_preflight_support_matrix_extra, or accept it with %s_preflight_unlisted: warn."
            % (prefix, prefix),
        )


def source(draft: Draft, wanted: Data, facts: Data, matrix: Rules, prefix: str) -> None:
    """A driver is installed from what there is of it, whether or not the matrix has it for this system: up to 2.x there was one package and no runfile."""
    given, version = wanted["%s_driver_source" % prefix], judged_version(wanted, facts, prefix)
    own = next((rule["sources"] for rule in rows(wanted, facts, matrix, prefix) if rule.get("sources")), None)
    there = own or _support.sources_for(matrix, version, families(facts))
    if there and given not in there and will_install(draft):
        draft.stop(
            "driver_source_not_of_version",
            "Driver %s comes as %s, and %s_driver_source is %s." % (version, " or ".join(there), prefix, given),
            "Set %s_driver_source: %s, or want another version." % (prefix, there[0]),
        )


def sdk(draft: Draft, wanted: Data, facts: Data, matrix: Rules, prefix: str) -> None:
    """Where a release of the SDK is named, the driver belongs to it."""
    named = wanted["%s_preflight_sdk" % prefix]
    if not named or not needs_driver(facts):
        return
    verdict = _support.judge_sdk(matrix, named, judged_version(wanted, facts, prefix), families(facts), prefix)
    if verdict.state == _support.UNLISTED:
        draft.by_policy(
            verdict.severity or wanted["%s_preflight_unlisted" % prefix],
            "driver_not_of_sdk",
            verdict.detail,
            verdict.next_step,
        )
    elif verdict.state == _support.UNKNOWN:
        draft.caution("support_unknown", verdict.detail, "Name the driver's version with %s_driver_version." % prefix)


def kernel_line(draft: Draft, wanted: Data, facts: Data, matrix: Rules, prefix: str) -> None:
    """No package is installed that pulls in kernels the driver does not support: HWE on Ubuntu 24.04."""
    there = list(dict.fromkeys(item["name"] for item in facts["kernel"]["packages"]))
    for rule in rows(wanted, facts, matrix, prefix):
        found = [
            name
            for name in there
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in rule.get("packages_absent") or [])
        ]
        if found:
            draft.by_policy(
                rule.get("severity") or wanted["%s_preflight_unlisted" % prefix],
                "kernel_line_not_supported",
                "%s pulls in kernels newer than the supported %s." % (", ".join(found), rule["kernel"]),
                rule.get("too_new") or "Remove %s." % ", ".join(found),
            )
            return


def pciehp(draft: Draft, wanted: Data, facts: Data, matrix: Rules, prefix: str) -> None:
    """Where the matrix has the rule: no hotplug port above several NPUs of a machine of its own is held by pciehp."""
    rule = next((rule for rule in rows(wanted, facts, matrix, prefix) if rule.get("pciehp")), None)
    present = [npu for npu in facts["npus"] if npu["function"] == "pf" and npu["state"] != "passthrough"]
    if rule is None or len(present) < 2 or facts["virtualization"] != "none":
        return
    ports = facts["pciehp"]["ports"]
    if ports is None:
        draft.caution(
            "pciehp_unknown",
            "Whether hotplug ports above the NPUs are bound to pciehp could not be found out.",
            rule["pciehp"],
        )
    elif ports:
        draft.by_policy(
            wanted["%s_preflight_pciehp" % prefix],
            "pciehp_bound",
            "pciehp holds the ports %s above NPUs, and may remove a card in use when several reset together."
            % ", ".join(item["port"] for item in ports),
            rule["pciehp"],
        )
