# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Patterns that are compiled at their first use: most processes need only a few of those that they import."""

from __future__ import annotations

import re
import typing as t

__all__ = ["regex"]

if t.TYPE_CHECKING:
    from re import compile as regex
else:

    class regex:
        """As re.compile(), later."""

        def __init__(self, text: str | bytes, flags: int = 0) -> None:
            self._given = text, flags

        def __getattr__(self, name: str) -> t.Any:
            # Not called again for this name, which the object then has.
            found = getattr(re.compile(*self._given), name)
            setattr(self, name, found)
            return found
