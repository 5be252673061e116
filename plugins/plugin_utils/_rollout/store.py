# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of a rollout in its cluster, and one look at record and nodes that all processes of a run share."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import platform
import random
import time
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._cluster.api import ApiError, Cluster, Data
from .._cluster.lease import WriteLease
from .._components.pools import pool_of
from .._deliver_cluster.namespace import CREATED
from .._nodes.marks import is_cordoned, is_ours
from .._nodes.readiness import node_ready
from .._nodes.taints import leaving
from .._objects.inputs import Inputs
from .._objects.parts import metadata, object_name
from . import states
from .outage import Clock, Sleep, is_passing, patiently
from .record import Record, from_json, to_json
from .view import NodeView

T = t.TypeVar("T")
COMPONENT = "rollout"
KEY = "run"
# Seconds for which a look at the cluster is good for every process of the run.
TICK = 10.0
# How often other controllers may write the record between our look and our write.
TRIES = 40


@dataclass(frozen=True)
class Look:
    """What a cluster says: the record, `held` by a person (empty, or a word), what they approved, the nodes."""

    record: Record | None
    held: str
    approved: str
    nodes: tuple[NodeView, ...]


class RunStore:
    """The ConfigMap of the run. `folder` is private to this run and shared by its processes; empty for none.

    `held` and `approved` are those of the last record that was read.
    """

    def __init__(
        self,
        cluster: Cluster,
        inputs: Inputs,
        folder: str = "",
        clock: Clock = time.monotonic,
        sleep: Sleep = time.sleep,
    ) -> None:
        self._cluster, self._inputs = cluster, inputs
        self._clock, self._sleep = clock, sleep
        self._name, self._namespace = object_name(inputs, COMPONENT), inputs["namespace"]
        self._path = cluster.path("v1", "ConfigMap", self._namespace)
        known = [str(inputs.get(key)) for key in ("kubeconfig", "context", "namespace", "name_prefix")]
        digest = hashlib.sha256("\0".join(known).encode()).hexdigest()[:16]
        self._file = os.path.join(folder, "rollout-%s" % digest) if folder else ""
        # What was kept, by part: "map" with the ConfigMap and who holds the Lease, "nodes" with the time of the look.
        self._memory: dict[str, Data] = {}
        self._known: tuple[str, Record | None] = ("", None)
        self.held = self.approved = ""

    @property
    def place(self) -> str:
        """The record as kubectl names it."""
        return "ConfigMap %s/%s" % (self._namespace, self._name)

    def read(self) -> tuple[Record | None, str, str]:
        """(record, held, approved) as the cluster has them now."""
        with self._locked():
            record = self._parsed(self._get())
        return record, self.held, self.approved

    def look(self, whole: bool = False) -> Look:
        """The record and the nodes, not older than a tick: one process asks, the others read what it was told.

        Only `whole` asks in any case, and gives all labels of the nodes.
        """
        with self._locked():
            kept = self._kept("nodes")
            if whole or not 0 <= self._clock() - kept.get("at", -TICK) < TICK:
                nodes = patiently(self._cluster, self._listed, self._clock, self._sleep)
                self._get()
                self._renew()
                self._keep("nodes", {"at": self._clock(), "nodes": list(map(_row, nodes))})
            else:
                nodes = [NodeView(*row) for row in kept.get("nodes") or ()]
            live = self._kept("map").get("map")
            record = self._parsed(self._get() if live is None else live)
            return Look(record, self.held, self.approved, tuple(view_of(one, record) for one in nodes))

    def _listed(self) -> list[NodeView]:
        """Each node is made small when its page has come: all of them as they are would fill the process."""
        return [one["view"] for one in self._cluster.list("v1", "Node", part=lambda node: {"view": small(node)})]

    def nodes(self) -> list[NodeView]:
        """The nodes, not older than a tick."""
        return list(self.look().nodes)

    def claim(self, run: str) -> None:
        """Keep other controllers out while this run lives: fresh looks renew the Lease. NpuError names who has it.

        What a run may do depends on the record alone: a Lease that was lost is not missed.
        """
        lease = self._lease("%s/%s" % (platform.node(), run))
        try:
            lease.take()
        except ApiError as exc:
            if exc.status != 404:
                raise
            self._make_namespace()
            lease.take()
        with self._locked():
            self._keep("map", {**self._kept("map"), "holder": lease.holder, "renewed": self._clock()})

    def release(self) -> None:
        """Let another controller begin at once."""
        with self._locked():
            kept = self._kept("map")
            if kept.get("holder"):
                self._lease(kept["holder"]).give_up()
                self._keep("map", {**kept, "holder": ""})

    def _lease(self, holder: str) -> WriteLease:
        return WriteLease(self._cluster, self._inputs, self._clock, self._sleep, COMPONENT, holder)

    def _renew(self) -> None:
        """Renew the Lease when it is time for it. One that was lost is given up."""
        kept = self._kept("map")
        if not kept.get("holder") or self._clock() - kept["renewed"] < self._inputs["lease_duration"] / 3:
            return
        try:
            self._lease(kept["holder"]).check()
            kept["renewed"] = self._clock()
        except NpuError as exc:
            kept["holder"] = kept["holder"] if is_passing(exc) else ""
        self._keep("map", kept)

    def saw(self, node: Data) -> None:
        """Let all processes know a node as it was after a change of ours."""
        with self._locked():
            kept, one = self._kept("nodes"), small(node)
            if kept:
                others = [row for row in kept["nodes"] if row[0] != one.name]
                self._keep("nodes", {**kept, "nodes": [*others, _row(one)]})

    def change(self, judge: t.Callable[[Record | None], tuple[Record | None, T]]) -> T:
        """Write the record that `judge` makes of the one in the cluster, and return what it says besides.

        Nothing is written for None or the same record. When another controller was faster, `judge` gets what that one
        wrote; `held` and `approved` are of the same moment. It may also be called again with its own write, whose
        answer was lost. What a person approved is of one rollout: another one begins without it.
        """
        with self._locked():
            live = self._kept("map").get("map")
            for attempt in range(TRIES):
                live = self._get() if live is None else live
                before = self._parsed(live)
                after, result = judge(before)
                if after is None or after == before:
                    return result
                if self._put(live, to_json(after), before is not None and before.id != after.id):
                    return result
                live = None
                self._sleep(random.uniform(0, min(0.1 * (attempt + 1), 2.0)))
        raise NpuError(
            "The %s is written by others all the time: %d writes in a row were too late." % (self.place, TRIES),
            "Let one controller run the rollout.",
        )

    def _get(self) -> Data:
        """The ConfigMap as it is now; empty for none."""
        ask = functools.partial(self._cluster.get, "v1", "ConfigMap", self._name, self._namespace)
        found: Data | None = patiently(self._cluster, ask, self._clock, self._sleep)
        self._keep("map", {**self._kept("map"), "map": found or {}})
        return found or {}

    def _parsed(self, live: Data) -> Record | None:
        meta = live.get("metadata") or {}
        self.held = states.held_of((meta.get("labels") or {}).get(states.HOLD))
        self.approved = str((meta.get("annotations") or {}).get(states.APPROVED) or "")
        text = str((live.get("data") or {}).get(KEY) or "")
        if text != self._known[0]:
            self._known = (text, from_json(text) if text else None)
        return self._known[1]

    def _put(self, live: Data, text: str, begins: bool) -> bool:
        """Whether the record was written; not when another one was faster, or removed it."""
        meta = live.get("metadata") or metadata(self._inputs, COMPONENT, self._name)
        if begins:
            notes = meta.get("annotations") or {}
            meta = {**meta, "annotations": {key: notes[key] for key in notes if key != states.APPROVED}}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {**live.get("data", {}), KEY: text}}
        method, path = ("PUT", self._path + "/" + self._name) if live else ("POST", self._path)
        what = "Write ConfigMap %s" % self._name

        def ask() -> Data:
            return self._cluster.request(method, path, what, {}, body)[1]

        try:
            after = patiently(self._cluster, ask, self._clock, self._sleep)
        except ApiError as exc:
            if exc.status == 404 and not live:
                self._make_namespace()
            elif exc.status not in (404, 409):
                raise
            return False
        self._keep("map", {**self._kept("map"), "map": after})
        return True

    def _make_namespace(self) -> None:
        """A rollout may be the first thing that is written to a cluster; what removes our things knows the mark."""
        body = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": self._namespace, "annotations": {CREATED: "true"}},
        }
        try:
            path = self._cluster.path("v1", "Namespace")
            self._cluster.request("POST", path, "Create Namespace %s" % self._namespace, {}, body)
        except ApiError as exc:
            if exc.status != 409:
                raise

    @contextlib.contextmanager
    def _locked(self) -> t.Iterator[None]:
        """One process of the run at a time; a process that ends holds nothing."""
        if not self._file:
            yield
            return
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._file + ".lock", flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _kept(self, part: str) -> Data:
        if not self._file:
            return dict(self._memory.get(part, {}))
        try:
            with open("%s.%s" % (self._file, part), encoding="utf-8") as stream:
                found = json.load(stream)
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _keep(self, part: str, data: Data) -> None:
        if not self._file:
            self._memory[part] = data
            return
        path = "%s.%s" % (self._file, part)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        with open(os.open(path + ".new", flags, 0o600), "w", encoding="utf-8") as stream:
            json.dump(data, stream)
        os.replace(path + ".new", path)


def small(node: Data) -> NodeView:
    """What a rollout decides by; the pool is that of the labels, empty for none."""
    meta = node["metadata"]
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    pool = pool_of(labels)
    return NodeView(
        meta["name"],
        pool.key if pool else "",
        node_ready(node),
        not is_cordoned(node),
        is_ours(node),
        str(labels.get(states.LABEL) or ""),
        str(annotations.get(states.RUN) or ""),
        str(labels.get(states.SKIP)).lower() == "true",
        labels,
        leaving(node),
    )


def _row(node: NodeView) -> list[t.Any]:
    """What all processes read of a node; no labels, by which only the order of nodes is made."""
    told = [node.name, node.pool, node.ready, node.schedulable, node.ours, node.state, node.run, node.skip]
    return [*told, {}, node.leaves] if node.leaves else told


def view_of(node: NodeView, record: Record | None) -> NodeView:
    """A node as `decide` knows it: its pool is that of the record, since a change of the kernel changes its labels."""
    known = record.nodes.get(node.name) if record else None
    return replace(node, pool=known.pool) if known and known.pool != node.pool else node
