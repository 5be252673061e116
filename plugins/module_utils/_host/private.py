# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A directory that only one user can enter or replace: verified files stay as they were verified."""

from __future__ import annotations

import os
import stat

from .._base.model import NpuError
from .files import explain

LINKS = 40


def parents(path: str, owner: int) -> None:
    """NpuError when a user other than root and `owner` can replace the directory `path`, which need not exist.

    Every directory above it and every symbolic link on the way must be theirs. OSError when one cannot be read.
    """
    above = os.path.dirname(os.path.join(os.getcwd(), path))
    todo, done, links = [part for part in above.split("/") if part], "/", 0
    while True:
        info = os.stat(done)
        if info.st_uid not in (0, owner) or (info.st_mode & 0o022 and not info.st_mode & stat.S_ISVTX):
            raise NpuError(
                "%s is writable for users other than user ID %d." % (done, owner),
                "Use a directory below /var/lib.",
            )
        if not todo:
            return
        step = os.path.normpath(os.path.join(done, todo.pop(0)))
        try:
            info = os.lstat(step)
        except FileNotFoundError:
            return
        if not stat.S_ISLNK(info.st_mode):
            done = step
            continue
        links += 1
        if info.st_uid not in (0, owner) or links > LINKS:
            raise NpuError(
                "%s is a symbolic link that user ID %d cannot rely on." % (step, owner),
                "Use a directory below /var/lib.",
            )
        target = os.readlink(step)
        done = "/" if target.startswith("/") else done
        todo = [part for part in target.split("/") if part] + todo


def private_directory(path: str, owner: int) -> None:
    """Make `path` a directory of `owner` with mode 0700 that no other user can replace.

    NpuError when it is not a directory, or when another user can replace it.
    """
    try:
        parents(path, owner)
        os.makedirs(path, mode=0o755, exist_ok=True)
        # Again: in a sticky directory, another user may have made what was missing.
        parents(path, owner)
        info = os.lstat(path)
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != owner:
            raise NpuError(
                "%s is not a directory of user ID %d." % (path, owner), "Remove it or choose another directory."
            )
        if stat.S_IMODE(info.st_mode) != 0o700:
            os.chmod(path, 0o700)
    except OSError as exc:
        raise explain(exc, path, "created") from exc
