# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real processes: each source ends within its limits, and what it has said until then is kept."""

from __future__ import annotations

import os
import re
import sys
import time
import typing as t
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._host import apart as apart_module
from ansible_collections.rebellions.npu.plugins.module_utils._host.apart import Keep, Outcome, apart, run

MANY = 10**6


def sh(script: str, timeout: float = 10.0, keep: Keep | None = None, **more: t.Any) -> Outcome:
    return run(["sh", "-c", script], timeout, keep or Keep(MANY), **more)


def gone(pid: int, seconds: float = 3.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as stream:
                if stream.read().rpartition(")")[2].split()[0] in "ZX":
                    return True
        except FileNotFoundError:
            return True
        time.sleep(0.01)
    return False


def test_a_command_ends_as_what_it_is() -> None:
    assert sh("echo out; echo err >&2") == Outcome("value", "", b"out\n--- standard error\nerr\n")
    assert sh("echo said; exit 3") == Outcome("failed", "exit code 3", b"said\n")
    assert sh("exit 3", accept=(0, 3)).state == "value"
    assert run(["/nowhere/program"], 5.0, Keep(MANY)).state == "absent"
    assert run([str(Path(__file__))], 5.0, Keep(MANY)).state == "denied"


def test_a_command_that_hangs_is_killed_with_its_children_and_what_it_said_is_kept() -> None:
    began = time.monotonic()
    found = sh("echo first; sleep 60 & echo $!; exec sleep 60", 0.3)
    assert (found.state, found.cut) == ("timeout", True) and time.monotonic() - began < 3
    first, child = found.data.decode().split()
    assert first == "first" and gone(int(child))


def test_a_command_that_leaves_a_daemon_with_its_output_ends_too() -> None:
    found = sh("echo first; setsid sleep 3 & ", 0.3)
    assert found.state == "timeout" and found.data == b"first\n"


def test_the_newest_lines_are_kept_whole() -> None:
    found = sh("seq 1 100000", keep=Keep(1000, newest=True))
    lines = found.data.decode().splitlines()
    assert found.cut and len(found.data) <= 1000 and lines[-1] == "100000" and lines[0].isdigit()
    assert [int(one) for one in lines] == list(range(100001 - len(lines), 100001))
    assert sh("seq 1 100", keep=Keep(MANY, newest=True, lines=3)).data == b"98\n99\n100\n"


def test_else_the_first_ones_are() -> None:
    found = sh("seq 1 100000", keep=Keep(10))
    assert found == Outcome("value", "", b"1\n2\n3\n4\n5\n", True)
    assert sh("seq 1 5; printf %s end", keep=Keep(13)) == Outcome("value", "", b"1\n2\n3\n4\n5\nend", False)


def test_only_lines_that_match_count() -> None:
    keep = Keep(MANY, newest=True, only=re.compile("7$"), lines=2)
    found = sh("seq 1 100", keep=keep)
    assert found.data == b"87\n97\n" and found.cut


def test_a_line_without_an_end_takes_no_more_than_its_room() -> None:
    script = "import sys; sys.stdout.write('x' * 3000000)"
    found = run([sys.executable, "-c", script], 10.0, Keep(1000, newest=True))
    assert len(found.data) <= 1000 and found.cut


def test_who_says_too_much_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart_module, "SAID", 10**6)
    found = sh("yes", keep=Keep(100, newest=True))
    assert found.state == "too_large" and found.data.endswith(b"y\n") and len(found.data) <= 100


def work(ending: t.Callable[[], t.Any]) -> t.Callable[[t.Callable[[bytes], t.Any]], Outcome]:
    def inner(write: t.Callable[[bytes], t.Any]) -> Outcome:
        write(b"said\n")
        ending()
        return Outcome("value", "well", b"", True)

    return inner


def test_a_function_in_a_process_of_its_own_ends_as_what_it_is() -> None:
    assert apart(work(lambda: None), 5.0, Keep(MANY)) == Outcome("value", "well", b"said\n", True)
    found = apart(work(lambda: 1 // 0), 5.0, Keep(MANY))
    assert (found.state, found.detail) == ("failed", "ZeroDivisionError: integer division or modulo by zero")
    assert apart(work(lambda: open("/nowhere/file", encoding="ascii")), 5.0, Keep(MANY)).state == "absent"
    found = apart(work(lambda: os.kill(os.getpid(), 9)), 5.0, Keep(MANY))
    assert found == Outcome("failed", "the process that read it has ended by itself", b"said\n", True)


def test_a_function_that_hangs_ends_with_the_command_that_it_runs(tmp_path: Path) -> None:
    from ansible_collections.rebellions.npu.plugins.module_utils._host.command import run_command

    note = tmp_path / "pid"
    began = time.monotonic()
    found = apart(work(lambda: run_command(["sh", "-c", f"echo $$ >{note}; exec sleep 60"], 60)), 0.5, Keep(MANY))
    assert found.state == "timeout" and found.data == b"said\n" and time.monotonic() - began < 5
    assert gone(int(note.read_text()))


def test_a_function_that_heeds_no_signal_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart_module, "KILL_WAIT", 0.0)
    pids = []

    def deaf(write: t.Callable[[bytes], t.Any]) -> Outcome:
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        write(b"%d\n" % os.getpid())
        time.sleep(60)
        return Outcome("value")

    found = apart(deaf, 0.3, Keep(MANY))
    pids.append(int(found.data))
    assert found.state == "timeout" and gone(pids[0])


def test_no_descriptor_is_left_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _round in range(3):
        sh("sleep 60", 0.05)
        sh("true")
        apart(work(lambda: None), 5.0, Keep(MANY))
        apart(work(lambda: time.sleep(60)), 0.05, Keep(MANY))
    assert len(os.listdir("/proc/self/fd")) == before
