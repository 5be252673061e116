# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a task that has changed a host has changed, in words. Pure."""

from __future__ import annotations

import typing as t

from .._answers.answer import PREFIX
from .._text.line import line

# These change what Ansible knows, or what is told elsewhere: of clusters, nodes and waves.
SILENT = {
    "add_host", "debug", "group_by", "include_role", "include_tasks", "include_vars", "set_fact",
    *(f"{PREFIX}_{name}" for name in ("operands", "rollout", "controller", "plan", "plan_show", "show", "observe")),
}  # fmt: skip
LONGEST = 300
MOST = 12

Data = t.Mapping[str, t.Any]


def changes_of(module: str, task: str, data: Data) -> list[str]:
    """The changes of a result, a line each; `module` is a short name of ours or an action of others."""
    short = module.rpartition(".")[2]
    if short in SILENT:
        return []
    say = WORDS.get(short[len(PREFIX) + 1 :]) if short.startswith(PREFIX + "_") else None
    found = [line(text, LONGEST) for text in (say(data) if say else ()) if text]
    # `Restart | Restart containerd` is of the file restart.yml.
    told = found or [line(task.rpartition(" | ")[2], LONGEST)]
    return told[:MOST] + ([f"and {len(told) - MOST} more"] if len(told) > MOST else [])


def _driver(data: Data) -> list[str]:
    outcome = str(data.get("outcome") or "").replace("_", " ")
    before, after = str(data.get("previous") or "none"), str(data.get("version") or "")
    if outcome in ("installed", "upgraded", "reboot required") and after:
        due = ", a reboot is due" if data.get("reboot_required") else ""
        return [f"driver: {before} -> {after}{due}"]
    return [f"driver: {outcome}"] if outcome else []


def _cdi(data: Data) -> list[str]:
    where = data.get("path")
    return [f"CDI specification {where}: {data.get('found') or 'none'} -> {data.get('state')}"] if where else []


def _names(label: str, key: str) -> t.Callable[[Data], list[str]]:
    def say(data: Data) -> list[str]:
        return [f"{label}: {text}" for text in data.get(key) or () if isinstance(text, str)]

    return say


def _ready_files(data: Data) -> list[str]:
    acts: dict[str, int] = {}
    for one in data.get("changes") or ():
        acts[str(one.get("act"))] = acts.get(str(one.get("act")), 0) + 1
    return ["ready files: " + ", ".join(f"{number} {act}" for act, number in acts.items())] if acts else []


WORDS: dict[str, t.Callable[[Data], list[str]]] = {
    "driver": _driver,
    "cdi_spec": _cdi,
    "runtime_config": _names("configuration", "files"),
    "host_tool": _names("host tool", "changed_paths"),
    "package": _names("package", "changes"),
    "repository": _names("repository", "changes"),
    "mok": _names("Secure Boot", "acts"),
    "validate": _ready_files,
}
