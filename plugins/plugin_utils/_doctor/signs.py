# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a look has shown and is not in order: the evidence from which the causes are found."""

from __future__ import annotations

import typing as t

from .._text.line import both_ends, line

# How sure a sign is: something is wrong, it may be, or a look could not tell.
WRONG, DOUBTFUL, UNKNOWN = "wrong", "doubtful", "unknown"
LEVELS = (WRONG, DOUBTFUL, UNKNOWN)
# Characters of what a look has said.
SAID = 600


class Sign(t.NamedTuple):
    """`code` is KIND:NAME, such as check:driver_loaded; `look` names what has looked, `said` what it says.

    `step` is the look's own next step, empty for none; `node` the node of the cluster that it is about; `values` what a
    command has to name, by the word in capitals.
    """

    code: str
    look: str
    said: str
    level: str = WRONG
    step: str = ""
    node: str = ""
    values: tuple[tuple[str, str], ...] = ()


def sign(code: str, look: str, said: t.Any, level: str = WRONG, step: str = "", node: str = "", **values: str) -> Sign:
    """A sign whose text is one short line without secrets: what a pod has logged may be in it."""
    named = tuple((name.upper(), value) for name, value in values.items() if value)
    return Sign(code, look, both_ends(said, SAID).rstrip("."), level, line(step, SAID), node, named)


def sign_of_error(code: str, look: str, error: t.Any, level: str = WRONG, node: str = "") -> Sign:
    """A sign from `WHAT. Next: do X.`"""
    what, _next, step = str(error).partition(" Next: ")
    return sign(code, look, what, level, step, node)


def read_sign(item: t.Sequence[t.Any]) -> Sign:
    """A sign out of what a task has registered, where its tuples are lists."""
    code, look, said, level, step, node, values = item
    return Sign(code, look, said, level, step, node, tuple((name, value) for name, value in values))
