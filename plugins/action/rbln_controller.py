# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All of rbln_controller: what is wrong with the inputs of the hosts of a play, and with what the run opens here."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import dataclass

from ansible.errors import AnsibleError
from ansible.template import Templar
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.action import OnController
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.text import clean, clean_all
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.login import read_login
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.of_task import OfTask, Said, said_of_others
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster.opened import (
    named_member,
    nodes_of,
    open_cluster,
    strangers,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_host.driver_needs import (
    Need,
    is_due,
    needs,
    open_need,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs import cluster as of_cluster
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.alike import alike
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.findings import Findings
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.names import (
    OWN,
    known,
    own_prefixes,
    set_names,
    unknown,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.roles import (
    DISCOVER,
    OBSERVATION,
    PREFLIGHT,
    raw_inputs,
    read_inputs,
    role_defaults,
    role_inputs,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.targets import PLAYBOOKS, require_kept, typed_input
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.records import Member, Named
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.inputs import Inputs
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.names import INPUT, OPERANDS, SHORT
from ansible_collections.rebellions.npu.plugins.plugin_utils._plan.foretold import host_part
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout import given as of_rollout
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.states import stamp, utc
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.turn import is_unfinished, was_given_back
from ansible_collections.rebellions.npu.plugins.plugin_utils._text.line import line

Result = dict[str, t.Any]
INPUTS, CONTROLLER = "inputs", "controller"
ARGUMENTS = {
    "look": {"type": "str", "required": True, "choices": [INPUTS, CONTROLLER]},
    "fail": {"type": "bool", "default": True},
}
# What the role registers of the look at the inputs.
JUDGED = "%s_inputs" % PREFLIGHT
# Inputs that differ from host to host; what reads them says what is wrong with them.
OF_A_HOST = frozenset({INPUT + "node_name", OPERANDS + "node_name", "%s_expected_addresses" % DISCOVER})
# Inputs that name the cluster: a default of the role takes one whose template fails for one that is not set.
LOGIN = (INPUT + "kubeconfig", INPUT + "kube_context")
HOSTS = "npu_nodes"
# Seconds for one answer of an API server.
TIMEOUT = 10.0
# Once a run: Ansible loads its plugins before it starts a process for each task.
known()
role_inputs((of_cluster.ROLE,))
role_defaults(of_cluster.ROLE)
role_inputs((of_rollout.ROLE,))
role_defaults(of_rollout.ROLE)


@dataclass
class Kind:
    """Hosts with the same inputs, and these; `wanted` are those of the host roles, None where they cannot be read."""

    hosts: list[str]
    variables: Result
    templar: t.Any
    wanted: Result | None = None


class _Left(t.NamedTuple):
    """The hosts whose nodes a rollout has begun with and not finished, and those that it gave back after a failure."""

    unfinished: list[str]
    given_back: list[str]


class ActionModule(OfTask, OnController):
    def run(self, tmp: str | None = None, task_vars: Result | None = None) -> Result:
        task_vars = task_vars or {}
        result: Result = super().run(tmp, task_vars)
        _validation, args = self.validate_argument_spec(argument_spec=ARGUMENTS)
        with self._environment():
            result.update(self._look(args["look"], args["fail"], task_vars))
        return result

    def _look(self, look: str, fail: bool, task_vars: Result) -> Result:
        hosts = self._variables(task_vars)
        findings = Findings(list(hosts))
        kinds = []
        for group in alike(hosts, known().inputs - OF_A_HOST):
            variables = {**role_defaults(of_cluster.ROLE), **role_defaults(of_rollout.ROLE), **hosts[group[0]]}
            templar = Templar(loader=self._loader, variables=variables)
            alone = {name: value for name, value in variables.items() if name not in OF_A_HOST}
            kinds.append(Kind(group, alone, templar))
        began, left = utc(), _Left([], [])
        judged = look == CONTROLLER and JUDGED in task_vars
        misspelt, warnings = (False, []) if judged else self._judge_names(hosts, findings)
        with _found(findings, list(hosts)):
            require_kept(HOSTS, task_vars.get("groups") or {}, hosts)
        pools = _pools(task_vars) if look == CONTROLLER else None
        for kind in kinds:
            _read_inputs(kind, findings)
            with _found(findings, kind.hosts, kind):
                inputs = of_rollout.read_inputs(kind.templar, kind.variables)
                of_rollout.judge(inputs, pools)
        # Where the run ends here, its one message is to have all of it.
        if look == CONTROLLER or misspelt or (fail and findings.stop_all):
            seen = {host: _observed(variables) for host, variables in hosts.items()} if look == CONTROLLER else None
            if _comes(task_vars, "driver"):
                self._open_files(kinds, seen, findings)
            if _comes(task_vars, "operands"):
                left = self._open_clusters(kinds, seen, findings, task_vars)
            elif seen and host_part(task_vars):
                # A cluster that does not answer stops no work on the host; what disturbs its node asks it again.
                unasked = Findings(list(hosts))
                left = self._open_clusters(kinds, seen, unasked, task_vars)
                warnings += [_unasked(item["detail"], item["next_step"]) for item in clean_all(unasked.items())]
        result: Result = {"changed": False, "problems": clean_all(findings.items())}
        result.update({"at": stamp(began)} if look == INPUTS else left._asdict())
        if misspelt or (fail and findings.stop_all):
            # A callback prints all of a failed result.
            result = {"failed": True, "msg": clean(findings.text(), True)}
        return {**result, "warnings": warnings} if warnings else result

    def _judge_names(self, hosts: t.Mapping[str, Result], findings: Findings) -> tuple[bool, list[str]]:
        """(whether an input is misspelt, warnings of other names); each set of names is judged once."""
        sets: dict[tuple[frozenset[str], str], list[str]] = {}
        for host, variables in hosts.items():
            sets.setdefault((frozenset(set_names(variables)), repr(variables.get(OWN))), []).append(host)
        misspelt, warnings = False, []
        for (names, _own), group in sets.items():
            with _found(findings, group):
                found = unknown(names, own_prefixes(self._templar, hosts[group[0]]))
                misspelt = misspelt or any(item.misspelt for item in found)
                warnings += [str(item.error()) for item in found if not item.misspelt]
                for item in found:
                    if item.misspelt:
                        findings.add(item.error(), group)
        return misspelt, list(dict.fromkeys(warnings))

    def _open_files(self, kinds: list[Kind], seen: dict[str, Result | None] | None, findings: Findings) -> None:
        """The files that hosts wait for; before hosts were observed, those that any of them may wait for."""
        wanted: dict[Need, list[str]] = {}
        for kind in kinds:
            with _found(findings, kind.hosts):
                for host in kind.hosts:
                    facts = seen[host] if seen else None
                    if kind.wanted is None or (seen and not facts):
                        continue
                    found = needs(kind.wanted, facts[SHORT] if facts else None, self._beside)
                    if found and (not facts or is_due(kind.wanted, facts)):
                        for need in found:
                            wanted.setdefault(need, []).append(host)
        for need, hosts in wanted.items():
            with _found(findings, hosts):
                open_need(need)

    def _open_clusters(
        self, kinds: list[Kind], seen: dict[str, Result | None] | None, findings: Findings, task_vars: Result
    ) -> _Left:
        """Look at the clusters, and at what rollouts have left on the nodes of the hosts.

        A run of the host part alone looks for those, and asks for nothing that only the cluster part needs.
        """
        left, operands = _Left([], []), _comes(task_vars, "operands")
        clusters: dict[tuple[str, str], tuple[Inputs, list[str]]] = {}
        for kind in kinds:
            with _found(findings, kind.hosts, kind):
                for name in LOGIN:
                    kind.templar.template(kind.variables.get(name))
                raw = raw_inputs(kind.templar, kind.variables, role_inputs((of_cluster.ROLE,)))
                inputs = t.cast(Inputs, of_cluster.read_inputs(raw))
                if not inputs["enabled"] or inputs["delivery"] != "apply" or inputs["state"] != "present":
                    continue
                if not operands and not of_rollout.read_inputs(kind.templar, kind.variables)["enabled"]:
                    continue
                login = read_login(self._kubeconfig(inputs), inputs["context"])
                clusters.setdefault((login.name, login.mark), (inputs, []))[1].extend(kind.hosts)
        for (where, _mark), (inputs, hosts) in clusters.items():
            with _found(findings, hosts):
                cluster = self._open(inputs, TIMEOUT)
                if operands:
                    open_cluster(cluster, inputs, where)
                if seen:
                    members = _members(task_vars["hostvars"], {host: seen[host] for host in hosts})
                    rest = [host for host in task_vars["groups"]["all"] if host not in set(hosts)]
                    others = t.cast("list[Named]", said_of_others(task_vars["hostvars"], rest, inputs))
                    nodes = nodes_of(cluster, members, others, inputs["require_node_proof"])
                    for error, strange in strangers(nodes, where) if operands else ():
                        findings.add(error, strange)
                    for host, (node, _error) in nodes.items():
                        left.unfinished.extend([host] if node and is_unfinished(node) else [])
                        left.given_back.extend([host] if node and was_given_back(node) else [])
        return left


def _members(hostvars: t.Any, seen: t.Mapping[str, Result | None]) -> list[Member]:
    """The hosts that were observed, as the inventory and they themselves tell who they are."""
    members = []
    for host, facts in seen.items():
        if facts:
            said = Said(hostvars, host)
            node_name = said(OPERANDS + "node_name") or said(INPUT + "node_name")
            named: Named = {"host": host, "node_name": node_name, "address": said("ansible_host")}
            members.append(named_member(named, facts[SHORT]))
    return members


def _pools(task_vars: Result) -> of_rollout.Pools:
    """The pools of all hosts of the inventory; of those outside of this run, what an earlier one has kept."""
    groups, raw = task_vars.get("groups") or {}, task_vars["hostvars"].raw_get
    hosts = groups.get(HOSTS) or []
    kept = {host: (raw(host).get("ansible_facts") or {}).get(SHORT) or {} for host in hosts}
    observed = {host: str(facts["pool_key"]) for host, facts in kept.items() if facts.get("pool_key")}
    return of_rollout.pools_of(groups, observed, hosts)


def _read_inputs(kind: Kind, findings: Findings) -> None:
    for name in PLAYBOOKS:
        with _found(findings, kind.hosts, kind):
            typed_input(name, kind.templar.template(kind.variables.get(name)))
    with _found(findings, kind.hosts, kind):
        kind.wanted = read_inputs(kind.templar, kind.variables)


def _observed(variables: t.Mapping[str, t.Any]) -> Result | None:
    """The facts that this run has observed of a host, which were judged when they came; None for none."""
    facts = (variables.get(OBSERVATION) or {}).get("ansible_facts") or {}
    return facts if SHORT in facts else None


def _unasked(detail: str, step: str) -> str:
    what = "Whether a rollout has left a node of these hosts out of service is not known: %s" % detail
    return str(NpuError(what, step))


def _comes(task_vars: Result, tag: str) -> bool:
    """Whether this run does what has the tag."""
    run, skip = task_vars.get("ansible_run_tags") or ["all"], task_vars.get("ansible_skip_tags") or []
    return not {"all", "tagged", tag}.isdisjoint(run) and {"all", "tagged", tag}.isdisjoint(skip)


@contextlib.contextmanager
def _found(findings: Findings, hosts: t.Sequence[str], kind: Kind | None = None) -> t.Iterator[None]:
    """What is wrong stops these hosts, and the look at the rest goes on."""
    try:
        yield
    except NpuError as exc:
        findings.add(exc, hosts)
    except AnsibleError as exc:
        what = "%s cannot be read: %s." % (_unreadable(kind), line(str(exc), 500).rstrip("."))
        findings.add(NpuError(what, "Correct the variable, or the file that it names."), hosts)


def _unreadable(kind: Kind | None) -> str:
    """The first input of these hosts whose template fails; defaults of the role, which name other inputs, come last."""
    if kind is None:
        return "An input"
    usual = {**role_defaults(of_cluster.ROLE), **role_defaults(of_rollout.ROLE)}
    given = known().inputs.intersection(kind.variables)
    for name in sorted(given, key=lambda one: (one in usual and kind.variables[one] == usual[one], one)):
        try:
            kind.templar.template(kind.variables[name])
        except AnsibleError:
            return name
    return "An input"
