# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The test runner itself: what it counts, and that nothing run is nothing passed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.tests.tools import count, layers, stage
from ansible_collections.rebellions.npu.tests.tools.count import Count

SANITY = """Running sanity test "ansible-doc"
Running sanity test "shellcheck"
WARNING: Required program "shellcheck" not found.
Running sanity test "pep8"
FATAL: The 1 sanity test(s) listed below (out of 3) failed. See error output above for details.
pep8
"""


@pytest.mark.parametrize(
    "output, expected",
    [
        ("", Count()),
        ("no tests ran in 0.05s\n", Count()),
        ("12 passed in 0.31s\n", Count(12, 0)),
        ("=== 2 failed, 55 passed, 1 skipped in 3.18s ===\n", Count(55, 2)),
        ("1 failed, 2 passed, 3 errors in 3.18s\n", Count(2, 4)),
        ("\x1b[32m\x1b[1m7 passed\x1b[0m\x1b[32m in 1.00s\x1b[0m\n", Count(7, 0)),
        ("3 skipped in 1.00s\n", Count()),
        ("4 passed, 1 failed\n", Count(4, 1)),
        ("bench: 4 passed, 0 failed, 2 skipped\n", Count(4, 0)),
        ("5 passed in 1.0s\n6 passed in 2.0s\n", Count(11, 0)),
        ("we saw 4 passed, 1 failed in the text\n", Count()),
    ],
)
def test_closing_lines(output: str, expected: Count) -> None:
    assert count.closing(output) == expected


@pytest.mark.parametrize(
    "output, expected", [("", Count()), (SANITY, Count(1, 1)), (SANITY.split("FATAL", maxsplit=1)[0], Count(2, 0))]
)
def test_sanity_counts_what_ran(output: str, expected: Count) -> None:
    assert count.sanity(output) == expected


@pytest.mark.parametrize(
    "code, word",
    [
        ("print('2 passed, 0 failed')", "passed"),
        ("print('0 passed, 0 failed')", "ran nothing: -c print('0 passed, 0 failed')"),
        ("pass", "ran nothing: -c pass"),
        ("print('1 passed, 1 failed')", "failed (exit 0)"),
        ("print('2 passed, 0 failed'); raise SystemExit(3)", "failed (exit 3)"),
        ("print('2 passed, 0 failed', flush=True); import time; time.sleep(60)", "stopped at 2 s"),
    ],
)
def test_a_layer_passes_only_when_something_ran_and_all_of_it_passed(
    code: str, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers, "LOGS", tmp_path)
    outcome = layers.run_layer(layers.Layer("own", 1, "tests", (layers.Step((sys.executable, "-c", code)),)))
    assert outcome.word == word
    assert outcome.good == (word == "passed")


def test_the_table_names_a_layer_that_ran_nothing_and_counts_it_as_failed() -> None:
    good = layers.Outcome(layers.Layer("a", 10, "tests", ()), Count(3, 0), 12.0, "passed")
    empty = layers.Outcome(layers.Layer("b", 10, "hosts", ()), Count(), 1.0, "ran nothing: x")
    lines = layers.report([good, empty]).splitlines()
    assert lines[-1] == "3 passed, 1 failed"
    assert [line.split() for line in lines[1:3]] == [
        ["a", "3", "tests", "12", "10", "passed", "(over", "budget)"],
        ["b", "0", "hosts", "1", "10", "ran", "nothing:", "x"],
    ]


def test_budgets_fit_an_hour() -> None:
    assert sum(layer.budget for layer in layers.LAYERS) <= 3600


def test_stage_copies_new_files_and_removes_those_gone(tmp_path: Path) -> None:
    root, target = tmp_path / "root", tmp_path / "target"
    root.mkdir()
    subprocess.run(["git", "-C", str(root), "init", "-q"], check=True)
    (root / ".gitignore").write_text("*.log\n", encoding="utf-8")
    for name in ("a.txt", "b.txt", "c.log"):
        (root / name).write_text(name, encoding="utf-8")
    (root / "link").symlink_to("a.txt")
    assert stage.stage(root, target) == (4, 4, 0)
    assert stage.stage(root, target) == (4, 0, 0)
    (root / "b.txt").unlink()
    (root / "a.txt").write_text("changed", encoding="utf-8")
    assert stage.stage(root, target) == (3, 1, 1)
    assert sorted(p.name for p in target.iterdir() if p.name != ".git") == [".gitignore", "a.txt", "link"]
    assert (target / "link").is_symlink() and (target / "a.txt").read_text(encoding="utf-8") == "changed"
