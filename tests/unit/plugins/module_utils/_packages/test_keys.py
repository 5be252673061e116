# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Public keys of repositories, made by the real gpg: every form that people have, and what only looks like a key."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Iterator

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._packages.keys import (
    armoured,
    certificates,
    clean_fingerprint,
    require_fingerprints,
)
from ansible_collections.rebellions.npu.tests.unit.plugins.signing import Keys, made_keys


@pytest.fixture(name="keys", scope="module")
def keys_fixture() -> Iterator[Keys]:
    with made_keys() as keys:
        yield keys


def dearmoured(path: Path) -> bytes:
    return subprocess.run(["gpg", "--dearmor"], input=path.read_bytes(), capture_output=True, check=True).stdout


def shown(keys: Keys, content: bytes) -> list[str]:
    """The fingerprints that gpg finds."""
    out = subprocess.run(
        ["gpg", "--homedir", str(keys.home), "--with-colons", "--show-keys"],
        input=content,
        capture_output=True,
        check=True,
    ).stdout.decode()
    return re.findall(r"^pub:(?:.*\n)+?fpr:{9}([0-9A-F]+):", out, re.M)


def prints(content: bytes) -> list[str]:
    return [item.fingerprints[0] for item in certificates(content, "key")]


def test_each_form_of_a_key(keys: Keys) -> None:
    one, two = keys.home / "vendor.asc", keys.home / "other.asc"
    armour, binary = one.read_bytes(), dearmoured(one)
    wanted = shown(keys, armour)
    assert len(wanted) == 1
    forms = (
        armour,
        binary,
        armour.replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + armour,
        b"The key of our mirror\n\n" + armour + b"\nmore\n",
        armour.replace(b"BLOCK-----\n\n", b"BLOCK-----\nVersion: GnuPG v1\nComment: a\n\n", 1),
        armour.rstrip(b"\n"),
        armour + armour,
    )
    for form in forms:
        assert prints(form) == wanted, form[:60]
    both = [*wanted, *shown(keys, two.read_bytes())]
    assert prints(armour + two.read_bytes()) == prints(binary + dearmoured(two)) == both


def test_other_algorithms_and_subkeys_have_the_fingerprints_of_gpg(keys: Keys) -> None:
    keys.gpg("--quick-gen-key", "rsa@example.com", "rsa2048", "sign", "never")
    out = keys.home / "rsa.gpg"
    keys.gpg("--output", str(out), "--export", "rsa@example.com")
    (fingerprint,) = shown(keys, out.read_bytes())
    keys.gpg("--quick-add-key", fingerprint, "ed25519", "sign", "never")
    out.unlink()
    keys.gpg("--output", str(out), "--export", "rsa@example.com")
    (found,) = certificates(out.read_bytes(), "key")
    listed = subprocess.run(
        ["gpg", "--homedir", str(keys.home), "--with-colons", "--show-keys", str(out)],
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    assert list(found.fingerprints) == re.findall(r"^fpr:{9}([0-9A-F]+):", listed, re.M)
    assert len(found.fingerprints) == 2


@pytest.mark.parametrize("single", [True, False])
def test_what_is_written_is_read_by_gpg(keys: Keys, single: bool) -> None:
    content = (keys.home / "vendor.asc").read_bytes() + (keys.home / "other.asc").read_bytes()
    text = armoured(certificates(content, "key"), single)
    assert text.count("-----BEGIN PGP PUBLIC KEY BLOCK-----") == (1 if single else 2)
    assert shown(keys, text.encode()) == prints(content)


@pytest.mark.parametrize(
    "content, told",
    [
        (b"", "key is empty, not a public key."),
        (b"  \n", "key is empty, not a public key."),
        (b"<!DOCTYPE html>\n<html>Sign in</html>", "key is a web page, not a public key."),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "key is an X.509 certificate, not"),
        (
            b"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nAAAA\n-----END PGP PRIVATE KEY BLOCK-----\n",
            "key is a private key",
        ),
        (b"-----BEGIN OPENSSH PRIVATE KEY-----\nAA\n-----END OPENSSH PRIVATE KEY-----\n", "key is a private key"),
        (b"-----BEGIN PGP SIGNATURE-----\n\nAAAA\n-----END PGP SIGNATURE-----\n", "key is a signature"),
        (b"0123456789abcdef0123456789abcdef01234567\n", "key is a fingerprint, not a public key."),
        (b"0123 4567 89AB CDEF 0123  4567 89AB CDEF 0123 4567", "key is a fingerprint"),
        (b"0xDEADBEEF", "key is a fingerprint"),
        (b"ssh-ed25519 AAAAC3Nza me@host", "key is other text, not a public key."),
        (b"\0\0\0\x20\x01\x01\0\x02KBXf\0\0\0\0", "key is a keybox of GnuPG, not a public key."),
        (b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDMEZ\n", "key is damaged: it is not a whole public key."),
        (
            b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n!!\n-----END PGP PUBLIC KEY BLOCK-----\n",
            "key is damaged: it is not a whole public key.",
        ),
        (b"\xff\xfe-\0-\0", "key is other text"),
        (b"\x99", "key is damaged"),
        # The length has a second byte, which is not there.
        (b"\xc6\xc0", "key is damaged"),
    ],
)
def test_what_is_no_key_gets_one_error(content: bytes, told: str) -> None:
    with pytest.raises(NpuError) as caught:
        certificates(content, "key")
    assert caught.value.message.startswith(told)


def test_real_things_that_are_no_public_key(keys: Keys, tmp_path: Path) -> None:
    armour, binary = (keys.home / "vendor.asc").read_bytes(), dearmoured(keys.home / "vendor.asc")
    keys.gpg("--output", str(tmp_path / "secret"), "--export-secret-keys", "vendor@example.com")
    note = tmp_path / "note"
    note.write_bytes(b"x")
    signature = keys.sign("vendor@example.com", note, "sig").read_bytes()
    wrong = bytearray(armour)
    at = wrong.index(b"\n\n") + 20
    wrong[at] = ord("A") if wrong[at] != ord("A") else ord("B")
    for content, told in (
        ((tmp_path / "secret").read_bytes(), "key is a private key, not a public key."),
        (signature, "key is a signature, not a public key."),
        (binary[:-3], "key is damaged"),
        (armour[:-90], "key is damaged"),
        (armour + armour[:-90], "key is damaged"),
        (bytes(wrong), "key is damaged"),
    ):
        with pytest.raises(NpuError) as caught:
            certificates(content, "key")
        assert caught.value.message.startswith(told), told


def test_fingerprints_are_compared_whole(keys: Keys) -> None:
    found = certificates((keys.home / "vendor.asc").read_bytes(), "key")
    right = found[0].fingerprints[0]
    spaced = " ".join(right[at : at + 4] for at in range(0, 40, 4)).lower()
    for given in ([], [right], [spaced], ["0x" + right]):
        require_fingerprints(found, given, "key")
    for given, told in (
        (["0" * 40], "key has the fingerprint %s, not %s." % (right, "0" * 40)),
        ([right, "0" * 40], "key has the fingerprint"),
        ([right[-16:]], "'%s' is not a fingerprint." % right[-16:]),
        (["x"], "'x' is not a fingerprint."),
    ):
        with pytest.raises(NpuError) as caught:
            require_fingerprints(found, given, "key")
        assert caught.value.message.startswith(told)
    assert clean_fingerprint(spaced) == right
