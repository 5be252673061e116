# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects into a cluster: list, compare, apply only what differs, prune what is ours and not wanted."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._cluster.api import ApiError, Cluster, Data
from .._cluster.lease import WriteLease
from .._components.registry import component_of, dependents
from .._objects.compare import change, differs, field_changes, finish, missing_paths, object_label, visible
from .._objects.model import Capabilities, Inputs
from .apply_plan import Plan, plan_changes, refuse_taken, taken_text
from .inventory import Inventory, Key, key_of, write_inventory
from .namespace import apply_namespace, find_namespace
from .prune import Stuck, is_going, wait_for_deletion
from .takeover import Takeover


@dataclass
class Applied:
    """`changes`: records {component, object, action, before, after, error}; `failures`: component to the reason; `notes`: what to warn of."""

    changes: list[Data] = field(default_factory=list)
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

    An object that the API refuses ends its component and those that need it; NpuError for what ends everything. Nothing is written and
    no Lease is taken when nothing differs. Objects come from declared variables and live labels only, so a limited run wants the same.
    A `takeover` begins and makes room for each component under the Lease; with `show` the records tell what differed. The answer is
    `applied`, which tells what was done also when an NpuError ends it.
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
            applied.changes.append(_record(item, apply_namespace(cluster, item, plan.namespace, dry_run)))
    writer = _Writer(cluster, objects, inputs, applied, takeover, show)
    due = takeover is not None and takeover.is_due({component_of(item) for item in objects})
    if takeover and dry_run:
        takeover.begin(lambda: None)
    if dry_run or not (plan.differs or due):
        writer.run(plan, lambda: None, True)
        return applied
    find_namespace(cluster, inputs)
    lease = WriteLease(cluster, inputs)
    lease.take()
    try:
        if takeover:
            takeover.begin(lease.check)
        writer.run(look(), lease.check, False)
    finally:
        lease.give_up()
    return applied


class _Writer:
    """One pass over the objects; `applied` gets what happened."""

    def __init__(
        self,
        cluster: Cluster,
        objects: t.Sequence[Data],
        inputs: Inputs,
        applied: Applied,
        takeover: Takeover | None,
        show: bool,
    ) -> None:
        self._cluster, self._inputs, self._applied, self._takeover, self._show = (
            cluster,
            inputs,
            applied,
            takeover,
            show,
        )
        self._begun: set[str] = set()
        self._objects = [item for item in objects if item["kind"] != "Namespace"]
        self._there: set[Key] = set()
        self._dropped: dict[Key, t.Any] = {}

    def run(self, plan: Plan, check: t.Callable[[], None], dry_run: bool) -> None:
        recorded = plan.inventory or Inventory()
        kept = {key_of(item) for item, _nodes in plan.kept}
        self._dropped = {key: paths for key, paths in recorded.dropped.items() if key in plan.wanted}
        everything = Inventory(
            recorded.keys | frozenset(plan.wanted) | {key_of(item) for item in plan.prune} | kept, dict(self._dropped)
        )
        if not dry_run and (plan.inventory is None or not everything.keys <= recorded.keys):
            check()
            write_inventory(self._cluster, self._inputs, everything)
        for item in self._objects:
            self._one(plan, item, check, dry_run)
        for item in plan.prune:
            if not self._delete(item, component_of(item), check, dry_run):
                self._there.add(key_of(item))
        for item in plan.legacy:
            self._delete(item, "driver", check, dry_run)
        self._tell(plan)
        exact = Inventory(
            frozenset(self._there | kept), {key: paths for key, paths in self._dropped.items() if key in self._there}
        )
        if not dry_run and exact != (everything if everything.keys != recorded.keys else recorded):
            check()
            write_inventory(self._cluster, self._inputs, exact)

    def _delete(self, item: Data, component: str, check: t.Callable[[], None], dry_run: bool) -> bool:
        """Whether the object was deleted: not when its component failed, and a refusal is a failure of the component."""
        if component in self._applied.failures:
            return False
        check()
        try:
            self._cluster.delete(item, dry_run)
        except ApiError as exc:
            if not component:
                raise
            self._applied.failures[component] = str(exc)
            self._applied.changes.append(_record(item, dict(change(item, "failed"), error=str(exc))))
            return False
        self._applied.changes.append(_record(item, change(item, "deleted", item, None, self._show)))
        return True

    def _tell(self, plan: Plan) -> None:
        for item, nodes in plan.kept:
            self._applied.changes.append(_record(item, change(item, "kept")))
            self._applied.notes.append(
                "%s stays, because its driver runs on %s. Next: Give these nodes another driver, or delete it by hand when they are free."
                % (object_label(item), ", ".join(nodes[:10]))
            )
        for item in plan.taken:
            self._applied.notes.append(
                "%s was made ours, because rbln_operands_force_conflicts is set." % taken_text(item)
            )
        for item in plan.strangers:
            self._applied.notes.append("%s has our labels and is not in the inventory: it stays." % object_label(item))

    def _one(self, plan: Plan, plain: Data, check: t.Callable[[], None], dry_run: bool) -> None:
        key, component = key_of(plain), component_of(plain)
        item, live = plan.wanted[key], plan.live.get(key)
        if live is not None:
            self._there.add(key)
        failures = self._applied.failures
        if component and component not in self._begun and component not in failures:
            self._begun.add(component)
            check()
            try:
                self._make_room(plan, component, check, dry_run)
            except NpuError as exc:
                self._fail(component, str(exc))
        if component in failures:
            record = dict(change(item, "not tried"), error=failures[component])
        elif key not in plan.write:
            record = change(item, "unchanged")
        elif plan.namespace is None and dry_run and item["metadata"].get("namespace"):
            record = change(item, "created", None, item, self._show)
        else:
            check()
            try:
                if live and is_going(live) and not dry_run:
                    wait_for_deletion(self._cluster, live, self._inputs["wait_timeout"], check)
                created, after = self._cluster.apply(item, self._inputs["force_conflicts"], dry_run)
            except (ApiError, Stuck) as exc:
                if not component:
                    raise
                if exc.status >= 500:
                    # The server may have done it all the same.
                    self._there.add(key)
                self._fail(component, str(exc))
                record = dict(change(item, "failed"), error=str(exc))
            else:
                self._there.add(key)
                record = finish(item, live, after, created, self._show)
                self._note_dropped(key, item, after)
        self._applied.changes.append(_record(item, record))

    def _make_room(self, plan: Plan, component: str, check: t.Callable[[], None], dry_run: bool) -> None:
        """What the component takes the place of goes, once the server would take its DaemonSets."""
        if self._takeover is None or not self._takeover.replaces(component):
            return
        for item in plan.wanted.values() if not dry_run else ():
            if item["kind"] == "DaemonSet" and component_of(item) == component and key_of(item) in plan.write:
                self._cluster.apply(item, self._inputs["force_conflicts"], True)
        self._takeover.make_room(component, check)

    def _fail(self, component: str, reason: str) -> None:
        """End a component and those of the wanted ones that need it."""
        self._applied.failures[component] = reason
        for other in sorted(dependents(component) & {component_of(item) for item in self._objects}):
            self._applied.failures.setdefault(other, "not tried, because it needs %s" % component)

    def _note_dropped(self, key: Key, item: Data, after: Data) -> None:
        paths = missing_paths(item, after)
        self._dropped.pop(key, None)
        if paths:
            self._dropped[key] = paths
            places = ", ".join(".".join(map(str, path)) for path in paths)
            self._applied.notes.append(
                "%s: the API server does not keep %s; a feature of this cluster is off." % (object_label(item), places)
            )


