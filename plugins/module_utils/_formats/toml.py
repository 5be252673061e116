# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read TOML 1.0 with tomllib, or with the reader below: Python before 3.11, all that hosts may have, has none."""

from __future__ import annotations

import datetime
import re
import typing as t

from .._base.regex import regex

try:
    import tomllib  # type: ignore[import-not-found]  # came with Python 3.11
except ImportError:
    tomllib = None

# Python takes quadratic time for the digits of a number.
NUMBER_LIMIT = 4096

_BARE = regex(r"[A-Za-z0-9_-]+")
_SPACE = regex(r"[ \t]*")
_NUMBER = regex(
    r"0x[0-9A-Fa-f](?:_?[0-9A-Fa-f])*|0o[0-7](?:_?[0-7])*|0b[01](?:_?[01])*"
    r"|[+-]?(?:0|[1-9](?:_?[0-9])*)(?:\.[0-9](?:_?[0-9])*)?(?:[eE][+-]?[0-9](?:_?[0-9])*)?"
)
_SPECIAL = regex(r"[+-]?(?:inf|nan)")
_TIME_TEXT = r"([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])(?:\.([0-9]{1,6})[0-9]*)?"
_TIME = regex(_TIME_TEXT)
_DATE = regex(
    r"([0-9]{4})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])(?:[Tt ]"
    + _TIME_TEXT
    + r"(?:([Zz])|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))?)?"
)
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "\\": "\\"}
_CONTROL = regex(r"[\x00-\x08\x0a-\x1f\x7f]")
_CONTROL_LINES = regex(r"[\x00-\x08\x0b-\x1f\x7f]")


