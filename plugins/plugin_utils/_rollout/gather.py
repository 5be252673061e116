# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts of a run, cut cluster by cluster into what each of them is to do. A part of an action plugin."""

from __future__ import annotations

import typing as t
import uuid
from dataclasses import asdict, dataclass, field, replace

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._cluster.api import Cluster, Data, list_served
from .._cluster.of_task import registered_of
from .._components.pools import has_npu, pool_of
from .._components.registry import component_of, wanted
from .._inputs.roles import PREFLIGHT
from .._nodes.readiness import allocatable_npus, allocatable_of
from .._objects.inputs import Inputs
from .._objects.names import INPUT, SHORT
from .._objects.parts import LABEL_PREFIX, SELECTOR
from . import given as of_rollout
from .fleet import Fleet, Going, goal_of
from .gates import named
from .places import (
    Place,
    Places,
    disturbs,
    facts_of,
    going,
    judge_together,
    keeps_pods,
    policy_of,
    told_pods,
    works,
)
from .rights import require_rollout_rights
from .settings import Settings
from .states import moment, utc
from .table import Pods
from .turn import DRA, OFFER, SLICE

# What the roles register of the look at the inputs.
INPUTS = "%s_inputs" % PREFLIGHT


class Hosts(t.NamedTuple):
    """The plans of the hosts of a run, by host; those that go; and those that a rollout has begun with."""

    plans: dict[str, Data]
    mine: t.Collection[str]
    unfinished: t.Collection[str]


@dataclass
class Cut:
    """What becomes of all of them: {host: its turn}, {host: its pods} in check mode, {host: pool} without a cluster."""

    turns: dict[str, Data] = field(default_factory=dict)
    fleets: list[Fleet] = field(default_factory=list)
    told: dict[str, Pods] = field(default_factory=dict)
    local: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


class Gathering(Places):
    """Cuts the hosts of one cluster after the other."""

    _dry_run: bool

    def _gather(self, places: t.Sequence[Place], hosts: Hosts, task_vars: t.Mapping[str, t.Any], cut: Cut) -> None:
        """Cut the hosts of one cluster, or those without; NpuError where they cannot go, before one is touched."""
        first, plans, mine = places[0], hosts.plans, hosts.mine
        cluster = self._open(first.operands) if first.login[0] else None
        if cluster and len(places) > 1:
            judge_together(places)
        settings: dict[str, Settings] = {}
        nodes: dict[str, Data | None] = {}
        goes: list[Going] = []
        for place in places:
            of_rollout.judge_place(place.given, place.operands if cluster else None)
        asked = self._known(cluster, places, task_vars)
        for place in places:
            found, wrong = self._nodes(asked, place, plans, task_vars)
            # What it changes may disturb a node that nobody would cordon.
            cut.turns.update({host: {"refused": error} for host, error in wrong.items() if host in mine})
            chosen = [host for host in place.hosts if host in mine and host in found]
            own = [going(host, found[host], plans[host], host in hosts.unfinished, place.operands) for host in chosen]
            settings = {**of_rollout.settings_of(place.given, {one.pool for one in own}), **settings}
            nodes.update(found)
            goes += own
        policies = [(place, policy_of(place.given, place.operands)) for place in places] if cluster and goes else []
        if cluster and goes:
            require_rollout_rights(cluster, [(place.operands, policy) for place, policy in policies], first.login[0])
            goes = _only_what_comes_back(cluster, goes, nodes, places)
        settings = {pool: own for pool, own in settings.items() if pool in {one.pool for one in goes}}
        names = {host: one["metadata"]["name"] if one else host for host, one in nodes.items()}
        # Of a host that is stopped, or stays as it is, nobody knows whether what has failed there works again.
        seen = {node for host, node in names.items() if host in mine or works(plans[host])}
        goal = goal_of((plans[host].get("wanted") or {} for place in places for host in place.hosts), INPUT)
        fleet = Fleet(goes, settings, seen, goal)
        hooks = any(place.given["before"] or place.given["after"] for place in places)
        if not goes or not (cluster or fleet.limited or hooks):
            # Without a node and without limits there is nothing to wait for.
            return
        if fleet.limited:
            cut.warnings += _of_no_pool(asked.nodes, {*seen, *(one.node for one in goes)}, first.operands)
        run, now = uuid.uuid4().hex[:12], utc()
        at = registered_of(task_vars, INPUTS).get("at")
        pools = {host: str(facts_of(plans[host])[SHORT]["pool_key"]) for host in names}
        store = self._store(cluster, first.operands, pools, task_vars, seen.difference(mine), set(plans) - set(pools))
        if not self._dry_run:
            store.claim(run)
        fleet.cut(store, run, moment(at) if at else now, now, not self._dry_run)
        if cluster and self._dry_run:
            leaving = {one.host: one.node for one in goes if not keeps_pods(plans[one.host])}
            cut.told.update(told_pods(cluster, leaving, [(place.hosts, policy) for place, policy in policies]))
        cut.fleets.append(fleet)
        cut.local.update({} if cluster else pools)
        for one, plan in ((one, plans[one.host]) for one in goes):
            way = {"only_back": not disturbs(plan), "keeps_pods": keeps_pods(plan), "offers": one.offers}
            turn = {"run": run, "node": one.node, "pool": one.pool, "wave": fleet.wave_of(one.node)}
            pods = {"pods": asdict(cut.told[one.host])} if one.host in cut.told else {}
            cut.turns[one.host] = {**turn, "left": fleet.stays(one), **way, **pods}


