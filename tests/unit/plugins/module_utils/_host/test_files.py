# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Single files: replaced by a rename, kept when they are right, taken away, locked."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import tempfile
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._host import files
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host

READY = "/run/rbln/validations/driver-ready"


def test_unchanged_keeps_its_time_and_a_link_becomes_a_file(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    assert files.write_file(host, READY, "A=1\n", dry=True) is True and not host.exists("/run")
    assert files.write_file(host, READY, "A=1\n") is True
    target = tmp_path / READY.lstrip("/")
    assert stat.S_IMODE(target.stat().st_mode) == 0o644 and stat.S_IMODE(target.parent.stat().st_mode) == 0o755
    os.utime(target, (1000, 1000))
    inode = target.stat().st_ino
    assert files.write_file(host, READY, "A=1\n") is False
    assert (target.stat().st_mtime, target.stat().st_ino) == (1000, inode)
    assert files.write_file(host, READY, "A=2\n") is True
    assert target.stat().st_mtime > 1000
    (tmp_path / "elsewhere").write_text("A=2\n")
    target.unlink()
    target.symlink_to(tmp_path / "elsewhere")
    assert files.write_file(host, READY, "A=2\n") is True
    assert not target.is_symlink() and sorted(os.listdir(target.parent)) == ["driver-ready"]


def test_directories_stay_inside_the_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "real").mkdir(parents=True)
    (root / "run").symlink_to("/real")
    files.write_file(Host(str(root)), READY, "A=1\n")
    assert (root / "real/rbln/validations/driver-ready").read_text() == "A=1\n"


def test_remove(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    assert files.remove_file(host, READY) is False
    files.write_file(host, READY, "A=1\n")
    assert files.remove_file(host, READY, dry=True) is True and host.exists(READY)
    assert files.remove_file(host, READY) is True and not host.exists(READY)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    folder = tmp_path / READY.lstrip("/")
    (folder / "inside").mkdir(parents=True)
    with pytest.raises(NpuError) as raised:
        files.write_file(host, READY, "A=1\n")
    assert READY in raised.value.message and os.listdir(folder.parent) == ["driver-ready"]


def test_renew_only_what_is_older(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    files.write_file(host, "/spec", "x")
    os.utime(tmp_path / "spec", (1000, 1000))
    assert files.renew(host, "/spec", 1000) is False
    assert files.renew(host, "/spec", 1001, dry=True) is True and (tmp_path / "spec").stat().st_mtime == 1000
    assert files.renew(host, "/spec", 1001) is True and (tmp_path / "spec").stat().st_mtime > 1001
    assert files.renew(host, "/none", 1) is False


def test_a_link_is_made_and_replaced(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    files.write_link(host, "/usr/local/bin/tool", "/opt/a")
    files.write_link(host, "/usr/local/bin/tool", "/opt/b")
    assert os.readlink(tmp_path / "usr/local/bin/tool") == "/opt/b" and os.listdir(tmp_path / "usr/local/bin") == [
        "tool"
    ]


def test_only_an_empty_directory_is_taken_away(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    files.write_file(host, "/etc/ours/file", "x")
    assert files.remove_empty_directory(host, "/etc/ours") is False
    files.remove_file(host, "/etc/ours/file")
    assert files.remove_empty_directory(host, "/etc/ours", dry=True) is False and (tmp_path / "etc/ours").is_dir()
    assert (
        files.remove_empty_directory(host, "/etc/ours") is True
        and files.remove_empty_directory(host, "/etc/ours") is False
    )


def test_a_directory_is_made_with_its_mode_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        real = files.make_directory(Host(str(tmp_path)), "/a/b")
    finally:
        os.umask(before)
    assert real == str(tmp_path / "a/b")
    assert [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "a", tmp_path / "a/b")] == [0o755, 0o755]


def test_what_a_killed_writer_left_goes_at_the_next_write_and_what_others_use_stays(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    files.write_file(host, "/a", "text")
    for name in (".a.abcd_123.tmp", ".a.ABCDEFGH.tmp", ".b.abcd_123.tmp", ".a.abcd_1234.tmp", ".a.tmp", "a.tmp"):
        (tmp_path / name).write_text("left")
    with open(tmp_path / ".a.living12.tmp", "w") as living:
        fcntl.flock(living, fcntl.LOCK_EX)
        assert not files.write_file(host, "/a", "text", dry=True) and (tmp_path / ".a.abcd_123.tmp").exists()
        assert not files.write_file(host, "/a", "text")
        left = [".a.ABCDEFGH.tmp", ".a.abcd_1234.tmp", ".a.living12.tmp", ".a.tmp", ".b.abcd_123.tmp", "a", "a.tmp"]
        assert sorted(os.listdir(tmp_path)) == left
    files.write_file(host, "/a", "other")
    left.remove(".a.living12.tmp")
    assert sorted(os.listdir(tmp_path)) == left and (tmp_path / "a").read_text() == "other"


def test_a_staged_file_that_was_taken_for_a_leftover_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its making and its lock, another run may remove it."""
    real, taken = tempfile.mkstemp, []

    def mkstemp(**keys: str) -> tuple[int, str]:
        made = real(**keys)
        if not taken:
            taken.append(made[1])
            files.clear_staged(str(tmp_path), "a")
        return made

    monkeypatch.setattr(tempfile, "mkstemp", mkstemp)
    files.replace_file(str(tmp_path / "a"), b"text", 0o644)
    assert len(taken) == 1 and os.listdir(tmp_path) == ["a"] and (tmp_path / "a").read_bytes() == b"text"


def test_the_lock_is_for_one_alone(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path, os.O_RDONLY) for _number in range(2))
    try:
        files.take_lock(first, "/dir", 0.1, "somebody writes")
        with pytest.raises(NpuError, match="The lock of /dir is held: somebody writes"):
            files.take_lock(second, "/dir", 0.1, "somebody writes")
        fcntl.flock(first, fcntl.LOCK_UN)
        files.take_lock(second, "/dir", 0.1, "somebody writes")
    finally:
        os.close(first)
        os.close(second)


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOTDIR, "Move the file that"),
        (errno.EROFS, "read-write"),
        (errno.ENOSPC, "room"),
        (errno.EIO, "Check this path"),
    ],
)
def test_an_error_names_the_path_and_the_remedy_that_fits(number: int, remedy: str) -> None:
    found = files.explain(OSError(number, "x"), "/p", "written")
    assert found.message == "/p cannot be written: %s." % os.strerror(number) and remedy in found.next_step


@pytest.mark.parametrize(("user", "remedy"), [(1000, "Run as root"), (0, "an immutable attribute (lsattr, chattr -i)")])
@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_root_is_not_told_to_become_root(number: int, user: int, remedy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A file that hardening or another tool has made immutable (chattr +i).
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert remedy in files.explain(OSError(number, "x"), "/etc/docker/daemon.json", "written").next_step
