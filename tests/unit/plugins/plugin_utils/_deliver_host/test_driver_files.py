# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files on the controller: found, fetched once for all hosts, verified before a byte is sent."""

from __future__ import annotations

import concurrent.futures
import hashlib
import http.server
import locale
import os
import stat
import threading
import time
import typing as t
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_host import driver_files as sources
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_host.driver_files import Finder
from ansible_collections.rebellions.npu.tests.unit.plugins.signing import BROKEN, OLD, Keys, made_keys

DATA = b"#!/bin/sh\nexit 0\n" * 1000
SHA = hashlib.sha256(DATA).hexdigest()
NAME = "rebellions-x86_64-3.4.0.run"


class Server:
    """A server on this machine: `files` by path, the requests it got, and answers that are no file."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {"/" + NAME: DATA}
        self.requests: list[str] = []
        self.lock = threading.Lock()
        self.wait = 0.0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                with outer.lock:
                    outer.requests.append(self.path)
                time.sleep(outer.wait)
                if self.path.startswith("/moved/"):
                    self.send_response(302)
                    self.send_header("Location", self.path[len("/moved") :])
                    self.end_headers()
                    return
                data = outer.files.get(self.path.partition("?")[0])
                self.send_response(404 if data is None else 200)
                # A transfer that breaks off: the name says so.
                self.send_header("Content-Length", str(len(data or b"") + (9 if "cut" in self.path else 0)))
                self.end_headers()
                self.wfile.write(data or b"")

            def log_message(self, *arguments: t.Any) -> None:
                """Not on the terminal."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        # A client that has stopped waiting is no news.
        self.server.handle_error = lambda request, address: None  # type: ignore[method-assign]
        self.url = "http://127.0.0.1:%d" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(name="server")
def server_fixture(monkeypatch: pytest.MonkeyPatch) -> t.Iterator[Server]:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    server = Server()
    yield server
    server.close()


@pytest.fixture(name="finder")
def finder_fixture(tmp_path: Path) -> Finder:
    return Finder(str(tmp_path / "cache"), 5.0)


def listing(path: str | Path) -> list[str]:
    return sorted(str(item.relative_to(path)) for item in Path(path).rglob("*") if item.is_file())


# -- paths


def test_a_path_a_directory_and_a_home(tmp_path: Path, finder: Finder, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / NAME).write_bytes(DATA)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    path = str(tmp_path / "home" / NAME)
    assert finder.find({"src": path, "sha256": SHA.upper()}) == (path, NAME)
    assert finder.find({"src": str(tmp_path / "home"), "name": NAME, "sha256": SHA}) == (path, NAME)
    assert finder.find({"src": "~/" + NAME, "name": "other", "sha256": SHA}) == (path, NAME)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    "src, name, sha256, words",
    [
        (
            "{}/a.run",
            None,
            "0" * 64,
            "^The SHA-256 of {}/a.run is %s, not %s. Next: Get the file or the digest again" % (SHA, "0" * 64),
        ),
        (
            "{}/none.run",
            None,
            SHA,
            "^{}/none.run cannot be read on the controller: No such file or directory. Next: Check the path.$",
        ),
        ("{}", None, SHA, "^{} cannot be read on the controller: Is a directory."),
        ("{}", "none.run", SHA, "^{}/none.run cannot be read on the controller"),
        (
            "{}/a.run",
            None,
            "",
            "^sha256 of {}/a.run is not 64 hexadecimal digits. Next: Run sha256sum on a copy you trust.$",
        ),
        ("{}/a.run", None, SHA[:-1], "is not 64 hexadecimal digits"),
        ("{}/a.run", None, "sha256:" + SHA, "is not 64 hexadecimal digits"),
    ],
)
def test_another_file_or_none_is_refused(
    tmp_path: Path, finder: Finder, src: str, name: str | None, sha256: str, words: str
) -> None:
    (tmp_path / "a.run").write_bytes(DATA)
    with pytest.raises(NpuError, match=words.replace("{}", str(tmp_path))):
        finder.find({"src": src.replace("{}", str(tmp_path)), "name": name, "sha256": sha256})


@pytest.mark.parametrize(
    "name",
    [
        "../secret",
        "/etc/shadow",
        "rebellions-../../x-3.4.0.run",
        "..",
        ".hidden",
        "a\n",
        "\x1b[2J",
        "a b",
        "http://x/y",
    ],
)
@pytest.mark.parametrize("src", ["{}/folder", "http://127.0.0.1:1/", "{}/secret"])
def test_a_name_with_a_folder_in_it_is_refused(tmp_path: Path, finder: Finder, src: str, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "secret").write_bytes(DATA)
    with pytest.raises(NpuError, match="is not the name of a file. Next: Correct name"):
        finder.find({"src": src.replace("{}", str(tmp_path)), "name": name, "sha256": SHA})
    assert not (tmp_path / "cache").exists()


