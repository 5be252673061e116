# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole work on one cluster: label, apply and wait; say what would change; or remove everything."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._cluster.api import Cluster, Data
from .._cluster.capabilities import discover
from .._components.driver import is_wanted as driver_wanted
from .._components.node_feature_rule import KIND
from .._components.pools import live_pools
from .._components.render import build, left_out
from .._inputs.cluster import check_served
from .._inputs.policy_rules import COMPONENTS
from .._nodes.nodes import Hosts, label_nodes, labelled_nodes, match_members, nodes_in_use, unlabel_nodes
from .._nodes.records import Member, Named, NodeRecord, Waited
from .._nodes.wait import Waiter
from .._objects.compare import Change, FieldChange, reduce_both
from .._objects.inputs import Inputs
from .._objects.model import Capabilities, Context, Object
from .._objects.names import OPERANDS
from .apply import Applied, apply_objects, failure_text, summarise
from .differences import Difference, diff_objects
from .discovered import join_records, ruled_labels, wait_for_discovery, wait_for_removal
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
from .remove import remove_objects
from .rollback import Rollback
from .status import write_status
from .takeover import Takeover

_NODE = "Node "


@dataclass
class _Done:
    """What was done so far.

    A part that fails adds its error, and what earlier parts did stays in the result of the task.
    """

    nodes: dict[str, NodeRecord]
    changed: bool = False
    diff: list[Data] = field(default_factory=list)
    objects: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    failed: bool = False
    waited: Waited | None = None
    features: list[str] = field(default_factory=list)
    brought: list[str] = field(default_factory=list)

    def fail(self, reason: str) -> None:
        self.failed = True
        self.texts.append(reason)

    def result(self, cluster: Cluster) -> Data:
        """The result of the task, with what the API server warned of."""
        self.warnings = list(dict.fromkeys([*self.warnings, *_heard(cluster)]))
        told: Data = {name: getattr(self, name) for name in ("changed", "nodes", "diff", "objects", "warnings")}
        if self.waited:
            # Only the status needs the names of all nodes.
            told["waited"] = {name: value for name, value in self.waited.items() if name not in ("nodes", "judged")}
        told.update({name: hosts for name in ("features", "brought") if (hosts := getattr(self, name))})
        if self.failed:
            told["failed"] = True
        if self.texts:
            told["msg"] = " | ".join(self.texts)
        return {**told, "requests": cluster.requests}


