# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An installer is placed in a directory of root alone, and what runs is what was verified."""

from __future__ import annotations

import hashlib
import io
import os
import pathlib
import re
import shutil
import stat
import subprocess
import typing as t

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host, Probe, run_command
from ansible_collections.rebellions.npu.plugins.module_utils._host.private import private_directory
from ansible_collections.rebellions.npu.plugins.module_utils._packages import runfile
from ansible_collections.rebellions.npu.plugins.module_utils._packages.runfile import SHA256 as DIGEST
from ansible_collections.rebellions.npu.plugins.module_utils._packages.runfile import (
    TAIL,
    execute,
    place,
    sha256_of,
    verified,
)
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import case

TEXT = b'#!/bin/sh\necho "args: $*"\necho "in $PWD"\necho warned >&2\nexit ${1:-0}\n'
SHA256 = hashlib.sha256(TEXT).hexdigest()
ME = os.geteuid()


def digest_of(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


@pytest.fixture(name="source")
def source_fixture(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "sent" / "driver-1.run"
    path.parent.mkdir()
    path.write_bytes(TEXT)
    return path


@pytest.fixture(name="placed")
def placed_fixture(tmp_path: pathlib.Path, source: pathlib.Path) -> str:
    return place(str(source), str(tmp_path / "private"), SHA256, ME)


def mode(path: str | pathlib.Path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


# -- digests


@pytest.mark.parametrize(
    "data, digest", [(b"", digest_of(b"")), (b"x" * (2 * 1024 * 1024 + 1), digest_of(b"x" * (2 * 1024 * 1024 + 1)))]
)
def test_a_digest_is_of_all_bytes(data: bytes, digest: str) -> None:
    assert sha256_of(io.BytesIO(data)) == digest


def test_verified_is_said_of_the_very_file(tmp_path: pathlib.Path, source: pathlib.Path) -> None:
    assert verified(str(source), SHA256) and verified(str(source), SHA256.upper())
    assert not verified(str(source), "0" * 64)
    assert not verified(str(tmp_path / "none"), SHA256) and not verified(str(tmp_path), SHA256)


@pytest.mark.parametrize(
    "text, good",
    [
        ("a" * 64, True),
        ("0123456789abcdef" * 4, True),
        ("A" * 64, False),
        ("a" * 63, False),
        ("a" * 65, False),
        ("g" * 64, False),
        ("", False),
    ],
)
def test_what_a_digest_looks_like(text: str, good: bool) -> None:
    assert bool(DIGEST.match(text)) is good


# -- the directory


def test_the_copy_is_private_and_the_directory_too(tmp_path: pathlib.Path, source: pathlib.Path) -> None:
    path = place(str(source), str(tmp_path / "private"), SHA256.upper(), ME)
    assert path == str(tmp_path / "private" / "driver-1.run")
    assert pathlib.Path(path).read_bytes() == TEXT
    assert (mode(path), mode(tmp_path / "private")) == (0o700, 0o700)


def test_a_copy_may_have_another_name_but_no_other_directory(tmp_path: pathlib.Path, source: pathlib.Path) -> None:
    assert place(str(source), str(tmp_path / "private"), SHA256, ME, "a.run") == str(tmp_path / "private" / "a.run")
    assert place(str(source), str(tmp_path / "private"), SHA256, ME, "../../b.run") == str(
        tmp_path / "private" / "b.run"
    )
    assert sorted(os.listdir(tmp_path / "private")) == ["a.run", "b.run"]


def test_a_wide_directory_is_narrowed(tmp_path: pathlib.Path) -> None:
    (tmp_path / "private").mkdir(mode=0o755)
    private_directory(str(tmp_path / "private"), ME)
    assert mode(tmp_path / "private") == 0o700


def test_missing_directories_above_are_made_and_can_be_entered(tmp_path: pathlib.Path) -> None:
    private_directory(str(tmp_path / "a/b/c"), ME)
    assert (mode(tmp_path / "a"), mode(tmp_path / "a/b"), mode(tmp_path / "a/b/c")) == (0o755, 0o755, 0o700)


@pytest.mark.parametrize(
    "bits, refused", [(0o777, True), (0o757, True), (0o775, True), (0o1777, False), (0o755, False), (0o700, False)]
)
def test_a_directory_above_that_others_can_write_is_refused(
    tmp_path: pathlib.Path, source: pathlib.Path, bits: int, refused: bool
) -> None:
    shared = tmp_path / "shared"
    (shared / "mine").mkdir(parents=True)
    shared.chmod(bits)
    target = str(shared / "mine" / "private")
    if not refused:
        assert verified(place(str(source), target, SHA256, ME), SHA256)
        return
    with pytest.raises(NpuError, match="^%s is writable for users other than user ID %d\\. " % (shared, ME)) as caught:
        place(str(source), target, SHA256, ME)
    assert caught.value.next_step == "Use a directory below /var/lib."
    assert not os.path.exists(target)


@pytest.mark.skipif(ME != 0, reason="only root can give a directory to somebody else")
def test_a_directory_above_of_another_user_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 65534, 65534)
    with pytest.raises(NpuError, match="^%s is writable for users other" % (tmp_path / "theirs")):
        private_directory(str(tmp_path / "theirs" / "private"), ME)


def test_a_directory_above_is_looked_at_where_it_really_is(tmp_path: pathlib.Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    (tmp_path / "shared" / "in").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "shared" / "in")
    with pytest.raises(NpuError, match="^%s is writable for users other" % (tmp_path / "shared")):
        private_directory(str(tmp_path / "link" / "private"), ME)


def test_a_link_in_the_way_is_refused(tmp_path: pathlib.Path, source: pathlib.Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "private").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NpuError, match="is not a directory of user"):
        place(str(source), str(tmp_path / "private"), SHA256, ME)
    assert os.listdir(tmp_path / "elsewhere") == []


def test_a_file_in_the_way_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "private").write_text("x", encoding="utf-8")
    with pytest.raises(NpuError, match="cannot be created"):
        private_directory(str(tmp_path / "private"), ME)


