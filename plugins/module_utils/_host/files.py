# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Single files on a host: replaced atomically, and removed. For a set of files see writer."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import posixpath
import re
import stat as stat_module
import time

from .._base.model import NpuError
from .host import ABSENT, Host

DIRECTORY_MODE = 0o755
LOCK_PAUSE = 0.05
SELINUX_LABEL = "security.selinux"


def explain(exc: OSError, path: str, act: str) -> NpuError:
    """The error for a failed `act` (written, removed, ...) on `path`, with a remedy for the cause."""
    remedy = "Check this path and try again."
    if exc.errno in (errno.ENOTDIR, errno.EEXIST):
        remedy = "Move the file that is in the place of the directory."
    elif exc.errno in (errno.EACCES, errno.EPERM) and os.geteuid() == 0:
        remedy = "Remove what bars root: an immutable attribute (lsattr, chattr -i), SELinux, root_squash of a share."
    elif exc.errno in (errno.EACCES, errno.EPERM):
        remedy = "Run as root (become)."
    elif exc.errno == errno.EROFS:
        remedy = "Mount the file system read-write, or use a path on another one."
    elif exc.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        remedy = "Make room on that file system."
    return NpuError("%s cannot be %s: %s." % (path, act, os.strerror(exc.errno) if exc.errno else exc), remedy)


def make_directory(host: Host, path: str) -> str:
    """Real directory of a host path, links followed inside the root. Missing directories get mode 0755."""
    done = "/"
    for part in [piece for piece in path.split("/") if piece]:
        step = posixpath.join(done, part)
        found = host.resolve(step)
        if not found.ok:
            with contextlib.suppress(FileExistsError):
                os.mkdir(host.real(step))
                os.chmod(host.real(step), DIRECTORY_MODE)
        done = found.get(step)
    return host.real(done)


