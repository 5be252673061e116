# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the hosts of a play belong: cluster, inputs, node. A part of an action plugin."""

from __future__ import annotations

import hashlib
import json
import typing as t
import uuid

from ansible import constants
from ansible.template import Templar
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import DISRUPTIONS, NONE, RESTART, NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._runtime.base import DOCKER

from .._cluster.api import Cluster, Data
from .._cluster.login import read_login
from .._cluster.of_task import OfTask, Said, registered_of, said_of_others
from .._deliver_cluster.opened import list_nodes, named_member, nodes_to_leave
from .._inputs import cluster as of_cluster
from .._inputs.alike import alike
from .._inputs.names import known
from .._inputs.roles import OBSERVATION, PREFLIGHT, raw_inputs, role_defaults, role_inputs
from .._nodes.nodes import member_record
from .._nodes.readiness import allocatable_npus
from .._nodes.records import Member, Named
from .._objects.inputs import Inputs
from .._objects.names import INPUT, OPERANDS, SHORT
from .._objects.parts import GATE_PREFIX, SKIP_LABEL
from . import given as of_rollout
from .budgets import in_the_way
from .evict import list_budgets, look_at, look_of
from .fleet import Going
from .local import LocalStore
from .node import NodeWriter
from .outage import is_passing
from .pods import KEEP, REFUSE, Policy, why_not
from .states import GATES
from .store import RunStore
from .table import Pods
from .turn import KEYWORDS, Back, Refused, is_unfinished

# What the roles register: the plan of a host, and its leave.
PLAN, LEFT, DRAINED = "%s_plan" % PREFLIGHT, "__%s_left" % of_rollout.ROLE, "__%s_drained" % of_rollout.ROLE
# Strategies that take all hosts of a batch through a task together.
LOCKSTEP = ("linear", "debug")
# Inputs that differ from host to host, and the operands that they make differ.
_OF_A_HOST = frozenset({INPUT + "node_name", OPERANDS + "node_name", INPUT + "discover_expected_addresses"})
_OWN = ("node_name", "notes")
# More nodes than these are not asked one by one for their pods, where they are this part of their cluster or more.
_MANY, _PART = 10, 0.25


class Place(t.NamedTuple):
    """Hosts that share a record and inputs. `login` is (name, mark) of their cluster, empty texts without one."""

    login: tuple[str, str]
    operands: Inputs
    given: dict[str, t.Any]
    hosts: list[str]

    @property
    def written(self) -> tuple[str, str]:
        """How the inventory names the cluster."""
        return self.operands["kubeconfig"], self.operands["context"]


class Known(t.NamedTuple):
    """The nodes of a cluster, and what the inventory says of its hosts, by how it names the cluster."""

    nodes: list[Data]
    named: dict[tuple[str, str], list[Named]]


