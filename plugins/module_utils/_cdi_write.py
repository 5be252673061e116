# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Put a CDI specification into its directory and take it away, so that no reader ever sees half of one.

The text goes to a file in the same directory, under a name that no reader loads, and is renamed over the old one: a watching runtime
sees a rename inside its directory, and a kill at any moment leaves the old file or the new one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import posixpath
import re
import tempfile
import time
import typing as t

from ._cdi_options import format_of
from ._host import LINK_LIMIT, Host
from ._model import NpuError

FILE_MODE = 0o644
DIRECTORY_MODE = 0o755
LOCK_SECONDS = 10.0
LABEL = "security.selinux"


def write_spec(host: Host, path: str, text: str, check: bool = False) -> bool:
    """Make `path` hold `text`; True when that changed (or, with `check`, would change) something.

    A symbolic link at `path` stays and its target is written. The file is 0644 and keeps owner and SELinux label. NpuError names the
    path and the remedy; nothing is half-written then.
    """
    format_of(path)
    target = _target(host, path)
    data = text.encode("utf-8")
    found = host.read_bytes(target)
    if found.ok and found.value == data:
        return False
    if check:
        _check_directory(host, posixpath.dirname(target))
        return True
    real = host.real(target)
    directory = os.path.dirname(real)
    try:
        _make(directory)
        with _locked(directory):
            _clean(directory, os.path.basename(real))
            _replace(directory, real, data)
    except OSError as exc:
        raise _explain(exc, target, "written") from exc
    return True


def remove_spec(host: Host, path: str, check: bool = False) -> bool:
    """Remove the file at `path` (a link: the link alone) and what a killed write left beside it; True when something was there."""
    seen = host.stat(path, follow=False)
    parent = host.resolve(posixpath.dirname(path))
    if not parent.ok:
        return False
    directory = host.real(parent.value)
    name = posixpath.basename(path)
    real = os.path.join(directory, name)
    try:
        there = os.path.lexists(real)
        if there and os.path.isdir(real) and not os.path.islink(real):
            raise NpuError("%s is a directory." % path, "Remove it or give the path of the specification's file.")
        if check:
            return there
        with _locked(directory):
            _clean(directory, name)
            if there:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(real)
                _sync(directory)
    except OSError as exc:
        raise _explain(exc, path, "removed") from exc
    return there or seen.ok


def place_of(host: Host, path: str) -> str:
    """`path` with every link followed inside the root, whether or not what they lead to exists; NpuError for a loop."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    done: t.List[str] = []
    links = 0
    while parts:
        part = parts.pop(0)
        if part == "..":
            done = done[:-1]
            continue
        link = host.readlink("/" + "/".join(done + [part]))
        if not link.ok:
            done.append(part)
            continue
        links += 1
        if links > LINK_LIMIT:
            raise NpuError("%s leads through too many symbolic links." % path, "Remove the loop.")
        if link.value.startswith("/"):
            done = []
        parts = [piece for piece in link.value.split("/") if piece not in ("", ".")] + parts
    return "/" + "/".join(done)


def _target(host: Host, path: str) -> str:
    target = place_of(host, path)
    seen = host.stat(target, follow=False)
    if seen.ok and seen.value.kind != "file":
        raise NpuError("%s is not a regular file (%s)." % (target, seen.value.kind), "Remove it or give the path of a file.")
    return target


def _make(directory: str) -> None:
    """Make the directory and those above it with the right mode whatever the umask."""
    if os.path.isdir(directory):
        return
    _make(os.path.dirname(directory))
    with contextlib.suppress(FileExistsError):
        os.mkdir(directory)
        os.chmod(directory, DIRECTORY_MODE)
    if not os.path.isdir(directory):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))


def _check_directory(host: Host, directory: str) -> None:
    while directory != "/":
        seen = host.stat(directory)
        if seen.ok:
            if seen.value.kind != "dir":
                raise NpuError("%s is not a directory." % directory, "Move that file away; the specification's directory belongs there.")
            return
        directory = posixpath.dirname(directory)


def _replace(directory: str, real: str, data: bytes) -> None:
    try:
        old: t.Optional[os.stat_result] = os.stat(real)
    except FileNotFoundError:
        old = None
    descriptor, staged = tempfile.mkstemp(prefix=_prefix(os.path.basename(real)), suffix=".tmp", dir=directory)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            os.fchmod(stream.fileno(), FILE_MODE)
            if old is not None:
                _keep(stream.fileno(), real, old)
            stream.flush()
            os.fsync(stream.fileno())
        os.rename(staged, real)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(staged)
        raise
    _sync(directory)


def _keep(descriptor: int, real: str, old: os.stat_result) -> None:
    now = os.fstat(descriptor)
    if (now.st_uid, now.st_gid) != (old.st_uid, old.st_gid):
        os.fchown(descriptor, old.st_uid, old.st_gid)
    try:
        os.setxattr(descriptor, LABEL, os.getxattr(real, LABEL))
    except OSError as exc:
        if exc.errno not in (errno.ENODATA, errno.ENOTSUP, errno.EPERM):
            raise


def _prefix(name: str) -> str:
    return ".%s." % name


def _clean(directory: str, name: str) -> None:
    """Remove what writers killed before their rename left; the lock is held, so none of it is in use."""
    pattern = re.compile(r"^%s[a-z0-9_]{8}\.tmp$" % re.escape(_prefix(name)))
    for one in os.listdir(directory):
        if pattern.match(one):
            os.unlink(os.path.join(directory, one))


@contextlib.contextmanager
def _locked(directory: str) -> t.Iterator[None]:
    """Hold the directory's own lock, so that no lock file stays behind."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise NpuError(
                        "Another program has held the lock of %s for %g s." % (directory, LOCK_SECONDS), "Wait for it to end and try again."
                    ) from None
                time.sleep(0.05)
        yield
    finally:
        os.close(descriptor)


def _sync(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as exc:
        if exc.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _explain(exc: OSError, path: str, act: str) -> NpuError:
    remedy = "See what is at that path and try again."
    if exc.errno in (errno.ENOTDIR, errno.EEXIST):
        remedy = "Move the file away that stands where the directory belongs."
    elif exc.errno in (errno.EACCES, errno.EPERM):
        remedy = "Run as root (become)."
    elif exc.errno == errno.EROFS:
        remedy = "The file system is read-only: give a path on a writable one, such as /var/run/cdi."
    elif exc.errno == errno.ENOSPC:
        remedy = "Make room on that file system."
    return NpuError("%s cannot be %s: %s." % (path, act, os.strerror(exc.errno) if exc.errno else exc), remedy)
