# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hash of the newest template of each DaemonSet, from the ControllerRevisions that its controller keeps."""

from __future__ import annotations

import typing as t

from .._cluster.api import ApiError, Cluster, Data
from .._objects.parts import SELECTOR

REVISION_HASH = "controller-revision-hash"
FORBIDDEN = 403


class Revisions:
    """Asks once for each generation of a DaemonSet; without the right to list them nothing is known."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster, self._namespace = cluster, namespace
        self._denied = False
        self._known: dict[tuple[str, int], str] = {}

    def of(self, sets: t.Mapping[str, Data]) -> dict[str, str]:
        """{uid: hash} of the DaemonSets, as far as it was asked for."""
        keys = [_key(item) for item in sets.values()]
        return {key[0]: self._known[key] for key in keys if key in self._known}

    def ask(self, item: Data, sets: t.Mapping[str, Data]) -> bool:
        """Ask for the hash of one of `sets`; whether it is known now."""
        if not self._denied and is_observed(item) and _key(item) not in self._known:
            try:
                found = newest_revisions(self._cluster.list("apps/v1", "ControllerRevision", self._namespace, SELECTOR))
            except ApiError as exc:
                if exc.status != FORBIDDEN:
                    raise
                self._denied = True
                return False
            self._known.update((_key(one), found.get(_key(one)[0], "")) for one in sets.values() if is_observed(one))
        return bool(self._known.get(_key(item)))


def _key(item: Data) -> tuple[str, int]:
    return str(item["metadata"].get("uid")), int(item["metadata"].get("generation") or 0)


def is_observed(daemon_set: t.Mapping[str, t.Any]) -> bool:
    """Whether the controller has seen the newest change of a DaemonSet; its revisions are of what it has seen."""
    status = daemon_set.get("status") or {}
    return int(status.get("observedGeneration") or 0) >= int(daemon_set["metadata"].get("generation") or 0)


def newest_revisions(items: t.Iterable[Data]) -> dict[str, str]:
    """{uid of a DaemonSet: hash of its newest template}, from ControllerRevisions.

    A template that is wanted again has its old hash and gets the highest number.
    """
    newest: dict[str, tuple[int, str]] = {}
    for item in items:
        value, number = (item["metadata"].get("labels") or {}).get(REVISION_HASH), item.get("revision")
        for owner in item["metadata"].get("ownerReferences") or []:
            if owner.get("controller") and isinstance(number, int) and value:
                uid = str(owner.get("uid"))
                newest[uid] = max(newest.get(uid, (0, "")), (number, str(value)))
    return {uid: value for uid, (_number, value) in newest.items()}
