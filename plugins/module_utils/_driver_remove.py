# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Take everything of the driver off a host and prove it: packages, DKMS trees, modules, units, rules, holds, notes."""

from __future__ import annotations

import os
import shutil
import typing as t

from . import _kmod
from ._driver import read_dkms
from ._driver_change import RESTORED, DriverChange
from ._driver_parts import material_of, vendor_packages
from ._driver_state import Record, read_record, stamp_path
from ._files import explain, remove_file
from ._host import ABSENT, Host
from ._model import NpuError
from ._vendor import VendorProfile

REMOVED = "removed"
UNFINISHED = "unfinished"
MODULE_DIRS = ("updates", "updates/dkms", "extra", "weak-updates", "kernel/drivers/accel")


def residue(host: Host, profile: VendorProfile) -> t.List[str]:
    """Host paths of the driver's files in the places of `profile.residue` and below /lib/modules, /usr/src and DKMS's tree."""
    found: t.List[str] = []
    merged = host.readlink("/lib").ok
    for directory, pattern in profile.residue:
        if not (merged and directory.startswith("/lib/")):
            found += host.glob(directory, pattern)
    for kernel in host.listdir("/lib/modules").get([]):
        for folder in MODULE_DIRS:
            found += host.glob("/lib/modules/%s/%s" % (kernel, folder), profile.module + ".ko*")
    for name in (profile.module, *profile.driver_packages):
        found += host.glob("/var/lib/dkms", name) + host.glob("/usr/src", name + "-[0-9]*")
    return sorted(set(found))


def owned(host: Host, paths: t.Sequence[str]) -> t.Set[str]:
    """Those of `paths` that an installed package owns: they are not ours to delete."""
    found = set()
    for path in paths:
        for query in (["dpkg", "-S", path], ["rpm", "-qf", path]):
            done = host.run(query, 30.0)
            if done.ok and done.value.rc == 0:
                found.add(path)
    return found


class DriverRemoval(DriverChange):
    """As DriverChange, towards no driver. There is no way back: what fails is told, and the next run goes on."""

    def foresee(self) -> Record:
        self.result["in_use"] = self.units.holders()
        self.result["left"] = self._left()
        self.result["changed"] = bool(self.result["left"])
        return self.result

    def run(self) -> Record:
        with self.journal.locked():
            self.result["left"] = self._left()
            old = self.journal.interrupted()
            if not self.result["left"] and old is None:
                return self._finish()
            if self.parts.has_manager and not self.parts.manager.unfinished():
                self.parts.removable()
            self.units.refuse_or_wait(self.result)
            self._take_over(old) if old is not None else self._begin()
            self.result["changed"] = True
            try:
                self._remove()
            except NpuError as exc:
                self.result.update(outcome=UNFINISHED, reason=str(exc))
        return self._finish()

    def _remove(self) -> None:
        journal = self.journal
        try:
            journal.step("stop", lambda: self.units.stop(journal))
            journal.step("unload", lambda: _kmod.unload(self.host, self.profile.module, self.request.load_timeout))
        except NpuError as exc:
            # Nothing is removed yet, so the host goes on as before.
            self.units.start_daemon(journal)
            self.units.start_services(journal, self.result["warnings"])
            journal.end()
            self.result.update(outcome=RESTORED, reason=str(exc))
            return
        journal.step("remove", self._remove_driver)
        journal.step("files", self._remove_files)
        self.units.start_services(journal, self.result["warnings"])
        journal.end()
        self._remove_state()
        self.result["left"] = self._left()
        self.result["outcome"] = REMOVED
        if self.result["left"]:
            self.result["reason"] = "Something is left on the host: %s." % ", ".join(self.result["left"])

    def _finish(self) -> Record:
        self.result["failed"] = bool(self.result["reason"])
        return self.result

    def _left(self) -> t.List[str]:
        packages = sorted(vendor_packages(self.host, self.profile)) if self.parts.has_manager else []
        loaded = [self.profile.module + " (loaded)"] if _kmod.loaded_version(self.host, self.profile.module) is not None else []
        noted = [self.profile.runfile_stamp_dir] if self.host.stat(stamp_path(self.profile)).state != ABSENT else []
        return packages + loaded + residue(self.host, self.profile) + noted

    def _remove_driver(self) -> None:
        stamp = read_record(self.host, stamp_path(self.profile)).get({})
        version = self.journal.record["previous"].get("version")
        kept = self.parts.kept(version)
        material = material_of(kept) if kept is not None else None
        if material is None and self.request.files and self.request.uninstall:
            material = self.parts.material()[0]
        elif material is not None and self.request.uninstall:
            material.uninstall = self.request.uninstall
        if self.parts.has_manager:
            holds = [name for name in [*stamp.get("held", []), *stamp.get("held_kernel", [])] if name in self.parts.manager.held()]
            if holds:
                self.parts.manager.unhold(holds)
        self.result["packages"] = self.parts.remove(material)
        dkms, _probe = read_dkms(self.host, (self.profile.module, *self.profile.driver_packages))
        for module, number in sorted({(row["module"], row["version"]) for row in dkms}):
            done = self.host.run(["dkms", "remove", "%s/%s" % (module, number), "--all"], self.request.timeout)
            if not done.ok or done.value.rc != 0:
                self.result["warnings"].append("dkms did not remove %s/%s; its tree is deleted." % (module, number))

    def _remove_files(self) -> None:
        found = residue(self.host, self.profile)
        kernels = set()
        for path in [item for item in found if item not in owned(self.host, found)]:
            if path.startswith("/lib/modules/"):
                kernels.add(path.split("/")[3])
            real = self.host.real(path)
            try:
                if os.path.isdir(real) and not os.path.islink(real):
                    shutil.rmtree(real)
                else:
                    remove_file(self.host, path)
            except OSError as exc:
                raise explain(exc, path, "removed") from exc
        for kernel in sorted(kernels):
            self.host.run(["depmod", "-a", kernel], 120.0)
        for act in (["systemctl", "daemon-reload"], ["udevadm", "control", "--reload"]):
            self.host.run(act, 60.0)

    def _remove_state(self) -> None:
        """The directory of notes goes last, with everything in it: only what is not there can be asked for again."""
        shutil.rmtree(self.host.real(self.profile.runfile_stamp_dir), ignore_errors=True)
        if self.host.exists(self.profile.runfile_stamp_dir):
            raise NpuError("%s cannot be removed." % self.profile.runfile_stamp_dir, "See what is in it and run again.")
