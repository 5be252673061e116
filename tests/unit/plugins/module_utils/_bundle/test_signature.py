# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The signature of a manifest, by the real gpg and gpgv: everything but a valid one refuses, and nothing changes."""

from __future__ import annotations

import base64
import functools
import hashlib
import http.server
import os
import subprocess
import threading
import typing as t
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._bundle.manifest import Manifest
from ansible_collections.rebellions.npu.plugins.module_utils._bundle.request import manifest_text, present
from ansible_collections.rebellions.npu.plugins.module_utils._bundle.signature import public_keys, verify
from ansible_collections.rebellions.npu.plugins.module_utils._host.command import run_command
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_host.bundle_signature import verify_folder
from ansible_collections.rebellions.npu.tests.unit.plugins.signing import BROKEN, Keys, made_keys

MANIFEST = Manifest(
    "2026-01-01T00:00:00Z", "a@b", {"id": "debian", "version_id": "13", "architecture": "x86_64"}, "deb", "none"
)
TEXT = MANIFEST.dump()


@pytest.fixture(name="keys", scope="module")
def keys_fixture() -> t.Iterator[Keys]:
    with made_keys() as keys:
        yield keys


@pytest.fixture(name="folder")
def folder_fixture(tmp_path: Path) -> Path:
    """A bundle without files."""
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "manifest.json").write_text(TEXT, encoding="utf-8")
    return tmp_path / "bundle"


