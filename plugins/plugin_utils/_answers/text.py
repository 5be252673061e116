# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text of a host without what a terminal obeys or a reader does not see.

Removed are control characters (C0, DEL, C1), terminal escapes, marks that change the direction of text, separators of
lines and paragraphs, and halves of surrogate pairs.
"""

from __future__ import annotations

import re
import typing as t

# A terminal's commands, whole: what would be left of them is noise.
_COMMAND = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
# The same characters in JSON text, as they are and as \u escapes. A backslash that is escaped itself and pairs of
# surrogates are matched first, to be left alone.
_IN_JSON = re.compile(
    r"\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F].."
    r"|((?:\\u(?:00(?:0[0-8b-cB-Ce-fE-F]|1.|7[fF]|[89].)|061[cC]|200[b-fB-F]|202[89a-eA-E]|206.|[dD][89a-fA-F]..|"
    r"[fF][eE][fF][fF])|\\[bfr]"
    "|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff])"
    r"(?:\[[0-?]*[@-\[\]-~])?)"
)


def clean(text: str, lines: bool = False) -> str:
    """One line of printable text; with `lines` also line ends and tabs survive."""
    if text.isprintable():
        return text
    kept = _COMMAND.sub("", text.replace("\r\n", "\n"))
    return "".join(
        char if char.isprintable() or (lines and char in "\n\t") else " " if char.isspace() else "" for char in kept
    )


def clean_all(value: t.Any) -> t.Any:
    """Data with every text in it clean, its lines kept."""
    if isinstance(value, str):
        return clean(value, True)
    if isinstance(value, dict):
        return {clean_all(key): clean_all(item) for key, item in value.items()}
    return [clean_all(item) for item in value] if isinstance(value, (list, tuple)) else value


def clean_output(text: str) -> str:
    """The output of a command, which may be JSON, so that what is read from it is clean as well."""
    return _IN_JSON.sub(lambda found: found[0] if found[1] is None else "", text)
