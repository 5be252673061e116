# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Good drivers are kept whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._driver import kept as kept_module
from ansible_collections.rebellions.npu.plugins.module_utils._driver.kept import Kept, keep, prune, read_kept, verify
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host

KEPT = "/var/lib/vendor/kept"


@pytest.fixture(name="machine")
def machine_fixture(tmp_path: Path) -> Host:
    sent = tmp_path / "sent"
    sent.mkdir()
    (sent / "driver.run").write_bytes(b"#!/bin/sh\n" * 1000)
    (sent / "a.deb").write_bytes(b"a" * 300)
    (sent / "b.deb").write_bytes(b"b" * 300)
    return Host(str(tmp_path), clock=lambda: 1790000000.0)


def record(version: str, source: str = "package", **more: Any) -> dict[str, Any]:
    return dict({"version": version, "source": source, "packages": [{"name": "kmd", "version": version}]}, **more)


def place(machine: Host, path: str = "") -> Path:
    return Path(machine.real(KEPT + path))


def names(machine: Host) -> list[str]:
    return sorted(os.listdir(place(machine)))


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_what_is_kept_is_whole_and_private(machine: Host) -> None:
    made = keep(
        machine,
        KEPT,
        record("3.4.0", "runfile", arguments=["--silent"], uninstall=["--uninstall"], extract=["-x", "{directory}"]),
        ["/sent/driver.run"],
    )
    assert made == Kept(
        version="3.4.0",
        source="runfile",
        files=[{"name": "driver.run", "sha256": digest(Path(machine.real("/sent/driver.run")))}],
        packages=[{"name": "kmd", "version": "3.4.0"}],
        arguments=["--silent"],
        uninstall=["--uninstall"],
        extract=["-x", "{directory}"],
        path=KEPT + "/runfile-3.4.0",
        time="2026-09-21T14:13:20Z",
    )
    assert read_kept(machine, KEPT) == [made]
    assert verify(machine, made) == []
    modes = {
        path: stat.S_IMODE(os.stat(place(machine, path)).st_mode)
        for path in ("", "/runfile-3.4.0", "/runfile-3.4.0/driver.run", "/runfile-3.4.0/manifest.json")
    }
    assert list(modes.values()) == [0o700, 0o700, 0o700, 0o600]


def test_packages_are_not_executable(machine: Host) -> None:
    keep(machine, KEPT, record("3.4.0"), ["/sent/a.deb", "/sent/b.deb"])
    assert stat.S_IMODE(os.stat(place(machine, "/package-3.4.0/a.deb")).st_mode) == 0o600


def test_the_newest_comes_first(machine: Host) -> None:
    for version, time in (
        ("3.2.2", "2026-01-01T00:00:00Z"),
        ("3.4.0", "2026-03-01T00:00:00Z"),
        ("3.3.0", "2026-02-01T00:00:00Z"),
    ):
        keep(machine, KEPT, record(version, time=time), ["/sent/a.deb"])
    assert [item.version for item in read_kept(machine, KEPT)] == ["3.4.0", "3.3.0", "3.2.2"]


def test_the_same_version_again_takes_its_place(machine: Host) -> None:
    keep(machine, KEPT, record("3.4.0"), ["/sent/a.deb"])
    keep(machine, KEPT, record("3.4.0"), ["/sent/b.deb"])
    assert [item.files[0]["name"] for item in read_kept(machine, KEPT)] == ["b.deb"]
    assert names(machine) == ["package-3.4.0~2"]
    keep(machine, KEPT, record("3.4.0"), ["/sent/a.deb"])
    assert names(machine) == ["package-3.4.0"]


def test_another_source_has_a_place_of_its_own(machine: Host) -> None:
    keep(machine, KEPT, record("3.4.0"), ["/sent/a.deb"])
    keep(machine, KEPT, record("3.4.0", "runfile"), ["/sent/driver.run"])
    assert names(machine) == ["package-3.4.0", "runfile-3.4.0"]


def test_a_version_cannot_lead_out_of_the_directory(machine: Host) -> None:
    made = keep(machine, KEPT, record("../../etc/3.4"), ["/sent/a.deb"])
    assert made.path == KEPT + "/package-.._.._etc_3.4"
    assert [item.version for item in read_kept(machine, KEPT)] == ["../../etc/3.4"]


def test_another_digest_leaves_nothing(machine: Host) -> None:
    with pytest.raises(NpuError, match="The SHA-256 of /sent/a.deb is .*, not 00"):
        keep(machine, KEPT, record("3.4.0", files=[{"name": "a.deb", "sha256": "00"}]), ["/sent/a.deb"])
    assert names(machine) == []


@pytest.mark.parametrize("sources", [[], ["/sent/a.deb", "/other/a.deb"], ["/sent/manifest.json"], ["/sent/.hidden"]])
def test_files_without_names_of_their_own_are_refused(machine: Host, sources: list[str]) -> None:
    with pytest.raises(NpuError, match="cannot be kept in one directory"):
        keep(machine, KEPT, record("3.4.0"), sources)


