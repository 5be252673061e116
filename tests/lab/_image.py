# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Container images by hand: a docker-archive of one layer, the same bytes for the same files."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import typing as t
from pathlib import Path

EPOCH = "1970-01-01T00:00:00Z"
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Entry(t.NamedTuple):
    """A file (bytes or a path to copy), a link (target), or a folder (all None) of a layer."""

    data: bytes | Path | None = None
    target: str | None = None
    mode: int = 0o755


def tar_of(entries: t.Mapping[str, Entry]) -> bytes:
    """A tar of the entries and their parent folders, sorted, without times and owners."""
    names = dict(entries)
    for name in entries:
        parts = name.split("/")[:-1]
        for count in range(1, len(parts) + 1):
            names.setdefault("/".join(parts[:count]), Entry())
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name in sorted(names):
            entry = names[name]
            info = tarfile.TarInfo(name)
            info.mode = entry.mode
            if entry.target is not None:
                info.type = tarfile.SYMTYPE
                info.linkname = entry.target
                archive.addfile(info)
            elif entry.data is None:
                info.type = tarfile.DIRTYPE
                archive.addfile(info)
            else:
                data = entry.data.read_bytes() if isinstance(entry.data, Path) else entry.data
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def write_image(
    path: Path, reference: str, layer: bytes, entrypoint: t.Sequence[str] = (), env: t.Sequence[str] = ()
) -> None:
    """Write REPOSITORY:TAG with the one layer (an uncompressed tar) as a docker-archive."""
    write_images(path, layer, {reference: entrypoint}, env)


def write_images(
    path: Path, layer: bytes, entrypoints: t.Mapping[str, t.Sequence[str]], env: t.Sequence[str] = ()
) -> None:
    """Write images {REPOSITORY:TAG: entrypoint} of the same layer as one docker-archive."""
    parts: list[tuple[str, bytes]] = [("layer.tar", layer)]
    manifest = []
    for reference, entrypoint in entrypoints.items():
        config = json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "created": EPOCH,
                "config": {"Env": [PATH, *env], "Entrypoint": list(entrypoint) or None},
                "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
                "history": [{"created": EPOCH, "created_by": "tests.lab"}],
            }
        ).encode()
        name = hashlib.sha256(config).hexdigest() + ".json"
        manifest.append({"Config": name, "RepoTags": [reference], "Layers": ["layer.tar"]})
        if name not in dict(parts):
            parts.append((name, config))
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        for name, data in (*parts, ("manifest.json", json.dumps(manifest).encode())):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
