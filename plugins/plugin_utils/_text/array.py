# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The text of a TOML array, changed item by item.

Done here because tomlkit writes new items into a comment behind the last one, and removes comments of the others.
"""

from __future__ import annotations

import re
import typing as t

_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|' + r"'''.*?'{3,5}" + r'|"(?:\\.|[^"\\\n])*"|' + r"'[^'\n]*'"
    r"|\#[^\n]*|[\[\]{},]|\s+|[^\s\"'\#\[\]{},]+",
    re.DOTALL,
)
_TO_COMMA = re.compile(r"(?:[ \t\r\n]|#[^\n]*\n)*,")
Span = t.Tuple[int, int]


def items(text: str) -> list[Span]:
    """[start, end) of every item in the text of an array."""
    found: list[Span] = []
    depth, fresh = 0, True
    for token in _TOKEN.finditer(text, 1, len(text) - 1):
        word = token.group()
        if word.isspace() or word.startswith("#"):
            continue
        if word == "," and not depth:
            fresh = True
            continue
        depth += (word in ("[", "{")) - (word in ("]", "}"))
        if fresh:
            found.append(token.span())
            fresh = False
        else:
            found[-1] = (found[-1][0], token.end())
    return found


def _comma(text: str, at: int) -> int:
    """Where the comma behind the item that ends at `at` stands; -1 when there is none."""
    found = _TO_COMMA.match(text, at, len(text) - 1)
    return found.end() - 1 if found else -1


def _own_line(text: str, span: Span) -> Span | None:
    """[start, end) of the lines of an item that shares them with its comma and a comment only; None for any other."""
    start, end = text.rfind("\n", 0, span[0]) + 1, text.find("\n", span[1]) + 1
    if not start or not end or text[start : span[0]].strip(" \t"):
        return None
    if not re.fullmatch(r"[ \t]*,?[ \t\r\n]*(?:#.*)?", text[span[1] : end], re.DOTALL):
        return None
    return None if _comma(text, span[1]) >= end else (start, end)


def extended(text: str, added: t.Sequence[str], newline: str) -> str:
    """The array with the value texts `added` behind its last item, in its style."""
    found = items(text)
    if not found:
        last = text.rfind("\n") + 1
        if not last:
            return "[%s%s" % (", ".join(added), text[1:])
        pad = text[last:-1] + ("\t" if text[last:-1].endswith("\t") else "  ")
        return text[:last] + ("," + newline).join(pad + item for item in added) + newline + text[last:]
    start, end = found[-1]
    line, comma = _own_line(text, found[-1]), _comma(text, end)
    if line is None:
        at, join = (end, ", ") if comma < 0 else (comma + 1, " ")
        return text[:at] + join + ", ".join(added) + text[at:]
    head = text[:end] + ("," if comma < 0 else "") + text[end : line[1]]
    lines = ("," + newline).join(text[line[0] : start] + item for item in added)
    return head + lines + ("" if comma < 0 else ",") + newline + text[line[1] :]


def without(text: str, index: int) -> str:
    """The array without one item and its comma; a line of its own goes with the comment on it."""
    found = items(text)
    start, end = found[index]
    line, comma = _own_line(text, found[index]), _comma(text, end)
    if line is not None:
        return text[: line[0]] + text[line[1] :]
    if index + 1 < len(found) and "#" not in text[end : found[index + 1][0]]:
        return text[:start] + text[found[index + 1][0] :]
    if index and comma < 0 and "#" not in text[found[index - 1][1] : start]:
        return text[: found[index - 1][1]] + text[end:]
    if comma < 0:
        return text[:start] + text[end:]
    return text[:start] + text[end:comma] + text[comma + 1 :]
