# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the collection tarball in .work/dist.

The same commit gives the same bytes: times, owners and order are fixed.
"""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

from .paths import ROOT, VENV, WORK, environment
from .stage import stage

DIST = WORK / "dist"
TREE = WORK / "build"


def commit_time() -> int:
    """SOURCE_DATE_EPOCH, else the time of the last commit, else 0."""
    if os.environ.get("SOURCE_DATE_EPOCH"):
        return int(os.environ["SOURCE_DATE_EPOCH"])
    out = subprocess.run(
        ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return int(out or 0)


def normalise(tarball: Path, when: int) -> int:
    """Write the archive again with fixed metadata; the number of its files."""
    buffer, files = io.BytesIO(), 0
    with tarfile.open(tarball, "r:gz") as old, tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda m: m.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname, member.pax_headers = (
                when,
                0,
                0,
                "",
                "",
                {},
            )
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            files += member.isfile()
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    with tarball.open("wb") as out, gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0) as packed:
        packed.write(buffer.getvalue())
    return files


def build(new: bool = False) -> tuple[Path, int]:
    """(tarball, number of files in it) of the tracked files and, if wanted, of new ones.

    They come from a tree where no tool has run.
    """
    DIST.mkdir(parents=True, exist_ok=True)
    stage(ROOT, TREE, new)
    argv = [str(VENV / "bin" / "ansible-galaxy"), "collection", "build", "--force", "--output-path", str(DIST)]
    done = subprocess.run(
        argv, cwd=TREE, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"build: {done.stderr.strip() or done.stdout.strip()}")
    tarball = max(DIST.glob("rebellions-npu-*.tar.gz"), key=lambda p: p.stat().st_mtime_ns)
    return tarball, normalise(tarball, commit_time())


def main() -> int:
    tarball, files = build()
    print(f"build: {tarball} ({files} files, {tarball.stat().st_size} bytes)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
