# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge a host's operating system and kernel against the support matrix. The limits are data; this code knows none."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.versions import (
    Numbers,
    compare,
    is_tagged,
    release_numbers,
    satisfies,
    split_kernel,
)

from .situation import ours

LISTED = "listed"
PARTLY = "partly_tested"
UNLISTED = "unlisted"
UNKNOWN = "unknown"

SEVERITIES = ("fail", "warn", "ignore")
# A rule with these two and no operating system says which drivers belong to a release of the SDK.
SDK_KEYS = frozenset(("sdk", "drivers", "families", "severity"))
# One with these and neither says what every driver of a release comes as.
SOURCE_KEYS = frozenset(("sources", "drivers", "families"))
RULE_KEYS = frozenset(
    (
        "drivers", "families", "os", "version", "arch", "sources", "kernel", "kernel_max", "flavours", "tested",
        "too_old", "too_new", "packages_absent", "pciehp", "severity",
    )
)  # fmt: skip
LISTS = ("drivers", "families", "arch", "sources", "flavours", "packages_absent", "sdk")
# What a rule that names no architecture is about.
ARCH = ("x86_64",)


@dataclass(frozen=True)
class Verdict:
    """state is listed, partly_tested, unlisted or unknown; severity is the rule's own policy or empty."""

    state: str
    detail: str
    next_step: str = ""
    severity: str = ""


def check_rules(rules: t.Sequence[t.Mapping[str, t.Any]], place: str) -> None:
    """NpuError naming the rule and the key when a rule is not one."""
    for number, rule in enumerate(rules):
        where = "%s[%d]" % (place, number)
        if not isinstance(rule, t.Mapping):
            raise NpuError("%s is not a mapping." % where, "Give each rule the keys os, version, kernel and drivers.")
        keys = SDK_KEYS if "sdk" in rule else SOURCE_KEYS if "sources" in rule and "os" not in rule else RULE_KEYS
        unknown = sorted(set(rule) - keys)
        if unknown:
            raise NpuError(
                "%s has the unknown key %s." % (where, unknown[0]), "Use only: %s." % ", ".join(sorted(keys))
            )
        for key in ("os", "version", "kernel") if keys is RULE_KEYS else ():
            if not isinstance(rule.get(key), str) or not rule[key]:
                raise NpuError("%s.%s must be text." % (where, key), "Quote the value, for example version: '24.04'.")
        for key in LISTS:
            value = rule.get(key)
            if value is not None and not (
                isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)
            ):
                raise NpuError("%s.%s must be a list of text." % (where, key), "Write a YAML list of quoted values.")
        if rule.get("severity") not in (None,) + SEVERITIES:
            raise NpuError(
                "%s.severity is %r." % (where, rule["severity"]), "Choose one of: %s." % ", ".join(SEVERITIES)
            )
        for constraint in rule.get("drivers") or []:
            try:
                satisfies("0", [constraint])
            except (ValueError, AttributeError) as exc:
                raise NpuError("%s.drivers: %s." % (where, exc), "Write constraints such as '>=3.2'.") from exc


@functools.lru_cache(maxsize=1024)
def _meets(driver_version: str, constraints: tuple[str, ...]) -> bool:
    """Few rules differ in what they say of drivers, and a plan asks all of them several times."""
    return satisfies(driver_version, constraints)


def _for_driver(rule: t.Mapping[str, t.Any], driver_version: str, families: t.Collection[str]) -> bool:
    return _meets(driver_version, tuple(rule.get("drivers") or ())) and _for_families(rule, families)


def _for_families(rule: t.Mapping[str, t.Any], families: t.Collection[str]) -> bool:
    wanted = rule.get("families") or []
    return not wanted or not families or any(family in wanted for family in families)


def _of_hosts(rules: t.Iterable[t.Mapping[str, t.Any]]) -> list[t.Mapping[str, t.Any]]:
    return [rule for rule in rules if "os" in rule]


