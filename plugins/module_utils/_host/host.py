# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The only door to a machine: files below a root, commands, the clock.

Every look ends as a Probe, so that absent, denied, timed out, too large and failed are never confused with each other
or with zero.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import posixpath
import stat as stat_module
import time
import typing as t

from .._base.records import dataclass
from .command import Runner, run_command
from .probe import ABSENT, DENIED, FAILED, TIMEOUT, TOO_LARGE, VALUE, Completed, Probe, from_oserror

__all__ = [
    "ABSENT",
    "DENIED",
    "FAILED",
    "TIMEOUT",
    "TOO_LARGE",
    "VALUE",
    "Completed",
    "FileStat",
    "Host",
    "Probe",
    "run_command",
]

LINK_LIMIT = 40


class Limit:
    """Most bytes of a file, by its kind. A larger file is too_large, and nothing of it is used."""

    # sysfs, /proc/sys, machine ids, EFI variables of one value.
    ATTRIBUTE = 4096
    OS_RELEASE = 64 * 1024
    # Entries of boot loaders, certificates, our own notes and journals.
    NOTE = 1024 * 1024
    PROC = 4 * 1024 * 1024
    CONFIG = 16 * 1024 * 1024
    # Lists of packages, kernel modules, libraries.
    BULK = 256 * 1024 * 1024


@dataclass(frozen=True)
class FileStat:
    """Result of os.lstat or os.stat. kind is file, dir, link, char, block, fifo, socket or other."""

    kind: str
    mode: int
    size: int
    mtime: float
    ctime: float
    major: int
    minor: int
    device: int
    uid: int
    gid: int


_KINDS = (
    (stat_module.S_ISREG, "file"),
    (stat_module.S_ISDIR, "dir"),
    (stat_module.S_ISLNK, "link"),
    (stat_module.S_ISCHR, "char"),
    (stat_module.S_ISBLK, "block"),
    (stat_module.S_ISFIFO, "fifo"),
    (stat_module.S_ISSOCK, "socket"),
)


def open_file(path: str, flags: int) -> int:
    """An opener for open() that takes regular files only: a pipe or a device in place of a file would block."""
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as exc:
        if exc.errno == errno.ENXIO and stat_module.S_ISSOCK(os.lstat(path).st_mode):
            raise OSError("a socket, not a file") from exc
        raise
    mode = os.fstat(descriptor).st_mode
    if stat_module.S_ISREG(mode) or stat_module.S_ISDIR(mode):
        return descriptor
    os.close(descriptor)
    raise OSError("a %s, not a file" % ("pipe" if stat_module.S_ISFIFO(mode) else "device"))