def _record(item: Data, record: Data) -> Data:
    return {"component": component_of(item), "error": "", **record}


def failure_text(failures: t.Mapping[str, str]) -> str:
    """One error for all components that failed."""
    return " | ".join("%s: %s" % pair for pair in failures.items())


def diff_objects(cluster: Cluster, objects: t.Sequence[Data], inputs: Inputs, capabilities: Capabilities) -> list[Data]:
    """What `apply_objects` would change, by dry runs of the API server: [{object, action, fields: [{path, before, after}]}]."""
    plan = plan_changes(cluster, objects, inputs, capabilities)
    found: list[Data] = []
    for plain in objects:
        key = key_of(plain)
        if key not in plan.write:
            continue
        live = plan.namespace if plain["kind"] == "Namespace" else plan.live.get(key)
        item = plan.wanted.get(key, plain)
        after, error = (
            item,
            "not made here: " + taken_text(live) if live in plan.taken and not inputs["force_conflicts"] else "",
        )
        if plain["metadata"].get("namespace") is None or plan.namespace is not None:
            try:
                after = _kept_by_server(cluster, item, inputs["force_conflicts"] or plain["kind"] == "Namespace")
            except ApiError as exc:
                error = str(exc)
        fields = field_changes(visible(live), visible(after)) if live else field_changes({}, visible(after))
        if live is not None and item["kind"] == "Secret" and live.get("data") != after.get("data"):
            fields = [*fields, {"path": "data", "before": "(hidden)", "after": "(hidden, and different)"}]
        if live is not None and not fields and not error and differs(live, after):
            fields = [{"path": "a secret value", "before": "(hidden)", "after": "(hidden, and different)"}]
        if fields or error or live is None:
            found.append(
                {
                    "object": object_label(item),
                    "action": "changed" if live else "created",
                    "fields": fields,
                    "error": error,
                }
            )
    found += [
        {"object": object_label(item), "action": "deleted", "fields": [], "error": ""}
        for item in (*plan.prune, *plan.legacy)
    ]
    return found


def _kept_by_server(cluster: Cluster, item: Data, force: bool) -> Data:
    """The object as the API server would keep it."""
    return cluster.apply(item, force, True)[1]


def summarise(changes: t.Sequence[Data]) -> dict[str, t.Any]:
    """{changed, objects: [label: action], diff} for a task result."""
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
