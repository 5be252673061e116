# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CDI hook of the host tool: names the host's libraries in the loader cache of a container.

The runtime runs it (OCI createContainer) with the container's root below a directory of the host and the rights of
root. An image decides what is in that directory, so: no path is followed out of it, nothing of it is executed, no
program reads it but this one, and what is mounted into it stays as it is. The image needs no ldconfig.

It imports little: the start of a container waits for it.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import sys

from .._formats.ldcache import Entry, dump, insert, parse

OK, BAD = 0, 1
CACHE = "/etc/ld.so.cache"
FOLDERS = "/etc/ld.so.conf.d"
LINK_LIMIT = 40
STATE_LIMIT = 16 * 1024 * 1024
CACHE_LIMIT = 64 * 1024 * 1024
DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Left(Exception):
    """Why the container stays as it is."""


def container_root(state: bytes) -> str:
    """The container's root on the host, from the OCI state. ValueError, KeyError or OSError when it is not told."""
    bundle = json.loads(state)["bundle"]
    with open(os.path.join(bundle, "config.json"), "rb") as stream:
        path = json.loads(stream.read(STATE_LIMIT))["root"]["path"]
    root = str(os.path.normpath(os.path.join(bundle, path)))
    if not os.path.isabs(root) or os.path.samefile(root, "/"):
        raise ValueError("the root of the container is %r" % root)
    return root


def _mount_of(descriptor: int) -> object:
    """What tells mounts apart: the kernel's number, else that of the file system."""
    try:
        with open("/proc/self/fdinfo/%d" % descriptor, encoding="ascii") as stream:
            for line in stream:
                if line.startswith("mnt_id:"):
                    return line
    except OSError:
        pass
    return os.fstat(descriptor).st_dev


class Rootfs:
    """The root of a container. Links are followed inside it by hand, never by the kernel; close() ends it."""

    def __init__(self, path: str) -> None:
        self.top = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self.opened = [self.top]
        self.mount = _mount_of(self.top)

    def close(self) -> None:
        for descriptor in self.opened:
            os.close(descriptor)

    def _keep(self, descriptor: int, path: str) -> int:
        self.opened.append(descriptor)
        if _mount_of(descriptor) != self.mount:
            raise Left("%s is on a volume" % path)
        return descriptor

    def find(self, path: str) -> tuple[int, str]:
        """Descriptor of the directory that holds `path`, and the name there. The file itself may be missing."""
        at, links = [self.top], 0
        parts = _parts(path)
        while parts:
            part = parts.pop(0)
            if part == "..":
                at = at[:-1] or at
                continue
            try:
                text = os.readlink(part, dir_fd=at[-1])
            except OSError as exc:
                if exc.errno not in (errno.EINVAL, errno.ENOENT):
                    raise
                if not parts:
                    return at[-1], part
                at.append(self._keep(os.open(part, DIRECTORY, dir_fd=at[-1]), path))
                continue
            links += 1
            if links > LINK_LIMIT:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            at = [self.top] if text.startswith("/") else at
            parts = _parts(text) + parts
        raise Left("%s is a directory" % path)

    def read(self, path: str) -> bytes | None:
        """The bytes of a regular file; None when it is missing."""
        parent, name = self.find(path)
        try:
            info = os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return None
        # Before it is opened: an image may have a device there.
        if not stat.S_ISREG(info.st_mode) or info.st_size > CACHE_LIMIT:
            raise Left("%s is not a file that can be used" % path)
        descriptor = self._keep(os.open(name, READ, dir_fd=parent), path)
        # open() owns and closes its copy.
        with open(os.dup(descriptor), "rb") as stream:
            return stream.read()

    def write(self, path: str, data: bytes) -> None:
        """Replace a file by a rename in its directory."""
        parent, name = self.find(path)
        staged = ".%s.%s" % (name, os.urandom(8).hex())
        with open(os.open(staged, WRITE, 0o644, dir_fd=parent), "wb") as stream:
            stream.write(data)
        try:
            os.rename(staged, name, src_dir_fd=parent, dst_dir_fd=parent)
        except OSError:
            os.unlink(staged, dir_fd=parent)
            raise


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def update(root: Rootfs, libraries: list[tuple[str, str]], folders: list[str], flags: int, name: str) -> None:
    """Name the libraries in the cache, and their folders for an ldconfig that runs later in the container.

    Left or OSError when the container does not let it.
    """
    try:
        before = root.read(CACHE)
    except FileNotFoundError:
        os.mkdir("etc", 0o755, dir_fd=root.top)
        before = None
    try:
        entries, levels = parse(before or b"")
    except ValueError:
        # The loader reads no such cache either.
        entries, levels = [], []
    for library, path in reversed(libraries):
        insert(entries, Entry(flags, os.fsencode(library), os.fsencode(path)))
    after = dump(entries, levels)
    if after != before:
        root.write(CACHE, after)
    place = "%s/%s" % (FOLDERS, name)
    text = "".join(folder + "\n" for folder in folders).encode()
    try:
        if root.read(place) != text:
            root.write(place, text)
    except (FileNotFoundError, NotADirectoryError):
        # An image without that directory has no ldconfig that would read it.
        pass


def _arguments(argv: list[str]) -> tuple[list[tuple[str, str]], list[str], int]:
    libraries, folders, flags = [], [], 0
    for option, value in zip(argv[::2], argv[1::2]):
        if option == "--library":
            library, _sign, path = value.partition("=/")
            libraries.append((library, "/" + path))
        elif option == "--folder":
            folders.append(value)
        elif option == "--flags":
            flags = int(value)
        else:
            raise ValueError("%s is not an option" % option)
    if len(argv) % 2 or not flags:
        raise ValueError("usage: update-ldcache --flags NUMBER [--library NAME=PATH]... [--folder PATH]...")
    return libraries, folders, flags


def main(program: str, argv: list[str]) -> int:
    """Run as an OCI hook, with the state on standard input; the exit code. Not zero keeps the container from starting.

    A container that cannot be changed (its files are read-only, or /etc is a volume) starts as it is.
    """
    own = os.path.basename(program)
    os.umask(0o022)
    try:
        libraries, folders, flags = _arguments(argv)
        root = Rootfs(container_root(sys.stdin.buffer.read(STATE_LIMIT)))
    except (KeyError, TypeError, ValueError, OSError) as exc:
        sys.stderr.write("%s: The loader cache of the container is not updated: %s.\n" % (own, exc))
        return BAD
    try:
        update(root, libraries, folders, flags, "00-%s.conf" % own)
    except (Left, OSError) as exc:
        sys.stderr.write("%s: The loader cache of the container is not updated: %s.\n" % (own, exc))
        soft = isinstance(exc, Left) or exc.errno in (errno.EROFS, errno.ELOOP, errno.ENOTDIR, errno.EEXIST)
        return OK if soft else BAD
    finally:
        root.close()
    return OK