class Host:
    """A machine as seen below `root`.

    Paths given to the methods are the machine's own absolute paths. Symbolic links are resolved inside the root, so an
    absolute link in an image never leads to the machine that works on the image. Commands run only when root is / or a
    runner is given: a program of an image must not run on the machine that works on it.
    """

    def __init__(
        self,
        root: str = "/",
        runner: Runner | None = None,
        clock: t.Callable[[], float] = time.time,
    ) -> None:
        self.root = os.path.abspath(root or "/")
        self.clock = clock
        if runner is not None:
            self._runner: Runner | None = runner
        else:
            self._runner = run_command if self.root == "/" else None
        # Open descriptors that every command gets: a lock on one of them lasts as long as the commands do.
        self.inherited: tuple[int, ...] = ()

    @property
    def runs_commands(self) -> bool:
        return self._runner is not None

    def real(self, path: str) -> str:
        """The path on this machine, links not followed."""
        if self.root == "/":
            return path
        return self.root + "/" + path.lstrip("/")

    def resolve(self, path: str, strict: bool = True) -> Probe:
        """Probe of the host path with every symbolic link followed inside the root.

        With `strict` every component must exist; else those that cannot be looked at stand for themselves, and only a
        loop fails.
        """
        parts = [part for part in path.split("/") if part not in ("", ".")]
        done: list[str] = []
        links = 0
        while parts:
            part = parts.pop(0)
            if part == "..":
                if done:
                    done.pop()
                continue
            current = "/" + "/".join(done + [part])
            try:
                mode = os.lstat(self.real(current)).st_mode
            except OSError as exc:
                if strict:
                    return from_oserror(exc)
                done.append(part)
                continue
            if not stat_module.S_ISLNK(mode):
                done.append(part)
                continue
            links += 1
            if links > LINK_LIMIT:
                return Probe(FAILED, None, "too many levels of symbolic links: %s" % path)
            try:
                target = os.readlink(self.real(current))
            except OSError as exc:
                return from_oserror(exc)
            if target.startswith("/"):
                done = []
            parts = [piece for piece in target.split("/") if piece not in ("", ".")] + parts
        return Probe(VALUE, "/" + "/".join(done))

    def read_bytes(self, path: str, limit: int = Limit.CONFIG) -> Probe:
        """Probe of the bytes of a regular file, links followed inside the root; too_large past `limit`."""
        found = self.read_head(path, limit + 1)
        if found.ok and len(found.value) > limit:
            return Probe(TOO_LARGE, None, "it has more than %d bytes" % limit)
        return found

    def read_head(self, path: str, length: int) -> Probe:
        """Probe of the first `length` bytes of a regular file, fewer when it is shorter."""
        found = self.resolve(path)
        if not found.ok:
            return found
        try:
            # Unbuffered for small reads: a buffer would read far into the config space of a PCI function.
            with open(
                self.real(found.value), "rb", buffering=0 if length <= Limit.ATTRIBUTE + 1 else -1, opener=open_file
            ) as stream:
                return Probe(VALUE, stream.read(length))
        except OSError as exc:
            return from_oserror(exc)

    def read_text(self, path: str, limit: int = Limit.CONFIG) -> Probe:
        """read_bytes(), decoded as UTF-8; undecodable bytes are replaced."""
        found = self.read_bytes(path, limit)
        return Probe(VALUE, found.value.decode("utf-8", "replace")) if found.ok else found

    def listdir(self, path: str) -> Probe:
        """Probe of the sorted names in a directory."""
        found = self.resolve(path)
        if not found.ok:
            return found
        try:
            return Probe(VALUE, sorted(os.listdir(self.real(found.value))))
        except OSError as exc:
            return from_oserror(exc)

    def glob(self, directory: str, pattern: str) -> list[str]:
        """Sorted host paths in `directory` whose name matches the shell pattern; nothing when it cannot be read."""
        names = self.listdir(directory).get([])
        return [posixpath.join(directory, name) for name in names if fnmatch.fnmatchcase(name, pattern)]

    def stat(self, path: str, follow: bool = True) -> Probe:
        """Probe of FileStat."""
        target = path
        if follow:
            found = self.resolve(path)
            if not found.ok:
                return found
            target = found.value
        try:
            info = os.lstat(self.real(target))
        except OSError as exc:
            return from_oserror(exc)
        kind = "other"
        for test, name in _KINDS:
            if test(info.st_mode):
                kind = name
                break
        return Probe(
            VALUE,
            FileStat(
                kind=kind,
                mode=stat_module.S_IMODE(info.st_mode),
                size=info.st_size,
                mtime=info.st_mtime,
                ctime=info.st_ctime,
                major=os.major(info.st_rdev),
                minor=os.minor(info.st_rdev),
                device=info.st_dev,
                uid=info.st_uid,
                gid=info.st_gid,
            ),
        )

    def readlink(self, path: str) -> Probe:
        """Probe of a symbolic link's text."""
        try:
            return Probe(VALUE, os.readlink(self.real(path)))
        except OSError as exc:
            if exc.errno == errno.EINVAL:
                return Probe(ABSENT, None, "not a symbolic link")
            return from_oserror(exc)

    def exists(self, path: str) -> bool:
        """True when the path exists; False also when it cannot be read, use stat() to distinguish."""
        return self.resolve(path).ok

    def run(
        self,
        argv: t.Sequence[str],
        timeout: float = 5.0,
        env: t.Mapping[str, str] | None = None,
        cwd: str | None = None,
        pass_fds: t.Sequence[int] = (),
    ) -> Probe:
        """Probe of Completed, also for a non-zero exit code. See run_command()."""
        if self._runner is None:
            return Probe(ABSENT, None, "commands are not run below %s" % self.root)
        descriptors = (*pass_fds, *self.inherited)
        if cwd is None and not descriptors:
            return self._runner(argv, timeout, env)
        return self._runner(argv, timeout, env, cwd, descriptors)
