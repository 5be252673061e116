# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes, pods and a ConfigMap that answer as an API server does where a rollout depends on it, with a clock."""

from __future__ import annotations

import copy
from typing import Any, Callable

from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.api import ApiError, Cluster
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.transport import NoAnswer
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.parts import MANAGER

Data = dict[str, Any]
NODE = "node-a"
NPU = {"containers": [{"name": "main", "resources": {"limits": {"rebellions.ai/npu": "1"}}}]}


def pod(name: str, node: str = NODE, **more: Any) -> Data:
    """A running pod with an NPU; `more` are its owner, labels, annotations, spec, status and uid."""
    owner: Data | None = more.get("owner", {"kind": "ReplicaSet", "name": "rs", "controller": True})
    meta: Data = {"name": name, "namespace": more.get("namespace", "team"), "uid": more.get("uid", "uid-" + name)}
    meta.update({key: more[key] for key in ("labels", "annotations", "deletionTimestamp") if key in more})
    if owner:
        meta["ownerReferences"] = [owner]
    spec = {"nodeName": node, **more.get("spec", NPU)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec,
            "status": {"phase": "Running", **more.get("status", {})}}  # fmt: skip


def budget(name: str, allowed: int = 0, namespace: str = "team", **match: str) -> Data:
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta,
            "spec": {"selector": {"matchLabels": match}}, "status": {"disruptionsAllowed": allowed}}  # fmt: skip


