# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks of a release: each is red where it has to be."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.tests.tools import release
from ansible_collections.rebellions.npu.tests.tools.paths import Missing

UNRESOLVED = "WARNING: a.yml:4:7: syntax-check[unknown-module]: couldn't resolve module/action '%s.host'. This\n"
DONE = "...ansible-lint run complete\nImporter processing completed successfully\n"


def git(root: Path, *argv: str) -> None:
    who = ("-c", "user.name=n", "-c", "user.email=n@example.com")
    subprocess.run(["git", "-C", str(root), *who, *argv], check=True, capture_output=True)


@pytest.fixture(name="checkout")
def checkout_fixture(tmp_path: Path) -> Path:
    (tmp_path / "galaxy.yml").write_text("namespace: rebellions\nversion: 1.2.3\n", encoding="utf-8")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "Begin")
    return tmp_path


def test_the_tag_is_the_version(checkout: Path) -> None:
    row = release.tagged(checkout)
    assert not row.good and "1.2.3" in row.told and "no tag" in row.told and "git tag -s 1.2.3" in row.following
    git(checkout, "tag", "something")
    assert not release.tagged(checkout).good
    git(checkout, "tag", "v1.2.3")
    assert release.tagged(checkout).good
    # Two versions on one commit: one of them is wrong.
    git(checkout, "tag", "1.3.0")
    assert not release.tagged(checkout).good


def test_a_changed_tree_is_named(checkout: Path) -> None:
    assert release.clean(checkout).good
    (checkout / "new").write_text("", encoding="utf-8")
    row = release.clean(checkout)
    assert not row.good and row.told.startswith("1 files")


def test_waiting_fragments_are_counted(checkout: Path) -> None:
    assert release.fragments(checkout).good
    folder = checkout / "changelogs" / "fragments"
    folder.mkdir(parents=True)
    (folder / "a.yml").write_text("---\n", encoding="utf-8")
    row = release.fragments(checkout)
    assert not row.good and row.told.startswith("1 fragments") and "make changelog" in row.following


def test_a_version_that_is_not_there(checkout: Path) -> None:
    (checkout / "galaxy.yml").write_text("namespace: rebellions\n", encoding="utf-8")
    with pytest.raises(Missing, match="has no version"):
        release.version(checkout)


@pytest.mark.parametrize(
    ("code", "out", "lint", "good"),
    [
        (0, DONE, True, True),
        (0, "WARNING: a.py:1:2: W503 line break\nWARNING: b.yml:3:5: E999 SyntaxError\n" + DONE, True, True),
        (0, "WARNING: a.py:1:2: E999 SyntaxError\n" + DONE, True, False),
        (0, "WARNING: no changelog found\n" + DONE, True, False),
        (1, "ERROR: The import failed\n", True, False),
        (0, "Importer processing completed successfully\n", True, False),
        (0, "Importer processing completed successfully\n", False, True),
        (1, DONE, True, False),
        (0, UNRESOLVED % "awx.awx" + DONE, True, True),
        (0, UNRESOLVED % "x.awx" + DONE, True, False),
        (0, "WARNING: ERROR    Failed to find rebellions.npu.site playbook.\n" + DONE, True, True),
        (0, "WARNING: ERROR    Failed to find rebellions.npu.no_such playbook.\n" + DONE, True, False),
    ],
)  # fmt: skip
def test_what_the_importer_says_is_judged(code: int, out: str, lint: bool, good: bool) -> None:
    assert release.imported(code, out, lint).good is good


def test_a_row_that_fails_fails_the_whole(capsys: pytest.CaptureFixture[str]) -> None:
    def absent() -> release.Row:
        raise Missing("git is not on PATH. Next: apt-get install git")

    rows = [("one", lambda: release.Row(True, "fine")), ("two", absent)]
    assert release.table(rows) == 1 and release.table(rows[:1]) == 0
    said = capsys.readouterr().out
    assert "FAILED" in said and "Next: apt-get install git" in said and said.endswith("1 passed, 0 failed\n")
    assert release.main(["--fast"]) == 2