def test_a_directory_of_somebody_else_is_refused(tmp_path: pathlib.Path, source: pathlib.Path) -> None:
    with pytest.raises(NpuError, match="is not a directory of user"):
        place(str(source), str(tmp_path / "private"), SHA256, ME + 1)


# -- the copy


def test_another_digest_leaves_nothing_behind(tmp_path: pathlib.Path, source: pathlib.Path) -> None:
    with pytest.raises(NpuError, match="The SHA-256 of driver-1.run on the host is %s, not %s" % (SHA256, "0" * 64)):
        place(str(source), str(tmp_path / "private"), "0" * 64, ME)
    assert os.listdir(tmp_path / "private") == []


def test_another_digest_leaves_the_file_that_was_there(tmp_path: pathlib.Path, placed: str) -> None:
    (tmp_path / "sent" / "driver-1.run").write_bytes(b"cut")
    with pytest.raises(NpuError, match="The SHA-256 of"):
        place(str(tmp_path / "sent" / "driver-1.run"), str(tmp_path / "private"), SHA256, ME)
    assert verified(placed, SHA256) and os.listdir(tmp_path / "private") == ["driver-1.run"]


def test_a_source_that_is_gone_is_one_error(tmp_path: pathlib.Path) -> None:
    with pytest.raises(NpuError, match="cannot be written: No such file"):
        place(str(tmp_path / "none.run"), str(tmp_path / "private"), SHA256, ME)
    assert os.listdir(tmp_path / "private") == []


# -- running


def printed(path: str, sha256: str, arguments: t.Sequence[str], runner: t.Callable[..., Probe] = run_command) -> str:
    """What the installer prints."""
    heard: list[str] = []

    def hear(*call: t.Any) -> Probe:
        done = runner(*call)
        heard.append(done.value.out + done.value.err)
        return done

    execute(Host(runner=hear), path, sha256, arguments, 30)
    return heard[0]


def placed_as(tmp_path: pathlib.Path, name: str, text: bytes) -> str:
    """An installer of this text where root alone may write."""
    (tmp_path / name).write_bytes(text)
    return place(str(tmp_path / name), str(tmp_path / "private"), digest_of(text), ME)


