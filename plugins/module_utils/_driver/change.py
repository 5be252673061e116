# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One change of the driver as a transaction: check first, journal each step before it acts, roll back on failure.

A step may run twice: after a power failure the next run continues with what the journal records (units to start, the
version to roll back to).
"""

from __future__ import annotations

import typing as t

from .._base.model import NpuError
from .._base.vendor import VendorProfile
from .._base.versions import same_release
from .._checks.ready_files import remove_markers
from .._host.files import remove_file
from .._host.host import Host
from .._kernel import load
from .._npu.driver_notes import TAINTED, Record, forgive, read_record, refuse, stamp_path, state_path
from .._npu.firmware import told
from .._npu.users import describe_holders
from .._packages.base import PackageManager
from .._packages.changes import Transaction, fits
from .._packages.lists import Missing
from .back import WayBack
from .build import build, module_lack
from .cards import Cards
from .context import ChangeContext
from .holds import Holds
from .journal import FORWARD, Journal, utc
from .kept import prune
from .material import Material, require_room_to_write
from .request import RUNFILE, STOP, DriverValidation, Request, Unfit
from .result import FIRMWARE_FAILED, INSTALLED, LEFT_STOPPED, PREPARED, REBOOT, UPGRADED, ChangeResult, Ending
from .sources import Parts, vendor_packages
from .units import InUse, Units

# These checks may fail before flashing, which corrects them.
FIRMWARE_CHECKS = ("firmware_is_driver",)


class DriverChange:
    """Carries out one request. `result` is complete when run() or foresee() returns or raises."""

    def __init__(
        self,
        host: Host,
        profile: VendorProfile,
        request: Request,
        manager: PackageManager | None,
        validation: DriverValidation,
        units: Units | None = None,
    ) -> None:
        self.host, self.profile, self.request, self.validation = host, profile, request, validation
        self.parts = Parts(host, profile, request, manager)
        self.journal = Journal(host, profile)
        self.units = units or Units(host, profile, request)
        self.waits = False
        self.result = self._new_result()
        self.result.steps = self.journal.times
        context = ChangeContext(
            host, profile, request, validation, self.parts, self.journal, self.units, self.result.warn
        )
        self.holds = Holds(context)
        self.cards = Cards(context)
        self.back = WayBack(context, self.holds)

    def _new_result(self) -> ChangeResult:
        return ChangeResult(version=self.request.version or None)

    # -- the whole

    @property
    def disturbs(self) -> bool:
        return bool(self.request.install or self.request.reload or self.request.firmware)

    def foresee(self) -> ChangeResult:
        """Predict run(): simulated package changes and the users of the NPUs. NpuError where run() would refuse.

        Files that are not on the host yet are left out. Whether a wait for users will end is not known.
        """
        request = self.request
        if self.journal.interrupted() is None and (request.install or request.prerequisites):
            self.parts.refuse_interrupted()
        if request.install and request.bundle:
            self.parts.whole_bundle()
        try:
            if request.install and not request.files and request.names:
                self.result.simulated = [vars(change) for change in self.parts.foresee()]
            self.parts.foresee_prerequisites()
        except Missing as exc:
            self.result.warn(
                "The changes of the package manager are known only when the source is in place: %s" % exc.message
            )
        if request.install:
            require_room_to_write(self.host, self.profile, request, dry=True)
        if self.disturbs:
            self.units.require_answers()
            try:
                self.result.in_use = self.units.foresee()
            except InUse as exc:
                self.result.in_use = exc.users
                raise
        self.result.changed = True
        self._tell_seen()
        return self.result

    def foreseen(self, before: t.Mapping[str, str]) -> dict[str, str]:
        """foresee(), and the vendor's packages with their versions after this change, as far as it knows them."""
        self.foresee()
        after = dict(before)
        if self.request.install and self._legacy():
            after.pop(self.profile.legacy_package, None)
        for row in self.result.simulated:
            after.pop(row["name"], None)
            if row["new"] and fits(row["name"], self.profile.package_patterns):
                after[row["name"]] = row["new"]
        if self.request.install and not self.result.simulated:
            after[("the packages of driver %s" % self.request.version).rstrip()] = "are known after the installation"
        return after

    def run(self) -> ChangeResult:
        """Carry out the request.

        NpuError when nothing was changed; otherwise `outcome` and `reason` report a failure.
        """
        with self.journal.locked():
            old = self.journal.interrupted()
            if old is not None and not self.disturbs:
                self._take_over(old)
                self.result.end(self.back.go("A change was interrupted.", None))
                if self.result.outcome != LEFT_STOPPED:
                    # Undoing the change was the request.
                    self.result.reason = ""
                return self._finish()
            material: Material | None = None
            if old is None and (self.request.install or self.request.prerequisites):
                self.parts.refuse_interrupted()
            if self.request.install:
                material, changes = self.parts.material()
                self.result.simulated = [vars(change) for change in changes]
            self.parts.simulate_prerequisites()
            if self.request.install:
                require_room_to_write(self.host, self.profile, self.request)
            if self.request.install or self.request.prerequisites:
                self.parts.wait_for_manager(self.units.sleep)
            if self.disturbs:
                self.units.require_answers()
                self._refuse_or_wait()
            self._take_over(old) if old is not None else self._begin()
            self.result.changed = True
            try:
                self._forward(material)
            except NpuError as exc:
                self.result.end(self._failed(exc, material))
            return self._finish()

    def _finish(self) -> ChangeResult:
        self.result.firmware = self.cards.results
        self._tell_seen()
        return self.result

    def _tell_seen(self) -> None:
        for text in dict.fromkeys(self.parts.manager.warnings if self.parts.has_manager else ()):
            self.result.warn(text)

    # -- before

    def _refuse_or_wait(self) -> None:
        try:
            self.result.in_use = self.units.refuse_or_wait(self.journal.tell)
        except InUse as exc:
            self.result.in_use = exc.users
            raise
        finally:
            self.journal.tell("")

    def _wanted(self) -> Record:
        return {
            "version": self.request.version,
            "source": self.request.source,
            "files": sorted(str(item["sha256"]).lower() for item in self.request.files),
            "names": list(self.request.names),
        }

    def _present(self) -> tuple[Record, dict[str, str]]:
        """The state to roll back to (a copy is kept if possible), and the installed packages with versions."""
        packages = vendor_packages(self.host, self.profile)
        stamp = read_record(self.host, stamp_path(self.profile)).get()
        version = self.units.present_version(stamp)
        kept = self.parts.kept(version, self.result.warn) is not None
        if (
            version
            and not kept
            and self.request.rollback
            and self.request.install
            and packages
            and self.parts.has_manager
        ):
            kept = self.parts.keep_installed(version, packages, utc(self.host))
        if version and not kept and self.request.install:
            self.result.warn("The host keeps no copy of driver %s: a rollback to it is not possible." % version)
        loaded = self.units.loaded_version() is not None
        failed = self.validation.failed() if loaded else []
        previous = {
            "version": version,
            "module": self.units.module_version(),
            "kept": kept,
            "loaded": loaded,
            "stamp": stamp,
            "failed": failed,
        }
        return dict(previous, held=self.holds.now()), packages

    def _begin(self, old: Record | None = None) -> None:
        """Start a journal.

        `old` is the journal of an interrupted change; its finished steps count only if the goal is the same.
        """
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
                "done": self._still_done(old) if same else [],
                "wanted": self._wanted(),
                "previous": previous,
                "before": before,
                "stopped": old.get("stopped") or [],
                "touched": bool(old.get("touched")),
                "opaque": bool(old.get("opaque", old.get("touched"))),
                "flashed": old.get("flashed"),
                "reboot": False,
                "reason": "",
            }
        )
        self.result.previous = previous.get("version")
        self.result.firmware = self.cards.results = old.get("flashed") or []

    def _still_done(self, old: Record) -> list[str]:
        """Steps of an interrupted change with the same goal that need not run again."""
        done = old.get("done") or []
        there = "install" in done and self._is_wanted(self.units.module_version())
        return (["install"] if there else []) + (
            ["validate"] if "validate" in done and old.get("step") == "commit" else []
        )

    def _take_over(self, old: Record) -> None:
        """Take over an interrupted change.

        If its journal cannot be read, the present state counts as the previous one.
        """
        self._begin(old)
        self.result.changed = True
        self.result.warn(
            "An earlier change was interrupted at %s; this run takes it over." % (old.get("step") or "an unknown step")
        )

    # -- forward

    def _forward(self, material: Material | None) -> None:
        request, journal = self.request, self.journal
        swap = self.disturbs and not self._works_already()
        here = [kernel for kernel in request.kernels if kernel == self.units.kernel()]
        others = [kernel for kernel in request.kernels if kernel not in here]
        if request.prerequisites:
            if self.parts.manager.blocked(self.profile.package_patterns):
                self.parts.manager.repair(self.profile.package_patterns)
            journal.step("prerequisites", lambda: self.parts.manager.apply(self.parts.prerequisites))
        if material is None:
            # The loaded driver stays in use while DKMS builds.
            self._build(request.kernels)
        if swap:
            journal.step("stop", self._stop)
            journal.step("unload", self._unload)
        if material is not None and "install" not in journal.record["done"]:
            # The files that an installer replaces are not known.
            journal.save(touched=True, opaque=journal.record["opaque"] or material.source == RUNFILE)
            if self._legacy():
                journal.step(
                    "retire",
                    lambda: self.parts.manager.apply(
                        Transaction(remove=[self.profile.legacy_package], purge=True, allow_held=True)
                    ),
                )
            journal.step("install", lambda: self.parts.install(material))
        if material is not None:
            self._build(request.kernels if self.waits else here)
        if self.waits:
            self._require_module(material)
            journal.save(reboot=True)
            self.result.outcome, self.result.reboot_required = REBOOT, True
            return
        if swap:
            journal.step("load", self._load)
            journal.step("start", lambda: self.units.start_daemon(journal))
            journal.step(
                "validate",
                lambda: self.validation.prove(request.version or None, FIRMWARE_CHECKS if request.firmware else ()),
            )
        failure = self.cards.write() if request.firmware else None
        if material is not None:
            self._build(others)
        self._commit(material)
        if failure is not None:
            self.result.end(Ending(FIRMWARE_FAILED, str(failure)))

    def _build(self, kernels: t.Sequence[str]) -> None:
        if kernels:
            self.journal.step(
                "build",
                lambda: self.result.warnings.extend(
                    build(self.host, self.profile, kernels, self.request.timeout, self.request.version)
                ),
            )

    def _require_module(self, material: Material | None) -> None:
        """NpuError when an installation has not left the module that the reboot is for."""
        lack = module_lack(self.host, self.profile, self.units.kernel(), self.request.version) if material else ""
        if lack:
            raise NpuError(
                "The driver is installed, and its module is not: %s." % lack, "Read the log of DKMS and the installer."
            )

    def _works_already(self) -> bool:
        """Whether a change that was interrupted at its end left a working driver."""
        if "validate" not in self.journal.record["done"] or not self._is_wanted(self.units.loaded_version()):
            return False
        try:
            self.validation.prove(self.request.version or None)
        except Unfit:
            return False
        return True

    def _version(self) -> str:
        """The version of this change: the requested one, else the present one."""
        return self.request.version or self.units.present_version(None) or ""

    def _is_wanted(self, version: str | None) -> bool:
        return bool(version and self.request.version and same_release(version, self.request.version))

    def _stop(self) -> None:
        """Remove the ready files, then stop all users."""
        remove_markers(self.host, self.profile)
        self.units.stop(self.journal)

    def _legacy(self) -> bool:
        """Whether the change replaces the single package of old releases."""
        version = vendor_packages(self.host, self.profile).get(self.profile.legacy_package)
        return (
            version is not None
            and self.profile.legacy_release(version)
            and not self.profile.legacy_release(self.request.version)
        )

    def _unload(self) -> None:
        try:
            self.units.unload()
        except load.ModuleBusy as exc:
            found = [] if self.request.reboot_allowed and self.request.in_use == STOP else self.units.in_the_way()
            if not self.request.reboot_allowed or found:
                who = " Used by %s." % describe_holders(found) if found else ""
                raise NpuError(exc.message + who, exc.next_step) from exc
            self.waits = True

    def _load(self) -> None:
        """Load the module, unless the installer has loaded the right version already."""
        now = self.units.loaded_version()
        if (
            now is not None
            and (not self.request.version or same_release(now, self.request.version))
            and not self.request.reload
        ):
            return
        if now is not None:
            self.units.unload()
        self.units.load()

    def _commit(self, material: Material | None) -> None:
        journal, request, now = self.journal, self.request, utc(self.host)
        previous = journal.record["previous"]
        journal.save(step="commit")
        if material is not None:
            material.version = self._version()
            if request.keep > 0 and material.version and material.files:
                try:
                    self.parts.keep(material, now)
                except NpuError as exc:
                    # A validated driver stays, even without a copy.
                    self.result.warn(str(exc))
            journal.write_stamp(request, material.version, vendor_packages(self.host, self.profile))
        self.holds.make(previous)
        if self.disturbs:
            forgive(self.host, self.profile, self._version(), request.sha256)
            remove_file(self.host, state_path(self.profile, TAINTED))
            self.units.start_services(journal, self.result.warn)
        try:
            stay = [material.version] if material is not None else []
            before = self.parts.kept(previous.get("version"))
            prune(
                self.host,
                self.parts.kept_directory,
                request.keep,
                [*stay, *([before.version] if before else [])] if request.keep else [],
            )
        except NpuError as exc:
            self.result.warn(str(exc))
        self.parts.clear_incoming()
        journal.end()
        self.result.outcome = (UPGRADED if previous.get("version") else INSTALLED) if material is not None else PREPARED

    # -- back

    def _failed(self, error: NpuError, material: Material | None) -> Ending:
        """After a failure: roll back, or leave the driver stopped when a rollback is not wanted or not possible."""
        if self.cards.begun and self.cards.passed:
            # The driver works, and the previous one was never used with this firmware. The next run finishes the notes.
            self.units.start_services(self.journal, self.result.warn)
            failure = NpuError("%s %s" % (error.message, told(self.cards.results)), error.next_step)
            return Ending(FIRMWARE_FAILED, str(failure))
        if self.cards.begun:
            return self.back.leave_stopped("%s %s" % (told(self.cards.results), error))
        if isinstance(error, Unfit):
            try:
                refuse(self.host, self.profile, self._version(), self.request.sha256, error.message, utc(self.host))
            except NpuError as exc:
                self.result.warn(str(exc))
            other = "another version or file; this one is refused from now on unless retry is set."
            if " Next: " in error.message:
                error = NpuError("%s Or try %s" % (error.message, other))
            else:
                error = NpuError(error.message, "Try %s" % other)
        if self.request.rollback or not self.journal.record.get("touched"):
            return self.back.go(str(error), material)
        return self.back.leave_stopped(str(error))
