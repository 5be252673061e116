# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RPM packages: dnf 4 and dnf 5, versionlock and rpm. A simulation reads the table that dnf shows."""

from __future__ import annotations

import posixpath
import re
import typing as t

from .._base.model import NpuError
from .._base.records import replace
from .._base.versions import natural_key
from .._host.handles import find_open
from .._host.host import Completed, Limit
from .base import QUERY_SECONDS, REFRESH_SECONDS, PackageManager
from .changes import DOWNGRADE, INSTALL, REINSTALL, UPGRADE, Change, Transaction, fits
from .dnf_output import (
    EXCLUDED,
    MISSING,
    NOT_THERE,
    REMEDIES,
    SCRIPT_FAILED,
    UNEXCLUDE,
    UNLOCK,
    UNREACHED,
    failed_scripts,
    parse_interrupted,
    parse_locks,
    parse_transaction,
)
from .lists import Missing
from .pins import DNF_CONFIG, EXCLUDE, VERSIONLOCK, is_pinned, parse_ini, read_pins, words
from .words import last_lines, lost_sources

CACHES = ("/var/cache/dnf", "/var/cache/libdnf5")
LOCKS = (
    "/var/lib/rpm/.rpm.lock",
    "/usr/lib/sysimage/rpm/.rpm.lock",
    "/usr/share/rpm/.rpm.lock",
    "/run/dnf/rpmtransaction.lock",
)
PID_FILES = (
    "/run/dnf.pid",
    "/var/lib/dnf/rpmdb_lock.pid",
    "/var/cache/dnf/metadata_lock.pid",
    "/var/cache/dnf/download_lock.pid",
)
EVR = "%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}"
QUERY = "%{NAME}\\t" + EVR + "\\t%{ARCH}\\n"
# Several versions of these may be installed, and of what provides one of INSTALL_ONLY.
MANY = re.compile(r"^(kernel|gpg-pubkey)")
INSTALL_ONLY = ("installonlypkg(kernel)", "installonlypkg(kernel-module)", "installonlypkg(vm)", "multiversion(kernel)")
PROVIDED = "[%{=NAME}\\t%{PROVIDES}\\n]"
# dnf 4 calls them all, dnf 5 *. A --disableexcludes exists only in dnf 4.
NO_EXCLUDES = "--setopt=disable_excludes=all,*"
# A repository of others that does not answer is left out, as apt does; what only it has is not found then.
SKIP = "--setopt=*.skip_if_unavailable=True"
OPTIONS = (
    "-y",
    SKIP,
    # A kernel or its headers that dnf would remove to keep only some of them is no part of a change of ours.
    "--setopt=installonly_limit=0",
    "--setopt=install_weak_deps=False",
    "--setopt=clean_requirements_on_remove=False",
    "--setopt=retries=2",
    "--setopt=timeout=30",
)
NAME = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9+._:~^-]*$")