class Places(OfTask):
    """Reads what the hosts of a play say of their place."""

    _templar: t.Any

    def _places(self, task_vars: t.Mapping[str, t.Any], hosts: t.Collection[str]) -> list[Place]:
        """These hosts by cluster, and by inputs where they differ within one."""
        variables = {host: found for host, found in self._variables(task_vars).items() if host in hosts}
        upgrade = {of_rollout.UPGRADE: task_vars.get(of_rollout.UPGRADE, False)}
        found: dict[tuple[str, str, str], Place] = {}
        for group in alike(variables, known().inputs - _OF_A_HOST):
            place = self._place({**upgrade, **variables[group[0]]})
            shared = {name: value for name, value in place.operands.items() if name not in _OWN}
            key = (*place.login, json.dumps([place.given, shared], sort_keys=True, default=str))
            found.setdefault(key, place).hosts.extend(group)
        return list(found.values())

    def _clusters(self, task_vars: t.Mapping[str, t.Any], hosts: t.Collection[str]) -> list[list[Place]]:
        """The places of these hosts, those of one cluster together; those of hosts without one too."""
        found: dict[tuple[str, str], list[Place]] = {}
        for place in self._places(task_vars, hosts) if hosts else ():
            found.setdefault(place.login, []).append(place)
        return list(found.values())

    def _place(self, variables: t.Mapping[str, t.Any]) -> Place:
        """Where a host with these variables belongs. NpuError names an input that is wrong."""
        usual = {**role_defaults(of_cluster.ROLE), **role_defaults(of_rollout.ROLE)}
        templar = Templar(loader=self._loader, variables={**usual, **variables})
        raw = raw_inputs(templar, {**usual, **variables}, role_inputs((of_cluster.ROLE,)))
        operands = t.cast(Inputs, of_cluster.read_inputs(raw))
        given = of_rollout.read_inputs(templar, {**usual, **variables})
        login = ("", "")
        if operands["enabled"] and operands["delivery"] == "apply" and operands["state"] == "present":
            found = read_login(self._kubeconfig(operands), operands["context"])
            login = (found.name, str(found.mark))
        return Place(login, operands, given, [])

    def _back(self, mine: Data, place: Place, task_vars: Data) -> Back:
        """What the node must offer to be back: as many NPUs as its host has now, where it offered some before."""
        plan = whole(task_vars, registered_of(task_vars, PLAN))
        facts = facts_of(plan)
        source = str((plan.get("wanted") or {}).get(INPUT + "driver_source") or "")
        record = member_record(task_vars["inventory_hostname"], place.operands, facts.get(SHORT), facts, None, source)
        left = [registered_of(task_vars, name) for name in (LEFT, DRAINED)]
        unready, stopped = ([name for one in left for name in one.get(key) or ()] for key in ("unready", "stopped"))
        expected = record["expected"] if mine["offers"] else 0
        return Back(place.operands, expected, place.given["return_timeout"], unready, stopped)

    def _store(
        self,
        cluster: Cluster | None,
        inputs: Inputs,
        hosts: t.Mapping[str, str],
        task_vars: t.Mapping[str, t.Any],
        works: t.Collection[str] = (),
        elsewhere: t.Collection[str] = (),
    ) -> RunStore | LocalStore:
        """Where the record is. Without a cluster `works` are the hosts that work as they are; `elsewhere` have one."""
        if cluster:
            return RunStore(cluster, inputs, constants.DEFAULT_LOCAL_TMP)
        sources = "\n".join(map(str, task_vars.get("ansible_inventory_sources") or ()))
        inventory = set(task_vars["groups"]["all"]).difference(elsewhere)
        return LocalStore(hashlib.sha256(sources.encode()).hexdigest()[:12], hosts, inventory, works)

    def _playbook(self, task_vars: t.Mapping[str, t.Any]) -> tuple[str, str]:
        """The playbook whose defaults this play has; where the playbook plan asks, how to see those of the other."""
        if self._templar.template(task_vars.get(of_rollout.UPGRADE, False)):
            return "upgrade", ""
        return "site", "Show that of upgrade: -e %s=true" % of_rollout.PLAN if of_rollout.UPGRADE in task_vars else ""

    def _together(self, turns: t.Mapping[str, Data], mine: Data, batch: t.Collection[str]) -> list[str]:
        """The nodes of the hosts of this play that do not go on before this one has begun. NpuError where their waves
        differ: none but the first could begin."""
        others = [turns[host] for host in batch if host in turns]
        waves = {one["wave"] for one in others if one["pool"] == mine["pool"] and one["wave"]}
        if len(waves) > 1:
            told = ", ".join(map(str, sorted(waves)))
            raise Refused("The play has the strategy linear and takes hosts of the waves %s at once." % told, KEYWORDS)
        return [one["node"] for one in others if one["node"] != mine["node"]]

    def _is_linear(self) -> bool:
        """Whether no host of the play goes on before all of them have done a task; False where a template says so."""
        part = self._task
        while part is not None and getattr(part, "_play", None) is None:
            part = getattr(part, "_parent", None)
        strategy = str(part._play.strategy) if part else ""
        return strategy.rpartition(".")[2] in LOCKSTEP

    def _say_works_again(
        self, task_vars: t.Mapping[str, t.Any], plans: t.Mapping[str, Data], hosts: list[str]
    ) -> tuple[bool, list[str]]:
        """Let the nodes of these hosts say so that were given back after a failure.

        Whether one was written, and warnings where one could not be; an API server that does not answer is asked once.
        """
        changed, told = False, []
        for same in self._clusters(task_vars, hosts):
            try:
                cluster = self._open(same[0].operands)
                asked = self._known(cluster, same, task_vars)
                nodes = [node for place in same for node in self._nodes(asked, place, plans, task_vars)[0].values()]
            except NpuError as exc:
                told.append(str(exc))
                continue
            for node in filter(None, nodes):
                try:
                    one = NodeWriter(cluster, node["metadata"]["name"], uuid.uuid4().hex[:12])
                    changed = one.works_again() or changed
                except NpuError as exc:
                    told.append(str(exc))
                    if is_passing(exc):
                        break
        return changed, told

    @staticmethod
    def _known(cluster: Cluster | None, places: t.Iterable[Place], task_vars: t.Mapping[str, t.Any]) -> Known:
        """What the places of one cluster share, asked once."""
        if cluster is None:
            return Known([], {})
        hosts, named = task_vars["groups"]["all"], {}
        for place in places:
            if place.written not in named:
                found = said_of_others(task_vars["hostvars"], hosts, place.operands)
                named[place.written] = t.cast("list[Named]", found)
        return Known(list_nodes(cluster), named)

    @staticmethod
    def _nodes(
        known: Known, place: Place, plans: t.Mapping[str, Data], task_vars: t.Mapping[str, t.Any]
    ) -> tuple[dict[str, Data | None], dict[str, str]]:
        """({host: its node} of those in service or that a rollout has begun with, {host: why its node is not known}).

        Without a cluster every host goes, and none has a node.
        """
        if not place.login[0]:
            return dict.fromkeys(place.hosts), {}
        members: list[Member] = []
        for host in place.hosts:
            said = Said(task_vars["hostvars"], host)
            name = said(OPERANDS + "node_name") or said(INPUT + "node_name")
            named: Named = {"host": host, "node_name": name, "address": said("ansible_host")}
            members.append(named_member(named, facts_of(plans[host])[SHORT]))
        mine = set(place.hosts)
        others = [one for one in known.named[place.written] if one["host"] not in mine]
        found = nodes_to_leave(known.nodes, members, others, place.operands["require_node_proof"])
        resource = place.operands["resource_name"]
        nodes: dict[str, Data | None] = {
            host: node
            for host, (node, _error) in found.items()
            if node and (worst_of(plans[host]) != RESTART or is_in_service(node, resource))
        }
        return nodes, {host: error for host, (_node, error) in found.items() if error}


