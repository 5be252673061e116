# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node as the cluster shows it, as far as a rollout asks."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass
from types import MappingProxyType

from .settings import LEAVE_ALONE, Settings

NO_LABELS: t.Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class NodeView:
    """`ours`: this collection cordoned it. `state` and `run` are its label and annotation, "" without.

    `leaves` is the taint by which an autoscaler removes it.
    """

    name: str
    pool: str
    ready: bool = True
    schedulable: bool = True
    ours: bool = False
    state: str = ""
    run: str = ""
    skip: bool = False
    labels: t.Mapping[str, str] = NO_LABELS
    leaves: str = ""

    @property
    def down(self) -> bool:
        return not self.ready or not self.schedulable or bool(self.leaves)

    @property
    def foreign(self) -> bool:
        return (not self.schedulable or bool(self.leaves)) and not self.ours

    def left_alone(self, settings: Settings) -> str:
        """Why this node does not take part, "" when it does."""
        if self.skip:
            return "has the label that excludes it from upgrades"
        if self.foreign and settings.foreign_cordon == LEAVE_ALONE:
            return f"is about to go: it has the taint {self.leaves}" if self.leaves else "was cordoned by someone else"
        return ""