def sync_directory(real: str) -> None:
    """Sync a directory of this machine to disk, if its file system can."""
    descriptor = os.open(real, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as exc:
        if exc.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


class LockHeld(NpuError):
    """Another process holds a lock."""


def take_lock(descriptor: int, path: str, seconds: float, busy: str) -> None:
    """Lock an open file or directory; it is unlocked when every process that has the descriptor has closed it.

    LockHeld names `path` and `busy` when another process holds the lock for `seconds`.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise LockHeld(
                    "The lock of %s is held: %s." % (path, busy), "Wait until it ends and run again."
                ) from None
        except OSError as exc:
            raise explain(exc, path, "locked") from exc
        time.sleep(LOCK_PAUSE)


def staged_prefix(name: str) -> str:
    """Name prefix of temporary files that replace `name`."""
    return ".%s." % name


def _staged(directory: str, name: str) -> tuple[int, str]:
    """A new file that will replace `name`: descriptor and path. While its writer lives, its lock keeps it."""
    # Those who only look do not need it, and it brings much along.
    import tempfile

    while True:
        descriptor, staged = tempfile.mkstemp(prefix=staged_prefix(name), suffix=".tmp", dir=directory)
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return descriptor, staged
        # Another run took it for a leftover before it was locked.
        os.close(descriptor)


def clear_staged(directory: str, name: str) -> None:
    """Remove what writers of `name` left when they were killed; the files of living writers stay."""
    ours = re.compile(r"%s[a-z0-9_]{8}\.tmp" % re.escape(staged_prefix(name)))
    for one in os.listdir(directory):
        if not ours.fullmatch(one):
            continue
        path = os.path.join(directory, one)
        # A lock that is held, or a file that has just gone.
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(path)
            finally:
                os.close(descriptor)


def replace_file(real: str, content: bytes, mode: int, keep: bool = False) -> None:
    """Write bytes to a path of this machine by a rename, synced to disk. OSError changes nothing.

    `keep` gives the new file the owner and SELinux label of the old one.
    """
    directory, name = os.path.split(real)
    clear_staged(directory, name)
    descriptor, staged = _staged(directory, name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            os.fchmod(stream.fileno(), mode)
            if keep:
                _keep(stream.fileno(), real)
            stream.flush()
            os.fsync(stream.fileno())
        os.rename(staged, real)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(staged)
        raise
    sync_directory(directory)


def _keep(descriptor: int, real: str) -> None:
    try:
        old, now = os.stat(real), os.fstat(descriptor)
    except FileNotFoundError:
        return
    if (now.st_uid, now.st_gid) != (old.st_uid, old.st_gid):
        os.fchown(descriptor, old.st_uid, old.st_gid)
    try:
        os.setxattr(descriptor, SELINUX_LABEL, os.getxattr(real, SELINUX_LABEL))
    except OSError as exc:
        if exc.errno not in (errno.ENODATA, errno.ENOTSUP, errno.EPERM):
            raise


def create_file(path: str, data: bytes, mode: int) -> None:
    """Create a file at a path of this machine, synced to disk, in place of an old one. OSError when that fails."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(handle, "wb", closefd=False) as stream:
            stream.write(data)
        os.fchmod(handle, mode)
        os.fsync(handle)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise
    finally:
        os.close(handle)


def copy_attributes(path: str, model: str) -> None:
    """Copy owner, mode and extended attributes (ACL, SELinux label) of `model`. OSError when that fails."""
    info, own = os.stat(model), os.stat(path)
    if (info.st_uid, info.st_gid) != (own.st_uid, own.st_gid):
        os.chown(path, info.st_uid, info.st_gid)
    os.chmod(path, stat_module.S_IMODE(info.st_mode))
    try:
        names = os.listxattr(model)
    except OSError:
        return
    for name in names:
        value = os.getxattr(model, name)
        try:
            current: bytes | None = os.getxattr(path, name)
        except OSError:
            current = None
        if current != value:
            os.setxattr(path, name, value)


def locate(host: Host, path: str) -> tuple[str, list[str]]:
    """The target of `path` inside the root, and missing parent directories, outermost first. NpuError: broken link."""
    found = host.resolve(path)
    if found.ok:
        return found.value, []
    if found.state != ABSENT:
        raise NpuError("%s: %s." % (path, found.detail), "Make it accessible and run again.")
    link = host.readlink(path)
    if link.ok:
        raise NpuError(
            "%s is a symbolic link to %s, which does not exist." % (path, link.value),
            "Create the target or remove the link.",
        )
    parent = posixpath.dirname(path) or "/"
    missing: list[str] = []
    while not host.resolve(parent).ok:
        if host.readlink(parent).ok:
            raise NpuError("%s is a broken symbolic link." % parent, "Create the target or remove the link.")
        missing.insert(0, posixpath.basename(parent))
        parent = posixpath.dirname(parent)
    base = host.resolve(parent).value.rstrip("/")
    dirs = [base + "/" + "/".join(missing[: index + 1]) for index in range(len(missing))]
    return posixpath.join(base or "/", *missing, posixpath.basename(path)), dirs


def write_bytes(host: Host, path: str, content: bytes, mode: int) -> None:
    """Write bytes to `path`; creates its directory, replaces a symbolic link. NpuError when that fails."""
    try:
        directory = make_directory(host, posixpath.dirname(path))
        replace_file(posixpath.join(directory, posixpath.basename(path)), content, mode)
    except OSError as exc:
        raise explain(exc, path, "written") from exc


def write_file(host: Host, path: str, text: str, mode: int = 0o644, dry: bool = False) -> bool:
    """write_bytes() for text. False when the file has this content already."""
    content = text.encode("utf-8")
    found = host.read_bytes(path)
    info = host.stat(path, follow=False)
    if found.ok and found.value == content and info.ok and info.value.kind == "file":
        if not dry:
            _clear(host, path)
        return False
    if not dry:
        write_bytes(host, path, content, mode)
    return True


def _clear(host: Host, path: str) -> None:
    with contextlib.suppress(OSError):
        clear_staged(host.real(host.resolve(posixpath.dirname(path)).value), posixpath.basename(path))


def write_link(host: Host, path: str, target: str) -> None:
    """Make `path` a symbolic link to `target`, in place of an old file. NpuError when that fails."""
    try:
        directory = make_directory(host, posixpath.dirname(path))
        staged = posixpath.join(directory, staged_prefix(posixpath.basename(path)) + "new")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(staged)
        os.symlink(target, staged)
        os.rename(staged, posixpath.join(directory, posixpath.basename(path)))
    except OSError as exc:
        raise explain(exc, path, "written") from exc


def remove_file(host: Host, path: str, dry: bool = False) -> bool:
    """Remove `path`; False when it does not exist. NpuError when that fails."""
    info = host.stat(path, follow=False)
    if info.state == "absent":
        return False
    parent = host.resolve(posixpath.dirname(path))
    if dry:
        return True
    try:
        os.unlink(posixpath.join(host.real(parent.get(posixpath.dirname(path))), posixpath.basename(path)))
    except OSError as exc:
        raise explain(exc, path, "removed") from exc
    return True


def remove_empty_directory(host: Host, path: str, dry: bool = False) -> bool:
    """Remove an empty directory; False when it is not empty or missing. NpuError when that fails."""
    found = host.resolve(path)
    if dry or not found.ok or host.listdir(path).get(["?"]):
        return False
    try:
        os.rmdir(host.real(found.value))
    except OSError as exc:
        raise explain(exc, path, "removed") from exc
    return True


def renew(host: Host, path: str, oldest: float, dry: bool = False) -> bool:
    """Touch a file that is older than `oldest`, in seconds since the epoch; False when it is not older."""
    info = host.stat(path)
    if not info.ok or info.value.mtime >= oldest:
        return False
    if not dry:
        os.utime(host.real(host.resolve(path).value))
    return True
