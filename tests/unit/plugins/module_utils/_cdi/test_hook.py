# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hook of the host tool on roots of containers, friendly and hostile."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._cdi import hook
from ansible_collections.rebellions.npu.plugins.module_utils._formats.ldcache import Entry, dump, insert, parse
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_host.zipapp import build

FLAGS = 0x0303
ARGS = ["--flags", str(FLAGS), "--folder", "/opt/npu/lib", "--library", "librbln-ml.so.3=/opt/npu/lib/librbln-ml.so.3"]
CONF = "etc/ld.so.conf.d/00-rbln-host.conf"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="device nodes and mounts can only be made by root")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The root of a container with a cache and ld.so.conf.d, as a Debian image has them; a secret file beside it."""
    root = tmp_path / "bundle" / "rootfs"
    (root / "etc/ld.so.conf.d").mkdir(parents=True)
    entries: list[Entry] = []
    for name in (b"libc.so.6", b"libapp.so.1", b"libz.so.1"):
        insert(entries, Entry(FLAGS, name, b"/lib/" + name))
    (root / "etc/ld.so.cache").write_bytes(dump(entries, [b"x86-64-v3"]))
    (tmp_path / "bundle" / "config.json").write_text(json.dumps({"root": {"path": "rootfs"}}))
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "ld.so.cache").write_text("of the host")
    return root


def state(root: Path) -> bytes:
    return json.dumps({"ociVersion": "1.0.2", "id": "x", "pid": 1, "bundle": str(root.parent)}).encode()


def run(root: Path, args: list[str] | None = None, given: bytes | None = None) -> int:
    stdin = SimpleNamespace(buffer=io.BytesIO(state(root) if given is None else given))
    with mock.patch.object(sys, "stdin", stdin):
        return hook.main("/usr/local/libexec/rebellions-npu/rbln-host", ARGS if args is None else args)


def paths(root: Path, cache: str = "etc/ld.so.cache") -> dict[str, str]:
    return {entry.name.decode(): entry.path.decode() for entry in parse((root / cache).read_bytes())[0]}


def outside(root: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in (root.parents[1] / "outside").iterdir()}


def seen(root: Path) -> dict[Path, tuple[int, ...]]:
    """Each file and folder without the time of its last reading, which a look may change."""
    found = {path: path.stat() for path in root.rglob("*")}
    return {
        path: (one.st_ino, one.st_mode, one.st_uid, one.st_size, one.st_mtime_ns, one.st_ctime_ns)
        for path, one in found.items()
    }


def test_adds_a_name_keeps_the_others_and_changes_nothing_the_second_time(root: Path) -> None:
    assert run(root) == 0
    assert paths(root) == {
        "libc.so.6": "/lib/libc.so.6",
        "libapp.so.1": "/lib/libapp.so.1",
        "libz.so.1": "/lib/libz.so.1",
        "librbln-ml.so.3": "/opt/npu/lib/librbln-ml.so.3",
    }
    assert parse((root / "etc/ld.so.cache").read_bytes())[1] == [b"x86-64-v3"]
    assert (root / CONF).read_text() == "/opt/npu/lib\n"
    before = seen(root)
    assert run(root) == 0
    assert seen(root) == before
    assert (root / "etc/ld.so.cache").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("content", [None, b"", b"no cache at all", b"glibc-ld.so.cache1.1"])
def test_an_image_without_a_cache_gets_one(root: Path, content: bytes | None) -> None:
    (root / "etc/ld.so.cache").unlink()
    if content is not None:
        (root / "etc/ld.so.cache").write_bytes(content)
    assert run(root) == 0 and paths(root) == {"librbln-ml.so.3": "/opt/npu/lib/librbln-ml.so.3"}


def test_an_image_with_nothing_in_it(tmp_path: Path) -> None:
    (tmp_path / "b" / "r").mkdir(parents=True)
    (tmp_path / "b" / "config.json").write_text(json.dumps({"root": {"path": str(tmp_path / "b" / "r")}}))
    assert run(tmp_path / "b" / "r") == 0
    assert [str(path.relative_to(tmp_path / "b" / "r")) for path in (tmp_path / "b" / "r").rglob("*")] == [
        "etc",
        "etc/ld.so.cache",
    ]


@pytest.mark.parametrize(
    "where, text",
    [
        ("etc", "../../outside"),
        ("etc", "{outside}"),
        ("etc/ld.so.cache", "../../../outside/ld.so.cache"),
        ("etc/ld.so.cache", "{outside}/ld.so.cache"),
        ("etc/ld.so.conf.d", "{outside}"),
        ("etc", "/proc/1/root/etc"),
        ("etc/ld.so.cache", "loop"),
        ("etc/ld.so.cache", "."),
        ("etc/ld.so.cache", "/"),
    ],
)
def test_no_link_of_the_image_leads_out_of_it(root: Path, where: str, text: str) -> None:
    place = root / where
    moved = root / "old"
    if place.is_dir():
        place.rename(moved)
    else:
        place.unlink()
    place.symlink_to(text.format(outside=root.parents[1] / "outside"))
    if text == "loop":
        (root / "etc/loop").symlink_to("ld.so.cache")
    host = {name: os.stat(name).st_mtime_ns for name in ("/etc", "/")}
    assert run(root) in (0, 1)
    assert outside(root) == {"ld.so.cache": "of the host"}
    assert {name: os.stat(name).st_mtime_ns for name in host} == host


def test_a_link_inside_the_image_is_followed_there(root: Path) -> None:
    """Some images keep the cache in /var; an absolute link means the image's own root."""
    (root / "var/cache").mkdir(parents=True)
    (root / "etc/ld.so.cache").rename(root / "var/cache/ld.so.cache")
    (root / "etc/ld.so.cache").symlink_to("/usr/../var/cache/ld.so.cache")
    assert run(root) == 0 and (root / "etc/ld.so.cache").is_symlink()
    (root / "usr").mkdir()
    assert run(root) == 0
    assert "librbln-ml.so.3" in paths(root, "var/cache/ld.so.cache")