@pytest.mark.parametrize(
    "bad", [{"version": ""}, {"version": None}, {"source": ""}, {"packages": "kmd"}, {"arguments": [1]}]
)
def test_a_record_that_is_none_is_refused(machine: Host, bad: dict[str, Any]) -> None:
    with pytest.raises(NpuError, match="is not valid"):
        keep(machine, KEPT, dict(record("3.4.0"), **bad), ["/sent/a.deb"])
    assert names(machine) == []


def test_a_source_that_is_missing_leaves_nothing(machine: Host) -> None:
    with pytest.raises(NpuError, match="/sent/none.deb cannot be kept: No such file"):
        keep(machine, KEPT, record("3.4.0"), ["/sent/a.deb", "/sent/none.deb"])
    assert names(machine) == []


@pytest.mark.parametrize("at", ["open", "fsync", "rename", "mkdtemp"])
def test_a_full_disk_leaves_what_was_there(machine: Host, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    old = keep(machine, KEPT, record("3.4.0"), ["/sent/a.deb"])
    real = os.open

    def full(*words: Any, **more: Any) -> Any:
        if at == "open" and not words[1] & os.O_CREAT:
            return real(*words, **more)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(kept_module.tempfile if at == "mkdtemp" else os, at, full)
    with pytest.raises(NpuError, match="No space left on device. Next: Make room on that file system"):
        keep(machine, KEPT, record("3.4.0"), ["/sent/b.deb"])
    monkeypatch.undo()
    assert read_kept(machine, KEPT) == [old]
    assert names(machine) == ["package-3.4.0"]
    assert verify(machine, old) == []


class Killed(BaseException):
    """The end of the process; only files tell what it did."""


class Moments:
    """Ends the process before the call with the number `last` that touches the file system."""

    CALLS = ("mkdir", "rename", "fsync", "open", "fchmod", "rmdir", "unlink")

    def __init__(self, patch: pytest.MonkeyPatch, last: int) -> None:
        self.last, self.count = last, 0
        for name in self.CALLS:
            patch.setattr(os, name, self.counted(getattr(os, name)))
        patch.setattr(shutil, "rmtree", lambda *words, **more: self.counted(list)())

    def counted(self, real: Any) -> Any:
        def call(*words: Any, **more: Any) -> Any:
            self.count += 1
            if self.count > self.last:
                raise Killed
            return real(*words, **more)

        return call


def test_killed_at_any_moment_there_is_the_old_or_the_new_one(machine: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    ended, moment = False, 0
    while not ended:
        shutil.rmtree(place(machine), ignore_errors=True)
        keep(machine, KEPT, record("3.4.0"), ["/sent/a.deb"])
        with monkeypatch.context() as patch:
            Moments(patch, moment)
            try:
                keep(machine, KEPT, record("3.4.0"), ["/sent/b.deb"])
                ended = True
            except Killed:
                moment += 1
        found = read_kept(machine, KEPT)
        assert all(verify(machine, item) == [] for item in found)
        assert {item.files[0]["name"] for item in found} in ({"a.deb"}, {"b.deb"}, {"a.deb", "b.deb"})
        keep(machine, KEPT, record("3.4.0"), ["/sent/b.deb"])
        assert [item.files[0]["name"] for item in read_kept(machine, KEPT)] == ["b.deb"]
        prune(machine, KEPT, 2)
        assert len(names(machine)) == 1
    assert moment > 10


def damaged(machine: Host, how: str) -> None:
    folder = place(machine, "/package-3.4.0")
    manifest = folder / "manifest.json"
    if how == "cut file":
        os.truncate(folder / "a.deb", 299)
    elif how == "longer file":
        (folder / "a.deb").write_bytes(b"a" * 301)
    elif how == "file is a link":
        (folder / "a.deb").rename(folder / "c")
        (folder / "a.deb").symlink_to("c")
    elif how == "file is gone":
        (folder / "a.deb").unlink()
    elif how == "file is a pipe":
        (folder / "a.deb").unlink()
        os.mkfifo(folder / "a.deb")
    elif how == "cut manifest":
        os.truncate(manifest, manifest.stat().st_size - 5)
    elif how == "empty manifest":
        manifest.write_text("")
    elif how == "no manifest":
        manifest.unlink()
    elif how == "manifest is a link":
        manifest.rename(folder / "m")
        manifest.symlink_to("m")
    elif how == "folder is a link":
        folder.rename(place(machine, "/../elsewhere"))
        folder.symlink_to("../elsewhere")
    elif how == "staged":
        folder.rename(place(machine, "/.staged-x"))
    else:
        data = json.loads(manifest.read_text())
        change: dict[str, Any] = {
            "list": [],
            "deep": None,
            "other schema": dict(data, schema=2),
            "no files": dict(data, files=[]),
            "path as a name": dict(data, files=[{"name": "../x", "sha256": ""}], sizes={"../x": 1}),
            "no sizes": {key: value for key, value in data.items() if key != "sizes"},
            "files are text": dict(data, files=["a.deb"]),
            "number as version": dict(data, version=3),
        }
        manifest.write_text("[" * 100000 if how == "deep" else json.dumps(change[how]))


HOWS = [
    "cut file", "longer file", "file is a link", "file is gone", "file is a pipe", "cut manifest", "empty manifest",
    "no manifest", "manifest is a link",
    "folder is a link", "staged", "list", "deep", "other schema", "no files", "path as a name", "no sizes",
    "files are text", "number as version",
]  # fmt: skip


@pytest.mark.parametrize("how", HOWS)
def test_what_is_not_whole_does_not_count_and_goes(machine: Host, how: str) -> None:
    good = keep(machine, KEPT, record("3.2.2"), ["/sent/b.deb"])
    keep(machine, KEPT, record("3.4.0"), ["/sent/a.deb"])
    damaged(machine, how)
    assert read_kept(machine, KEPT) == [good]
    assert len(prune(machine, KEPT, 5)) == 1
    assert names(machine) == ["package-3.2.2"]
    if how == "folder is a link":
        assert sorted(os.listdir(place(machine, "/../elsewhere"))) == ["a.deb", "manifest.json"]


def test_a_bit_that_turned_is_found(machine: Host) -> None:
    made = keep(machine, KEPT, record("3.4.0"), ["/sent/a.deb", "/sent/b.deb"])
    place(machine, "/package-3.4.0/b.deb").write_bytes(b"b" * 299 + b"c")
    assert read_kept(machine, KEPT) == [made]
    assert verify(machine, made) == ["b.deb"]
    place(machine, "/package-3.4.0/a.deb").unlink()
    place(machine, "/package-3.4.0/a.deb").symlink_to("/sent/a.deb")
    assert verify(machine, made) == ["a.deb", "b.deb"]


@pytest.mark.parametrize(
    "number, protect, left",
    [
        (5, (), ["3", "2", "1"]),
        (2, (), ["3", "2"]),
        (1, (), ["3"]),
        (0, (), []),
        (0, ("1",), ["1"]),
        (1, ("1",), ["1"]),
        (2, ("1",), ["3", "1"]),
        (1, ("1", "2"), ["2", "1"]),
        (1, ("9",), ["3"]),
    ],
)
def test_the_newest_stay_and_the_protected(
    machine: Host, number: int, protect: tuple[str, ...], left: list[str]
) -> None:
    for version in ("1", "2", "3"):
        keep(machine, KEPT, record(version, time="2026-01-0%sT00:00:00Z" % version), ["/sent/a.deb"])
    removed = prune(machine, KEPT, number, protect)
    assert [item.version for item in read_kept(machine, KEPT)] == left
    assert removed == [KEPT + "/package-" + version for version in ("1", "2", "3") if version not in left]


def test_nothing_kept_is_nothing_to_prune(machine: Host) -> None:
    assert read_kept(machine, KEPT) == []
    assert prune(machine, KEPT, 0) == []


def test_a_link_in_place_of_the_directory_is_refused(machine: Host, tmp_path: Path) -> None:
    (tmp_path / "var/lib/vendor").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    place(machine).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NpuError, match="is not a directory of user"):
        keep(machine, KEPT, record("3.4.0"), ["/sent/a.deb"])
    assert os.listdir(tmp_path / "elsewhere") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a directory away, for which it takes root")
def test_a_directory_of_somebody_else_is_refused(machine: Host) -> None:
    place(machine).mkdir(parents=True)
    os.chown(place(machine), 12345, 12345)
    with pytest.raises(NpuError, match="is not a directory of user ID 0"):
        keep(machine, KEPT, record("3.4.0"), ["/sent/a.deb"])


def test_a_wide_directory_is_narrowed(machine: Host) -> None:
    place(machine).mkdir(parents=True)
    place(machine).chmod(0o777)
    keep(machine, KEPT, record("3.4.0"), ["/sent/a.deb"])
    assert stat.S_IMODE(place(machine).stat().st_mode) == 0o700


def test_a_source_that_is_a_link_is_kept_as_its_file(machine: Host, tmp_path: Path) -> None:
    (tmp_path / "sent" / "latest.run").symlink_to("driver.run")
    made = keep(machine, KEPT, record("3.4.0", "runfile"), ["/sent/latest.run"])
    assert verify(machine, made) == [] and not place(machine, "/runfile-3.4.0/latest.run").is_symlink()


def test_a_directory_that_cannot_be_looked_at_is_not_empty(machine: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(machine, KEPT, record("3.4.0"), ["/sent/a.deb"])

    def denied(_path: str) -> list[str]:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "listdir", denied)
    with pytest.raises(NpuError, match="cannot be read: Permission denied"):
        read_kept(machine, KEPT)
