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


# Rows of the troubleshooting page: id, what you see, cause, prove it, remedy. A | within a cell is written \|.
TREE = "docs/troubleshooting.md"
CELLS = re.compile(r"(?<!\\)\|")
CAUSE = re.compile(r"^\| `\w+` \|")
SPAN = re.compile(r"`([^`]+)`")
# {word that stands for a value: a value of the lab}; what is not here stays.
VALUES = {"PATH": "/etc/hosts", "UNIT": "containerd.service", "NAME": "localhost", "NAMESPACE": "rbln-system"}


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


def of_tree(root: Path) -> list[str]:
    """The commands by which the troubleshooting page proves a cause, each once; words in capitals are left."""
    found: dict[str, None] = {}
    for row in (root / TREE).read_text(encoding="utf-8").splitlines():
        if CAUSE.match(row):
            cells = CELLS.split(row)
            # A command has words or is one; `make.log` and `rev ff` are not.
            spans = [span.replace("\\|", "|") for span in SPAN.findall(cells[4])]
            found.update(dict.fromkeys(span for span in spans if span not in ("make.log", "rev ff")))
    return list(found)


def filled(command: str, **values: str) -> str:
    """A command of the tree with values in the places of its words in capitals."""
    known = {**VALUES, **values}
    return re.sub(r"\b[A-Z]{3,}\b", lambda word: known.get(word[0], word[0]), command)
