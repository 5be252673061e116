# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A store that behaves as the API of a cluster does where it matters to those who write to it."""

from __future__ import annotations

import copy
from typing import Any, Callable

from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.api import KINDS, ApiError, Cluster
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.parts import MANAGER

Data = dict[str, Any]
Key = tuple[str, str, str]
_BY_PLURAL = {(prefix, plural): key for key, (prefix, plural, _namespaced) in KINDS.items()}


class Stopped(Exception):
    """The writer was killed here."""


class Store:
    """Objects by kind, namespace and name.

    `writes` lists what was written, but neither dry runs nor what happens to the Lease; `stop_after` kills the writer
    at that number of writes; `refuse` maps a kind to the status of every apply of it; `keep` is what becomes of an
    object that is applied.
    """

    def __init__(
        self,
        *items: Data,
        stop_after: int = -1,
        refuse: dict[str, int] | None = None,
        keep: Callable[[Data], Data] | None = None,
    ) -> None:
        self.items: dict[Key, Data] = {self.key(item): copy.deepcopy(item) for item in items}
        self.writes: list[str] = []
        self.lease_writes = 0
        self.requests = 0
        self.warnings: list[str] = []
        self.waited: list[str] = []
        self.stop_after, self.refuse, self.keep = stop_after, refuse or {}, keep
        # Answers to requests by path, beside those about objects.
        self.answers: dict[str, Data] = {"/apis": {"groups": []}}
        self._version = 0

    @staticmethod
    def key(item: Data) -> Key:
        return item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]

    path = staticmethod(Cluster.path)

    def waits(self, text: str) -> None:
        self.waited.append(text)

    def get(self, api_version: str, kind: str, name: str, namespace: str = "") -> Data | None:
        self.requests += 1
        return copy.deepcopy(self.items.get((kind, namespace, name)))

    def list(
        self,
        api_version: str,
        kind: str,
        namespace: str = "",
        selector: str = "",
        fields: str = "",
        metadata: bool = False,
        only: Callable[[Data], bool] = lambda item: True,
        part: Callable[[Data], Data] = lambda item: item,
    ) -> list[Data]:
        self.requests += 1
        pairs = [pair.split("=") for pair in selector.split(",") if pair]

        def fits(item: Data) -> bool:
            meta = item["metadata"]
            labels = meta.get("labels") or {}
            chosen = fields in ("", "type=Warning", "metadata.name=" + meta["name"])
            return chosen and all(
                pair[0] in labels and (len(pair) == 1 or labels[pair[0]] == pair[1]) for pair in pairs
            )

        return [
            part(copy.deepcopy({key: item[key] for key in ("apiVersion", "kind", "metadata")} if metadata else item))
            for key, item in self.items.items()
            if key[0] == kind and (not namespace or key[1] == namespace) and fits(item) and only(item)
        ]

    def apply(self, item: Data, force: bool, dry_run: bool) -> tuple[bool, Data]:
        self.requests += 1
        status = self.refuse.get(item["kind"])
        if status:
            raise ApiError(status, "Apply %s %s" % (item["kind"], item["metadata"]["name"]), {"message": "no"})
        before = self.items.get(self.key(item))
        after = _merge(copy.deepcopy(before or {}), item)
        if item["kind"] != "Node":
            after["metadata"].setdefault("managedFields", [{"manager": MANAGER, "operation": "Apply"}])
        if self.keep:
            after = self.keep(after)
        if not dry_run:
            self._write("apply " + item["kind"])
            self._put(after)
        return before is None, copy.deepcopy(after)

    def delete(self, item: Data, dry_run: bool) -> None:
        self.requests += 1
        if not dry_run:
            if item["kind"] != "Lease":
                self._write("delete " + item["kind"])
            self.items.pop(self.key(item), None)

    def request(
        self, method: str, path: str, what: str, query: Data | None = None, body: Any = None, kind: str = ""
    ) -> tuple[int, Data]:
        self.requests += 1
        if method == "GET" and path in self.answers:
            return 200, copy.deepcopy(self.answers[path])
        key = self._key_of_path(path, body)
        live = self.items.get(key)
        if method == "GET":
            if live is None:
                raise ApiError(404, what, {})
            return 200, copy.deepcopy(live)
        if method == "PATCH":
            if (query or {}).get("dryRun") != "All":
                self._write("patch " + key[0])
                _patch(self.items[key], body)
            return 200, copy.deepcopy(self.items[key])
        stale = live is not None and body["metadata"].get("resourceVersion") != live["metadata"].get("resourceVersion")
        if (method == "POST" and live is not None) or (method == "PUT" and stale):
            raise ApiError(409, what, {"message": "conflict"})
        self.lease_writes += 1
        self._put(copy.deepcopy(body))
        return 201, copy.deepcopy(body)

    @staticmethod
    def _key_of_path(path: str, body: Any) -> Key:
        prefix = "/".join(path.split("/")[: 3 if path.startswith("/api/") else 4])
        rest = path[len(prefix) + 1 :].split("/")
        namespace = rest[1] if rest[0] == "namespaces" and len(rest) > 2 else ""
        rest = rest[2:] if namespace else rest
        name = rest[1] if len(rest) > 1 else body["metadata"]["name"]
        return _BY_PLURAL[(prefix, rest[0])][1], namespace, name

    def _put(self, item: Data) -> None:
        self._version += 1
        item["metadata"]["resourceVersion"] = str(self._version)
        self.items[self.key(item)] = item

    def _write(self, what: str) -> None:
        if len(self.writes) == self.stop_after:
            raise Stopped(what)
        self.writes.append(what)


def _patch(base: Data, change: Data) -> None:
    """A JSON merge patch."""
    for key, value in change.items():
        if value is None:
            base.pop(key, None)
        elif isinstance(value, dict):
            _patch(base.setdefault(key, {}), value)
        else:
            base[key] = value


def _merge(base: Data, item: Data) -> Data:
    for key, value in item.items():
        base[key] = (
            _merge(base.get(key) or {}, value)
            if isinstance(value, dict) and isinstance(base.get(key), dict)
            else copy.deepcopy(value)
        )
    return base
