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
from .._host.files import clear_staged, explain, make_directory, replace_file, sync_directory, take_lock
from .._host.host import Host
from .options import format_of

FILE_MODE = 0o644
LOCK_SECONDS = 10.0


def write_spec(host: Host, path: str, text: str, check: bool = False) -> bool:
    """Make `path` hold `text`; True when that changed (or, with `check`, would change) something.

    A symbolic link at `path` stays and its target is written. The file is 0644 and keeps owner and SELinux label.
    NpuError names the path and the remedy; nothing is half-written then.
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
        make_directory(host, posixpath.dirname(target))
        with _locked(directory):
            replace_file(real, data, FILE_MODE, keep=True)
    except OSError as exc:
        raise explain(exc, target, "written") from exc
    return True


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


def place_of(host: Host, path: str) -> str:
    """`path` with every link followed inside the root, whether or not what they lead to exists; NpuError for a loop."""
    found = host.resolve(path, strict=False)
    if not found.ok:
        raise NpuError("%s leads through too many symbolic links." % path, "Remove the loop.")
    return str(found.value)


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
