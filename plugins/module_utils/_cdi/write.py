# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Put a CDI specification into its directory and take it away, so that no reader ever sees half of one.

The text goes to a file in the same directory, under a name that no reader loads, and is renamed over the old one: a
watching runtime sees a rename inside its directory, and a kill at any moment leaves the old file or the new one.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import typing as t

from .._base.model import NpuError
from .._host.files import (
    DIRECTORY_MODE,
    clear_staged,
    explain,
    make_directory,
    replace_file,
    sync_directory,
    take_lock,
)
from .._host.host import Host
from .options import format_of
from .trust import Guard, directory_needs_repair, file_needs_repair, place_of, refuse_planted

FILE_MODE = 0o644
LOCK_SECONDS = 10.0


def write_spec(host: Host, path: str, text: str, check: bool = False) -> bool:
    """Make `path` hold `text`; True when that changed (or, with `check`, would change) something.

    A symbolic link at `path` stays and its target is written, unless others than root could have made it. The file is
    root's, 0644, and keeps its SELinux label; its directory gets the mode 0755. NpuError names the path and the remedy;
    nothing is half-written then.
    """
    return _bring(host, path, text.encode("utf-8"), check)


def repair_spec(host: Host, path: str, check: bool = False) -> bool:
    """As write_spec(), with the bytes that the file has; False also when it is missing."""
    return _bring(host, path, None, check)


def _bring(host: Host, path: str, data: bytes | None, check: bool) -> bool:
    format_of(path)
    guard = Guard(host)
    refuse_planted(guard, path)
    target = _target(host, path)
    parent = posixpath.dirname(target)
    found = host.read_bytes(target)
    unsafe = directory_needs_repair(guard, posixpath.dirname(path))
    if data is None:
        data = found.get()
    due = data is not None and (found.get() != data or file_needs_repair(guard, target))
    if check:
        if due:
            _check_directory(host, parent)
        return due or unsafe
    real = host.real(target)
    try:
        if unsafe:
            _close(host.real(guard.way(posixpath.dirname(path)).real))
        if due and data is not None:
            make_directory(host, parent)
            with _locked(os.path.dirname(real)):
                # A file of another owner is made anew, with a new inode: it may have a second name elsewhere.
                seen = guard.at(target)
                replace_file(real, data, FILE_MODE, keep=seen is not None and seen.uid in guard.users)
    except OSError as exc:
        raise explain(exc, target, "written") from exc
    return due or unsafe


def _close(directory: str) -> None:
    """Take from others than root the right to write a directory of this machine."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchmod(descriptor, DIRECTORY_MODE)
    finally:
        os.close(descriptor)


def remove_spec(host: Host, path: str, check: bool = False) -> bool:
    """Remove the file (or the link) at `path` and leftovers of a killed write; True when there was something."""
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
            clear_staged(directory, name)
            if there:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(real)
                sync_directory(directory)
    except OSError as exc:
        raise explain(exc, path, "removed") from exc
    return there or seen.ok


def _target(host: Host, path: str) -> str:
    target = place_of(host, path)
    seen = host.stat(target, follow=False)
    if seen.ok and seen.value.kind != "file":
        raise NpuError(
            "%s is not a regular file (%s)." % (target, seen.value.kind), "Remove it or give the path of a file."
        )
    return target


def _check_directory(host: Host, directory: str) -> None:
    while directory != "/":
        seen = host.stat(directory)
        if seen.ok:
            if seen.value.kind != "dir":
                raise NpuError(
                    "%s is not a directory." % directory,
                    "Move that file away; the specification's directory belongs there.",
                )
            return
        directory = posixpath.dirname(directory)


@contextlib.contextmanager
def _locked(directory: str) -> t.Iterator[None]:
    """Hold the directory's own lock, so that no lock file stays behind."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        take_lock(descriptor, directory, LOCK_SECONDS, "another program has held it for %g s" % LOCK_SECONDS)
        yield
    finally:
        os.close(descriptor)
