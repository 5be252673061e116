# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Free space on the file systems that an installation writes to."""

from __future__ import annotations

import os
import posixpath

from .host import Host

INITRAMFS = ("initrd.img-*", "initramfs-*.img", "initrd-*")
PATHS = ("/", "/boot", "/usr", "/var", "/lib/modules")


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
    if current is None:
        return None
    here = host.stat(current)
    while here.ok and current != "/":
        above = host.stat(posixpath.dirname(current))
        if not above.ok or above.value.device != here.value.device:
            break
        current = posixpath.dirname(current)
    return current


def read_disk(host: Host) -> tuple[dict[str, int | None], dict[str, str | None]]:
    """Facts `disk`, {path: bytes free for users or None}, and `mounts`, {path: mount point or None}."""
    free: dict[str, int | None] = {}
    mounts: dict[str, str | None] = {}
    for path in PATHS:
        mounts[path] = mount_point(host, path)
        try:
            info = os.statvfs(host.real(mounts[path] or path))
            free[path] = info.f_bavail * info.f_frsize
        except OSError:
            free[path] = None
    return free, mounts


def mount_flags(host: Host, path: str) -> int:
    """Mount flags of a path, such as os.ST_RDONLY; 0 when they cannot be read."""
    try:
        return os.statvfs(host.real(_nearest(host, path) or "/")).f_flag
    except OSError:
        return 0


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
