# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ready files: their format, and that they are read and never run."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ansible_collections.rebellions.npu.plugins.module_utils import _markers as markers
from ansible_collections.rebellions.npu.plugins.module_utils._host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._vendor_rebellions import PROFILE
from ansible_collections.rebellions.npu.tests.unit.fixtures.validate.data import HERE

SAMPLE = (HERE / "validation_driver-ready_host.env").read_text(encoding="utf-8")
READY = "/run/rbln/validations/driver-ready"


def test_the_sample_is_what_is_written_for_a_driver_of_the_host() -> None:
    values = markers.ready_values(PROFILE, {"installed_via": "runfile", "root": "/"}, "/host", PROFILE.container_library_path)
    assert markers.render_ready(values) == SAMPLE
    assert markers.parse_ready(SAMPLE, "x") == values


def test_a_driver_container_is_said() -> None:
    values = markers.ready_values(PROFILE, {"installed_via": "container", "root": "/run/rbln/driver"}, "/host", "/usr/local/lib/rbln")
    assert values["IS_HOST_DRIVER"] == "false" and values["RBLN_CTK_DAEMON_DRIVER_ROOT"] == "/run/rbln/driver"


@pytest.mark.parametrize(
    "text, values",
    [
        ("", {}),
        ("# note\n\nA=1\n", {"A": "1"}),
        ("A='b c'\n", {"A": "b c"}),
        ("A='$(x)'\n", {"A": "$(x)"}),
        ('A="b \\"c\\" \\$d"\n', {"A": 'b "c" $d'}),
        ("A=\nB=x=y\n", {"A": "", "B": "x=y"}),
    ],
)
def test_parse(text: str, values: dict[str, str]) -> None:
    assert markers.parse_ready(text, "x") == values


@pytest.mark.parametrize(
    "text, line",
    [
        ("A=1\nB=$(touch /tmp/x)\n", 2),
        ("A=`id`\n", 1),
        ("A=$HOME\n", 1),
        ('A="$HOME"\n', 1),
        ("A=1; reboot\n", 1),
        ("A=1 && B=2\n", 1),
        ("A=b c\n", 1),
        ("export A=1\n", 1),
        ("\n\nA B\n", 3),
        ("A = 1\n", 1),
        ("A='x\n", 1),
        ('A="x\n', 1),
        ("=1\n", 1),
        ("1A=1\n", 1),
        ("A=1\nA=2\n", 2),
        ("A=1\x00\n", 1),
    ],
)
def test_malformed_names_file_and_line(text: str, line: int) -> None:
    with pytest.raises(NpuError) as raised:
        markers.parse_ready(text, "/run/x")
    assert "/run/x, line %d:" % line in raised.value.message and raised.value.next_step


def test_reading_runs_nothing(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    trap = tmp_path / "trap"
    target = tmp_path / READY.lstrip("/")
    target.parent.mkdir(parents=True)
    target.write_text("A=$(touch %s)\n" % trap)
    found = markers.read_ready(host, READY)
    assert found.state == "failed" and READY in found.detail and not trap.exists()
    assert markers.read_markers(PROFILE, host)["driver-ready"]["state"] == "failed"


@pytest.mark.parametrize("value", ["a\nb", "it's"])
def test_a_value_that_cannot_be_written_is_refused(value: str) -> None:
    with pytest.raises(NpuError):
        markers.render_ready({"A": value})
    assert markers.render_ready({"A": "b c"}) == "A='b c'\n"


def test_unchanged_keeps_its_time_and_a_link_becomes_a_file(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    assert markers.write_file(host, READY, "A=1\n", dry=True) is True and not host.exists("/run")
    assert markers.write_file(host, READY, "A=1\n") is True
    target = tmp_path / READY.lstrip("/")
    assert stat.S_IMODE(target.stat().st_mode) == 0o644 and stat.S_IMODE(target.parent.stat().st_mode) == 0o755
    os.utime(target, (1000, 1000))
    inode = target.stat().st_ino
    assert markers.write_file(host, READY, "A=1\n") is False
    assert (target.stat().st_mtime, target.stat().st_ino) == (1000, inode)
    assert markers.write_file(host, READY, "A=2\n") is True
    assert target.stat().st_mtime > 1000
    (tmp_path / "elsewhere").write_text("A=2\n")
    target.unlink()
    target.symlink_to(tmp_path / "elsewhere")
    assert markers.write_file(host, READY, "A=2\n") is True
    assert not target.is_symlink() and sorted(os.listdir(target.parent)) == ["driver-ready"]


def test_directories_stay_inside_the_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "real").mkdir(parents=True)
    (root / "run").symlink_to("/real")
    markers.write_file(Host(str(root)), READY, "A=1\n")
    assert (root / "real/rbln/validations/driver-ready").read_text() == "A=1\n"


def test_remove(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    assert markers.remove_file(host, READY) is False
    markers.write_file(host, READY, "A=1\n")
    assert markers.remove_file(host, READY, dry=True) is True and host.exists(READY)
    assert markers.remove_file(host, READY) is True and not host.exists(READY)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    folder = tmp_path / READY.lstrip("/")
    (folder / "inside").mkdir(parents=True)
    with pytest.raises(NpuError) as raised:
        markers.write_file(host, READY, "A=1\n")
    assert READY in raised.value.message and os.listdir(folder.parent) == ["driver-ready"]


def test_renew_only_what_is_older(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    markers.write_file(host, "/spec", "x")
    os.utime(tmp_path / "spec", (1000, 1000))
    assert markers.renew(host, "/spec", 1000) is False
    assert markers.renew(host, "/spec", 1001, dry=True) is True and (tmp_path / "spec").stat().st_mtime == 1000
    assert markers.renew(host, "/spec", 1001) is True and (tmp_path / "spec").stat().st_mtime > 1001
    assert markers.renew(host, "/none", 1) is False
