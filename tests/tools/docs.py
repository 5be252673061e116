# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check that users can read the documentation.

antsibull's checks, and a page for each plugin and role, from the tree and from the installed tarball.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from .build import build, working
from .paths import COLLECTIONS, STAGE, STAGED, WORK, environment

KINDS = {
    "modules": "module",
    "filter": "filter",
    "lookup": "lookup",
    "callback": "callback",
    "inventory": "inventory",
    "test": "test",
}


def run(*argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, cwd=STAGED, env=environment(**env), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def expected(root: Path = STAGED) -> dict[str, list[str]]:
    """Fully qualified names by ansible-doc type, from the file names."""
    pages: dict[str, list[str]] = {}
    for folder, kind in KINDS.items():
        stems = {
            p.stem
            for p in (root / "plugins" / folder).glob("*")
            if p.suffix in (".py", ".yml") and not p.stem.startswith("_")
        }
        if stems:
            pages[kind] = sorted(f"rebellions.npu.{stem}" for stem in stems)
    roles = sorted(f"rebellions.npu.{p.name}" for p in (root / "roles").glob("*") if p.is_dir())
    return {**pages, "role": roles} if roles else pages


def described(kind: str, doc: dict[str, object]) -> bool:
    """Whether the page says something: a short description and examples, for a role each entry point."""
    if kind == "role":
        points = doc.get("entry_points")
        words = ("short_description", "examples")
        return isinstance(points, dict) and bool(points) and all(p.get(w) for p in points.values() for w in words)
    inner = doc.get("doc")
    return isinstance(inner, dict) and bool(inner.get("short_description")) and bool(doc.get("examples"))


def empty_pages(collections_path: str) -> tuple[int, list[str]]:
    """(pages asked for, those that are absent or say nothing)."""
    bad, total = [], 0
    for kind, names in expected().items():
        done = run("ansible-doc", "--type", kind, "--json", *names, ANSIBLE_COLLECTIONS_PATH=collections_path)
        try:
            docs = json.loads(done.stdout)
        except ValueError:
            docs = {}
            print(f"ansible-doc --type {kind}: {done.stderr.strip() or done.stdout.strip()}")
        total += len(names)
        bad += [f"{kind} {name}" for name in names if not described(kind, docs.get(name, {}))]
    return total, bad


def main() -> int:
    failures: list[str] = []
    passed = 0
    for argv in (
        ("antsibull-docs", "lint-collection-docs", "--plugin-docs", "--validate-collection-refs", "dependent", "."),
        ("antsibull-changelog", "lint"),
    ):
        done = run(*argv)
        if done.returncode:
            failures.append(argv[0])
            print(f"$ {' '.join(argv)}\n{done.stdout}{done.stderr}")
        else:
            passed += 1
    tarball, files = build(WORK / "built", working(), 0, "")
    target = WORK / "install"
    shutil.rmtree(target, ignore_errors=True)
    installed = f"{target}{os.pathsep}{COLLECTIONS}"
    done = run(
        "ansible-galaxy",
        "collection",
        "install",
        str(tarball),
        "--offline",
        "-p",
        str(target),
        ANSIBLE_COLLECTIONS_PATH=installed,
    )
    if done.returncode:
        failures.append("offline install")
        print(f"{done.stdout}{done.stderr}")
    print(f"tarball: {tarball.name}, {files} files")
    for where, path in (("tree", f"{STAGE}{os.pathsep}{COLLECTIONS}"), ("tarball", installed)):
        total, bad = empty_pages(path)
        passed += total - len(bad)
        failures += [f"{page} (from the {where})" for page in bad]
        print(f"ansible-doc: {total - len(bad)} of {total} pages from the {where}")
        if not total:
            failures.append(f"no pages from the {where}")
    for failure in failures:
        print(f"failed: {failure}")
    print(f"{passed} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
