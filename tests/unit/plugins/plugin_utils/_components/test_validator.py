# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The validator's container that stays: when it proves driver and toolkit again."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import container, objects

SHELLS = [shell for shell in (["/bin/sh"], ["busybox", "sh"]) if shutil.which(shell[0])]
# In place of the host's tool: notes how it was called, and writes the ready files as a driver that works would have it.
TOOL = """#!/bin/sh
echo "$*" >>"$CALLS"
for file in "$DRIVER_READY" "$TOOLKIT_READY"; do [ -e "$file" ] || : >"$file"; done
"""


# In place of sleep: notes that a round has ended, and lets the next one begin when the test says so.
TURN = """#!/bin/sh
echo >>"$FOLDER/rounds"
until [ -e "$FOLDER/go" ]; do sleep 0.01; done
rm "$FOLDER/go"
"""


class Rounds:
    """The script's rounds, one at a time, so that no file changes while it looks."""

    def __init__(self, folder: Path) -> None:
        self._rounds, self._go = folder / "rounds", folder / "go"

    def wait(self, number: int) -> None:
        end = time.monotonic() + 60
        while not (self._rounds.exists() and len(self._rounds.read_text()) >= number):
            assert time.monotonic() < end, number
            time.sleep(0.01)

    def step(self) -> None:
        number = len(self._rounds.read_text())
        self._go.touch()
        self.wait(number + 1)


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
    ready, toolkit, stopped, calls, tool, turn = (
        tmp_path / name
        for name in (".driver-ctr-ready", "toolkit-ready", ".driver-ctr-stopped", "calls", "tool", "turn")
    )
    for path, text in ((tool, TOOL), (turn, TURN)):
        path.write_text(text)
        path.chmod(0o755)
    for path in (ready, toolkit, calls):
        path.touch()
    values.update(PATH=os.environ["PATH"], CALLS=str(calls), FOLDER=str(tmp_path))
    script = main["command"][2].replace("sleep 5", str(turn)).replace("chroot", str(tool))
    process = subprocess.Popen([*shell, "-c", script, *main["command"][3:], *main["args"]], env=values)

    def times() -> int:
        return len(calls.read_text().splitlines())

    rounds = Rounds(tmp_path)
    try:
        rounds.wait(1)
        stopped.touch()
        ready.unlink()
        toolkit.unlink()
        rounds.step()
        rounds.step()
        assert times() == 0
        stopped.unlink()
        rounds.step()
        assert (times(), ready.exists(), toolkit.exists()) == (1, True, True)
        # Once for what went, and once more for what was written since.
        rounds.step()
        rounds.step()
        assert times() == 2
        toolkit.unlink()
        rounds.step()
        assert (times(), toolkit.exists()) == (3, True)
    finally:
        process.terminate()
        assert process.wait(timeout=60) == 0
        (tmp_path / "go").touch()
    assert set(calls.read_text().splitlines()) == {
        "/host %s validate --scope driver --scope toolkit --markers write" % values["RBLN_HOST_TOOL"]
    }


def test_the_mark_of_a_driver_that_is_no_container_any_more_says_nothing() -> None:
    main = container(
        objects(container_toolkit={"enabled": True, "image": {"tag": "1"}}, driver={"enabled": False}), "validator"
    )
    assert [item.get("value", "") for item in main["env"] if item["name"] == "DRIVER_STOPPED"] == [""]
