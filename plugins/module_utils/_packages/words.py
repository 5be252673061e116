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


# Why a source gives no lists, where it has answered.
_CAUSES = (
    (r"signature|NO_PUBKEY|is not signed|GPG (?:error|check)|OpenPGP", "Signature not accepted"),
    (r"certificate|SSL CA cert", "Certificate not accepted"),
    (r"checksum doesn't match|Hash Sum mismatch|unexpected size", "Lists damaged"),
    (r"Status code: 40[137]|\b40[137] +(?-i:[A-Z])", "Access refused"),
    (r"Status code: 404|\b404 +Not Found|No URLs in mirrorlist", "Not served there"),
)
_REASON = r"[^\n]*(?:\n(?:>>> |[ \t](?![^\n]*% \|))[^\n]*)*"
# A host or a folder may be named like a cause.
_ADDRESS = r"[a-z+]+://\S+"


def lost_sources(pattern: re.Pattern[str], text: str) -> dict[str, str]:
    """{source without lists: why, empty when it does not answer}, by an output.

    `pattern` finds the sources (one, or several with commas between them); the reason is in the rest of the line and
    the lines below it that belong to it.
    """
    found: dict[str, str] = {}
    for match in pattern.finditer(text):
        rest = re.match(_REASON, text[match.end() :])
        said = re.sub(_ADDRESS, "", rest.group()) if rest else ""
        why = next((words for cause, words in _CAUSES if re.search(cause, said, re.IGNORECASE)), "")
        for name in re.split(r",\s*", next(filter(None, match.groups()))):
            found[name] = found.get(name) or why
    return found


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
