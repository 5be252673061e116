# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects that a cluster does not keep as they are sent: what it made of them, so that a later change is seen. Pure.

An admission policy rewrites an image, another manager adds a variable, a feature of the cluster is off. The inventory
holds a digest of the live value of each such field; while they are the same, nothing is asked and nothing is written.
"""

from __future__ import annotations

import hashlib
import json
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.mask import masked

from .._objects.compare import (
    HASH,
    FieldChange,
    missing_paths,
    object_label,
    unlike,
    value_at,
    within,
    without_paths,
)
from .._objects.model import Capabilities
from .._objects.parts import MANAGER

Data = dict[str, t.Any]
Fields = tuple[tuple[tuple[str | int, ...], str], ...]
MOST_TOLD, LONGEST = 8, 160


class Settled(t.NamedTuple):
    """`of` is a digest of what was sent and of what the server serves, `fields` (path, digest of the live value)."""

    of: str
    fields: Fields


def _digest(value: t.Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def surface(capabilities: Capabilities) -> str:
    """What changes when the API server becomes another release; groups of other servers come and go."""
    own = {
        group: sorted(versions)
        for group, versions in capabilities.groups.items()
        if ("." not in group or group.endswith(".k8s.io")) and not group.endswith("metrics.k8s.io")
    }
    return _digest(own)


def settle(wanted: Data, after: Data, served: str) -> Settled | None:
    """The record of an object from what was sent and what came back; None when it was kept as it is."""
    fields = tuple((path, _digest(value_at(after, path))) for path in missing_paths(wanted, after))
    return Settled(_of(wanted, served), fields) if fields else None


def is_settled(wanted: Data, live: Data, record: Settled | None, served: str) -> bool:
    """Whether the live object is what the cluster makes of the wanted one, by its record where it has one."""
    if record is None or record.of != _of(wanted, served):
        return within(wanted, live)
    return within(without_paths(wanted, [path for path, _found in record.fields]), live) and all(
        _digest(value_at(live, path)) == found for path, found in record.fields
    )


def _of(wanted: Data, served: str) -> str:
    return _digest([wanted["metadata"]["annotations"][HASH], served])


def settled_notes(wanted: Data, after: Data) -> list[str]:
    """What the cluster made of an object, for people. Secrets are masked, those of a Secret never shown."""
    name = object_label(wanted)
    shown = unlike(masked(wanted), masked(after))
    if wanted["kind"] == "Secret":
        shown = [{**one, "before": "(hidden)", "after": one["after"] and "(hidden)"} for one in shown]
    lost = [one["path"] for one in shown if one["after"] is None]
    other = [one for one in shown if one["after"] is not None]
    notes = []
    if other:
        managers = sorted(_others(after))
        who = "an admission policy" + (" or another manager (%s)" % ", ".join(managers) if managers else "")
        notes.append("%s: %s changed %s." % (name, who, _list([_brief(one) for one in other])))
    if lost:
        notes.append(
            "%s: the API server does not keep %s; a feature of this cluster is off, or an admission policy removes it."
            % (name, _list(lost))
        )
    return notes


def _others(item: Data) -> set[str]:
    """The other managers of an object, but those of its status."""
    entries = item["metadata"].get("managedFields") or []
    return {
        entry["manager"]
        for entry in entries
        if entry.get("manager") not in (None, MANAGER) and not entry.get("subresource")
    }


def _list(texts: t.Sequence[str]) -> str:
    more = " and %d more" % (len(texts) - MOST_TOLD) if len(texts) > MOST_TOLD else ""
    return "; ".join(texts[:MOST_TOLD]) + more


def _brief(one: FieldChange) -> str:
    """`PATH from BEFORE to AFTER`, or what was added."""
    before, after = _short(one["before"]), _short(one["after"])
    if one["before"] is None:
        return "%s, to which it added %s" % (one["path"], after)
    return "%s from %s to %s" % (one["path"], before, after)


def _short(value: t.Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
