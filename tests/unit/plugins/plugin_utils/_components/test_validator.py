# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The validator's container that stays: when it proves driver and toolkit again."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import container, objects

SHELLS = [shell for shell in (["/bin/sh"], ["busybox", "sh"]) if shutil.which(shell[0])]
# In place of the host's tool: notes how it was called, and writes the ready files as a driver that works would have it.
TOOL = """#!/bin/sh
echo "$*" >>"$CALLS"
for file in "$DRIVER_READY" "$TOOLKIT_READY"; do [ -e "$file" ] || : >"$file"; done
"""


def until(met: Callable[[], bool]) -> bool:
    end = time.monotonic() + 10
    while not met() and time.monotonic() < end:
        time.sleep(0.02)
    return met()


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: str(shell[0]))
def test_000_40_a_driver_is_not_proven_again_while_its_container_is_replaced(shell: list[str], tmp_path: Path) -> None:
    main = container(
        objects(
            driver={"enabled": True, "image": {"tag": "1"}, "manager": {"image": {"tag": "1"}}}, marker_dir="/marks"
        ),
        "validator",
    )
    values = {
        item["name"]: item["value"].replace("/host/marks", str(tmp_path)) for item in main["env"] if "value" in item
    }
    ready, toolkit, stopped, calls, tool = (
        tmp_path / name for name in (".driver-ctr-ready", "toolkit-ready", ".driver-ctr-stopped", "calls", "tool")
    )
    tool.write_text(TOOL)
    tool.chmod(0o755)
    for path in (ready, toolkit, calls):
        path.touch()
    values.update(PATH=os.environ["PATH"], CALLS=str(calls))
    script = main["command"][2].replace("sleep 5", "sleep 0.05").replace("chroot", str(tool))
    process = subprocess.Popen([*shell, "-c", script, *main["command"][3:], *main["args"]], env=values)

    def times() -> int:
        return len(calls.read_text().splitlines())

    try:
        time.sleep(0.4)
        stopped.touch()
        ready.unlink()
        toolkit.unlink()
        time.sleep(0.4)
        assert times() == 0
        stopped.unlink()
        assert until(lambda: ready.exists() and toolkit.exists())
        # Once for what went, and once more for what was written since.
        assert until(lambda: times() == 2)
        toolkit.unlink()
        assert until(toolkit.exists) and until(lambda: times() == 3)
    finally:
        process.terminate()
        assert process.wait(timeout=10) == 0
    assert set(calls.read_text().splitlines()) == {
        "/host %s validate --scope driver --scope toolkit --markers write" % values["RBLN_HOST_TOOL"]
    }


def test_the_mark_of_a_driver_that_is_no_container_any_more_says_nothing() -> None:
    main = container(
        objects(container_toolkit={"enabled": True, "image": {"tag": "1"}}, driver={"enabled": False}), "validator"
    )
    assert [item.get("value", "") for item in main["env"] if item["name"] == "DRIVER_STOPPED"] == [""]
