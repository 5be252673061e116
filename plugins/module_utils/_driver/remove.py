# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove the driver and prove it: packages, DKMS trees, modules, libraries, units, rules, holds, notes."""

from __future__ import annotations

import os
import shutil
import typing as t

from .._base.model import NpuError
from .._host.files import explain, remove_empty_directory, remove_file
from .._npu.driver import read_dkms
from .._npu.driver_notes import read_record, stamp_path
from .._packages.runfile import verified
from .change import DriverChange
from .material import Material, material_of, require_workplace
from .request import RUNFILE
from .residue import notes, residue
from .result import LEFT_STOPPED, REMOVED, RESTORED, UNFINISHED, Ending, RemovalResult
from .sources import vendor_packages


class DriverRemoval(DriverChange):
    """Removes the driver. There is no rollback: a failure is reported, and the next run continues.

    With `notes_only` the driver is not ours and stays: an interrupted change is undone, holds and notes are removed.
    """

    result: RemovalResult

    def _new_result(self) -> RemovalResult:
        return RemovalResult(version=self.request.version or None)

    def foresee(self) -> RemovalResult:
        self.result.in_use = [] if self.request.notes_only else self.units.holders()
        self.result.changed = bool(self._see())
        return self.result

    def foreseen(self, before: t.Mapping[str, str]) -> dict[str, str]:
        self.foresee()
        return dict(before) if self.request.notes_only else {}

    def run(self) -> RemovalResult:
        # The lock creates a directory; look first, so that a clean host stays clean.
        if not self._see():
            return self._finish()
        if self.request.look:
            if not self.request.notes_only:
                self._refuse()
            return self._finish()
        with self.journal.locked():
            try:
                self._run()
            finally:
                remove_empty_directory(self.host, self.profile.runfile_stamp_dir)
        return self._finish()

    def _run(self) -> None:
        old = self.journal.interrupted()
        if self.request.notes_only and old is not None:
            self._take_over(old)
            self.result.end(self.back.go("A change was interrupted.", None))
            if self.result.outcome == LEFT_STOPPED:
                return
            self.result.reason, old = "", None
        driver = self._driver()
        if driver:
            self._refuse()
        self.result.changed = True
        if old is not None:
            self._take_over(old)
        elif driver:
            self._begin()
        try:
            if driver or old is not None:
                self._remove()
            else:
                self._unhold()
                self._forget()
        except NpuError as exc:
            self.result.end(Ending(UNFINISHED, str(exc)))

    def _refuse(self) -> None:
        """NpuError before any change: other packages would go, the driver is in use, or the installer differs."""
        if self.journal.interrupted() is None:
            self.parts.refuse_interrupted()
        if self.parts.has_manager and not self.parts.manager.blocked(self.profile.package_patterns):
            self.parts.removable()
        for item in self.request.files:
            if not verified(item["path"], item["sha256"]):
                raise NpuError(
                    "%s is missing or does not have the SHA-256 %s." % (item["path"], item["sha256"]),
                    "Transfer it again; nothing was changed.",
                )
        if self.request.uninstall and (self.request.files or self._kept() is not None):
            require_workplace(self.host, self.profile, self.request)
        self.units.require_answers()
        self._refuse_or_wait()
        self.parts.wait_for_manager(self.units.sleep)

    def _remove(self) -> None:
        journal = self.journal
        try:
            journal.step("stop", lambda: self.units.stop(journal))
            journal.step("unload", self.units.unload)
        except NpuError as exc:
            if journal.record.get("touched"):
                raise
            # Nothing is removed yet; restore the services.
            self._start_again()
            self.units.start_services(journal, self.result.warn)
            journal.end()
            self.result.end(Ending(RESTORED, str(exc)))
            return
        # From here on only a new installation restores the driver.
        journal.save(touched=True)
        journal.step("remove", self._remove_driver)
        journal.step("files", self._remove_files)
        self.units.start_services(journal, self.result.warn)
        journal.end()
        self._forget()

    def _start_again(self) -> None:
        journal = self.journal
        try:
            if (journal.record["previous"] or {}).get("loaded") and self.units.loaded_version() is None:
                self.units.load()
            self.units.start_daemon(journal)
        except NpuError as exc:
            self.result.warn(str(exc))

    def _finish(self) -> RemovalResult:
        super()._finish()
        return self.result

    # -- what is left

    def _see(self) -> list[str]:
        """What is left on the host. Also sets `left` and `installer` of the result."""
        driver = self._driver()
        self.result.left = driver + notes(self.host, self.profile)
        self.result.installer = bool(driver and self.request.uninstall and self._kept() is None)
        return list(self.result.left)

    def _driver(self) -> list[str]:
        if self.request.notes_only:
            return []
        packages = sorted(vendor_packages(self.host, self.profile)) if self.parts.has_manager else []
        loaded = [self.profile.module + " (loaded)"] if self.units.loaded_version() is not None else []
        return packages + loaded + residue(self.host, self.profile)

    def _kept(self) -> Material | None:
        """The kept installer of the present driver, or of the one before an interrupted removal."""
        stamp = read_record(self.host, stamp_path(self.profile)).get()
        before = self.journal.record or read_record(self.host, self.journal.path).get({})
        kept = self.parts.kept((before.get("previous") or {}).get("version") or self.units.present_version(stamp))
        return material_of(kept) if kept is not None and kept.source == RUNFILE else None

    # -- acts

    def _unhold(self) -> None:
        """Unhold what we held."""
        stamp = read_record(self.host, stamp_path(self.profile)).get({})
        ours = [*stamp.get("held", []), *stamp.get("held_kernel", [])]
        if ours and self.parts.has_manager:
            held = self.parts.manager.held()
            if [name for name in ours if name in held]:
                self.parts.manager.unhold([name for name in ours if name in held])

    def _remove_driver(self) -> None:
        material = self._kept()
        if material is not None:
            material.uninstall = self.request.uninstall or material.uninstall
        elif self.request.files and self.request.uninstall:
            material = Material(
                RUNFILE, self.request.version, [dict(item) for item in self.request.files], (), self.request.uninstall
            )
        self._unhold()
        self.result.packages = self.parts.remove(material)
        dkms, _probe = read_dkms(self.host, (self.profile.module, *self.profile.driver_packages))
        for module, number in sorted({(row["module"], row["version"]) for row in dkms}):
            done = self.host.run(["dkms", "remove", "%s/%s" % (module, number), "--all"], self.request.timeout)
            if not done.ok or done.value.rc != 0:
                self.result.warn("dkms could not remove %s/%s; its tree was deleted." % (module, number))

    def _remove_files(self) -> None:
        found = residue(self.host, self.profile)
        for path in found:
            self._delete(path)
        for kernel in sorted({path.split("/")[3] for path in found if path.startswith("/lib/modules/")}):
            self.host.run(["depmod", "-a", kernel], 120.0)
        if any(".so" in os.path.basename(path) for path in found):
            self.host.run(["ldconfig"], 120.0)
        for act in (["systemctl", "daemon-reload"], ["udevadm", "control", "--reload"]):
            self.host.run(act, 60.0)

    def _delete(self, path: str) -> None:
        real = self.host.real(path)
        try:
            if os.path.isdir(real) and not os.path.islink(real):
                shutil.rmtree(real)
            else:
                remove_file(self.host, path)
        except OSError as exc:
            raise explain(exc, path, "removed") from exc

    def _forget(self) -> None:
        """Remove notes and kept installers last. Keys and a bundle in the same directory stay."""
        for path in notes(self.host, self.profile):
            if path != self.profile.runfile_stamp_dir:
                self._delete(path)
        remove_empty_directory(self.host, self.profile.runfile_stamp_dir)
        self.result.outcome = REMOVED
        if self._see():
            self.result.reason = "Some parts of the driver are left on the host: %s." % ", ".join(self.result.left)
