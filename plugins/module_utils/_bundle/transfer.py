# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of a bundle on their way: a tar archive between controller and host, or a web server.

An archive names each file by its SHA-256, so that no path in it is ever used: where a file goes is in the manifest.
Both sides write and read only here. What arrives goes into a private folder; examine() then verifies it.
"""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import ssl
import tarfile
import typing as t
import urllib.error
import urllib.request

from .._base.model import NpuError
from .manifest import CHUNK, FILE_LIMIT, BundleFile

AGAIN = "Run again; if that does not help, check the machine that sent it. Nothing was changed."


def pack(sources: t.Mapping[str, str], archive: str) -> None:
    """Write a tar archive with the files {SHA-256: path on this machine}."""
    with tarfile.open(archive, "w", format=tarfile.USTAR_FORMAT) as tar:
        for digest, path in sorted(sources.items()):
            with open(path, "rb") as stream:
                member = tarfile.TarInfo(digest)
                member.size = os.fstat(stream.fileno()).st_size
                if member.size > FILE_LIMIT:
                    raise NpuError("%s has more than %d bytes." % (path, FILE_LIMIT), "Leave it out of the bundle.")
                tar.addfile(member, stream)


def packed_size(files: t.Iterable[BundleFile]) -> int:
    """The most bytes that an archive with these files has: headers, padding and end included."""
    blocks = sum(1 + -(-size // tarfile.BLOCKSIZE) for size in {one.sha256: one.size for one in files}.values())
    return blocks * tarfile.BLOCKSIZE + 2 * tarfile.RECORDSIZE


def unpack(archive: str, folder: str, wanted: t.Sequence[BundleFile]) -> None:
    """Write the wanted files of an archive into a new private folder.

    NpuError unless every entry is a regular file with the digest and size of a wanted file, each at most once, and the
    archive ends after the last. A file may lack; examine() finds it.
    """
    waiting: dict[str, list[BundleFile]] = {}
    for one in wanted:
        waiting.setdefault(one.sha256, []).append(one)
    with open(archive, "rb") as source:
        while True:
            head = source.read(tarfile.BLOCKSIZE)
            if head == bytes(tarfile.BLOCKSIZE):
                break
            one, *others = waiting.pop(_announced(head, waiting))
            _store(source, folder, one, one.size)
            for other in others:
                shutil.copyfile(os.path.join(folder, one.path), _room(folder, other))
            source.read(-one.size % tarfile.BLOCKSIZE)
        rest = source.read(tarfile.RECORDSIZE + 1)
    if len(rest) > tarfile.RECORDSIZE or rest.strip(b"\0"):
        raise NpuError("The archive goes on after its end.", AGAIN)


def _announced(head: bytes, waiting: t.Mapping[str, t.Sequence[BundleFile]]) -> str:
    """The digest that a header block names. NpuError unless it is a regular file that is still awaited."""
    try:
        member = tarfile.TarInfo.frombuf(head, "ascii", "replace")
    except tarfile.TarError as exc:
        raise NpuError("The archive is damaged or ends too early: %s." % exc, AGAIN) from exc
    if member.type != tarfile.REGTYPE or member.name not in waiting:
        raise NpuError("The archive has %s, which was not announced." % ascii(member.name)[:100], AGAIN)
    one = waiting[member.name][0]
    if member.size != one.size:
        raise NpuError("%s is another file: the archive has %d bytes of it." % (one, member.size), AGAIN)
    return member.name


def _room(folder: str, one: BundleFile) -> str:
    path = os.path.join(folder, *one.path.split("/"))
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    return path


def _store(source: t.IO[bytes], folder: str, one: BundleFile, size: int) -> None:
    """Write at most `size` bytes of a source into a new file."""
    left = size
    with open(_room(folder, one), "xb") as out:
        while left > 0:
            block = source.read(min(CHUNK, left))
            if not block:
                break
            out.write(block)
            left -= len(block)
        out.flush()
        os.fsync(out.fileno())


def download(url: str, folder: str, wanted: t.Sequence[BundleFile], authorities: str, timeout: float) -> None:
    """Download the wanted files into a folder. NpuError names the address that failed."""
    for one in wanted:
        address = url.rstrip("/") + "/" + urllib.request.pathname2url(one.path)
        with fetch(address, authorities, timeout) as source:
            try:
                # One byte more than it should have: examine() detects a longer file.
                _store(source, folder, one, one.size + 1)
            except (socket.timeout, ConnectionError, http.client.HTTPException) as exc:
                raise NpuError(
                    "The download of %s stopped: %s." % (address, exc),
                    "Check the server and run again; nothing was changed.",
                ) from exc


def fetch(address: str, authorities: str, timeout: float) -> t.Any:
    """The open response of a web server; `authorities` is PEM text, trusted in addition to the system's."""
    if not address.startswith(("http://", "https://")):
        raise NpuError("%s is not a web address." % address, "Write http://HOST:PORT/ or https://HOST/.")
    try:
        context = ssl.create_default_context()
        if authorities:
            context.load_verify_locations(cadata=authorities)
        return urllib.request.build_opener(urllib.request.HTTPSHandler(context=context)).open(address, timeout=timeout)
    except (urllib.error.URLError, ssl.SSLError, OSError, ValueError) as exc:
        raise NpuError(
            "%s cannot be downloaded: %s." % (address, getattr(exc, "reason", exc)),
            "Check the address and the server, for example with curl from this host.",
        ) from exc