def test_it_runs_with_its_arguments_beside_itself(placed: str) -> None:
    output = printed(placed, SHA256.upper(), ["0", "--silent"])
    assert output == "args: 0 --silent\nin %s\nwarned\n" % os.path.dirname(placed)


def test_any_code_but_0_is_a_failure_that_shows_the_last_lines(placed: str) -> None:
    with pytest.raises(NpuError) as caught:
        execute(Host(), placed, SHA256, ["7"], 30)
    assert caught.value.message == "driver-1.run ended with code 7: args: 7 | in %s | warned" % os.path.dirname(placed)


def test_no_password_of_an_address_is_shown(tmp_path: pathlib.Path) -> None:
    text = b"#!/bin/sh\necho fetching https://jo:hidden@mirror.example.com/a?token=hidden\nexit 4\n"
    path = placed_as(tmp_path, "net.run", text)
    with pytest.raises(NpuError) as caught:
        execute(Host(), path, digest_of(text), [], 30)
    assert (
        caught.value.message
        == "net.run ended with code 4: fetching https://********@mirror.example.com/a?token=********"
    )


def test_the_environment_reaches_the_installer(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    text = b'#!/bin/sh\necho "proxy $https_proxy, locale $LC_ALL"\n'
    path = placed_as(tmp_path, "env.run", text)
    assert printed(path, digest_of(text), []) == "proxy http://proxy:3128, locale C\n"


def test_only_the_end_of_a_long_output_is_kept(tmp_path: pathlib.Path) -> None:
    text = b"#!/bin/sh\nhead -c 9000 /dev/zero | tr '\\0' x\nexit 3\n"
    path = placed_as(tmp_path, "long.run", text)
    with pytest.raises(NpuError) as caught:
        execute(Host(), path, digest_of(text), [], 30)
    assert caught.value.message == "long.run ended with code 3: " + "x" * TAIL


def test_a_file_changed_after_it_was_placed_is_not_run(tmp_path: pathlib.Path, placed: str) -> None:
    pathlib.Path(placed).write_bytes(TEXT + b"touch %s\n" % str(tmp_path / "ran").encode())
    with pytest.raises(NpuError, match="The SHA-256 of"):
        execute(Host(), placed, SHA256, [], 30)
    assert not (tmp_path / "ran").exists()


def test_a_file_put_in_its_place_after_the_look_is_not_what_runs(tmp_path: pathlib.Path, placed: str) -> None:
    def swap_first(argv: t.Sequence[str], *rest: t.Any) -> Probe:
        other = tmp_path / "private" / "other"
        other.write_bytes(b"#!/bin/sh\necho another\n")
        other.chmod(0o700)
        os.replace(other, placed)
        return run_command(argv, *rest)

    assert printed(placed, SHA256, [], swap_first).startswith("args: \n")
    assert pathlib.Path(placed).read_bytes() == b"#!/bin/sh\necho another\n"


def test_it_can_read_itself_as_archives_that_unpack_themselves_do(tmp_path: pathlib.Path) -> None:
    text = b'#!/bin/sh\ntail -n 1 "$0"\nexit 0\nthe payload\n'
    path = placed_as(tmp_path, "self.run", text)
    assert printed(path, digest_of(text), []) == "the payload\n"


def test_no_descriptor_is_left_open(placed: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    execute(Host(), placed, SHA256, [], 30)
    with pytest.raises(NpuError):
        execute(Host(), placed, "0" * 64, [], 30)
    assert len(os.listdir("/proc/self/fd")) == before


def test_one_that_does_not_end_is_an_error(tmp_path: pathlib.Path) -> None:
    text = b"#!/bin/sh\nexec sleep 30\n"
    path = placed_as(tmp_path, "slow.run", text)
    with pytest.raises(NpuError, match="^slow.run did not end within 0.5 s"):
        execute(Host(), path, digest_of(text), [], 0.5)


@pytest.mark.parametrize("data, bits", [(b"\x00\x01", 0o700), (TEXT, 0o600)], ids=["no program", "no permission"])
def test_one_that_cannot_be_run_is_an_error(tmp_path: pathlib.Path, data: bytes, bits: int) -> None:
    (tmp_path / "noise.run").write_bytes(data)
    path = place(str(tmp_path / "noise.run"), str(tmp_path / "private"), digest_of(data), ME)
    os.chmod(path, bits)
    with pytest.raises(NpuError, match="^noise.run cannot be run: ") as caught:
        execute(Host(), path, digest_of(data), [], 5)
    assert caught.value.next_step == "Check that %s is not on a file system mounted noexec." % os.path.dirname(path)


@pytest.mark.skipif(ME != 0 or shutil.which("mount") is None, reason="only root can mount")
def test_a_file_system_mounted_noexec_is_said(tmp_path: pathlib.Path, source: pathlib.Path) -> None:
    mount = tmp_path / "noexec"
    mount.mkdir()
    if (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "noexec,mode=0755", "tmpfs", str(mount)], capture_output=True, check=False
        ).returncode
        != 0
    ):
        pytest.skip("mounting is not permitted here")
    try:
        path = place(str(source), str(mount / "private"), SHA256, ME)
        with pytest.raises(NpuError, match="^driver-1.run cannot be run: Permission denied") as caught:
            execute(Host(), path, SHA256, [], 5)
        assert caught.value.next_step == "Check that %s is not on a file system mounted noexec." % (mount / "private")
    finally:
        subprocess.run(["umount", str(mount)], check=False)


