# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Installers and packages of validated versions, kept on the host for a rollback.

Each has its own directory. The manifest is written last and the directory renamed into place, so a partial copy never
counts. Everything belongs to the running user (root) only. Symbolic links are never followed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import json
import os
import posixpath
import re
import shutil
import stat as stat_module
import tempfile
import time
import typing as t

from .._base.model import NpuError
from .._base.records import asdict, dataclass
from .._host.files import create_file, explain, make_directory, sync_directory
from .._host.host import Host, Limit
from .._host.private import private_directory

SCHEMA = 1
MANIFEST = "manifest.json"
STAGED = ".staged-"
RUNFILE = "runfile"
CHUNK = 1024 * 1024
PRIVATE = 0o700

Entry = t.Dict[str, str]


@dataclass(frozen=True)
class Kept:
    """A kept driver.

    `files` are [{name, sha256}] in `path`, a host directory; `packages` are [{name, version}] that it installs;
    `arguments`, `uninstall` and `extract` are arguments of its installer; `time` is when it was kept, as
    2026-01-31T12:00:00Z.
    """

    version: str
    source: str
    files: list[Entry]
    packages: list[Entry]
    arguments: list[str]
    uninstall: list[str]
    extract: list[str]
    path: str = ""
    time: str = ""

    def to_dict(self) -> dict[str, t.Any]:
        return asdict(self)


def _entries(data: t.Any, first: str, second: str) -> list[Entry]:
    if not isinstance(data, list) or not all(
        isinstance(item, dict) and isinstance(item.get(first), str) and isinstance(item.get(second), str)
        for item in data
    ):
        raise ValueError("not a list of %s and %s" % (first, second))
    return [{first: item[first], second: item[second]} for item in data]


def _words(data: t.Any) -> list[str]:
    if not isinstance(data, list) or not all(isinstance(item, str) for item in data):
        raise ValueError("not a list of text")
    return list(data)


def _from_record(record: t.Mapping[str, t.Any], path: str) -> Kept:
    """A Kept from plain data; ValueError when it is not that."""
    version, source = record.get("version"), record.get("source")
    if not isinstance(version, str) or not version or not isinstance(source, str) or not source:
        raise ValueError("no version or source")
    return Kept(
        version=version,
        source=source,
        files=_entries(record.get("files", []), "name", "sha256"),
        packages=_entries(record.get("packages", []), "name", "version"),
        arguments=_words(record.get("arguments", [])),
        uninstall=_words(record.get("uninstall", [])),
        extract=_words(record.get("extract", [])),
        path=path,
        time=str(record.get("time") or ""),
    )


def _good_name(name: str) -> bool:
    return bool(name) and "/" not in name and "\0" not in name and not name.startswith(".") and name != MANIFEST


def _private_directory(host: Host, directory: str) -> str:
    """Real path of the directory of all kept drivers; created when missing. NpuError when another user owns it."""
    try:
        parent = make_directory(host, posixpath.dirname(directory.rstrip("/")) or "/")
    except OSError as exc:
        raise explain(exc, directory, "created") from exc
    real = posixpath.join(parent, posixpath.basename(directory.rstrip("/")))
    private_directory(real, os.geteuid())
    return real


def _copy(source: str, target: str, mode: int) -> str:
    """Copy a regular file to a new one; returns the SHA-256 of the written bytes. OSError when that fails."""
    digest = hashlib.sha256()
    descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as stream:
        if not stat_module.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a file")
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as out:
            for block in iter(lambda: stream.read(CHUNK), b""):
                digest.update(block)
                out.write(block)
            out.flush()
            os.fchmod(out.fileno(), mode)
            os.fsync(out.fileno())
    return digest.hexdigest()


def _digest(path: str) -> str:
    """SHA-256 of a regular file that is not a link; empty when it is missing or cannot be read."""
    digest = hashlib.sha256()
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as stream:
            if not stat_module.S_ISREG(os.fstat(stream.fileno()).st_mode):
                return ""
            for block in iter(lambda: stream.read(CHUNK), b""):
                digest.update(block)
    except OSError:
        return ""
    return digest.hexdigest()


def _remove_tree(real: str) -> None:
    """Remove a directory, link or file. Links are never followed. OSError when that fails."""
    if os.path.islink(real) or not os.path.isdir(real):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(real)
    else:
        shutil.rmtree(real)


