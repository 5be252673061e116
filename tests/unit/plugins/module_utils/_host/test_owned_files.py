# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A set of files of ours: compared, installed, removed as a whole."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._host import owned_files as files
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import (
    DENIED,
    TIMEOUT,
    VALUE,
    Completed,
    Host,
    Probe,
)

PROGRAM = files.file_entry("/opt/x/tool", b"#!/usr/bin/python3\nbody\n", 0o755)
OTHER = files.file_entry("/etc/x/tool.json", b"{}\n", 0o644)
LINK = files.link_entry("/etc/wants/tool", "/opt/x/tool")
SET = [PROGRAM, OTHER, LINK]
WANTED = {str(entry["path"]): str(entry["fingerprint"]) for entry in SET}


def test_install_compare_repair_remove(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    assert files.compare_files(host, WANTED)["sha256"] is None
    assert files.install(host, SET, "/opt/python", dry=True) == list(WANTED) and os.listdir(tmp_path) == []
    assert files.install(host, SET, "/opt/python") == list(WANTED)
    assert (tmp_path / "opt/x/tool").read_bytes() == b"#!/opt/python\nbody\n"
    assert stat.S_IMODE((tmp_path / "opt/x/tool").stat().st_mode) == 0o755
    found = files.compare_files(host, WANTED)
    assert (
        found["current"] is True
        and found["sha256"] == found["wanted"] == files.combined(WANTED)
        and found["differing"] == []
    )
    assert files.install(host, SET, "/other/python") == []
    (tmp_path / "opt/x/tool").write_bytes(b"#!/opt/python\nother\n")
    (tmp_path / "etc/x/tool.json").chmod(0o600)
    (tmp_path / "etc/wants/tool").unlink()
    (tmp_path / "etc/wants/tool").symlink_to("/dev/null")
    assert files.compare_files(host, WANTED)["differing"] == sorted(WANTED)
    assert (
        files.install(host, SET, "/opt/python") == list(WANTED) and files.compare_files(host, WANTED)["current"] is True
    )
    paths = list(WANTED)
    assert files.remove(host, paths, ["/opt/x", "/etc/x"], dry=True) == paths
    assert files.remove(host, paths, ["/opt/x", "/etc/x", "/etc"]) == paths + ["/opt/x", "/etc/x"]
    assert files.remove(host, paths, ["/opt/x", "/etc/x"]) == [] and (tmp_path / "etc/wants").is_dir()


def test_nothing_to_compare_with(tmp_path: Path) -> None:
    assert files.compare_files(Host(str(tmp_path)), {}) == {
        "current": None,
        "sha256": None,
        "wanted": None,
        "differing": [],
    }


def test_a_directory_in_the_way_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "opt/x/tool/inside").mkdir(parents=True)
    with pytest.raises(NpuError) as raised:
        files.install(Host(str(tmp_path)), SET, "/opt/python")
    assert "/opt/x/tool" in raised.value.message and os.listdir(tmp_path / "opt/x") == ["tool"]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            Probe(DENIED, None, "Operation not permitted"),
            "does not let /opt/x/tool run: Operation not permitted. Next:",
        ),
        (
            Probe(VALUE, Completed(126, "", "bad interpreter\n")),
            "run: bad interpreter. Next: Let it run: with fapolicyd put `allow perm=any all : dir=/opt/x/` in ",
        ),
        (Probe(VALUE, Completed(0, "usage", "")), ""),
        (Probe(TIMEOUT, None, "no end within 60 s"), ""),
    ],
)
def test_fapolicyd_311_a_program_that_may_not_run_is_told_and_left_to_be_trusted(
    tmp_path: Path, answer: Probe, told: str
) -> None:
    # Hosts by a STIG run only programs that are trusted, whatever the mode (RHEL9-STIG 60).
    asked: list[list[str]] = []

    def run(argv: list[str], timeout: float, env: object = None) -> Probe:
        asked.append(list(argv))
        return answer

    host = Host(str(tmp_path), runner=run)
    changed = files.install(host, SET, "/opt/python")
    if told:
        with pytest.raises(NpuError) as caught:
            files.require_running(host, SET, changed)
        assert told in str(caught.value)
    else:
        files.require_running(host, SET, changed)
    assert asked == [["/opt/x/tool", "--help"]]
    # Where it is, it can be looked at and trusted; the next run tries it again.
    assert (tmp_path / "opt/x/tool").read_bytes() == b"#!/opt/python\nbody\n"
    assert stat.S_IMODE((tmp_path / "opt/x/tool").stat().st_mode) == (0o644 if told else 0o755)
    assert files.install(host, SET, "/opt/python") == (["/opt/x/tool"] if told else [])
    files.require_running(host, SET, [])
    assert len(asked) == 1
