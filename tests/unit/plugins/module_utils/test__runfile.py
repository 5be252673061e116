# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An installer is verified where it lies, kept for root alone, and run as it was verified."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import stat

import pytest

from ansible_collections.rebellions.npu.plugins.module_utils._host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._runfile import execute, forget, note, place

TEXT = b'#!/bin/sh\necho "args: $*"\necho warned >&2\nexit ${1:-0}\n'
SHA256 = hashlib.sha256(TEXT).hexdigest()
ME = os.geteuid()


@pytest.fixture(name="source")
def source_fixture(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "sent" / "driver-1.run"
    path.parent.mkdir()
    path.write_bytes(TEXT)
    return path


def test_the_copy_is_private_and_the_directory_too(tmp_path: pathlib.Path, source: pathlib.Path) -> None:
    path = place(str(source), str(tmp_path / "private"), SHA256.upper(), ME)
    assert pathlib.Path(path).read_bytes() == TEXT
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(tmp_path / "private").st_mode) == 0o700


def test_a_wide_directory_is_narrowed(tmp_path: pathlib.Path, source: pathlib.Path) -> None:
    (tmp_path / "private").mkdir(mode=0o755)
    place(str(source), str(tmp_path / "private"), SHA256, ME)
    assert stat.S_IMODE(os.stat(tmp_path / "private").st_mode) == 0o700


def test_another_digest_leaves_nothing_behind(tmp_path: pathlib.Path, source: pathlib.Path) -> None:
    with pytest.raises(NpuError, match="The SHA-256 of driver-1.run on the host is %s" % SHA256):
        place(str(source), str(tmp_path / "private"), "0" * 64, ME)
    assert os.listdir(tmp_path / "private") == []


def test_a_link_in_the_way_is_refused(tmp_path: pathlib.Path, source: pathlib.Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "private").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NpuError, match="is not a directory of user"):
        place(str(source), str(tmp_path / "private"), SHA256, ME)
    assert os.listdir(tmp_path / "elsewhere") == []


def test_a_directory_of_somebody_else_is_refused(tmp_path: pathlib.Path, source: pathlib.Path) -> None:
    with pytest.raises(NpuError, match="is not a directory of user"):
        place(str(source), str(tmp_path / "private"), SHA256, ME + 1)


@pytest.mark.parametrize("arguments, rc", [(["0", "--silent"], 0), (["7"], 7)])
def test_it_runs_with_its_arguments(tmp_path: pathlib.Path, source: pathlib.Path, arguments: list[str], rc: int) -> None:
    path = place(str(source), str(tmp_path / "private"), SHA256, ME)
    ended = execute(path, SHA256, arguments, 30)
    assert ended["rc"] == rc
    assert "args: %s" % " ".join(arguments) in ended["output"]
    assert "warned" in ended["output"]


def test_a_file_changed_after_it_was_placed_is_not_run(tmp_path: pathlib.Path, source: pathlib.Path) -> None:
    path = place(str(source), str(tmp_path / "private"), SHA256, ME)
    pathlib.Path(path).write_bytes(TEXT + b"touch %s\n" % str(tmp_path / "ran").encode())
    with pytest.raises(NpuError, match="The SHA-256 of"):
        execute(path, SHA256, [], 30)
    assert not (tmp_path / "ran").exists()


def test_one_that_does_not_end_is_an_error(tmp_path: pathlib.Path) -> None:
    text = b"#!/bin/sh\nexec sleep 30\n"
    slow = tmp_path / "slow.run"
    slow.write_bytes(text)
    path = place(str(slow), str(tmp_path / "private"), hashlib.sha256(text).hexdigest(), ME)
    with pytest.raises(NpuError, match="did not end within 0.5 s"):
        execute(path, hashlib.sha256(text).hexdigest(), [], 0.5)


def test_one_that_is_no_program_is_an_error(tmp_path: pathlib.Path) -> None:
    noise = tmp_path / "noise.run"
    noise.write_bytes(b"\x00\x01")
    digest = hashlib.sha256(b"\x00\x01").hexdigest()
    path = place(str(noise), str(tmp_path / "private"), digest, ME)
    with pytest.raises(NpuError, match="cannot be run"):
        execute(path, digest, [], 5)


def test_the_note_says_what_was_installed_and_goes_with_its_directory(tmp_path: pathlib.Path) -> None:
    host, path = Host(str(tmp_path)), "/var/lib/vendor/driver.json"
    note(host, path, "3.2.2", SHA256.upper())
    assert json.loads(host.read_text(path).value) == {"version": "3.2.2", "sha256": SHA256}
    forget(host, path)
    forget(host, path)
    assert not host.exists("/var/lib/vendor") and host.exists("/var/lib")
    note(host, path, "3.2.2", SHA256)
    (tmp_path / "var/lib/vendor/other").write_text("x")
    forget(host, path)
    assert host.listdir("/var/lib/vendor").value == ["other"]