def test_one_that_is_gone_is_an_error(tmp_path: pathlib.Path) -> None:
    with pytest.raises(NpuError, match="none.run cannot be read: No such file"):
        execute(Host(), str(tmp_path / "none.run"), SHA256, [], 5)


# -- H16: what an installer unpacks and runs


def test_H16_noexec_tmp_runfile_code_126_names_the_mount(tmp_path: pathlib.Path) -> None:
    """H16: the words of a makeself archive on a noexec /tmp, and what to do about them."""
    said = case("H16-noexec-tmp-runfile", "output.txt").replace("(exit code 126)", "").replace("\n", "\\n")
    text = b"#!/bin/sh\nprintf '%s' >&2\nexit 126\n" % said.replace("%", "%%").encode()
    with pytest.raises(NpuError, match="ended with code 126: .*setup.sh: Permission denied") as caught:
        execute(Host(), placed_as(tmp_path, "driver.run", text), digest_of(text), [], 30)
    assert "temporary_directory" in caught.value.next_step and "noexec" in caught.value.next_step
    text = b"#!/bin/sh\necho not found >&2\nexit 126\n"
    with pytest.raises(NpuError) as caught:
        execute(Host(), placed_as(tmp_path, "other.run", text), digest_of(text), [], 30)
    assert caught.value.next_step == "Read its log on the host."


def test_H16_the_directory_is_the_tmpdir_of_the_installer(tmp_path: pathlib.Path) -> None:
    text = b'#!/bin/sh\necho "in $TMPDIR" >&2\nexit 1\n'
    path = placed_as(tmp_path, "driver.run", text)
    with pytest.raises(NpuError, match="in %s Next: " % re.escape(str(tmp_path / "room"))):
        execute(Host(), path, digest_of(text), [], 30, str(tmp_path / "room"))
    # Not /tmp, which may be mounted noexec, where no directory is named.
    with pytest.raises(NpuError, match="in %s Next: " % re.escape(os.path.dirname(path))):
        execute(Host(), path, digest_of(text), [], 30)


def test_H16_an_installer_on_a_noexec_file_system_runs_from_its_directory(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = b'#!/bin/sh\necho "from $PWD" >&2\nexit 1\n'
    path = placed_as(tmp_path, "driver.run", text)
    room = tmp_path / "room"
    monkeypatch.setattr(runfile, "_noexec", lambda given: given == path)
    with pytest.raises(NpuError, match="from %s Next: " % re.escape(str(room))):
        execute(Host(), path, digest_of(text), [], 30, str(room))
    with pytest.raises(NpuError, match="is %s, not %s" % (digest_of(text), "0" * 64)):
        execute(Host(), path, "0" * 64, [], 30, str(room))
