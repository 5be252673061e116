# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an apply would change, field by field, by dry runs of the API server."""

from __future__ import annotations

import typing as t

from .._cluster.api import ApiError, Cluster, Data
from .._objects.compare import FieldChange, differs, field_changes, object_label, visible
from .._objects.inputs import Inputs
from .._objects.model import Capabilities
from .apply_plan import Plan, plan_changes, taken_text
from .inventory import key_of


class Difference(t.TypedDict):
    """One object that would be created, changed or deleted; `error` says why the API server would refuse."""

    object: str
    action: str
    fields: list[FieldChange]
    error: str


def diff_objects(
    cluster: Cluster, objects: t.Sequence[Data], inputs: Inputs, capabilities: Capabilities
) -> list[Difference]:
    """What applying `objects` would change; nothing is written."""
    plan = plan_changes(cluster, objects, inputs, capabilities)
    found = [_difference(cluster, plan, item, inputs) for item in objects if key_of(item) in plan.write]
    return [
        *(one for one in found if one["fields"] or one["error"] or one["action"] == "created"),
        *(_deleted(item) for item in (*plan.prune, *plan.legacy)),
    ]


def _deleted(item: Data) -> Difference:
    return {"object": object_label(item), "action": "deleted", "fields": [], "error": ""}


def _difference(cluster: Cluster, plan: Plan, plain: Data, inputs: Inputs) -> Difference:
    key, is_namespace, force = key_of(plain), plain["kind"] == "Namespace", inputs["force_conflicts"]
    live = plan.namespace if is_namespace else plan.live.get(key)
    item = plan.wanted.get(key, plain)
    after, error = item, ""
    if live is not None and live in plan.taken and not force:
        error = "not made here: " + taken_text(live)
    if plain["metadata"].get("namespace") is None or plan.namespace is not None:
        # The object as the API server would keep it. It refuses a dry run in a namespace that does not exist yet.
        try:
            after = cluster.apply(item, force or is_namespace, True)[1]
        except ApiError as exc:
            error = str(exc)
    return {
        "object": object_label(item),
        "action": "created" if live is None else "changed",
        "fields": _fields(item, live, after, error),
        "error": error,
    }


def _fields(item: Data, live: Data | None, after: Data, error: str) -> list[FieldChange]:
    """The fields that differ; the content of a secret only as the fact that it differs."""
    fields = field_changes(visible(live), visible(after))
    hidden = {"before": "(hidden)", "after": "(hidden, and different)"}
    if live is not None and item["kind"] == "Secret" and live.get("data") != after.get("data"):
        fields = [*fields, {"path": "data", "before": hidden["before"], "after": hidden["after"]}]
    if live is not None and not fields and not error and differs(live, after):
        fields = [{"path": "a secret value", "before": hidden["before"], "after": hidden["after"]}]
    return fields
