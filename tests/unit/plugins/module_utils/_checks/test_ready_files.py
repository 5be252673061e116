# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ready files: their format, and that they are read and never run."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._checks import ready_files as markers
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.tests.unit.fixtures.validate.data import HERE

SAMPLE = (HERE / "validation_driver-ready_host.env").read_text(encoding="utf-8")
READY = "/run/rbln/validations/driver-ready"


def test_the_sample_is_what_is_written_for_a_driver_of_the_host() -> None:
    values = markers.ready_values(
        PROFILE, {"installed_via": "runfile", "root": "/"}, "/host", PROFILE.container_library_path
    )
    assert markers.render_ready(values) == SAMPLE
    assert markers.parse_ready(SAMPLE, "x") == values


def test_a_driver_container_is_said() -> None:
    values = markers.ready_values(
        PROFILE, {"installed_via": "container", "root": "/run/rbln/driver"}, "/host", "/usr/local/lib/rbln"
    )
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
