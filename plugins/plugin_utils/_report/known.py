# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of what is known of hosts without asking one: cached facts, and what earlier reports have. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._answers.answer import PREFIX, RUN, checked_facts
from . import document as doc
from .build import About, host_entry, judge, whole
from .document import Document, Host, Made
from .look import OBSERVED, look
from .run import HostLog
from .words import shown, text, when

NOTHING = "No facts of it are cached, and no earlier report has seen it."
PART = "The facts of it that are cached are not whole."
STEP = f"Run the playbook discover with a fact cache, or with the callback {PREFIX}_report."

Data = t.Mapping[str, t.Any]


def known(
    facts: t.Mapping[str, Data], looks: t.Mapping[str, Host], last: Document | None, about: About, now: float
) -> Document:
    """The report of the hosts in `facts`, which are {host: what is cached of it, maybe nothing}.

    `looks` are the hosts as earlier reports have seen them, `last` the newest of these.
    """
    names = shown(facts)
    hosts = [_host(names[name], cached, looks.get(name), last) for name, cached in facts.items()]
    made: Made = {
        "at": when(now), "began": "", "seconds": None, "run": last["made"]["run"] if last else "", "by": about.by,
        "job": about.job, "playbook": about.playbook, "check": False, "limit": about.limit, "tags": [],
        "skip_tags": [], "ended": last["made"]["ended"] if last else doc.WHOLE, "source": doc.OF_CACHE,
        "version": about.version, "core": about.core,
    }  # fmt: skip
    notes = [*about.notes]
    if last:
        who = last["made"]["playbook"] or "a run"
        notes.append(f"Waves, clusters and timings are those of {who} at {last['made']['at']}.")
    empty: doc.Timings = {"plays": [], "roles": [], "tasks": []}
    return whole(
        made,
        hosts,
        [{**one, "drift": []} for one in last["clusters"]] if last else [],
        last["waves"] if last else [],
        last["timings"] if last else empty,
        notes,
    )


def _host(name: str, cached: Data, before: Host | None, last: Document | None) -> Host:
    if before is not None and _same_run(cached, last):
        return _again(before)
    one, why = HostLog(), NOTHING + " Next: " + STEP
    # Facts of others are no look.
    if PREFIX in cached:
        try:
            one.look = look(checked_facts(name, cached))
        except NpuError as exc:
            why = str(exc)
        except (AttributeError, KeyError, TypeError):
            why = f"{PART} Next: {STEP}"
    if not one.look.seen and before is not None:
        return _again(before)
    found = host_entry(name, one)
    found["state"], found["reason"] = judge(found, doc.OK) if one.look.seen else (doc.UNKNOWN, text(why))
    if before is not None:
        # The cluster, and what was wanted, are no facts of the host.
        found["node"], found["node_state"], found["wanted"] = before["node"], before["node_state"], before["wanted"]
    return found


def _again(before: Host) -> Host:
    """A host as a report has it; what its run was to do and has done, a run would not do again."""
    return {
        **before,
        "planned": None if before["changes"] else before["planned"],
        "changes": [],
        "drift": [],
        "not_known": [],
    }


def _same_run(cached: Data, last: Document | None) -> bool:
    """Whether the newest report has the host of the same look, where nothing newer is cached."""
    run = (cached.get(OBSERVED) or {}).get(RUN) if isinstance(cached.get(OBSERVED), t.Mapping) else None
    return not cached.get(PREFIX) or (last is not None and bool(run) and run == last["made"]["run"])
