# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All of rbln_doctor: the look at a cluster, and the causes of what the hosts of the play have registered."""

from __future__ import annotations

import typing as t

from ansible_collections.rebellions.npu.plugins.action.rbln_operands import ActionModule as Operands
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.answer import FACTS, PREFIX, checked_facts
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.text import clean, clean_all
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.of_task import registered_of
from ansible_collections.rebellions.npu.plugins.plugin_utils._doctor.cluster import (
    Clustered,
    Look,
    Observed,
    signs_of_error,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._doctor.host import signs_of_failure, signs_of_host
from ansible_collections.rebellions.npu.plugins.plugin_utils._doctor.order import Found, group, ordered
from ansible_collections.rebellions.npu.plugins.plugin_utils._doctor.report import Place, document, first, screen
from ansible_collections.rebellions.npu.plugins.plugin_utils._doctor.signs import Sign, read_sign, sign_of_error
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.cluster import ROLE
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.nodes import Hosts

Result = dict[str, t.Any]
OBSERVATION, SYMPTOMS = "%s_discover_observation" % PREFIX, "__%s_doctor_symptoms" % PREFIX
MEMBER, CHOSEN, ASKED = "__%s_member" % ROLE, "__%s_clusters" % ROLE, "__%s_doctor_cluster" % PREFIX
ARGUMENTS = {
    "act": {"type": "str", "choices": ["cluster", "show"], "default": "show"},
    "members": {"type": "list", "elements": "dict", "default": []},
    "format": {"type": "str", "choices": ["text", "json"], "default": "text"},
}
NOT_SEEN = "it was not observed, or an earlier task failed"


class ActionModule(Operands):
    def run(self, tmp: str | None = None, task_vars: Result | None = None) -> Result:
        task_vars = task_vars or {}
        result: Result = super(Operands, self).run(tmp, task_vars)
        _validation, args = self.validate_argument_spec(argument_spec=ARGUMENTS)
        if args["act"] == "cluster":
            with self._environment():
                result.update(self._ask(args["members"], task_vars))
        else:
            result.update(self._tell_all(args["format"], task_vars))
        return result

    def _ask(self, members: list[t.Any], task_vars: Result) -> Result:
        """The signs of the cluster of the members. What cannot be asked is a sign, so nothing fails here."""
        try:
            inputs = self._inputs(task_vars)
            hosts = Hosts(
                members, t.cast(t.Any, self._others(task_vars, members, inputs)), inputs["require_node_proof"]
            )
            known = {one["host"]: _observed(task_vars["hostvars"].raw_get(one["host"])) for one in members}
            seen = Look(self._open(inputs), inputs, hosts, known).signs()
        except NpuError as exc:
            seen = Clustered(signs_of_error(exc), {str(one["host"]): [] for one in members}, {})
        name = str(members[0]["cluster"]) if members else ""
        return {"changed": False, "cluster": name, **clean_all(seen._asdict())}

    def _tell_all(self, form: str, task_vars: Result) -> Result:
        hosts = list(task_vars.get("ansible_play_hosts_all") or ())
        # Untemplated: this holds text of hosts.
        known = {host: task_vars["hostvars"].raw_get(host) for host in hosts}
        signs = {host: [*self._of_host(host, found), *_of_inputs(host, found)] for host, found in known.items()}
        clusters: dict[str, list[Found]] = {}
        of_cluster: dict[str, list[Found]] = {}
        for found in known.values():
            asked = registered_of(found, ASKED)
            if "signs" not in asked:
                continue
            name = _unique(str(asked["cluster"]), clusters)
            clusters[name] = group(map(read_sign, asked["signs"]), name)
            for host, mine in asked["hosts"].items():
                if host in signs:
                    signs[host] += map(read_sign, mine)
                    of_cluster[host] = clusters[name]
        places = [Place(host, tuple(ordered(signs[host], of_cluster.get(host, ())))) for host in hosts]
        whole = [
            Place(name, tuple(ordered(one for each in found for one in each.signs))) for name, found in clusters.items()
        ]
        faults = {place.name: first(place, place.name) for place in places}
        of_all = {place.name: place for place in whole}
        for host, found in of_cluster.items():
            if found and not faults[host]:
                faults[host] = first(of_all[found[0].cluster], host)
        lines = screen(places, whole)
        result: Result = {"changed": False, "doctor": clean_all(document(places, whole)), "first": clean_all(faults)}
        result["lines"] = [clean(text, True) for text, _tone in lines]
        if form == "json":
            result["_ansible_verbose_always"] = True
            # The callback shows the document alone.
            del result["lines"]
        else:
            self._show(lines)
        return result

    def _of_host(self, host: str, variables: t.Mapping[str, t.Any]) -> list[Sign]:
        seen = registered_of(variables, OBSERVATION)
        try:
            facts = checked_facts(host, seen.get(FACTS), run=self._run_id())
        except NpuError as exc:
            return signs_of_failure(str(exc))
        if PREFIX not in facts:
            failure = seen.get("failure") or {}
            return signs_of_failure(str(failure.get("msg") or seen.get("msg") or NOT_SEEN))
        return signs_of_host(facts, registered_of(variables, SYMPTOMS))


def _of_inputs(host: str, variables: t.Mapping[str, t.Any]) -> list[Sign]:
    """The sign of a host whose cluster could not be asked because of what its inputs say."""
    member = registered_of(variables, MEMBER)
    failure = member.get("failure") or {}
    said = str(failure.get("msg") or "") if "member" not in member else ""
    chosen = registered_of(variables, CHOSEN)
    said = said or str((chosen.get("errors") or {}).get(host) or "")
    if "members" not in chosen and (member.get("member") or {}).get("cluster"):
        # The controller lacks what asks an API server.
        said = said or str(chosen.get("msg") or "")
    if not said:
        return []
    found = signs_of_error(NpuError(*said.partition(" Next: ")[::2]))
    return [sign_of_error("inputs:cluster", "the inputs", said)] if found[0].code == "api:other" else found


def _observed(variables: t.Mapping[str, t.Any]) -> Observed:
    """What a host of the cluster has told of its kubelet and its driver."""
    facts = registered_of(variables, OBSERVATION).get(FACTS) or {}
    kubelet = (facts.get(PREFIX + "_runtimes") or {}).get("kubelet") or {}
    driver = (facts.get(PREFIX) or {}).get("driver") or {}
    sockets = kubelet.get("device_plugin_dir") if kubelet.get("present") else ""
    return Observed(str(sockets or ""), str(driver.get("version_loaded") or ""))


def _unique(name: str, taken: t.Collection[str]) -> str:
    """Clusters whose kubeconfigs are content have one name."""
    number, found = 1, name
    while found in taken:
        number += 1
        found = "%s (%d)" % (name, number)
    return found
