# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The two driver sources, runfile and packages: simulate, install, remove."""

from __future__ import annotations

import fnmatch
import os
import posixpath
import shutil
import typing as t

from .._base.model import NpuError
from .._base.vendor import VendorProfile
from .._base.versions import same_release
from .._host.files import explain
from .._host.host import Host
from .._host.private import private_directory
from .._npu.driver_notes import INCOMING, KEPT, state_path
from .._packages.base import PackageManager
from .._packages.changes import Change, Transaction, fits, planned
from .._packages.installed import read_packages
from .._packages.lists import Missing
from .._packages.pins import is_pinned
from .._packages.runfile import execute, sha256_of_file, verified
from .kept import Kept, keep, read_kept, verify
from .material import Material, workplace
from .request import PACKAGE, RUNFILE, Request

MANAGER_TURNS = 60
MANAGER_PAUSE = 5.0
SUFFIXES = {"deb": ".deb", "rpm": ".rpm"}

File = t.Mapping[str, str]


def vendor_packages(host: Host, profile: VendorProfile) -> dict[str, str]:
    """{name: version} of the vendor's packages, partly installed ones included. NpuError when unknown."""
    found, _format, probe = read_packages(host, profile.package_patterns, 60.0)
    if not probe.ok and probe.state != "absent":
        raise NpuError("The installed packages cannot be read: %s." % probe.detail, "Run as root.")
    return {item["name"]: item["version"] for item in found if item["state"] not in ("config-files", "not-installed")}


