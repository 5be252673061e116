# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster where the vendor's operator runs: recognise it by what the API serves, and decide what this run may do."""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._cluster.api import Cluster, Data
from .._nodes.records import Member
from .._objects.compare import object_label
from .._objects.inputs import Inputs
from .._objects.model import Capabilities
from .._objects.names import DRIVER_KIND, INPUT, OPERANDS, OPERATOR, POLICY_KIND
from .._objects.parts import LABEL_PREFIX, object_name

POLICY, DRIVER = POLICY_KIND[1], DRIVER_KIND[1]
RECORD = "takeover"
# Annotation of the operator's Deployment: its replicas before it was scaled to 0.
REPLICAS = LABEL_PREFIX + "npu.replicas-before"
NORMAL, COEXIST, TAKEOVER, RESTORE = "normal", "coexist", "takeover", "restore"


class Noted(t.TypedDict):
    """The operator's Deployment as the record of a takeover names it."""

    namespace: str
    name: str
    replicas: int


@dataclass(frozen=True)
class Found:
    """What a cluster has of the operator: its objects, their DaemonSets, and our record of a takeover, if any.

    `awake` says that the operator of the record runs: the takeover was interrupted before it was scaled to 0, or it was
    scaled up again.
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
    """What there is of the operator. A missing right is an ApiError, because it does not mean that there is nothing."""
    versions = capabilities.groups.get(OPERATOR.group)
    record = None
    if versions is not None or inputs["coexistence"] in (TAKEOVER, RESTORE):
        record = cluster.get("v1", "ConfigMap", object_name(inputs, RECORD), inputs["namespace"])
    if versions is None:
        return Found((), (), (), record)
    awake = record is not None and _is_awake(cluster, record)
    paths = _list_paths(cluster, versions)
    policies, drivers = (tuple(_list(cluster, paths.get(kind, ""), kind)) for kind in (POLICY, DRIVER))
    sets: tuple[Data, ...] = ()
    if policies or drivers:
        sets = tuple(item for item in cluster.list("apps/v1", "DaemonSet") if owner_of(item))
    return Found(policies, drivers, sets, record, awake)


def noted(record: Data) -> Noted:
    """What a record of a takeover says; NpuError for one that is damaged."""
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
            f"Delete it and run with {OPERANDS}coexistence: takeover, which writes it again from the operator's "
            f"Deployment and its annotation {REPLICAS}.",
        ) from exc


def _text(value: t.Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("%r is not a name" % (value,))
    return value


def refuse_while_it_rests(cluster: Cluster, inputs: Inputs) -> None:
    """NpuError when a takeover has scaled the operator to 0: only the record knows the way back."""
    record = cluster.get("v1", "ConfigMap", object_name(inputs, RECORD), inputs["namespace"])
    if record is None:
        return
    where = noted(record)
    operator = cluster.get("apps/v1", "Deployment", where["name"], where["namespace"])
    if operator is not None and REPLICAS in (operator["metadata"].get("annotations") or {}):
        raise NpuError(
            "A takeover has scaled the operator's Deployment %s/%s to 0, and nothing would scale it up again. "
            "Nothing was changed." % (where["namespace"], where["name"]),
            f"Run with {OPERANDS}state: present and {OPERANDS}coexistence: restore, which removes what is ours and "
            "scales it up; or delete the Deployment first.",
        )


def owner_of(item: Data) -> str:
    """The kind of the operator's object that owns an object; empty for none."""
    owners = [
        owner.get("kind", "")
        for owner in item["metadata"].get("ownerReferences") or []
        if str(owner.get("apiVersion", "")).startswith(OPERATOR.group + "/")
    ]
    return next((kind for kind in owners if kind in (POLICY, DRIVER)), "")


def _is_awake(cluster: Cluster, record: Data) -> bool:
    where = noted(record)
    operator = cluster.get("apps/v1", "Deployment", where["name"], where["namespace"])
    return operator is not None and int((operator.get("spec") or {}).get("replicas") or 0) > 0


def _list_paths(cluster: Cluster, versions: t.Iterable[str]) -> dict[str, str]:
    """{kind: path of its list}, of the first version that has the kind."""
    found: dict[str, str] = {}
    for version in versions:
        group = "%s/%s" % (OPERATOR.group, version)
        answer = cluster.request("GET", "/apis/" + group, "List the kinds of " + group)[1]
        for entry in answer.get("resources") or []:
            if "/" not in entry["name"]:
                found.setdefault(entry.get("kind", ""), "/apis/%s/%s" % (group, entry["name"]))
    return found


def _list(cluster: Cluster, path: str, kind: str) -> list[Data]:
    """The objects of a kind; the items of a list do not name it themselves."""
    items = cluster.request("GET", path, "List %s objects" % kind)[1].get("items") or [] if path else []
    return [dict(item, kind=kind) for item in items]


def decide(found: Found, inputs: Inputs) -> str:
    """What this run does: `normal`, `coexist`, `takeover` or `restore`.

    NpuError when the operator manages the cluster and no choice is made.
    """
    choice = str(inputs["coexistence"])
    if choice == RESTORE:
        return RESTORE
    if found.record is not None and not found.awake:
        # The operator is scaled to 0 since a takeover: what it managed is ours.
        return TAKEOVER if choice == TAKEOVER else NORMAL
    if not found.manages:
        return NORMAL
    if choice in (COEXIST, TAKEOVER):
        return choice
    names = ", ".join(object_label(item) for item in (*found.policies, *found.drivers)[:5])
    raise NpuError(
        f"The vendor's operator manages this cluster: {names}. Nothing was changed.",
        f"Set {OPERANDS}coexistence to coexist (this collection manages the hosts, the operator its components) or "
        "to takeover (the operator is scaled to 0; restore brings it back), "
        "or take the hosts out of this cluster's group.",
    )


def refuse_driver_conflict(found: Found, members: t.Iterable[Member]) -> dict[str, str]:
    """{host: error} of hosts whose driver the host part manages while the operator manages drivers in the cluster."""
    if not found.drivers:
        return {}
    names = ", ".join(object_label(item) for item in found.drivers)
    error = (
        f"The operator's {names} manages drivers here, and the host part manages the driver of this host. "
        f"Next: Delete {names}, or set {INPUT}driver_source to preinstalled or container."
    )
    return {member["host"]: error for member in members if member.get("driver_managed")}


def coexist_notes(found: Found) -> list[str]:
    """Warnings about what both write."""
    toolkits = [object_label(item) for item in found.daemon_sets if "toolkit" in item["metadata"]["name"]]
    if not toolkits:
        return []
    return [
        f"{', '.join(toolkits)} of the operator writes the CDI specification of each node, as the host part does. "
        "Next: Set containerToolkit.enabled of the operator to false, or run site with --skip-tags toolkit."
    ]
