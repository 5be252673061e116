# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The journal of a change: each step is on disk before it begins, so that the next run knows the progress."""

from __future__ import annotations

import contextlib
import fcntl
import os
import posixpath
import time
import typing as t

from .._base.model import NpuError
from .._base.vendor import VendorProfile
from .._host.files import LockHeld, explain, make_directory, remove_file, take_lock
from .._host.handles import lock_holders
from .._host.host import ABSENT, Host
from .._npu.driver_notes import JOURNAL, WAITS, Record, read_record, stamp_path, state_path, write_record
from .request import Request

FORWARD = "forward"
BACK = "back"
LOCK_WAIT = 10.0


def utc(host: Host) -> str:
    """Now, as 2026-01-31T12:00:00Z."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(host.clock()))


class Journal:
    """One change in progress. `record` is the content on disk; every step writes it before it acts.

    Keys: id, started, by, direction (forward or back), step (the last that began), done (names of finished steps),
    wanted and previous ({version, source, kept, ...}), stopped (units to start again), before ({package: version}; only
    names in older journals), touched (an installation began), opaque (an installer was run, so the replaced files are
    unknown), flashed (results of the cards; None until flashing begins), reboot, reason. While `lenient`, a note that
    cannot be written or removed is added to `unsaved` and stops nothing.
    """

    def __init__(self, host: Host, profile: VendorProfile) -> None:
        self.host, self.profile = host, profile
        self.path = state_path(profile, JOURNAL)
        self.record: Record = {}
        self.times: list[dict[str, t.Any]] = []
        self.lenient = False
        self.unsaved: list[str] = []

    @contextlib.contextmanager
    def locked(self) -> t.Iterator[None]:
        """Lock the state directory for this process and for its commands.

        NpuError names who holds it: another change, or the installer of one that was killed. A daemon that an installer
        started has the lock's descriptor too; it is unlocked for all at the end of the change.
        """
        try:
            descriptor = os.open(
                make_directory(self.host, self.profile.runfile_stamp_dir), os.O_RDONLY | os.O_DIRECTORY
            )
        except OSError as exc:
            raise explain(exc, self.profile.runfile_stamp_dir, "created") from exc
        try:
            try:
                take_lock(
                    descriptor,
                    self.profile.runfile_stamp_dir,
                    LOCK_WAIT,
                    "another change of the driver runs on this host",
                )
            except LockHeld as exc:
                raise self._held(descriptor, exc) from exc
            self.host.inherited = (descriptor,)
            try:
                yield
            finally:
                self.host.inherited = ()
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)

    def _held(self, descriptor: int, exc: LockHeld) -> NpuError:
        found = lock_holders(os.readlink("/proc/self/fd/%d" % descriptor))
        if not found:
            return exc
        who = ", ".join("%s (pid %d)%s" % (one.name, one.pid or 0, one.unit and " of " + one.unit) for one in found)
        return NpuError(
            "A change of the driver still runs on this host: %s. Nothing was changed." % who,
            "Wait until it ends and run again. If it does not end, stop it: kill %s."
            % " ".join(str(one.pid) for one in found),
        )

    def interrupted(self) -> Record | None:
        """The record of an unfinished change; empty when it is damaged, None when there is none."""
        found = read_record(self.host, self.path)
        if found.state == ABSENT:
            return None
        if found.state in ("denied", "timeout"):
            raise NpuError("%s cannot be read: %s." % (self.path, found.detail), "Run as root.")
        return dict(found.value) if found.ok else {}

    def begin(self, record: Record) -> None:
        self.record = record
        self.save()

    def save(self, **changes: t.Any) -> None:
        """Write `changes` to disk."""
        self.record.update(changes)
        try:
            write_record(self.host, self.path, self.record)
        except NpuError as exc:
            if not self.lenient:
                raise
            self.unsaved = [str(exc)]

    def step(self, name: str, act: t.Callable[[], t.Any]) -> t.Any:
        """Note that `name` begins, act, note that it has ended."""
        self.save(step=name)
        start = time.monotonic()
        try:
            result = act()
        finally:
            self.times.append({"step": name, "seconds": round(time.monotonic() - start, 2)})
        self.save(done=[*self.record.get("done", []), name])
        return result

    def tell(self, text: str) -> None:
        """Note for the controller what a wait before the change waits for; no text ends the note. It stops nothing."""
        path = state_path(self.profile, WAITS)
        with contextlib.suppress(NpuError):
            if text:
                write_record(self.host, path, {"text": text})
            else:
                remove_file(self.host, path)

    def end(self) -> None:
        """The change is over; remove the journal."""
        self.forget(self.path)
        self.record = {}

    def forget(self, path: str) -> None:
        """Remove a note. If the journal stays, the next run checks once more."""
        try:
            remove_file(self.host, path)
        except NpuError as exc:
            if not self.lenient:
                raise
            self.unsaved = [*self.unsaved, str(exc)]

    def write_stamp(self, request: Request, version: str, packages: t.Mapping[str, str]) -> None:
        """Note the source of the driver that works now. Holds that are noted already stay noted."""
        previous = self.record["previous"]
        old = previous.get("stamp") or {}
        # A commit that was interrupted may have held something already.
        noted = read_record(self.host, stamp_path(self.profile)).get(old)
        record = {
            "schema": 1,
            "version": version,
            "source": request.source,
            "files": [
                {"name": posixpath.basename(item["path"]), "sha256": item["sha256"].lower()} for item in request.files
            ],
            "packages": [{"name": name, "version": there} for name, there in sorted(packages.items())],
            "held": noted.get("held", []),
            "held_kernel": noted.get("held_kernel", []),
            "installed": {"time": utc(self.host), "by": request.by},
            "previous": {"version": previous["version"], "source": old.get("source")}
            if previous.get("version")
            else None,
        }
        write_record(self.host, stamp_path(self.profile), record, 0o644)