def keep(host: Host, directory: str, record: t.Mapping[str, t.Any], sources: t.Sequence[str]) -> Kept:
    """Copy the files at the host paths `sources` into a new directory below `directory`.

    `record` has version and source, and may have packages, arguments, uninstall, extract, time (default: now) and
    files. With files, each copy must have the SHA-256 given there. The new copy replaces a kept driver of the same
    source and version. After NpuError nothing is left behind and the older copies are unchanged.
    """
    names = [posixpath.basename(path) for path in sources]
    if len(set(names)) != len(names) or not names or not all(map(_good_name, names)):
        raise NpuError(
            "These files cannot be kept in one directory: %s." % (", ".join(names) or "none"),
            "Use files with different names.",
        )
    expected = {item["name"]: item["sha256"].lower() for item in record.get("files", [])}
    base = _private_directory(host, directory)
    staged = ""
    path = directory
    try:
        staged = tempfile.mkdtemp(prefix=STAGED, dir=base)
        files = []
        for source, name in zip(sources, names):
            path = source
            digest = _copy(
                host.real(host.resolve(source).get(source)),
                posixpath.join(staged, name),
                PRIVATE if record.get("source") == RUNFILE else 0o600,
            )
            if expected.get(name, digest) != digest:
                raise NpuError(
                    "The SHA-256 of %s is %s, not %s." % (source, digest, expected[name]), "Transfer the file again."
                )
            files.append({"name": name, "sha256": digest})
        now = str(record.get("time") or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(host.clock())))
        stem = re.sub(r"[^0-9A-Za-z._+-]", "_", "%s-%s" % (record.get("source"), record.get("version"))).lstrip(".")
        final = _free_name(base, stem)
        path = posixpath.join(directory.rstrip("/"), final)
        kept = _from_record(dict(record, files=files, time=now), path)
        data = {key: value for key, value in kept.to_dict().items() if key != "path"}
        text = json.dumps(
            dict(data, schema=SCHEMA, sizes={name: os.lstat(posixpath.join(staged, name)).st_size for name in names}),
            indent=1,
            sort_keys=True,
        )
        create_file(posixpath.join(staged, MANIFEST), (text + "\n").encode("utf-8"), 0o600)
        sync_directory(staged)
        older = [
            item.path
            for item in read_kept(host, directory)
            if (item.version, item.source) == (kept.version, kept.source)
        ]
        os.rename(staged, posixpath.join(base, final))
        staged = ""
        sync_directory(base)
        for path in older:
            _remove_tree(posixpath.join(base, posixpath.basename(path)))
    except OSError as exc:
        raise explain(exc, path, "kept") from exc
    except ValueError as exc:
        raise NpuError(
            "The record of the driver to keep is not valid: %s." % exc, "Give version and source of the driver."
        ) from exc
    finally:
        if staged:
            shutil.rmtree(staged, ignore_errors=True)
    return kept


def _free_name(base: str, stem: str) -> str:
    """An unused name in the directory: the stem, or the stem with a number."""
    names = set(os.listdir(base))
    return next(
        name
        for name in itertools.chain([stem], ("%s~%d" % (stem, number) for number in itertools.count(2)))
        if name not in names
    )


def read_kept(host: Host, directory: str) -> list[Kept]:
    """The complete kept drivers, newest first. Sizes are checked here, digests by verify().

    Empty when there is no such directory. NpuError when it cannot be read: unknown is not none.
    """
    listed = host.listdir(directory)
    if not listed.ok and listed.state != "absent":
        raise NpuError("%s cannot be read: %s." % (directory, listed.detail), "Run as root (become).")
    found = []
    for name in listed.get([]):
        path = posixpath.join(directory, name)
        info = host.stat(path, follow=False).get()
        if not _good_name(name) or info is None or info.kind != "dir":
            continue
        manifest = host.stat(posixpath.join(path, MANIFEST), follow=False).get()
        if manifest is None or manifest.kind != "file":
            continue
        try:
            data = json.loads(host.read_text(posixpath.join(path, MANIFEST), Limit.NOTE).get(""))
            data = data if isinstance(data, dict) else {}
            kept = _from_record(data, path)
            sizes = data.get("sizes")
            if data.get("schema") != SCHEMA or not kept.files or not isinstance(sizes, dict):
                continue
        except (ValueError, RecursionError):
            continue
        if all(
            _good_name(item["name"]) and _whole(host, posixpath.join(path, item["name"]), sizes.get(item["name"]))
            for item in kept.files
        ):
            found.append(kept)
    return sorted(found, key=lambda kept: (kept.time, kept.path), reverse=True)


def _whole(host: Host, path: str, size: t.Any) -> bool:
    info = host.stat(path, follow=False).get()
    return info is not None and info.kind == "file" and info.size == size


def verify(host: Host, kept: Kept) -> list[str]:
    """Names of the files that are missing or have another SHA-256 than when they were kept."""
    return [
        item["name"]
        for item in kept.files
        if not _good_name(item["name"]) or _digest(host.real(posixpath.join(kept.path, item["name"]))) != item["sha256"]
    ]


def prune(host: Host, directory: str, number: int, protect: t.Collection[str] = ()) -> list[str]:
    """Remove all but the newest `number` kept drivers, and partial copies. Returns the removed host paths.

    Drivers whose version is in `protect` stay, and count. NpuError when something cannot be removed.
    """
    kept = read_kept(host, directory)
    protected = [item for item in kept if item.version in protect]
    room = max(0, number - len(protected))
    stay = {item.path for item in protected} | {
        item.path for item in [item for item in kept if item.version not in protect][:room]
    }
    removed = []
    for name in host.listdir(directory).get([]):
        path = posixpath.join(directory, name)
        if path in stay:
            continue
        try:
            _remove_tree(posixpath.join(host.real(host.resolve(directory).get(directory)), name))
        except OSError as exc:
            raise explain(exc, path, "removed") from exc
        removed.append(path)
    return removed
