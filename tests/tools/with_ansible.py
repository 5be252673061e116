# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The unit tests to which Ansible matters: they import from it, or what they import does, or they name it in a text.

    python -m tests.tools.with_ansible PROGRAM ARGUMENT...     run it with these files as its last arguments

The others say the same beside every ansible-core, as Python and all other packages are the same there, and run in one
environment.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from .paths import NAME, NAMESPACE, STAGED

OURS = ("ansible_collections", NAMESPACE, NAME)
ANSIBLE = re.compile(r"\bansible\b")


def _imports(path: Path, tree: ast.AST, root: Path) -> Iterator[tuple[str, ...]]:
    """Every name that a file imports, in parts; with `from x import y` both x and x.y, which may be a module."""
    here = (*OURS, *path.relative_to(root).parts[:-1])
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else ()
            module = (*base, *(node.module.split(".") if node.module else ()))
            yield module
            yield from ((*module, alias.name) for alias in node.names)


def _file(parts: tuple[str, ...], root: Path) -> Path | None:
    """The file of a module of ours."""
    base = root.joinpath(*parts)
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if parts and path.is_file()), None)


def _own(parts: tuple[str, ...], root: Path, beside: Path) -> tuple[bool, Path | None]:
    """(is it a module of ours, its file if it has one)."""
    if parts[:3] == OURS:
        return True, _file(parts[3:], root)
    if parts[0] in ("tests", "plugins"):
        return True, _file(parts, root)
    found = _file(parts, beside)
    return found is not None, found


@functools.lru_cache(maxsize=None)
def _look(path: Path, root: Path) -> tuple[bool, frozenset[Path]]:
    """(does it import something of Ansible, our own files that it imports)."""
    ansible, own = False, set()
    for parts in _imports(path, ast.parse(path.read_text(encoding="utf-8")), root):
        if not parts:
            continue
        ours, found = _own(parts, root, path.parent)
        if found:
            own.add(found)
        ansible = ansible or (parts[0] in ("ansible", "ansible_collections") and not ours)
    return ansible, frozenset(own)


def matters(path: Path, root: Path = STAGED) -> bool:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if any(
        isinstance(node, ast.Constant) and isinstance(node.value, str) and ANSIBLE.search(node.value)
        for node in ast.walk(tree)
    ):
        return True
    seen, todo = {path}, [path]
    while todo:
        ansible, own = _look(todo.pop(), root)
        if ansible:
            return True
        todo += own - seen
        seen |= own
    return False


def files(root: Path = STAGED) -> list[str]:
    """Test files, relative to root, to which Ansible matters."""
    return [
        str(path.relative_to(root)) for path in sorted((root / "tests/unit").rglob("test_*.py")) if matters(path, root)
    ]


def main() -> int:
    chosen = files()
    os.chdir(STAGED)
    os.execv(sys.argv[1], [*sys.argv[1:], *chosen])


if __name__ == "__main__":
    sys.exit(main())