def judge_together(places: t.Sequence[Place]) -> None:
    """NpuError where the records of hosts of one cluster would be in several places: none would keep their limits."""
    if len({(place.operands["namespace"], place.operands["name_prefix"]) for place in places}) > 1:
        members = {
            place.hosts[0]: {
                "cluster": place.login[0],
                "mark": place.login[1],
                "digest": of_cluster.digest(place.operands),
            }
            for place in places
        }
        (cluster,) = of_cluster.choose_actors(members).values()
        what, _next, step = cluster["error"].partition(" Next: ")
        raise NpuError(what, step)


def facts_of(plan: t.Mapping[str, t.Any]) -> Data:
    """The facts that a plan was made from."""
    return dict((plan.get("observation") or {}).get("ansible_facts") or {})


def whole(variables: t.Mapping[str, t.Any], plan: t.Mapping[str, t.Any]) -> Data:
    """A plan with its observation, which the plan of a host without steps leaves to what was registered of that."""
    return {"observation": registered_of(variables, OBSERVATION), **plan}


def worst_of(plan: t.Mapping[str, t.Any]) -> str:
    """The worst disruption of the steps of a plan that this run does."""
    kinds = [DISRUPTIONS.index(step["disruption"]) for step in plan["steps"]]
    return DISRUPTIONS[max(kinds, default=0)]


def disturbs(plan: t.Mapping[str, t.Any]) -> bool:
    return worst_of(plan) != NONE


def works(plan: t.Mapping[str, t.Any]) -> bool:
    """Whether nothing of a plan, or of what its host is, asks for a node to leave service."""
    return not (disturbs(plan) or plan["stops"] or plan.get("unrepaired"))


