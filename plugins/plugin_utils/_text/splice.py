# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text that is changed by splices only: all other bytes stay, and each splice can be taken back."""

from __future__ import annotations

import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

BOM = "\ufeff"


def decode(data: bytes, name: str) -> str:
    """UTF-8 text of a file, a byte order mark kept as its first character. NpuError names file, line and column."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        column = exc.start - (data.rfind(b"\n", 0, exc.start) + 1) + 1
        raise NpuError(
            "%s: line %d, column %d: not UTF-8 text." % (name, line, column),
            "Repair the file; it was not changed.",
        ) from exc


def line_column(text: str, offset: int) -> tuple[int, int]:
    """Line and column of a character offset, both from 1; a byte order mark does not count."""
    before = text[:offset]
    line_start = before.rfind("\n") + 1
    column = offset - line_start + 1
    if line_start == 0 and text.startswith(BOM) and offset > 0:
        column -= 1
    return before.count("\n") + 1, column


def newline_of(text: str) -> str:
    """The line end most lines have; LF when there is none."""
    crlf = text.count("\r\n")
    return "\r\n" if crlf > text.count("\n") - crlf else "\n"


class Buffer:
    """A text and the splices made to it: each is [offset at that time, removed text, inserted text]."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.splices: list[list[t.Any]] = []

    def splice(self, start: int, end: int, new: str) -> None:
        old = self.text[start:end]
        if old == new:
            return
        self.text = self.text[:start] + new + self.text[end:]
        self.splices.append([start, old, new])


def reverse(text: str, splices: t.Sequence[t.Sequence[t.Any]]) -> str:
    """Take splices back, last first. ValueError when the text is not what they left."""
    for start, old, new in reversed(splices):
        if text[start : start + len(new)] != new:
            raise ValueError("the text changed between two edits")
        text = text[:start] + old + text[start + len(new) :]
    return text


def differences(before: t.Any, after: t.Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Paths whose value is not the same in both, types included; an empty table equals an absent one."""
    if isinstance(before, dict) or isinstance(after, dict):
        left = before if isinstance(before, dict) else None
        right = after if isinstance(after, dict) else None
        if (left is None and before is not None) or (right is None and after is not None):
            return [path]
        found: list[tuple[str, ...]] = []
        for key in list(left or {}) + [key for key in (right or {}) if key not in (left or {})]:
            found += differences((left or {}).get(key), (right or {}).get(key), path + (str(key),))
        return found
    return [] if type(before) is type(after) and before == after else [path]


def lookup(data: t.Any, path: t.Sequence[str]) -> t.Any:
    """The value at `path`, or None."""
    for part in path:
        if not isinstance(data, dict) or part not in data:
            return None
        data = data[part]
    return data


class Edit:
    """One file's text under edit, in a language that `load` reads: text and the file's name in, its data out.

    `changes` are what removal needs when the file was changed since: dicts {op: value|array|table|object,
    path, old, new}.
    """

    def __init__(self, text: str, name: str, load: t.Callable[[str, str], dict[str, t.Any]]) -> None:
        self.name = name
        self._load = load
        self.original = text
        self.before = load(text, name)
        self.buffer = Buffer(text)
        self.newline = newline_of(text)
        self.changes: list[dict[str, t.Any]] = []

    @property
    def text(self) -> str:
        return self.buffer.text

    @property
    def data(self) -> dict[str, t.Any]:
        return self._load(self.text, self.name)

    def refuse(self, what: str) -> NpuError:
        """The error for what cannot be edited."""
        raise NotImplementedError

    def prove(self, allowed: t.Sequence[tuple[str, ...]]) -> None:
        """Read the result again and compare: only values at `allowed` paths (or below) may differ.

        NpuError otherwise.
        """
        self.compare(self.before, self.data, allowed)

    def compare(self, before: dict[str, t.Any], after: dict[str, t.Any], allowed: t.Sequence[tuple[str, ...]]) -> None:
        """NpuError when values differ that are not at `allowed` paths or below."""
        for path in differences(before, after):
            if not any(path[: len(ok)] == ok for ok in allowed):
                raise self.refuse("the edit would also change %s" % ".".join(path))
