# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The web server of a bundle as it is installed: one address, files alone, no listing, no way out of its folder."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "roles/rbln_bundle/files/serve.py"
BODY = bytes(range(256)) * 5000


class Web(t.NamedTuple):
    """A running server: its folder, its port and its process."""

    folder: Path
    port: int
    process: subprocess.Popen[str]

    def get(self, target: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        # As it is: http.client would refuse control characters.
        connection._validate_path = lambda *_words: None  # type: ignore[attr-defined]
        connection.request(method, target)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()


@pytest.fixture(name="web")
def running_server(tmp_path: Path) -> t.Iterator[Web]:
    folder = tmp_path / "served"
    (folder / "debian-13-x86_64/packages").mkdir(parents=True)
    (folder / "debian-13-x86_64/packages/libc++_1%3a2~x_amd64.deb").write_bytes(BODY)
    (folder / "debian-13-x86_64/manifest.json").write_text("{}")
    (folder / "debian-13-x86_64/.hidden").write_text("x")
    (folder / "debian-13-x86_64/link").symlink_to("manifest.json")
    (folder / "linked").symlink_to("debian-13-x86_64")
    os.mkfifo(folder / "debian-13-x86_64/pipe")
    (tmp_path / "secret").write_text("secret")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-IB", str(PROGRAM), "127.0.0.1", str(port), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for _try in range(200):
            with socket.socket() as probe:
                probe.settimeout(0.05)
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
                time.sleep(0.05)
        yield Web(folder, port, process)
        process.kill()


def test_a_file_is_served(web: Web) -> None:
    status, headers, body = web.get("/debian-13-x86_64/packages/libc%2B%2B_1%253a2~x_amd64.deb")
    assert (status, headers["Content-Length"], body) == (200, str(len(BODY)), BODY)
    assert headers["Server"] == "rbln-bundle" and web.get("/debian-13-x86_64/manifest.json")[2] == b"{}"
    status, headers, body = web.get("/debian-13-x86_64/manifest.json", "HEAD")
    assert (status, headers["Content-Length"], body) == (200, "2", b"")


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "",
        "//",
        "/debian-13-x86_64",
        "/debian-13-x86_64/",
        "/debian-13-x86_64/packages/",
        "/debian-13-x86_64/.hidden",
        "/debian-13-x86_64/link",
        "/linked/manifest.json",
        "/debian-13-x86_64/pipe",
        "/debian-13-x86_64/manifest.json/",
        "/debian-13-x86_64/nothing",
        "/../secret",
        "/%2e%2e/secret",
        "/debian-13-x86_64/..%2f..%2fsecret",
        "/debian-13-x86_64/../../secret",
        "//etc/passwd",
        "/debian-13-x86_64/manifest.json%00",
        "/debian-13-x86_64/manifest.json%0a",
        "/%1b[2J",
        "http://example.com/debian-13-x86_64/manifest.json",
    ],
)
def test_nothing_else_is_served(web: Web, target: str) -> None:
    status, _headers, body = web.get(target)
    assert status in (400, 404) and b"secret" not in body and b"manifest" not in body


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_written(web: Web, method: str) -> None:
    assert web.get("/debian-13-x86_64/manifest.json", method)[0] == 501
    assert (web.folder / "debian-13-x86_64/manifest.json").read_text() == "{}"


def test_the_log_repeats_nothing_of_a_request(web: Web) -> None:
    web.get("/debian-13-x86_64/manifest.json")
    web.get("/%1b[2Jevil")
    with socket.create_connection(("127.0.0.1", web.port), timeout=10) as raw:
        raw.sendall(b"\x1b[2J evil\r\n\r\n")
        assert raw.recv(100)
    web.process.kill()
    assert web.process.stdout is not None
    lines = [line for line in web.process.stdout.read().splitlines() if "ended early" not in line]
    assert lines == ["127.0.0.1 200", "127.0.0.1 404", "127.0.0.1 400"]


def test_it_listens_at_one_address(web: Web) -> None:
    with socket.socket() as probe:
        probe.settimeout(1)
        assert probe.connect_ex(("127.0.0.2", web.port)) != 0