def keeps_pods(plan: t.Mapping[str, t.Any]) -> bool:
    """Whether pods run on through all of a plan: a runtime restarts, and it is not the docker of the kubelet."""
    restarts = {str(step["component"]).partition(" ")[0] for step in plan["steps"] if step["disruption"] == RESTART}
    kubelets = (facts_of(plan).get(SHORT + "_runtimes") or {}).get("kubernetes_runtime")
    stops = DOCKER in restarts and kubelets in (DOCKER, None)
    return worst_of(plan) in (NONE, RESTART) and not stops


def going(host: str, node: Data | None, plan: t.Mapping[str, t.Any], unfinished: bool, operands: Inputs) -> Going:
    """A host that goes; without a node it is its own."""
    wanted = plan.get("wanted") or {}
    return Going(
        host,
        node["metadata"]["name"] if node else host,
        str(facts_of(plan)[SHORT]["pool_key"]),
        plan["steps"],
        str(wanted.get(INPUT + "driver_reboot") or "never"),
        wanted.get(INPUT + "driver_services") or (),
        unfinished,
        bool(node and offers(node, operands["resource_name"])),
    )


def is_in_service(node: t.Mapping[str, t.Any], resource: str) -> bool:
    """Whether a node offers NPUs, or a rollout has begun with it.

    A runtime may restart on a node that was never in service: nothing on it uses an NPU.
    """
    return offers(node, resource) or is_unfinished(node)


def offers(node: t.Mapping[str, t.Any], resource: str) -> bool:
    """Whether a node offers NPUs, or did before a rollout closed the gates of our components."""
    meta = node["metadata"]
    labels = meta.get("labels") or {}
    gates = (key for key, value in labels.items() if key.startswith(GATE_PREFIX) and value == "true")
    kept = '"true"' in str((meta.get("annotations") or {}).get(GATES) or "")
    return any(key != SKIP_LABEL for key in gates) or kept or allocatable_npus(node, resource) > 0


def policy_of(given: t.Mapping[str, t.Any], operands: Inputs, keep: bool = False) -> Policy:
    """What becomes of pods, by the inputs; with `keep` none has to leave, nor any component."""
    if keep:
        return Policy(pods=KEEP, namespace=operands["namespace"])
    names = ("pods", "empty_dir", "unmanaged", "wait_selector", "wait_timeout", "evict_timeout", "grace", "force")
    return Policy(
        **{name: given[name] for name in names},
        namespace=operands["namespace"],
        components=tuple(given["pause_components"]),
        dra_driver=operands["dra_driver"]["driver_name"],
    )


def told_pods(
    cluster: Cluster, nodes: t.Mapping[str, str], groups: t.Sequence[tuple[t.Collection[str], Policy]]
) -> dict[str, Pods]:
    """{host: what would become of the pods of its node}, from {host: node} and the (hosts, policy) of each group."""
    budgets = list_budgets(cluster) if any(policy.pods != REFUSE for _hosts, policy in groups) else []
    many = _pods_of_many(cluster, set(nodes.values()))
    found = {}
    for host, policy in ((host, policy) for hosts, policy in groups for host in hosts if host in nodes):
        node = nodes[host]
        leaving = look_at(cluster, node, policy) if many is None else look_of(cluster, many[node], node, policy)
        closed = {name for pod in leaving.evict for name in in_the_way(pod, budgets)}
        steps = tuple(dict.fromkeys(one.step for one in leaving.refused))
        uids = tuple(str(pod["metadata"]["uid"]) for pod in (*leaving.pending, *leaving.ours))
        found[host] = Pods(leaving.text(), tuple(sorted(closed)), tuple(map(why_not, leaving.refused)), steps, uids)
    return found


def _pods_of_many(cluster: Cluster, nodes: t.Collection[str]) -> dict[str, list[Data]] | None:
    """{node: its pods} from one list; None where one list for each node is less to read."""
    if len(nodes) <= _MANY or len(nodes) < _PART * len(cluster.list("v1", "Node", metadata=True)):
        return None
    found: dict[str, list[Data]] = {node: [] for node in nodes}
    for pod in cluster.list("v1", "Pod", fields="spec.nodeName!=", only=lambda pod: _node_of(pod) in found):
        found[_node_of(pod)].append(pod)
    return found


def _node_of(pod: t.Mapping[str, t.Any]) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")
