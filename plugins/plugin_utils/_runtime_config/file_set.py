# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the detection of a host to one set of files to write and the record of the edits."""

from __future__ import annotations

import base64
import json
import typing as t
from dataclasses import dataclass, field

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._text.diff import diff
from . import containerd
from .docker_crio import plan_crio, plan_docker
from .edit import FileEdit, Files, RuntimeEdit, Source, covers, source
from .proxies import FORMER, own_files, plan_proxies, unit_of
from .undo import RECORD, add, read_record, undo, undo_last

PLANNERS: dict[str, t.Callable[[t.Mapping[str, t.Any], Files, t.Sequence[str]], RuntimeEdit]] = {
    "containerd": containerd.plan,
    "docker": plan_docker,
    "cri-o": plan_crio,
}
Runtime = t.Mapping[str, t.Any]
# Flavors whose configuration is made from our edit when they start.
GENERATED = ("k3s", "rke2", "k0s", "microk8s")
# What is configured, and can be removed alone.
KINDS = ("cdi", "proxies")
JOURNAL = "/var/lib/rebellions-npu/transaction.json"


@dataclass
class WriteSet:
    """One request to the writer, and what to tell about it."""

    edits: list[RuntimeEdit] = field(default_factory=list)
    files: list[dict[str, t.Any]] = field(default_factory=list)
    judges: list[dict[str, t.Any]] = field(default_factory=list)
    diffs: list[str] = field(default_factory=list)


def choose(detected: t.Mapping[str, t.Any], wanted: t.Sequence[str]) -> list[Runtime]:
    """The runtimes meant by names or `selected`.

    NpuError when one is not there or the host does not say which one matters.
    """
    runtimes = list(detected.get("runtimes") or [])
    chosen: list[Runtime] = []
    for name in wanted:
        if name == "selected":
            doubt = detected.get("ambiguous")
            if doubt:
                raise NpuError("it is unclear which runtime to use: %s." % doubt["reason"], doubt.get("next_step", ""))
            found = [item for item in runtimes if item.get("selected")] or [
                item for item in runtimes if item["name"] in detected.get("selected", [])
            ]
        else:
            named = [item for item in runtimes if item["name"] == name]
            found = (
                [item for item in named if item.get("selected")]
                or [item for item in named if item.get("flavor") != "docker-backend"]
                or named
            )
            if not found:
                have = ", ".join(sorted({item["name"] for item in runtimes})) or "none"
                raise NpuError(
                    "%s is not on this host (found: %s)." % (name, have), "Install it, or name another runtime."
                )
        chosen += [item for item in found if item not in chosen]
    return chosen


def refusals(chosen: t.Sequence[Runtime]) -> list[str]:
    """Why the detection says that nothing may be written."""
    found = [item["refusal"] for item in chosen if item.get("refusal")]
    return ["%s. Next: %s." % (one["reason"].rstrip("."), one["next_step"].rstrip(".")) for one in found]


def wants_change(runtime: Runtime, spec_dirs: t.Sequence[str]) -> bool:
    """True when the files must be read: the detection names a change, or a directory is not effective."""
    if runtime["name"] not in PLANNERS or runtime.get("flavor") == "docker-backend":
        return False
    if runtime.get("changes"):
        return True
    cdi = runtime.get("cdi") or {}
    return cdi.get("state") in ("on", "on_by_default") and not covers(cdi.get("spec_dirs") or [], spec_dirs)


def paths_of(chosen: t.Sequence[Runtime]) -> list[str]:
    """Every file the edits of these runtimes read."""
    paths = [RECORD]
    for runtime in chosen:
        more = [containerd.DROPIN] if runtime["name"] == "containerd" and runtime.get("flavor") == "system" else []
        paths += [path for path in dict.fromkeys(_reads(runtime) + more) if path not in paths]
    return paths


def sources(answer: t.Mapping[str, t.Mapping[str, t.Any]], lenient: bool = False) -> dict[str, Source]:
    """Files as the writer has read them.

    NpuError for one that is there and cannot be read, unless `lenient`: then it is left out.
    """
    found: dict[str, Source] = {}
    for path, item in answer.items():
        if item["state"] == "value":
            found[path] = Source(path, base64.b64decode(item["content"]))
        elif item["state"] == "absent":
            found[path] = Source(path)
        elif not lenient:
            raise NpuError(
                "%s cannot be read: %s." % (path, item["detail"] or item["state"]), "Make it a file that root can read."
            )
    return found


def present(
    chosen: t.Sequence[Runtime],
    files: Files,
    missing_dirs: t.Mapping[str, t.Sequence[str]],
    spec_dirs: t.Sequence[str],
    backup: bool,
) -> WriteSet:
    """What to write so that CDI is on in every chosen runtime.

    The record goes first, so that no edit is ever without one.
    """
    result = WriteSet()
    record_source = files.get(RECORD) or Source(RECORD)
    record = read_record(record_source)
    for runtime in chosen:
        planner = PLANNERS.get(runtime["name"])
        if planner is None:
            continue
        edit = planner(runtime, files, spec_dirs)
        edit.flavor = runtime.get("flavor", "")
        if (
            not edit.files
            and not edit.warnings
            and any(change["path"] != JOURNAL for change in runtime.get("changes") or [])
        ):
            edit.restart = edit.flavor in GENERATED and runtime.get("process_stale") is not False
            if not edit.restart:
                edit.warnings.append("the detection names a change that its files no longer need: detect again")
        result.edits.append(edit)
        written = {item.path for item in edit.files}
        edit.warnings += [
            "%s is written by %s, which may undo the change: %s" % (owner["path"], owner["name"], owner["next_step"])
            for owner in runtime.get("owners") or []
            if owner["path"] in written
        ]
        for item in edit.files:
            add(record, runtime["name"], item, missing_dirs.get(item.path, []))
            result.files.append(_request(item, backup=backup))
            result.diffs.append(_diff(item))
        if edit.judge:
            result.judges.append(edit.judge)
    if result.files:
        result.files.insert(0, _record_request(record_source, record))
    return result


