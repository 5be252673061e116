# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shows the hosts of a play on one screen, from what each has registered."""

from __future__ import annotations

import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.action import OfPlay, Result
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.answer import FACTS, PREFIX, checked_facts
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.overview import (
    HostState,
    findings,
    overview,
    state_of,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.states import NO_NODE

# {what: (variable that the role registers, fact with its checks)}
SOURCES = {
    "observation": ("%s_discover_observation" % PREFIX, "%s_observed" % PREFIX),
    "proof": ("%s_validator_proof" % PREFIX, "%s_proof" % PREFIX),
}
OBSERVATION = SOURCES["observation"][0]
NODES = "__%s_operands_nodes" % PREFIX
MEMBER, CHOSEN = "__%s_operands_member" % PREFIX, "__%s_operands_clusters" % PREFIX


class ActionModule(OfPlay):
    ARGUMENTS: t.ClassVar[Result] = {"what": {"type": "str", "choices": list(SOURCES), "default": "observation"}}

    def _told(self, args: Result, known: dict[str, Result], variables: Result) -> Result:
        nodes: dict[str, t.Any] = {}
        for host, found in known.items():
            # A host whose cluster inputs are wrong is not one without a cluster.
            if error := _refused(host, found):
                nodes[host] = {**NO_NODE, "error": error}
            nodes.update(_registered(found, NODES).get("states") or {})
        states = [self._state(host, found, args["what"], nodes.get(host)) for host, found in known.items()]
        lines = overview(states)
        self._show(lines)
        told = {
            one.host: {
                "state": state_of(one),
                "findings": [{"word": found.word, "text": found.text} for found in findings(one)],
            }
            for one in states
        }
        return {"hosts": told, "lines": [text for text, _tone in lines]}

    def _state(self, host: str, variables: t.Mapping[str, t.Any], what: str, node: t.Any) -> HostState:
        variable, fact = SOURCES[what]
        seen, judged = _registered(variables, OBSERVATION), _registered(variables, variable)
        try:
            facts = {
                **checked_facts(host, seen.get(FACTS), run=self._run_id()),
                **checked_facts(host, judged.get(FACTS), run=self._run_id()),
            }
        except NpuError as exc:
            return HostState(host, error=str(exc))
        if PREFIX not in facts or fact not in facts:
            said = judged.get("msg") or seen.get("msg") or "it was not reached, or an earlier task failed"
            return HostState(host, error=str(said))
        return HostState(host, facts[PREFIX], facts.get(PREFIX + "_runtimes") or {}, facts[fact], node)


def _refused(host: str, variables: t.Mapping[str, t.Any]) -> str:
    """Why the cluster of a host could not be asked; empty where it was, or where the host has none."""
    member = _registered(variables, MEMBER)
    if member.get("msg") and "member" not in member:
        return str(member["msg"])
    return str((_registered(variables, CHOSEN).get("errors") or {}).get(host) or "")


def _registered(variables: t.Mapping[str, t.Any], name: str) -> t.Mapping[str, t.Any]:
    """What a task has registered; a fact of this name is none."""
    found = variables.get(name) if name not in (variables.get(FACTS) or {}) else None
    return found if isinstance(found, t.Mapping) else {}