@pytest.fixture(name="url")
def url_fixture(folder: Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[str]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments: t.Any) -> None:
            """Not on the terminal."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield "http://127.0.0.1:%d" % server.server_address[1]
    server.shutdown()
    server.server_close()


def put(folder: Path, keys: Keys, kind: str = "") -> None:
    """A signature of this kind beside the manifest, without a kind a valid one."""
    path, signature = folder / "manifest.json", folder / "manifest.json.asc"
    content = (
        keys.broken(kind, path)
        if kind
        else keys.sign("vendor@example.com", path, signature.name, "--armor").read_bytes()
    )
    if content is not None:
        signature.write_bytes(content)


def params(folder: Path, keys: Keys, ring: str = "ring", **more: t.Any) -> dict[str, t.Any]:
    """Parameters of the module as the action plugin hands them over for a web server."""
    content = base64.b64encode((keys.home / (ring + ".asc")).read_bytes()).decode("ascii")
    given = {
        "url": "",
        "sha256": None,
        "keyring": "/srv/%s.asc" % ring,
        "keys": content,
        "manifest": None,
        "authorities": "",
        "timeout": 10.0,
        "configure": False,
        "directory": str(folder.parent / "placed"),
        "archive": None,
        "folder": None,
    }
    return {**given, **more}


# -- the controller reads a folder


@pytest.mark.parametrize("armor", [True, False])
def test_a_signed_folder_is_good(folder: Path, keys: Keys, armor: bool) -> None:
    put(folder, keys)
    ring = str(keys.home / "ring.asc")
    if not armor:
        for path in (folder / "manifest.json.asc", keys.home / "ring.asc"):
            keys.gpg("--yes", "--output", str(folder.parent / path.name), "--dearmor", str(path))
        (folder.parent / "manifest.json.asc").replace(folder / "manifest.json.asc")
        ring = str(folder.parent / "ring.asc")
    verify_folder(str(folder), TEXT, ring)


@pytest.mark.parametrize("kind", BROKEN)
def test_a_folder_without_a_valid_signature_is_refused(folder: Path, keys: Keys, kind: str) -> None:
    put(folder, keys, kind)
    with pytest.raises(NpuError) as caught:
        verify_folder(str(folder), TEXT, str(keys.home / "ring.asc"))
    path = folder / "manifest.json"
    if kind == "missing":
        assert str(caught.value) == (
            "A keyring is set, and the signature %s.asc cannot be read: No such file or directory. Next: Copy it from "
            "where the bundle was signed (gpg --armor --detach-sign manifest.json); nothing was changed." % path
        )
    else:
        assert caught.value.message.startswith("%s has no valid signature: " % path)
        assert caught.value.next_step.endswith("from a trusted source; nothing was changed.")


WORDS = {
    "other file": "BAD signature",
    "other key": "No public key",
    "expired key": "Signature made Wed Jan  1",
    "revoked key": "revoked",
    "message": "not a detached signature",
    "clear text": "not a detached signature",
}


def test_the_message_says_why(folder: Path, keys: Keys) -> None:
    for kind, words in WORDS.items():
        put(folder, keys, kind)
        with pytest.raises(NpuError, match=" ".join(words.split())):
            verify_folder(str(folder), TEXT, str(keys.home / "ring.asc"))


def test_a_manifest_that_was_changed_is_refused(folder: Path, keys: Keys) -> None:
    put(folder, keys)
    with pytest.raises(NpuError, match="has no valid signature: .*BAD signature"):
        verify_folder(str(folder), TEXT.replace("debian", "ubuntu"), str(keys.home / "ring.asc"))


@pytest.mark.parametrize(
    "content",
    [None, b"", b"no key", b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nx!\n-----END PGP PUBLIC KEY BLOCK-----\n"],
)
def test_a_keyring_without_a_key_is_refused(folder: Path, keys: Keys, tmp_path: Path, content: bytes | None) -> None:
    put(folder, keys)
    ring = tmp_path / "ring.asc"
    words = (
        "^The keyring %s cannot be read on the controller: No such file or directory. Next: Correct keyring.$" % ring
    )
    if content is not None:
        ring.write_bytes(content)
        words = "^%s has no public key. Next: Export the public key of the signer into it" % ring
    with pytest.raises(NpuError, match=words):
        verify_folder(str(folder), TEXT, str(ring))


def test_the_keys_of_the_user_do_not_count(folder: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    put(folder, keys, "other key")
    monkeypatch.setenv("GNUPGHOME", str(keys.home))
    with pytest.raises(NpuError, match="No public key"):
        verify_folder(str(folder), TEXT, str(keys.home / "ring.asc"))


def test_without_gpgv_nothing_is_valid(folder: Path, keys: Keys) -> None:
    put(folder, keys)
    host = Host(runner=lambda argv, *rest: run_command(["no-such-" + argv[0], *argv[1:]], *rest))
    with pytest.raises(NpuError, match="^The signature of x cannot be verified: gpgv is not installed. Next: Install"):
        verify(host, TEXT.encode(), (folder / "manifest.json.asc").read_bytes(), b"\x80", "x")


# -- a host reads from a web server


def test_a_host_verifies_what_it_downloads(folder: Path, url: str, keys: Keys) -> None:
    put(folder, keys)
    assert manifest_text(Host(), params(folder, keys, url=url + "/")) == TEXT
    digest = hashlib.sha256(TEXT.encode()).hexdigest()
    assert manifest_text(Host(), params(folder, keys, url=url, sha256=digest.upper())) == TEXT
    with pytest.raises(NpuError, match="^The SHA-256 of .*/manifest.json is %s, not %s" % (digest, "0" * 64)):
        manifest_text(Host(), params(folder, keys, url=url, sha256="0" * 64))


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize("sha256", [True, False])
def test_a_host_places_nothing_without_a_valid_signature(
    folder: Path, url: str, keys: Keys, kind: str, sha256: bool
) -> None:
    """Also when the digest is right: what was asked for is verified."""
    put(folder, keys, kind)
    digest = hashlib.sha256(TEXT.encode()).hexdigest() if sha256 else None
    given = params(folder, keys, url=url, sha256=digest)
    with pytest.raises(NpuError) as caught:
        present(Host(), given, False)
    told = (
        "/manifest.json.asc cannot be downloaded: File not found" if kind == "missing" else "has no valid signature: "
    )
    assert told in caught.value.message and caught.value.message.startswith(url)
    assert sorted(os.listdir(folder.parent)) == ["bundle"]


@pytest.mark.parametrize(
    "given, words",
    [
        (
            {"keyring": None, "keys": None},
            "^url is set without the SHA-256 of the manifest. Next: Set sha256 or keyring",
        ),
        ({"keys": None}, "^/srv/ring.asc has no public key"),
        ({"keys": ""}, "^/srv/ring.asc has no public key"),
    ],
)
def test_a_web_server_is_never_trusted_by_itself(
    folder: Path, url: str, keys: Keys, given: dict[str, t.Any], words: str
) -> None:
    put(folder, keys)
    with pytest.raises(NpuError, match=words):
        present(Host(), {**params(folder, keys, url=url), **given}, False)
    assert sorted(os.listdir(folder.parent)) == ["bundle"]


# -- keys


def test_armored_keys_are_read_like_gpg_reads_them(keys: Keys, tmp_path: Path) -> None:
    for name in ("vendor", "other", "ring"):
        armored = (keys.home / (name + ".asc")).read_bytes()
        out = subprocess.run(["gpg", "--dearmor"], input=armored, capture_output=True, check=True).stdout
        assert public_keys(armored, "x") == out == public_keys(out, "x") and out
        assert public_keys(armored.replace(b"\n", b"\r\n"), "x") == out
        commented = armored.replace(b"BLOCK-----\n", b"BLOCK-----\nComment: mine\nVersion: 1\n", 1)
        assert public_keys(b"# our keys\n" + commented, "x") == out
    one, two = ((keys.home / (name + ".asc")).read_bytes() for name in ("vendor", "other"))
    assert public_keys(one + two, "x") == public_keys(one, "x") + public_keys(two, "x")


def test_a_pipe_in_the_place_of_a_signature_or_a_keyring_is_not_waited_for(keys: Keys, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "manifest.json.asc")
    with pytest.raises(NpuError, match="manifest.json.asc cannot be read: a pipe, not a file"):
        verify_folder(str(tmp_path), TEXT, str(keys.home / "ring.asc"))
    with pytest.raises(NpuError, match="cannot be read on the controller: a pipe, not a file"):
        verify_folder(str(tmp_path), TEXT, str(tmp_path / "manifest.json.asc"))