# -- addresses


def test_a_download_ends_at_the_largest_size(
    server: Server, finder: Finder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sources, "FILE_LIMIT", len(DATA) - 1)
    with pytest.raises(NpuError, match="has more than %d bytes. Next: Check the address" % (len(DATA) - 1)):
        finder.find({"src": server.url + "/" + NAME, "sha256": SHA})
    assert listing(tmp_path / "cache") == []


def test_an_address_is_fetched_into_a_private_directory_once(server: Server, finder: Finder) -> None:
    item = {"src": server.url + "/" + NAME, "sha256": SHA}
    path, name = finder.find(item)
    assert (name, path) == (NAME, os.path.join(finder.cache, SHA, NAME))
    assert Path(path).read_bytes() == DATA and listing(finder.cache) == [SHA + "/" + NAME]
    assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
    assert finder.find(item) == (path, name)
    assert server.requests == ["/" + NAME]


@pytest.mark.parametrize(
    "src, name, path",
    [
        ("/", NAME, "/" + NAME),
        ("/3.4.0/", NAME, "/3.4.0/" + NAME),
        ("/" + NAME, "other.run", "/" + NAME),
        ("/%s?token=1" % NAME, None, "/" + NAME),
    ],
)
def test_the_name_of_a_file_at_an_address(
    server: Server, finder: Finder, src: str, name: str | None, path: str
) -> None:
    server.files["/3.4.0/" + NAME] = DATA
    assert finder.find({"src": server.url + src, "name": name, "sha256": SHA})[1] == NAME
    assert server.requests[0].partition("?")[0] == path


@pytest.mark.parametrize("src", ["", "/", "/3.4.0/"])
def test_an_address_that_names_no_file(server: Server, finder: Finder, src: str) -> None:
    with pytest.raises(
        NpuError, match="is not the address of a file. Next: Use the address of the file, or set its name.$"
    ):
        finder.find({"src": server.url + src, "sha256": SHA})
    assert server.requests == []


def test_many_hosts_at_once_fetch_once(server: Server, finder: Finder) -> None:
    server.wait = 0.2
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _host: finder.find({"src": server.url + "/" + NAME, "sha256": SHA}), range(8)))
    assert (len(found), server.requests) == (1, ["/" + NAME])


def test_two_files_of_one_name_are_kept_apart(server: Server, finder: Finder) -> None:
    server.files["/b/" + NAME] = b"another"
    one = finder.find({"src": server.url + "/" + NAME, "sha256": SHA})[0]
    two = finder.find({"src": server.url + "/b/" + NAME, "sha256": hashlib.sha256(b"another").hexdigest()})[0]
    assert one != two and Path(one).read_bytes() == DATA


def test_a_damaged_copy_is_fetched_again(server: Server, finder: Finder) -> None:
    item = {"src": server.url + "/" + NAME, "sha256": SHA}
    path, _name = finder.find(item)
    Path(path).write_bytes(DATA[:-1])
    assert finder.find(item)[0] == path and Path(path).read_bytes() == DATA
    assert len(server.requests) == 2


@pytest.mark.parametrize("path", ["/moved/" + NAME, "/moved/moved/" + NAME])
def test_redirects_are_followed(server: Server, finder: Finder, path: str) -> None:
    assert finder.find({"src": server.url + path, "sha256": SHA})[1] == NAME


@pytest.mark.parametrize(
    "path, words",
    [
        (
            "/none.run",
            (
                "cannot be downloaded: HTTP Error 404: Not Found. "
                "Next: Check the address, the proxy and the certificate authority.$"
            ),
        ),
        ("/moved/none.run", "cannot be downloaded: HTTP Error 404"),
        ("/other.run", "^The SHA-256 of {}/other.run is %s, not %s." % (hashlib.sha256(b"other").hexdigest(), SHA)),
        ("/cut.run", "/cut.run"),
    ],
)
def test_what_cannot_be_had_leaves_nothing_behind(server: Server, finder: Finder, path: str, words: str) -> None:
    server.files.update({"/other.run": b"other", "/cut.run": DATA[:100]})
    with pytest.raises(NpuError, match=words.replace("{}", server.url)):
        finder.find({"src": server.url + path, "sha256": SHA})
    assert listing(finder.cache) == []


def test_a_silent_server_is_waited_for_only_so_long(server: Server, tmp_path: Path) -> None:
    server.wait = 5.0
    begun = time.monotonic()
    with pytest.raises(NpuError, match="cannot be downloaded: .*timed out"):
        Finder(str(tmp_path / "cache"), 0.3).find({"src": server.url + "/" + NAME, "sha256": SHA})
    assert time.monotonic() - begun < 4


