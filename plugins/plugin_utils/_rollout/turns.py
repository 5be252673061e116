# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the act plan has cut for each host, as text: one line for each, so that a process parses that of its host alone.

A line is the host and its turn, ["host", {...}] in JSON, which has no line break inside.
"""

from __future__ import annotations

import json
import typing as t

Data = dict[str, t.Any]


def written(turns: t.Mapping[str, t.Any]) -> str:
    """The text of {host: its turn}."""
    return "".join("%s\n" % json.dumps([host, turn]) for host, turn in turns.items())


def turn_of(text: str, host: str) -> Data:
    """The turn of one host; empty without one."""
    start = "[%s, " % json.dumps(host)
    at = 0 if text.startswith(start) else text.find("\n" + start) + 1
    if not text.startswith(start, at):
        return {}
    found: Data = json.loads(text[at : text.index("\n", at)])[1]
    return found


def all_of(text: str) -> dict[str, Data]:
    """{host: its turn} of all hosts."""
    return dict(map(json.loads, text.splitlines()))
