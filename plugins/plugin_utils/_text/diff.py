# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Differences that can be shown: changed lines only, and no secret in them."""

from __future__ import annotations

import difflib
import re

MASK = "********"
_WORDS = (
    "pass(?:word|wd|phrase)?", "auth", "authorization", "bearer", "credentials?", "identity_?token", "token",
    "secret", "private[_-]?key",
    "(?:api|access|secret)[_-]?key",
)  # fmt: skip
_KEY = r"""["']?[\w.-]*(?:%s)["']?""" % "|".join(_WORDS)
_VALUE = r"""(?:\"{3}.*?(?:\"{3}|$)|'{3}.*?(?:'{3}|$)|"(?:[^"\\]|\\.)*"?|'[^']*'?|[^\s,\]}#"'\[{][^,\]}#]*)"""
_PAIR = re.compile(r"(?i)((?<![\w-])%s\s*[=:]\s*)(\[[^\]]*\]?|%s)" % (_KEY, _VALUE))
_BLOCK = re.compile(r"(?is)((?<![\w-])%s\s*[=:]\s*)(\"{3}.*?\"{3}|'{3}.*?'{3}|\[[^\]]*\]|\{[^}]*\})" % _KEY)
_URL = re.compile(r"(\w[\w+.-]*://)[^/\s\"']+@")


def mask(line: str) -> str:
    """`line` with the values of keys that name a secret, and credentials in URLs, replaced."""
    return _URL.sub(r"\1%s@" % MASK, _PAIR.sub(lambda found: found.group(1) + MASK, line))


def _mask_blocks(text: str) -> str:
    """`text` with multi-line secret values masked line by line: a line of a diff may come without its key."""

    def replace(found: re.Match[str]) -> str:
        value = found.group(2)
        if "\n" not in value:
            return found.group(0)
        return found.group(1) + "\n".join([MASK] * (value.count("\n") + 1))

    return _BLOCK.sub(replace, text)


def diff(path: str, before: str | None, after: str | None) -> str:
    """A unified diff without context lines, secrets masked; None stands for a file that is not there."""
    lines = difflib.unified_diff(
        _mask_blocks(before or "").splitlines(),
        _mask_blocks(after or "").splitlines(),
        path if before is not None else "/dev/null",
        path if after is not None else "/dev/null",
        n=0,
        lineterm="",
    )
    return "".join(mask(line) + "\n" for line in lines)
