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
from .._text.line import line

# Labels of Node Feature Discovery, and our own, which a host writes on its node; both in the order of the fields of
# Pool.
NFD_POOL = (
    "feature.node.kubernetes.io/system-os_release.ID",
    "feature.node.kubernetes.io/system-os_release.VERSION_ID",
    "feature.node.kubernetes.io/kernel-version.full",
)
OUR_POOL = (OS_ID_LABEL, OS_VERSION_LABEL, KERNEL_LABEL)
# Longest value of each of these labels: what is longer was not read from a host.
LONGEST_VALUES = (32, 32, 63)
# More pools than these come from wrong labels; each is a DaemonSet for each driver.
MOST_POOLS = 100
# Nodes or pools that one warning names.
MOST_NAMED = 10
# A DaemonSet's name and the hash of its pods' template must fit into a label value.
LONGEST = 52


def _labels(node: Object) -> t.Mapping[str, t.Any]:
    return node["metadata"].get("labels") or {}


def pool_of(labels: t.Mapping[str, t.Any]) -> Pool | None:
    """The pool of a node, or None when no set of labels is complete.

    The discovery's labels count when they name a kernel: it looks again after a change of the kernel, when ours can be
    stale.
    """
    values = [labels.get(key) or "" for key in _keys(labels)]
    return Pool(*values) if all(values) else None


def _keys(labels: t.Mapping[str, t.Any]) -> tuple[str, ...]:
    return NFD_POOL if NFD_POOL[2] in labels else OUR_POOL


def _bad_label(labels: t.Mapping[str, t.Any]) -> str:
    """The label, as key=value, that names no operating system or kernel; empty when all are good."""
    for key, longest in zip(_keys(labels), LONGEST_VALUES):
        value = labels.get(key) or ""
        if not isinstance(value, str) or len(value) > longest or label_value(value) != value:
            return "%s=%s" % (key, line(value, 100))
    return ""


def has_npu(labels: t.Mapping[str, t.Any]) -> bool:
    """Whether the labels of a node say that it has an NPU."""
    return any(labels.get(key) == "true" for key in (PRESENT_LABEL, *NFD_LABELS))


def _takes_driver(node: Object) -> bool:
    labels = _labels(node)
    return has_npu(labels) and labels.get(SKIP_LABEL) != "true" and labels.get(WORKLOAD_LABEL) != PASSTHROUGH


def live_pools(nodes: t.Iterable[Object]) -> tuple[tuple[Pool, ...], list[str]]:
    """(the pools of all nodes that have an NPU for containers, warnings).

    The pool with the most nodes comes first, then the one whose first node is the oldest: a kubelet can give its own
    node any label, and must not push a pool of others aside. A node with a bad label is left out, and so are the last
    pools when there are more than MOST_POOLS.
    """
    found: dict[Pool, list[str]] = {}
    bad, unknown = [], []
    for node in sorted(filter(_takes_driver, nodes), key=lambda node: str(node["metadata"]["name"])):
        labels, name = _labels(node), str(node["metadata"]["name"])
        pool, wrong = pool_of(labels), _bad_label(labels)
        if wrong:
            bad.append("%s (%s)" % (name, wrong))
        elif pool:
            found.setdefault(pool, []).append(str(node["metadata"].get("creationTimestamp") or ""))
        else:
            unknown.append(name)
    ranked = sorted(found, key=lambda pool: (-len(found[pool]), min(found[pool]), label_values(pool)))
    notes = []
    if bad:
        notes.append(
            "No driver is made for the pools of %s: the label is not the name of a system or kernel. "
            "Next: Find out who set it, and remove it." % _some(bad)
        )
    if unknown:
        notes.append(
            "The nodes %s have an NPU and no label with their operating system and kernel: "
            "no driver is made for them. Next: Run the host part for them, or Node Feature Discovery." % _some(unknown)
        )
    if len(ranked) > MOST_POOLS:
        notes.append(
            "The labels of the nodes name %d pools, and drivers are made for the %d with the most nodes. "
            "Without one: %s. Next: Correct the labels, or name the pools in the inputs of the driver."
            % (len(ranked), MOST_POOLS, _some(["/".join(label_values(pool)) for pool in ranked[MOST_POOLS:]]))
        )
    return tuple(ranked[:MOST_POOLS]), notes


def _some(names: t.Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (" and %d more" % more if more > 0 else "")


def wanted_pools(own: Driver, live: t.Iterable[Pool]) -> tuple[Pool, ...]:
    """The pools that a driver names, then those of live nodes in their order.

    A pool that is in both counts once, as the inputs write it.
    """
    found: dict[tuple[str, ...], Pool] = {}
    for pool in (*named_pools(own), *live):
        found.setdefault(label_values(pool), pool)
    return tuple(found.values())


def named_pools(own: Driver) -> tuple[Pool, ...]:
    """The pools that the inputs of a driver name."""
    return tuple(Pool(item["os_id"], item["os_version"], item["kernel"]) for item in own["pools"])


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
    """{pool: a part of an object's name}; of pools whose names would be equal all but the first get a digest."""
    names: dict[Pool, str] = {}
    for pool in pools:
        name = pool.key.replace("_", "-")
        names[pool] = "%s-%s" % (name, _digest("/".join(label_values(pool)))) if name in names.values() else name
    return names


def shortened(name: str, longest: int) -> str:
    """`name`, or as much of it as fits and a digest of the whole."""
    return name if len(name) <= longest else "%s-%s" % (name[: longest - 9].rstrip("-"), _digest(name))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:8]
