# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""YAML written so that every parser agrees. Not by a library: hosts have only the standard library of Python 3.8."""

from __future__ import annotations

import json
import re
import typing as t

from .._base.regex import regex

_PLAIN_KEY = regex(r"^[A-Za-z_][A-Za-z0-9_]*\Z")
_SAFE = regex(r"^[ !#-\[\]-~]*\Z")
_RESERVED_KEYS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


def quote(text: str) -> str:
    """A string as a double-quoted scalar that JSON and YAML read alike."""
    if _SAFE.match(text):
        return '"' + text + '"'
    return "".join(
        "\\U%08x" % ord(char) if ord(char) > 0xFFFF else char for char in _escape(json.dumps(text, ensure_ascii=False))
    )


def _escape(text: str) -> str:
    return re.sub(r"[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]", lambda match: "\\u%04x" % ord(match.group()), text)


def _scalar(value: t.Any) -> str:
    if isinstance(value, str):
        return quote(value)
    if value is None or isinstance(value, (bool, int)):
        return json.dumps(value)
    if isinstance(value, (dict, list)):
        return "{}" if isinstance(value, dict) else "[]"
    raise TypeError("cannot write %s" % type(value).__name__)


def _key(key: str) -> str:
    return key if _PLAIN_KEY.match(key) and key.lower() not in _RESERVED_KEYS else quote(key)


def dump(value: t.Any) -> str:
    """Block style, two spaces, order kept, every string in double quotes. Maps have string keys."""
    lines: list[str] = []
    _write(value, 0, "", lines)
    return "\n".join(lines) + "\n"


def _write(value: t.Any, indent: int, lead: str, lines: list[str]) -> None:
    """Write `value` at `indent`; `lead` is what already stands on the first line."""
    pad = " " * indent
    if isinstance(value, dict) and value:
        for key, item in value.items():
            head = (lead or pad) + _key(key) + ":"
            lead = ""
            if isinstance(item, (dict, list)) and item:
                lines.append(head)
                _write(item, indent + 2, "", lines)
            else:
                lines.append("%s %s" % (head, _scalar(item)))
    elif isinstance(value, list) and value:
        for item in value:
            _write(item, indent + 2, (lead or pad) + "- ", lines)
            lead = ""
    else:
        lines.append((lead or pad) + _scalar(value))
