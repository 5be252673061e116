# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Debian packages: apt-get, apt-mark, apt-cache and dpkg. Errors come with a remedy."""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import tempfile
import typing as t

from .._base.model import NpuError
from .._host.files import explain, make_directory, remove_file
from .._host.handles import find_open
from .._host.host import Completed, Limit
from .apt_output import (
    MISSING,
    REMEDIES,
    UNREACHED,
    list_prefixes,
    parse_madison,
    parse_pins,
    parse_simulation,
    section,
)
from .apt_sources import conflicting, read_sources, same_source
from .base import QUERY_SECONDS, REFRESH_SECONDS, PackageManager
from .changes import REMOVE, UPGRADE, Change, Transaction, bare_name, fits
from .installed import DPKG_STATUS, parse_dpkg_status
from .pins import PREFERENCES, is_pinned, read_pins
from .words import last_lines

ARCHIVES = "/var/cache/apt/archives"
LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", ARCHIVES + "/lock", "/var/lib/apt/lists/lock")
LISTS = "/var/lib/apt/lists"
UPDATES = "/var/lib/dpkg/updates"
INFO = "/var/lib/dpkg/info"
LOCK_SECONDS = 600
PIN_ROUNDS = 6
GONE_STATES = ("config-files", "not-installed")
DONE_STATES = ("installed",) + GONE_STATES

# Set on each call, so that the configuration of a host does not change the meaning of a name.
OPTIONS = (
    "-q",
    "-y",
    "--no-install-recommends",
    "-o",
    "APT::Cmd::Pattern-Only=true",
    "-o",
    "APT::Get::AutomaticRemove=false",
    "-o",
    "APT::Get::Show-Versions=false",
    "-o",
    "Acquire::Retries=2",
    # dpkg stays in apt's process group, so that a time limit ends both.
    "-o",
    "Dpkg::Use-Pty=false",
    "-o",
    "Dpkg::Options::=--force-confdef",
    "-o",
    "Dpkg::Options::=--force-confold",
)
# apt waits twice this long for a mirror without an answer.
REFRESH_OPTIONS = (
    "-o",
    "Acquire::Retries=1",
    "-o",
    "Acquire::http::Timeout=20",
    "-o",
    "Acquire::https::Timeout=20",
    "-o",
    "APT::Update::Error-Mode=any",
)
# Where the role has configured a repository with its key: whatever apt.conf of the host allows for others, no package
# comes without a valid signature. apt has no such option for one source.
SIGNED_OPTIONS = (
    "-o",
    "Acquire::AllowInsecureRepositories=false",
    "-o",
    "Acquire::AllowWeakRepositories=false",
    "-o",
    "Acquire::AllowDowngradeToInsecureRepositories=false",
    "-o",
    "APT::Get::AllowUnauthenticated=false",
)
ENVIRONMENT = {
    "DEBIAN_FRONTEND": "noninteractive",
    "DEBIAN_PRIORITY": "critical",
    "APT_LISTCHANGES_FRONTEND": "none",
    "UCF_FORCE_CONFFOLD": "1",
    # Ubuntu's needrestart would restart services, container runtimes too, in the middle of a change.
    "NEEDRESTART_SUSPEND": "1",
    "NEEDRESTART_MODE": "l",
}
NAME = re.compile(r"^[a-z0-9]([a-z0-9+.-]*[a-z0-9+.])?(:[a-z0-9-]+)?(=[0-9A-Za-z.+:~_-]+)?$")


