# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster where the vendor's operator runs: recognise it by what the API serves, and decide what may happen."""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._cluster.api import Cluster, Data
from .._objects.compare import object_label
from .._objects.model import Capabilities, Inputs
from .._objects.parts import LABEL_PREFIX, object_name

GROUP = "rebellions.ai"
POLICY, DRIVER = "RBLNClusterPolicy", "RBLNDriver"
RECORD = "takeover"
# How the vendor's chart names the operator's Deployment.
OPERATOR_NAME = "rbln-npu-operator"
# The number of replicas that the operator had before it was put to rest.
REPLICAS = LABEL_PREFIX + "npu.replicas-before"
NORMAL, COEXIST, TAKEOVER, RESTORE = "normal", "coexist", "takeover", "restore"


@dataclass(frozen=True)
class Found:
    """What of the operator is in a cluster: its objects, the DaemonSets they own, and our record of a takeover, if there was one.

    `awake` tells that the operator of the record works: the takeover was cut off before it was put to rest, or somebody has woken it.
    """

    policies: tuple[Data, ...]
    drivers: tuple[Data, ...]
    daemon_sets: tuple[Data, ...]
    record: Data | None = None
    awake: bool = False

    @property
    def manages(self) -> bool:
        return bool(self.policies or self.drivers)


def find_operator(cluster: Cluster, inputs: Inputs, capabilities: Capabilities) -> Found:
    """What is there of the operator. A right that is missing is an ApiError, because it is not the same as nothing."""
    record = None
    if GROUP in capabilities.groups or inputs["coexistence"] in (TAKEOVER, RESTORE):
        record = cluster.get("v1", "ConfigMap", object_name(inputs, RECORD), inputs["namespace"])
    if GROUP not in capabilities.groups:
        return Found((), (), (), record)
    awake = record is not None and _is_awake(cluster, record)
    kinds = _kinds(cluster, capabilities.groups[GROUP])
    policies, drivers = (
        [_named(item, kind) for item in _list(cluster, kinds.get(kind), kind)] for kind in (POLICY, DRIVER)
    )
    sets: list[Data] = []
    if policies or drivers:
        sets = [item for item in cluster.list("apps/v1", "DaemonSet") if owner_of(item)]
    return Found(tuple(policies), tuple(drivers), tuple(sets), record, awake)


def noted(record: Data) -> Data:
    """{namespace, name, replicas} of the operator's Deployment in a record of a takeover; NpuError for one that is damaged."""
    try:
        where = json.loads(record["data"]["takeover.json"])
        return {
            "namespace": _text(where["namespace"]),
            "name": _text(where["name"]),
            "replicas": int(where["replicas"]),
        }
    except (KeyError, TypeError, ValueError) as exc:
        meta = record["metadata"]
        raise NpuError(
            "The record of the takeover, ConfigMap %s/%s, cannot be read: %s. Nothing was changed."
            % (meta["namespace"], meta["name"], exc),
            "Delete it and run with rbln_operands_coexistence: takeover, which makes it anew from the operator's Deployment and its annotation %s."
            % REPLICAS,
        ) from exc


def _text(value: t.Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("%r is no name" % (value,))
    return value


def refuse_while_it_rests(cluster: Cluster, inputs: Inputs) -> None:
    """NpuError when a takeover has put an operator to rest that is still there: only its record knows the way back."""
    record = cluster.get("v1", "ConfigMap", object_name(inputs, RECORD), inputs["namespace"])
    if record is None:
        return
    where = noted(record)
    operator = cluster.get("apps/v1", "Deployment", where["name"], where["namespace"])
    if operator is not None and REPLICAS in (operator["metadata"].get("annotations") or {}):
        raise NpuError(
            "The operator's Deployment %s/%s rests since a takeover, and nothing would wake it. Nothing was changed."
            % (where["namespace"], where["name"]),
            "Run with rbln_operands_state: present and rbln_operands_coexistence: restore, which removes what is ours and wakes it; or delete it first.",
        )


def owner_of(item: Data) -> str:
    """The kind of the operator's object that owns one; empty for none."""
    owners = [
        owner.get("kind", "")
        for owner in item["metadata"].get("ownerReferences") or []
        if str(owner.get("apiVersion", "")).startswith(GROUP + "/")
    ]
    return next((kind for kind in owners if kind in (POLICY, DRIVER)), "")


def _is_awake(cluster: Cluster, record: Data) -> bool:
    where = noted(record)
    operator = cluster.get("apps/v1", "Deployment", where["name"], where["namespace"])
    return operator is not None and int((operator.get("spec") or {}).get("replicas") or 0) > 0


def _kinds(cluster: Cluster, versions: t.Iterable[str]) -> dict[str, str]:
    """{kind: path of its list}, of the first version that has it."""
    found: dict[str, str] = {}
    for version in versions:
        path = "/apis/%s/%s" % (GROUP, version)
        for entry in (
            cluster.request("GET", path, "List the kinds of %s/%s" % (GROUP, version))[1].get("resources") or []
        ):
            if "/" not in entry["name"]:
                found.setdefault(entry.get("kind", ""), path + "/" + entry["name"])
    return found


def _list(cluster: Cluster, path: str | None, kind: str) -> list[Data]:
    return (cluster.request("GET", path, "List %s objects" % kind)[1].get("items") or []) if path else []


def _named(item: Data, kind: str) -> Data:
    return dict(item, kind=kind)


def decide(found: Found, inputs: Inputs) -> str:
    """What this run does: `normal`, `coexist`, `takeover` or `restore`. NpuError where the operator manages the cluster and no choice is made."""
    choice = inputs["coexistence"]
    if choice == RESTORE:
        return RESTORE
    if found.record is not None and not found.awake:
        # The operator rests since a takeover: what it managed is ours.
        return TAKEOVER if choice == TAKEOVER else NORMAL
    if not found.manages:
        return NORMAL
    if choice in (COEXIST, TAKEOVER):
        return str(choice)
    names = ", ".join(object_label(item) for item in (*found.policies, *found.drivers)[:5])
    raise NpuError(
        "The vendor's operator manages this cluster: %s. Nothing was changed." % names,
        "Set rbln_operands_coexistence to coexist (the hosts are ours, the components its), to takeover (it is put to rest, and can be woken by "
        "restore), or take the hosts out of this cluster's group.",
    )


def refuse_driver_conflict(found: Found, members: t.Iterable[t.Mapping[str, t.Any]]) -> dict[str, str]:
    """{host: error} of hosts whose driver the host part manages while the operator has a driver of its own for the cluster."""
    if not found.drivers:
        return {}
    names = ", ".join(object_label(item) for item in found.drivers)
    return {
        member["host"]: "The operator's %s manages drivers here, and the host part manages the driver of this host. "
        "Next: Delete the one, or set rbln_driver_source to preinstalled or container." % names
        for member in members
        if member.get("driver_managed")
    }


def coexist_notes(found: Found) -> list[str]:
    """What to look after where both work."""
    toolkits = [object_label(item) for item in found.daemon_sets if "toolkit" in item["metadata"]["name"]]
    if not toolkits:
        return []
    return [
        "%s of the operator writes the CDI specification of each node, as the host part does: switch one of the two off (rbln_container_toolkit_state, "
        "or the operator's containerToolkit.enabled)." % ", ".join(toolkits)
    ]
