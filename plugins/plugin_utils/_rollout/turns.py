# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the act plan has cut for each host, as text: one line for each, so that a process parses that of its host alone.

A line is the host and its turn, ["host", {...}] in JSON, which has no line break inside.
"""

from __future__ import annotations

import json
import typing as t

from .pods import cannot_drain, listed
from .table import Pods

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


def foretold(turn: t.Mapping[str, t.Any]) -> Data:
    """What the leave of a host would do, from its turn in check mode. NpuError where its node could not be drained.

    `leaving` are the uids of the pods that would be gone before the host is changed.
    """
    node = turn["node"]
    if turn["left"]:
        return {"changed": False, "goes": False, "leaving": [], "msg": "%s would be left as it is." % node}
    pods = Pods(**turn.get("pods") or {})
    if pods.refused:
        raise cannot_drain(node, pods.refused, pods.steps)
    told = ["%s would be taken out of service." % node]
    told += ["Of its pods the run %s." % pods.text] if pods.text else []
    told += ["No disruption is allowed now by %s." % listed(pods.budgets)] if pods.budgets else []
    return {"changed": True, "goes": True, "leaving": list(pods.leaving), "msg": " ".join(told)}
