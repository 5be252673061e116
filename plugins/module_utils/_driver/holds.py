# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Held packages, and which holds are ours: the lists `held` and `held_kernel` of the stamp."""

from __future__ import annotations

import typing as t

from .._base.model import NpuError
from .._npu.driver_notes import Record, read_record, stamp_path, write_record
from .context import ChangeContext
from .sources import vendor_packages


class Holds:
    """The holds of one host. A hold that fails is only a warning: the driver works without it."""

    def __init__(self, context: ChangeContext) -> None:
        self.host, self.profile, self.request = context.host, context.profile, context.request
        self.parts, self.warn = context.parts, context.warn

    def now(self) -> list[str]:
        """Names of all held packages; empty when unknown."""
        try:
            return self.parts.manager.held() if self.parts.has_manager else []
        except NpuError:
            return []

    def _hold_lost(self, names: t.Iterable[str]) -> None:
        """Hold again what an installer has unheld; dpkg unholds each package that is given as a file."""
        held, there = self.parts.manager.held(), vendor_packages(self.host, self.profile)
        lost = sorted(name for name in set(names) if name not in held and name in there)
        if lost:
            self.parts.manager.hold(lost)

    def make(self, previous: Record) -> None:
        """Hold the packages of the driver and, if asked, of the kernel.

        Only holds that are new by `previous` are noted as ours.
        """
        path = stamp_path(self.profile)
        stamp = read_record(self.host, path).get()
        if not self.parts.has_manager:
            return
        old = previous.get("stamp") or {}
        users = set(previous.get("held", [])) - {*old.get("held", []), *old.get("held_kernel", [])}
        if users:
            try:
                self._hold_lost(users)
            except NpuError as exc:
                self.warn(str(exc))
        if stamp is None and not self.request.hold_kernel:
            return
        if stamp is None:
            # The driver is not ours; note the holds anyway, so that they can be removed.
            stamp = {"schema": 1, "version": "", "source": "preinstalled"}
        try:
            held = set(self.parts.manager.held())
        except NpuError as exc:
            self.warn(str(exc))
            return
        if not self.request.hold:
            self._let_go(stamp, held)
        names = [item["name"] for item in stamp.get("packages", [])] if self.request.hold else []
        for key, wanted in (("held", names), ("held_kernel", list(self.request.hold_kernel))):
            new = [name for name in wanted if name not in held]
            # Holds of ours that still exist stay noted, or they would stay for ever.
            noted = sorted((set(stamp.get(key, [])) & held) | set(new))
            if noted != stamp.get(key, []):
                # Noted first: a hold without a note would stay for ever.
                stamp[key] = noted
                write_record(self.host, path, stamp, 0o644)
            try:
                if new:
                    self.parts.manager.hold(new)
            except NpuError as exc:
                self.warn(str(exc))
                stamp[key] = sorted(set(stamp[key]) - set(new))
                write_record(self.host, path, stamp, 0o644)

    def _let_go(self, stamp: Record, held: set[str]) -> None:
        """Unhold the packages that we held. Updates `held`; the caller updates the stamp."""
        ours = [name for name in stamp.get("held", []) if name in held]
        try:
            if ours:
                self.parts.manager.unhold(ours)
                held.difference_update(ours)
        except NpuError as exc:
            self.warn(str(exc))

    def as_before(self, previous: Record) -> None:
        """Restore the holds of `previous`: hold again what an installer unheld, unhold what this change held."""
        if not self.parts.has_manager:
            return
        stamp = previous.get("stamp") or {}
        now = read_record(self.host, stamp_path(self.profile)).get({})
        before = [*stamp.get("held", []), *stamp.get("held_kernel", []), *previous.get("held", [])]
        try:
            self._hold_lost([*stamp.get("held", []), *previous.get("held", [])])
            held = self.parts.manager.held()
            ours = [
                name
                for name in [*now.get("held", []), *now.get("held_kernel", [])]
                if name in held and name not in before
            ]
            if ours:
                self.parts.manager.unhold(ours)
        except NpuError as exc:
            self.warn(str(exc))
