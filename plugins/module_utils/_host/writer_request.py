# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests to the writer as plain data. Contents are base64, because they may not be UTF-8."""

from __future__ import annotations

import base64
import binascii
import typing as t

from .._base.model import NpuError
from .files import locate
from .host import ABSENT, TOO_LARGE, VALUE, Host
from .writer import FileChange, Writer, digest
from .writer_judge import FileJudge


def read_set(
    host: Host, state_dir: str, stem: str, paths: t.Sequence[str], check_mode: bool = False
) -> dict[str, t.Any]:
    """{changed, unfinished, restored, files: {path: {state, sha256, content (base64), missing_dirs, detail}}}.

    An interrupted run is finished or undone first, except in check mode.
    """
    writer = Writer(host, state_dir, stem)
    unfinished = writer.unfinished()
    restored: list[str] = []
    if unfinished and not check_mode:
        with writer.lock():
            restored = writer.recover()
    files = {path: _read(host, path) for path in paths}
    return {"changed": unfinished, "unfinished": unfinished, "restored": restored, "files": files}


def _read(host: Host, path: str) -> dict[str, t.Any]:
    found = host.read_bytes(path)
    answer: dict[str, t.Any] = {
        "state": found.state,
        "sha256": None,
        "content": None,
        "missing_dirs": [],
        "detail": found.detail,
    }
    if found.state == VALUE:
        answer["sha256"] = digest(found.value)
        answer["content"] = base64.b64encode(found.value).decode("ascii")
    elif found.state == TOO_LARGE:
        raise NpuError("%s: %s." % (path, found.detail), "Check that it is a configuration file.")
    elif found.state == ABSENT:
        _target, answer["missing_dirs"] = locate(host, path)
    return answer


def _bytes(text: str | None, name: str) -> bytes | None:
    if text is None:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise NpuError("%s: the content is not base64." % name, "Encode it with the b64encode filter.") from exc


def _change(raw: t.Mapping[str, t.Any]) -> FileChange:
    try:
        mode = int(raw.get("mode") or "0644", 8)
    except ValueError as exc:
        raise NpuError("%s: the mode %s is not octal." % (raw["path"], raw["mode"]), "Write it like '0644'.") from exc
    return FileChange(
        path=raw["path"],
        content=_bytes(raw.get("content"), raw["path"]),
        old_sha256=raw.get("old_sha256"),
        mode=mode,
        aside=raw.get("aside") or "",
        backup=raw.get("backup", True),
        drop_backup=raw.get("drop_backup", False),
        drop_dirs=tuple(raw.get("drop_dirs") or ()),
    )


def _judge(raw: t.Mapping[str, t.Any]) -> FileJudge:
    return FileJudge(
        program=raw["program"],
        before=tuple(raw.get("before") or ()),
        after=tuple(raw["after"]),
        allowed=tuple(raw.get("allowed") or ()),
        prefixes=tuple(raw.get("prefixes") or ()),
        expect=tuple(raw.get("expect") or ()),
        dumps=raw.get("dumps", True),
        root_directory=raw.get("root_directory") or "",
        root_content=_bytes(raw.get("root_content"), "the main file for the judgement") or b"",
    )


def write_set(
    host: Host,
    state_dir: str,
    stem: str,
    files: t.Sequence[t.Mapping[str, t.Any]],
    judges: t.Sequence[t.Mapping[str, t.Any]] = (),
    check_mode: bool = False,
) -> dict[str, t.Any]:
    """Write the set: {changed, judged, backups, restored}. Check mode only checks. NpuError: nothing was written."""
    changes = [_change(raw) for raw in files]
    writer = Writer(host, state_dir, stem)
    if check_mode:
        return {"changed": writer.check(changes), "judged": None, "backups": [], "restored": []}
    return writer.apply(changes, [_judge(judge) for judge in judges])
