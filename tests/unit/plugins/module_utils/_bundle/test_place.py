# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A bundle comes to a host whole or not at all, and is then the only source of packages."""

from __future__ import annotations

import functools
import hashlib
import http.server
import os
import pathlib
import threading
import typing as t

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._bundle import place as bundle_place
from ansible_collections.rebellions.npu.plugins.module_utils._bundle.manifest import BundleFile, Manifest
from ansible_collections.rebellions.npu.plugins.module_utils._bundle.place import (
    configure,
    guard,
    look,
    place,
    read_bundle,
    remove,
    settings,
    whole,
)
from ansible_collections.rebellions.npu.plugins.module_utils._bundle.request import manifest_text
from ansible_collections.rebellions.npu.plugins.module_utils._bundle.transfer import download, fetch, pack, unpack
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Completed, Host, Probe
from ansible_collections.rebellions.npu.plugins.module_utils._packages.offline import (
    dnf_config,
    dnf_options,
    environment,
)

CONTENTS = {"packages/make_4.4.1-2+b1~x_amd64.deb": b"make", "driver/d-1.run": b"#!/bin/sh\n", "Packages": b""}
KINDS = ("package", "runfile", "index")
FILES = [
    BundleFile(path, len(body), hashlib.sha256(body).hexdigest(), kind)
    for (path, body), kind in zip(CONTENTS.items(), KINDS)
]
MANIFEST = Manifest("", "", {"id": "debian", "version_id": "13", "architecture": "x86_64"}, "deb", "none", files=FILES)
TEXT = MANIFEST.dump()
DIGEST = hashlib.sha256(TEXT.encode()).hexdigest()


