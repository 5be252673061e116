# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text of nodes and pods as a part of one of our messages: it moves no cursor, fills no screen and tells no secret.

What a container has logged comes here by its status and its events.
"""

from __future__ import annotations

import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.mask import mask

from .._answers.text import clean

LONGEST = 900


def line(text: t.Any, longest: int = LONGEST) -> str:
    """`text`, clean and without secrets, on one line of at most `longest` characters."""
    # Lines are still lines for the mask: some secrets have several.
    told = " ".join(mask(clean(str(text)[: 4 * longest], True)).split())
    return told if len(told) <= longest else told[: longest - 3] + "..."


def both_ends(text: t.Any, longest: int = LONGEST) -> str:
    """`text` as `line` has it; of a longer one the middle is left out, as a chain of errors ends with its first."""
    told = line(text, 16 * longest)
    if len(told) <= longest:
        return told
    head = (longest - 5) // 2
    return "%s ... %s" % (told[:head], told[head + 5 - longest :])
