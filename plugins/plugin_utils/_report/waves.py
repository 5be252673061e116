# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts of a rollout in their order, each with what has become of it. Pure."""

from __future__ import annotations

import typing as t

from .._plan.words import natural
from .._rollout.turns import all_of
from .._text.line import line
from .document import Host, Turn
from .run import HostLog, Run
from .words import LONGEST, NAME, text, when

WAITS = "A reboot is due. Next: Reboot it, and run again."
NEVER = "The run ended before its turn. Next: Run again."


def waves(run: Run, hosts: t.Sequence[Host], names: t.Mapping[str, str]) -> list[Turn]:
    """The hosts of the rollout in their order; `names` are of shown()."""
    try:
        turns = all_of(str(run.cut.get("turns") or ""))
    except (ValueError, TypeError):
        return []
    # Where hosts do not wait for each other there is no order.
    order = [name for name in str(run.cut.get("order") or "").split(",") if name in turns]
    entries = {one["name"]: one for one in hosts}
    return [
        _turn(name, names.get(name, name), turns[name], run, entries.get(names.get(name, name)))
        for name in dict.fromkeys([*order, *sorted(turns, key=natural)])
    ]


def _turn(name: str, told: str, cut: t.Mapping[str, t.Any], run: Run, host: Host | None) -> Turn:
    one = run.hosts.get(name) or HostLog()
    state, reason = _way(one, cut, run, host)
    gone = bool(one.left.get("goes")) and not run.foretells
    ended = one.back_at if gone and state != "under way" else None
    return {
        "cluster": line(one.cluster, LONGEST),
        "pool": line(cut.get("pool") or "", LONGEST),
        "wave": int(cut.get("wave") or 0),
        "host": line(told, NAME),
        "node": line(cut.get("node") or "", 255),
        "state": state,
        "began": when(one.left_at) if gone else "",
        "ended": when(ended),
        "seconds": round(ended - one.left_at, 1) if ended and one.left_at else None,
        "reason": text(reason),
    }


def _way(one: HostLog, cut: t.Mapping[str, t.Any], run: Run, host: Host | None) -> tuple[str, str]:
    """(state, why) of a turn."""
    if run.foretells:
        return "planned", str(cut.get("left") or cut.get("refused") or "")
    if not one.left:
        return "left", str(cut.get("refused") or NEVER)
    if not one.left.get("goes"):
        told = (one.left.get("failure") or {}).get("msg") or one.left.get("msg")
        return ("failed" if one.left.get("failure") else "left"), str(told or NEVER)
    if host is not None and host["failure"] is not None:
        return "failed", host["failure"]["cause"]
    if one.back_at is None:
        return "under way", "The run ended while it was out of service. Next: Run again."
    return ("reboot", WAITS) if one.reboot else ("done", "")
