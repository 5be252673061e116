# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host, its driver and its SDK may be, by the support matrix; and what all parts of the plan share. Pure."""

from __future__ import annotations

import fnmatch
import typing as t
from dataclasses import replace

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import INFO, NONE
from ansible_collections.rebellions.npu.plugins.module_utils._base.versions import tagged_release

from . import matrix as _support
from .driver import DRIVER_STEP
from .situation import DRIVER_ROLE, Case, Data, Draft, ours

PREREQUISITES_STEP = "driver.prerequisites"
BUILD_STEP = "driver.build"
HOLD_STEP = "driver.hold"
SECURE_BOOT_STEP = "driver.secure_boot"
# In the order of the acts; what is not listed comes after them.
BEFORE = (PREREQUISITES_STEP, HOLD_STEP, SECURE_BOOT_STEP)


def will_install(draft: Draft) -> bool:
    return draft.will(DRIVER_STEP)


def step_before(draft: Draft, **keys: t.Any) -> None:
    """Add a step of the driver's role in front of those that act on the driver itself."""
    draft.step(role=DRIVER_ROLE, disruption=NONE, **keys)
    added = draft.steps.pop()
    at = next(
        (at for at, step in enumerate(draft.steps) if step.role != DRIVER_ROLE or step.id not in BEFORE),
        len(draft.steps),
    )
    draft.steps.insert(at, added)


def os_pairs(facts: Data, kernel: str | None) -> list[tuple[str | None, str | None]]:
    """(id, version) of the host's system, and of the system it is built from where that is another.

    A kernel of another release of Enterprise Linux than os-release says is that of the release in its tag: its
    interfaces are those of el9_4 also where the host is already 9.6.
    """
    host_os = facts["os"]
    tag = other_release(facts, kernel)
    pairs = [
        (host_os["id"], tag or host_os["version_id"]),
        (host_os["base_id"], tag or host_os["base_version"]),
    ]
    return list(dict.fromkeys(pairs))


def other_release(facts: Data, kernel: str | None) -> str:
    """The release of Enterprise Linux in a kernel's tag where it is not the host's own; empty where it is.

    A tag without a minor release says only which major release the kernel is of.
    """
    tag = tagged_release(kernel or "") if facts["os"]["family"] == "redhat" else ""
    own = str(facts["os"]["base_version"] or facts["os"]["version_id"] or "")
    same = own == tag or ("." not in tag and own.partition(".")[0] == tag)
    return "" if not own or same else tag


def kernels_at_stake(facts: Data) -> list[str]:
    """The running kernel, and the next one where it is another."""
    return list(dict.fromkeys(name for name in (facts["kernel"]["running"], facts["kernel"]["next_boot"]) if name))


def rows(case: Case) -> list[Data]:
    """The rules of the support matrix that apply to this host and its driver."""
    pairs = os_pairs(case.facts, case.facts["kernel"]["running"])
    return _support.rows_for(case.matrix, case.judged_version, case.families, pairs)


def judge_kernel(case: Case, kernel: str | None) -> _support.Verdict:
    facts = case.facts
    verdict = _support.judge(case.matrix, case.judged_version, case.families, os_pairs(facts, kernel), kernel)
    tag = other_release(facts, kernel)
    if not tag:
        return verdict
    why = f"{verdict.detail} Kernel {kernel} is of release {tag} by its tag, and this host is {facts['os']['pretty']}."
    return replace(verdict, detail=why)


def support(draft: Draft, case: Case) -> None:
    """Driver, family, system and kernels against the support matrix; a rule's own severity wins over the policy."""
    version = case.judged_version
    running = case.facts["kernel"]["running"]
    unlisted = case.input("preflight_unlisted")
    kernels: list[str | None] = [*kernels_at_stake(case.facts)]
    for kernel in kernels or [None]:
        verdict = judge_kernel(case, kernel)
        detail = f"{verdict.detail} ({'running' if kernel == running else 'next boot'} kernel)"
        if verdict.state == _support.UNLISTED:
            draft.by_policy(verdict.severity or unlisted, "not_in_support_matrix", detail, verdict.next_step)
        elif verdict.state == _support.UNKNOWN and version:
            draft.caution("support_unknown", detail, verdict.next_step)
        elif verdict.state == _support.PARTLY:
            draft.caution("partly_tested", detail, severity=INFO)
    fit, arch = rows(case), case.facts["os"]["arch"]
    if fit and arch and not any(arch in (rule.get("arch") or _support.ARCH) for rule in fit):
        draft.by_policy(
            fit[0].get("severity") or unlisted,
            "arch_not_in_support_matrix",
            f"The architecture {arch} is not in the support matrix of driver {version}.",
            f"Add a rule with arch to {ours('preflight_support_matrix_extra')}, "
            f"or accept it with {ours('preflight_unlisted')}: warn.",
        )


def source(draft: Draft, case: Case) -> None:
    """The source that is given exists for this driver: up to 2.x there was one package and no runfile.

    This holds whether or not the matrix has the driver for this system.
    """
    given, version = case.input("driver_source"), case.judged_version
    own = next((rule["sources"] for rule in rows(case) if rule.get("sources")), None)
    there = own or _support.sources_for(case.matrix, version, case.families)
    if there and given not in there and will_install(draft):
        draft.stop(
            "driver_source_not_of_version",
            f"Driver {version} comes as {' or '.join(there)}, and {ours('driver_source')} is {given}.",
            f"Set {ours('driver_source')}: {there[0]}, or want another version.",
        )


def sdk(draft: Draft, case: Case) -> None:
    """Where a release of the SDK is named, the driver belongs to it."""
    named = case.input("preflight_sdk")
    if not named or not case.needs_driver:
        return
    verdict = _support.judge_sdk(case.matrix, named, case.judged_version, case.families)
    if verdict.state == _support.UNLISTED:
        draft.by_policy(
            verdict.severity or case.input("preflight_unlisted"),
            "driver_not_of_sdk",
            verdict.detail,
            verdict.next_step,
        )
    elif verdict.state == _support.UNKNOWN:
        draft.caution("support_unknown", verdict.detail, f"Name the driver's version with {ours('driver_version')}.")


def kernel_line(draft: Draft, case: Case) -> None:
    """No package is installed that pulls in kernels the driver does not support: HWE on Ubuntu 24.04."""
    there = list(dict.fromkeys(item["name"] for item in case.facts["kernel"]["packages"]))
    for rule in rows(case):
        patterns = rule.get("packages_absent") or []
        found = [name for name in there if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
        if found:
            draft.by_policy(
                rule.get("severity") or case.input("preflight_unlisted"),
                "kernel_line_not_supported",
                f"{', '.join(found)} pulls in kernels newer than the supported {rule['kernel']}.",
                rule.get("too_new") or f"Remove {', '.join(found)}.",
            )
            return


def pciehp(draft: Draft, case: Case) -> None:
    """Where the matrix has the rule: pciehp holds no hotplug port above several NPUs of a physical machine."""
    facts = case.facts
    rule = next((rule for rule in rows(case) if rule.get("pciehp")), None)
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
            case.input("preflight_pciehp"),
            "pciehp_bound",
            f"pciehp holds the ports {', '.join(item['port'] for item in ports)} above NPUs, "
            "and may remove a card in use when several reset together.",
            rule["pciehp"],
        )
