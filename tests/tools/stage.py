# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copy the checkout to .work/stage/ansible_collections/rebellions/npu.

Ansible's tools find it there under its own name.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from .paths import ROOT, SELF, STAGED, Missing

LEAVE = ("/.git/", "/__pycache__/", "/.ansible/", "/tests/output/", "/.pytest_cache/", "/.ruff_cache/")


def sources(root: Path = ROOT) -> list[str]:
    """Files of the checkout relative to its root: tracked ones and new ones, not ignored ones nor the link SELF."""
    argv = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        out = subprocess.run(argv, capture_output=True, check=True).stdout
    except FileNotFoundError as exc:
        raise Missing("git is not on PATH. Next: apt-get install git") from exc
    except subprocess.CalledProcessError as exc:
        raise Missing(
            f"{root} is not a git checkout: {exc.stderr.decode().strip()}. Next: clone the repository"
        ) from exc
    names = sorted({os.fsdecode(n) for n in out.split(b"\0") if n} - {SELF})
    return [n for n in names if os.path.lexists(root / n)]


def same(source: Path, target: Path) -> bool:
    a = source.lstat()
    try:
        b = target.lstat()
    except OSError:
        return False
    return (a.st_mode, a.st_size, a.st_mtime_ns) == (b.st_mode, b.st_size, b.st_mtime_ns)


def stage(root: Path = ROOT, target: Path = STAGED) -> tuple[int, int, int]:
    """Make target equal to the checkout: (files, copied, removed). What tools left in target outside LEAVE goes too."""
    names = sources(root)
    wanted, copied, removed = set(names), 0, 0
    for name in names:
        source, copy = root / name, target / name
        if same(source, copy):
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(copy):
            copy.unlink()
        shutil.copy2(source, copy, follow_symlinks=False)
        copied += 1
    for folder, _dirs, files in os.walk(target, topdown=False):
        for file in files:
            path = Path(folder, file)
            name = path.relative_to(target).as_posix()
            if name not in wanted and not any(part in f"/{name}" for part in LEAVE):
                path.unlink()
                removed += 1
        if Path(folder) != target and not any(part in f"{folder}/" for part in LEAVE) and not os.listdir(folder):
            os.rmdir(folder)
    if not (target / ".git").exists():
        subprocess.run(["git", "-C", str(target), "init", "-q", "-b", "main"], check=True)
    return len(names), copied, removed


def main() -> int:
    began = time.monotonic()
    try:
        files, copied, removed = stage()
    except Missing as exc:
        print(f"stage: {exc}", file=sys.stderr)
        return 1
    print(f"stage: {files} files, {copied} copied, {removed} removed, {time.monotonic() - began:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
