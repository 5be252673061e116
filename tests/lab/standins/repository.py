# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Flat apt repositories, and a signing key that lives as long as one payload is written."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import tempfile
import typing as t
from pathlib import Path

from .._base import run

OWNER = "rebellions.npu lab <lab@example.com>"


class Signer:
    """A GPG key pair made for the length of a with statement; its secret half is never kept."""

    def __enter__(self) -> Signer:
        # Not below the cache: gpg-agent's socket needs a short path.
        self._folder = tempfile.TemporaryDirectory(prefix="npu-key-")
        self._home = Path(self._folder.name)
        self._gpg("--quick-generate-key", OWNER, "ed25519", "sign", "never")
        return self

    def __exit__(self, *_error: object) -> None:
        run(["gpgconf", "--homedir", self._home, "--kill", "all"], check=False)
        self._folder.cleanup()

    def _gpg(self, *argv: str | Path) -> None:
        run(
            [
                "gpg",
                "--homedir",
                self._home,
                "--batch",
                "--quiet",
                "--yes",
                "--pinentry-mode",
                "loopback",
                "--passphrase",
                "",
                *argv,
            ],
            60,
        )

    def _made(self, *argv: str, data: bytes | None = None) -> bytes:
        out, source = self._home / "out", self._home / "in"
        if data is not None:
            source.write_bytes(data)
        self._gpg("--output", out, *argv, *([source] if data is not None else []))
        return out.read_bytes()

    def detached(self, data: bytes) -> bytes:
        """An armored signature beside data."""
        return self._made("--armor", "--detach-sign", data=data)

    def clear(self, data: bytes) -> bytes:
        """Data, a text, with the signature in it."""
        return self._made("--clearsign", data=data)

    def public(self, armored: bool) -> bytes:
        """The key that checks the signatures."""
        return self._made(*(["--armor"] if armored else []), "--export")


def _member(package: bytes, wanted: str) -> bytes:
    at = 8
    while at < len(package):
        name, size = package[at : at + 16].strip().decode(), int(package[at + 48 : at + 58])
        if name == wanted:
            return package[at + 60 : at + 60 + size]
        at += 60 + size + size % 2
    raise ValueError("no %s in the package" % wanted)


def flat(packages: t.Mapping[str, bytes]) -> dict[str, bytes]:
    """Packages and Release of an unsigned flat repository of {file name: package}: `deb [trusted=yes] file:DIR ./`."""
    index = ""
    for name, data in sorted(packages.items()):
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(_member(data, "control.tar.gz")))) as archive:
            member = archive.extractfile("./control")
            assert member is not None
            index += member.read().decode() + "Filename: ./%s\nSize: %d\nSHA256: %s\n\n" % (
                name,
                len(data),
                hashlib.sha256(data).hexdigest(),
            )
    raw = index.encode()
    release = "Suite: ./\nArchitectures: amd64\nDate: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n %s %d Packages\n" % (
        hashlib.sha256(raw).hexdigest(),
        len(raw),
    )
    return {"Packages": raw, "Release": release.encode()}


def signed(index: t.Mapping[str, bytes], signer: Signer) -> dict[str, bytes]:
    """The same index with both forms of its signature."""
    return {**index, "InRelease": signer.clear(index["Release"]), "Release.gpg": signer.detached(index["Release"])}