class Dnf(PackageManager):
    """The packages of a host of the RHEL family. A version is joined to its name by -, as in rebuilt-3.4.0-1.el9."""

    format = "rpm"
    remedies = REMEDIES
    name_pattern = NAME
    missing = MISSING
    unreached = UNREACHED
    own_file = "/etc/yum.repos.d/rebellions-npu.repo"
    own_source = "rebellions-npu"
    own_key = "/etc/pki/rpm-gpg/RPM-GPG-KEY-rebellions-npu"
    others_block = False

    def simulate(self, transaction: Transaction) -> list[Change]:
        return self.with_lists(lambda: self._simulate(transaction), transaction.arriving)

    def _simulate(self, transaction: Transaction) -> list[Change]:
        changes: list[Change] = []
        for argv in self._command_lines(transaction, transaction.allow_held):
            found = self._foreseen(argv)
            changes += [change for change in found if change.name not in {known.name for known in changes}]
        changes = self._with_old(changes)
        self.refuse_downgrades(changes, transaction.allow_downgrade)
        # dnf applies the locks to repositories, but not to files.
        moved = [change.name for change in changes if change.act != INSTALL]
        held = [name for name in self.held() if name in moved] if moved and not transaction.allow_held else []
        if held:
            raise NpuError(
                "These packages are held on the host: %s." % ", ".join(held),
                "Unhold them (dnf versionlock delete).",
            )
        return changes

    def _foreseen(self, argv: t.Sequence[str]) -> list[Change]:
        """What a command line would change; NpuError when dnf refuses it."""
        done = self.ask([*argv, "--assumeno"], self.timeout, check=False)
        found = parse_transaction(done.out)
        self._tell_left_out(done)
        if done.rc != 0 and not (found and re.search(r"Operation aborted", done.out + "\n" + done.err)):
            raise self.failure([*argv, "--assumeno"], done)
        return found

    def _tell_left_out(self, done: Completed) -> None:
        for name, why in lost_sources(self.unreached, done.out + "\n" + done.err).items():
            told = "Left out, %s: the repository %s." % (why.lower() or "as without an answer", name)
            if told not in self.left_out:
                self.left_out.append(told)
                self.warnings.append(told)

    def failure(self, argv: t.Sequence[str], done: Completed) -> NpuError:
        error = super().failure(argv, done)
        said = done.out + "\n" + done.err
        if EXCLUDED.search(said) and "excluded by versionlock" not in said:
            named = re.findall(r"(?:argument: |Argument '|package )([A-Za-z0-9_][\w+.~:^-]*)", said)
            known = read_pins(self.host, self.format)[0] or ()
            pins = [pin for pin in known if any(is_pinned(one, [pin.package]) for one in named)]
            places = list(dict.fromkeys(pin.place for pin in pins if pin.by == EXCLUDE))
            remedy = UNEXCLUDE % " and ".join(places) if places else error.next_step
            if not places and any(pin.by == VERSIONLOCK for pin in pins):
                remedy = UNLOCK
            # Not Missing: newer lists would not help.
            return NpuError(error.message, remedy)
        return error

    def apply(self, transaction: Transaction) -> str:
        return self.with_lists(lambda: self._apply(transaction), transaction.arriving)

    def _apply(self, transaction: Transaction) -> str:
        changes = self._simulate(transaction)
        if not changes:
            return ""
        names = {change.name for change in changes}
        said = ""
        with self.still_held(transaction.allow_held) as held:
            # A lock names a version: it is removed first, and set again for the new version.
            self.mark(False, [name for name in held if name in names])
            for argv in self._command_lines(transaction, False):
                done = self.change(argv)
                self._tell_left_out(done)
                said += done.out + "\n" + done.err
                failed = failed_scripts(said)
                if failed:
                    raise NpuError("A script of a package failed: %s" % " | ".join(failed), SCRIPT_FAILED)
        return last_lines(said)

    def installed(self, names: t.Sequence[str]) -> list[str]:
        there = self._installed(names)
        return [name for name in names if name in there]

    def _command_lines(self, transaction: Transaction, unlocked: bool) -> list[list[str]]:
        """Command lines of the transaction, with `unlocked` as if there were no version locks.

        A removal comes after the installation, which erases what conflicts with it.
        """
        install, files, remove = transaction.install, transaction.files, transaction.remove
        self.check_names([*install, *remove])
        for path in files:
            self.describe(path)
        base = [
            "dnf",
            *OPTIONS,
            *self.options,
            *([NO_EXCLUDES] if transaction.allow_held else []),
            *(["--disableplugin=versionlock"] if unlocked and self._has_lock_plugin() else []),
        ]
        found = []
        if install or files:
            # The digests of the files were verified; packages of a repository still need its key.
            local = ["--setopt=localpkg_gpgcheck=0"] if files else []
            found.append([*base, *local, *(["--allowerasing"] if remove else []), "install", *files, *install])
        present = self._installed(remove)
        gone = [name for name in remove if name in present]
        if gone:
            found.append([*base, "remove", *gone])
        return found

    def _has_lock_plugin(self) -> bool:
        return self.host.exists("/etc/dnf/plugins/versionlock.conf")

    def _query(self, names: t.Sequence[str]) -> list[list[str]]:
        """[name, version, architecture] of installed packages; all of them without names."""
        argv = ["rpm", "-q" if names else "-qa", "--qf", QUERY, *names]
        done = self.ask(argv, check=False)
        rows = [line.split("\t") for line in done.out.splitlines()]
        # The exit code of rpm -q counts the names that are not installed.
        if done.rc != 0 and (not names or re.search(r"^error:", done.err, re.MULTILINE)):
            raise self.failure(argv, done)
        return [row for row in rows if len(row) == 3]

    def _installed(self, names: t.Sequence[str]) -> dict[str, str]:
        return {row[0]: row[1] for row in self._query(names)} if names else {}

    def _with_old(self, changes: t.Sequence[Change]) -> list[Change]:
        unknown = sorted(
            {change.name for change in changes if change.old is None and change.act in (UPGRADE, DOWNGRADE, REINSTALL)}
        )
        versions = self._installed(unknown)
        return [
            replace(change, old=versions[change.name]) if change.old is None and change.name in versions else change
            for change in changes
        ]

    def repair(self, removable: t.Sequence[str] = ()) -> bool:
        twice = self._twice()
        others = sorted({row[0] for row in twice if not fits(row[0], removable)})
        if others:
            self.warnings.append(
                "Two versions of %s are installed. They are not of the driver, so they stay." % ", ".join(others)
            )
        older = [row for row in self._older(twice) if fits(row[0], removable)]
        if older:
            self._end_twice(older, removable)
            return True
        names = [name for name in self._cut_short() if fits(name, removable)]
        if not names:
            return False
        # Reinstall: rpm counts a package as installed before its script has run.
        argv = ["dnf", *OPTIONS, *self.options, "reinstall", *names]
        done = self.change(argv, self.repair_seconds, check=False)
        if done.rc != 0 or failed_scripts(done.out + "\n" + done.err):
            self.change(["dnf", *OPTIONS, *self.options, "remove", *names], self.repair_seconds)
        return True

    def _end_twice(self, rows: t.Sequence[t.Sequence[str]], removable: t.Sequence[str]) -> None:
        """Remove these versions. `dnf remove --duplicates` would change every such package of the host."""
        argv = ["dnf", *OPTIONS, *self.options, "remove", *("%s-%s.%s" % tuple(row) for row in rows)]
        beyond = [change.name for change in self._foreseen(argv) if not fits(change.name, removable)]
        if beyond:
            raise NpuError(
                "Two versions of %s are installed, and removing the older ones would also remove %s."
                % (", ".join(sorted({row[0] for row in rows})), ", ".join(beyond)),
                "Remove the older versions by hand (rpm -e --nodeps).",
            )
        self.change(argv, self.repair_seconds)

    def unfinished(self) -> list[str]:
        return sorted({*(row[0] for row in self._twice()), *self._cut_short()})

    def _twice(self) -> list[list[str]]:
        """[name, version, architecture] of packages in several versions, as an interrupted upgrade leaves them."""
        groups: dict[tuple[str, str], list[list[str]]] = {}
        for row in self._query(()):
            groups.setdefault((row[0], row[2]), []).append(row)
        found = [row for rows in groups.values() if len(rows) > 1 for row in rows if not MANY.match(row[0])]
        many = self._install_only(sorted({row[0] for row in found})) if found else set()
        return [row for row in found if row[0] not in many]

    @staticmethod
    def _older(rows: t.Sequence[list[str]]) -> list[list[str]]:
        """All but the highest version of each package."""
        ordered = sorted(rows, key=lambda row: natural_key(row[1] if ":" in row[1] else "0:" + row[1]))
        newest = {(row[0], row[2]): row for row in ordered}
        return [row for row in ordered if row is not newest[row[0], row[2]]]

    def _install_only(self, names: t.Sequence[str]) -> set[str]:
        """Those of the installed packages that dnf never upgrades, by what they provide."""
        given = [
            word
            for item in parse_ini(self.host.read_text(DNF_CONFIG).get(""))
            if item.name == "installonlypkgs"
            for word in words(item.value)
        ]
        done = self.ask(["rpm", "-q", "--qf", PROVIDED, *names], check=False)
        rows = [line.split("\t") for line in done.out.splitlines()]
        return {row[0] for row in rows if len(row) == 2 and row[1] in (*INSTALL_ONLY, *given)} | {*names} & {*given}

    def _cut_short(self) -> list[str]:
        """Names of installed packages of the last transaction, if it was interrupted."""
        return self.installed(parse_interrupted(self.ask(["dnf", "-q", "history", "info", "last"], check=False).out))

    def download(self, names: t.Sequence[str], directory: str) -> list[str]:
        self.check_names(names)
        versions = self._installed(list(names))
        exact = ["%s-%s" % (name, versions[name]) if name in versions else name for name in names]
        cached = [path for path in map(self._cached, exact) if path]
        missing = [name for name in exact if not self._cached(name)]
        paths = self.copy_into(directory, cached)
        return paths + (self.lists.answer(lambda: self._fetch(missing, directory)) if missing else [])

    def _fetch(self, names: t.Sequence[str], directory: str) -> list[str]:
        before = set(self.host.glob(directory, "*.rpm"))
        argv = ["dnf", *OPTIONS, *self.options, NO_EXCLUDES, "download", "--destdir", directory, *names]
        done = self.change(argv, check=False)
        got = [path for path in self.host.glob(directory, "*.rpm") if path not in before]
        labels = {self._label(path, epoch) for path in got for epoch in (True, False)}
        if done.rc != 0 or not all(name in labels or not re.search(r"-[^-]+-[^-]+$", name) for name in names):
            error = self.failure(argv, done)
            # Only the answer of the mirror distinguishes a removed version from outdated lists.
            kind = Missing if NOT_THERE.search(done.out + done.err) else NpuError
            raise kind("%s cannot be downloaded. %s" % (", ".join(names), error.message), error.next_step)
        return got

    def _label(self, path: str, epoch: bool) -> str:
        found = self.describe(path)
        version = found["version"] if epoch else re.sub(r"^[0-9]+:", "", found["version"])
        return "%s-%s" % (found["name"], version)

    def _cached(self, label: str) -> str:
        """Path of exactly this package in the cache of dnf, or empty."""
        wanted = re.sub(r"-[0-9]+:", "-", label)
        for base in CACHES:
            for folder in self.host.listdir(base).get([]):
                for path in self.host.glob(posixpath.join(base, folder, "packages"), wanted + ".*.rpm"):
                    try:
                        if self._label(path, False) == wanted:
                            return path
                    except NpuError:
                        continue
        return ""

    def held(self) -> list[str]:
        # Without the plugin nothing is held.
        done = self.ask(["dnf", "-q", SKIP, "versionlock", "list"], check=False)
        return parse_locks(done.out) if done.rc == 0 else []

    def mark(self, hold: bool, names: t.Sequence[str]) -> list[str]:
        self.check_names(names)
        if names:
            self.change(["dnf", "-y", "-q", SKIP, "versionlock", "add" if hold else "delete", *names], QUERY_SECONDS)
        return sorted(names)

    def available(self, name: str) -> list[str]:
        self.check_names([name])
        # Not -q, which hides that a repository was left out.
        argv = [
            "dnf",
            SKIP,
            *self.options,
            NO_EXCLUDES,
            "repoquery",
            "--qf",
            # The characters themselves: dnf 5 does not know \\t.
            "%{name}\t%{evr}\t%{arch}\n",
            name,
        ]
        done = self.ask(argv)
        self._tell_left_out(done)
        rows = [line.split("\t") for line in done.out.splitlines()]
        found = {row[1] for row in rows if len(row) == 3 and row[0] == name and row[2] != "src"}
        return sorted(found, key=natural_key, reverse=True)

    def describe(self, path: str) -> dict[str, str]:
        argv = ["rpm", "-qp", "--nosignature", "--qf", QUERY, path]
        done = self.ask(argv, check=False)
        parts = done.out.strip().split("\t")
        if done.rc != 0 or len(parts) != 3:
            raise self.failure(argv, done)
        return {"name": parts[0], "version": parts[1], "architecture": parts[2]}

    def refresh(self, source: str = "") -> None:
        # With several repositories, skip those without an answer; a single one must answer.
        skip = str(not source)
        only = ["--disablerepo=*", "--enablerepo=" + source] if source else []
        skips = ["--setopt=skip_if_unavailable=" + skip, "--setopt=*.skip_if_unavailable=" + skip]
        argv = ["dnf", *OPTIONS, *self.options, *skips, *only, "--refresh", "makecache"]
        done = self.change(argv, min(self.timeout, REFRESH_SECONDS))
        if self.unreached.search(done.out + "\n" + done.err):
            raise self.failure(argv, done)

    def busy(self) -> str:
        holders = find_open(self.host, LOCKS)
        named = {"%s (pid %d)" % (holder.name, holder.pid or 0) for holder in holders}
        for path in PID_FILES:
            pid = self.host.read_text(path, Limit.ATTRIBUTE).get("").strip()
            if pid.isdigit() and self.host.exists("/proc/" + pid):
                named.add(
                    "%s (pid %s)"
                    % (self.host.read_text("/proc/%s/comm" % pid, Limit.ATTRIBUTE).get("a process").strip(), pid)
                )
        return ", ".join(sorted(named))
