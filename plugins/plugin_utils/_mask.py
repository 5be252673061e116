# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Differences that can be shown: changed lines only, and no secret in them."""

from __future__ import annotations

import difflib
import re
import typing as t

MASK = "********"
_KEY = r"""["']?[\w.-]*(?:pass(?:word|wd|phrase)?|auth|authorization|identity_?token|token|secret|credentials?|private_?key|api_?key)["']?"""
_VALUE = r"""(?:\"{3}.*?(?:\"{3}|$)|'{3}.*?(?:'{3}|$)|"(?:[^"\\]|\\.)*"?|'[^']*'?|[^\s,\]}#"'\[{][^,\]}#]*)"""
_PAIR = re.compile(r"(?i)((?<![\w-])%s\s*[=:]\s*)(\[[^\]]*\]?|%s)" % (_KEY, _VALUE))
_URL = re.compile(r"(\w[\w+.-]*://)[^/@\s\"']+@")


def mask(line: str) -> str:
    """`line` with the values of keys that name a secret, and credentials in URLs, replaced."""
    return _URL.sub(r"\1%s@" % MASK, _PAIR.sub(lambda found: found.group(1) + MASK, line))


def diff(path: str, before: t.Optional[str], after: t.Optional[str]) -> str:
    """A unified diff without context lines, secrets masked; None stands for a file that is not there."""
    lines = difflib.unified_diff(
        (before or "").splitlines(),
        (after or "").splitlines(),
        path if before is not None else "/dev/null",
        path if after is not None else "/dev/null",
        n=0,
        lineterm="",
    )
    return "".join(mask(line) + "\n" for line in lines)