class Apt(PackageManager):
    """The packages of a Debian or Ubuntu host. A version is joined to its name by =, as in rebuilt=1:2.0-1."""

    format = "deb"
    query_environment = ENVIRONMENT
    remedies = REMEDIES
    name_pattern = NAME
    missing = MISSING
    unreached = UNREACHED
    own_file = own_source = "/etc/apt/sources.list.d/rebellions-npu.sources"
    own_key = "/etc/apt/keyrings/rebellions-npu.asc"

    def simulate(self, transaction: Transaction) -> list[Change]:
        return self.with_lists(lambda: self._settle(transaction)[1], transaction.arriving)

    def apply(self, transaction: Transaction) -> str:
        return self.with_lists(lambda: self._apply(transaction), transaction.arriving)

    def _apply(self, transaction: Transaction) -> str:
        wanted, changes = self._settle(transaction)
        if not wanted or (not changes and not self.unfinished()):
            return ""
        flags = ["--purge"] if transaction.purge else []
        flags += ["--allow-downgrades"] if transaction.allow_downgrade else []
        flags += ["--allow-change-held-packages"] if transaction.allow_held else []
        flags += [] if any(change.act == REMOVE for change in changes) else ["--no-remove"]
        argv = self._apt_get(*flags, "install", *wanted)
        with self.still_held(transaction.allow_held):
            try:
                done = self.change(argv)
            finally:
                # After a failure too: the hold and the rollback need an apt that reads its sources.
                self._give_way()
        return last_lines(done.out + "\n" + done.err)

    def _give_way(self) -> None:
        """Remove the source of the role where a package has brought one of its own for the same repository.

        With another path of the key apt reads no source at all. The next run adopts the other one, or says why not.
        """
        # What apt itself says is of more use than a source that cannot be read, which the next run names.
        with contextlib.suppress(NpuError):
            sources = read_sources(self.host) if self._own() else []
            own = [item for item in sources if item.path == self.own_file]
            others = [item for item in sources if item.path != self.own_file]
            if any(same_source(others, item.uri, item.suite) for item in own):
                remove_file(self.host, self.own_file)

    def failure(self, argv: t.Sequence[str], done: Completed) -> NpuError:
        error = super().failure(argv, done)
        said = done.out + "\n" + done.err
        places = conflicting(self.host, said)
        if places:
            return type(error)(
                error.message,
                "Keep one of the sources %s, and remove the other: apt reads no source at all until then." % places,
            )
        if "has no installation candidate" in said:
            names = re.findall(r"[Pp]ackage '?([a-z0-9][^\s']*)'? has no installation candidate", said)
            pins = read_pins(self.host, self.format)[0] or ()
            found = [pin for pin in pins if pin.by == PREFERENCES and any(is_pinned(n, [pin.package]) for n in names)]
            if found:
                where = " and ".join(dict.fromkeys(pin.place for pin in found))
                return type(error)(error.message, "Correct the preference of apt in %s, or update the lists." % where)
        return error

    def _apt_get(self, *arguments: str) -> list[str]:
        return [
            "apt-get",
            *OPTIONS,
            *(SIGNED_OPTIONS if self._own() or not self.alone and self.host.exists(self.own_key) else ()),
            "-o",
            "DPkg::Lock::Timeout=%d" % min(LOCK_SECONDS, max(1, int(self.timeout / 2))),
            *arguments,
        ]

    def _settle(self, transaction: Transaction) -> tuple[list[str], list[Change]]:
        """The arguments for apt-get and the changes they make.

        apt does not change a dependency `(= version)` to a version that is not its candidate. Such a dependency is
        added to the arguments and apt is asked again. A removal alone pins the packages that apt would upgrade.
        """
        install, files, remove = transaction.install, transaction.files, transaction.remove
        self.check_names([*install, *remove])
        for path in files:
            self.describe(path)
        known = {item["name"]: item for item in self._status()}
        gone = [
            name for name in remove if known.get(bare_name(name), {}).get("state", "not-installed") != "not-installed"
        ]
        wanted = [*files, *install, *(name + "-" for name in gone)]
        if not wanted:
            return [], []
        pinned = {name.partition("=")[0] for name in install if "=" in name} | set(gone)
        for _round in range(PIN_ROUNDS):
            argv = self._apt_get(
                "-s", "--purge", "--allow-downgrades", "--allow-change-held-packages", "install", *wanted
            )
            done = self.ask(argv, check=False)
            said = done.out + "\n" + done.err
            if done.rc == 0:
                changes = parse_simulation(done.out)
                more = (
                    []
                    if install or files
                    else ["%s=%s" % (change.name, change.old) for change in changes if change.act == UPGRADE]
                )
            else:
                more = ["%s=%s" % pin for pin in parse_pins(said)]
            more = [pin for pin in dict.fromkeys(more) if pin.partition("=")[0] not in pinned]
            if not more:
                break
            pinned.update(pin.partition("=")[0] for pin in more)
            wanted += more
        if done.rc != 0:
            raise self.failure(argv, done)
        self.refuse_downgrades(changes, transaction.allow_downgrade)
        held = section(done.out, "held packages will be changed")
        if held and not transaction.allow_held:
            raise NpuError(
                "These packages are held on the host: %s." % ", ".join(held),
                "Unhold them (apt-mark unhold).",
            )
        return wanted, changes

    def _status(self) -> list[dict[str, str]]:
        status = self.host.read_text(DPKG_STATUS, Limit.BULK)
        if not status.ok:
            raise NpuError(
                "%s cannot be read: %s." % (DPKG_STATUS, status.detail), "Run as root (become) on a host with dpkg."
            )
        return parse_dpkg_status(status.value, ["*"])

    def unfinished(self) -> list[str]:
        return [item["name"] for item in self._status() if item["state"] not in DONE_STATES]

    def blocked(self, own: t.Sequence[str]) -> list[str]:
        # A journal of dpkg itself stops apt too.
        return super().blocked(own) or (["dpkg"] if self.host.listdir(UPDATES).get([]) else [])

    def repair(self, removable: t.Sequence[str] = ()) -> bool:
        if not self.blocked(removable):
            return False
        self._configure(["dpkg", "--force-confdef", "--force-confold", "--configure", "-a"])
        if self.unfinished():
            done = self.ask(self._apt_get("-s", "--fix-broken", "install"), check=False)
            removed = [change.name for change in parse_simulation(done.out) if change.act == REMOVE]
            if done.rc == 0 and all(fits(name, removable) for name in removed):
                self._configure(self._apt_get("--fix-broken", "install"))
        left = [name for name in self.unfinished() if fits(name, removable)]
        if left:
            self._force_out(left)
        return True

    def _configure(self, argv: t.Sequence[str]) -> Completed:
        """Run one step of a repair. NpuError for a held lock or a full disk, not for a failing script."""
        try:
            done = self.change(argv, self.repair_seconds, check=False)
        except NpuError as error:
            if self.busy():
                raise
            return Completed(1, "", str(error))
        if done.rc != 0 and re.search(
            r"lock was locked by|Unable to acquire|No space left on device", done.out + done.err
        ):
            raise self.failure(argv, done)
        return done

    def _force_out(self, names: t.Sequence[str]) -> None:
        """Remove unconfigurable packages, if needed without their removal scripts. NpuError when that fails too."""
        argv = ["dpkg", "--force-remove-reinstreq", "--force-depends", "--remove"]
        self._configure([*argv, *names])
        left = [name for name in names if name in self.unfinished()]
        if not left:
            return
        for name in left:
            for path in self.host.glob(INFO, "*.p*rm"):
                if bare_name(posixpath.splitext(posixpath.basename(path))[0]) == name:
                    remove_file(self.host, path)
        done = self._configure([*argv, *left])
        if any(name in self.unfinished() for name in left):
            raise self.failure([*argv, *left], done)

    def download(self, names: t.Sequence[str], directory: str) -> list[str]:
        self.check_names(names)
        status = {item["name"]: item for item in self._status() if item["state"] == "installed"}
        found: dict[str, str] = {}
        missing = []
        for word in names:
            name, _equals, version = word.partition("=")
            version = version or status.get(bare_name(name), {}).get("version", "")
            exact = "%s=%s" % (name, version) if version else name
            cached = self._cached(bare_name(name), version)
            if cached:
                found[exact] = cached
            else:
                missing.append(exact)
        paths = self.copy_into(directory, list(found.values()))
        return paths + (self.lists.answer(lambda: self._fetch(missing, directory)) if missing else [])

    def _cached(self, name: str, version: str) -> str:
        """Path of exactly this package in the archive directory of apt, or empty."""
        for path in self.host.glob(ARCHIVES, "%s_%s_*.deb" % (name, version.replace(":", "%3a"))) if version else []:
            try:
                found = self.describe(path)
            except NpuError:
                continue
            if (found["name"], found["version"]) == (name, version):
                return path
        return ""

    def _fetch(self, names: t.Sequence[str], directory: str) -> list[str]:
        try:
            real = make_directory(self.host, directory)
            staged = tempfile.mkdtemp(prefix=".", dir=real)
        except OSError as exc:
            raise explain(exc, directory, "written") from exc
        inside = posixpath.join(directory, posixpath.basename(staged))
        try:
            # apt-get download writes only to its working directory.
            argv = [
                "sh",
                "-c",
                'cd "$0" && exec "$@"',
                inside,
                *self._apt_get("-o", "APT::Sandbox::User=root", "download", *names),
            ]
            done = self.change(argv, check=False)
            if done.rc != 0:
                error = self.failure(argv[4:], done)
                raise type(error)("%s cannot be downloaded. %s" % (", ".join(names), error.message), error.next_step)
            wanted = {(bare_name(name.partition("=")[0]), name.partition("=")[2]) for name in names}
            paths = [posixpath.join(inside, name) for name in self.host.listdir(inside).get([])]
            got = {(found["name"], found["version"]) for found in map(self.describe, paths)}
            if {name for name, _version in wanted} != {name for name, _version in got} or any(
                item[1] and item not in got for item in wanted
            ):
                raise NpuError(
                    "apt-get download returned %s, not %s." % (sorted(got), sorted(wanted)),
                    "Run apt-cache policy on the host.",
                )
            return self.copy_into(directory, paths)
        finally:
            for name in os.listdir(staged):
                os.unlink(os.path.join(staged, name))
            os.rmdir(staged)

    def held(self) -> list[str]:
        return sorted(self.ask(["apt-mark", "showhold"]).out.split())

    def installed(self, names: t.Sequence[str]) -> list[str]:
        there = {item["name"] for item in self._status() if item["state"] not in GONE_STATES} if names else set()
        return [name for name in names if bare_name(name) in there]

    def mark(self, hold: bool, names: t.Sequence[str]) -> list[str]:
        self.check_names(names)
        if names:
            self.change(["apt-mark", "hold" if hold else "unhold", *names], QUERY_SECONDS)
        return sorted(names)

    def available(self, name: str) -> list[str]:
        self.check_names([name])
        return parse_madison(self.ask(["apt-cache", "madison", name]).out, name)

    def describe(self, path: str) -> dict[str, str]:
        argv = ["dpkg-deb", "--show", "--showformat=${Package}\\t${Version}\\t${Architecture}\\n", path]
        done = self.ask(argv, check=False)
        parts = done.out.strip().split("\t")
        if done.rc != 0 or len(parts) != 3:
            raise self.failure(argv, done)
        return {"name": parts[0], "version": parts[1], "architecture": parts[2]}

    def refresh(self, source: str = "") -> None:
        only = (
            [
                "-o",
                "Dir::Etc::sourcelist=" + source,
                "-o",
                "Dir::Etc::sourceparts=-",
                "-o",
                "APT::Get::List-Cleanup=false",
            ]
            if source
            else []
        )
        self.change(self._apt_get(*REFRESH_OPTIONS, *only, "update"), min(self.timeout, REFRESH_SECONDS))

    def stale(self) -> bool:
        source = self.host.stat(self.own_file)
        prefixes = list_prefixes(self.host.read_text(self.own_file).get(""))
        # apt sets the mtime of the mirror's file; only the ctime tells when the list was read.
        times = [
            self.host.stat(posixpath.join(LISTS, name))
            for name in self.host.listdir(LISTS).get([])
            if name.startswith(prefixes)
        ]
        return source.ok and not any(found.ok and found.value.ctime >= source.value.mtime for found in times)

    def busy(self) -> str:
        holders = find_open(self.host, LOCKS)
        return ", ".join(sorted({"%s (pid %d)" % (holder.name, holder.pid or 0) for holder in holders}))
