# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has begun is on the disk before it happens."""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
import time
import typing as t
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._driver import journal as _journal
from ansible_collections.rebellions.npu.plugins.module_utils._driver.journal import Journal, utc
from ansible_collections.rebellions.npu.plugins.module_utils._host.command import run_command
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host


@pytest.fixture(name="journal")
def journal_fixture(tmp_path: Path) -> Journal:
    return Journal(Host(str(tmp_path), clock=lambda: 1769860800.9), PROFILE)


def on_disk(journal: Journal) -> t.Any:
    path = Path(journal.host.real(journal.path))
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def test_times_are_utc(journal: Journal) -> None:
    assert utc(journal.host) == "2026-01-31T12:00:00Z"


def test_a_step_is_noted_before_it_acts_and_done_after_it(journal: Journal) -> None:
    seen = []
    journal.begin({"id": "x", "done": ["stop"]})
    assert on_disk(journal) == {"id": "x", "done": ["stop"]}
    assert journal.step("install", lambda: seen.append(on_disk(journal)) or "result") == "result"
    assert seen == [{"id": "x", "done": ["stop"], "step": "install"}]
    assert on_disk(journal) == {"id": "x", "done": ["stop", "install"], "step": "install"}
    assert [item["step"] for item in journal.times] == ["install"] and journal.times[0]["seconds"] >= 0
    assert stat.S_IMODE(os.stat(journal.host.real(journal.path)).st_mode) == 0o600
    journal.end()
    assert (on_disk(journal), journal.record, journal.interrupted()) == (None, {}, None)


def test_a_wait_before_the_change_is_noted_beside_the_journal_and_leaves_nothing(journal: Journal) -> None:
    note = Path(journal.host.real(journal.path)).with_name("waits.json")
    journal.tell("")
    assert not note.parent.exists()
    journal.tell("waits for npu-job (pid 1)")
    assert json.loads(note.read_text(encoding="utf-8")) == {"text": "waits for npu-job (pid 1)"}
    assert (on_disk(journal), journal.interrupted()) == (None, None)
    journal.tell("")
    assert not note.exists()
    # A note that cannot be written stops no wait.
    note.mkdir()
    journal.tell("waits")
    journal.tell("")


@pytest.mark.parametrize("error", [NpuError("x"), KeyboardInterrupt()], ids=["error", "kill"])
def test_a_step_that_fails_has_begun_and_is_not_done(journal: Journal, error: BaseException) -> None:
    def fail() -> None:
        raise error

    journal.begin({"done": []})
    with pytest.raises(type(error)):
        journal.step("install", fail)
    assert on_disk(journal) == {"done": [], "step": "install"}
    assert [item["step"] for item in journal.times] == ["install"]


def test_a_step_that_cannot_be_noted_does_not_happen(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: t.Any) -> None:
        raise NpuError("No space left on device.")

    journal.begin({"done": []})
    monkeypatch.setattr(_journal, "write_record", full)
    seen: list[int] = []
    with pytest.raises(NpuError, match="No space left"):
        journal.step("install", lambda: seen.append(1))
    assert (seen, on_disk(journal)) == ([], {"done": []})


def test_changes_are_added_to_what_is_noted(journal: Journal) -> None:
    journal.begin({"done": []})
    journal.save(stopped=["a.service"])
    journal.save(reboot=True)
    assert on_disk(journal) == {"done": [], "stopped": ["a.service"], "reboot": True}
    assert Journal(journal.host, PROFILE).interrupted() == on_disk(journal)


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_a_journal_that_cannot_be_read_is_an_interrupted_change(journal: Journal, text: str) -> None:
    path = Path(journal.host.real(journal.path))
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    assert journal.interrupted() == {}


def test_a_journal_that_may_not_be_read_is_an_error(journal: Journal) -> None:
    journal.begin({})
    os.chmod(journal.host.real(journal.path), 0)
    me = os.geteuid()
    try:
        if me == 0:
            os.seteuid(65534)
        with pytest.raises(
            NpuError, match="^/var/lib/rbln/journal.json cannot be read: Permission denied. Next: Run as root.$"
        ):
            journal.interrupted()
    finally:
        os.seteuid(me)


