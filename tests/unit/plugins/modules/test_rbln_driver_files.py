# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""rbln_driver_files on the host: what is missing is named, what was sent is verified and placed for root alone."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible.module_utils import basic
from ansible_collections.rebellions.npu.plugins.module_utils._packages.runfile import FILES_ARGUMENTS
from ansible_collections.rebellions.npu.plugins.modules import rbln_driver_files

DATA = b"#!/bin/sh\n"
SHA = hashlib.sha256(DATA).hexdigest()

Run = t.Callable[..., t.Tuple[int, t.Dict[str, t.Any]]]


@pytest.fixture(name="directory")
def directory_fixture(tmp_path: Path) -> Path:
    return tmp_path / "incoming"


@pytest.fixture(name="run")
def run_fixture(directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(check: bool = False, **arguments: t.Any) -> tuple[int, dict[str, t.Any]]:
        given = {
            "files": [{"src": "/srv/a.run", "sha256": SHA}],
            "directory": str(directory),
            **arguments,
            "_ansible_check_mode": check,
        }
        monkeypatch.setattr(basic, "_ANSIBLE_ARGS", json.dumps({"ANSIBLE_MODULE_ARGS": given}).encode())
        monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)
        with pytest.raises(SystemExit) as ended:
            rbln_driver_files.main()
        result = json.loads(capsys.readouterr().out)
        result.pop("invocation", None)
        return int(ended.value.code or 0), result

    return run


@pytest.fixture(name="sent")
def sent_fixture(tmp_path: Path) -> str:
    (tmp_path / "sent").write_bytes(DATA)
    return str(tmp_path / "sent")


def test_documented_options_are_those_it_takes() -> None:
    documented = yaml.safe_load(rbln_driver_files.DOCUMENTATION)["options"]
    taken = dict(FILES_ARGUMENTS, staged={"type": "dict"})
    assert set(documented) == set(taken)
    for name, entry in documented.items():
        given = taken[name]
        for key in ("type", "default", "choices", "elements"):
            assert entry.get(key) == given.get(key), name
        assert entry.get("required", False) == given.get("required", False), name
        if "suboptions" in entry:
            plain = {
                key: {word: item[word] for word in ("type", "required") if word in item}
                for key, item in entry["suboptions"].items()
            }
            assert plain == given["options"]


@pytest.mark.parametrize("check", [True, False])
def test_what_is_missing_is_named_and_nothing_is_made(run: Run, directory: Path, check: bool) -> None:
    path = str(directory / "a.run")
    assert run(check) == (0, {"changed": True, "files": [{"path": path, "sha256": SHA}], "missing": ["a.run"]})
    assert not directory.exists()


def test_what_was_sent_is_placed_for_root_alone_and_is_there_the_next_time(
    run: Run, directory: Path, sent: str
) -> None:
    placed = {"changed": True, "files": [{"path": str(directory / "a.run"), "sha256": SHA}], "missing": []}
    assert run(True, staged={"a.run": sent}) == (0, placed)
    assert not directory.exists()
    assert run(staged={"a.run": sent}) == (0, placed)
    assert (directory / "a.run").read_bytes() == DATA
    assert [stat.S_IMODE(os.stat(path).st_mode) for path in (directory, directory / "a.run")] == [0o700, 0o700]
    assert run() == (0, {**placed, "changed": False})
    assert run(files=[{"src": "/srv/other", "name": "a.run", "sha256": SHA.upper()}]) == (
        0,
        {**placed, "changed": False},
    )


def test_names_are_names_and_no_paths(run: Run, directory: Path, sent: str) -> None:
    files = [{"src": "/srv/", "name": "../../b.run", "sha256": SHA}, {"src": "https://h/c.run", "sha256": SHA}]
    code, result = run(files=files, staged={"b.run": sent, "c.run": sent})
    assert (code, [item["path"] for item in result["files"]]) == (
        0,
        [str(directory / "b.run"), str(directory / "c.run")],
    )
    assert sorted(os.listdir(directory)) == ["b.run", "c.run"]


def test_what_was_changed_on_the_way_is_refused(run: Run, directory: Path, sent: str) -> None:
    Path(sent).write_bytes(b"other")
    code, result = run(staged={"a.run": sent})
    assert (code, result["failed"]) == (1, True)
    assert result["msg"].startswith(
        "The SHA-256 of a.run on the host is %s, not %s." % (hashlib.sha256(b"other").hexdigest(), SHA)
    )
    assert os.listdir(directory) == []


def test_a_damaged_file_on_the_host_is_missing(run: Run, directory: Path, sent: str) -> None:
    run(staged={"a.run": sent})
    (directory / "a.run").write_bytes(b"cut")
    assert run()[1]["missing"] == ["a.run"]
    assert run(staged={"a.run": sent})[1]["changed"] is True
    assert (directory / "a.run").read_bytes() == DATA


def test_a_directory_that_others_can_write_to_is_refused(run: Run, directory: Path, sent: str) -> None:
    directory.parent.chmod(0o777)
    code, result = run(staged={"a.run": sent})
    assert code == 1 and "is writable for users other" in result["msg"]
