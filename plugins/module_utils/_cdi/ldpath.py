# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the dynamic loader looks, and a cached view of those directories.

Each directory is listed once and each file opened once, so a host with thousands of libraries costs a handful of
system calls a library.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import posixpath
import typing as t

from .._formats.elf import TRIPLETS, Elf, parse_elf
from .._host.host import LINK_LIMIT, Host

# Most bytes of one table of a library. Its size is not asked for: that spares a system call for each library.
PART = 4 * 1024 * 1024
ANY_SIZE = 1 << 62
FILE = "file"
DIRECTORY = "dir"
LINK = "link"
OTHER = "other"

LD_SO_CONF = "/etc/ld.so.conf"
INCLUDE_LIMIT = 16


class Listing(t.NamedTuple):
    """A directory: its path with all links resolved, and the kind of each name in it."""

    path: str
    names: t.Mapping[str, str]


class Tree:
    """A cached, read-only view of the directories and ELF files of a host. Paths are the host's own."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.denied: dict[str, str] = {}
        self._listings: dict[str, Listing | None] = {}
        self._links: dict[str, str] = {}
        self._elves: dict[str, Elf | str] = {}

    def listing(self, path: str) -> Listing | None:
        """The listing of a directory, or None when it is not there; one that cannot be read is noted in `denied`."""
        if path in self._listings:
            return self._listings[path]
        found = self.host.resolve(path)
        result: Listing | None = None
        if found.ok:
            if found.value in self._listings:
                result = self._listings[found.value]
            else:
                result = self._scan(found.value)
                self._listings[found.value] = result
        elif found.state != "absent":
            self.denied[path] = found.detail
        self._listings[path] = result
        return result

    def _scan(self, path: str) -> Listing | None:
        names: dict[str, str] = {}
        try:
            with os.scandir(self.host.real(path)) as entries:
                for entry in entries:
                    if entry.is_symlink():
                        names[entry.name] = LINK
                    elif entry.is_file(follow_symlinks=False):
                        names[entry.name] = FILE
                    elif entry.is_dir(follow_symlinks=False):
                        names[entry.name] = DIRECTORY
                    else:
                        names[entry.name] = OTHER
        except OSError as exc:
            if exc.errno not in (errno.ENOENT, errno.ENOTDIR):
                self.denied[path] = os.strerror(exc.errno) if exc.errno else str(exc)
            return None
        return Listing(path, names)

    def link_text(self, path: str) -> str:
        """The text of the symbolic link at a resolved directory's name; empty when it cannot be read."""
        if path not in self._links:
            self._links[path] = self.host.readlink(path).get("")
        return self._links[path]

    def locate(self, directory: str, name: str) -> str | None:
        """The real path of the regular file that `name` in `directory` is or leads to, or None."""
        listing = self.listing(directory)
        for _step in range(LINK_LIMIT):
            if listing is None:
                return None
            kind = listing.names.get(name)
            if kind is None:
                return None
            path = "/" + name if listing.path == "/" else listing.path + "/" + name
            if kind == FILE:
                return path
            if kind != LINK:
                return None
            text = self.link_text(path)
            if "/" in text:
                parent, text = posixpath.split(text)
                listing = self.listing(posixpath.join(listing.path, parent))
            if not text:
                return None
            name = text
        return None

    def elf(self, path: str) -> Elf | str:
        """The ELF facts of a file by its real path, or a phrase that says why there are none."""
        if path not in self._elves:
            self._elves[path] = self._read_elf(path)
        return self._elves[path]

    def _read_elf(self, path: str) -> Elf | str:
        try:
            # A listing said that it is a file; a pipe that has taken its place does not block, and cannot be read.
            descriptor = os.open(self.host.real(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as exc:
            return "it cannot be read (%s)" % (exc.strerror or exc)
        try:
            return parse_elf(lambda length, offset: os.pread(descriptor, min(length, PART), offset), ANY_SIZE)
        except ValueError as exc:
            return str(exc)
        except OSError as exc:
            return "it cannot be read (%s)" % os.strerror(exc.errno or 0)
        finally:
            os.close(descriptor)


def default_directories(machine: str) -> tuple[str, ...]:
    """Library directories of the common distributions for a machine (as uname names it), in search order."""
    triplet = TRIPLETS.get(machine, machine + "-linux-gnu")
    return (
        "/usr/lib64",
        "/usr/lib/" + triplet,
        "/usr/lib",
        "/usr/local/lib",
        "/usr/local/lib64",
        "/lib",
        "/lib64",
        "/lib/" + triplet,
    )


def configured_directories(tree: Tree, path: str = LD_SO_CONF) -> list[str]:
    """The directories of ld.so.conf in order; `include` globs are followed, relative to the including file."""
    found: list[str] = []
    _read_conf(tree, path, found, set(), 0)
    return found


def _read_conf(tree: Tree, path: str, found: list[str], seen: set[str], depth: int) -> None:
    if path in seen or depth > INCLUDE_LIMIT:
        return
    seen.add(path)
    text = tree.host.read_text(path).get("")
    for line in text.splitlines():
        words = line.split("#", 1)[0].replace(",", " ").split()
        if not words or words[0] == "hwcap":
            continue
        if words[0] == "include":
            for pattern in words[1:]:
                for name in _glob(tree, posixpath.join(posixpath.dirname(path), pattern)):
                    _read_conf(tree, name, found, seen, depth + 1)
            continue
        for word in line.split("#", 1)[0].replace(":", " ").replace(",", " ").split():
            directory = posixpath.normpath(word.split("=", 1)[0])
            if directory.startswith("/") and directory not in found:
                found.append(directory)


def _glob(tree: Tree, pattern: str) -> list[str]:
    """Host paths that match a shell pattern with wildcards in any component, sorted as glob(3) does."""
    paths = ["/"]
    for part in [piece for piece in posixpath.normpath(pattern).split("/") if piece]:
        step: list[str] = []
        for base in paths:
            if not any(mark in part for mark in "*?["):
                step.append(posixpath.join(base, part))
                continue
            listing = tree.listing(base)
            if listing is not None:
                names = sorted(name for name in listing.names if fnmatch.fnmatchcase(name, part))
                step.extend(
                    posixpath.join(base, name) for name in names if part.startswith(".") or not name.startswith(".")
                )
        paths = step
    return paths


def expand(entry: str, origin: str, machine: str, bits: int) -> str | None:
    """One RPATH or RUNPATH entry as an absolute directory; None for one that is relative to the working directory."""
    triplet = TRIPLETS.get(machine, "")
    values = {"ORIGIN": origin, "LIB": "lib64" if bits == 64 else "lib", "PLATFORM": machine}
    if triplet and origin.startswith(("/lib/" + triplet, "/usr/lib/" + triplet)):
        values["LIB"] = "lib/" + triplet
    for name, value in values.items():
        entry = entry.replace("${%s}" % name, value).replace("$" + name, value)
    return posixpath.normpath(entry) if entry.startswith("/") else None
