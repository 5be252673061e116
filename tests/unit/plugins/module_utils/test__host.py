# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The door to a machine: five answers that are never confused, links that stay inside the root, commands with a limit."""

from __future__ import annotations

import os
import pathlib

import pytest

from ansible_collections.rebellions.npu.plugins.module_utils._host import Host, run_command


def test_value_and_absent(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a").write_text("text", encoding="utf-8")
    host = Host(str(tmp_path))
    assert (host.read_text("/a").state, host.read_text("/a").value) == ("value", "text")
    assert host.read_text("/b").state == "absent"
    assert host.read_text("/a/b").state == "absent"


def test_denied(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a").write_text("text", encoding="utf-8")
    (tmp_path / "a").chmod(0)
    me = os.geteuid()
    try:
        if me == 0:
            os.seteuid(65534)
        assert Host(str(tmp_path)).read_text("/a").state == "denied"
    finally:
        os.seteuid(me)


def test_a_directory_in_a_files_place_is_failed(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a").mkdir()
    assert Host(str(tmp_path)).read_text("/a").state == "failed"


def test_a_pipe_in_a_files_place_holds_nobody(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "a")
    assert Host(str(tmp_path)).read_text("/a").state == "failed"


def test_links_stay_inside_the_root(tmp_path: pathlib.Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "real").write_text("inside", encoding="utf-8")
    (tmp_path / "absolute").symlink_to("/etc/real")
    (tmp_path / "climbing").symlink_to("../../../../etc/real")
    (tmp_path / "loop").symlink_to("loop")
    host = Host(str(tmp_path))
    assert host.read_text("/absolute").value == "inside"
    assert host.read_text("/climbing").value == "inside"
    assert host.resolve("/absolute").value == "/etc/real"
    assert host.read_text("/loop").state == "failed"


@pytest.mark.parametrize(
    "argv, state",
    [(["true"], "value"), (["false"], "value"), (["no-such-program-here"], "absent"), (["/dev/null"], "denied"), (["sleep", "5"], "timeout")],
)
def test_commands(argv: list[str], state: str) -> None:
    assert run_command(argv, 0.3).state == state


def test_streams_are_kept_apart() -> None:
    done = run_command(["sh", "-c", "echo out; echo err >&2; exit 3"], 5).value
    assert (done.rc, done.out, done.err) == (3, "out\n", "err\n")


def test_a_program_of_an_image_is_not_run(tmp_path: pathlib.Path) -> None:
    found = Host(str(tmp_path)).run(["true"])
    assert found.state == "absent"
    assert str(tmp_path) in found.detail
