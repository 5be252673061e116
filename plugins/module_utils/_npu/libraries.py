# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The user libraries of the driver: where they are, and which version each file is of by its own word."""

from __future__ import annotations

import fnmatch
import posixpath
import re
import typing as t

from .._base.vendor import VendorProfile
from .._base.versions import release_key
from .._host.host import ABSENT, VALUE, Host, Limit, Probe
from .smi import parse_version

LIBRARY_DIRS = (
    "/usr/lib",
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/local/lib",
    "/usr/local/lib64",
)
SUFFIX, MARKER = "suffix", "marker"
# How a 32-bit file begins. On a host with libraries of both word sizes, drivers and containers use those of 64 bits.
NARROW = b"\x7fELF\x01"


def stem_of(name: str) -> str:
    """The name of a library without its version: `liba.so.3.2.2` is `liba.so`."""
    return re.sub(r"\.so(\.[^/]*)?$", ".so", posixpath.basename(name))


def suffix_version(path: str) -> str | None:
    """The version in the name of a file; None for `liba.so` and `liba.so.3`."""
    found = re.search(r"\.so\.([0-9]+(?:\.[0-9]+)+[^/]*)$", path)
    return found.group(1) if found else None


def library_version(host: Host, profile: VendorProfile, path: str) -> tuple[str | None, str | None, Probe]:
    """(version, source) of a file by its real path, and how the look at it ended.

    The suffix of its name, else the text that the vendor builds into some of them. (None, None): it tells no version.
    """
    version = suffix_version(path)
    if version:
        return version, SUFFIX, Probe(VALUE, version)
    if stem_of(path) not in profile.library_version_names:
        return None, None, Probe(VALUE, None)
    data = host.read_bytes(path, Limit.BULK)
    _before, marker, rest = data.get(b"").partition(profile.library_version_marker)
    version = parse_version(rest[:64].split(b"\0")[0].decode("ascii", "replace")) if marker else None
    return version, MARKER if version else None, data


def read_libraries(
    host: Host, profile: VendorProfile, root: str = "/", more_dirs: t.Sequence[str] = ()
) -> tuple[dict[str, t.Any], Probe]:
    """Shape `libraries`: {version, files: [{path, version, source}]}; and the first look that did not work.

    `more_dirs` are directories below `root` that the loader reads too. `version` is the one that all files that tell
    one share; None when they differ or none tells one.
    """
    files: list[dict[str, t.Any]] = []
    seen: set[str] = set()
    failed: list[Probe] = []

    def note(path: str, look: Probe) -> None:
        if not look.ok and look.state != ABSENT:
            failed.append(Probe(look.state, None, "%s: %s" % (path, look.detail)))

    for directory in dict.fromkeys((*LIBRARY_DIRS, *more_dirs)):
        folder = directory if root == "/" else root + directory
        listed = host.listdir(folder)
        note(folder, listed)
        for name in listed.get([]):
            if not any(fnmatch.fnmatchcase(name, pattern) for pattern in profile.library_patterns):
                continue
            path = posixpath.join(folder, name)
            found = host.resolve(path)
            note(path, found)
            if not found.ok or found.value in seen:
                continue
            seen.add(found.value)
            if host.read_head(found.value, len(NARROW)).get(b"") == NARROW:
                continue
            version, source, look = library_version(host, profile, found.value)
            note(path, look)
            files.append({"path": path, "version": version, "source": source})
    told = [item["version"] for item in files if item["version"]]
    one = len({release_key(version) for version in told}) == 1
    found_all = {"version": profile.release_of(told[0]) if one else None, "files": files}
    return found_all, failed[0] if failed else Probe(VALUE if files else ABSENT, None)