def with_proxies(
    chosen: t.Sequence[Runtime],
    files: Files,
    missing_dirs: t.Mapping[str, t.Sequence[str]],
    theirs: t.Mapping[str, t.Mapping[str, str]],
    wanted: t.Mapping[str, t.Any],
) -> WriteSet:
    """What to write so that every chosen runtime has the wanted proxies. `theirs`: {unit: variables of others}."""
    result = WriteSet()
    record_source = files.get(RECORD) or Source(RECORD)
    record = read_record(record_source)
    for runtime in chosen:
        edit = plan_proxies(runtime, files, theirs[unit_of(runtime)], wanted)
        result.edits.append(edit)
        for item in edit.files:
            add(record, runtime["name"], item, missing_dirs.get(item.path, []))
            secret = own_files(unit_of(runtime))[1]
            mode = "0600" if item.path in (secret, secret + FORMER) else "0644"
            result.files.append({**_request(item, backup=False), "mode": mode})
            if not item.path.endswith(FORMER):
                result.diffs.append(_diff(item))
    if result.files:
        result.files.insert(0, _record_request(record_source, record))
    return result


def _kind(note: t.Mapping[str, t.Any]) -> str:
    return "proxies" if note["format"] == "unit" else "cdi"


def noted(
    record: dict[str, t.Any],
    detected: t.Mapping[str, t.Any],
    wanted: t.Sequence[str],
    kinds: t.Sequence[str] = KINDS,
) -> list[Runtime]:
    """The wanted runtimes (`selected` means all) in the record; one that left the host by its name only."""
    names = dict.fromkeys(note["runtime"] for note in record["files"].values() if _kind(note) in kinds)
    chosen: list[Runtime] = []
    for name in names:
        if "selected" in wanted or name in wanted:
            found = [item for item in detected.get("runtimes") or [] if item["name"] == name]
            edited = [item for item in found if any(path in record["files"] for path in _reads(item))]
            chosen += (edited or [item for item in found if item.get("selected")] or found or [{"name": name}])[:1]
    return chosen


def _reads(runtime: Runtime) -> list[str]:
    target = (runtime.get("edit_target") or {}).get("path")
    return [path for path in [runtime.get("main_config"), target, *(runtime.get("config_files") or [])] if path]


def absent(
    chosen: t.Sequence[Runtime],
    files: Files,
    record: dict[str, t.Any],
    kinds: t.Sequence[str] = KINDS,
    only: t.Sequence[str] | None = None,
) -> WriteSet:
    """What to write to take our changes out of these runtimes' files; the record loses their entries and goes last.

    With `only`, the files that one run wrote, what earlier runs changed in them stays.
    """
    result = WriteSet()
    for runtime in chosen:
        edit = RuntimeEdit(runtime["name"], flavor=runtime.get("flavor", ""))
        result.edits.append(edit)
        for path, note in list(record["files"].items()):
            if note["runtime"] != edit.name or _kind(note) not in kinds or (only is not None and path not in only):
                continue
            found, made = source(files, path), note.get("created_dirs") or []
            # The former text itself is needed no longer.
            if only is None or path.endswith(FORMER):
                item = undo(found, note, edit.warnings)
                note["groups"] = []
            else:
                item = undo_last(found, note, source(files, path + FORMER), edit.warnings)
            if not note["groups"]:
                del record["files"][path]
            if item is not None:
                edit.files.append(item)
                drop_dirs = list(reversed(made)) if item.new is None else []
                result.files.append(_request(item, backup=False, drop_backup=True, drop_dirs=drop_dirs))
                result.diffs.append(_diff(item))
        if edit.files and edit.name == "containerd" and "cdi" in kinds:
            judge = containerd.judge_removal(runtime, files, edit)
            if judge:
                result.judges.append(judge)
    if chosen:
        result.files.append(_record_request(files[RECORD], record))
    return result


def _record_request(found: Source, record: dict[str, t.Any]) -> dict[str, t.Any]:
    text = json.dumps(record, indent=1, sort_keys=True) + "\n" if record["files"] else None
    return {
        "path": RECORD,
        "content": base64.b64encode(text.encode("utf-8")).decode("ascii") if text else None,
        "old_sha256": found.sha256,
        "mode": "0600",
        "backup": False,
    }


def _request(
    item: FileEdit, backup: bool, drop_backup: bool = False, drop_dirs: t.Sequence[str] = ()
) -> dict[str, t.Any]:
    return {
        "path": item.path,
        "content": None if item.new is None else base64.b64encode(item.new).decode("ascii"),
        "old_sha256": item.source.sha256,
        "aside": item.aside or None,
        "backup": backup,
        "drop_backup": drop_backup,
        "drop_dirs": list(drop_dirs),
    }


def _diff(item: FileEdit) -> str:
    before = None if item.source.data is None else item.source.text
    return diff(item.path, before, None if item.new is None else item.new.decode("utf-8"))
