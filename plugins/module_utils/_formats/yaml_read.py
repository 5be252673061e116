# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A reader for the part of YAML that specifications and configuration files are written in.

It takes block and flow collections, plain, quoted and block scalars, comments and document marks. Anchors, aliases,
tags, complex keys and several documents are refused by name. Plain scalars mean what they mean in YAML 1.1; dates
stay text. Written by hand, because hosts have only the standard library of Python 3.8, and that reads no YAML.
"""

from __future__ import annotations

import re
import typing as t

_BOOLEANS = {"yes": True, "no": False, "true": True, "false": False, "on": True, "off": False}
_INTEGER = re.compile(r"^[-+]?(0b[0-1_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)$")
_SEXAGESIMAL = re.compile(r"^[-+]?[1-9][0-9_]*(:[0-5]?[0-9])+$")
_SEXAGESIMAL_FLOAT = re.compile(r"^[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+\.[0-9_]*$")
_FLOAT = re.compile(
    r"^[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)([eE][-+][0-9]+)?$|^[-+]?\.(inf|Inf|INF)$|^\.(nan|NaN|NAN)$"
)
_ESCAPES = {
    "0": "\0", "a": "\a", "b": "\b", "t": "\t", "\t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "e": "\x1b",
    " ": " ",
    '"': '"', "/": "/", "\\": "\\", "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029",
}  # fmt: skip
_RESERVED = "@`%,]}&*!|>"
# Matched at a place in a line, never on the rest of a line: a copy for each place takes quadratic time on a long line.
_BLANKS = re.compile(r"[ \t]*")
_MARK = re.compile(r"(---|\.\.\.)(\s|$)")
_DASH = re.compile(r"-(\s|$)")
_COMPLEX_KEY = re.compile(r"\?(\s|$)")
_COLON = re.compile(r"\s*:(\s|$)")
_COMMENT = re.compile(r"\s+#")
_PLAIN = re.compile(r"(?!#)(?:[^\s#:]|:(?=\S)|(?<=\S)#| +(?![\s#]|:(?:\s|$)|$))+")
_PLAIN_IN_FLOW = re.compile(
    r"(?!#)(?:[^\s#:,\[\]{}]|:(?![\s,\[\]{}]|$)|(?<=\S)#| +(?![\s#,\[\]{}]|:(?:[\s,\[\]{}]|$)|$))+"
)
_LOW_SURROGATE = re.compile(r"\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_BLOCK_HEAD = re.compile(r"([|>])([-+]?)([1-9]?)([-+]?)[ ]*(?:(?<= )#.*)?$")
_HEX_ESCAPES = {"x": 2, "u": 4, "U": 8}
_DEPTH_LIMIT = 64
# Python takes quadratic time for the digits of a number.
_NUMBER_LIMIT = 4096


class YamlError(ValueError):
    """The text is not in the part of YAML that is read here; the message has the line."""


def load(text: str) -> t.Any:
    """The one document in `text`, None when there is none; YamlError names the line."""
    return _Reader(text.lstrip("\ufeff")).document()


def resolve(text: str) -> t.Any:
    """What a plain scalar means."""
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text.lower() in _BOOLEANS and text in (text.lower(), text.capitalize(), text.upper()):
        return _BOOLEANS[text.lower()]
    if len(text) > _NUMBER_LIMIT:
        if any(form.match(text) for form in (_INTEGER, _SEXAGESIMAL, _SEXAGESIMAL_FLOAT, _FLOAT)):
            raise YamlError("a number has more than %d digits" % _NUMBER_LIMIT)
        return text
    if _INTEGER.match(text):
        digits = text.replace("_", "")
        sign = -1 if digits.startswith("-") else 1
        digits = digits.lstrip("+-")
        if digits.startswith("0b"):
            return sign * int(digits[2:] or "0", 2)
        if digits.startswith("0x"):
            return sign * int(digits[2:] or "0", 16)
        return sign * int(digits, 8 if digits.startswith("0") and len(digits) > 1 else 10)
    if _SEXAGESIMAL.match(text):
        total = 0
        for part in text.replace("_", "").lstrip("+-").split(":"):
            total = total * 60 + int(part)
        return -total if text.startswith("-") else total
    if _SEXAGESIMAL_FLOAT.match(text):
        number = 0.0
        for part in text.replace("_", "").lstrip("+-").split(":"):
            number = number * 60 + float(part)
        return -number if text.startswith("-") else number
    if _FLOAT.match(text):
        word = text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan")
        return float(word)
    return text


class _Reader:
    def __init__(self, text: str) -> None:
        for number, char in enumerate(text):
            if (ord(char) < 32 and char not in "\t\n\r") or char in "\x7f\ufffe\uffff":
                raise YamlError("line %d: a control character" % (text.count("\n", 0, number) + 1))
        self.lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self.row = 0
        self.column = 0
        self.depth = 0

    def fail(self, what: str) -> YamlError:
        return YamlError("line %d: %s" % (min(self.row, len(self.lines) - 1) + 1, what))

    @property
    def line(self) -> str:
        return self.lines[self.row] if self.row < len(self.lines) else ""

    def done(self) -> bool:
        return self.row >= len(self.lines)

    def skip(self) -> None:
        """Go to the next place that is neither blank nor comment; on a new line, before its indentation."""
        while not self.done():
            line, start = self.line, self.column
            end = _BLANKS.match(line, start).end()  # type: ignore[union-attr]
            comment = line[end : end + 1] == "#" and (start == 0 or end > start or line[start - 1] in " \t,[]{}")
            if end < len(line) and not comment:
                if start == 0 and "\t" in line[:end]:
                    raise self.fail("a tab in the indentation")
                self.column = end
                return
            self.row += 1
            self.column = 0

    def at_mark(self) -> bool:
        return self.column == 0 and _MARK.match(self.line) is not None

    def document(self) -> t.Any:
        self.skip()
        if self.column == 0 and self.line.startswith("%"):
            raise self.fail("directives are not read")
        if self.at_mark() and self.line.startswith("---"):
            self.column = 3
            self.skip()
        value = None
        if not self.done() and not self.at_mark():
            value = self.node(-1)
        self.skip()
        while not self.done() and self.at_mark() and self.line.startswith("..."):
            self.column = 3
            self.skip()
        if not self.done():
            raise self.fail("a second document" if self.at_mark() else "text that belongs to nothing before it")
        return value

    def node(self, parent: int) -> t.Any:
        """The node at the current place, which lies deeper than `parent`."""
        self.depth += 1
        if self.depth > _DEPTH_LIMIT:
            raise self.fail("nested too deeply")
        try:
            char = self.line[self.column]
            if char in "&*!":
                raise self.fail("anchors, aliases and tags are not read")
            if _COMPLEX_KEY.match(self.line, self.column):
                raise self.fail("complex keys are not read")
            if _DASH.match(self.line, self.column):
                return self.sequence(self.column)
            if char in "|>":
                return self.block_scalar(parent)
            if self.key_ahead():
                return self.mapping(self.column)
            if char in "[{":
                return self.flow_and_end()
            if char in "\"'":
                value = self.quoted()
                self.end_of_line()
                return value
            return self.plain_block(parent)
        finally:
            self.depth -= 1

    def key_ahead(self) -> bool:
        """True when an implicit key and its colon stand here on one line."""
        place = (self.row, self.column)
        try:
            self.scan_key()
            return _COLON.match(self.line, self.column) is not None and self.row == place[0]
        except YamlError:
            return False
        finally:
            self.row, self.column = place

    def scan_key(self) -> t.Any:
        char = self.line[self.column]
        if char in "\"'":
            return self.quoted()
        if char in "[{":
            return self.flow()
        match = _PLAIN.match(self.line, self.column)
        if match is None or char in _RESERVED:
            raise self.fail("a key was expected")
        self.column = match.end()
        return resolve(match.group())

    def mapping(self, indent: int) -> dict[str, t.Any]:
        result: dict[str, t.Any] = {}
        while True:
            if self.line[self.column] in "&*!" or _COMPLEX_KEY.match(self.line, self.column):
                raise self.fail("anchors, aliases, tags and complex keys are not read")
            if not self.key_ahead():
                raise self.fail("a key was expected")
            key = self.scan_key()
            if isinstance(key, (dict, list)):
                raise self.fail("a collection as a key is not read")
            if key == "<<":
                raise self.fail("merge keys are not read")
            if key in result:
                raise self.fail("the key %r stands twice" % (key,))
            self.column = self.line.index(":", self.column) + 1
            row = self.row
            self.skip()
            value = None
            if not self.done() and not self.at_mark():
                if self.row == row:
                    if self.key_ahead() and self.line[self.column] not in "[{" or _DASH.match(self.line, self.column):
                        raise self.fail("a collection may not begin on the line of its key")
                    value = self.node(indent)
                elif self.column > indent or (self.column == indent and _DASH.match(self.line, self.column)):
                    value = self.node(indent)
            result[key] = value
            self.skip()
            if self.done() or self.at_mark() or self.column < indent:
                return result
            if self.column > indent:
                raise self.fail("the indentation does not fit")
            if _DASH.match(self.line, self.column):
                return result

    def sequence(self, indent: int) -> list[t.Any]:
        result: list[t.Any] = []
        while True:
            self.column += 1
            row = self.row
            self.skip()
            if self.done() or self.at_mark() or (self.row != row and self.column <= indent):
                result.append(None)
            else:
                result.append(self.node(indent))
            self.skip()
            if self.done() or self.at_mark() or self.column < indent:
                return result
            if self.column > indent:
                raise self.fail("the indentation does not fit")
            if not _DASH.match(self.line, self.column):
                return result

    def end_of_line(self) -> None:
        if self.line[self.column :].strip() and not _COMMENT.match(self.line, self.column):
            raise self.fail("text after the value")
        self.row += 1
        self.column = 0

    def flow_and_end(self) -> t.Any:
        value = self.flow()
        self.end_of_line()
        return value

    def flow(self) -> t.Any:
        self.depth += 1
        if self.depth > _DEPTH_LIMIT:
            raise self.fail("nested too deeply")
        try:
            if self.line[self.column] == "[":
                return self.flow_sequence()
            return self.flow_mapping()
        finally:
            self.depth -= 1

    def flow_place(self) -> str:
        self.skip()
        if self.done() or self.at_mark():
            raise self.fail("a bracket is not closed")
        return self.line[self.column]

    def flow_sequence(self) -> list[t.Any]:
        result: list[t.Any] = []
        self.column += 1
        while self.flow_place() != "]":
            value = self.flow_node()
            if self.flow_place() == ":":
                if isinstance(value, (dict, list)):
                    raise self.fail("a collection as a key is not read")
                self.column += 1
                value = {value: self.flow_value("]")}
            result.append(value)
            if self.flow_place() == ",":
                self.column += 1
            elif self.line[self.column] != "]":
                raise self.fail("a comma was expected")
        self.column += 1
        return result

    def flow_mapping(self) -> dict[str, t.Any]:
        result: dict[str, t.Any] = {}
        self.column += 1
        while self.flow_place() != "}":
            key = self.flow_node()
            if isinstance(key, (dict, list)):
                raise self.fail("a collection as a key is not read")
            if key in result:
                raise self.fail("the key %r stands twice" % (key,))
            value = None
            if self.flow_place() == ":":
                self.column += 1
                value = self.flow_value("}")
            result[key] = value
            if self.flow_place() == ",":
                self.column += 1
            elif self.line[self.column] != "}":
                raise self.fail("a comma was expected")
        self.column += 1
        return result

    def flow_value(self, closing: str) -> t.Any:
        return None if self.flow_place() in "," + closing else self.flow_node()

    def flow_node(self) -> t.Any:
        char = self.flow_place()
        if char in "&*!":
            raise self.fail("anchors, aliases and tags are not read")
        if char in "[{":
            return self.flow()
        if char in "\"'":
            return self.quoted()
        if char in ",]}":
            raise self.fail("a value was expected")
        words: list[str] = []
        row = self.row
        while True:
            match = _PLAIN_IN_FLOW.match(self.line, self.column)
            if match is None:
                break
            if words and self.row > row + 1:
                raise self.fail("an empty line or comment inside a value")
            words.append(match.group())
            self.column = match.end()
            row = self.row
            self.flow_place()
        if not words:
            raise self.fail("a value was expected")
        if words[0][0] in _RESERVED + "?":
            raise self.fail("a value may not begin with %s" % words[0][0])
        return resolve(" ".join(words))

    def quoted(self) -> str:
        """A quoted scalar; line breaks inside it fold."""
        mark = self.line[self.column]
        start = self.row
        self.column += 1
        parts: list[str] = []
        while True:
            line = self.line
            if self.column >= len(line):
                self.fold(parts, start)
                continue
            char = line[self.column]
            if char == mark:
                if mark == "'" and line[self.column + 1 : self.column + 2] == "'":
                    parts.append("'")
                    self.column += 2
                    continue
                self.column += 1
                return "".join(parts)
            if char == "\\" and mark == '"':
                self.escape(parts, start)
                continue
            parts.append(char)
            self.column += 1

    def fold(self, parts: list[str], start: int, escaped: bool = False) -> None:
        while parts and parts[-1] in (" ", "\t") and not escaped:
            parts.pop()
        breaks = 0
        while True:
            self.row += 1
            breaks += 1
            if self.done() or _MARK.match(self.line):
                self.row = start
                raise self.fail("a quote is not closed")
            if self.line.strip():
                break
        self.column = len(self.line) - len(self.line.lstrip(" \t"))
        parts.append("\n" * (breaks - 1) if breaks > 1 else "" if escaped else " ")

    def escape(self, parts: list[str], start: int) -> None:
        code = self.line[self.column + 1 : self.column + 2]
        if not code:
            self.column = len(self.line)
            self.fold(parts, start, escaped=True)
            return
        self.column += 2
        if code in _HEX_ESCAPES:
            digits = self.line[self.column : self.column + _HEX_ESCAPES[code]]
            if not re.match(r"^[0-9a-fA-F]{%d}$" % _HEX_ESCAPES[code], digits) or int(digits, 16) > 0x10FFFF:
                raise self.fail("the escape \\%s%s is not complete" % (code, digits))
            self.column += len(digits)
            value = int(digits, 16)
            follow = _LOW_SURROGATE.match(self.line, self.column)
            if 0xD800 <= value < 0xDC00 and follow:
                self.column += 6
                value = 0x10000 + ((value - 0xD800) << 10) + int(follow.group(1), 16) - 0xDC00
            parts.append(chr(value))
        elif code in _ESCAPES:
            parts.append(_ESCAPES[code])
        else:
            raise self.fail("the escape \\%s is not known" % code)

    def plain_block(self, parent: int) -> t.Any:
        """A plain scalar in block context, with its continuation lines."""
        if self.line[self.column] in _RESERVED:
            raise self.fail("a value may not begin with %s" % self.line[self.column])
        parts: list[str] = []
        blanks = 0
        while True:
            match = _PLAIN.match(self.line, self.column)
            if match is None:
                raise self.fail("a value was expected")
            parts += ["" if not parts else "\n" * blanks if blanks else " ", match.group()]
            self.column = match.end()
            commented = self.line[self.column :].strip()
            self.end_of_line()
            if commented:
                break
            place, blanks = self.row, 0
            while not self.done() and not self.line.strip():
                self.row += 1
                blanks += 1
            indent = len(self.line) - len(self.line.lstrip(" "))
            if self.done() or self.at_mark() or indent <= parent or self.line.lstrip().startswith("#"):
                self.row = place
                break
            self.column = indent
            if self.key_ahead():
                raise self.fail("a key where the value before it goes on")
        return resolve("".join(parts))

    def block_scalar(self, parent: int) -> str:
        match = _BLOCK_HEAD.match(self.line, self.column)
        if match is None:
            raise self.fail("the head of a block scalar is not understood")
        folded, chomp = match.group(1) == ">", match.group(2) or match.group(4)
        self.row += 1
        self.column = 0
        indent = max(parent, 0) + int(match.group(3)) if match.group(3) else 0
        lines: list[str] = []
        first = self.row
        while not self.done():
            line = self.line
            depth = len(line) - len(line.lstrip(" "))
            if line.strip(" "):
                if not indent and any(len(one) > depth for one in self.lines[first : self.row]):
                    raise self.fail("an empty line above is indented more")
                indent = indent or depth
                if depth < indent or indent <= max(parent, 0):
                    break
            lines.append(line[indent:] if indent else "")
            self.row += 1
        body = list(lines)
        while body and not body[-1]:
            body.pop()
        tail = len(lines) - len(body)
        end = "\n"
        if self.done():
            end, tail = ("\n", tail - 1) if tail else ("", 0)
        text = _fold_block(body) if folded else "\n".join(body)
        if chomp == "-" or not body:
            return text + ("\n" * tail if chomp == "+" else "")
        return text + end + ("\n" * tail if chomp == "+" else "")


def _fold_block(lines: t.Sequence[str]) -> str:
    result: list[str] = []
    blanks = 0
    previous = ""
    for number, line in enumerate(lines):
        if not line:
            blanks += 1
            continue
        spaced = line[0] in " \t" or previous[:1] in (" ", "\t")
        if number and previous:
            result.append("\n" * (blanks + 1) if spaced else "\n" * blanks if blanks else " ")
        else:
            result.append("\n" * blanks)
        result.append(line)
        previous, blanks = line, 0
    return "".join(result)
