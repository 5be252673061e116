# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects into a cluster: apply only what differs, then delete what is ours and no longer wanted."""

from __future__ import annotations

import time
import typing as t
from dataclasses import dataclass, field

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._cluster.api import ApiError, Cluster, Data
from .._cluster.lease import WriteLease
from .._components.registry import component_of, dependents
from .._objects.compare import Change, change, finish, object_label
from .._objects.inputs import Inputs
from .._objects.model import Capabilities
from .._objects.names import OPERANDS
from .apply_plan import Plan, plan_changes, refuse_taken, taken_text
from .inventory import Inventory, Key, key_of, write_inventory
from .namespace import apply_namespace, find_namespace, kept_notes, selector_notes
from .ours import is_going, list_named
from .settled import Settled, settle, settled_notes
from .takeover import Takeover

Act = t.Callable[[], None]


class Stuck(NpuError):
    """An object whose deletion does not end. Its `status` is no answer of the API."""

    status = 0


@dataclass
class Applied:
    """What happened to each object; `failures` maps a component to the reason of its failure; `notes` are warnings."""

    changes: list[Change] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def apply_objects(
    cluster: Cluster,
    objects: t.Sequence[Data],
    inputs: Inputs,
    capabilities: Capabilities,
    dry_run: bool,
    takeover: Takeover | None = None,
    show: bool = True,
    applied: Applied | None = None,
) -> Applied:
    """Bring the cluster to `objects`, in their order, then delete what is no longer wanted.

    An object that the API refuses ends its component and those that need it; NpuError for what ends everything. Nothing
    is written and no Lease is taken when nothing differs. Objects come from declared variables and live labels only, so
    a limited run wants the same. A `takeover` begins and makes room for each component under the Lease; with `show` the
    records tell what differed. The answer is `applied`, which tells what was done also when an NpuError ends it.
    """

    def look() -> Plan:
        found = plan_changes(cluster, objects, inputs, capabilities)
        if not inputs["force_conflicts"]:
            refuse_taken(found)
        return found

    plan = look()
    applied = Applied() if applied is None else applied
    for item in objects:
        if item["kind"] == "Namespace":
            applied.notes += selector_notes(cluster, item, plan.namespace)
            write = key_of(item) in plan.write
            applied.notes += [] if write else kept_notes(item, plan.namespace)
            applied.changes.append(apply_namespace(cluster, item, plan.namespace, dry_run, write))
    due = takeover is not None and takeover.is_due({component_of(item) for item in objects})
    if takeover and dry_run:
        takeover.begin(_nothing)
    if dry_run or not (plan.differs or due):
        # Without differences nothing is written either: this only records that each object is unchanged.
        _Pass(cluster, inputs, plan, applied, takeover, show, True, _nothing).run(objects)
        return applied
    find_namespace(cluster, inputs)
    lease = WriteLease(cluster, inputs)
    lease.take()
    try:
        if takeover:
            takeover.begin(lease.check)
        # The former holder of the Lease may have written: look again.
        _Pass(cluster, inputs, look(), applied, takeover, show, False, lease.check).run(objects)
    finally:
        lease.give_up()
    return applied


def _nothing() -> None:
    pass


