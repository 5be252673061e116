# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which node of a cluster a host is."""

from __future__ import annotations

import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._objects.names import INPUT

Node = t.Mapping[str, t.Any]


def _plain(identifier: t.Any) -> str:
    """A UUID or machine id in lower case without dashes; empty when it is unset or a filler (all 0 or all f)."""
    text = str(identifier or "").strip().lower().replace("-", "")
    return "" if set(text) <= {"0"} or set(text) <= {"f"} else text


def _swapped(identifier: str) -> str:
    """A system UUID with its first three groups in the other byte order: firmware and kernels disagree on it."""
    if len(identifier) != 32:
        return identifier
    return (
        "".join(
            "".join(reversed([part[index : index + 2] for index in range(0, len(part), 2)]))
            for part in (identifier[:8], identifier[8:12], identifier[12:16])
        )
        + identifier[16:]
    )


def _names(nodes: t.Iterable[Node]) -> list[str]:
    return sorted(str(node["metadata"]["name"]) for node in nodes)


def _by_identity(nodes: t.Sequence[Node], system_uuid: str, machine_id: str) -> list[Node]:
    uuids = {system_uuid, _swapped(system_uuid)} if system_uuid else set()
    found = []
    for node in nodes:
        info = (node.get("status") or {}).get("nodeInfo") or {}
        if _plain(info.get("systemUUID")) in uuids or (machine_id and _plain(info.get("machineID")) == machine_id):
            found.append(node)
    return found


def match_node(
    host: str,
    nodes: t.Sequence[Node],
    explicit: str = "",
    system_uuid: str | None = None,
    machine_id: str | None = None,
    kubelet_name: str | None = None,
) -> str:
    """The name of the node of `host`: by `explicit`, else by system UUID or machine id, else by the kubelet's name.

    `nodes` are Node objects of the API. Of several nodes with the host's identity (cloned machines) the kubelet's
    name decides. NpuError when no node or more than one fits.
    """
    remedy = f"Set {INPUT}node_name for {host}."
    if explicit:
        if explicit in _names(nodes):
            return explicit
        raise NpuError(
            f"{host}: the cluster has no node {explicit!r}, which {INPUT}node_name names.",
            f"Correct {INPUT}node_name; the nodes are: {', '.join(_names(nodes)[:20]) or 'none'}.",
        )
    found = _by_identity(nodes, _plain(system_uuid), _plain(machine_id))
    named = [node for node in nodes if kubelet_name and node["metadata"]["name"] == kubelet_name]
    if len(found) > 1 and named and named[0] in found:
        found = named
    if len(found) > 1:
        raise NpuError(
            "%s has the system UUID or machine id of %d nodes: %s." % (host, len(found), ", ".join(_names(found))),
            remedy,
        )
    if found:
        return _names(found)[0]
    if named:
        info = (named[0].get("status") or {}).get("nodeInfo") or {}
        theirs, ours = _plain(info.get("machineID")), _plain(machine_id)
        if theirs and ours and _plain(info.get("systemUUID")) and _plain(system_uuid):
            raise NpuError(
                "%s: the node %r has the kubelet's name of this host, but another system UUID and another machine id."
                % (host, kubelet_name),
                "It is another machine, or the node object is stale. %s" % remedy,
            )
        return str(kubelet_name)
    raise NpuError(
        "%s is not a node of the cluster: no node has its system UUID (%s), machine id (%s) or kubelet name (%s)."
        % (host, system_uuid or "unknown", machine_id or "unknown", kubelet_name or "unknown"),
        f"Join the host to the cluster, or check {INPUT}kubeconfig and {INPUT}kube_context. {remedy}",
    )
