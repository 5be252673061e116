# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The door to a machine.

Five answers that are never confused, links that stay inside the root, and commands with a limit.
"""

from __future__ import annotations

import io
import os
import pathlib
import signal
import socket
import subprocess
import time
import typing as t

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._host import command
from ansible_collections.rebellions.npu.plugins.module_utils._host.command import end_session, run_command
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host, Limit, Probe


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


def test_a_socket_or_a_device_in_a_files_place_is_neither_read_nor_absent(tmp_path: pathlib.Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "a"))
        found = Host(str(tmp_path)).read_text("/a")
    assert (found.state, found.detail) == ("failed", "a socket, not a file")
    found = Host().read_text("/dev/zero")
    assert (found.state, found.detail) == ("failed", "a device, not a file")


def test_a_file_past_its_limit_is_too_large_and_nothing_of_it_is_used(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 10)
    host = Host(str(tmp_path))
    assert host.read_bytes("/a", 10).value == b"x" * 10
    found = host.read_bytes("/a", 9)
    assert (found.state, found.value, found.detail) == ("too_large", None, "it has more than 9 bytes")
    assert host.read_text("/a", 9).state == "too_large"
    assert host.read_head("/a", 9).value == b"x" * 9
    with open(tmp_path / "b", "wb") as stream:
        stream.truncate(Limit.CONFIG + 1)
    assert host.read_bytes("/b").state == "too_large"


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
    [
        (["true"], "value"),
        (["false"], "value"),
        (["no-such-program-here"], "absent"),
        (["/dev/null"], "denied"),
        (["sleep", "5"], "timeout"),
    ],
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


def runs(pid: int) -> bool:
    """Whether a process is there and has not ended; one that waits for its parent has."""
    try:
        return pathlib.Path("/proc/%d/stat" % pid).read_text(encoding="utf-8").rpartition(")")[2].split()[0] not in (
            "Z",
            "X",
        )
    except OSError:
        return False


def gone(pid: int) -> bool:
    """Whether a process ends soon: to be killed takes the kernel a moment."""
    deadline = time.monotonic() + 30
    while runs(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not runs(pid)


def written(path: pathlib.Path) -> list[int]:
    return [int(word) for word in path.read_text(encoding="utf-8").split()]


def test_a_command_past_its_limit_is_killed_with_its_children(tmp_path: pathlib.Path) -> None:
    script = "sleep 60 & echo $! >pids; sh -c 'trap \"\" TERM; echo $$ >>pids; sleep 60 & echo $! >>pids; wait'; wait"
    found = run_command(["sh", "-c", script], 0.5, cwd=str(tmp_path))
    assert (found.state, found.detail) == ("timeout", "sh gave no answer in 0.5 s")
    pids = written(tmp_path / "pids")
    assert len(pids) == 3 and all(gone(pid) for pid in pids)


def test_a_command_is_killed_with_its_children_when_the_caller_ends(tmp_path: pathlib.Path) -> None:
    class Ended(BaseException):
        pass

    def end(number: int, frame: t.Any) -> None:
        raise Ended

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(Ended):
            run_command(["sh", "-c", "sleep 60 & echo $! $$ >pids; wait"], 30, cwd=str(tmp_path))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert all(gone(pid) for pid in written(tmp_path / "pids"))


@pytest.mark.parametrize("where", ["", " >&2"])
def test_endless_output_ends_the_command_and_its_children(tmp_path: pathlib.Path, where: str) -> None:
    begun = time.monotonic()
    found = run_command(["sh", "-c", "sleep 600 & echo $! >pids; yes%s" % where], 60, cwd=str(tmp_path))
    assert (found.state, found.value, found.detail) == ("too_large", None, "sh printed more than 16 MiB and was ended")
    assert time.monotonic() - begun < 30
    assert all(gone(pid) for pid in written(tmp_path / "pids"))


def test_output_up_to_the_limit_is_given_whole() -> None:
    done = run_command(["sh", "-c", "head -c %d /dev/zero; echo x >&2" % (command.OUTPUT_LIMIT - 2)], 60).value
    assert (done.rc, len(done.out), done.err) == (0, command.OUTPUT_LIMIT - 2, "x\n")


def test_a_command_that_drips_does_not_outlive_its_time() -> None:
    assert run_command(["sh", "-c", "while :; do echo x; sleep 0.01; done"], 0.3).state == "timeout"


class Stuck:
    """A child that waits inside the kernel: it is there after a kill."""

    pid = 2**22 + 1  # above the largest that Linux gives

    def __init__(self, code: int | None = None) -> None:
        self.stdout, self.stderr, self.code = io.BytesIO(), io.BytesIO(), code

    def wait(self, timeout: float) -> int:
        assert timeout == command.KILL_WAIT
        if self.code is None:
            raise subprocess.TimeoutExpired("x", timeout)
        return self.code


@pytest.mark.parametrize(
    "code, words", [(None, ", and process 4194305 cannot be killed: it waits inside the kernel"), (-9, "")]
)
def test_a_process_that_cannot_be_killed_is_told_and_left(code: int | None, words: str) -> None:
    child = Stuck(code)
    assert end_session(t.cast(t.Any, child)) == words
    assert child.stdout.closed and child.stderr.closed


def test_a_process_that_left_the_session_is_no_process_that_cannot_be_killed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon that the command started keeps its output open; the command itself has ended."""
    monkeypatch.setattr(command, "KILL_WAIT", 0.3)
    found = run_command(["sh", "-c", "setsid sleep 60 & echo $! >pids; wait"], 0.5, cwd=str(tmp_path))
    os.kill(written(tmp_path / "pids")[0], signal.SIGKILL)
    assert found.detail == "sh gave no answer in 0.5 s"


def test_a_command_is_in_a_session_of_its_own_with_nothing_to_read() -> None:
    done = run_command(["sh", "-c", "cat; ps -o sid= -p $$; echo $$"], 5).value
    session, process = done.out.split()
    assert session == process and int(session) != os.getsid(0)


def test_directory_environment_and_descriptors_are_passed_on(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a").write_text("text", encoding="utf-8")
    with open(tmp_path / "a", "rb") as stream:
        done = run_command(
            ["sh", "-c", "pwd; echo $A $LC_ALL; cat /proc/self/fd/%d" % stream.fileno()],
            5,
            {"A": "b"},
            str(tmp_path),
            (stream.fileno(),),
        ).value
    assert done.out == "%s\nb C\ntext" % tmp_path


def test_a_runner_gets_directory_and_descriptors_only_where_they_are_given() -> None:
    seen: list[tuple[t.Any, ...]] = []

    def run(*arguments: t.Any) -> Probe:
        seen.append(arguments)
        return Probe("value")

    host = Host("/nowhere", run)
    host.run(["a"])
    host.run(["a"], 1.0, {"A": "b"}, "/tmp", (3,))
    host.run(["a"], cwd="/tmp")
    assert seen == [(["a"], 5.0, None), (["a"], 1.0, {"A": "b"}, "/tmp", (3,)), (["a"], 5.0, None, "/tmp", ())]
