# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The removal of an installation: its objects, then our bookkeeping, then its namespace."""

from __future__ import annotations

import time
import typing as t
from dataclasses import dataclass

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._cluster.api import KINDS, Cluster, Data
from .._cluster.lease import WriteLease
from .._objects.compare import Change, change, object_label
from .._objects.inputs import Inputs
from .._objects.model import Capabilities
from .inventory import Inventory, made_kinds, read_inventory
from .namespace import find_namespace, remove_namespace
from .ours import POD, is_foreign, is_kept, list_all, owners

Kinds = list[tuple[str, str]]
Clock = t.Callable[[], float]
Act = t.Callable[[], None]


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class _Found:
    """The objects that have our labels: those that are ours, and those that others made."""

    inventory: Inventory | None
    mine: list[Data]
    foreign: list[Data]


def remove_objects(
    cluster: Cluster,
    inputs: Inputs,
    capabilities: Capabilities,
    dry_run: bool,
    at_last: Act = _nothing,
    clock: Clock = time.monotonic,
    changes: list[Change] | None = None,
    notes: list[str] | None = None,
) -> list[Change]:
    """Delete what is ours and wait until it is gone; then the namespace, if we made it and it is empty.

    Ours is what carries our labels and is in the inventory, or all that carries them when there is no inventory. The
    answer is `changes`, which tells what was done also when an NpuError ends it. `at_last` is called when all
    components and their pods are gone, before our bookkeeping goes. `notes` gets the reason why a namespace of ours
    stays.
    """
    changes = [] if changes is None else changes
    namespace = find_namespace(cluster, inputs, alone=False)
    kinds = [key for key in made_kinds(capabilities) if namespace or not KINDS[key][2]]
    found = _find(cluster, inputs, kinds, namespace is not None)
    if dry_run:
        _try_removal(cluster, found, at_last, changes)
        if namespace:
            changes += remove_namespace(cluster, namespace, 0, clock, [] if notes is None else notes, found.mine)
        return changes
    end = clock() + inputs["wait_timeout"]
    watched = [*kinds, *([POD] if namespace else [])]
    if namespace and found.mine:
        lease = WriteLease(cluster, inputs)
        lease.take()
        try:
            # The former holder of the Lease may have made more.
            found = _find(cluster, inputs, kinds, True)
            _Removal(cluster, inputs, found, watched, end, clock, lease.check).run(at_last, changes)
        except BaseException:
            lease.give_up()
            raise
    else:
        _Removal(cluster, inputs, found, watched, end, clock, _nothing).run(at_last, changes)
    if namespace:
        changes += remove_namespace(cluster, namespace, end, clock, [] if notes is None else notes)
    return changes


def _find(cluster: Cluster, inputs: Inputs, kinds: Kinds, exists: bool) -> _Found:
    """Look for our objects; `exists` says whether the namespace is there."""
    inventory = read_inventory(cluster, inputs) if exists else None
    items = list_all(cluster, inputs["namespace"], kinds)
    return _Found(
        inventory,
        [item for item in items if not is_foreign(item, inventory)],
        [item for item in items if is_foreign(item, inventory)],
    )


def _try_removal(cluster: Cluster, found: _Found, at_last: Act, changes: list[Change]) -> None:
    """Ask the API server for dry runs of the whole removal."""
    changes += [change(item, "kept") for item in found.foreign]
    for item in found.mine:
        cluster.delete(item, True)
    at_last()
    changes += [change(item, "deleted", item, None) for item in found.mine if not is_kept(item)]


@dataclass(frozen=True)
class _Removal:
    """One removal.

    `check` keeps the Lease, which would expire before a long wait ends; `watched` are the kinds that must become empty.
    """

    cluster: Cluster
    inputs: Inputs
    found: _Found
    watched: Kinds
    end: float
    clock: Clock
    check: Act

    def run(self, at_last: Act, changes: list[Change]) -> None:
        """Delete the components, wait for their end, then delete our bookkeeping, the Lease last."""
        changes += [change(item, "kept") for item in self.found.foreign]
        for item in sorted(self.found.mine, key=lambda item: item["kind"] != "DaemonSet"):
            if not is_kept(item):
                self.check()
                self.cluster.delete(item, False)
                changes.append(change(item, "deleted", item, None))
        bookkeeping = self._wait()
        at_last()
        for item in sorted(bookkeeping, key=lambda item: item["kind"] == "Lease"):
            self.check()
            self.cluster.delete(item, False)

    def _wait(self) -> list[Data]:
        """Wait until only our bookkeeping is left, which is the answer; NpuError that names what is left otherwise.

        Only the kinds of what is left are looked at again, and all of them once more at the end.
        """
        looked = self.watched
        while True:
            self.check()
            left = self._left(looked)
            rest = [item for item in left if not is_kept(item)]
            if not rest and len(looked) == len(self.watched):
                return left
            if not rest:
                looked = self.watched
                continue
            if self.clock() > self.end:
                raise NpuError(
                    "After %d s these objects are still there: %s."
                    % (self.inputs["wait_timeout"], ", ".join(object_label(item) for item in rest[:10])),
                    "Look at their finalizers and at the kubelets of their nodes.",
                )
            some = ", ".join(object_label(item) for item in rest[:3])
            told = "%d objects are being deleted, %s: waiting, %d s are left"
            self.cluster.waits(told % (len(rest), some, self.end - self.clock()))
            names = {item["kind"] for item in rest}
            # The DaemonSets are needed to tell whose pods are left.
            looked = [kind for kind in self.watched if kind[1] in names or (kind[1] == "DaemonSet" and "Pod" in names)]
            time.sleep(1)

    def _left(self, kinds: Kinds) -> list[Data]:
        """What of ours is left: objects, and pods but those of a DaemonSet of others."""
        items = list_all(self.cluster, self.inputs["namespace"], kinds)
        pods = [item for item in items if item["kind"] == "Pod"]
        others = [item for item in items if item["kind"] != "Pod"]
        foreign = {item["metadata"].get("uid") for item in others if is_foreign(item, self.found.inventory)}
        return [
            *(item for item in others if not is_foreign(item, self.found.inventory)),
            *(pod for pod in pods if not owners(pod) & foreign),
        ]
