# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who can replace a directory: everybody who can write to one above it, or owns a link on the way."""

from __future__ import annotations

import os
import pathlib

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._host.private import parents, private_directory

ME = os.geteuid()
root = pytest.mark.skipif(ME != 0, reason="only root can give a file to somebody else")


def test_missing_directories_are_nobody_s(tmp_path: pathlib.Path) -> None:
    parents(str(tmp_path / "a/b/c"), ME)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_made_below_a_directory_of_others(tmp_path: pathlib.Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    with pytest.raises(NpuError, match="^%s is writable for users other" % (tmp_path / "shared")):
        private_directory(str(tmp_path / "shared/a/b"), ME)
    assert list((tmp_path / "shared").iterdir()) == []


@pytest.mark.parametrize("target", ["{0}/shared/in", "shared/in", "other/../shared/in", "{0}/other/more"])
def test_a_link_is_followed_to_what_others_can_write(tmp_path: pathlib.Path, target: str) -> None:
    (tmp_path / "shared/in").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/more").symlink_to("../shared/in")
    (tmp_path / "shared").chmod(0o777)
    (tmp_path / "link").symlink_to(target.format(tmp_path))
    with pytest.raises(NpuError, match="^%s is writable for users other" % (tmp_path / "shared")):
        parents(str(tmp_path / "link/private"), ME)


def test_a_path_may_start_where_the_process_is(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shared/in").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "shared/in")
    parents("private", ME)
    (tmp_path / "shared").chmod(0o777)
    with pytest.raises(NpuError, match="^%s is writable for users other" % (tmp_path / "shared")):
        parents("private", ME)


def test_links_in_a_circle_end(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(NpuError, match="symbolic link"):
        parents(str(tmp_path / "a/private"), ME)


@root
def test_a_link_of_another_user_in_a_shared_directory_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    (tmp_path / "tmp/link").symlink_to(tmp_path)
    parents(str(tmp_path / "tmp/link/private"), ME)
    os.lchown(tmp_path / "tmp/link", 65534, 65534)
    with pytest.raises(NpuError, match="^%s is a symbolic link that user ID" % (tmp_path / "tmp/link")):
        parents(str(tmp_path / "tmp/link/private"), ME)


@root
def test_a_directory_of_another_user_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 65534, 65534)
    with pytest.raises(NpuError, match="^%s is writable for users other" % (tmp_path / "theirs")):
        parents(str(tmp_path / "theirs/a"), ME)
