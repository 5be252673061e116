# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a driver leaves on a host besides packages: files in the known places, and our notes."""

from __future__ import annotations

import fnmatch
import posixpath
import re
import typing as t

from .._base.vendor import VendorProfile
from .._host.files import staged_prefix
from .._host.host import ABSENT, Host
from .._npu.driver_notes import INCOMING, JOURNAL, KEPT, REFUSED, TAINTED, WAITS
from .._npu.libraries import LIBRARY_DIRS
from .sources import matches

MODULE_TREES = ("updates", "extra", "weak-updates", "kernel/drivers/accel")


def residue(host: Host, profile: VendorProfile) -> list[str]:
    """Host paths of the driver's files: `profile.residue`, libraries, modules of every kernel, sources, DKMS tree.

    Files of packages of other vendors are left out.
    """
    found: set[str] = set()
    for directory, pattern in [
        *profile.residue,
        *((folder, name) for folder in LIBRARY_DIRS for name in profile.library_patterns),
    ]:
        # Where /lib links to /usr/lib, list a file once.
        found.update(host.glob(host.resolve(directory).get(directory), pattern))
    for kernel in host.listdir("/lib/modules").get([]):
        for folder in MODULE_TREES:
            found.update(_below(host, "/lib/modules/%s/%s" % (kernel, folder), profile.module + ".ko*"))
    for name in (profile.module, *profile.driver_packages):
        found.update(host.glob("/var/lib/dkms", name) + host.glob("/usr/src", name + "-[0-9]*"))
    owned = owners(host, sorted(found))
    return sorted(
        path for path in found if all(matches(name, profile.package_patterns) for name in owned.get(path, []))
    )


def _below(host: Host, directory: str, pattern: str) -> list[str]:
    """Paths below a directory whose name fits; links to directories are not followed."""
    found = []
    for name in host.listdir(directory).get([]):
        path = posixpath.join(directory, name)
        if fnmatch.fnmatchcase(name, pattern):
            found.append(path)
            continue
        info = host.stat(path, follow=False)
        if info.ok and info.value.kind == "dir":
            found += _below(host, path, pattern)
    return found


def _spellings(host: Host, path: str) -> list[str]:
    """The path and, where /lib links to /usr/lib, its other name. dpkg knows only the name in the package."""
    if not host.readlink("/lib").ok:
        return [path]
    if re.match(r"/(bin|sbin|lib[0-9a-z]*)/", path):
        return [path, "/usr" + path]
    return [path, path[4:]] if re.match(r"/usr/(bin|sbin|lib[0-9a-z]*)/", path) else [path]


def owners(host: Host, paths: t.Sequence[str]) -> dict[str, list[str]]:
    """{path: names of the packages that own it}; paths without an owner are left out."""
    if not paths:
        return {}
    names = {spelling: path for path in paths for spelling in _spellings(host, path)}
    found: dict[str, list[str]] = {}
    asked = host.run(["dpkg", "-S", *sorted(names)], 60.0)
    for line in asked.value.out.splitlines() if asked.ok else []:
        owner, _sign, rest = line.partition(": /")
        if "/" + rest in names and not owner.startswith("diversion by "):
            found.setdefault(names["/" + rest], []).extend(name.strip().split(":")[0] for name in owner.split(","))
    for path in paths:
        asked = host.run(["rpm", "-qf", "--qf", "%{NAME}\\n", path], 60.0)
        if asked.state == ABSENT:
            break
        if asked.ok and asked.value.rc == 0:
            found.setdefault(path, []).extend(asked.value.out.split())
    return found


def notes(host: Host, profile: VendorProfile) -> list[str]:
    """Host paths of our notes and kept files, and of their temporary files; the directory itself when it is empty.

    Keys and a bundle in the same directory are not ours to remove.
    """
    ours = (profile.runfile_stamp, JOURNAL, WAITS, TAINTED, REFUSED, KEPT, INCOMING)
    listed = host.listdir(profile.runfile_stamp_dir)
    if listed.ok and not listed.value:
        return [profile.runfile_stamp_dir]
    return [
        posixpath.join(profile.runfile_stamp_dir, name)
        for name in listed.get([])
        if name in ours or any(name.startswith(staged_prefix(own)) for own in ours)
    ]
