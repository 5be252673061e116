# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge a host's operating system and kernel against the support matrix. The limits are data; nothing here knows one."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ._model import NpuError
from ._versions import compare, release_numbers, satisfies, split_kernel

LISTED = "listed"
PARTLY = "partly_tested"
UNLISTED = "unlisted"
UNKNOWN = "unknown"

RULE_KEYS = frozenset(("drivers", "families", "os", "version", "kernel", "kernel_max", "flavours", "tested", "too_old", "too_new"))


@dataclass(frozen=True)
class Verdict:
    """state is listed, partly_tested, unlisted or unknown; detail and next_step are for people."""

    state: str
    detail: str
    next_step: str = ""


def check_rules(rules: t.Sequence[t.Mapping[str, t.Any]], place: str) -> None:
    """NpuError naming the rule and the key when a rule is not one."""
    for number, rule in enumerate(rules):
        where = "%s[%d]" % (place, number)
        if not isinstance(rule, t.Mapping):
            raise NpuError("%s is not a mapping." % where, "Give each rule the keys os, version, kernel and drivers.")
        unknown = sorted(set(rule) - RULE_KEYS)
        if unknown:
            raise NpuError("%s has the unknown key %s." % (where, unknown[0]), "Use only: %s." % ", ".join(sorted(RULE_KEYS)))
        for key in ("os", "version", "kernel"):
            if not isinstance(rule.get(key), str) or not rule[key]:
                raise NpuError("%s.%s must be text." % (where, key), "Quote the value, for example version: '24.04'.")
        for constraint in rule.get("drivers") or []:
            try:
                satisfies("0", [constraint])
            except (ValueError, AttributeError) as exc:
                raise NpuError("%s.drivers: %s." % (where, exc), "Write constraints such as '>=3.2'.") from exc


def _for_driver(rule: t.Mapping[str, t.Any], driver_version: str, families: t.Collection[str]) -> bool:
    if not satisfies(driver_version, rule.get("drivers") or []):
        return False
    wanted = rule.get("families") or []
    return not wanted or not families or any(family in wanted for family in families)


def _judge_kernel(rule: t.Mapping[str, t.Any], kernel: str, prefix: str) -> Verdict:
    base, build, flavour = split_kernel(kernel)
    if not base:
        return Verdict(UNKNOWN, "The kernel release %r cannot be read." % kernel, "Check `uname -r` on the host.")
    name = "%s %s" % (rule["os"], rule["version"])
    wanted_base = release_numbers(rule["kernel"])
    order = compare(base, wanted_base)
    if order < 0:
        return Verdict(
            UNLISTED,
            "Kernel %s on %s is older than the supported %s." % (kernel, name, rule["kernel"]),
            rule.get("too_old") or "Install a kernel of the %s series and reboot." % rule["kernel"],
        )
    if order > 0:
        return Verdict(
            UNLISTED,
            "Kernel %s on %s is newer than the supported %s series." % (kernel, name, rule["kernel"]),
            rule.get("too_new") or "Boot a kernel of the %s series." % rule["kernel"],
        )
    flavours = rule.get("flavours") or []
    if flavours and flavour not in flavours:
        return Verdict(
            UNLISTED,
            "The kernel flavour %r of %s is not in the support matrix for %s." % (flavour, kernel, name),
            "Boot a kernel of flavour %s." % ", ".join(flavours),
        )
    maximum = rule.get("kernel_max")
    if maximum:
        max_base, max_build, _ignored = split_kernel(maximum)
        if (compare(base, max_base), compare(build, max_build)) > (0, 0):
            return Verdict(
                UNLISTED,
                "Kernel %s on %s is above the tested bound %s." % (kernel, name, maximum),
                "Boot %s or older, or accept it with %s_preflight_unlisted: warn." % (maximum, prefix),
            )
    if rule.get("tested") == "partial":
        return Verdict(PARTLY, "Kernel %s on %s is listed as not fully tested." % (kernel, name))
    return Verdict(LISTED, "Kernel %s on %s is listed." % (kernel, name))


def judge(
    rules: t.Sequence[t.Mapping[str, t.Any]],
    driver_version: t.Optional[str],
    families: t.Collection[str],
    os_ids: t.Sequence[t.Tuple[t.Optional[str], t.Optional[str]]],
    kernel: t.Optional[str],
    prefix: str,
) -> Verdict:
    """Judge one kernel; `prefix` is that of the vendor's input names, for the next step.

    `os_ids` are (id, version) pairs, the host's own first and its base after it: a derivative is judged by its own rules
    when it has some, else by its base's. The best verdict of the matching rules counts.
    """
    if not driver_version:
        return Verdict(UNKNOWN, "No driver version is wanted or installed, so no row of the support matrix applies.")
    if not kernel:
        return Verdict(UNKNOWN, "The kernel release is not known.")
    for_driver = [rule for rule in rules if _for_driver(rule, driver_version, families)]
    if not for_driver:
        return Verdict(
            UNLISTED,
            "Driver %s is not in the support matrix." % driver_version,
            "Add rules for it with %s_preflight_support_matrix_extra, or accept it with %s_preflight_unlisted: warn." % (prefix, prefix),
        )
    for os_id, os_version in os_ids:
        rows = [rule for rule in for_driver if rule["os"] == os_id and rule["version"] == os_version]
        if rows:
            verdicts = [_judge_kernel(rule, kernel, prefix) for rule in rows]
            ranks = (LISTED, PARTLY, UNLISTED, UNKNOWN)
            return min(verdicts, key=lambda verdict: ranks.index(verdict.state))
    shown = " ".join(part or "?" for part in (os_ids[0] if os_ids else (None, None)))
    return Verdict(
        UNLISTED,
        "%s is not in the support matrix of driver %s." % (shown, driver_version),
        "Use a listed release, add rules with %s_preflight_support_matrix_extra, or accept it with %s_preflight_unlisted: warn." % (prefix, prefix),
    )