@dataclass
class _Pass:
    """One pass over the objects of a plan. `check` keeps the Lease before each write; `applied` gets what happened.

    `begun` are components whose first object was reached, `there` the objects that are in the cluster, `settled` what
    the cluster made of some of them.
    """

    cluster: Cluster
    inputs: Inputs
    plan: Plan
    applied: Applied
    takeover: Takeover | None
    show: bool
    dry_run: bool
    check: Act
    begun: set[str] = field(default_factory=set)
    there: set[Key] = field(default_factory=set)
    settled: dict[Key, Settled] = field(default_factory=dict)

    def run(self, objects: t.Sequence[Data]) -> None:
        """Record what will be ours, apply, prune, and record what is ours now."""
        own = [item for item in objects if item["kind"] != "Namespace"]
        components = {component_of(item) for item in own}
        noted = self._note_before()
        for item in own:
            self._one(item, components)
        for item in self.plan.prune:
            if not self._delete(item, component_of(item)):
                self.there.add(key_of(item))
        for item in self.plan.legacy:
            self._delete(item, "driver")
        self._tell()
        self._note_after(noted)

    def _note_before(self) -> Inventory:
        """Record everything that will be ours before it is made, so that a run that dies leaves nothing unknown."""
        plan = self.plan
        recorded = plan.inventory or Inventory()
        self.settled = dict(plan.settled)
        pruned = {key_of(item) for item in plan.prune}
        everything = Inventory(recorded.keys | frozenset(plan.wanted) | pruned | plan.kept_keys, dict(self.settled))
        if not self.dry_run and (plan.inventory is None or not everything.keys <= recorded.keys):
            self.check()
            write_inventory(self.cluster, self.inputs, everything)
            return everything
        return recorded

    def _note_after(self, noted: Inventory) -> None:
        """Record what is ours now, when that differs from what was noted."""
        there = frozenset(self.there)
        exact = Inventory(
            there | self.plan.kept_keys, {key: record for key, record in self.settled.items() if key in there}
        )
        if not self.dry_run and exact != noted:
            self.check()
            write_inventory(self.cluster, self.inputs, exact)

    def _record(self, item: Data, record: Change, error: str = "") -> None:
        self.applied.changes.append({**record, "component": component_of(item), "error": error})

    def _delete(self, item: Data, component: str) -> bool:
        """Whether the object was deleted: not when its component failed. A refusal fails the component."""
        if component in self.applied.failures:
            return False
        self.check()
        try:
            self.cluster.delete(item, self.dry_run)
        except ApiError as exc:
            if not component:
                raise
            self.applied.failures[component] = str(exc)
            self._record(item, change(item, "failed"), str(exc))
            return False
        self._record(item, change(item, "deleted", item, None, self.show))
        return True

    def _tell(self) -> None:
        """Warn about what stays, what was made ours, and what others made with our labels."""
        for item, nodes in self.plan.kept:
            self._record(item, change(item, "kept"))
            self.applied.notes.append(
                "%s stays: its driver runs on %s. "
                "Next: Give these nodes another driver, or delete it by hand when they are free."
                % (object_label(item), ", ".join(nodes[:10]))
            )
        for item in self.plan.taken:
            self.applied.notes.append(f"{taken_text(item)} is ours now, because {OPERANDS}force_conflicts is set.")
        for item in self.plan.strangers:
            self.applied.notes.append(f"{object_label(item)} has our labels and is not in the inventory: it stays.")

    def _one(self, plain: Data, components: t.Collection[str]) -> None:
        """Bring one object to its wanted form, or record why it was not tried."""
        key, component = key_of(plain), component_of(plain)
        item, live = self.plan.wanted[key], self.plan.live.get(key)
        if live is not None:
            self.there.add(key)
        self._begin(component, components)
        failure = self.applied.failures.get(component)
        if failure is not None:
            self._record(item, change(item, "not tried"), failure)
        elif key not in self.plan.write:
            self._record(item, change(item, "unchanged"))
        elif self.plan.namespace is None and self.dry_run and item["metadata"].get("namespace"):
            # The API server refuses a dry run in a namespace that does not exist yet.
            self._record(item, change(item, "created", None, item, self.show))
        else:
            self._apply(item, live, component, components)

    def _begin(self, component: str, components: t.Collection[str]) -> None:
        """Before the first object of a component: make room for it."""
        if not component or component in self.begun or component in self.applied.failures:
            return
        self.begun.add(component)
        self.check()
        try:
            self._make_room(component)
        except NpuError as exc:
            self._fail(component, str(exc), components)

    def _apply(self, item: Data, live: Data | None, component: str, components: t.Collection[str]) -> None:
        key = key_of(item)
        self.check()
        try:
            if live is not None and is_going(live) and not self.dry_run:
                wait_for_deletion(self.cluster, live, self.inputs["wait_timeout"], self.check)
            created, after = self.cluster.apply(item, self.inputs["force_conflicts"], self.dry_run)
        except (ApiError, Stuck) as exc:
            if not component:
                raise
            if exc.status >= 500:
                # The server may have applied it in spite of its error.
                self.there.add(key)
            self._fail(component, str(exc), components)
            self._record(item, change(item, "failed"), str(exc))
            return
        self.there.add(key)
        self._record(item, finish(item, live, after, created, self.show))
        self._note_settled(key, item, after)

    def _make_room(self, component: str) -> None:
        """Delete what a takeover replaces, but only when the server would accept the DaemonSets of the component."""
        if self.takeover is None or not self.takeover.replaces(component):
            return
        for item in self.plan.wanted.values() if not self.dry_run else ():
            if item["kind"] == "DaemonSet" and component_of(item) == component and key_of(item) in self.plan.write:
                self.cluster.apply(item, self.inputs["force_conflicts"], True)
        self.takeover.make_room(component, self.check)

    def _fail(self, component: str, reason: str, components: t.Collection[str]) -> None:
        """End a component and those of the wanted ones that need it."""
        self.applied.failures[component] = reason
        for other in sorted(dependents(component).intersection(components)):
            self.applied.failures.setdefault(other, "not tried, because it needs %s" % component)

    def _note_settled(self, key: Key, item: Data, after: Data) -> None:
        """Record what the cluster made of an object, and tell it when that is new."""
        before, record = self.settled.pop(key, None), settle(item, after, self.plan.served)
        if record:
            self.settled[key] = record
        if record and (before is None or before.fields != record.fields):
            self.applied.notes += settled_notes(item, after)


def wait_for_deletion(
    cluster: Cluster, item: Data, timeout: float, check: Act, clock: t.Callable[[], float] = time.monotonic
) -> None:
    """Wait until an object that is being deleted is gone, because an apply to it would be lost.

    `check` keeps the Lease.
    """
    end = clock() + timeout
    while any(live["metadata"].get("uid") == item["metadata"].get("uid") for live in list_named(cluster, key_of(item))):
        if clock() > end:
            finalizers = ", ".join(item["metadata"].get("finalizers") or []) or "none"
            raise Stuck(
                "%s is being deleted and is still there after %d s (finalizers: %s)."
                % (object_label(item), timeout, finalizers),
                "Find out what has to remove the finalizers, then run again.",
            )
        cluster.waits("%s is being deleted: waiting, at most %d s" % (object_label(item), timeout))
        time.sleep(1)
        check()


def failure_text(failures: t.Mapping[str, str]) -> str:
    """One error for all components that failed."""
    return " | ".join("%s: %s" % pair for pair in failures.items())


class Summary(t.TypedDict):
    """The part of a task result that tells of objects: {label: action}, and a diff for each that changed."""

    changed: bool
    objects: dict[str, str]
    diff: list[Data]


def summarise(changes: t.Sequence[Change]) -> Summary:
    """The changes as a task result tells them."""
    different = [one for one in changes if one["action"] not in ("unchanged", "kept", "failed", "not tried")]
    return {
        "changed": bool(different),
        "objects": {one["object"]: one["action"] for one in changes},
        "diff": [
            {
                "before": one["before"],
                "after": one["after"],
                "before_header": one["object"],
                "after_header": "%s (%s)" % (one["object"], one["action"]),
            }
            for one in different
        ],
    }