class Api:
    """Objects by kind, namespace and name.

    `evictions` maps a pod to the statuses of its next evictions (0: no answer), the last for all after it; `ends` to
    the seconds that it takes to end. `away` are times between which nothing answers. `events` happen when their time
    has come, which only `sleep` brings.
    """

    path = staticmethod(Cluster.path)

    def __init__(self, *items: Data) -> None:
        self.items: dict[tuple[str, str, str], Data] = {}
        self.now, self.requests, self.version = 100.0, 0, 0
        self.asked: list[str] = []
        self.waited: list[str] = []
        self.evictions: dict[str, list[int]] = {}
        self.ends: dict[str, float] = {}
        self.away = (0.0, 0.0)
        self.events: list[tuple[float, Callable[[], None]]] = []
        self.before_write: Callable[[], None] = lambda: None
        for item in items:
            self.put(item)

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now += seconds
        for when, act in sorted(self.events, key=lambda event: event[0]):
            if when <= self.now:
                act()
        self.events = [event for event in self.events if event[0] > self.now]

    def waits(self, text: str) -> None:
        self.waited.append(text)

    def put(self, item: Data) -> Data:
        self.version += 1
        meta = item["metadata"]
        stored = copy.deepcopy({**item, "metadata": {"uid": "uid-" + meta["name"], **meta}})
        stored["metadata"]["resourceVersion"] = str(self.version)
        self.items[(item["kind"], meta.get("namespace", ""), meta["name"])] = stored
        return stored

    def pop(self, kind: str, namespace: str, name: str) -> None:
        self.items.pop((kind, namespace, name), None)

    def node(self, name: str = NODE) -> Data:
        return self.items[("Node", "", name)]

    def _ask(self, what: str) -> None:
        self.requests += 1
        self.asked.append(what)
        if self.away[0] <= self.now < self.away[1]:
            raise NoAnswer("%s: the API server cannot be reached." % what, "Check it.")

    def get(self, api_version: str, kind: str, name: str, namespace: str = "") -> Data | None:
        self._ask("get " + kind)
        return copy.deepcopy(self.items.get((kind, namespace, name)))

    def list(self, api_version: str, kind: str, namespace: str = "", selector: str = "", fields: str = "",
             metadata: bool = False, only: Callable[[Data], bool] = lambda item: True,
             part: Callable[[Data], Data] = lambda item: item) -> list[Data]:  # fmt: skip
        self._ask("list " + kind)
        wanted = dict(one.split("=") for one in selector.split(",")) if selector else {}
        node = fields.partition("spec.nodeName=")[2]
        return [
            part(copy.deepcopy(item))
            for key, item in self.items.items()
            if key[0] == kind
            and wanted.items() <= item["metadata"].get("labels", {}).items()
            and (not node or item["spec"].get("nodeName") == node)
            and only(item)
        ]

    def apply(self, item: Data, force: bool, dry_run: bool) -> tuple[bool, Data]:
        self._ask("apply " + item["kind"])
        self.before_write()
        live = self.node(item["metadata"]["name"])
        self._same(item["metadata"], live, "apply")
        if dry_run:
            return False, copy.deepcopy(live)
        assert item["metadata"]["uid"] == live["metadata"]["uid"]
        labels, mine = item["metadata"]["labels"], self.owned(live, MANAGER, "Apply")
        for key in {one for one in mine if one.startswith("l:")} - {"l:" + key for key in labels}:
            live["metadata"]["labels"].pop(key[2:])
        live["metadata"].setdefault("labels", {}).update(labels)
        self.own(live, MANAGER, "Apply", {"l:" + key for key in labels}, True)
        return False, copy.deepcopy(self.put(live))

    def request(self, method: str, path: str, what: str, query: Data | None = None, body: Any = None, kind: str = "",
                accept: str = "", tries: int = 4) -> tuple[int, Data]:  # fmt: skip
        self._ask("%s %s" % (method, path.rpartition("/")[2] if method == "POST" else path.split("/")[-2]))
        self.before_write()
        if path.endswith("/eviction"):
            assert tries == 1 and body["kind"] == "Eviction"
            return self._evict(path.split("/")[-2], path.split("/")[-4], body["deleteOptions"], what)
        if method == "GET":
            key = ("Lease", path.split("/")[-3], path.split("/")[-1])
            if key not in self.items:
                raise ApiError(404, what, {"message": "gone"})
            return 200, copy.deepcopy(self.items[key])
        if method == "POST":
            item = body
            if item["kind"] != "Namespace" and ("Namespace", "", item["metadata"]["namespace"]) not in self.items:
                raise ApiError(404, what, {"message": "namespaces not found"})
            if (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]) in self.items:
                raise ApiError(409, what, {"message": "exists"})
            return 201, copy.deepcopy(self.put(item))
        if method == "DELETE":
            key = ("Pod", path.split("/")[-3], path.split("/")[-1])
            assert body["preconditions"]["uid"] == self.items[key]["metadata"]["uid"]
            del self.items[key]
            return 200, {}
        if method == "PUT":
            key = (body["kind"], body["metadata"]["namespace"], body["metadata"]["name"])
            if key not in self.items:
                raise ApiError(404, what, {"message": "gone"})
            self._same(body["metadata"], self.items[key], what)
            return 200, copy.deepcopy(self.put(body))
        live = self.items.get(("Node", "", path.rpartition("/")[2]))
        if live is None:
            raise ApiError(404, what, {"message": "gone"})
        self._same(body["metadata"], live, what)
        if (query or {}).get("dryRun"):
            return 200, copy.deepcopy(live)
        self._merge(live, body, (query or {})["fieldManager"])
        return 200, copy.deepcopy(self.put(live))

    def _evict(self, name: str, namespace: str, options: Data, what: str) -> tuple[int, Data]:
        found = self.items.get(("Pod", namespace, name))
        if found is None:
            raise ApiError(404, what, {"message": "not found"})
        if options["preconditions"]["uid"] != found["metadata"]["uid"]:
            raise ApiError(409, what, {"message": "the UID in the precondition"})
        left = self.evictions.get(name) or [201]
        status = left.pop(0) if len(left) > 1 else left[0]
        if not status:
            raise NoAnswer(what + ": the API server cannot be reached.", "Check it.")
        if status != 201:
            raise ApiError(status, what, {"message": "words that no code may read"})
        grace = options.get("gracePeriodSeconds", found["spec"].get("terminationGracePeriodSeconds", 30))
        found["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=grace)
        if self.ends.get(name, 1.0) < 1e6:
            self.events.append((self.now + self.ends.get(name, 1.0), lambda: self.pop("Pod", namespace, name)))
        return 201, {}

    def kubectl_cordon(self, on: bool = True, manager: str = "kubectl-cordon") -> None:
        self._merge(self.node(), {"metadata": {}, "spec": {"unschedulable": on or None}}, manager)
        self.put(self.node())

    @staticmethod
    def _same(meta: Data, live: Data, what: str) -> None:
        if meta.get("resourceVersion") not in (None, live["metadata"]["resourceVersion"]):
            raise ApiError(409, what, {"message": "please apply your changes to the latest version"})

    def _merge(self, live: Data, change: Data, manager: str) -> None:
        """A merge patch of labels, annotations and spec; who changes a field owns it alone."""
        owned = set()
        for name in ("labels", "annotations"):
            values = live["metadata"].setdefault(name, {})
            for key, value in (change["metadata"].get(name) or {}).items():
                owned |= {"l:" + key} if name == "labels" else set()
                values.update({key: value})
                if value is None:
                    values.pop(key)
        for key, value in (change.get("spec") or {}).items():
            live.setdefault("spec", {})[key] = value
            owned |= {"s:" + key}
            if value is None:
                live["spec"].pop(key)
        self.own(live, manager, "Update", owned)

    @staticmethod
    def owned(live: Data, manager: str, operation: str) -> set[str]:
        for entry in live["metadata"].get("managedFields") or []:
            if (entry["manager"], entry["operation"]) == (manager, operation):
                labels = ((entry["fieldsV1"].get("f:metadata") or {}).get("f:labels")) or {}
                return {"l:" + key[2:] for key in labels} | {
                    "s:" + key[2:] for key in entry["fieldsV1"].get("f:spec") or {}
                }
        return set()

    def own(self, live: Data, manager: str, operation: str, fields: set[str], whole: bool = False) -> None:
        entries = live["metadata"].get("managedFields") or []
        owners = {(one["manager"], one["operation"]): self.owned(live, one["manager"], one["operation"])
                  for one in entries}  # fmt: skip
        for key in owners:
            owners[key] -= fields
        before = set() if whole else owners.get((manager, operation), set())
        owners[(manager, operation)] = before | fields
        live["metadata"]["managedFields"] = [
            {"manager": one, "operation": how, "fieldsV1": {
                "f:metadata": {"f:labels": {"f:" + key[2:]: {} for key in keys if key.startswith("l:")}},
                "f:spec": {"f:" + key[2:]: {} for key in keys if key.startswith("s:")}}}
            for (one, how), keys in owners.items() if keys
        ]  # fmt: skip


def node(name: str = NODE, labels: Data | None = None, **more: Any) -> Data:
    """A ready node; `labels` are ours by server-side apply."""
    meta: Data = {"name": name, "labels": dict(labels or {}), "annotations": dict(more.get("annotations", {}))}
    if labels:
        fields = {"f:metadata": {"f:labels": {"f:" + key: {} for key in labels}}}
        meta["managedFields"] = [{"manager": MANAGER, "operation": "Apply", "fieldsV1": fields}]
    meta["labels"].update(more.get("theirs", {}))
    ready = "True" if more.get("ready", True) else "False"
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": dict(more.get("spec", {})),
            "status": {"conditions": [{"type": "Ready", "status": ready}]}}  # fmt: skip