def sources_for(
    rules: t.Sequence[t.Mapping[str, t.Any]], driver_version: str | None, families: t.Collection[str]
) -> t.Sequence[str]:
    """What a driver comes as, by the first rule without an operating system that says so; empty when none does."""
    general = [rule for rule in rules if rule.get("sources") and "os" not in rule]
    return next(
        (rule["sources"] for rule in general if driver_version and _for_driver(rule, driver_version, families)), ()
    )


def _constraints(rules: t.Iterable[t.Mapping[str, t.Any]]) -> str:
    """`>=3.4 <3.5 or >=3.0 <3.2`: what the rules take, each once, in their order."""
    return " or ".join(dict.fromkeys(" ".join(rule["drivers"]) for rule in rules if rule.get("drivers")))


def rows_for(
    rules: t.Sequence[t.Mapping[str, t.Any]],
    driver_version: str | None,
    families: t.Collection[str],
    os_ids: t.Sequence[tuple[str | None, str | None]],
) -> list[t.Mapping[str, t.Any]]:
    """The rules of the matrix for a driver on an operating system: those of the first pair of `os_ids` that has any."""
    if not driver_version:
        return []
    fit = [rule for rule in _of_hosts(rules) if _for_driver(rule, driver_version, families)]
    for os_id, os_version in os_ids:
        rows = [rule for rule in fit if rule["os"] == os_id and rule["version"] == os_version]
        if rows:
            return rows
    return []


def judge_sdk(
    rules: t.Sequence[t.Mapping[str, t.Any]],
    sdk: str,
    driver_version: str | None,
    families: t.Collection[str],
) -> Verdict:
    """Judge whether a driver belongs to a release of the SDK, such as `0.11.2` or the series `0.11`.

    The rules with the key sdk say which drivers a release has.
    """
    numbers = release_numbers(sdk)
    rows = []
    for rule in rules:
        for text in rule.get("sdk") or []:
            known = release_numbers(text)
            size = min(len(known), len(numbers))
            if size > 1 and known[:size] == numbers[:size] and _for_families(rule, families):
                rows.append(rule)
                break
    family = " for %s" % " and ".join(sorted(families)) if families else ""
    accept = f"or accept it with {ours('preflight_unlisted')}: warn"
    if not rows:
        return Verdict(
            UNLISTED,
            "SDK %s is not in the support matrix%s." % (sdk, family),
            f"Correct {ours('preflight_sdk')}, "
            f"add a rule with sdk and drivers to {ours('preflight_support_matrix_extra')}, {accept}.",
        )
    if not driver_version:
        return Verdict(
            UNKNOWN, "No driver version is wanted or installed, so whether it belongs to SDK %s is not known." % sdk
        )
    if any(satisfies(driver_version, rule.get("drivers") or []) for rule in rows):
        return Verdict(LISTED, "Driver %s belongs to SDK %s." % (driver_version, sdk))
    own = [
        text
        for rule in rules
        if rule.get("sdk") and _for_driver(rule, driver_version, families)
        for text in rule["sdk"]
    ]
    fits = (
        "driver %s belongs to SDK %s" % (driver_version, ", ".join(dict.fromkeys(own)))
        if own
        else "no SDK of the matrix has driver %s" % driver_version
    )
    return Verdict(
        UNLISTED,
        "Driver %s does not belong to SDK %s%s: the SDK has driver %s, and %s."
        % (driver_version, sdk, family, _constraints(rows), fits),
        f"Set {ours('driver_version')} to a driver of SDK {sdk}, correct {ours('preflight_sdk')}, {accept}.",
        rows[0].get("severity") or "",
    )


def _judge_kernel(rule: t.Mapping[str, t.Any], kernel: str) -> Verdict:
    """The verdict of one rule, with its own severity."""
    verdict = _judge_bounds(rule, kernel)
    return Verdict(verdict.state, verdict.detail, verdict.next_step, rule.get("severity") or "")


def _series(release: Numbers) -> Numbers:
    """What a rule that names these numbers is about: 6.12 and 6.12.0 are every 6.12, 6.12.38 is that one alone."""
    size = len(release)
    while size > 2 and not release[size - 1]:
        size -= 1
    return release[:size]