class TomlError(ValueError):
    """Not TOML: what is wrong, in which line and column, both from 1."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__("%s (line %d, column %d)" % (message, line, column))
        self.message = message
        self.line = line
        self.column = column


def loads(text: str) -> dict[str, t.Any]:
    """The document as a dict. A leading byte order mark is not part of it. TomlError when it is not TOML."""
    text = text[1:] if text.startswith("\ufeff") else text
    try:
        return tomllib.loads(text) if tomllib is not None else read(text)
    except RecursionError as exc:
        raise TomlError("nested too deeply", 1, 1) from exc
    except TomlError:
        raise
    except ValueError as exc:
        match = re.search(r"^(.*) \(at (?:line ([0-9]+), column ([0-9]+)|end of document)\)$", str(exc), re.DOTALL)
        if match and match.group(2):
            raise TomlError(match.group(1), int(match.group(2)), int(match.group(3))) from exc
        lines = text.split("\n")
        raise TomlError(match.group(1) if match else str(exc), len(lines), len(lines[-1]) + 1) from exc


def read(text: str) -> dict[str, t.Any]:
    """The reader for Pythons without tomllib; same answers as it."""
    return _Reader(text.replace("\r\n", "\n")).document()


class _Table(t.Dict[str, t.Any]):
    """A table in the making: `defined` by a header, `closed` as inline value, or dotted under header `owner`."""

    defined = False
    closed = False
    owner: int | None = None


class _Tables(t.List[t.Any]):
    """An array of tables, as opposed to an array value."""


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.header = 0

    def fail(self, message: str, at: int | None = None) -> t.NoReturn:
        at = self.at if at is None else at
        raise TomlError(message, self.text.count("\n", 0, at) + 1, at - self.text.rfind("\n", 0, at))

    def peek(self, length: int = 1) -> str:
        return self.text[self.at : self.at + length]

    def take(self, word: str) -> bool:
        if self.text.startswith(word, self.at):
            self.at += len(word)
            return True
        return False

    def space(self) -> None:
        self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]

    def comment(self) -> None:
        if self.peek() == "#":
            end = self.text.find("\n", self.at)
            end = len(self.text) if end < 0 else end
            bad = _CONTROL.search(self.text, self.at, end)
            if bad:
                self.fail("Found invalid character %r" % bad.group(), bad.start())
            self.at = end

    def blank(self) -> None:
        """Skip spaces, comments and line ends, as between the items of an array."""
        while True:
            self.space()
            self.comment()
            if not self.take("\n"):
                return

    def document(self) -> dict[str, t.Any]:
        root = _Table()
        root.defined = True
        current = root
        while self.at < len(self.text):
            self.space()
            if self.peek() == "[":
                self.header += 1
                current = self.table_header(root)
            elif self.peek() not in ("", "\n", "#"):
                self.assign(current)
            self.space()
            self.comment()
            if self.at < len(self.text) and not self.take("\n"):
                self.fail("Expected newline or end of document after a statement")
        return {key: _plain(item) for key, item in root.items()}

    def table_header(self, root: _Table) -> _Table:
        start = self.at
        many = self.take("[[")
        if not many:
            self.take("[")
        self.space()
        names = self.key()
        self.space()
        if not self.take("]]" if many else "]"):
            self.fail("Expected ']%s' at the end of a table declaration" % ("]" if many else ""))
        table = root
        for name in names[:-1]:
            below = table.setdefault(name, _Table())
            if isinstance(below, _Tables):
                below = below[-1]
            if not isinstance(below, _Table) or below.closed:
                self.fail("Cannot declare a table below the value %r" % name, start)
            table = below
        last = names[-1]
        if many:
            tables = table.setdefault(last, _Tables())
            if not isinstance(tables, _Tables):
                self.fail("Cannot mutate immutable namespace %r" % last, start)
            added = _Table()
            added.defined = True
            tables.append(added)
            return added
        found = table.setdefault(last, _Table())
        if not isinstance(found, _Table) or found.closed or found.defined or found.owner is not None:
            self.fail("Cannot declare %r twice" % ".".join(names), start)
        found.defined = True
        return found

    def assign(self, current: _Table, inline: bool = False) -> None:
        start = self.at
        names = self.key()
        self.space()
        if not self.take("="):
            self.fail("Expected '=' after a key in a key/value pair")
        self.space()
        table = current
        mark = -1 if inline else self.header
        for name in names[:-1]:
            if name not in table:
                table[name] = _Table()
                table[name].owner = mark
            below = table[name]
            if (
                not isinstance(below, _Table)
                or below.closed
                or below.defined
                or (below.owner is not None and below.owner != mark)
            ):
                self.fail("Cannot redefine namespace %r" % name, start)
            below.owner = mark
            table = below
        if names[-1] in table:
            self.fail("Cannot overwrite a value", start)
        table[names[-1]] = self.value()

    def key(self) -> list[str]:
        names = []
        while True:
            self.space()
            char = self.peek()
            if char == '"' and self.peek(3) != '"""':
                names.append(self.basic())
            elif char == "'" and self.peek(3) != "'''":
                names.append(self.literal())
            else:
                match = _BARE.match(self.text, self.at)
                if not match:
                    self.fail("Invalid initial character for a key part")
                names.append(match.group())
                self.at = match.end()
            self.space()
            if not self.take("."):
                return names

    def value(self) -> t.Any:
        char = self.peek()
        if char == '"':
            return self.long_string('"') if self.peek(3) == '"""' else self.basic()
        if char == "'":
            return self.long_string("'") if self.peek(3) == "'''" else self.literal()
        if char == "[":
            return self.array()
        if char == "{":
            return self.inline_table()
        if self.take("true"):
            return True
        if self.take("false"):
            return False
        match = _DATE.match(self.text, self.at)
        if match:
            return self.date(match)
        match = _TIME.match(self.text, self.at)
        if match:
            self.at = match.end()
            return datetime.time(
                int(match.group(1)), int(match.group(2)), int(match.group(3)), _microseconds(match.group(4))
            )
        match = _NUMBER.match(self.text, self.at)
        if match:
            self.at = match.end()
            digits = match.group().replace("_", "")
            if len(digits) > NUMBER_LIMIT:
                self.fail("A number has more than %d digits" % NUMBER_LIMIT, match.start())
            if digits[:2] in ("0x", "0o", "0b"):
                return int(digits, 0)
            return float(digits) if re.search(r"[.eE]", digits) else int(digits)
        match = _SPECIAL.match(self.text, self.at)
        if match:
            self.at = match.end()
            return float(match.group())
        return self.fail("Invalid value")

    def date(self, match: re.Match[str]) -> t.Any:
        year, month, day = (int(match.group(number)) for number in (1, 2, 3))
        try:
            if match.group(4) is None:
                found: t.Any = datetime.date(year, month, day)
            else:
                zone = None
                if match.group(8):
                    zone = datetime.timezone.utc
                elif match.group(9):
                    shift = datetime.timedelta(hours=int(match.group(10)), minutes=int(match.group(11)))
                    zone = datetime.timezone(shift if match.group(9) == "+" else -shift)
                hour, minute, second = (int(match.group(number)) for number in (4, 5, 6))
                found = datetime.datetime(year, month, day, hour, minute, second, _microseconds(match.group(7)), zone)
        except ValueError:
            self.fail("Invalid date or datetime")
        self.at = match.end()
        return found

    def basic(self) -> str:
        self.at += 1
        parts: list[str] = []
        while True:
            char = self.peek()
            if char == "":
                self.fail("Unterminated string")
            if char == '"':
                self.at += 1
                return "".join(parts)
            if char == "\\":
                parts.append(self.escape())
                continue
            if _CONTROL.match(char):
                self.fail("Illegal character %r" % char)
            parts.append(char)
            self.at += 1

    def literal(self) -> str:
        start = self.at + 1
        end = self.text.find("'", start)
        line = self.text.find("\n", start, len(self.text) if end < 0 else end)
        bad = _CONTROL.search(self.text, start, len(self.text) if end < 0 else end)
        if bad:
            self.fail("Found invalid character %r" % bad.group(), bad.start())
        if end < 0 or 0 <= line < end:
            self.fail("Unterminated string", len(self.text))
        self.at = end + 1
        return self.text[start:end]

    def long_string(self, quote: str) -> str:
        self.at += 3
        self.take("\n")
        parts: list[str] = []
        while True:
            char = self.peek()
            if char == "":
                self.fail("Expected '%s'" % (quote * 3))
            if self.peek(3) == quote * 3:
                run = len(self.text[self.at : self.at + 5]) - len(self.text[self.at : self.at + 5].lstrip(quote))
                self.at += run
                parts.append(quote * (run - 3))
                return "".join(parts)
            if char == "\\" and quote == '"':
                gap = re.compile(r"\\[ \t]*\n[ \t\n]*").match(self.text, self.at)
                if gap:
                    self.at = gap.end()
                else:
                    parts.append(self.escape())
                continue
            if _CONTROL_LINES.match(char):
                self.fail("Illegal character %r" % char)
            parts.append(char)
            self.at += 1

    def escape(self) -> str:
        char = self.text[self.at + 1 : self.at + 2]
        if char in _ESCAPES:
            self.at += 2
            return _ESCAPES[char]
        width = {"u": 4, "U": 8}.get(char)
        digits = self.text[self.at + 2 : self.at + 2 + (width or 0)]
        if width and re.match(r"^[0-9A-Fa-f]{%d}$" % width, digits):
            number = int(digits, 16)
            if number <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF:
                self.at += 2 + width
                return chr(number)
            self.fail("Escaped character is not a Unicode scalar value")
        return self.fail("Unescaped '\\' in a string")

    def array(self) -> list[t.Any]:
        self.at += 1
        found: list[t.Any] = []
        self.blank()
        while not self.take("]"):
            found.append(self.value())
            self.blank()
            if self.take(","):
                self.blank()
            elif self.peek() != "]":
                self.fail("Unclosed array")
        return found

    def inline_table(self) -> _Table:
        self.at += 1
        table = _Table()
        self.space()
        if not self.take("}"):
            while True:
                self.space()
                self.assign(table, inline=True)
                self.space()
                if self.take("}"):
                    break
                if not self.take(","):
                    self.fail("Unclosed inline table")
        _close(table)
        return table


def _close(table: _Table) -> None:
    table.closed = True
    for value in table.values():
        if isinstance(value, _Table):
            _close(value)


def _microseconds(digits: str | None) -> int:
    return int((digits or "0").ljust(6, "0"))


def _plain(value: t.Any) -> t.Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