def test_one_change_at_a_time(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_journal, "LOCK_WAIT", 0.1)
    with journal.locked():
        with pytest.raises(
            NpuError,
            match="^The lock of /var/lib/rbln is held: another change of the driver runs on this host",
        ):
            with Journal(journal.host, PROFILE).locked():
                raise AssertionError("two changes at once")
    with Journal(journal.host, PROFILE).locked():
        assert stat.S_IMODE(os.stat(journal.host.real("/var/lib/rbln")).st_mode) == 0o755
    with pytest.raises(ValueError):
        with journal.locked():
            raise ValueError
    with journal.locked():
        pass


def begun(journal: Journal, *argv: str) -> int:
    """A process that changes the driver with this command; its PID."""
    pid = os.fork()
    if not pid:
        try:
            with journal.locked():
                journal.host.run(argv, 60)
        finally:
            os._exit(0)
    return pid


def ended(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.fixture(name="living")
def living_fixture(tmp_path: Path) -> Journal:
    return Journal(Host(str(tmp_path), run_command), PROFILE)


def told(journal: Journal) -> NpuError:
    with pytest.raises(NpuError) as found:
        with journal.locked():
            raise AssertionError("two changes at once")
    return found.value


def test_the_installer_of_a_killed_change_keeps_the_lock_and_is_named(
    living: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_journal, "LOCK_WAIT", 0.1)
    child = begun(living, "sh", "-c", "echo $$ >%s/pid; exec sleep 60" % tmp_path)
    until(lambda: bool((tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip()))
    error = told(living)
    assert "python" in error.message and "sleep (pid " in error.message, error.message
    ended(child)
    installer = int((tmp_path / "pid").read_text())
    error = told(living)
    assert error.message.startswith("A change of the driver still runs on this host: sleep (pid %d)" % installer), (
        error.message
    )
    assert error.next_step.endswith("kill %d." % installer) and "python" not in error.message
    os.kill(installer, signal.SIGKILL)
    until(lambda: not os.path.exists("/proc/%d/fd/0" % installer))
    with living.locked():
        pass


def test_an_installer_run_from_its_descriptor_is_called_by_its_file(
    living: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_journal, "LOCK_WAIT", 0.1)
    path = tmp_path / "driver.run"
    path.write_text("#!/bin/sh\necho $$ >%s/pid\nsleep 60\n" % tmp_path)
    path.chmod(0o700)
    with open(path, "rb") as stream:
        os.set_inheritable(stream.fileno(), True)
        living.host._runner = lambda argv, timeout, env, cwd, fds: run_command(
            argv, timeout, env, cwd, (*fds, stream.fileno())
        )
        child = begun(living, "/proc/self/fd/%d" % stream.fileno())
    until(lambda: bool((tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip()))
    ended(child)
    error = told(living)
    group = int((tmp_path / "pid").read_text())
    os.killpg(group, signal.SIGKILL)
    assert "driver.run (pid %d)" % group in error.message and "sleep (pid " in error.message, error.message


def test_a_daemon_that_an_installer_started_does_not_keep_the_lock(living: Journal, tmp_path: Path) -> None:
    with living.locked():
        line = "setsid sleep 60 </dev/null >/dev/null 2>&1 & echo $! >%s/pid" % tmp_path
        assert living.host.run(["sh", "-c", line], 10).ok
    daemon = int((tmp_path / "pid").read_text())
    try:
        # The shells before it open and close files of their own.
        until(lambda: Path("/proc/%d/comm" % daemon).read_text() == "sleep\n")
        held = [os.readlink(one) for one in Path("/proc/%d/fd" % daemon).iterdir()]
        assert living.host.real("/var/lib/rbln") in held and living.host.inherited == ()
        with living.locked():
            pass
    finally:
        os.kill(daemon, signal.SIGKILL)


def until(true: t.Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_full_disk_before_the_first_note_changes_nothing(journal: Journal) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with journal.locked():
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
        try:
            with pytest.raises(NpuError, match="^/var/lib/rbln/journal.json cannot be written: .*Make room"):
                journal.begin({"id": "x"})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(journal.host.real("/var/lib/rbln")) == [] and journal.interrupted() is None


def test_a_directory_that_cannot_be_made_is_one_error(journal: Journal) -> None:
    Path(journal.host.real("/var")).write_text("in the way", encoding="utf-8")
    with pytest.raises(NpuError, match="^/var/lib/rbln cannot be created: Not a directory."):
        with journal.locked():
            raise AssertionError("there is no directory to lock")
