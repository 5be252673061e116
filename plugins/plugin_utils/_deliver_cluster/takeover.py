# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A takeover from the vendor's operator, and its way back.

The operator's Deployment is scaled to 0, and its components are replaced by ours one after the other. Its own objects
stay as they are, so that it makes its components again when it is scaled up.
"""

from __future__ import annotations

import functools
import json
import pathlib
import re
import time
import typing as t

import yaml
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._host.files import replace_file

from .._cluster.api import Cluster, Data
from .._objects.compare import Change, change, object_label, visible
from .._objects.inputs import Inputs
from .._objects.names import OPERANDS, OPERATOR, SHORT
from .._objects.parts import metadata, object_name
from .operator import DRIVER, RECORD, REPLICAS, Found, noted, owner_of

DELAY = 2.0
# Parts of the names of the operator's DaemonSets, for each component of ours that replaces them.
THEIRS = {
    "container_toolkit": ("container-toolkit",),
    "device_plugin": ("device-plugin",),
    "validator": ("validator",),
    "dra_driver": ("dra",),
    "smd": ("smd", SHORT + "-daemon"),
    "metrics_exporter": ("metrics-exporter",),
    "feature_discovery": ("feature-discovery",),
    "vfio_manager": ("vfio",),
    "sandbox_device_plugin": ("sandbox-device-plugin",),
    "sandbox_validator": ("sandbox-validator",),
}


def component_like(name: str) -> str:
    """The key of our component that replaces a DaemonSet of the operator; empty for none."""
    fitting = [(len(part), key) for key, parts in THEIRS.items() for part in parts if part in name]
    return max(fitting)[1] if fitting else ""


def _place(item: Data) -> tuple[str, str]:
    return item["metadata"]["namespace"], item["metadata"]["name"]


def _replicas(operator: Data) -> int:
    return int((operator.get("spec") or {}).get("replicas") or 0)


class Takeover:
    """One takeover or restore.

    Each step looks first whether it is done, so that the next run finishes one that was interrupted.
    """

    def __init__(
        self,
        cluster: Cluster,
        inputs: Inputs,
        found: Found,
        dry_run: bool,
        clock: t.Callable[[], float] = time.monotonic,
        sleep: t.Callable[[float], None] = time.sleep,
    ) -> None:
        self._cluster, self._inputs, self._found, self._dry_run = cluster, inputs, found, dry_run
        self._clock, self._sleep = clock, sleep
        self._left = {_place(item): item for item in found.daemon_sets if owner_of(item)}
        self.changes: list[Change] = []

    def check(self) -> None:
        """NpuError for what cannot be taken over; nothing is written."""
        drivers = [item for item in self._found.daemon_sets if owner_of(item) == DRIVER]
        if drivers:
            raise NpuError(
                "The operator runs drivers in containers (%s), which a takeover would replace on all nodes at once."
                % ", ".join(object_label(item) for item in drivers),
                f"Move the nodes to drivers of the host part first, one by one, and delete the {DRIVER} objects; "
                "see docs/cluster.md.",
            )
        self._operator()

    def is_due(self, keys: t.Iterable[str]) -> bool:
        """Whether a takeover by the components `keys` has something to write."""
        return self._found.record is None or self._found.awake or any(self.replaces(key) for key in keys)

    def begin(self, check: t.Callable[[], None]) -> None:
        """Keep a copy of everything, record the operator's replicas, and scale it to 0.

        `check` keeps the Lease meanwhile.
        """
        # The former holder of the Lease may have done it.
        record = self._cluster.get("v1", "ConfigMap", object_name(self._inputs, RECORD), self._inputs["namespace"])
        operator = self._operator()
        if operator is None:
            return
        scaled = _replicas(operator) == 0
        if record is not None and scaled:
            return
        self._back_up(operator)
        if record is None:
            check()
            self._note(operator)
        if not scaled:
            check()
            self._scale(operator, check)

    def replaces(self, key: str) -> bool:
        """Whether a component of ours replaces DaemonSets of the operator."""
        return any(component_like(name) == key for _namespace, name in self._left)

    def make_room(self, key: str, check: t.Callable[[], None]) -> None:
        """Delete the operator's DaemonSets that a component of ours replaces, and wait until they are gone."""
        mine = [self._left.pop(place) for place in list(self._left) if component_like(place[1]) == key]
        for item in mine:
            check()
            self._cluster.delete(item, self._dry_run)
            self._tell(item, "deleted")
        for item in mine if not self._dry_run else ():
            self._until(
                functools.partial(self._is_gone, *_place(item)),
                "%s is still there" % object_label(item),
                "Look at its pods and their nodes.",
                check,
            )

    def _is_gone(self, namespace: str, name: str) -> bool:
        return self._cluster.get("apps/v1", "DaemonSet", name, namespace) is None

    def notes(self) -> list[str]:
        """Warnings about DaemonSets of the operator that no component of ours replaces."""
        return [
            "%s of the operator stays, and nothing manages it while the operator is scaled to 0." % object_label(item)
            for item in self._left.values()
        ]

    def wake(self) -> None:
        """Scale the operator up again; nothing when there was no takeover, or it runs."""
        operator = self.sleeper()
        if operator and self._found.record and REPLICAS in (operator["metadata"].get("annotations") or {}):
            self._patch(operator, noted(self._found.record)["replicas"], None)
            self._tell(operator, "changed")

    def sleeper(self) -> Data | None:
        """The operator's Deployment that the takeover recorded, None without a takeover; NpuError when it is gone."""
        if self._found.record is None:
            return None
        where = noted(self._found.record)
        operator = self._cluster.get("apps/v1", "Deployment", where["name"], where["namespace"])
        if operator is None:
            raise NpuError(
                "The operator's Deployment %s/%s does not exist any more." % (where["namespace"], where["name"]),
                "Install the operator again with its chart (its objects are still there), then run this again.",
            )
        return operator

    def _operator(self) -> Data | None:
        """The operator's Deployment; None when it was scaled to 0 and deleted later. NpuError when it is not known."""
        named = self._inputs["takeover"]
        if named["operator_deployment"]:
            found = self._cluster.get(
                "apps/v1", "Deployment", named["operator_deployment"], named["operator_namespace"]
            )
            candidates = [found] if found else []
        else:
            everything = self._cluster.list("apps/v1", "Deployment", named["operator_namespace"])
            candidates = [item for item in everything if item["metadata"]["name"].startswith(OPERATOR.deployment)]
        if not candidates and self._found.record is not None and not self._found.awake:
            return None
        if len(candidates) != 1:
            names = ", ".join(object_label(item) for item in candidates) or "none"
            raise NpuError(
                "The operator's Deployment is not known; found by its name: %s." % names,
                f"Name it: {OPERANDS}takeover: {{operator_namespace: ..., operator_deployment: ...}}",
            )
        return dict(candidates[0], apiVersion="apps/v1", kind="Deployment")

    def _back_up(self, operator: Data) -> None:
        """Write copies for people on the controller: secrets masked, no fields of the server.

        An existing copy stays.
        """
        folder = pathlib.Path(self._inputs["takeover"]["backup_dir"]).expanduser()
        items = (*self._found.policies, *self._found.drivers, *self._found.daemon_sets, operator)
        try:
            for item in items:
                path = folder / (re.sub(r"[^A-Za-z0-9.-]+", "-", object_label(item)) + ".yaml")
                if path.exists() or self._dry_run:
                    continue
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                replace_file(str(path), yaml.safe_dump(visible(item), sort_keys=True).encode("utf-8"), 0o600)
        except OSError as exc:
            raise NpuError(
                "The copies cannot be written to %s: %s." % (folder, exc.strerror),
                f"Correct {OPERANDS}takeover.backup_dir.",
            ) from exc

    def _note(self, operator: Data) -> None:
        meta = operator["metadata"]
        # The annotation of an operator that is scaled to 0 already, when its record was lost.
        before = str((meta.get("annotations") or {}).get(REPLICAS) or "")
        replicas = _replicas(operator) or (int(before) if before.isdigit() else 0) or 1
        content = {"namespace": meta["namespace"], "name": meta["name"], "replicas": replicas}
        item = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata(self._inputs, RECORD, object_name(self._inputs, RECORD)),
            "data": {"takeover.json": json.dumps(content, sort_keys=True) + "\n"},
        }
        if not self._dry_run:
            self._cluster.apply(item, True, False)
        self._tell(item, "created")

    def _scale(self, operator: Data, check: t.Callable[[], None]) -> None:
        meta = operator["metadata"]
        self._patch(operator, 0, str(_replicas(operator)))
        self._tell(operator, "changed")
        labels = ((operator["spec"].get("selector") or {}).get("matchLabels")) or {}
        chosen = ",".join("%s=%s" % pair for pair in sorted(labels.items()))
        if not self._dry_run:
            self._until(
                lambda: not self._cluster.list("v1", "Pod", meta["namespace"], chosen),
                "The operator's pods are still there",
                "Look at their nodes.",
                check,
            )

    def _patch(self, operator: Data, replicas: int, before: str | None) -> None:
        meta = operator["metadata"]
        query = {"fieldManager": "rebellions-npu-takeover"}
        if self._dry_run:
            query["dryRun"] = "All"
        body = {"metadata": {"annotations": {REPLICAS: before}}, "spec": {"replicas": replicas}}
        path = self._cluster.path("apps/v1", "Deployment", meta["namespace"], meta["name"])
        self._cluster.request(
            "PATCH", path, "Scale Deployment %s" % meta["name"], query, body, "application/merge-patch+json"
        )

    def _until(self, done: t.Callable[[], bool], text: str, next_step: str, check: t.Callable[[], None]) -> None:
        end = self._clock() + self._inputs["wait_timeout"]
        while not done():
            if self._clock() > end:
                raise NpuError("After %d s: %s." % (self._inputs["wait_timeout"], text), next_step)
            self._cluster.waits("operator: waiting, %d s are left: %s" % (end - self._clock(), text))
            self._sleep(DELAY)
            check()

    def _tell(self, item: Data, action: str) -> None:
        self.changes.append(change(item, action))
