# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is noted on a host about its driver, and that a damaged note does not count as no note."""

from __future__ import annotations

import os
import stat
import typing as t
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._npu import driver_notes as state

SHA, OTHER, TIME = "a" * 64, "b" * 64, "2026-01-31T12:00:00Z"
DIRECTORY = "var/lib/rbln"


@pytest.fixture(name="host")
def host_fixture(tmp_path: Path) -> Host:
    return Host(str(tmp_path))


def write(host: Host, name: str, text: str) -> None:
    path = Path(host.root) / DIRECTORY
    path.mkdir(parents=True, exist_ok=True)
    (path / name).write_text(text, encoding="utf-8")


def test_paths() -> None:
    assert state.stamp_path(PROFILE) == "/var/lib/rbln/driver.json"
    assert [
        state.state_path(PROFILE, name)
        for name in (state.JOURNAL, state.TAINTED, state.REFUSED, state.KEPT, state.INCOMING)
    ] == [
        "/var/lib/rbln/journal.json",
        "/var/lib/rbln/tainted.json",
        "/var/lib/rbln/refused.json",
        "/var/lib/rbln/kept",
        "/var/lib/rbln/incoming",
    ]


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_a_record_is_written_whole_and_read_again(host: Host, mode: int) -> None:
    state.write_record(host, "/var/lib/rbln/a.json", {"b": 1, "a": ["é"]}, mode)
    path = Path(host.root) / DIRECTORY / "a.json"
    assert path.read_text(encoding="utf-8") == '{\n "a": [\n  "\\u00e9"\n ],\n "b": 1\n}\n'
    assert (stat.S_IMODE(path.stat().st_mode), os.listdir(path.parent)) == (mode, ["a.json"])
    assert state.read_record(host, "/var/lib/rbln/a.json").value == {"a": ["é"], "b": 1}


@pytest.mark.parametrize(
    "text, found",
    [
        (None, "absent"),
        ("", "failed"),
        ("{", "failed"),
        ("[]", "failed"),
        ("1", "failed"),
        ("null", "failed"),
        ("{}", "value"),
    ],
)
def test_what_is_no_object_is_no_record(host: Host, text: str | None, found: str) -> None:
    if text is not None:
        write(host, "a.json", text)
    assert state.read_record(host, "/var/lib/rbln/a.json").state == found


def test_a_record_that_cannot_be_written_is_one_error(host: Host) -> None:
    (Path(host.root) / "var").write_text("in the way", encoding="utf-8")
    with pytest.raises(NpuError, match="a.json cannot be written"):
        state.write_record(host, "/var/lib/rbln/a.json", {})


# -- versions that failed here


def refused(host: Host) -> list[tuple[str, str, str]]:
    return [(entry["version"], entry["sha256"], entry["reason"]) for entry in state.read_refused(host, PROFILE)]


def test_refusals_are_of_a_version_and_a_file(host: Host) -> None:
    assert refused(host) == []
    state.refuse(host, PROFILE, "3.4.0", SHA, "first", TIME)
    state.refuse(host, PROFILE, "3.4.0", OTHER, "another file", TIME)
    state.refuse(host, PROFILE, "3.5.0", SHA, "another version", TIME)
    state.refuse(host, PROFILE, "3.4.0", SHA, "again", TIME)
    assert refused(host) == [
        ("3.4.0", OTHER, "another file"),
        ("3.5.0", SHA, "another version"),
        ("3.4.0", SHA, "again"),
    ]
    assert state.read_refused(host, PROFILE)[0]["time"] == TIME
    state.forgive(host, PROFILE, "3.4.0", "")
    assert refused(host) == [("3.5.0", SHA, "another version")]
    before = os.stat(Path(host.root) / DIRECTORY / "refused.json").st_ino
    state.forgive(host, PROFILE, "9.9.9", OTHER)
    assert os.stat(Path(host.root) / DIRECTORY / "refused.json").st_ino == before
    state.forgive(host, PROFILE, "3.5.0", SHA)
    assert os.listdir(Path(host.root) / DIRECTORY) == []
    state.forgive(host, PROFILE, "3.5.0", SHA)


