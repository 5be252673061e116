# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Throw-away OpenPGP keys, signatures by them, and what only looks like a signature; all made by the real gpg."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import typing as t
from pathlib import Path

import pytest

OLD = "20200101T000000!"
# Kinds of files that are no valid signature by the key of vendor@example.com.
BROKEN = (
    "missing",
    "empty",
    "text",
    "truncated",
    "truncated armor",
    "one bit",
    "other file",
    "other key",
    "expired key",
    "revoked key",
    "message",
    "clear text",
    "good and bad",
)


class Keys:
    """Throw-away keys in a directory of their own; its path is short, since an agent has its socket in it."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def gpg(self, *arguments: str, then: str = "") -> None:
        # The time of a key or signature that has run out by now.
        clock = ["--faked-system-time", then] if then else []
        command = [
            "gpg",
            "--homedir",
            str(self.home),
            "--batch",
            "--quiet",
            "--pinentry-mode",
            "loopback",
            "--passphrase",
            "",
            *clock,
            *arguments,
        ]
        subprocess.run(command, check=True, capture_output=True)

    def make(self, user: str, expire: str = "never", then: str = "") -> Path:
        """A key, and the file with its public part."""
        self.gpg("--quick-gen-key", user, "ed25519", "sign", expire, then=then)
        keyring = self.home / (user.partition("@")[0] + ".asc")
        self.gpg("--armor", "--output", str(keyring), "--export", user)
        return keyring

    def sign(self, user: str, path: Path, name: str, *arguments: str, then: str = "") -> Path:
        signature = path.with_name(name)
        self.gpg("--local-user", user, "--output", str(signature), *arguments, "--detach-sign", str(path), then=then)
        return signature

    def broken(self, kind: str, path: Path) -> bytes | None:
        """The content of a signature file of this kind for `path`; None for no file at all."""
        with tempfile.TemporaryDirectory() as folder:
            own, other = Path(folder) / "own", Path(folder) / "other"
            own.write_bytes(path.read_bytes())
            other.write_bytes(path.read_bytes() + b"more")

            def signed(user: str, source: Path, *arguments: str, then: str = "") -> bytes:
                (source.parent / "sig").unlink(missing_ok=True)
                return self.sign(user + "@example.com", source, "sig", *arguments, then=then).read_bytes()

            def message(*arguments: str) -> bytes:
                out = ["--yes", "--local-user", "vendor@example.com", "--output", folder + "/out"]
                self.gpg(*out, *arguments, str(other))
                return (Path(folder) / "out").read_bytes()

            good = signed("vendor", own)
            made: dict[str, t.Callable[[], bytes | None]] = {
                "missing": lambda: None,
                "empty": lambda: b"",
                "text": lambda: b"no signature",
                "truncated": lambda: good[:-20],
                "truncated armor": lambda: signed("vendor", own, "--armor")[:120],
                "one bit": lambda: good[:-1] + bytes([good[-1] ^ 1]),
                "other file": lambda: signed("vendor", other),
                "other key": lambda: signed("other", own),
                "expired key": lambda: signed("old", own, then=OLD),
                "revoked key": lambda: signed("revoked", own),
                "message": lambda: message("--sign"),
                "clear text": lambda: message("--clear-sign"),
                "good and bad": lambda: good + signed("other", own),
            }
            return made[kind]()


@contextlib.contextmanager
def made_keys() -> t.Iterator[Keys]:
    """Keys of vendor, other, old (expired) and revoked, each public part in HOME/NAME.asc.

    HOME/ring.asc has all but that of other; only there the one is revoked, so that it can sign here.
    """
    if not shutil.which("gpg"):
        pytest.skip("gpg is not here")
    home = Path(tempfile.mkdtemp(prefix="k"))
    keys = Keys(home)
    try:
        keys.make("vendor@example.com")
        keys.make("other@example.com")
        keys.make("old@example.com", "1d", OLD)
        keys.make("revoked@example.com")
        _ring(home)
        yield keys
    finally:
        subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False, capture_output=True)
        shutil.rmtree(home, ignore_errors=True)


def _ring(home: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        gpg = ["gpg", "--homedir", folder, "--batch", "--quiet"]
        for name in ("vendor", "old", "revoked"):
            subprocess.run([*gpg, "--import", str(home / (name + ".asc"))], check=True, capture_output=True)
        shown = subprocess.run(
            [*gpg, "--with-colons", "--list-keys", "revoked@example.com"], check=True, capture_output=True, text=True
        ).stdout
        key = next(line.split(":")[9] for line in shown.splitlines() if line.startswith("fpr:"))
        # gpg writes it with each key, made harmless by a colon.
        text = (home / "openpgp-revocs.d" / (key + ".rev")).read_text(encoding="utf-8").replace("\n:---", "\n---")
        subprocess.run([*gpg, "--import"], input=text, text=True, check=True, capture_output=True)
        ring = ["--armor", "--output", str(home / "ring.asc"), "--export"]
        subprocess.run([*gpg, *ring], check=True, capture_output=True)
