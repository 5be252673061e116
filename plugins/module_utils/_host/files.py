# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Single files on a host: replaced so that no reader ever sees half of one, and taken away. For a set of files see writer."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import posixpath
import stat as stat_module
import tempfile
import time

from .._base.model import NpuError
from .host import ABSENT, Host

DIRECTORY_MODE = 0o755
LOCK_PAUSE = 0.05
SELINUX_LABEL = "security.selinux"


def explain(exc: OSError, path: str, act: str) -> NpuError:
    """The error for `path` that could not be written or removed (`act`), with the remedy that fits the cause."""
    remedy = "See what is at that path and try again."
    if exc.errno in (errno.ENOTDIR, errno.EEXIST):
        remedy = "Move the file away that stands where the directory belongs."
    elif exc.errno in (errno.EACCES, errno.EPERM):
        remedy = "Run as root (become)."
    elif exc.errno == errno.EROFS:
        remedy = "The file system is read-only: make it writable, or give a path on another one."
    elif exc.errno == errno.ENOSPC:
        remedy = "Make room on that file system."
    return NpuError("%s cannot be %s: %s." % (path, act, os.strerror(exc.errno) if exc.errno else exc), remedy)


def make_directory(host: Host, path: str) -> str:
    """The real directory for a host path, links followed inside the root; what is missing is made with mode 0755 whatever the umask."""
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
    """Bring the names in a directory of this machine to the disk, where its file system can."""
    descriptor = os.open(real, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as exc:
        if exc.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def take_lock(descriptor: int, path: str, seconds: float, busy: str) -> None:
    """Lock an open file or directory for this process alone; closing it lets go.

    NpuError names `path`, and says `busy` when somebody else has held the lock for `seconds`.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise NpuError(
                    "The lock of %s cannot be taken: %s." % (path, busy), "Wait until it has ended and run again."
                ) from None
        except OSError as exc:
            raise explain(exc, path, "locked") from exc
        time.sleep(LOCK_PAUSE)


def staged_prefix(name: str) -> str:
    """How the names of files begin that wait to replace `name`."""
    return ".%s." % name


def replace_file(real: str, content: bytes, mode: int, keep: bool = False) -> None:
    """Put bytes at a path of this machine by a rename inside its directory, both brought to the disk. OSError leaves all as it was.

    `keep` gives the new file owner and SELinux label of the old one.
    """
    directory, name = os.path.split(real)
    descriptor, staged = tempfile.mkstemp(prefix=staged_prefix(name), suffix=".tmp", dir=directory)
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
    """Make a file at a path of this machine, its bytes on the disk; what lies there under that name goes first. OSError when that fails."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(handle, "wb", closefd=False) as stream:
            stream.write(data)
        os.fchmod(handle, mode)
        os.fsync(handle)
    finally:
        os.close(handle)


def copy_attributes(path: str, model: str) -> None:
    """Give a file of this machine the owner, mode and extended attributes (ACL and SELinux label too) of `model`. OSError when that fails."""
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
    """The file `path` leads to inside the root, and the directories missing on the way, outermost first. NpuError for a link to nowhere."""
    found = host.resolve(path)
    if found.ok:
        return found.value, []
    if found.state != ABSENT:
        raise NpuError("%s: %s." % (path, found.detail), "Make it reachable and run again.")
    link = host.readlink(path)
    if link.ok:
        raise NpuError(
            "%s is a symbolic link to %s, which is not there." % (path, link.value),
            "Make the target or remove the link.",
        )
    parent = posixpath.dirname(path) or "/"
    missing: list[str] = []
    while not host.resolve(parent).ok:
        if host.readlink(parent).ok:
            raise NpuError("%s is a symbolic link that leads nowhere." % parent, "Make the target or remove the link.")
        missing.insert(0, posixpath.basename(parent))
        parent = posixpath.dirname(parent)
    base = host.resolve(parent).value.rstrip("/")
    dirs = [base + "/" + "/".join(missing[: index + 1]) for index in range(len(missing))]
    return posixpath.join(base or "/", *missing, posixpath.basename(path)), dirs


def write_bytes(host: Host, path: str, content: bytes, mode: int) -> None:
    """Put bytes at `path`, whose directory is made when missing; a symbolic link there becomes a file. NpuError when that fails."""
    try:
        directory = make_directory(host, posixpath.dirname(path))
        replace_file(posixpath.join(directory, posixpath.basename(path)), content, mode)
    except OSError as exc:
        raise explain(exc, path, "written") from exc


def write_file(host: Host, path: str, text: str, mode: int = 0o644, dry: bool = False) -> bool:
    """As write_bytes with text. False, and nothing touched, when it is there already."""
    content = text.encode("utf-8")
    found = host.read_bytes(path)
    info = host.stat(path, follow=False)
    if found.ok and found.value == content and info.ok and info.value.kind == "file":
        return False
    if not dry:
        write_bytes(host, path, content, mode)
    return True


def write_link(host: Host, path: str, target: str) -> None:
    """Make `path` a symbolic link with the text `target`, in place of what is there. NpuError when that fails."""
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
    """Take `path` away; False when it was not there. NpuError when that fails."""
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
    """Take a directory away that holds nothing; False when it holds something or is not there. NpuError when that fails."""
    found = host.resolve(path)
    if dry or not found.ok or host.listdir(path).get(["?"]):
        return False
    try:
        os.rmdir(host.real(found.value))
    except OSError as exc:
        raise explain(exc, path, "removed") from exc
    return True


def renew(host: Host, path: str, oldest: float, dry: bool = False) -> bool:
    """Give a file the time of now when it is older than `oldest`, in seconds since the epoch; its contents stay. False when it is not older."""
    info = host.stat(path)
    if not info.ok or info.value.mtime >= oldest:
        return False
    if not dry:
        os.utime(host.real(host.resolve(path).value))
    return True
