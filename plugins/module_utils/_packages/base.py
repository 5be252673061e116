# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The interface of a package manager: simulate, apply, download, repair, hold, list. Everything has a time limit."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import typing as t

from .._base.model import NpuError
from .._base.versions import same_release, without_epoch
from .._host.files import explain, make_directory
from .._host.host import TIMEOUT, VALUE, Completed, Host, Limit, Probe, open_file
from .changes import DOWNGRADE, Change, Transaction, fits
from .lists import Lists, Missing
from .words import last_lines, lock_holder, lost_sources

QUERY_SECONDS = 120.0
REPAIR_SECONDS = 600.0
REFRESH_SECONDS = 300.0
KILL_AFTER = 15
TIMED_OUT = (124, 137)
T = t.TypeVar("T")


class PackageManager:
    """The packages of one host. Versions are the package manager's own, with epoch and revision.

    `timeout` limits each change, in seconds. `environment` is added to every command, for example a proxy. Every method
    raises NpuError with the last lines of the command and a next step. `alone`: no source of the host is used.
    """

    format = ""
    query_environment: t.Mapping[str, str] = {}
    remedies: t.Sequence[tuple[str, str]] = ()
    name_pattern = re.compile(r"^$")
    missing = re.compile(r"(?!)")
    unreached = re.compile(r"(?!)")
    # The source that the role writes: its file, and its name for refresh().
    own_file = ""
    own_source = ""
    # The key that the role places; alone where the host has the repository in a source of its own.
    own_key = ""
    # Whether one unfinished package keeps the package manager from changing any other.
    others_block = True

    def __init__(
        self,
        host: Host,
        timeout: float = 1800.0,
        environment: t.Mapping[str, str] | None = None,
        options: t.Sequence[str] = (),
        alone: bool = False,
    ) -> None:
        self.host = host
        self.timeout = timeout
        self.repair_seconds = min(timeout, REPAIR_SECONDS)
        self.options = tuple(options)
        self.environment = dict(self.query_environment, **dict(environment or {}))
        self.alone = alone
        # What was seen and left alone.
        self.warnings: list[str] = []
        # Sources without lists that the package manager has passed over, as sentences.
        self.left_out: list[str] = []
        self.lists = Lists(self.refresh, self._own, lambda: bool(self._own()) and self.stale())

    def simulate(self, transaction: Transaction) -> list[Change]:
        """What apply() would change. Takes no lock. Packages to remove may be missing already."""
        raise NotImplementedError

    def apply(self, transaction: Transaction) -> str:
        """Do it, and return the last lines of the output."""
        raise NotImplementedError

    def download(self, names: t.Sequence[str], directory: str) -> list[str]:
        """Host paths in `directory` of exactly these packages; a name without a version means the installed one."""
        raise NotImplementedError

    def repair(self, removable: t.Sequence[str] = ()) -> bool:
        """Finish what an interrupted run left; True when something was tried.

        Packages that cannot be finished are removed if they match `removable`. Others stay (see unfinished() and
        `warnings`); installing another version may still repair them. NpuError for a held lock, a full disk, or a
        failed removal.
        """
        raise NotImplementedError

    def unfinished(self) -> list[str]:
        """Names of packages that an interrupted run left partly installed."""
        raise NotImplementedError

    def blocked(self, own: t.Sequence[str]) -> list[str]:
        """Unfinished packages that have to be repaired before those that fit `own` can change."""
        return [name for name in self.unfinished() if self.others_block or fits(name, own)]

    def hold(self, names: t.Sequence[str]) -> list[str]:
        """Hold these packages; returns the names that were not held before."""
        held = self.held() if names else []
        return self.mark(True, [name for name in names if name not in held])

    def unhold(self, names: t.Sequence[str]) -> list[str]:
        """Unhold these packages; returns the names that were held before."""
        held = self.held() if names else []
        return self.mark(False, [name for name in names if name in held])

    def mark(self, hold: bool, names: t.Sequence[str]) -> list[str]:
        """Hold or unhold packages; returns their sorted names."""
        raise NotImplementedError

    def held(self) -> list[str]:
        """Sorted names of the packages that are held."""
        raise NotImplementedError

    def available(self, name: str) -> list[str]:
        """Versions in the configured repositories, best first; empty for an unknown name."""
        raise NotImplementedError

    def describe(self, path: str) -> dict[str, str]:
        """{name, version, architecture} of a package file."""
        raise NotImplementedError

    def installed(self, names: t.Sequence[str]) -> list[str]:
        """Those of the names that are installed."""
        raise NotImplementedError

    def refresh(self, source: str = "") -> None:
        """Update the lists of all repositories, or only of `source` (deb: a file, rpm: an id).

        NpuError names a mirror without an answer; the lists of the others are read anyway.
        """
        raise NotImplementedError

    def stale(self) -> bool:
        """True when the source that the role writes is newer than its lists. dnf handles that itself."""
        return False

    def with_lists(self, attempt: t.Callable[[], T], arriving: t.Sequence[str]) -> T:
        """Result of `attempt`, with updated lists if needed. A removal alone (`arriving` is empty) needs none."""
        return self.lists.answer(attempt) if arriving else attempt()

    def _own(self) -> str:
        return self.own_source if not self.alone and self.host.exists(self.own_file) else ""

    def resolve(self, name: str, version: str) -> str | None:
        """The best available version: the same text, else the same release, else None.

        Epoch and package revision are ignored: 3.4.0 finds 1:3.4.0-2. If needed, the lists are updated.
        """
        return self.lists.answer(lambda: self._resolve(name, version), lambda found: found is not None)

    def _resolve(self, name: str, version: str) -> str | None:
        found = self.available(name)
        for candidate in found:
            if version in (candidate, without_epoch(candidate)):
                return candidate
        for candidate in found:
            if same_release(candidate, version):
                return candidate
        return None

    def busy(self) -> str:
        """Holder of the lock, for example `unattended-upgr (pid 812)`; empty when unknown."""
        return ""

    def check_names(self, names: t.Sequence[str]) -> None:
        """NpuError for text that is not a package name; it could act as an option or a pattern."""
        for name in names:
            if not self.name_pattern.match(name):
                raise NpuError(
                    "%r is not a package name." % name,
                    "Use a name, or a name with a version in the format of the package manager.",
                )

    def ask(self, argv: t.Sequence[str], seconds: float = QUERY_SECONDS, check: bool = True) -> Completed:
        """Run a command that changes nothing. NpuError when it cannot run, times out or, with `check`, fails."""
        return self._finish(argv, self.host.run(list(argv), seconds, self.environment), seconds, check)

    def change(self, argv: t.Sequence[str], seconds: float | None = None, check: bool = True) -> Completed:
        """Run a command that changes packages. Past the limit its whole process group is killed, scripts included."""
        limit = max(1.0, self.timeout if seconds is None else seconds)
        # The program `timeout` ends the command first, so that its output is kept; the limit of the host comes later.
        guarded = ["timeout", "--kill-after=%d" % KILL_AFTER, "%g" % limit] + list(argv)
        probe = self.host.run(guarded, limit + 2 * KILL_AFTER, self.environment)
        if probe.state == VALUE and probe.value.rc in TIMED_OUT:
            raise self._hung(argv, limit, probe.value.out + "\n" + probe.value.err)
        return self._finish(argv, probe, limit, check)

    def _finish(self, argv: t.Sequence[str], probe: Probe, seconds: float, check: bool) -> Completed:
        if probe.state == TIMEOUT:
            raise self._hung(argv, seconds, "")
        if probe.state != VALUE:
            raise NpuError(
                "%s cannot be run: %s." % (argv[0], probe.detail),
                "Check that %s is installed and that this runs as root (become)." % argv[0],
            )
        done = t.cast(Completed, probe.value)
        if check and done.rc != 0:
            raise self.failure(argv, done)
        return done

    def _hung(self, argv: t.Sequence[str], seconds: float, said: str) -> NpuError:
        holder = self._name_of(lock_holder(said)) or self.busy()
        tail = " | ".join(last_lines(said, 4).splitlines())
        message = "%s did not end within %g s%s.%s%s" % (
            argv[0],
            seconds,
            ": the lock is held by %s" % holder if holder else "",
            self._silent(said),
            " Last output: %s" % tail if tail else "",
        )
        remedy = (
            "Wait until it ends, or stop it, and run again."
            if holder
            else "Find out what it waits for; raise the timeout if it still made progress."
        )
        return NpuError(message, remedy)

    def refuse_downgrades(self, changes: t.Sequence[Change], allowed: bool) -> None:
        """NpuError with the packages that would be downgraded, unless that is allowed."""
        lower = [str(change) for change in changes if change.act == DOWNGRADE]
        if lower and not allowed:
            raise NpuError(
                "This would %s." % ", ".join(lower), "Allow downgrades, or choose a version that is not older."
            )

    def failure(self, argv: t.Sequence[str], done: Completed) -> NpuError:
        """The error for a failed command, with the remedy that matches its output."""
        said = "%s\n%s" % (done.out, done.err)
        remedy = next(
            (text for pattern, text in self.remedies if re.search(pattern, said, re.IGNORECASE | re.MULTILINE)), ""
        )
        holder = self._name_of(lock_holder(said))
        message = "%s ended with %d%s: %s" % (
            argv[0],
            done.rc,
            ", the lock is held by %s" % holder if holder else "",
            " | ".join(last_lines(said, 8).splitlines()) or "no output",
        )
        kind = Missing if self.missing.search(said) else NpuError
        return kind(message + self._silent(said), remedy or "Run it by hand on the host: %s" % " ".join(argv))

    def _silent(self, said: str) -> str:
        """Which sources gave no lists, and why."""
        reasons: dict[str, list[str]] = {}
        for name, why in sorted(lost_sources(self.unreached, said).items()):
            reasons.setdefault(why, []).append(name)
        told = ["%s: %s." % (why or "Unreachable", ", ".join(names)) for why, names in sorted(reasons.items())]
        return "".join(" " + text for text in told)

    def _name_of(self, holder: tuple[str, str]) -> str:
        pid, program = holder
        if not pid:
            return ""
        return "%s (pid %s)" % (
            program or self.host.read_text("/proc/%s/comm" % pid, Limit.ATTRIBUTE).get("").strip() or "a process",
            pid,
        )

    @contextlib.contextmanager
    def still_held(self, wanted: bool) -> t.Iterator[list[str]]:
        """Restore the holds at the end: a change unholds the packages it replaces. Yields the held names."""
        before = self.held() if wanted else []
        try:
            yield before
        except BaseException:
            with contextlib.suppress(NpuError):
                self.hold(self.installed(before))
            raise
        self.hold(self.installed(before))

    def copy_into(self, directory: str, paths: t.Sequence[str]) -> list[str]:
        """Copy host files into a host directory, each renamed into place when complete; returns their host paths."""
        done = []
        for path in paths:
            target = "%s/%s" % (directory.rstrip("/"), os.path.basename(path))
            try:
                real = make_directory(self.host, directory)
                handle, staged = tempfile.mkstemp(dir=real)
                try:
                    with os.fdopen(handle, "wb") as out, open(self.host.real(path), "rb", opener=open_file) as stream:
                        shutil.copyfileobj(stream, out)
                        out.flush()
                        os.fsync(out.fileno())
                    os.rename(staged, os.path.join(real, os.path.basename(path)))
                except BaseException:
                    os.unlink(staged)
                    raise
            except OSError as exc:
                raise explain(exc, target, "written") from exc
            done.append(target)
        return done
