# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that a driver is installed from, and whether this host can install them."""

from __future__ import annotations

import contextlib
import os
import posixpath
import shutil
import typing as t

from .._base.model import NpuError
from .._base.records import dataclass, field
from .._base.vendor import VendorProfile
from .._host.disk import free_bytes, mount_flags
from .._host.host import Host
from .._host.private import private_directory
from .._npu.driver_notes import INCOMING, state_path
from .kept import Kept
from .request import RUNFILE, Request

# Below these an installation writes: programs and libraries, modules, configuration.
WRITTEN = ("/usr", "/lib/modules", "/etc")
# Where an installer unpacks itself when that cannot be beside it. Others cannot write there.
ROOTS = ("/opt", "/usr/local/lib", "/root")
# How many times its own size an installer may need there.
UNPACKED = 4


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


def require_room_to_write(host: Host, profile: VendorProfile, request: Request, dry: bool = False) -> None:
    """NpuError when a target file system is read-only, or what an installer unpacks has no fit directory.

    `dry`: nothing is tried there.
    """
    for path in (profile.runfile_stamp_dir, *WRITTEN):
        if mount_flags(host, path) & os.ST_RDONLY:
            raise NpuError(
                "%s is on a file system that is mounted read-only." % path,
                "Mount it read-write, or put the driver into the image of this host (source preinstalled); "
                "nothing was changed.",
            )
    if request.source == RUNFILE:
        sizes = [os.path.getsize(item["path"]) for item in request.files if os.path.exists(item["path"])]
        require_workplace(host, profile, request, UNPACKED * sum(sizes), dry)


def require_workplace(host: Host, profile: VendorProfile, request: Request, size: int = 0, dry: bool = False) -> str:
    """The first directory where root can write `size` bytes and run programs, tried with one unless `dry`.

    That is the one of the request, or one of those that belong to root alone. NpuError has the reason against each.
    """
    reasons = []
    for place in [request.temporary_directory] if request.temporary_directory else [profile.runfile_stamp_dir, *ROOTS]:
        why = _unfit(host, profile, place, size, dry)
        if not why:
            return place
        reasons.append("%s %s" % (place, why))
    raise NpuError(
        "The installer has no directory to unpack itself and run what it unpacks: %s." % "; ".join(reasons),
        "Set temporary_directory to one that is writable and mounted exec, or install the driver from packages "
        "(source package); nothing was changed.",
    )


def _unfit(host: Host, profile: VendorProfile, place: str, size: int, dry: bool) -> str:
    """What speaks against a place; empty when nothing does."""
    flags, free = mount_flags(host, place), free_bytes(host, place)
    if not place.startswith("/"):
        return "is not an absolute path"
    if place in ROOTS and not host.exists(place):
        return "does not exist"
    if flags & os.ST_RDONLY:
        return "is mounted read-only"
    if flags & os.ST_NOEXEC:
        return "is mounted noexec"
    if free is not None and free < size:
        return "has %d MiB free, and %d MiB may be needed" % (free >> 20, -(-size >> 20))
    if dry:
        return ""
    try:
        with _private(host, profile, place) as directory:
            program = os.path.join(directory, "try")
            with open(program, "w", encoding="ascii") as stream:
                os.fchmod(stream.fileno(), 0o700)
                stream.write("#!/bin/sh\nexit 0\n")
            done = host.run([program], 30.0)
    except NpuError as exc:
        return "cannot be used: %s" % exc.message.rstrip(".")
    except OSError as exc:
        return "cannot be written: %s" % exc.strerror
    if done.ok and done.value.rc == 0:
        return ""
    why = done.detail if not done.ok else " ".join(done.value.err.split()) or "code %d" % done.value.rc
    return "does not let a program run (%s)" % why.rstrip(".")


@contextlib.contextmanager
def _private(host: Host, profile: VendorProfile, place: str) -> t.Iterator[str]:
    """An empty directory of this user alone at a place, as a path of this machine; removed afterwards."""
    own = place == profile.runfile_stamp_dir
    above = state_path(profile, INCOMING) if own else place
    path = host.real(posixpath.join(above, ".%s-installer" % profile.short_name))
    shutil.rmtree(path, ignore_errors=True)
    if own:
        private_directory(os.path.dirname(path), os.geteuid())
    private_directory(path, os.geteuid())
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        if own:
            with contextlib.suppress(OSError):
                os.rmdir(os.path.dirname(path))


@contextlib.contextmanager
def workplace(host: Host, profile: VendorProfile, request: Request) -> t.Iterator[str]:
    """A private directory for what an installer unpacks and runs, as a path of this machine; removed afterwards."""
    with _private(host, profile, require_workplace(host, profile, request)) as path:
        yield path