@pytest.mark.usefixtures("server")
def test_a_server_that_is_not_there(finder: Finder) -> None:
    gone = Server()
    gone.close()
    with pytest.raises(NpuError, match="cannot be downloaded: .*Connection refused"):
        finder.find({"src": gone.url + "/" + NAME, "sha256": SHA})


@pytest.mark.parametrize("key", ["src", "signature"])
@pytest.mark.parametrize("user", ["jo:secret", "jo:s@cret", "jo"])
def test_an_address_with_a_password_is_refused_without_showing_it(
    server: Server, finder: Finder, key: str, user: str
) -> None:
    item = {"src": server.url + "/" + NAME, "sha256": SHA}
    item[key] = server.url.replace("//", "//%s@" % user) + "/" + NAME
    with pytest.raises(NpuError) as caught:
        finder.find(item)
    assert str(
        caught.value
    ) == "The address %s/%s contains a user name or a password. Next: Put them into ~/.netrc of the controller." % (
        server.url,
        NAME,
    )
    assert server.requests == []


@pytest.mark.parametrize("sha256", ["", "0" * 64])
def test_a_password_never_shows_in_what_went_wrong(server: Server, finder: Finder, sha256: str) -> None:
    server.files["/other.run"] = b"other"
    for path in ("/none.run", "/other.run", "/bad path.run"):
        address = server.url.replace("//", "//jo:secret@") + path
        try:
            finder.fetch(address, "x/y", sha256)
        except NpuError as exc:
            assert "secret" not in str(exc) and "jo" not in str(exc)


