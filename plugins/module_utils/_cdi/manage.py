# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring a host's CDI specification into a wanted state: present, absent, or only judged."""

from __future__ import annotations

import typing as t

from .._base.model import ERROR, NpuError, Problem
from .._base.vendor import VendorProfile
from .._host.host import Host
from .options import CdiOptions, default_path, format_of
from .spec import CURRENT, examine, find_conflicts, load_spec, missing_host_paths, read_spec
from .trust import Guard, place_of, refuse_planted, survey
from .validate import device_names, validate_spec
from .write import remove_spec, repair_spec, write_spec

PRESENT = "present"
ABSENT = "absent"
VALIDATE = "validate"


def manage(profile: VendorProfile, host: Host, params: t.Mapping[str, t.Any], check: bool = False) -> dict[str, t.Any]:
    """Do what `state` says and return the module's result; with `check` nothing is written.

    NpuError says what, where and what next.
    """
    path = params.get("path") or default_path(profile, params.get("form") or "")
    format_of(path, params.get("format"))
    state = params.get("state") or PRESENT
    if state == ABSENT:
        return _absent(host, path, check)
    options = CdiOptions.read({name: params.get(name) for name in CdiOptions.names()})
    if state == VALIDATE:
        return _validate(profile, host, options, path)
    return _present(profile, host, options, path, check)


def _diff(path: str, before: str | None, after: str | None, repairs: t.Sequence[str] = ()) -> dict[str, str]:
    """Before and after, and in front of the latter, as comments, what else changes."""
    header = "%s (absent)" % path
    return {
        "before": before or "",
        "after": "".join("# %s\n" % repair for repair in repairs) + (after or ""),
        "before_header": path if before is not None else header,
        "after_header": path if after is not None else header,
    }


def _absent(host: Host, path: str, check: bool) -> dict[str, t.Any]:
    before = host.read_text(path).get()
    changed = remove_spec(host, path, check)
    return {"changed": changed, "path": path, "diff": _diff(path, before, None if changed else before), "problems": []}


def _present(profile: VendorProfile, host: Host, options: CdiOptions, path: str, check: bool) -> dict[str, t.Any]:
    seen, old = examine(profile, host, options, path)
    if seen["action"] == "fail":
        raise next(
            NpuError(problem.detail, problem.next_step)
            for problem in seen["problems"]
            if problem.code == "cdi_cannot_build"
        )
    changed = False
    if seen["action"] == "remove":
        changed = remove_spec(host, path, check)
    elif seen["after"] != seen["before"]:
        changed = write_spec(host, path, seen["after"], check)
    elif seen["repairs"]:
        changed = repair_spec(host, path, check)
    gone = old if changed else []
    lasting = [problem for problem in seen["problems"] if problem not in gone]
    result = {
        name: seen[name]
        for name in (
            "path",
            "format",
            "action",
            "missing",
            "conflicts",
            "devices",
            "libraries",
            "tools",
            "directories",
            "files",
            "repairs",
        )  # fmt: skip
    }
    result.update(
        {
            "changed": changed,
            "found": seen["state"],
            "state": CURRENT if seen["action"] == "write" else seen["state"],
            "missing_host_paths": seen["missing_host_paths"],
            "problems": [problem.to_dict() for problem in lasting],
            "diff": _diff(path, seen["before"], seen["after"], seen["repairs"]),
        }
    )
    return result


def _validate(profile: VendorProfile, host: Host, options: CdiOptions, path: str) -> dict[str, t.Any]:
    refuse_planted(Guard(host), path)
    text = host.read_text(path)
    if not text.ok:
        raise NpuError(
            "%s cannot be read: %s." % (path, text.detail),
            "Write the specification first (state present), or run as root.",
        )
    spec = load_spec(text.value, path)
    problems = [Problem(one.code, one.severity, one.detail, one.next_step, profile.name) for one in validate_spec(spec)]
    lost = missing_host_paths(host, spec)
    if lost:
        problems.append(
            Problem(
                "cdi_host_paths_missing",
                ERROR,
                "not on the host: %s" % ", ".join(lost),
                "Write the specification again.",
                profile.name,
            )
        )
    own = place_of(host, path)

    def read(other: str) -> t.Any:
        return spec if host.resolve(other).get() == own else read_spec(host, other)

    seen = survey(profile, host, options, path, read)
    conflicts, told = find_conflicts(profile, host, device_names(spec), path, options.spec_dirs, seen.specs)
    problems.extend(told + seen.problems + seen.repaired)
    errors = [problem for problem in problems if problem.severity == ERROR]
    return {
        "changed": False,
        "path": path,
        "valid": not errors,
        "missing_host_paths": lost,
        "conflicts": conflicts,
        "directories": seen.directories,
        "files": seen.files,
        "device_names": device_names(spec),
        "problems": [problem.to_dict() for problem in problems],
    }
