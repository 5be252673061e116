# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pools: nodes of one operating system and kernel, found by the labels of the live nodes or named by the inputs."""

from __future__ import annotations

import hashlib
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._npu.labels import label_value

from .._objects.inputs import Driver
from .._objects.model import PASSTHROUGH, Object, Pool, Terms
from .._objects.parts import (
    KERNEL_LABEL,
    NFD_LABELS,
    OS_ID_LABEL,
    OS_VERSION_LABEL,
    PRESENT_LABEL,
    SKIP_LABEL,
    WORKLOAD_LABEL,
)

# Labels of Node Feature Discovery, and our own, which a host writes on its node; both in the order of the fields of
# Pool.
NFD_POOL = (
    "feature.node.kubernetes.io/system-os_release.ID",
    "feature.node.kubernetes.io/system-os_release.VERSION_ID",
    "feature.node.kubernetes.io/kernel-version.full",
)
OUR_POOL = (OS_ID_LABEL, OS_VERSION_LABEL, KERNEL_LABEL)
# A DaemonSet's name and the hash of its pods' template must fit into a label value.
LONGEST = 52


def pool_of(labels: t.Mapping[str, str]) -> Pool | None:
    """The pool of a node, or None when no set of labels is complete.

    The discovery's labels count when they name a kernel: it looks again after a change of the kernel, when ours can be
    stale.
    """
    keys = NFD_POOL if NFD_POOL[2] in labels else OUR_POOL
    values = [labels.get(key) or "" for key in keys]
    return Pool(*values) if all(values) else None


def _takes_driver(node: Object) -> bool:
    labels = node["metadata"].get("labels") or {}
    present = any(labels.get(key) == "true" for key in (PRESENT_LABEL, *NFD_LABELS))
    return present and labels.get(SKIP_LABEL) != "true" and labels.get(WORKLOAD_LABEL) != PASSTHROUGH


def live_pools(nodes: t.Iterable[Object]) -> tuple[Pool, ...]:
    """The pools of all nodes that have an NPU for containers, each once and in order."""
    found = {pool_of(node["metadata"].get("labels") or {}) for node in nodes if _takes_driver(node)}
    return tuple(sorted((pool for pool in found if pool), key=lambda pool: (pool.os_id, pool.os_version, pool.kernel)))


def missing_pool_labels(nodes: t.Iterable[Object]) -> list[str]:
    """Nodes that have an NPU for containers and no complete set of labels, so that no driver can be chosen."""
    return sorted(
        node["metadata"]["name"]
        for node in nodes
        if _takes_driver(node) and pool_of(node["metadata"].get("labels") or {}) is None
    )


def wanted_pools(own: Driver, live: t.Iterable[Pool]) -> tuple[Pool, ...]:
    """The pools that a driver names and those of live nodes.

    A pool that is in both counts once, as the inputs write it.
    """
    named = [Pool(item["os_id"], item["os_version"], item["kernel"]) for item in own["pools"]]
    found: dict[tuple[str, ...], Pool] = {}
    for pool in (*named, *live):
        found.setdefault(label_values(pool), pool)
    return tuple(found[key] for key in sorted(found))


def label_values(pool: Pool) -> tuple[str, str, str]:
    """What the labels of a node of the pool say."""
    return label_value(pool.os_id), label_value(pool.os_version), label_value(pool.kernel)


def pool_terms(pool: Pool) -> Terms:
    """Two alternatives: the discovery's labels, or ours where it names no kernel. They exclude each other."""
    values = label_values(pool)
    nfd, ours = (
        [{"key": key, "operator": "In", "values": [value]} for key, value in zip(keys, values)]
        for keys in (NFD_POOL, OUR_POOL)
    )
    return [nfd, [*ours, {"key": NFD_POOL[2], "operator": "DoesNotExist"}]]


def pool_names(pools: t.Sequence[Pool]) -> dict[Pool, str]:
    """{pool: a part of an object's name}; pools whose names would be equal get a digest."""
    names = {pool: pool.key.replace("_", "-") for pool in pools}
    told = list(names.values())
    return {
        pool: name if told.count(name) == 1 else "%s-%s" % (name, _digest("/".join(label_values(pool))))
        for pool, name in names.items()
    }


def shortened(name: str, longest: int) -> str:
    """`name`, or as much of it as fits and a digest of the whole."""
    return name if len(name) <= longest else "%s-%s" % (name[: longest - 9].rstrip("-"), _digest(name))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:8]
