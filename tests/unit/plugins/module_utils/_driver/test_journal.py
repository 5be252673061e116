# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has begun is on the disk before it happens."""

from __future__ import annotations

import json
import os
import stat
import typing as t
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._driver import journal as _journal
from ansible_collections.rebellions.npu.plugins.module_utils._driver.journal import Journal, utc
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


def test_a_directory_that_cannot_be_made_is_one_error(journal: Journal) -> None:
    Path(journal.host.real("/var")).write_text("in the way", encoding="utf-8")
    with pytest.raises(NpuError, match="^/var/lib/rbln cannot be created: Not a directory."):
        with journal.locked():
            raise AssertionError("there is no directory to lock")
