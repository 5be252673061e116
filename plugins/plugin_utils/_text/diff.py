# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Differences that can be shown: changed lines only, and no secret in them."""

from __future__ import annotations

import difflib

from ansible_collections.rebellions.npu.plugins.module_utils._base.mask import mask


def diff(path: str, before: str | None, after: str | None) -> str:
    """A unified diff without context lines, secrets masked; None stands for a file that is not there."""
    lines = difflib.unified_diff(
        _lines(before or ""),
        _lines(after or ""),
        path if before is not None else "/dev/null",
        path if after is not None else "/dev/null",
        n=0,
        lineterm="",
    )
    return "".join(line.partition("\0")[0] + "\n" for line in lines)


def _lines(text: str) -> list[str]:
    """Each line as it is shown, NUL, and as it is: a secret that changes is a difference too."""
    whole = text.replace("\r\n", "\n").replace("\0", "")
    whole = whole[:-1] if whole.endswith("\n") else whole
    return ["%s\0%s" % pair for pair in zip(mask(whole).split("\n"), whole.split("\n"))] if text else []
