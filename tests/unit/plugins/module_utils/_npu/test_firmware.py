# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Firmware against the driver, the summary of the flashing tool, and flashing. Only the line of success is recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._checks.device import compare_firmware
from ansible_collections.rebellions.npu.plugins.module_utils._npu.firmware import (
    FlashFailed,
    flash,
    parse_summary,
)
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import Tree

A, B = "0000:83:00.0", "0000:84:00.0"
FOLDER = "/usr/lib/firmware/rebellions"


@pytest.mark.parametrize(
    ("cards", "bad", "unknown"),
    [
        ({A: {"firmware": "3.2.2", "smc": "3.2.2"}}, [], []),
        ({A: {"firmware": "3.2.2-abc-release", "smc": None}}, [], []),
        ({A: {"firmware": "3.2.10", "smc": "3.2.2"}}, ["%s has firmware 3.2.10, not 3.2.2" % A], []),
        ({A: {"firmware": "3.2.2", "smc": "3.0.0"}}, ["%s has 3.0.0 on its management controller, not 3.2.2" % A], []),
        ({A: {"firmware": None}, B: {"firmware": "3.2.2"}}, [], ["firmware of %s" % A]),
    ],
)
def test_firmware_is_driver(cards: dict[str, Any], bad: list[str], unknown: list[str]) -> None:
    assert compare_firmware("3.2.2", cards) == (bad, unknown)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%s : SUCCESS [O]\n%s : SUCCESS [O]\n" % (A, B), [(A, True), (B, True)]),
        ("Flashing %s\n%s : 45 %%\n%s : SUCCESS [O]\n" % (A, A, A), [(A, True)]),
        ("%s : FAIL [X]\n" % A, [(A, False)]),
        ("%s : UNSUCCESSFUL\n" % A, [(A, False)]),
        ("%s : NOT SUCCESS\n" % A, [(A, False)]),
        ("  [83:00.0] : SUCCESS\n", []),
        ("83:00.0: success [O]\n", [(A, True)]),
        ("* %s\t:  SUCCESS [O]  \n" % "10000:01:00.0", [("10000:01:00.0", True)]),
        ("%s : 45 %%\n" % A, [(A, False)]),
        ("done\n", []),
    ],
)
def test_summary(text: str, expected: list[tuple[str, bool]]) -> None:
    assert [(card["address"], card["ok"]) for card in parse_summary(text)] == expected


def machine(root: Path, script: str) -> Tree:
    return (
        Tree(root)
        .folder("/sys/module")
        .write(FOLDER + "/ca22.bin", "x")
        .program("/usr/bin/rbln-flash", 'echo "$*" >> "$0.calls"\n' + script)
    )


def calls(tree: Tree) -> list[str]:
    path = tree.real("/usr/bin/rbln-flash.calls")
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def test_every_card_is_told(tmp_path: Path) -> None:
    tree = machine(tmp_path, "echo '%s : SUCCESS [O]'; echo '%s : SUCCESS [O]' >&2\n" % (A, B))
    assert flash(tree.host(), PROFILE, FOLDER, timeout=5) == [
        {"address": A, "ok": True, "detail": "SUCCESS [O]"},
        {"address": B, "ok": True, "detail": "SUCCESS [O]"},
    ]
    assert calls(tree) == ["--cp -d %s -s all" % FOLDER]


def test_a_card_that_fails_is_told_beside_those_that_are_done(tmp_path: Path) -> None:
    tree = machine(tmp_path, "echo '%s : SUCCESS [O]'; echo '%s : FAIL [X]'; exit 1\n" % (A, B))
    with pytest.raises(FlashFailed) as raised:
        flash(tree.host(), PROFILE, FOLDER, timeout=5)
    assert [(card["address"], card["ok"]) for card in raised.value.cards] == [(A, True), (B, False)]
    assert "These cards were flashed: %s; these were not: %s." % (A, B) in raised.value.message


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo '%s : SUCCESS [O]'; echo '%s : FAIL [X]'\n" % (A, B), "%s: FAIL [X]" % B),
        ("echo '%s : SUCCESS [O]'; exit 3\n" % A, "code 3"),
        ("echo no card found\n", "no card found"),
        ("true\n", "nothing was printed"),
        ("exec sleep 20\n", "did not end"),
    ],
)
def test_what_went_wrong_is_named(tmp_path: Path, script: str, words: str) -> None:
    tree = machine(tmp_path, script)
    with pytest.raises(FlashFailed) as raised:
        flash(tree.host(), PROFILE, FOLDER, timeout=0.5)
    assert words in raised.value.message and raised.value.next_step and len(calls(tree)) == 1


def loaded(tree: Tree) -> None:
    tree.folder("/sys/module/rebellions")


def no_tool(tree: Tree) -> None:
    tree.real("/usr/bin/rbln-flash").unlink()


def no_files(tree: Tree) -> None:
    tree.real(FOLDER + "/ca22.bin").unlink()


@pytest.mark.parametrize(
    ("change", "words"), [(loaded, "is loaded"), (no_tool, "is not on this host"), (no_files, "holds no firmware")]
)
def test_nothing_is_flashed_when_it_is_not_time(tmp_path: Path, change: Any, words: str) -> None:
    tree = machine(tmp_path, "echo '%s : SUCCESS [O]'\n" % A)
    change(tree)
    with pytest.raises(NpuError, match=words):
        flash(tree.host(), PROFILE, FOLDER, timeout=5)
    assert calls(tree) == []
