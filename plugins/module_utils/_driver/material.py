# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that a driver is installed from, and whether this host can install them."""

from __future__ import annotations

import os
import posixpath
import typing as t
from dataclasses import dataclass, field

from .._base.model import NpuError
from .._base.vendor import VendorProfile
from .._host.disk import mount_flags
from .._host.host import Host
from .kept import Kept
from .request import RUNFILE, Request

# Below these an installation writes: programs and libraries, modules, configuration.
WRITTEN = ("/usr", "/lib/modules", "/etc")


@dataclass
class Material:
    """Files on the host with their digests, and the arguments of an installer among them."""

    source: str
    version: str
    files: list[dict[str, str]] = field(default_factory=list)
    arguments: t.Sequence[str] = ()
    uninstall: t.Sequence[str] = ()


def material_of(kept: Kept) -> Material:
    """A kept driver as material to install."""
    files = [{"path": posixpath.join(kept.path, item["name"]), "sha256": item["sha256"]} for item in kept.files]
    return Material(kept.source, kept.version, files, kept.arguments, kept.uninstall)


def require_room_to_write(host: Host, profile: VendorProfile, request: Request) -> None:
    """NpuError when a target file system is read-only, or the installer is on a file system without exec."""
    for path in (profile.runfile_stamp_dir, *WRITTEN):
        if mount_flags(host, path) & os.ST_RDONLY:
            raise NpuError(
                "%s is on a file system that is mounted read-only." % path,
                "Mount it read-write, or put the driver into the image of this host (source preinstalled); "
                "nothing was changed.",
            )
    if request.source == RUNFILE and mount_flags(host, profile.runfile_stamp_dir) & os.ST_NOEXEC:
        raise NpuError(
            "%s, where the installer is run, is on a file system that is mounted noexec." % profile.runfile_stamp_dir,
            "Mount it exec (mount -o remount,exec), or install the driver from packages (source package); "
            "nothing was changed.",
        )