class ClusterWork:
    """One pass over one cluster.

    Each act gives the result of the task; `dry_run` asks for dry runs of the API server, `show` tells differences;
    `others` are the hosts of the cluster that are not of this run; `tell` shows a line while a wait goes on. `features`
    are the hosts from which the file of feature discovery had to be removed, each with why it was not, or empty text.
    """

    def __init__(
        self,
        cluster: Cluster,
        inputs: Inputs,
        members: t.Sequence[Member],
        dry_run: bool,
        show: bool = True,
        others: t.Sequence[Named] = (),
        tell: t.Callable[[str], None] = lambda line: None,
        features: t.Mapping[str, str] | None = None,
    ) -> None:
        self._tell, self._features = tell, features or {}
        self._cluster, self._inputs, self._members, self._dry_run, self._show = cluster, inputs, members, dry_run, show
        self._hosts = Hosts(members, others, inputs["require_node_proof"])

    def present(self) -> Data:
        """Bring the cluster to what is wanted, next to the vendor's operator or instead of it, as the inputs choose."""
        capabilities = self._look()
        found = find_operator(self._cluster, self._inputs, capabilities)
        decision = decide(found, self._inputs)
        if decision == COEXIST:
            done = self._coexist(found)
        elif decision == RESTORE:
            done = self._restore(found, capabilities)
        else:
            takeover = Takeover(self._cluster, self._inputs, found, self._dry_run) if decision == TAKEOVER else None
            done = self._bring(capabilities, takeover)
        return done.result(self._cluster)

    def diff(self) -> Data:
        """What `present` would change, field by field, labels of nodes included; nothing is written."""
        capabilities = self._look()
        decision = decide(find_operator(self._cluster, self._inputs, capabilities), self._inputs)
        if decision in (COEXIST, RESTORE):
            return self._compared({}, [], [f"{OPERANDS}coexistence is {decision}: nothing is compared."])
        labelled = self._labelled(True, dry_run=True)
        objects, notes = self._objects(capabilities, labelled.nodes)
        rollback = Rollback(self._cluster, self._inputs, labelled.nodes, True, self._tell)
        objects = rollback.prepare(objects)
        notes += [problem["text"] for problem in rollback.problems]
        differences = diff_objects(self._cluster, objects, self._inputs, capabilities)
        nodes = [_node_difference(record) for record in labelled.nodes.values() if record["changed"]]
        return self._compared(labelled.nodes, nodes + differences, labelled.warnings + notes)

    def absent(self) -> Data:
        """Remove labels and objects, or only the members' labels while other nodes carry ours or have NPUs."""
        scope = self._inputs["absent_scope"]
        capabilities = discover(self._cluster)
        mine = {record["node"] for record in match_members(self._cluster, self._hosts).values()}
        others = [name for name in nodes_in_use(self._cluster) if name not in mine]
        if scope == "hosts" or (scope == "auto" and others):
            done = self._labelled(False)
            if scope == "auto":
                names = ", ".join(others[:10])
                done.warnings.append(
                    f"The objects stay: {names} still carry our labels, or have NPUs. "
                    f"Set {OPERANDS}absent_scope to cluster to remove everything."
                )
        else:
            refuse_while_it_rests(self._cluster, self._inputs)
            done = self._labelled(False)
            self._unlabel_others(done, mine)
            self._remove(done, capabilities, None)
            left = [] if self._dry_run or done.failed else labelled_nodes(self._cluster)
            if left:
                done.fail(str(NpuError("The nodes %s still carry our labels." % ", ".join(left), "Run again.")))
        return done.result(self._cluster)

    def _bring(self, capabilities: Capabilities, takeover: Takeover | None) -> _Done:
        """Label the nodes of the members, apply, and wait."""
        if takeover:
            takeover.check()
        done = self._labelled(True, closed=() if self._dry_run else [member["host"] for member in self._members])
        done.features = self._end_discovery(done)
        if done.features and not self._dry_run:
            return done
        rollback = Rollback(self._cluster, self._inputs, done.nodes, self._dry_run, self._tell)
        try:
            objects, notes = self._objects(capabilities, done.nodes)
            done.warnings += notes
            objects = rollback.prepare(objects)
            failures = self._apply(done, objects, capabilities, takeover)
            if not self._dry_run:
                self._label_again(done, objects)
            done.warnings += takeover.notes() if takeover else []
            final = rollback.try_out(objects, failures)
            if final is not None:
                objects = final
                failures = {**failures, **self._apply(done, objects, capabilities, None)}
            if self._inputs["wait"] and not self._dry_run:
                self._wait(done, objects, failures, rollback)
            elif rollback.problems:
                done.fail(" | ".join(problem["text"] for problem in rollback.problems))
        except NpuError as exc:
            done.fail(str(exc))
        return done

    def _apply(
        self, done: _Done, objects: t.Sequence[Object], capabilities: Capabilities, takeover: Takeover | None
    ) -> dict[str, str]:
        """Apply, and return the components that failed; what was done is in `done` also when an error ends it."""
        applied = Applied()
        try:
            apply_objects(
                self._cluster, objects, self._inputs, capabilities, self._dry_run, takeover, self._show, applied
            )
        finally:
            self._add(done, applied.changes + (takeover.changes if takeover else []))
            done.warnings += applied.notes
            if applied.failures:
                done.fail(failure_text(applied.failures))
        return applied.failures

    def _coexist(self, found: Found) -> _Done:
        """Write nothing, because the components are the operator's; but prove that each node offers its NPUs."""
        done = _Done(match_members(self._cluster, self._hosts), warnings=coexist_notes(found))
        for host, error in refuse_driver_conflict(found, self._members).items():
            done.nodes[host]["error"] = error
        if self._inputs["wait"] and not self._dry_run:
            given: dict[str, t.Any] = dict(self._inputs)
            only = {key: {**given[key], "enabled": key == "device_plugin"} for key in COMPONENTS}
            inputs = t.cast(Inputs, {**given, **only, "driver_instances": []})
            self._waited(done, Waiter(self._cluster, inputs, done.nodes, [], {}, tell=self._tell).run())
        return done

    def _restore(self, found: Found, capabilities: Capabilities) -> _Done:
        """Remove what is ours, then wake the operator, which makes its components again from its own objects."""
        # An operator that manages without a record: an interrupted restore may have left objects of ours.
        if found.record is None and not found.manages:
            return _Done(match_members(self._cluster, self._hosts))
        takeover = Takeover(self._cluster, self._inputs, found, self._dry_run)
        # Before anything is removed: without the operator's Deployment nothing would replace our objects.
        takeover.sleeper()
        done = self._labelled(False)
        # A gate of ours on a node of another run would keep the operator's components off it.
        self._unlabel_others(done, {record["node"] for record in done.nodes.values()})
        self._remove(done, capabilities, takeover)
        return done

    def _unlabel_others(self, done: _Done, mine: t.Collection[str]) -> None:
        """Remove our labels from every node; those of `mine` have counted already."""
        done.changed = bool(set(unlabel_nodes(self._cluster, self._dry_run)).difference(mine)) or done.changed

    def _remove(self, done: _Done, capabilities: Capabilities, takeover: Takeover | None) -> None:
        """Remove the objects; what was done is in `done` also when an error ends it."""
        removed: list[Change] = []
        notes: list[str] = []
        at_last = takeover.wake if takeover else lambda: None
        try:
            remove_objects(
                self._cluster, self._inputs, capabilities, self._dry_run, at_last, changes=removed, notes=notes
            )
        except NpuError as exc:
            done.fail(str(exc))
        done.warnings += notes
        done.texts += notes
        self._add(done, removed + (takeover.changes if takeover else []))

    def _add(self, done: _Done, changes: t.Sequence[Change]) -> None:
        summary = summarise(changes)
        # Of two passes the first may have changed what the second found right.
        done.objects.update(
            (name, action)
            for name, action in summary["objects"].items()
            if action != "unchanged" or name not in done.objects
        )
        done.changed = done.changed or summary["changed"]
        for one in summary["diff"] if self._show else []:
            known = next((item for item in done.diff if item["before_header"] == one["before_header"]), None)
            if known is None:
                done.diff.append(one)
                continue
            both = reduce_both((known["before"], known["after"]), (one["before"], one["after"]))
            known["before"], known["after"] = both
            if not any(both):
                # The second pass has undone the first.
                done.diff.remove(known)

    def _look(self) -> Capabilities:
        capabilities = discover(self._cluster)
        check_served(self._inputs, capabilities)
        return capabilities

    def _objects(
        self, capabilities: Capabilities, labelled: t.Mapping[str, NodeRecord]
    ) -> tuple[list[Object], list[str]]:
        """The objects of the cluster and warnings: from the inputs, and for a driver from the labels of all live nodes.

        `labelled` are the records of the members' nodes: without a write their labels are not on the live nodes yet.
        """
        records = {record["node"]: record for record in labelled.values() if record["changed"]}
        nodes = self._cluster.list("v1", "Node") if driver_wanted(self._inputs) else []
        nodes = [
            _as_labelled(node, records[node["metadata"]["name"]]) if node["metadata"]["name"] in records else node
            for node in nodes
        ]
        pools, notes = live_pools(nodes)
        context = Context(self._inputs, capabilities, pools)
        return build(context), left_out(context) + notes

    def _end_discovery(self, done: _Done) -> list[str]:
        """The hosts with a file that feature discovery has left, once nothing writes it again.

        Only its host can remove it, so this pass ends here, and the next one is told how that went.
        """
        found = {host: record["node"] for host, record in done.nodes.items() if record["discovery"]}
        left = {host: node for host, node in found.items() if host not in self._features}
        if left and not self._dry_run:
            kept = wait_for_discovery(self._cluster, self._inputs, left.values())
            done.warnings += [
                "node %s: the pod of feature discovery does not end, and may write its file again. "
                "Next: Look at the kubelet of the node, then run again." % node
                for node in sorted(kept)
            ]
        return sorted(left)

    def _label_again(self, done: _Done, objects: t.Sequence[Object]) -> None:
        """After a source of labels has ended: wait until Node Feature Discovery has removed its labels, and set ours.

        What it removes it removes from us too.
        """
        unruled = any(name.startswith(KIND[1] + " ") and act == "deleted" for name, act in done.objects.items())
        if not self._features and (not unruled or self._inputs["feature_discovery"]["enabled"]):
            return
        failed = {host: why for host, why in self._features.items() if why}
        if self._inputs["wait"]:
            labels = {member["host"]: member["labels"] for member in self._members}
            wanted = {
                record["node"]: labels[host] or {}
                for host, record in done.nodes.items()
                if record["node"] and host not in failed
            }
            done.warnings += wait_for_removal(self._cluster, self._inputs, wanted, ruled_labels(objects))
        again = self._labelled(True, closed=failed)
        join_records(done.nodes, again.nodes, failed)
        stale = {note for record in done.nodes.values() for note in record["notes"]}
        done.warnings = [note for note in done.warnings if note not in stale] + again.warnings
        done.diff = _node_diff(again.nodes) + [one for one in done.diff if not one["before_header"].startswith(_NODE)]
        done.nodes, done.changed = again.nodes, done.changed or again.changed

    def _labelled(self, present: bool, dry_run: bool = False, closed: t.Collection[str] = ()) -> _Done:
        """Label the nodes of the members, or remove our labels from them.

        With the argument `dry_run` only the labels are asked for: it is no error that a host has proven nothing.
        """
        hosts = self._hosts
        if dry_run:
            hosts = hosts._replace(members=[t.cast(Member, {**one, "lacks_proof": False}) for one in hosts.members])
        nodes = label_nodes(self._cluster, hosts, present, self._dry_run or dry_run, closed)
        diff = _node_diff(nodes)
        notes = [note for record in nodes.values() for note in record["notes"]]
        return _Done(nodes, bool(diff), diff, warnings=notes)

    def _compared(
        self, nodes: dict[str, NodeRecord], differences: list[Difference], warnings: list[str]
    ) -> dict[str, t.Any]:
        return {
            "changed": False,
            "nodes": nodes,
            "differences": differences,
            "warnings": [*warnings, *_heard(self._cluster)],
            "requests": self._cluster.requests,
        }

    def _wait(
        self, done: _Done, objects: t.Sequence[Object], failures: t.Mapping[str, str], rollback: Rollback
    ) -> None:
        """Wait for the components and write the status; that it cannot be written is trouble of every host."""
        waited = Waiter(self._cluster, self._inputs, done.nodes, objects, failures, tell=self._tell).run()
        for problem in rollback.problems:
            waited["ok"] = False
            waited["problems"].insert(0, problem)
            waited["components"][problem["component"]]["text"] = problem["text"]
        self._waited(done, waited)
        if waited["ok"]:
            done.brought = [member["host"] for member in self._members if member["awaits_driver"]]
        try:
            # Like the inventory these only note a run: what they hold is known at its end, so they are no change.
            rollback.remember(objects, waited)
            write_status(self._cluster, self._inputs, waited)
        except NpuError as exc:
            waited["problems"].append({"component": "", "node": "", "text": str(exc), "fatal": True})
            waited["ok"] = False
            done.fail(str(exc))

    @staticmethod
    def _waited(done: _Done, waited: Waited) -> None:
        done.waited = waited
        done.warnings += waited["warnings"]
        if not done.texts:
            found = "all is there" if waited["ok"] else "; ".join(problem["text"] for problem in waited["problems"])
            done.texts.append("After %s s: %s" % (waited["seconds"], found))


