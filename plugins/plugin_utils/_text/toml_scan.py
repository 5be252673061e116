# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where things stand in TOML text: offsets of headers, keys and values. Meaning is tomlkit's, place is ours."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

Path = t.Tuple[str, ...]
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", "e": "\x1b", '"': '"', "\\": "\\"}


class ScanError(ValueError):
    """The text is not TOML as this scanner knows it; `offset` says where."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


@dataclass
class Entry:
    """A header (kind table or array) or a pair.

    `path` is the full path, `header` the path of the header it stands under. [start, end) is its whole lines, `name` where the key
    or bracket begins, [value, value_end) the value. `items` are the spans of an array's elements; `inline` marks a pair of an inline table.
    """

    kind: str
    path: Path
    header: Path
    start: int
    name: int
    value: int
    value_end: int
    end: int
    inline: bool = False
    items: list[tuple[int, int]] = field(default_factory=list)


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.entries: list[Entry] = []

    def scan(self) -> list[Entry]:
        text, size = self.text, len(self.text)
        at = 1 if text.startswith("\ufeff") else 0
        header: Path = ()
        while at < size:
            start = at
            at = self.blanks(at)
            if at >= size:
                break
            if text[at] in "#\r\n":
                at = self.line_end(at)
                continue
            name = at
            if text[at] == "[":
                array = text.startswith("[[", at)
                width = 2 if array else 1
                path, at = self.key(at + width)
                if not text.startswith("]" * width, at):
                    raise ScanError("unclosed table header", at)
                at += width
                header = path + ("[]",) if array else path
                end = self.rest(at)
                self.entries.append(Entry("array" if array else "table", header, header, start, name, name, at, end))
            else:
                path, at = self.key(at)
                if not text.startswith("=", at):
                    raise ScanError("expected =", at)
                at = self.blanks(at + 1)
                entry = Entry("pair", header + path, header, start, name, at, at, at)
                self.entries.append(entry)
                at = self.value(at, entry)
                entry.value_end = at
                end = entry.end = self.rest(at)
            at = end
        return self.entries

    def blanks(self, at: int) -> int:
        while at < len(self.text) and self.text[at] in " \t":
            at += 1
        return at

    def space(self, at: int) -> int:
        """Over blanks, line ends and comments, as between the elements of an array."""
        while at < len(self.text):
            if self.text[at] in " \t\r\n":
                at += 1
            elif self.text[at] == "#":
                at = self.line_end(at)
            else:
                break
        return at

    def line_end(self, at: int) -> int:
        found = self.text.find("\n", at)
        return len(self.text) if found < 0 else found + 1

    def rest(self, at: int) -> int:
        at = self.blanks(at)
        if at < len(self.text) and self.text[at] not in "#\r\n":
            raise ScanError("unexpected text after the value", at)
        return self.line_end(at)

    def key(self, at: int) -> tuple[Path, int]:
        parts: list[str] = []
        while True:
            at = self.blanks(at)
            if at >= len(self.text):
                raise ScanError("unfinished key", at)
            if self.text[at] in "\"'":
                end = self.string(at)
                parts.append(plain(self.text[at:end]))
                at = end
            else:
                end = at
                while end < len(self.text) and (self.text[end].isalnum() or self.text[end] in "_-"):
                    end += 1
                if end == at:
                    raise ScanError("expected a key", at)
                parts.append(self.text[at:end])
                at = end
            at = self.blanks(at)
            if not self.text.startswith(".", at):
                return tuple(parts), at
            at += 1

    def string(self, at: int) -> int:
        quote = self.text[at]
        if self.text.startswith(quote * 3, at):
            end = at + 3
            while True:
                end = self.text.find(quote * 3, end)
                if end < 0:
                    raise ScanError("unclosed string", at)
                if quote == '"' and self.odd_backslashes(end):
                    end += 1
                    continue
                end += 3
                while self.text.startswith(quote, end):
                    end += 1
                return end
        end = at + 1
        while end < len(self.text) and self.text[end] not in "\r\n":
            if self.text[end] == "\\" and quote == '"':
                end += 2
                continue
            if self.text[end] == quote:
                return end + 1
            end += 1
        raise ScanError("unclosed string", at)

    def odd_backslashes(self, at: int) -> bool:
        count = 0
        while self.text[at - 1 - count] == "\\":
            count += 1
        return count % 2 == 1

    def value(self, at: int, entry: Entry | None) -> int:
        if at >= len(self.text):
            raise ScanError("expected a value", at)
        first = self.text[at]
        if first in "\"'":
            return self.string(at)
        if first == "[":
            return self.array(at, entry)
        if first == "{":
            return self.inline(at, entry)
        end = at
        while end < len(self.text) and self.text[end] not in ",]}#\r\n":
            end += 1
        while end > at and self.text[end - 1] in " \t":
            end -= 1
        if end == at:
            raise ScanError("expected a value", at)
        return end

    def array(self, at: int, entry: Entry | None) -> int:
        at = self.space(at + 1)
        while not self.text.startswith("]", at):
            end = self.value(at, None)
            if entry is not None:
                entry.items.append((at, end))
            at = self.space(end)
            if self.text.startswith(",", at):
                at = self.space(at + 1)
            elif not self.text.startswith("]", at):
                raise ScanError("unclosed array", at)
        return at + 1

    def inline(self, at: int, entry: Entry | None) -> int:
        at = self.space(at + 1)
        while not self.text.startswith("}", at):
            name = at
            path, at = self.key(at)
            if not self.text.startswith("=", at):
                raise ScanError("expected =", at)
            at = self.blanks(at + 1)
            inner = None
            if entry is not None:
                inner = Entry("pair", entry.path + path, entry.header, name, name, at, at, at, inline=True)
                self.entries.append(inner)
            at = self.value(at, inner)
            if inner is not None:
                inner.value_end = inner.end = at
            at = self.space(at)
            if self.text.startswith(",", at):
                at = self.space(at + 1)
            elif not self.text.startswith("}", at):
                raise ScanError("unclosed inline table", at)
        return at + 1


def plain(raw: str) -> str:
    """The value of a one-line TOML string with its quotes."""
    if raw[0] == "'":
        return raw[1:-1]
    out, at, body = [], 0, raw[1:-1]
    while at < len(body):
        if body[at] != "\\":
            out.append(body[at])
            at += 1
            continue
        mark = body[at + 1]
        if mark in "uUx":
            width = {"u": 4, "U": 8, "x": 2}[mark]
            out.append(chr(int(body[at + 2 : at + 2 + width], 16)))
            at += 2 + width
        else:
            out.append(_ESCAPES.get(mark, mark))
            at += 2
    return "".join(out)


def scan(text: str) -> list[Entry]:
    """Every header and pair of `text` in its order. ScanError on what is not TOML."""
    return _Scanner(text).scan()
