# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key of a repository on the controller: file, address or text, and one error for anything else."""

from __future__ import annotations

import functools
import http.server
import subprocess
import threading
from pathlib import Path
from typing import Any, Iterator

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._packages.keys import certificates
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_host.signing_key import is_file, signing_key
from ansible_collections.rebellions.npu.tests.unit.plugins.signing import Keys, made_keys


@pytest.fixture(name="keys", scope="module")
def keys_fixture() -> Iterator[Keys]:
    with made_keys() as keys:
        yield keys


@pytest.fixture(name="address")
def address_fixture(keys: Keys, tmp_path: Path) -> Iterator[str]:
    (tmp_path / "key.asc").write_bytes((keys.home / "vendor.asc").read_bytes())
    (tmp_path / "login").write_text("<!doctype html><title>Sign in</title>", encoding="utf-8")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_arguments: Any) -> None:
            """Not on the terminal."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield "http://127.0.0.1:%d" % server.server_address[1]
    server.shutdown()
    server.server_close()


def test_a_key_by_file_address_or_text_is_the_same_key(
    keys: Keys, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    path = keys.home / "vendor.asc"
    binary = tmp_path / "vendor.gpg"
    binary.write_bytes(
        subprocess.run(["gpg", "--dearmor"], input=path.read_bytes(), capture_output=True, check=True).stdout
    )
    wanted = certificates(path.read_bytes(), "key")
    fingerprint = wanted[0].fingerprints[0]
    for given in (str(path), str(binary), path.read_text(encoding="utf-8"), address + "/key.asc"):
        found = signing_key(given, [fingerprint], 10)
        assert certificates(found.encode(), "key") == wanted and found.startswith("-----BEGIN PGP PUBLIC KEY")
    for name, told in (
        ("/login", "/login is a web page, not a public key."),
        ("/gone", "/gone cannot be downloaded: HTTP Error 404"),
    ):
        with pytest.raises(NpuError) as caught:
            signing_key(address + name, [fingerprint], 10)
        assert told in caught.value.message
    with pytest.raises(NpuError, match="would be read without https, and its fingerprint is not set"):
        signing_key(address + "/key.asc", [], 10)
    with pytest.raises(NpuError, match="has the fingerprint %s, not" % fingerprint):
        signing_key(str(path), ["0" * 40])


@pytest.mark.parametrize(
    "key, told",
    [
        ("/nonexistent/key.asc", "/nonexistent/key.asc cannot be read on the controller: No such file"),
        ("0123456789ABCDEF0123456789ABCDEF01234567", "0123456789ABCDEF0123456789ABCDEF01234567 is a fingerprint, not"),
        ("/etc/hostname", "/etc/hostname is other text, not a public key."),
        ("/dev/zero", "/dev/zero has more than 1048576 bytes."),
        ("-----BEGIN CERTIFICATE-----\nA\n-----END CERTIFICATE-----", "The key is an X.509 certificate, not a public"),
    ],
)
def test_what_is_no_key(key: str, told: str) -> None:
    with pytest.raises(NpuError) as caught:
        signing_key(key, [])
    assert caught.value.message.startswith(told)


@pytest.mark.parametrize(
    "key, expected", [("a.asc", True), ("/x/a.asc", True), ("https://a/k", False), ("-----BEGIN PGP", False)]
)
def test_what_is_looked_for_beside_the_playbook(key: str, expected: bool) -> None:
    assert is_file(key) is expected