@pytest.fixture
def source(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "source"
    for path, body in CONTENTS.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(body)
    (folder / "manifest.json").write_text(TEXT)
    return folder


@pytest.fixture
def target(tmp_path: pathlib.Path) -> str:
    return str(tmp_path / "var/rbln/bundle")


def archive(source: pathlib.Path, files: t.Sequence[BundleFile] = FILES) -> str:
    path = str(source) + ".tar"
    pack({one.sha256: str(source / one.path) for one in files}, path)
    return path


def put(source: pathlib.Path, target: str) -> None:
    found = look(target, MANIFEST, TEXT, False, DIGEST)
    path = archive(source, found.condition.bad)
    place(target, MANIFEST, TEXT, found, lambda folder, wanted: unpack(path, folder, wanted))


def everything(folder: str) -> list[str]:
    return sorted(
        os.path.relpath(os.path.join(top, name), folder) for top, _names, files in os.walk(folder) for name in files
    )


def test_a_bundle_is_placed_for_all_to_read(source: pathlib.Path, target: str) -> None:
    put(source, target)
    assert everything(target) == sorted([*CONTENTS, "manifest.json"])
    assert look(target, MANIFEST, TEXT, False, DIGEST).right
    assert {os.stat(os.path.join(target, name)).st_mode & 0o777 for name in everything(target)} == {0o644}
    assert not os.path.exists(target + ".incoming") and read_bundle(Host(), target).dump() == TEXT


def test_a_corrupt_file_changes_nothing(source: pathlib.Path, target: str) -> None:
    (source / "packages/make_4.4.1-2+b1~x_amd64.deb").write_bytes(b"mAke")
    with pytest.raises(NpuError, match="make_4.4.1.*is another file: it has 4 bytes, SHA-256.*Nothing was changed"):
        put(source, target)
    assert not os.path.exists(os.path.dirname(target))


def test_a_corrupt_file_leaves_the_bundle_that_is_there(source: pathlib.Path, target: str) -> None:
    put(source, target)
    old = MANIFEST
    body = b"#!/bin/sh\nexit 1\n"
    new = Manifest(
        "",
        "",
        old.os,
        "deb",
        "none",
        files=[FILES[0], BundleFile("driver/d-2.run", len(body), "0" * 64, "runfile"), FILES[2]],
    )
    (source / "driver/d-2.run").write_bytes(body)
    found = look(target, new, new.dump(), False, "")
    path = archive(source, found.condition.bad)
    with pytest.raises(NpuError, match="do not match the manifest: driver/d-2.run"):
        place(target, new, new.dump(), found, lambda folder, wanted: unpack(path, folder, wanted))
    assert look(target, MANIFEST, TEXT, False, DIGEST).right


def test_strays_and_damage_are_seen_and_put_right(source: pathlib.Path, target: str) -> None:
    put(source, target)
    pathlib.Path(target, "packages/evil_1_all.deb").write_bytes(b"x")
    pathlib.Path(target, "Packages").write_bytes(b"Package: evil\n")
    pathlib.Path(target, "driver/d-1.run").unlink()
    found = look(target, MANIFEST, TEXT, False, DIGEST)
    assert found.stray == ["packages/evil_1_all.deb"] and sorted(one.path for one in found.condition.bad) == [
        "Packages",
        "driver/d-1.run",
    ]
    put(source, target)
    assert look(target, MANIFEST, TEXT, False, DIGEST).right and len(everything(target)) == 4


def test_a_bundle_is_used_whole_or_not_at_all(source: pathlib.Path, target: str) -> None:
    put(source, target)
    assert whole(Host(), target).dump() == TEXT
    pathlib.Path(target, "Packages").write_bytes(b"Package: evil\n")
    pathlib.Path(target, "driver/d-1.run").unlink()
    with pytest.raises(
        NpuError,
        match=(
            "is not complete: driver/d-1.run .10 bytes, SHA-256 .* is missing; "
            "Packages .*has 14 bytes.*bundle_place.; nothing"
        ),
    ):
        whole(Host(), target)


def test_a_full_disk_is_known_before(source: pathlib.Path, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        f_bavail, f_frsize = 1, 4096

    monkeypatch.setattr(bundle_place.os, "statvfs", lambda path: Full)
    with pytest.raises(NpuError, match="needs 67108878 bytes, but only 4096 are free"):
        put(source, target)
    assert not os.path.exists(os.path.dirname(target))


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_a_folder_that_others_write_is_no_place(source: pathlib.Path, target: str, mode: int) -> None:
    os.makedirs(target)
    os.chmod(target, mode)
    with pytest.raises(NpuError, match="only user"):
        put(source, target)


def test_a_link_is_no_place(source: pathlib.Path, target: str, tmp_path: pathlib.Path) -> None:
    os.makedirs(os.path.dirname(target))
    os.symlink(tmp_path, target)
    with pytest.raises(NpuError, match="only user"):
        put(source, target)
    with pytest.raises(NpuError, match="only user"):
        remove(target)


@pytest.mark.parametrize("mode, refused", [(0o777, True), (0o775, True), (0o1777, False), (0o755, False)])
@pytest.mark.parametrize("made", [True, False], ids=["there", "not there"])
def test_a_folder_that_others_can_replace_is_no_place(
    tmp_path: pathlib.Path, mode: int, refused: bool, made: bool
) -> None:
    target = tmp_path / "shared/mine/bundle"
    (target if made else target.parent).mkdir(parents=True)
    (tmp_path / "shared").chmod(mode)
    if not refused:
        assert guard(str(target), os.geteuid()) is made
        return
    with pytest.raises(NpuError, match="^%s is writable for users other" % (tmp_path / "shared")):
        guard(str(target), os.geteuid())


def test_apt_and_dnf_know_the_bundle_alone_G01_airgap_no_internet() -> None:
    assert settings("/b", "deb") == {
        "apt.conf": "// Written by rebellions.npu. While APT_CONFIG names this file, "
        "the bundle is the only source of packages.\n"
        'Dir::Etc::sourcelist "/b/apt/sources.list";\nDir::Etc::sourceparts "/dev/null";\n'
        'Dir::State::lists "/b/apt/lists";\n'
        'Dir::Cache::pkgcache "";\nDir::Cache::srcpkgcache "";\nAcquire::Languages "none";\n',
        "apt/sources.list": "deb [trusted=yes] file:/b ./\n",
    }
    assert settings("/b", "rpm") == {
        "dnf/rebellions-npu-bundle.repo": "[rebellions-npu-bundle]\nname=Offline bundle\nbaseurl=file:///b\nenabled=1\ngpgcheck=0\nrepo_gpgcheck=0\n"
        "metadata_expire=1\n",
        "dnf/dnf.conf": (
            "[main]\nreposdir=/b/dnf\ngpgcheck=1\ninstallonly_limit=3\nclean_requirements_on_remove=True\nbest=True\n"
            "install_weak_deps=False\n"
        ),
    }
    assert (environment("/b", "deb"), dnf_options("/b", "deb")) == ({"APT_CONFIG": "/b/apt.conf"}, [])
    assert (environment("/b", "rpm"), dnf_options("/b", "rpm")) == ({}, ["--setopt=reposdir=/b/dnf"])
    assert (dnf_config("/b", "rpm"), dnf_config("/b", "deb")) == ("/b/dnf/dnf.conf", "")


def test_apt_reads_the_lists_once_and_again_when_the_bundle_is_another(source: pathlib.Path, target: str) -> None:
    put(source, target)
    calls: list[tuple[t.Sequence[str], t.Mapping[str, str] | None]] = []

    def apt(argv: t.Sequence[str], timeout: float, env: t.Mapping[str, str] | None = None) -> Probe:
        calls.append((argv, env))
        return Probe("value", Completed(0, "", ""))

    assert look(target, MANIFEST, TEXT, True, DIGEST).settings == ["apt.conf", "apt/sources.list", "apt/read"]
    configure(Host("/", apt), target, "deb", DIGEST, 60)
    assert look(target, MANIFEST, TEXT, True, DIGEST).right
    assert look(target, MANIFEST, TEXT, True, "another").settings == ["apt/read"]
    assert [(argv[:2], env) for argv, env in calls] == [(["apt-get", "update"], {"APT_CONFIG": target + "/apt.conf"})]


def test_lists_that_apt_cannot_read_are_no_success(source: pathlib.Path, target: str) -> None:
    put(source, target)
    with pytest.raises(NpuError, match="apt cannot read the bundle at .*E: Malformed"):
        configure(
            Host("/", lambda *_words: Probe("value", Completed(100, "", "E: Malformed"))), target, "deb", DIGEST, 60
        )
    assert look(target, MANIFEST, TEXT, True, DIGEST).settings == ["apt/read"]


def test_removal_takes_the_bundle_and_nothing_else(source: pathlib.Path, target: str) -> None:
    assert remove(target) is False
    put(source, target)
    assert remove(target, dry=True) is True and os.path.isdir(target)
    assert remove(target) is True and not os.path.exists(target)
    os.makedirs(target)
    pathlib.Path(target, "precious").write_text("x")
    with pytest.raises(NpuError, match="is not a bundle"):
        remove(target)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_words: t.Any) -> None:
        pass


@pytest.fixture
def web(source: pathlib.Path) -> t.Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(source)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield "http://127.0.0.1:%d/" % server.server_address[1]
    server.shutdown()
    server.server_close()


def test_a_bundle_comes_by_http(web: str, target: str) -> None:
    place(
        target,
        MANIFEST,
        TEXT,
        look(target, MANIFEST, TEXT, False, DIGEST),
        lambda folder, wanted: download(web, folder, wanted, "", 5),
    )
    assert look(target, MANIFEST, TEXT, False, DIGEST).right


def test_a_file_the_server_has_not_is_named(web: str, source: pathlib.Path, target: str) -> None:
    (source / "driver/d-1.run").unlink()
    with pytest.raises(NpuError, match="driver/d-1.run cannot be downloaded: (HTTP Error 404: )?.*File not found"):
        place(
            target,
            MANIFEST,
            TEXT,
            look(target, MANIFEST, TEXT, False, DIGEST),
            lambda folder, wanted: download(web, folder, wanted, "", 5),
        )
    assert not os.path.exists(target)


def test_the_digest_of_the_user_vouches_for_the_manifest(web: str) -> None:
    params = {
        "manifest": None,
        "url": web,
        "keyring": None,
        "sha256": DIGEST,
        "authorities": None,
        "timeout": 5.0,
        "directory": "/nowhere",
    }
    assert manifest_text(Host(), params) == TEXT
    with pytest.raises(NpuError, match="manifest.json is %s, not %s" % (DIGEST, "0" * 64)):
        manifest_text(Host(), dict(params, sha256="0" * 64))
    with pytest.raises(NpuError, match="without the SHA-256 of the manifest"):
        manifest_text(Host(), dict(params, sha256=None))
    with pytest.raises(NpuError, match="Place the bundle first"):
        manifest_text(Host(), dict(params, url=None))


@pytest.mark.parametrize("address", ["file:///etc/passwd", "ftp://x/", "x"])
def test_only_web_servers_are_asked(address: str) -> None:
    with pytest.raises(NpuError, match="is not a web address"):
        fetch(address, "", 1)


def test_authorities_that_are_none_are_refused_G03_ca_path() -> None:
    with pytest.raises(NpuError, match="https://127.0.0.1:1/"):
        fetch("https://127.0.0.1:1/", "no certificate", 1)
