# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The only door to a machine: files below a root, commands, the clock.

Every look ends as a Probe, so that absent, denied, timed out and failed are never confused with each other or with
zero.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import posixpath
import stat as stat_module
import time
import typing as t
from dataclasses import dataclass

from .command import Runner, run_command
from .probe import ABSENT, DENIED, FAILED, TIMEOUT, VALUE, Completed, Probe, from_oserror

__all__ = ["ABSENT", "DENIED", "FAILED", "TIMEOUT", "VALUE", "Completed", "FileStat", "Host", "Probe", "run_command"]

READ_LIMIT = 16 * 1024 * 1024
SMALL_READ = 4096
LINK_LIMIT = 40


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


_KINDS = (
    (stat_module.S_ISREG, "file"),
    (stat_module.S_ISDIR, "dir"),
    (stat_module.S_ISLNK, "link"),
    (stat_module.S_ISCHR, "char"),
    (stat_module.S_ISBLK, "block"),
    (stat_module.S_ISFIFO, "fifo"),
    (stat_module.S_ISSOCK, "socket"),
)


def _open_file(path: str, flags: int) -> int:
    """Open without waiting: a pipe in place of a file would block the reader."""
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat_module.S_ISFIFO(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "a pipe, not a file")
    return descriptor


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

    def read_bytes(self, path: str, limit: int = READ_LIMIT) -> Probe:
        """Probe of at most `limit` bytes of a file, links followed inside the root."""
        found = self.resolve(path)
        if not found.ok:
            return found
        try:
            # Unbuffered for small reads: a buffer would read far into the config space of a PCI function.
            with open(
                self.real(found.value), "rb", buffering=0 if limit <= SMALL_READ else -1, opener=_open_file
            ) as stream:
                return Probe(VALUE, stream.read(limit))
        except OSError as exc:
            return from_oserror(exc)

    def read_text(self, path: str, limit: int = READ_LIMIT) -> Probe:
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
        if cwd is None and not pass_fds:
            return self._runner(argv, timeout, env)
        return self._runner(argv, timeout, env, cwd, pass_fds)
