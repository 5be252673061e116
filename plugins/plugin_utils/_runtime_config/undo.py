# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Take out exactly what was added.

An unchanged file gets its old bytes back; in a changed one only our keys go.

The record lies on the host as JSON: {schema: 1, files: {path: {runtime, format, aside, created_dirs, groups:
[{before, after, splices, changes}]}}}. Splices and changes hold nothing but our own text and the old values of our
own keys, so the record holds no secret.
"""

from __future__ import annotations

import json
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._host.writer import digest
from ansible_collections.rebellions.npu.plugins.module_utils._runtime.base import block_span

from .._text.json import JsonEdit
from .._text.splice import reverse
from .._text.toml import TomlEdit
from .edit import BASE, MANAGED, FileEdit, Source

RECORD = "/var/lib/rebellions-npu/runtime-config.json"


def read_record(found: Source) -> dict[str, t.Any]:
    """The record of a host; an empty one when there is none. NpuError when it cannot be read."""
    if found.data is None or not found.data.strip():
        return {"schema": 1, "files": {}}
    try:
        record: dict[str, t.Any] = json.loads(found.data.decode("utf-8"))
        if record["schema"] != 1 or not isinstance(record["files"], dict):
            raise ValueError("not schema 1")
    except (ValueError, KeyError, TypeError) as exc:
        raise NpuError(
            "%s: not a record of this collection (%s)." % (found.path, exc),
            "Restore it, or remove it and undo the changes by hand.",
        ) from exc
    return record


def add(record: dict[str, t.Any], runtime: str, edit: FileEdit, missing_dirs: t.Sequence[str]) -> None:
    """Note one edit."""
    note = record["files"].setdefault(
        edit.path,
        {
            "runtime": runtime,
            "format": edit.format,
            "aside": edit.aside,
            "created_dirs": list(missing_dirs),
            "groups": [],
        },
    )
    after = digest(edit.new or b"")
    note["groups"].append(
        {"before": edit.source.sha256, "after": after, "splices": edit.splices, "changes": edit.changes}
    )


def undo(found: Source, note: t.Mapping[str, t.Any], warnings: list[str]) -> FileEdit | None:
    """The edit that takes ours out of one file, or None when nothing of ours is there."""
    if found.data is None:
        return None
    if note["format"] == "unit":
        # A whole file of ours: what another program has written into it goes with it.
        return FileEdit(found, None, "unit")
    groups = list(note["groups"])
    text = found.text
    while groups:
        current = digest(text.encode("utf-8"))
        if groups[-1]["after"] == current:
            last = groups.pop()
            text = reverse(text, last["splices"])
            if last["before"] is None:
                return FileEdit(found, None, note["format"], aside=note.get("aside", ""))
        elif groups[-1]["before"] == current:
            groups.pop()
        else:
            break
    if groups:
        warnings.append("%s was changed by another program: only the keys that were added are removed" % found.path)
        for group in reversed(groups):
            text = _UNDO[note["format"]](text, found.path, group["changes"])
        if note["groups"][0]["before"] is None and _is_empty(text, note["format"]):
            return FileEdit(found, None, note["format"], aside=note.get("aside", ""))
    if text == found.text:
        return None
    return FileEdit(found, text.encode("utf-8"), note["format"], aside=note.get("aside", ""))


def undo_last(found: Source, note: t.Mapping[str, t.Any], former: Source, warnings: list[str]) -> FileEdit | None:
    """The edit that undoes the last change of one file alone; the note loses that change.

    `former` holds the text that the last change of a whole file of ours has replaced.
    """
    last = note["groups"].pop()
    if note["format"] != "unit" or last["before"] is None:
        return undo(found, {**note, "groups": [last]}, warnings)
    if former.data is None:
        warnings.append("%s is not there: %s stays as it is" % (former.path, found.path))
        return None
    return FileEdit(found, former.data, "unit")


def _is_empty(text: str, kind: str) -> bool:
    lines = [line.strip() for line in text.lstrip("\ufeff").splitlines()]
    left = [line for line in lines if line and line != MANAGED and line != BASE]
    if kind == "json":
        return "".join(left).replace(" ", "") in ("", "{}")
    return all(line.replace(" ", "").startswith("version=") for line in left)


def _undo_toml(text: str, name: str, changes: t.Sequence[t.Mapping[str, t.Any]]) -> str:
    """Undo by keys. A declared version stays, since later edits may need it; CRI is then disabled by its full name."""
    edit = TomlEdit(text, name)
    for change in reversed([change for change in changes if change["op"] != "table"]):
        path = tuple(change["path"])
        raw = edit.raw(path)
        if raw is None or change["new"] is None or path == ("version",):
            continue
        if change.get("removed"):
            full = isinstance(edit.data.get("version"), int) and edit.data["version"] > 1
            edit.extend(
                path, ["io.containerd.grpc.v1.cri" if item == "cri" and full else item for item in change["removed"]]
            )
        elif raw == change["new"]:
            if change["old"] is None:
                edit.delete(path)
            else:
                edit.set(path, change["old"])
        elif change.get("added"):
            edit.remove_items(path, frozenset(change["added"]).__contains__)
    for change in changes:
        if change["op"] == "table":
            edit.drop_empty_table(tuple(change["path"]))
    edit.prove([tuple(change["path"]) for change in changes])
    return edit.text


def _undo_json(text: str, name: str, changes: t.Sequence[t.Mapping[str, t.Any]]) -> str:
    edit = JsonEdit(text, name)
    for change in reversed([change for change in changes if change["op"] != "object"]):
        path, now = change["path"], edit.value(change["path"])
        if now is None:
            continue
        if now == json.dumps(json.loads(change["new"]), ensure_ascii=False):
            if change["old"] is None:
                edit.delete(path)
            else:
                edit.set(path, json.loads(change["old"]))
        elif change["op"] == "array" and now.startswith("["):
            edit.set(path, [item for item in json.loads(now) if item not in change["added"]])
    for change in changes:
        if change["op"] == "object" and edit.value(change["path"]) == "{}":
            edit.delete(change["path"])
    edit.prove([tuple(change["path"]) for change in changes])
    return edit.text


def _undo_template(text: str, name: str, changes: t.Sequence[t.Mapping[str, t.Any]]) -> str:
    start, stop = block_span(text)
    if start < 0:
        return text
    for mark in ("\r\n", "\n"):
        if text.startswith(mark, stop):
            stop += len(mark)
            break
    before = text[:start]
    for mark in ("\r\n", "\n"):
        if before.endswith(mark * 2):
            before = before[: -len(mark)]
            break
    return before + text[stop:]


_UNDO = {"toml": _undo_toml, "json": _undo_json, "template": _undo_template}
