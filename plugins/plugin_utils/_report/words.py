# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Times and texts of others, as a report has them. Pure."""

from __future__ import annotations

import datetime
import typing as t

from .._rollout.states import stamp
from .._text.line import line

# Characters of a text, and of a message whose next step is its end.
LONGEST, MESSAGE = 600, 6000
# Characters of the name of a host.
NAME = 255


def when(seconds: float | None) -> str:
    """A stamp of seconds since the epoch; empty for none."""
    return "" if seconds is None else stamp(datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc))


def text(told: t.Any) -> str:
    """A text of somebody else for the report: one line, without secrets."""
    return line(told, LONGEST)


def parted(told: str) -> tuple[str, str]:
    """(what is wrong, what to do) of a message of ours."""
    # Newer ansible-core says so before what a connection has said.
    whole_text = line(told, MESSAGE).removeprefix("Task failed: ")
    what, _next, step = whole_text.partition(" Next: ")
    return line(what, LONGEST), line(step, LONGEST)


def shown(names: t.Iterable[str]) -> dict[str, str]:
    """{host: its name in a report}: on one line, without what a terminal obeys, and of no other host."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in sorted(names):
        told, number = line(name, NAME) or "a host without a name", 1
        while told in taken:
            number += 1
            told = f"{line(name, NAME - 10)} ({number})"
        found[name] = told
        taken.add(told)
    return found
