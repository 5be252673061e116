# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What tests of the support bundle share: planted secrets, and an archive that is what its manifest says."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import tarfile
import typing as t
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration._play import Data, Run
from tests.integration._secrets import forms


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@dataclass
class Planted:
    """Secrets by their kinds, each made when it is asked for."""

    seed: bytes = field(default_factory=lambda: os.urandom(8))
    words: dict[str, str] = field(default_factory=dict)

    def __call__(self, kind: str) -> str:
        return self.words.setdefault(kind, "Zq" + hashlib.sha256(self.seed + kind.encode()).hexdigest()[:22])

    def found(self, data: bytes) -> list[str]:
        """The kinds of which a form is in these bytes."""
        return [kind for kind, word in self.words.items() if any(one.encode() in data for one in forms(word))]


def unpacked(path: Path) -> dict[str, bytes]:
    """{name below the one folder of an archive: bytes}."""
    with tarfile.open(path) as tar:
        members = tar.getmembers()
        assert all(one.isreg() for one in members) and len({one.name.partition("/")[0] for one in members}) == 1
        return {one.name.partition("/")[2]: t.cast("t.IO[bytes]", tar.extractfile(one)).read() for one in members}


def archive(run: Run, path: Path) -> tuple[Data, dict[str, bytes]]:
    """(manifest, files) of the archive that a run has written."""
    assert path.stat().st_mode & 0o777 == 0o600
    files = unpacked(path)
    manifest = json.loads(files["manifest.json"])
    listed = {one["path"]: one for one in manifest["files"] if one["path"]}
    assert set(listed) == set(files) - {"README.md", "manifest.json"} and len(listed) > 5
    for name, one in listed.items():
        assert (len(files[name]), hashlib.sha256(files[name]).hexdigest()) == (one["size"], one["sha256"]), name
    (told,) = run.of("Write the archive")
    assert told.data["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    return manifest, files
