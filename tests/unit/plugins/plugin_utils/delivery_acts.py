# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role does to a store, for the tests of what is written to a cluster."""

from __future__ import annotations

import copy
import json
from typing import Any

from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.capabilities import declared
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.render import build
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster.apply import Applied, apply_objects
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster.remove import remove_objects
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.model import Context
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.cluster_store import Store
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs

Data = dict[str, Any]
EVERY = declared(inputs())
LEASE = ("Lease", "rbln-system", "rbln-operands")
INVENTORY = ("ConfigMap", "rbln-system", "rbln-inventory")
IMAGE = {"validator": {"source": "image", "image": {"tag": "1"}}}


def apply(store: Store, extra: list[Data] | None = None, dry_run: bool = False, **given: Any) -> Applied:
    typed = inputs(**given)
    return apply_objects(store, [*build(Context(typed, EVERY)), *(extra or [])], typed, EVERY, dry_run)


def remove(store: Store, **given: Any) -> list[Data]:
    return remove_objects(store, inputs(**given), EVERY, False)


def done(applied: Applied) -> dict[str, str]:
    return {change["object"]: change["action"] for change in applied.changes if change["action"] != "unchanged"}


def state(store: Store) -> dict[Any, Any]:
    """All that is there, without what the server counts and without who wrote last."""
    found = {}
    for key, item in store.items.items():
        item = copy.deepcopy(item)
        item["metadata"].pop("resourceVersion", None)
        found[key] = {} if key[0] == "Lease" else item
    return found


def recorded(store: Store) -> list[Data]:
    return [entry["object"] for entry in json.loads(store.items[INVENTORY]["data"]["objects.json"])]
