# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of rbln_plan_show: what the hosts of the play have registered in, one screen out."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.action import OfPlay
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.text import clean, clean_all
from ansible_collections.rebellions.npu.plugins.plugin_utils._plan.foretold import of_this_run
from ansible_collections.rebellions.npu.plugins.plugin_utils._plan.screen import (
    ClusterPlan,
    HostPlan,
    document,
    pending,
    screen,
    totals,
)

Result = dict[str, t.Any]
PLAN, FAILURE = "rbln_preflight_plan", "rbln_failure"
MEMBER, CHOSEN, APPLIED = "__rbln_operands_member", "__rbln_operands_clusters", "__rbln_operands_applied"
JUDGED = "rbln_operands_result"
REBOOT = "rbln_driver_reboot"
CUT = "rbln_rollout_plan"
MORE = " See them with --limit, or all of it with rbln_plan_format: json."


class ActionModule(OfPlay):
    ARGUMENTS: t.ClassVar[Result] = {"format": {"type": "str", "choices": ["text", "json"], "default": "text"}}

    def _told(self, args: Result, known: dict[str, Result], variables: Result) -> Result:
        told = {host: _registered(found) for host, found in known.items()}
        rollout = _rollout(told.values())
        left = rollout.get("left") or {}
        plans = [_host_plan(host, said, variables, str(left.get(host) or "")) for host, said in told.items()]
        clusters = _clusters(told)
        counted = totals(plans, clusters)
        rows = rollout.pop("lines", [])
        result: Result = {"totals": counted, "pending": pending(counted)}
        if args["format"] == "json":
            # The callback shows it in its own form, as it shows the result of debug.
            data = {**document(plans, clusters), **({"rollout": rollout} if rollout else {})}
            result.update(plan=clean_all(data), _ansible_verbose_always=True)
            return result
        lines = [(clean(text), tone) for text, tone in [*screen(plans, clusters, MORE), *rows]]
        result["msg"] = [text for text, _tone in lines]
        self._show(lines)
        return result


def _registered(found: Result) -> Result:
    """What the tasks of this run have registered of a host; a fact of such a name is no record."""
    facts = found.get("ansible_facts") or {}
    names = (PLAN, FAILURE, MEMBER, CHOSEN, APPLIED, JUDGED, CUT)
    records = {name: found[name] for name in names if isinstance(found.get(name), dict) and name not in facts}
    return records


def _rollout(told: t.Iterable[Result]) -> Result:
    """The rollout that a run would make, as the first host has planned it for all; empty for none."""
    cut: Result = next((said[CUT] for said in told if said.get(CUT)), {})
    found: Result = json.loads(cut.get("table") or "{}")
    if cut.get("msg") and not found:
        found = {"error": cut["msg"], "lines": [["STOP  %s" % cut["msg"], "bad"]]}
    return found


def _host_plan(host: str, said: Result, variables: t.Mapping[str, t.Any], left: str = "") -> HostPlan:
    plan = said.get(PLAN) or {}
    if "steps" not in plan or (plan.get("failed") and not plan.get("stops")):
        text = plan.get("msg") if plan.get("failed") else ""
        return HostPlan(host, error=str(text or "The host was not planned. Next: read its error above."))
    reboot = str((plan.get("wanted") or {}).get(REBOOT) or "never")
    stops = list(plan["stops"])
    failure = said.get(FAILURE)
    if failure and not (failure.get("proof") and plan.get("unrepaired")):
        # Check mode of site.yml: a part that a plan does not foresee failed. It does foresee a proof that will fail.
        stops.append({"code": str(failure.get("task")), "detail": str(failure.get("msg")), "next_step": ""})
    return HostPlan(host, of_this_run(plan, variables)["steps"], stops, plan["cautions"], reboot, left=left)


def _clusters(told: t.Mapping[str, Result]) -> list[ClusterPlan]:
    """The clusters of the hosts, by what the host that acts for each has registered."""
    # Clusters whose kubeconfigs are content have one name, and differ in their mark.
    members: dict[tuple[str, t.Any], dict[str, Result]] = {}
    lost: dict[str, Result] = {}
    for host, said in told.items():
        member = (said.get(MEMBER) or {}).get("member") or {}
        if member.get("cluster"):
            members.setdefault((str(member["cluster"]), member.get("mark")), {})[host] = said
        elif (said.get(MEMBER) or {}).get("failed"):
            lost[host] = said
    names: list[str] = []
    found = []
    for (name, _mark), hosts in members.items():
        names.append(name)
        number = names.count(name)
        found.append(_cluster(f"{name} ({number})" if number > 1 else name, hosts))
    return [*found, _cluster("that is not known", lost)] if lost else found


def _cluster(name: str, hosts: t.Mapping[str, Result]) -> ClusterPlan:
    works = [said[APPLIED] for said in hosts.values() if said.get(APPLIED) and not said[APPLIED].get("skipped")]
    work = works[0] if works else {}
    errors = {host: error for host, error in ((host, _error(said)) for host, said in hosts.items()) if error}
    nodes = {host: record for host, record in (work.get("nodes") or {}).items() if isinstance(record, dict)}
    return ClusterPlan(name, work.get("objects") or {}, nodes, errors, work.get("warnings") or [])


def _error(said: Result) -> str:
    """Why the cluster part of a host failed; empty when it has not."""
    records = (said.get(name) or {} for name in (MEMBER, CHOSEN, JUDGED))
    failed = next((record for record in records if record.get("failed") or record.get("ok") is False), None)
    return "" if failed is None else str(failed.get("msg"))
