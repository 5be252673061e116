# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One change of the driver as a transaction: everything is looked at first, each step is in the journal before it acts, and a failure leads back.

A step may be done twice: the next run after a power failure starts again with what the journal owes (units to start, the version to go back to).
"""

from __future__ import annotations

import typing as t

from . import _kmod
from ._driver_back import WayBack
from ._driver_build import build
from ._driver_holds import Holds
from ._driver_material import Material, require_room_to_write
from ._driver_outcome import FAILURES, FIRMWARE_FAILED, INSTALLED, LEFT_STOPPED, PREPARED, REBOOT, UNCHANGED, UPGRADED, Judge, Unfit
from ._driver_parts import Parts, vendor_packages
from ._driver_request import RUNFILE, STOP, Request
from ._driver_state import TAINTED, Record, forgive, read_record, refuse, stamp_path, state_path, write_stamp
from ._driver_units import Units
from ._files import remove_file
from ._firmware import FlashFailed, flash, told
from ._host import Host
from ._journal import FORWARD, Journal, utc
from ._kept import prune
from ._markers import MARKERS, marker_path
from ._model import NpuError
from ._package_manager import PackageManager
from ._vendor import VendorProfile
from ._versions import same_release

# What flashing puts right is no fault of the driver before it.
FIRMWARE_CHECKS = ("firmware_is_driver",)


class DriverChange:
    """Carries out one request. `result` grows while it runs: outcome, version, previous, steps, in_use, simulated, reason, warnings, firmware."""

    def __init__(
        self, host: Host, profile: VendorProfile, request: Request, manager: t.Optional[PackageManager], judge: Judge, units: t.Optional[Units] = None
    ) -> None:
        self.host, self.profile, self.request, self.judge = host, profile, request, judge
        self.parts = Parts(host, profile, request, manager)
        self.journal = Journal(host, profile)
        self.units = units or Units(host, profile, request)
        self.waits = self.flashed = False
        self.result: Record = {
            "changed": False,
            "outcome": UNCHANGED,
            "version": request.version or None,
            "previous": None,
            "steps": self.journal.times,
            "in_use": [],
            "simulated": [],
            "reason": "",
            "reboot_required": False,
            "warnings": [],
            "firmware": [],
        }
        self.holds = Holds(host, profile, request, self.parts, self.result["warnings"])
        self.back = WayBack(host, profile, request, self.parts, self.journal, self.units, self.holds, judge, self.result)

    # -- the whole

    @property
    def disturbs(self) -> bool:
        return bool(self.request.install or self.request.reload or self.request.firmware)

    def foresee(self) -> Record:
        """What run() would do, without doing it: simulated changes of packages and what uses the NPUs now. Files that are not on the host yet are left out."""
        if self.request.install and not self.request.files and self.request.names:
            self.result["simulated"] = [vars(change) for change in self.parts.simulate()]
        self.result["in_use"] = self.units.holders() if self.disturbs else []
        self.result["changed"] = True
        return self.result

    def run(self) -> Record:
        """Carry out the request. NpuError only when nothing was changed; a change that failed is told by `outcome` and `reason`."""
        with self.journal.locked():
            old = self.journal.interrupted()
            if old is not None and not self.disturbs:
                self._take_over(old)
                self.back.go("A change was interrupted.", None)
                if self.result["outcome"] != LEFT_STOPPED:
                    # To undo is what was asked for.
                    self.result["reason"] = ""
                return self._finish()
            material: t.Optional[Material] = None
            if self.request.install:
                material, changes = self.parts.material()
                self.result["simulated"] = [vars(change) for change in changes]
            self.parts.simulate_prerequisites()
            if self.request.install:
                require_room_to_write(self.host, self.profile, self.request)
                self.parts.wait_for_manager(self.units.sleep)
            if self.disturbs:
                self.units.require_answers()
                self.units.refuse_or_wait(self.result)
            self._take_over(old) if old is not None else self._begin()
            self.result["changed"] = True
            try:
                self._forward(material)
            except NpuError as exc:
                self._failed(exc, material)
            return self._finish()

    def _finish(self) -> Record:
        self.result["failed"] = self.result["outcome"] in FAILURES and bool(self.result["reason"])
        return self.result

    # -- before

    def _wanted(self) -> Record:
        return {
            "version": self.request.version,
            "source": self.request.source,
            "files": sorted(str(item["sha256"]).lower() for item in self.request.files),
            "names": list(self.request.names),
        }

    def _present(self) -> t.Tuple[Record, t.Dict[str, str]]:
        """What a way back leads to (a copy of it is kept where that can be had), and the packages that are here with their versions."""
        packages = vendor_packages(self.host, self.profile)
        stamp = read_record(self.host, stamp_path(self.profile)).get()
        version = self.units.present_version(stamp)
        kept = self.parts.kept(version, self.result["warnings"]) is not None
        if version and not kept and self.request.rollback and self.request.install and packages and self.parts.has_manager:
            kept = self.parts.keep_installed(version, packages, utc(self.host))
        if version and not kept and self.request.install:
            self.result["warnings"].append("No copy of driver %s is kept on the host: there is no way back to it." % version)
        loaded = _kmod.loaded_version(self.host, self.profile.module) is not None
        failed = self.judge.failed() if loaded else []
        previous = {"version": version, "module": self.units.module_version(), "kept": kept, "loaded": loaded, "stamp": stamp, "failed": failed}
        return dict(previous, held=self.holds.now()), packages

    def _begin(self, old: t.Optional[Record] = None) -> None:
        """Start a journal; `old` is that of an interrupted change, whose debts are taken over. What it had done counts only towards the same end."""
        old = old or {}
        same = old.get("wanted") == self._wanted() and old.get("direction") == FORWARD
        previous, before = (old["previous"], old.get("before") or {}) if old.get("previous") else self._present()
        self.journal.begin(
            {
                "id": old.get("id") or utc(self.host),
                "started": old.get("started") or utc(self.host),
                "by": self.request.by,
                "direction": FORWARD,
                "step": "begin",
                "done": list(old.get("done") or []) if same else [],
                "wanted": self._wanted(),
                "previous": previous,
                "before": before,
                "stopped": old.get("stopped") or [],
                "touched": bool(old.get("touched")),
                "opaque": bool(old.get("opaque", old.get("touched"))),
                "reboot": False,
                "reason": "",
            }
        )
        self.result["previous"] = previous.get("version")

    def _take_over(self, old: Record) -> None:
        """Go on with what an interrupted change owes. Nothing is known of one whose journal cannot be read: what is here now counts as before."""
        self._begin(old)
        self.result["changed"] = True
        self.result["warnings"].append("An earlier change was interrupted at %s; it is taken over." % (old.get("step") or "an unknown step"))

    # -- forward

    def _forward(self, material: t.Optional[Material]) -> None:
        request, journal = self.request, self.journal
        done = list(journal.record["done"])
        if request.prerequisites:
            journal.step("prerequisites", lambda: self.parts.manager.apply(install=list(request.prerequisites)))
        if self.disturbs and "validate" not in done:
            journal.step("stop", self._stop)
            journal.step("unload", self._unload)
        if material is not None and "install" not in done:
            # Nobody knows what an installer that is only run replaces.
            journal.save(touched=True, opaque=journal.record["opaque"] or material.source == RUNFILE)
            if self._legacy():
                journal.step("retire", lambda: self.parts.manager.apply(remove=[self.profile.legacy_package], purge=True, allow_held=True))
            journal.step("install", lambda: self.parts.install(material))
        if request.kernels:
            journal.step("build", lambda: self.result["warnings"].extend(build(self.host, self.profile, request.kernels, request.timeout)))
        if self.waits:
            journal.save(reboot=True)
            self.result.update(outcome=REBOOT, reboot_required=True)
            return
        if self.disturbs and "validate" not in done:
            journal.step("load", self._load)
            journal.step("start", lambda: self.units.start_daemon(journal))
            journal.step("validate", lambda: self.judge.prove(request.version or None, FIRMWARE_CHECKS if request.firmware else ()))
        failure = self._firmware() if request.firmware else None
        self._commit(material)
        if failure is not None:
            self.result.update(outcome=FIRMWARE_FAILED, reason=str(failure))

    def _stop(self) -> None:
        """From here on nothing may take the host for ready."""
        for name in MARKERS:
            remove_file(self.host, marker_path(self.profile, name))
        self.units.stop(self.journal)

    def _legacy(self) -> bool:
        """Whether the one package of former releases is there and a driver of the new form comes in its place."""
        version = vendor_packages(self.host, self.profile).get(self.profile.legacy_package)
        return bool(version) and self.profile.legacy_release(version) and not self.profile.legacy_release(self.request.version)

    def _unload(self) -> None:
        try:
            _kmod.unload(self.host, self.profile.module, self.request.load_timeout)
        except _kmod.ModuleBusy as exc:
            found = self.units.holders() if self.request.reboot_allowed and self.request.in_use != STOP else []
            if not self.request.reboot_allowed or found:
                who = " Used by %s." % ", ".join("%s (pid %s)" % (row["name"], row["pid"]) for row in found) if found else ""
                raise NpuError(exc.message + who, exc.next_step) from exc
            self.waits = True

    def _load(self) -> None:
        """Load what is on the disk; an installer that has loaded it itself is taken at its word only when the version is right."""
        now = _kmod.loaded_version(self.host, self.profile.module)
        if now is not None and (not self.request.version or same_release(now, self.request.version)) and not self.request.reload:
            return
        if now is not None:
            _kmod.unload(self.host, self.profile.module, self.request.load_timeout)
        _kmod.load(self.host, self.profile.module, self.request.load_timeout)

    def _firmware(self) -> t.Optional[FlashFailed]:
        """Flash the cards under a driver that has passed, and have it pass again with them; the failure of a card is no failure of the driver."""
        journal, failure = self.journal, None
        # Whoever takes this over has to load the driver and to validate it again.
        journal.save(done=[name for name in journal.record["done"] if name not in ("load", "start", "validate")])
        try:
            journal.step("firmware", self._flash)
        except FlashFailed as exc:
            failure = exc
        if _kmod.loaded_version(self.host, self.profile.module) is None:
            journal.step("load", lambda: _kmod.load(self.host, self.profile.module, self.request.load_timeout))
        journal.step("start", lambda: self.units.start_daemon(journal))
        journal.step("validate", lambda: self.judge.prove(self.request.version or None))
        return failure

    def _flash(self) -> None:
        try:
            self.units.stop_daemon()
            _kmod.unload(self.host, self.profile.module, self.request.load_timeout)
            self.result["firmware"] = flash(self.host, self.profile, self.request.firmware, self.request.timeout)
            self.flashed = True
        except FlashFailed as exc:
            self.result["firmware"], self.flashed = exc.cards, True
            raise
        except NpuError as exc:
            raise FlashFailed("No card was flashed: %s" % exc.message, exc.next_step) from exc

    def _commit(self, material: t.Optional[Material]) -> None:
        journal, request, now = self.journal, self.request, utc(self.host)
        previous = journal.record["previous"]
        journal.save(step="commit")
        if material is not None:
            material.version = request.version or self.units.present_version(None) or ""
            if request.keep > 0 and material.version and material.files:
                try:
                    self.parts.keep(material, now)
                except NpuError as exc:
                    # A driver that was proven is not given up for want of a copy.
                    self.result["warnings"].append(str(exc))
            write_stamp(self.host, self.profile, request, material.version, vendor_packages(self.host, self.profile), previous, now)
            forgive(self.host, self.profile, material.version, request.sha256)
        self.holds.make(previous)
        if self.disturbs:
            remove_file(self.host, state_path(self.profile, TAINTED))
            self.units.start_services(journal, self.result["warnings"])
        try:
            stay = [material.version] if material is not None else []
            before = self.parts.kept(previous.get("version"))
            prune(self.host, self.parts.kept_directory, request.keep, [*stay, *([before.version] if before else [])] if request.keep else [])
        except NpuError as exc:
            self.result["warnings"].append(str(exc))
        self.parts.clear_incoming()
        journal.end()
        self.result["outcome"] = (UPGRADED if previous.get("version") else INSTALLED) if material is not None else PREPARED

    # -- back

    def _failed(self, error: NpuError, material: t.Optional[Material]) -> None:
        """Decide where a failure leads: nothing to undo, back, or, where going back is not wanted or leads nowhere, stopped."""
        if self.flashed:
            return self.back.leave_stopped("%s %s" % (error.message, told(self.result["firmware"])))
        if isinstance(error, Unfit):
            try:
                refuse(self.host, self.profile, self.request.version, self.request.sha256, error.message, utc(self.host))
            except NpuError as exc:
                self.result["warnings"].append(str(exc))
            error = NpuError(error.message, "Another version or file may be tried; this one only when that is asked for (retry).")
        if self.request.rollback or not self.journal.record.get("touched"):
            self.back.go(str(error), material)
        else:
            self.back.leave_stopped(str(error))