def matches(name: str, patterns: t.Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


class Parts:
    """Source, packages and kept drivers of one host."""

    def __init__(self, host: Host, profile: VendorProfile, request: Request, manager: PackageManager | None) -> None:
        self.host, self.profile, self.request, self._manager = host, profile, request, manager
        self.patterns = [
            *profile.package_patterns,
            *(name.split("=")[0] for name in request.names),
            *request.packages,
            *request.allowed,
        ]

    @property
    def manager(self) -> PackageManager:
        if self._manager is None:
            raise NpuError(
                "This host has neither a dpkg nor an rpm database.", "Use a runfile that needs no package manager."
            )
        return self._manager

    @property
    def has_manager(self) -> bool:
        return self._manager is not None

    # -- what to install from

    def material(self) -> tuple[Material, list[Change]]:
        """Verified files to install, and the package changes (unknown for an installer that is only run).

        NpuError before any change: a digest differs, packages are missing, or other packages would change.
        """
        request = self.request
        if request.bundle:
            self.whole_bundle()
        for item in request.files:
            if not verified(item["path"], item["sha256"]):
                raise NpuError(
                    "%s is missing or does not have the SHA-256 %s." % (item["path"], item["sha256"]),
                    "Transfer it again; nothing was changed.",
                )
        files = [dict(item) for item in request.files]
        if not files and (request.source == RUNFILE or not request.names):
            raise NpuError(
                "There is nothing to install: neither files nor package names are set.",
                "Set files or names; nothing was changed.",
            )
        if request.source == RUNFILE and not request.extract:
            return Material(RUNFILE, request.version, files, request.arguments, request.uninstall), []
        if request.source == RUNFILE:
            files = self._extract(files[0])
        changes = self.simulate([item["path"] for item in files])
        if request.names:
            # Install exactly what was simulated, and keep a copy for a rollback.
            given = [self.manager.describe(item["path"])["name"] for item in files]
            sign = "=" if self.manager.format == "deb" else "-"
            wanted = ["%s%s%s" % (item.name, sign, item.new) for item in changes if item.new and item.name not in given]
            if not changes:
                # A resumed change has installed them already; the copies are still needed.
                there = vendor_packages(self.host, self.profile)
                wanted = [
                    "%s%s%s" % (name, sign, version) for name, version in sorted(there.items()) if name not in given
                ]
            try:
                paths = self.manager.download(wanted, self._directory("packages"))
            except NpuError:
                if changes:
                    raise
                paths = []
            for path in paths:
                files.append({"path": path, "sha256": sha256_of_file(path)})
        return Material(PACKAGE, request.version, files, (), ()), changes

    def whole_bundle(self) -> None:
        """NpuError when the bundle is not whole, or lacks something that the change needs."""
        # Imported here: its reader needs a web client, which nothing else needs.
        from .._bundle.needs import Needs, require
        from .._bundle.place import whole

        names = list(self.request.names) if self.request.source == PACKAGE else []
        require(
            whole(self.host, self.request.bundle),
            Needs(driver_packages=names, packages=self.request.prerequisites),
            self.request.bundle,
        )

    def simulate(self, files: t.Sequence[str] = ()) -> list[Change]:
        """What installing the packages and files would change.

        NpuError when packages beyond the allowed ones change.
        """
        names = [self._resolved(name) for name in self.request.names]
        changes = self.manager.simulate(
            Transaction(install=names, files=list(files), allow_downgrade=True, allow_held=True)
        )
        self._refuse_beyond(planned(changes, self.patterns, False))
        return changes

    def foresee(self) -> list[Change]:
        """simulate() with the package lists as they are; Missing when they lack a package."""
        self.manager.lists.freeze()
        return self.simulate()

    def foresee_prerequisites(self) -> None:
        """simulate_prerequisites() with the package lists as they are; Missing when they lack a package."""
        if self.request.prerequisites:
            self.manager.lists.freeze()
            self.simulate_prerequisites()

    def wait_for_manager(self, sleep: t.Callable[[float], None]) -> None:
        """Wait for the lock of the package manager; NpuError names its holder.

        An installer would fail during the change.
        """
        holder = ""
        for _turn in range(MANAGER_TURNS):
            holder = self.manager.busy() if self.has_manager else ""
            if not holder:
                return
            sleep(MANAGER_PAUSE)
        raise NpuError(
            "The package manager is in use by %s." % holder,
            "Wait until it ends and run again; nothing was changed.",
        )

    def _resolved(self, name: str) -> str:
        if "=" in name or not self.request.version:
            return name
        found = self.manager.resolve(name, self.request.version)
        if found is None:
            there = ", ".join(self.manager.available(name)) or "none"
            lost = self.manager.left_out
            raise Missing(
                " ".join(
                    [
                        "No repository of this host has %s in version %s; available: %s."
                        % (name, self.request.version, there),
                        *lost,
                    ]
                ),
                "Repair the repository that was left out, or add this version to another one; nothing was changed."
                if lost
                else "Add this version to a repository, or correct the version; nothing was changed.",
            )
        return "%s%s%s" % (name, "=" if self.manager.format == "deb" else "-", found)

    def _refuse_beyond(self, beyond: t.Sequence[Change]) -> None:
        if beyond:
            raise NpuError(
                "The package manager would also %s." % ", ".join("%s %s" % (item.act, item.name) for item in beyond),
                "Allow these packages by name, or resolve the conflict; nothing was changed.",
            )

    def _execute(self, runfile: File, arguments: t.Sequence[str]) -> None:
        try:
            with workplace(self.host, self.profile, self.request) as directory:
                execute(self.host, runfile["path"], runfile["sha256"], arguments, self.request.timeout, directory)
        except NpuError as exc:
            if not self.request.log:
                raise
            raise NpuError(exc.message, "%s The log is %s." % (exc.next_step, self.request.log)) from exc

    def _directory(self, name: str) -> str:
        path = self.host.real(posixpath.join(state_path(self.profile, INCOMING), name))
        try:
            shutil.rmtree(path, ignore_errors=True)
            private_directory(os.path.dirname(path), os.geteuid())
            private_directory(path, os.geteuid())
        except OSError as exc:
            raise explain(exc, path, "created") from exc
        return path

    def _extract(self, runfile: File) -> list[dict[str, str]]:
        directory = self._directory("extracted")
        arguments = [word.replace("{directory}", directory) for word in self.request.extract]
        self._execute(runfile, arguments)
        suffix = SUFFIXES[self.manager.format]
        found = []
        for folder, _folders, names in os.walk(directory):
            for name in sorted(names):
                path = os.path.join(folder, name)
                if name.endswith(suffix) and (
                    not self.request.packages or matches(self.manager.describe(path)["name"], self.request.packages)
                ):
                    found.append({"path": path, "sha256": sha256_of_file(path)})
        if not found:
            raise NpuError(
                "The runfile contains no matching %s package." % suffix,
                "Correct the arguments of extract, or the package patterns; nothing was changed.",
            )
        return found

    # -- acts

    def simulate_prerequisites(self) -> list[Change]:
        """What installing the build packages would change; NpuError when it changes or removes installed packages."""
        if not self.request.prerequisites or self.manager.blocked(self.profile.package_patterns):
            # Partly installed packages are repaired first; until then every simulation fails.
            return []
        changes = self.manager.simulate(self.prerequisites)
        self._refuse_beyond(planned(changes, list(self.request.prerequisites) + list(self.request.allowed), True))
        return changes

    def refuse_interrupted(self) -> None:
        """NpuError when a repair would finish packages of others, unless `repair` allows that."""
        own = [*self.patterns, *self.request.prerequisites, *self.request.absent]
        blocked = self.manager.blocked(self.profile.package_patterns) if self.has_manager else []
        left = [name for name in blocked if not fits(name, own)]
        if left and not self.request.repair:
            raise NpuError(
                "The package manager was interrupted, and has not finished %s." % ", ".join(left),
                "Run dpkg --configure -a on the host, or set repair; nothing was changed.",
            )

    @property
    def prerequisites(self) -> Transaction:
        """Installs the build packages; past holds and excludes where one of them is allowed by name."""
        names = list(self.request.prerequisites)
        return Transaction(install=names, allow_held=any(is_pinned(name, self.request.allowed) for name in names))

    def install(self, material: Material) -> None:
        """Install the driver, after a repair of what an interrupted run left."""
        if self.has_manager:
            self.manager.repair(self.profile.package_patterns)
        if material.source == RUNFILE:
            first = material.files[0]
            self._execute(first, material.arguments)
            return
        damaged = [item["path"] for item in material.files if not verified(item["path"], item["sha256"])]
        if damaged:
            raise NpuError("%s is damaged." % ", ".join(damaged), "Transfer the files again.")
        self.manager.apply(
            Transaction(files=[item["path"] for item in material.files], allow_downgrade=True, allow_held=True)
        )

    def remove(self, material: Material | None, before: t.Collection[str] = ()) -> list[str]:
        """Remove a driver with its installer if known, then the vendor's packages except `before`.

        Returns removed packages.
        """
        if self.has_manager:
            self.manager.repair(self.profile.package_patterns)
        if material is not None and material.source == RUNFILE and material.uninstall and material.files:
            if self.request.absent and self.has_manager:
                # Otherwise the installer fails while these packages need the driver.
                self.manager.apply(Transaction(remove=list(self.request.absent), purge=True, allow_held=True))
            self._execute(material.files[0], material.uninstall)
        names = self.removable(before)
        if self.has_manager:
            names += [name for name in self._shells() if name not in before]
        if names:
            held = [name for name in self.manager.held() if name in names]
            if held:
                self.manager.unhold(held)
            self.manager.apply(Transaction(remove=names, purge=True, allow_held=True))
        return names

    def _shells(self) -> list[str]:
        """The vendor's packages that are removed but not purged, as a repair leaves them."""
        found, _format, _probe = read_packages(self.host, self.profile.package_patterns, 60.0)
        return sorted(item["name"] for item in found if item["state"] == "config-files")

    def removable(self, before: t.Collection[str] = ()) -> list[str]:
        """The vendor's packages except `before`, plus `absent` of the request.

        NpuError when other packages would go too.
        """
        present = vendor_packages(self.host, self.profile)
        extra = [name for name in self.request.absent if self.has_manager and name not in present]
        names = sorted(name for name in present if name not in before) + extra
        if names:
            self._refuse_beyond(
                planned(
                    self.manager.simulate(Transaction(remove=names, allow_held=True)),
                    [*self.patterns, *self.request.absent],
                    False,
                )
            )
        return names

    # -- rollback

    def put_back(self, material: Material, before: t.Collection[str]) -> None:
        """Remove the packages that came after a kept driver, and install it again."""
        if self.has_manager:
            self.manager.repair(self.profile.package_patterns)
        came = sorted(name for name in vendor_packages(self.host, self.profile) if name not in before)
        # An empty list comes from an older journal and means unknown.
        if came and (before or isinstance(before, dict)) and self.has_manager:
            self.manager.apply(Transaction(remove=came, purge=True, allow_held=True))
        self.install(material)

    def clear_incoming(self) -> None:
        """Delete transferred and unpacked files; kept files are elsewhere."""
        shutil.rmtree(self.host.real(state_path(self.profile, INCOMING)), ignore_errors=True)

    @property
    def kept_directory(self) -> str:
        return state_path(self.profile, KEPT)

    def kept(self, version: str | None, warn: t.Callable[[str], None] | None = None) -> Kept | None:
        """The newest complete kept driver of a version, else of its release: 3.2.2-x1 is of 3.2.2.

        With `warn`, each copy is compared with its SHA-256 first; a damaged one is reported and skipped.
        """
        found = read_kept(self.host, self.kept_directory)
        fitting = [item for item in found if item.version == version] + [
            item for item in found if item.version != version and same_release(item.version, version)
        ]
        for item in fitting:
            damaged = verify(self.host, item) if warn is not None else []
            if not damaged:
                return item
            if warn is not None:
                warn(
                    "The copy of driver %s in %s is damaged (%s) and is not used."
                    % (item.version, item.path, ", ".join(damaged))
                )
        return None

    def keep(self, material: Material, now: str) -> Kept:
        """Keep verified copies of the files of a validated driver."""
        record = {
            "version": material.version,
            "source": material.source,
            "arguments": list(material.arguments),
            "uninstall": list(material.uninstall),
            "extract": list(self.request.extract),
            "packages": [
                {"name": name, "version": version}
                for name, version in sorted(vendor_packages(self.host, self.profile).items())
            ],
            "time": now,
        }
        return keep(self.host, self.kept_directory, record, [item["path"] for item in material.files])

    def keep_installed(self, version: str, packages: t.Mapping[str, str], now: str) -> bool:
        """Download the installed packages and keep them; False when no repository has them."""
        sign = "=" if self.manager.format == "deb" else "-"
        try:
            paths = self.manager.download(
                ["%s%s%s" % (name, sign, packages[name]) for name in sorted(packages)], self._directory("installed")
            )
        except NpuError:
            return False
        files = []
        for path in paths:
            files.append({"path": path, "sha256": sha256_of_file(path)})
        self.keep(Material(PACKAGE, version, files), now)
        return True
