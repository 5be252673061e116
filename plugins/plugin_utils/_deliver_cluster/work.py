# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole work on one cluster: look, label, apply, wait, or say what would change, or take everything away."""

from __future__ import annotations

import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._cluster.api import Cluster, Data
from .._cluster.capabilities import discover
from .._components.driver import is_wanted as driver_wanted
from .._components.pools import live_pools, missing_pool_labels
from .._components.render import build, left_out
from .._inputs.cluster import check_served
from .._inputs.policy_rules import COMPONENTS
from .._nodes.nodes import label_nodes, labelled_nodes, match_members, nodes_in_use, unlabel_nodes
from .._nodes.wait import Waiter
from .._objects.model import Capabilities, Context, Inputs, Object
from .apply import Applied, apply_objects, diff_objects, failure_text, summarise
from .operator import (
    COEXIST,
    RESTORE,
    TAKEOVER,
    Found,
    coexist_notes,
    decide,
    find_operator,
    refuse_driver_conflict,
    refuse_while_it_rests,
)
from .prune import remove_objects
from .status import write_status
from .takeover import Takeover


class ClusterWork:
    """One pass over one cluster. Each act gives the result of the task; `dry_run` asks the API server for dry runs, `show` tells differences."""

    def __init__(
        self, cluster: Cluster, inputs: Inputs, members: t.Sequence[Data], dry_run: bool, show: bool = True
    ) -> None:
        self._cluster, self._inputs, self._members, self._dry_run, self._show = cluster, inputs, members, dry_run, show

    def present(self) -> Data:
        """Label the nodes of the members, apply, and wait. A part that fails leaves what the earlier ones did in the result."""
        capabilities = self._look()
        found = find_operator(self._cluster, self._inputs, capabilities)
        decision = decide(found, self._inputs)
        if decision == COEXIST:
            return self._coexist(found)
        if decision == RESTORE:
            return self._restore(found, capabilities)
        takeover = Takeover(self._cluster, self._inputs, found, self._dry_run) if decision == TAKEOVER else None
        if takeover:
            takeover.check()
        result = self._labelled(True)
        try:
            objects, notes = self._objects(capabilities, result["nodes"])
            result["warnings"] += notes
            applied = Applied()
            try:
                apply_objects(
                    self._cluster, objects, self._inputs, capabilities, self._dry_run, takeover, self._show, applied
                )
            finally:
                self._add(result, applied.changes + (takeover.changes if takeover else []))
                result["warnings"] += applied.notes
                if applied.failures:
                    _fail(result, failure_text(applied.failures))
            result["warnings"] += takeover.notes() if takeover else []
            if self._inputs["wait"] and not self._dry_run:
                self._wait(result, objects, applied.failures)
        except NpuError as exc:
            _fail(result, str(exc))
        return dict(result, requests=self._cluster.requests)

    def _coexist(self, found: Found) -> Data:
        """Nothing is written: the components are the operator's, and that each node offers the NPUs of its host is proven all the same."""
        nodes = match_members(self._cluster, self._members)
        for host, error in refuse_driver_conflict(found, self._members).items():
            nodes[host]["error"] = error
        result: Data = {"changed": False, "nodes": nodes, "diff": [], "objects": {}, "warnings": coexist_notes(found)}
        if self._inputs["wait"] and not self._dry_run:
            only = {
                key: dict(value, enabled=key == "device_plugin")
                for key, value in self._inputs.items()
                if key in COMPONENTS
            }
            inputs = {**self._inputs, **only, "driver_instances": []}
            self._waited(result, Waiter(self._cluster, inputs, nodes, [], {}).run())
        return dict(result, requests=self._cluster.requests)

    def _restore(self, found: Found, capabilities: Capabilities) -> Data:
        """What is ours goes, and the operator wakes and makes its components again from its own objects."""
        takeover = Takeover(self._cluster, self._inputs, found, self._dry_run)
        # Where the operator manages and nothing is noted, what is ours is left of a restore that was cut off.
        if found.record is None and not found.manages:
            nodes = match_members(self._cluster, self._members)
            return {
                "changed": False,
                "nodes": nodes,
                "diff": [],
                "objects": {},
                "warnings": [],
                "requests": self._cluster.requests,
            }
        # Ours stay where nobody would come after them.
        takeover.sleeper()
        result = self._labelled(False)
        mine = {record["node"] for record in result["nodes"].values()}
        # A gate of ours on a node of another run would keep the operator's components off it.
        result["changed"] = bool(set(unlabel_nodes(self._cluster, self._dry_run)) - mine) or result["changed"]
        self._remove(result, capabilities, takeover)
        return dict(result, requests=self._cluster.requests)

    def _add(self, result: Data, changes: t.Sequence[Data]) -> None:
        summary = summarise(changes)
        result.update(objects=summary["objects"], changed=result["changed"] or summary["changed"])
        result["diff"] += summary["diff"] if self._show else []

    def diff(self) -> Data:
        """What `present` would change, field by field, labels of nodes included; nothing is written."""
        capabilities = self._look()
        decision = decide(find_operator(self._cluster, self._inputs, capabilities), self._inputs)
        if decision in (COEXIST, RESTORE):
            note = "rbln_operands_coexistence is %s: nothing is compared." % decision
            return {
                "changed": False,
                "nodes": {},
                "differences": [],
                "warnings": [note],
                "requests": self._cluster.requests,
            }
        labelled = self._labelled(True, dry_run=True)
        objects, notes = self._objects(capabilities, labelled["nodes"])
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
        """Take labels and objects away, or only the labels of the members' nodes while other nodes carry ours or have NPUs."""
        inputs, cluster = self._inputs, self._cluster
        capabilities = discover(cluster)
        mine = {record["node"] for record in match_members(cluster, self._members).values()}
        others = [name for name in nodes_in_use(cluster) if name not in mine]
        some = inputs["absent_scope"] == "hosts" or (inputs["absent_scope"] == "auto" and bool(others))
        if not some:
            refuse_while_it_rests(cluster, inputs)
        result = self._labelled(False)
        if some:
            if inputs["absent_scope"] == "auto":
                result["warnings"] += [
                    "The objects stay: %s still carry our labels, or have NPUs. Set rbln_operands_absent_scope to cluster to remove everything."
                    % ", ".join(others[:10])
                ]
            return dict(result, requests=cluster.requests)
        result["changed"] = bool(set(unlabel_nodes(cluster, self._dry_run)) - mine) or result["changed"]
        self._remove(result, capabilities, None)
        left = [] if self._dry_run or "failed" in result else labelled_nodes(cluster)
        if left:
            _fail(result, str(NpuError("The nodes %s still carry our labels." % ", ".join(left), "Run again.")))
        return dict(result, requests=cluster.requests)

    def _remove(self, result: Data, capabilities: Capabilities, takeover: Takeover | None) -> None:
        """Take the objects away; what was done is in the result also when an error ends it."""
        removed: list[Data] = []
        at_last = takeover.wake if takeover else lambda: None
        try:
            remove_objects(self._cluster, self._inputs, capabilities, self._dry_run, at_last, changes=removed)
        except NpuError as exc:
            _fail(result, str(exc))
        self._add(result, removed + (takeover.changes if takeover else []))

    def _look(self) -> Capabilities:
        capabilities = discover(self._cluster)
        check_served(self._inputs, capabilities)
        return capabilities

    def _objects(self, capabilities: Capabilities, labelled: t.Mapping[str, Data]) -> tuple[list[Object], list[str]]:
        """The objects of the cluster and what to warn of: from the inputs, and for a driver from the labels of all live nodes.

        `labelled` are the records of the members' nodes: without a write their labels are not on the live nodes yet.
        """
        records = {record["node"]: record for record in labelled.values() if record["changed"]}
        nodes = self._cluster.list("v1", "Node") if driver_wanted(self._inputs) else []
        nodes = [
            _as_labelled(node, records[node["metadata"]["name"]]) if node["metadata"]["name"] in records else node
            for node in nodes
        ]
        context = Context(self._inputs, capabilities, live_pools(nodes))
        unknown = missing_pool_labels(nodes)
        notes = left_out(context)
        if unknown:
            notes.append(
                "The nodes %s have an NPU and no label that tells their operating system and kernel: no driver is made for them. "
                "Next: Run the host part for them, or Node Feature Discovery." % ", ".join(unknown[:10])
            )
        return build(context), notes

    def _labelled(self, present: bool, dry_run: bool = False) -> Data:
        nodes = label_nodes(self._cluster, self._members, present, self._dry_run or dry_run)
        diff = [
            {
                "before": record["before"],
                "after": record["after"],
                "before_header": "Node " + record["node"],
                "after_header": "Node " + record["node"],
            }
            for record in nodes.values()
            if record["changed"]
        ]
        return {
            "changed": bool(diff),
            "nodes": nodes,
            "diff": diff,
            "warnings": [note for record in nodes.values() for note in record["notes"]],
        }

    def _wait(self, result: Data, objects: t.Sequence[Object], failures: t.Mapping[str, str]) -> None:
        waited = Waiter(self._cluster, self._inputs, result["nodes"], objects, failures).run()
        self._waited(result, waited)
        try:
            result["changed"] = write_status(self._cluster, self._inputs, waited) or result["changed"]
        except NpuError as exc:
            waited["problems"].append({"component": "", "node": "", "text": str(exc), "fatal": True})
            waited["ok"] = False
            _fail(result, str(exc))
        # Only the status needs the names of all nodes.
        del waited["nodes"], waited["judged"]

    @staticmethod
    def _waited(result: Data, waited: Data) -> None:
        result["waited"] = waited
        result["warnings"] += waited["warnings"]
        if "msg" not in result:
            found = "all is there" if waited["ok"] else "; ".join(problem["text"] for problem in waited["problems"])
            result["msg"] = "After %s s: %s" % (waited["seconds"], found)


def _fail(result: Data, reason: str) -> None:
    result.update(failed=True, msg=" | ".join(text for text in (result.get("msg"), reason) if text))


def _as_labelled(node: Data, record: Data) -> Data:
    """A node with the labels that a record says it has or is to get."""
    kept = {
        name: value for name, value in (node["metadata"].get("labels") or {}).items() if name not in record["before"]
    }
    return dict(node, metadata=dict(node["metadata"], labels={**kept, **record["after"]}))


def _label_fields(record: Data) -> list[Data]:
    before, after = record["before"], record["after"]
    return [
        {"path": "metadata.labels.%s" % name, "before": before.get(name), "after": after.get(name)}
        for name in sorted(set(before) | set(after))
        if before.get(name) != after.get(name)
    ]
