# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Free space on the file systems that an installation writes to."""

from __future__ import annotations

import os
import posixpath

from .host import Host

INITRAMFS = ("initrd.img-*", "initramfs-*.img", "initrd-*")
PATHS = ("/", "/boot", "/usr", "/usr/local", "/var", "/lib/modules")
FLAGS = ((os.ST_RDONLY, "ro"), (os.ST_NOEXEC, "noexec"), (os.ST_NOSUID, "nosuid"))


def _nearest(host: Host, path: str) -> str | None:
    """The path with links followed, or its nearest existing parent; None when nothing can be read."""
    while True:
        found = host.resolve(path)
        if found.ok:
            return str(found.value)
        if path == "/":
            return None
        path = posixpath.dirname(path)


def mount_point(host: Host, path: str) -> str | None:
    """Mount point of `path`, found by the device numbers of its parent directories."""
    current = _nearest(host, path)
    return None if current is None else _mount_of(host, current)


def _mount_of(host: Host, current: str) -> str:
    """Mount point of a path that exists and has no links."""
    here = host.stat(current)
    while here.ok and current != "/":
        above = host.stat(posixpath.dirname(current))
        if not above.ok or above.value.device != here.value.device:
            break
        current = posixpath.dirname(current)
    return current


def read_disk(host: Host) -> tuple[dict[str, int | None], dict[str, str | None], dict[str, list[str] | None]]:
    """Facts `disk`, {path: bytes free for users or None}, `mounts`, {path: mount point or None}, and `mount_options`,
    {path: those of ro, noexec and nosuid that hold there, or None}.
    """
    free: dict[str, int | None] = {}
    mounts: dict[str, str | None] = {}
    options: dict[str, list[str] | None] = {}
    for path in PATHS:
        nearest = _nearest(host, path)
        mounts[path] = None if nearest is None else _mount_of(host, nearest)
        try:
            # Not the mount point: a bind mount of the same file system has options of its own.
            info = os.statvfs(host.real(nearest or path))
        except OSError:
            free[path], options[path] = None, None
            continue
        free[path] = info.f_bavail * info.f_frsize
        options[path] = [word for flag, word in FLAGS if info.f_flag & flag]
    return free, mounts, options


def mount_flags(host: Host, path: str) -> int:
    """Mount flags of a path, such as os.ST_RDONLY; 0 when they cannot be read."""
    try:
        return os.statvfs(host.real(_nearest(host, path) or "/")).f_flag
    except OSError:
        return 0


def free_bytes(host: Host, path: str) -> int | None:
    """Bytes that root can write where a path lies; None when that cannot be read."""
    try:
        info = os.statvfs(host.real(_nearest(host, path) or "/"))
    except OSError:
        return None
    return info.f_bfree * info.f_frsize


def read_initramfs(host: Host) -> int | None:
    """Bytes of the largest initramfs in /boot, an estimate for the next one; None when there is none."""
    sizes = []
    for pattern in INITRAMFS:
        for path in host.glob("/boot", pattern):
            found = host.stat(path)
            # The rescue image contains all drivers and is made only once.
            if found.ok and found.value.kind == "file" and "rescue" not in path and not path.endswith("kdump.img"):
                sizes.append(found.value.size)
    return max(sizes) if sizes else None
