# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods that their controller starts again on the cordoned node: to evict them once more would never end. Pure."""

from __future__ import annotations

import typing as t

from .._objects.placement import tolerates
from .pods import Data, Told, controller_of, owner_text

# The taint of a cordoned node.
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_TAINT = {"key": UNSCHEDULABLE, "effect": "NoSchedule"}
# A pod that the scheduler had bound before it saw the cordon may come once.
_MOST = 2
_Owner = tuple[str, str, str]


class Returning:
    """Counts for each controller how often its pods came to the node after one of them was evicted."""

    def __init__(self) -> None:
        # By the uid of a pod how many evictions are behind it; by controller those that are behind its next pod.
        self._rounds: dict[str, int] = {}
        self._next: dict[_Owner, int] = {}
        # Whether a pod was evicted whose next one the scheduler may place here.
        self.may_follow = False

    def found(self, pods: t.Iterable[Data]) -> list[Told]:
        """The pods among these, now on the node, that came back once too often."""
        back = []
        for pod in pods:
            rounds = self._rounds.setdefault(pod["metadata"]["uid"], self._next.get(_owner(pod), 0))
            if rounds >= _MOST:
                back.append(_told(pod))
        return back

    def evicted(self, pod: Data) -> None:
        """The eviction of this pod was accepted."""
        owner = _owner(pod)
        if any(owner):
            self._next[owner] = max(self._next.get(owner, 0), self._rounds.get(pod["metadata"]["uid"], 0) + 1)
            self.may_follow = self.may_follow or _tolerates_cordon(pod)


def _told(pod: Data) -> Told:
    kind, name = str(controller_of(pod).get("kind")), owner_text(pod)
    if _tolerates_cordon(pod):
        step = f"Remove its toleration of {UNSCHEDULABLE}, or stop the {kind} {name} until the run is over."
    else:
        step = f"Stop the {kind} {name}, whose pods name this node, until the run is over."
    return Told(pod, f"is started again on this cordoned node by the {kind} {name} each time that it is evicted", step)


def _tolerates_cordon(pod: Data) -> bool:
    return any(tolerates(one, _TAINT) for one in (pod.get("spec") or {}).get("tolerations") or [])


def _owner(pod: Data) -> _Owner:
    owner = controller_of(pod)
    if not owner:
        return ("", "", "")
    return (str(pod["metadata"].get("namespace") or ""), str(owner.get("kind")), str(owner.get("name")))
