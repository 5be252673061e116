# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A directory that only one user can enter or replace: verified files stay as they were verified."""

from __future__ import annotations

import os
import stat

from .._base.model import NpuError
from .files import explain


def private_directory(path: str, owner: int) -> None:
    """Make `path` a directory of `owner` with mode 0700 that no other user can replace.

    NpuError when it is not a directory, or when another user owns or can write to a parent directory.
    """
    try:
        os.makedirs(path, mode=0o755, exist_ok=True)
        info = os.lstat(path)
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != owner:
            raise NpuError(
                "%s is not a directory of user ID %d." % (path, owner), "Remove it or choose another directory."
            )
        if stat.S_IMODE(info.st_mode) != 0o700:
            os.chmod(path, 0o700)
        parent = os.path.dirname(os.path.realpath(path))
        while True:
            info = os.stat(parent)
            if info.st_uid not in (0, owner) or (info.st_mode & 0o022 and not info.st_mode & stat.S_ISVTX):
                raise NpuError(
                    "%s is writable for users other than user ID %d." % (parent, owner),
                    "Use a directory below /var/lib.",
                )
            if parent == "/":
                return
            parent = os.path.dirname(parent)
    except OSError as exc:
        raise explain(exc, path, "created") from exc