def _judge_bounds(rule: t.Mapping[str, t.Any], kernel: str) -> Verdict:
    base, build, flavour = split_kernel(kernel)
    if not base:
        return Verdict(UNKNOWN, "The kernel release %r cannot be read." % kernel, "Check `uname -r` on the host.")
    name = "%s %s" % (rule["os"], rule["version"])
    series = _series(release_numbers(rule["kernel"]))
    order = compare(base[: len(series)], series)
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
    # Where the standard kernel's release names no flavour, a rule that names none means that kernel.
    flavours = rule.get("flavours") or ([""] if is_tagged(kernel) else [])
    if flavours and flavour not in flavours:
        return Verdict(
            UNLISTED,
            "The kernel flavour %r of %s is not in the support matrix for %s." % (flavour, kernel, name),
            "Boot a kernel of flavour %s." % ", ".join(flavours)
            if any(flavours)
            else "Boot the standard kernel of %s." % name,
        )
    maximum = rule.get("kernel_max")
    if maximum:
        max_base, max_build, _ignored = split_kernel(maximum)
        if not max_build:
            max_base, build = _series(max_base), ()
        if (compare(base[: len(max_base)] if not max_build else base, max_base), compare(build, max_build)) > (0, 0):
            return Verdict(
                UNLISTED,
                "Kernel %s on %s is above the tested bound %s." % (kernel, name, maximum),
                f"Boot {maximum} or older, or accept it with {ours('preflight_unlisted')}: warn.",
            )
    if rule.get("tested") == "partial":
        return Verdict(PARTLY, "Kernel %s on %s is listed as not fully tested." % (kernel, name))
    return Verdict(LISTED, "Kernel %s on %s is listed." % (kernel, name))


def judge(
    rules: t.Sequence[t.Mapping[str, t.Any]],
    driver_version: str | None,
    families: t.Collection[str],
    os_ids: t.Sequence[tuple[str | None, str | None]],
    kernel: str | None,
) -> Verdict:
    """Judge one kernel.

    `os_ids` are (id, version) pairs, the host's own first and its base after it: a derivative is judged by its own
    rules when it has some, else by its base's, and is then at most partly tested. The best verdict of the matching
    rules counts.
    """
    if not driver_version:
        return Verdict(UNKNOWN, "No driver version is wanted or installed, so no row of the support matrix applies.")
    if not kernel:
        return Verdict(UNKNOWN, "The kernel release is not known.")
    hosts = _of_hosts(rules)
    if not any(_for_driver(rule, driver_version, families) for rule in hosts):
        there = _constraints(rule for rule in hosts if _for_families(rule, families))
        family = " for %s" % " and ".join(sorted(families)) if families else ""
        return Verdict(
            UNLISTED,
            "Driver %s is not in the support matrix%s%s."
            % (driver_version, family, ", which has %s" % there if family and there else ""),
            f"{f'Take a driver{family}, a' if family and there else 'A'}dd rules for it with "
            f"{ours('preflight_support_matrix_extra')}, or accept it with {ours('preflight_unlisted')}: warn.",
        )
    rows = rows_for(rules, driver_version, families, os_ids)
    if rows:
        verdicts = [_judge_kernel(rule, kernel) for rule in rows]
        ranks = (LISTED, PARTLY, UNLISTED, UNKNOWN)
        best = min(verdicts, key=lambda verdict: ranks.index(verdict.state))
        base = (rows[0]["os"], rows[0]["version"])
        if best.state == LISTED and base != tuple(os_ids[0]):
            own = " ".join(part or "?" for part in os_ids[0])
            return Verdict(
                PARTLY,
                "%s is not in the support matrix; it is judged as %s %s, from which it is built." % ((own,) + base),
            )
        return best
    shown = " ".join(part or "?" for part in (os_ids[0] if os_ids else (None, None)))
    return Verdict(
        UNLISTED,
        "%s is not in the support matrix of driver %s." % (shown, driver_version),
        f"Use a listed release, add rules with {ours('preflight_support_matrix_extra')}, "
        f"or accept it with {ours('preflight_unlisted')}: warn.",
    )
