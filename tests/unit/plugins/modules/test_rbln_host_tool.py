# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the module does around its files: systemd and udev are told, also of half an installation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import ABSENT, Host, Probe
from ansible_collections.rebellions.npu.plugins.module_utils._host.owned_files import file_entry
from ansible_collections.rebellions.npu.tests.unit.fixtures.module_run import in_process

UNIT, OTHER = "/etc/systemd/system/x.service", "/etc/x"
TOLD = ["systemctl daemon-reload", "udevadm control --reload"]


@pytest.mark.parametrize(
    "state, blocked, check, told",
    [
        ("present", False, False, TOLD),
        ("present", False, True, []),
        # The unit is written; the other file has a directory in its place.
        ("present", True, False, TOLD),
        ("present", True, True, []),
        ("absent", True, False, TOLD),
    ],
)
def test_systemd_is_told_of_what_was_done(
    state: str, blocked: bool, check: bool, told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def run(_host: Host, argv: list[str], *_more: Any) -> Probe:
        asked.append(" ".join(argv))
        return Probe(ABSENT)

    monkeypatch.setattr(Host, "run", run)
    if state == "absent":
        (tmp_path / UNIT[1:]).parent.mkdir(parents=True)
        (tmp_path / UNIT[1:]).touch()
    if blocked:
        (tmp_path / OTHER[1:] / "full").mkdir(parents=True)
    files = [file_entry(UNIT, b"[Unit]\n", 0o644), file_entry(OTHER, b"x", 0o644)]
    arguments = {"state": state, "root": str(tmp_path), "files": files, "interpreter": "/usr/bin/python3"}
    code, result = in_process("rbln_host_tool", {**arguments, "_ansible_check_mode": check})
    assert (code != 0) is (blocked and not check), result
    assert [line for line in asked if "stop" not in line] == told
    if not blocked and not check:
        asked.clear()
        assert in_process("rbln_host_tool", arguments)[1]["changed"] is False and asked == []
