# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rollback of a driver change: the previous version, its units and its notes.

If that fails too, the driver is left stopped.

A rollback needs as little as possible: it deletes the transferred files first, continues when the journal cannot be
written, and installs nothing again that is unchanged.
"""

from __future__ import annotations

import typing as t

from .._base.model import NpuError
from .._base.versions import same_release
from .._checks.ready_files import remove_markers
from .._host.files import remove_file
from .._kernel.load import ModuleBusy
from .._npu.driver_notes import TAINTED, Record, read_record, stamp_path, state_path, write_record
from .context import ChangeContext
from .holds import Holds
from .journal import BACK, utc
from .material import Material, material_of
from .result import LEFT_STOPPED, RESTORED, ROLLED_BACK, Ending
from .sources import vendor_packages


class WayBack:
    """Undoes the change that the journal records, and returns how that ended."""

    def __init__(self, context: ChangeContext, holds: Holds) -> None:
        self.host, self.profile, self.request = context.host, context.profile, context.request
        self.parts, self.journal, self.units = context.parts, context.journal, context.units
        self.validation, self.warn, self.holds = context.validation, context.warn, holds

    def go(self, reason: str, material: Material | None) -> Ending:
        """Restore the previous version (or none), its units and its stamp.

        A failure leaves the driver stopped and the host tainted.
        """
        journal = self.journal
        previous = journal.record["previous"]
        touched = bool(journal.record.get("touched"))
        journal.lenient = True
        try:
            if touched:
                # Loading the driver may have written them again.
                remove_markers(self.host, self.profile)
            elif not previous.get("loaded") and self.units.loaded_version() is not None:
                # Nothing was loaded before.
                self._unload()
            if previous.get("version"):
                # Make room on a full disk.
                self.parts.clear_incoming()
            journal.save(direction=BACK, reason=reason)
            replaced = self._files(previous, material) if touched else False
            if previous.get("version") and (previous.get("loaded") or touched):
                if self.units.loaded_version() is None:
                    journal.step("back_load", self.units.load)
                journal.step("back_start", lambda: self.units.start_daemon(journal))
            if touched and previous.get("version"):
                journal.step(
                    "back_validate", lambda: self.validation.prove(previous["version"], previous.get("failed", []))
                )
            self.holds.as_before(previous)
            self._stamp(previous, touched)
            journal.forget(state_path(self.profile, TAINTED))
            self.units.start_services(journal, self.warn)
            self.parts.clear_incoming()
            journal.end()
            return Ending(ROLLED_BACK if replaced and previous.get("version") else RESTORED, reason)
        except NpuError as exc:
            return self.leave_stopped("%s Rolling back failed too: %s" % (reason, exc))
        finally:
            for text in journal.unsaved:
                self.warn(text)

    def _unload(self) -> None:
        self.journal.step("back_stop", lambda: self.units.stop_again(self.journal))
        self.journal.step("back_unload", self.units.unload)

    def _stamp(self, previous: Record, touched: bool) -> None:
        path = stamp_path(self.profile)
        if previous.get("stamp"):
            if read_record(self.host, path).get() != previous["stamp"]:
                write_record(self.host, path, previous["stamp"], 0o644)
        elif touched:
            remove_file(self.host, path)

    def _files(self, previous: Record, material: Material | None) -> bool:
        """Restore the files of the previous version; False when they are still in place."""
        journal = self.journal
        version, before = previous.get("version"), journal.record["before"]
        try:
            self._unload()
        except ModuleBusy:
            # Where a reboot was to end its use, the previous module is loaded all the time: its files are enough.
            if not same_release(self.units.loaded_version(), version):
                raise
        if not version:
            journal.step("back_remove", lambda: self.parts.remove(material, before))
            return True
        if self._still_there(previous, before):
            return False
        kept = self.parts.kept(version, self.warn)
        if kept is not None:
            journal.step("back_install", lambda: self.parts.put_back(material_of(kept), before))
        elif self.parts.has_manager:
            journal.step("back_repair", lambda: self.parts.manager.repair(self.profile.package_patterns))
        return True

    def _still_there(self, previous: Record, before: t.Any) -> bool:
        """Whether the previous version is intact: same packages, same module, and no installer was run."""
        return bool(
            isinstance(before, dict)
            and before
            and not self.journal.record.get("opaque", True)
            and self.parts.has_manager
            and previous["version"] != self.request.version
            and previous.get("module")
            and previous["module"] == self.units.module_version()
            and before == vendor_packages(self.host, self.profile)
            and not self.parts.manager.blocked(self.profile.package_patterns)
        )

    def leave_stopped(self, reason: str) -> Ending:
        """Stop and unload the driver and mark the host tainted: no version of the driver passed."""
        self.journal.lenient = True
        # The next run starts from the beginning.
        self.journal.save(done=[])
        tainted = {"version": self.request.version, "reason": reason, "time": utc(self.host)}
        acts: tuple[t.Callable[[], object], ...] = (
            lambda: remove_markers(self.host, self.profile),
            lambda: self.units.stop_again(self.journal),
            self.units.unload,
            lambda: write_record(self.host, state_path(self.profile, TAINTED), tainted, 0o644),
        )
        for act in acts:
            try:
                act()
            except NpuError as exc:
                self.warn(str(exc))
        return Ending(LEFT_STOPPED, reason)
