# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands of the pages, and how a test runs each of them (tests/commands.yml)."""

from __future__ import annotations

import re
import textwrap
import typing as t
from pathlib import Path

import yaml

TABLE = "tests/commands.yml"
BLOCK = re.compile(r"^( *)```(?:shell|sh|bash|console)\n(.*?)^\1```", re.S | re.M)


class Table(t.TypedDict):
    """host: {command: its exit code}; cluster: commands; files: {file of a test: {command: words of the file}}."""

    host: dict[str, int]
    cluster: list[str]
    files: dict[str, dict[str, str]]


def of_text(text: str) -> list[str]:
    """Each command in the blocks of a page: one line, without comments, with single spaces."""
    found = []
    for block in BLOCK.finditer(text):
        joined = textwrap.dedent(block[2]).replace("\\\n", " ")
        lines = [re.sub(r"(^|\s)#\s.*", "", line) for line in joined.splitlines()]
        found += [" ".join(line.split()) for line in lines if line.strip()]
    return found


def of_pages(root: Path) -> dict[str, list[str]]:
    """{command: the pages that have it}."""
    pages = [root / "README.md", root / "CONTRIBUTING.md", *root.glob("docs/*.md"), *root.glob("roles/*/README.md")]
    found: dict[str, list[str]] = {}
    for page in sorted(pages):
        for command in of_text(page.read_text(encoding="utf-8")):
            found.setdefault(command, []).append(str(page.relative_to(root)))
    return found


def table(root: Path) -> Table:
    known: Table = yaml.safe_load((root / TABLE).read_text(encoding="utf-8"))
    return known