@needs_root
def test_a_device_in_the_place_of_the_cache_is_not_opened(root: Path) -> None:
    (root / "etc/ld.so.cache").unlink()
    os.mknod(root / "etc/ld.so.cache", 0o020666, os.makedev(1, 7))
    assert run(root) == 0
    assert (root / "etc/ld.so.cache").is_char_device()


def test_a_pipe_in_the_place_of_the_cache_does_not_block(root: Path) -> None:
    (root / "etc/ld.so.cache").unlink()
    os.mkfifo(root / "etc/ld.so.cache")
    assert run(root) == 0 and (root / "etc/ld.so.cache").is_fifo()


def test_a_volume_on_etc_stays_as_it_is(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`-v /etc:/etc` must not change the loader cache of the host."""
    real = hook._mount_of
    etc = os.stat(root / "etc").st_ino
    monkeypatch.setattr(hook, "_mount_of", lambda fd: "volume" if os.fstat(fd).st_ino == etc else real(fd))
    before = (root / "etc/ld.so.cache").read_bytes()
    assert run(root) == 0
    assert (root / "etc/ld.so.cache").read_bytes() == before and not (root / CONF).exists()


@pytest.mark.parametrize("code, wanted", [(30, 0), (28, 1)], ids=["EROFS", "ENOSPC"])
def test_a_container_that_cannot_be_written(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int, wanted: int
) -> None:
    def refuse(*_given: Any, **_more: Any) -> None:
        raise OSError(code, os.strerror(code))

    before = (root / "etc/ld.so.cache").read_bytes()
    monkeypatch.setattr(hook.os, "rename", refuse)
    assert run(root) == wanted
    assert os.strerror(code) in capsys.readouterr().err
    assert (root / "etc/ld.so.cache").read_bytes() == before
    assert sorted(path.name for path in (root / "etc").iterdir()) == ["ld.so.cache", "ld.so.conf.d"]


@pytest.mark.parametrize(
    "path, given, args",
    [
        ("/", None, ARGS),
        ("..", b"{}", ARGS),
        ("rootfs", b"", ARGS),
        ("rootfs", b'{"bundle": 5}', ARGS),
        ("rootfs", b'{"bundle": "/nowhere"}', ARGS),
        ("", None, ["--flags"]),
        ("rootfs", None, ["--library", "a=/b"]),
        ("rootfs", None, ["--other", "x"]),
        ("rootfs", None, ["--flags", "x"]),
    ],
)
def test_what_is_not_told_keeps_the_container_from_starting(
    root: Path, capsys: pytest.CaptureFixture[str], path: str, given: bytes | None, args: list[str]
) -> None:
    (root.parent / "config.json").write_text(json.dumps({"root": {"path": path}}))
    before = (root / "etc/ld.so.cache").read_bytes()
    assert run(root, args, given) == 1
    assert capsys.readouterr().err.startswith("rbln-host: The loader cache of the container is not updated: ")
    assert (root / "etc/ld.so.cache").read_bytes() == before


def test_the_host_tool_runs_it_without_an_environment_and_imports_little(root: Path, tmp_path: Path) -> None:
    program = tmp_path / "rbln-host"
    program.write_bytes(build(interpreter=sys.executable))
    program.chmod(0o755)
    env = {"PATH": "/usr/bin"}
    argv = [str(program), "update-ldcache", *ARGS]
    done = subprocess.run(argv, input=state(root), env=env, cwd=root, timeout=30, check=False)
    assert done.returncode == 0 and "librbln-ml.so.3" in paths(root)
    assert (root / CONF).exists()
    names = subprocess.run(
        [sys.executable, "-X", "importtime", *argv],
        input=state(root), env=env, cwd=root, timeout=30, capture_output=True, check=True,
    ).stderr.decode()  # fmt: skip
    assert "npu_host._cdi.hook" in names
    assert not [name for name in ("npu_host._base", "npu_host._host", "npu_host._observe") if name in names]
