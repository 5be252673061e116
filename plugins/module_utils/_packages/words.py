# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Output of a package manager for messages: the last lines without passwords, and the holder of its lock."""

from __future__ import annotations

import re

from .._base.mask import mask

TAIL_LINES = 12
MASKED_LINES = 500

_PROGRESS = re.compile(
    r"^(\(Reading database|Reading (package lists|state information)|Building dependency tree|Solving dependencies|"
    r"debconf: delaying|(Get|Ign|Hit):[0-9]+ |"
    r"Selecting previously unselected|Preparing to unpack|Need to get|After this operation|Last metadata expiration|"
    r"Updating and loading|Repositories loaded|"
    r"Some packages could not be installed|requested an impossible|distribution that some|or been moved out|"
    r"The following information may help)"
)
LOCK_PATTERNS = (
    re.compile(r"held by process ([0-9]+)(?: \(([^)]*)\))?"),
    re.compile(r"locked by (?:another|\S+) process with pid ([0-9]+)"),
    re.compile(r"(?:process|application) with (?:pid|PID) ([0-9]+)(?: is: (\S+))?"),
)


def last_lines(text: str, number: int = TAIL_LINES) -> str:
    """The last lines, masked, without progress lines."""
    lines = [line.rstrip() for line in re.split(r"[\r\n]+", text) if line.strip() and not _PROGRESS.match(line)]
    # Masked before it is cut: a private key is known by its first line.
    return "\n".join(mask("\n".join(lines[-MASKED_LINES:])).split("\n")[-number:])


def lock_holder(text: str) -> tuple[str, str]:
    """(PID, program) from messages of apt, dpkg or dnf about a held lock; either may be empty."""
    for pattern in LOCK_PATTERNS:
        match = pattern.search(text)
        if match:
            return match.group(1), (match.group(2) or "") if pattern.groups > 1 else ""
    return "", ""