def test_a_refusal_without_a_version_is_forgiven_by_its_file_and_one_without_both_by_any_success(host: Host) -> None:
    state.refuse(host, PROFILE, "", SHA, "a file", TIME)
    state.refuse(host, PROFILE, "", "", "neither", TIME)
    state.refuse(host, PROFILE, "", OTHER, "another file", TIME)
    state.forgive(host, PROFILE, "3.4.0", SHA)
    assert refused(host) == [("", OTHER, "another file")]


def test_only_so_many_refusals_are_remembered(host: Host) -> None:
    for number in range(state.REFUSED_LIMIT + 3):
        state.refuse(host, PROFILE, "3.4.%d" % number, SHA, "x", TIME)
    assert [entry["version"] for entry in state.read_refused(host, PROFILE)] == [
        "3.4.%d" % number for number in range(3, state.REFUSED_LIMIT + 3)
    ]


@pytest.mark.parametrize("text", ["{", "[]", '{"refused": {}}', '{"refused": [1, "x", null]}'])
def test_refusals_that_cannot_be_read_stand_in_nobodys_way(host: Host, text: str) -> None:
    write(host, "refused.json", text)
    assert state.read_refused(host, PROFILE) == []
    state.refuse(host, PROFILE, "3.4.0", SHA, "x", TIME)
    assert refused(host) == [("3.4.0", SHA, "x")]


# -- the part of the facts

UNKNOWN = {
    "version": None,
    "previous": None,
    "step": None,
    "direction": None,
    "started": None,
    "reboot": False,
    "touched": True,
}


def test_nothing_is_noted_on_a_new_host(host: Host) -> None:
    assert state.describe_state(host, PROFILE) == ({"change": None, "tainted": None, "refused": []}, {})


@pytest.mark.parametrize(
    "text, change, probe",
    [
        (
            '{"wanted": {"version": "3.4.0"}, "previous": {"version": "3.2.2"},'
            ' "step": "install", "direction": "back", "started": "%s", "reboot": 1, "touched": false}' % TIME,
            {
                "version": "3.4.0",
                "previous": "3.2.2",
                "step": "install",
                "direction": "back",
                "started": TIME,
                "reboot": True,
                "touched": False,
            },
            "value",
        ),
        ('{"wanted": null, "previous": null}', UNKNOWN, "value"),
        ("{}", UNKNOWN, "value"),
        ("{", UNKNOWN, "failed"),
        ("[]", UNKNOWN, "failed"),
    ],
)
def test_a_journal_is_a_change_even_when_it_cannot_be_read(host: Host, text: str, change: t.Any, probe: str) -> None:
    write(host, "journal.json", text)
    found, probes = state.describe_state(host, PROFILE)
    assert (found["change"], {name: item.state for name, item in probes.items()}) == (change, {"driver_journal": probe})


def test_tainted_and_refused_are_told(host: Host) -> None:
    write(host, "tainted.json", '{"version": "3.4.0", "reason": "x", "time": "%s"}' % TIME)
    state.refuse(host, PROFILE, "3.4.0", SHA, "y", TIME)
    found, probes = state.describe_state(host, PROFILE)
    assert found == {
        "change": None,
        "tainted": {"version": "3.4.0", "reason": "x", "time": TIME},
        "refused": [{"version": "3.4.0", "sha256": SHA, "reason": "y", "time": TIME}],
    }
    assert {name: item.to_dict() for name, item in probes.items()} == {
        "driver_tainted": {"state": "value", "detail": ""}
    }


def test_a_journal_that_may_not_be_read_is_told_by_its_probe(host: Host) -> None:
    write(host, "journal.json", "{}")
    path = Path(host.root) / DIRECTORY / "journal.json"
    path.chmod(0)
    me = os.geteuid()
    try:
        if me == 0:
            os.chmod(host.root, 0o755)
            os.seteuid(65534)
        found, probes = state.describe_state(host, PROFILE)
    finally:
        os.seteuid(me)
    assert (found["change"], probes["driver_journal"].state) == (None, "denied")
