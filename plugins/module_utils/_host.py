# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The only door to a machine: files below a root, commands, the clock.

Every look ends as a Probe, so that absent, denied, timed out and failed are never confused with each other or with zero.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import os
import posixpath
import signal
import stat as stat_module
import subprocess
import time
import typing as t
from dataclasses import dataclass

VALUE = "value"
ABSENT = "absent"
DENIED = "denied"
TIMEOUT = "timeout"
FAILED = "failed"

READ_LIMIT = 16 * 1024 * 1024
SMALL_READ = 4096
LINK_LIMIT = 40
KILL_WAIT = 5.0


@dataclass(frozen=True)
class Probe:
    """One answer: `state` is value, absent, denied, timeout or failed; `value` is set only for value; `detail` says why not."""

    state: str
    value: t.Any = None
    detail: str = ""

    @property
    def ok(self) -> bool:
        return self.state == VALUE

    def map(self, function: t.Callable[[t.Any], t.Any]) -> "Probe":
        """Apply `function` to a value; a ValueError, or a value nested too deeply, turns into failed. Other states pass through."""
        if self.state != VALUE:
            return self
        try:
            return Probe(VALUE, function(self.value))
        except (ValueError, RecursionError) as exc:
            return Probe(FAILED, None, str(exc))

    def get(self, default: t.Any = None) -> t.Any:
        return self.value if self.state == VALUE else default

    def to_dict(self) -> dict[str, t.Any]:
        """State and detail only; the value belongs to whoever asked."""
        return {"state": self.state, "detail": self.detail}


@dataclass(frozen=True)
class Completed:
    """A finished command: exit code, standard output, standard error (kept apart)."""

    rc: int
    out: str
    err: str


@dataclass(frozen=True)
class FileStat:
    """What os.lstat or os.stat said: kind is file, dir, link, char, block, fifo, socket or other."""

    kind: str
    mode: int
    size: int
    mtime: float
    ctime: float
    major: int
    minor: int
    device: int


# Called with argv, timeout and environment; working directory and descriptors follow only where they are given.
Runner = t.Callable[..., Probe]

_KINDS = (
    (stat_module.S_ISREG, "file"),
    (stat_module.S_ISDIR, "dir"),
    (stat_module.S_ISLNK, "link"),
    (stat_module.S_ISCHR, "char"),
    (stat_module.S_ISBLK, "block"),
    (stat_module.S_ISFIFO, "fifo"),
    (stat_module.S_ISSOCK, "socket"),
)


def _from_oserror(exc: OSError) -> Probe:
    if exc.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENXIO, errno.ENODEV):
        return Probe(ABSENT, None, os.strerror(exc.errno))
    if exc.errno in (errno.EACCES, errno.EPERM):
        return Probe(DENIED, None, os.strerror(exc.errno))
    if exc.errno == errno.ETIMEDOUT:
        return Probe(TIMEOUT, None, os.strerror(exc.errno))
    return Probe(FAILED, None, os.strerror(exc.errno) if exc.errno else str(exc))


def run_command(
    argv: t.Sequence[str],
    timeout: float,
    env: t.Optional[t.Mapping[str, str]] = None,
    cwd: t.Optional[str] = None,
    pass_fds: t.Sequence[int] = (),
) -> Probe:
    """Run `argv` with the C locale, no standard input and a time limit in seconds; Probe of Completed.

    Past the limit the command and its children are killed. `pass_fds` are open descriptors that the command inherits.
    """
    full_env = dict(os.environ)
    full_env.update({"LC_ALL": "C", "LANGUAGE": "C"})
    full_env["PATH"] = full_env.get("PATH", "") + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    full_env.update(env or {})
    try:
        # A session of its own, so that a limit ends the children too: apt's dpkg, an installer's make.
        child = subprocess.Popen(  # pylint: disable=ansible-bad-function
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=full_env,
            cwd=cwd,
            pass_fds=pass_fds,
            start_new_session=True,
        )
    except OSError as exc:
        return _from_oserror(exc)
    try:
        out, err = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        return Probe(TIMEOUT, None, "%s gave no answer in %g s%s" % (argv[0], timeout, end_session(child)))
    except BaseException:
        end_session(child)
        raise
    return Probe(VALUE, Completed(child.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")))


def end_session(child: "subprocess.Popen[bytes]") -> str:
    """Kill a command with its children; what to add to a message when the kernel does not let go of it."""
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    try:
        child.communicate(timeout=KILL_WAIT)
    except subprocess.TimeoutExpired:
        for stream in (child.stdout, child.stderr):
            if stream is not None:
                stream.close()
        if child.poll() is not None:
            # Only something that left the session keeps the output open: a daemon that the command started.
            return ""
        return ", and process %d cannot be killed: it waits inside the kernel" % child.pid
    return ""


def _open_file(path: str, flags: int) -> int:
    """Open without ever waiting: a pipe somebody put in a file's place would hold the reader until a writer comes."""
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
        runner: t.Optional[Runner] = None,
        clock: t.Callable[[], float] = time.time,
    ) -> None:
        self.root = os.path.abspath(root or "/")
        self.clock = clock
        if runner is not None:
            self._runner: t.Optional[Runner] = runner
        else:
            self._runner = run_command if self.root == "/" else None

    @property
    def runs_commands(self) -> bool:
        return self._runner is not None

    def real(self, path: str) -> str:
        """The path on the machine that does the work, without following links."""
        if self.root == "/":
            return path
        return self.root + "/" + path.lstrip("/")

    def resolve(self, path: str, strict: bool = True) -> Probe:
        """Probe of the host path with every symbolic link followed inside the root.

        With `strict` every component must exist; else those that cannot be looked at stand for themselves, and only a loop fails.
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
                    return _from_oserror(exc)
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
                return _from_oserror(exc)
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
            # Unbuffered for small looks: a buffer would read far into the config space of a PCI function.
            with open(self.real(found.value), "rb", buffering=0 if limit <= SMALL_READ else -1, opener=_open_file) as stream:
                return Probe(VALUE, stream.read(limit))
        except OSError as exc:
            return _from_oserror(exc)

    def read_text(self, path: str, limit: int = READ_LIMIT) -> Probe:
        """As read_bytes, decoded as UTF-8; undecodable bytes are replaced."""
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
            return _from_oserror(exc)

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
            return _from_oserror(exc)
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
            return _from_oserror(exc)

    def exists(self, path: str) -> bool:
        """True when the path is there; a path that cannot be looked at counts as not there, use stat() to tell apart."""
        return self.resolve(path).ok

    def run(
        self,
        argv: t.Sequence[str],
        timeout: float = 5.0,
        env: t.Optional[t.Mapping[str, str]] = None,
        cwd: t.Optional[str] = None,
        pass_fds: t.Sequence[int] = (),
    ) -> Probe:
        """Probe of Completed. A non-zero exit is a value: what it means is the caller's to say. See run_command()."""
        if self._runner is None:
            return Probe(ABSENT, None, "commands are not run below %s" % self.root)
        if cwd is None and not pass_fds:
            return self._runner(argv, timeout, env)
        return self._runner(argv, timeout, env, cwd, pass_fds)
