# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole work on one cluster: look, label, apply, wait, or say what would change, or take everything away."""

from __future__ import annotations

import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._model import NpuError

from ._apply import apply_objects, diff_objects, failure_text, summarise
from ._capabilities import discover
from ._cluster import Cluster, Data
from ._component_driver import is_wanted as driver_wanted
from ._model_cluster import Capabilities, Context, Inputs, Object
from ._nodes import label_nodes, labelled_nodes, unlabel_nodes
from ._operands import check_served
from ._pools import live_pools, missing_pool_labels
from ._prune import remove_objects
from ._render import build
from ._waiter import Waiter


class ClusterWork:
    """One pass over one cluster. Each act gives the result of the task; `dry_run` asks the API server for dry runs."""

    def __init__(self, cluster: Cluster, inputs: Inputs, members: t.Sequence[Data], dry_run: bool) -> None:
        self._cluster, self._inputs, self._members, self._dry_run = cluster, inputs, members, dry_run

    def present(self) -> Data:
        """Label the nodes of the members, apply, and wait. A part that fails leaves what the earlier ones did in the result."""
        capabilities = self._look()
        result = self._labelled(True)
        try:
            objects, notes = self._objects(capabilities)
            applied = apply_objects(self._cluster, objects, self._inputs, capabilities, self._dry_run)
            summary = summarise(applied.changes)
            result.update(objects=summary["objects"], changed=result["changed"] or summary["changed"], diff=result["diff"] + summary["diff"])
            result["warnings"] += notes + applied.notes
            if applied.failures:
                result.update(failed=True, msg=failure_text(applied.failures))
            if self._inputs["wait"] and not self._dry_run:
                self._wait(result, objects, applied.failures)
        except NpuError as exc:
            result.update(failed=True, msg=str(exc))
        return dict(result, requests=self._cluster.requests)

    def diff(self) -> Data:
        """What `present` would change, field by field, labels of nodes included; nothing is written."""
        capabilities = self._look()
        labelled = self._labelled(True, dry_run=True)
        objects, notes = self._objects(capabilities)
        differences = diff_objects(self._cluster, objects, self._inputs, capabilities)
        nodes = [
            {"object": "Node " + record["node"], "action": "changed", "fields": _label_fields(record), "error": ""}
            for record in labelled["nodes"].values()
            if record["changed"]
        ]
        return {
            "changed": False,
            "nodes": labelled["nodes"],
            "differences": nodes + differences,
            "warnings": labelled["warnings"] + notes,
            "requests": self._cluster.requests,
        }

    def absent(self) -> Data:
        """Take labels and objects away, or only the labels of the members' nodes while other nodes carry ours."""
        inputs, cluster = self._inputs, self._cluster
        capabilities = discover(cluster)
        result = self._labelled(False)
        mine = {record["node"] for record in result["nodes"].values()}
        others = [name for name in labelled_nodes(cluster) if name not in mine]
        if inputs["absent_scope"] == "hosts" or (inputs["absent_scope"] == "auto" and others):
            if inputs["absent_scope"] == "auto":
                result["warnings"] += [
                    "The objects stay: %s still carry our labels. Set rbln_operands_absent_scope to cluster to remove everything." % ", ".join(others[:10])
                ]
            return dict(result, requests=cluster.requests)
        unlabelled = unlabel_nodes(cluster, self._dry_run)
        removed = summarise(remove_objects(cluster, inputs, capabilities, self._dry_run))
        if not self._dry_run and labelled_nodes(cluster):
            raise NpuError("The nodes %s still carry our labels." % ", ".join(labelled_nodes(cluster)), "Run again.")
        removed["changed"] = removed["changed"] or result["changed"] or bool(set(unlabelled) - mine)
        removed["diff"] = result["diff"] + removed["diff"]
        return dict(result, **removed, requests=cluster.requests)

    def _look(self) -> Capabilities:
        capabilities = discover(self._cluster)
        check_served(self._inputs, capabilities)
        return capabilities

    def _objects(self, capabilities: Capabilities) -> tuple[list[Object], list[str]]:
        """The objects of the cluster and what to warn of: from the inputs, and for a driver from the labels of all live nodes."""
        if not driver_wanted(self._inputs):
            return build(Context(self._inputs, capabilities)), []
        nodes = self._cluster.list("v1", "Node")
        unknown = missing_pool_labels(nodes)
        notes = []
        if unknown:
            notes.append(
                "The nodes %s have an NPU and no label that tells their operating system and kernel: no driver is made for them. "
                "Next: Run the host part for them, or Node Feature Discovery." % ", ".join(unknown[:10])
            )
        return build(Context(self._inputs, capabilities, live_pools(nodes))), notes

    def _labelled(self, present: bool, dry_run: bool = False) -> Data:
        nodes = label_nodes(self._cluster, self._members, present, self._dry_run or dry_run)
        diff = [
            {"before": record["before"], "after": record["after"], "before_header": "Node " + record["node"], "after_header": "Node " + record["node"]}
            for record in nodes.values()
            if record["changed"]
        ]
        return {"changed": bool(diff), "nodes": nodes, "diff": diff, "warnings": [note for record in nodes.values() for note in record["notes"]]}

    def _wait(self, result: Data, objects: t.Sequence[Object], failures: t.Mapping[str, str]) -> None:
        waited = Waiter(self._cluster, self._inputs, result["nodes"], objects, failures).run()
        result["waited"] = waited
        result["warnings"] += waited["warnings"]
        if "msg" not in result:
            found = "all is there" if waited["ok"] else "; ".join(problem["text"] for problem in waited["problems"])
            result["msg"] = "After %s s: %s" % (waited["seconds"], found)


def _label_fields(record: Data) -> list[Data]:
    before, after = record["before"], record["after"]
    return [
        {"path": "metadata.labels.%s" % name, "before": before.get(name), "after": after.get(name)}
        for name in sorted(set(before) | set(after))
        if before.get(name) != after.get(name)
    ]
