# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tools and daemon units."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._npu import tools
from ansible_collections.rebellions.npu.plugins.module_utils._npu.smi import parse_version
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import Tree, sample


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (sample("rbln-smi_version.txt"), "3.2.2"),
        ("rbln-stat version 0.12.37-6eed3e9-release\n", "0.12.37-6eed3e9-release"),
        ("v3.4", "3.4"),
        ("3.2.2~rc1 (build 7)", "3.2.2~rc1"),
        ("no version", None),
        ("7", None),
        ("", None),
    ],
)
def test_version_text(text: str, expected: str | None) -> None:
    assert parse_version(text) == expected


@pytest.mark.parametrize(
    ("script", "version", "state"),
    [
        ("echo rbln-smi 3.2.2", "3.2.2", "value"),
        ("echo what", None, "failed"),
        ("echo 3.2.2; exit 1", None, "failed"),
        ("exec sleep 9", None, "timeout"),
    ],
)
def test_version_of_the_tool(tmp_path: Path, script: str, version: str | None, state: str) -> None:
    tree = Tree(tmp_path).program("/usr/bin/rbln-smi", script + "\n").link("/usr/bin/rbln-stat", "rbln-smi")
    found = tools.read_tools(tree.host(), PROFILE, "/usr/bin/rbln-smi", 0.3)
    assert found["rbln-smi"] == {"path": "/usr/bin/rbln-smi", "version": version, "state": state}
    assert found["rbln-stat"] == {"path": "/usr/bin/rbln-stat", "version": version, "state": state}
    assert found["rblnBandwidthLatencyTest"] == {"path": None, "version": None, "state": "absent"}


UNIT = "/usr/lib/systemd/system/rbln-smd.service"
SHOW = "Id=rbln-smd.service\nLoadState=loaded\nActiveState=%s\nUnitFileState=%s\n"


def systemctl(tree: Tree, text: str, code: int = 0) -> Tree:
    return tree.program("/usr/bin/systemctl", "printf '%%s' '%s'\nexit %d\n" % (text, code))


@pytest.mark.parametrize(
    ("build", "expected", "state"),
    [
        (lambda tree: tree, {"unit": None, "state": "absent", "enabled": None}, "absent"),
        (
            lambda tree: systemctl(tree.write(UNIT), SHOW % ("active", "enabled")),
            {"unit": "rbln-smd.service", "state": "active", "enabled": True},
            "value",
        ),
        (
            lambda tree: systemctl(tree.write(UNIT), SHOW % ("failed", "disabled")),
            {"unit": "rbln-smd.service", "state": "failed", "enabled": False},
            "value",
        ),
        (
            lambda tree: systemctl(
                tree.write(UNIT).write("/lib/systemd/system/rbln_daemon.service"),
                SHOW % ("inactive", "disabled")
                + "\n"
                + (SHOW % ("active", "enabled")).replace("rbln-smd", "rbln_daemon"),
            ),
            {"unit": "rbln_daemon.service", "state": "active", "enabled": True},
            "value",
        ),
        (
            lambda tree: systemctl(tree.write(UNIT), "", 1),
            {"unit": "rbln-smd.service", "state": "unknown", "enabled": False},
            "failed",
        ),
        (
            lambda tree: tree.write(UNIT).link("/etc/systemd/system/multi-user.target.wants/rbln-smd.service", UNIT),
            {"unit": "rbln-smd.service", "state": "unknown", "enabled": True},
            "absent",
        ),
    ],
    ids=[
        "not installed",
        "active",
        "failed",
        "old name is the active one",
        "systemd does not answer",
        "image without systemctl",
    ],
)
def test_daemon(tmp_path: Path, build: Callable[[Tree], Any], expected: dict[str, Any], state: str) -> None:
    tree = Tree(tmp_path)
    build(tree)
    found, probe = tools.read_daemon(tree.host(), PROFILE, 5.0)
    assert (found, probe.state) == (expected, state)