def _heard(cluster: Cluster) -> list[str]:
    """What the API server warned of. That our pods are not what Pod Security asks for is known: they need more."""
    return [text for text in cluster.warnings if "would violate PodSecurity" not in text]


def _node_diff(nodes: t.Mapping[str, NodeRecord]) -> list[Data]:
    return [
        {
            "before": record["before"],
            "after": record["after"],
            "before_header": _NODE + record["node"],
            "after_header": _NODE + record["node"],
        }
        for record in nodes.values()
        if record["changed"]
    ]


def _as_labelled(node: Data, record: NodeRecord) -> Data:
    """A node with the labels that the record says it has or gets."""
    kept = {
        name: value for name, value in (node["metadata"].get("labels") or {}).items() if name not in record["before"]
    }
    return dict(node, metadata=dict(node["metadata"], labels={**kept, **record["after"]}))


def _node_difference(record: NodeRecord) -> Difference:
    before, after = record["before"], record["after"]
    fields: list[FieldChange] = [
        {"path": "metadata.labels.%s" % name, "before": before.get(name), "after": after.get(name)}
        for name in sorted(set(before) | set(after))
        if before.get(name) != after.get(name)
    ]
    return {"object": "Node " + record["node"], "action": "changed", "fields": fields, "error": ""}