@pytest.mark.parametrize("user", ["jo:secret", "jo:se@cret", "jo"])
def test_a_password_in_the_words_of_others_is_taken_out(
    finder: Finder, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A redirect or a proxy may have one that the inputs do not."""

    def fail(*arguments: t.Any, **keys: t.Any) -> None:
        raise OSError("no route to http://%s@proxy:3128/a@b." % user)

    monkeypatch.setattr(sources, "open_url", fail)
    with pytest.raises(NpuError) as caught:
        finder.fetch("https://h/a.run", "x/a.run", SHA)
    assert caught.value.message == "https://h/a.run cannot be downloaded: no route to http://********@proxy:3128/a@b."


@pytest.mark.parametrize(
    "address, shown",
    [
        ("https://jo:secret@h:8/a?b#c", "https://h:8/a?b#c"),
        ("https://h/a@b", "https://h/a@b"),
        ("http://a@b@h/x", "http://h/x"),
        ("/srv/a@b.run", "/srv/a@b.run"),
        ("~/a.run", "~/a.run"),
    ],
)
def test_addresses_are_shown_without_user_and_password(address: str, shown: str) -> None:
    assert sources.safe(address) == shown


@pytest.mark.parametrize(
    "src, is_one",
    [
        ("http://h/a", True),
        ("https://h/a", True),
        ("ftp://h/a", False),
        ("/a", False),
        ("file:///a", False),
        ("httpx", False),
    ],
)
def test_what_counts_as_an_address(src: str, is_one: bool) -> None:
    assert sources.is_address(src) is is_one


# -- signatures


@pytest.fixture(name="keys", scope="module")
def keys_fixture() -> t.Iterator[Keys]:
    with made_keys() as keys:
        yield keys


@pytest.fixture(name="signed")
def signed_fixture(tmp_path: Path) -> Path:
    path = tmp_path / NAME
    path.write_bytes(DATA)
    return path


def find(finder: Finder, keys: Keys, user: str, path: Path, signature: str | Path) -> str:
    with_keys = Finder(finder.cache, 5.0, None, str(keys.home / (user + ".asc")))
    return with_keys.find(
        {"src": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "signature": str(signature)}
    )[0]


def test_a_good_signature(keys: Keys, finder: Finder, signed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, arguments in (("a.sig", []), ("a.asc", ["--armor"])):
        signature = keys.sign("vendor@example.com", signed, name, *arguments)
        assert find(finder, keys, "vendor", signed, signature) == str(signed)
    # The language of the controller's user decides nothing. This process keeps its own language: libc remembers what it
    # has translated.
    before = locale.setlocale(locale.LC_MESSAGES)
    locale.setlocale(locale.LC_MESSAGES, "C")
    try:
        monkeypatch.setenv("LANGUAGE", "de")
        monkeypatch.setenv("LC_ALL", "C.UTF-8")
        assert find(finder, keys, "vendor", signed, signature) == str(signed)
    finally:
        locale.setlocale(locale.LC_MESSAGES, before)


def test_a_signature_is_fetched_like_a_file(keys: Keys, finder: Finder, signed: Path, server: Server) -> None:
    server.files["/a.sig"] = keys.sign("vendor@example.com", signed, "a.sig").read_bytes()
    assert find(finder, keys, "vendor", signed, server.url + "/a.sig") == str(signed)
    with pytest.raises(NpuError, match="/none.sig cannot be downloaded"):
        find(finder, keys, "vendor", signed, server.url + "/none.sig")


def test_a_signature_by_another_key_is_none(keys: Keys, finder: Finder, signed: Path) -> None:
    signature = keys.sign("other@example.com", signed, "a.sig")
    with pytest.raises(NpuError, match="^%s has no valid signature: .*No public key" % NAME) as caught:
        find(finder, keys, "vendor", signed, signature)
    assert caught.value.next_step == "Get file, signature and key from a trusted source; nothing was sent."


def test_a_signature_of_another_file_is_none(keys: Keys, finder: Finder, signed: Path) -> None:
    signature = keys.sign("vendor@example.com", signed, "a.sig")
    signed.write_bytes(DATA + b"one line more\n")
    with pytest.raises(NpuError, match="has no valid signature: .*BAD signature"):
        find(finder, keys, "vendor", signed, signature)


def test_a_key_that_has_run_out_signs_no_more(keys: Keys, finder: Finder, signed: Path) -> None:
    signature = keys.sign("old@example.com", signed, "a.sig", then=OLD)
    with pytest.raises(NpuError, match="has no valid signature"):
        find(finder, keys, "old", signed, signature)


def test_a_signature_that_has_run_out_is_none(keys: Keys, finder: Finder, signed: Path) -> None:
    late = time.strftime("%Y%m%dT%H%M%S!", time.gmtime(time.time() + 1))
    signature = keys.sign("vendor@example.com", signed, "a.sig", "--default-sig-expire", "seconds=1", then=late)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        time.sleep(0.5)
        try:
            find(finder, keys, "vendor", signed, signature)
        except NpuError as exc:
            assert "has no valid signature" in str(exc)
            if "expired" in str(exc):
                return
    raise AssertionError("the signature has not run out")


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_no_signature(keys: Keys, finder: Finder, signed: Path, kind: str) -> None:
    signature = signed.parent / "a.sig"
    broken = keys.broken(kind, signed)
    if broken is not None:
        signature.write_bytes(broken)
    with pytest.raises(NpuError, match="^%s has no valid signature: .* Next: Get file, signature and key" % NAME):
        find(finder, keys, "ring", signed, signature)


@pytest.mark.parametrize("content", [None, b"", b"no key"])
def test_a_keyring_without_a_key(keys: Keys, tmp_path: Path, signed: Path, content: bytes | None) -> None:
    signature = keys.sign("vendor@example.com", signed, "a.sig")
    if content is not None:
        (tmp_path / "ring.asc").write_bytes(content)
    finder = Finder(str(tmp_path / "cache"), 5.0, None, str(tmp_path / "ring.asc"))
    with pytest.raises(
        NpuError, match="ring.asc has no public key: .* Next: Export the public key of the vendor into it.$"
    ):
        finder.find({"src": str(signed), "sha256": SHA, "signature": str(signature)})


def test_the_keys_of_the_user_do_not_count(
    keys: Keys, tmp_path: Path, signed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GNUPGHOME", str(keys.home))
    signature = keys.sign("other@example.com", signed, "a.sig")
    with pytest.raises(NpuError, match="No public key"):
        find(Finder(str(tmp_path / "cache")), keys, "vendor", signed, signature)


def test_a_keyring_asks_for_a_signature(keys: Keys, tmp_path: Path, signed: Path) -> None:
    finder = Finder(str(tmp_path / "cache"), keyring=str(keys.home / "vendor.asc"))
    for item in ({}, {"signature": ""}, {"signature": None}):
        with pytest.raises(NpuError, match="^A keyring is set, but no signature of %s. Next: Set its signature" % NAME):
            finder.find({"src": str(signed), "sha256": SHA, **item})


def test_a_signature_needs_keys_and_gpg(
    keys: Keys, tmp_path: Path, signed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = {"src": str(signed), "sha256": SHA, "signature": str(tmp_path / "a.sig")}
    with pytest.raises(
        NpuError,
        match="^A signature of %s is set, but no keyring. Next: Set keyring to the file with the public keys.$" % NAME,
    ):
        Finder(str(tmp_path / "cache")).find(item)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        NpuError, match="^gpg is not installed on the controller. Next: Install gnupg to verify signatures.$"
    ):
        Finder(str(tmp_path / "cache"), keyring=str(keys.home / "vendor.asc")).find(item)