def _only_what_comes_back(
    cluster: Cluster, goes: t.Sequence[Going], nodes: t.Mapping[str, Data | None], places: t.Sequence[Place]
) -> list[Going]:
    """The hosts, with `offers` only where somebody can offer the NPUs of the node again.

    A gate says who may run on a node, not that anything does. Its kubelet knows the resource since a device plugin has
    registered it, also while none runs; else there is a pod of ours that offers NPUs, or a slice of a DRA driver. What
    a run that ended early has stopped is not seen any more.
    """
    found: dict[str, Going] = {one.host: one for one in goes}
    for place in places:
        own = {host: found[host] for host in place.hosts if host in found}
        doubted = {host: one for host, one in own.items() if one.offers and not one.unfinished}
        doubted = {host: one for host, one in doubted.items() if not _is_known(nodes[host])}
        if doubted:
            able = _offering_nodes(cluster, place.operands)
            found.update({host: replace(one, offers=one.node in able) for host, one in doubted.items()})
    return list(found.values())


def _is_known(node: Data | None) -> bool:
    return any(key.startswith(LABEL_PREFIX) for key in allocatable_of(node or {}))


def _offering_nodes(cluster: Cluster, inputs: Inputs) -> set[str]:
    """The nodes with a pod of ours that offers NPUs, ready or not, or with a slice of the DRA driver."""
    ours = {row.key for row in wanted(inputs)}.intersection(OFFER)
    pods = cluster.list("v1", "Pod", inputs["namespace"], SELECTOR) if ours else []
    specs = [pod.get("spec") or {} for pod in pods if component_of(pod) in ours]
    if DRA in ours or not ours:
        slices = [one.get("spec") or {} for one in list_served(cluster, *SLICE)]
        specs += [one for one in slices if one.get("driver") == inputs["dra_driver"]["driver_name"]]
    return {str(spec["nodeName"]) for spec in specs if spec.get("nodeName")}


def _of_no_pool(nodes: t.Sequence[Data], known: t.Collection[str], inputs: Inputs) -> list[str]:
    """A warning that names the nodes with NPUs that no limit counts; those of this run get their labels by it."""
    found = []
    for node in nodes:
        name, labels = node["metadata"]["name"], node["metadata"].get("labels") or {}
        if name in known or pool_of(labels):
            continue
        if has_npu(labels) or allocatable_npus(node, inputs["resource_name"]):
            found.append(name)
    if not found:
        return []
    error = NpuError(
        "Nodes with NPUs have no label with their operating system and kernel, so they are in no pool, and no limit of "
        "a rollout counts them: %s." % named(found),
        "Run the host part for them too, or Node Feature Discovery.",
    )
    return [str(error)]
