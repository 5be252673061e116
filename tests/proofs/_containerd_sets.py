# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random configuration sets of containerd: a root file, files it imports, files that those import."""

from __future__ import annotations

import random
from pathlib import Path

TABLES = ("cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")
DISABLED = (
    "cri",
    "io.containerd.grpc.v1.cri",
    "io.containerd.cri.v1.runtime",
    "io.containerd.snapshotter.v1.zfs",
    "zfs",
    "io.containerd.internal.v1.restart",
)
DIRECTORIES = ("/etc/cdi", "/var/run/cdi", "/opt/site/cdi", "/run/cdi")
PATTERNS = (
    "conf.d/*.toml",
    "conf.d/10-a.toml",
    "%s/conf.d/*.toml",
    "%s/conf.d/20-b.toml",
    "%s/more/*.toml",
    "more/x.toml",
    "%s/none/*.toml",
)
NAMES = ("conf.d/10-a.toml", "conf.d/20-b.toml", "conf.d/zz.toml", "more/x.toml")


def _list(source: random.Random, values: list[str]) -> str:
    mark = source.choice("\"'")
    return "[%s]" % ", ".join(mark + value + mark for value in values)


def _pick(source: random.Random, values: tuple[str, ...], most: int) -> list[str]:
    return source.sample(values, source.randint(0, most))


def _table(source: random.Random, name: str) -> list[str]:
    mark, pad = source.choice("\"'"), source.choice(["", "  "])
    lines = ["", "[plugins.%s%s%s]" % (mark, name, mark)]
    if source.random() < 0.4:
        lines.append("%senable_cdi = %s" % (pad, source.choice(["true", "false"])))
    if source.random() < 0.35:
        lines.append("%scdi_spec_dirs = %s" % (pad, _list(source, _pick(source, DIRECTORIES, 3))))
    if source.random() < 0.4:
        lines.append("%smax_container_log_line_size = %d # site" % (pad, source.choice([-1, 16384])))
    if source.random() < 0.3:
        lines += [
            "%s[plugins.%s%s%s.containerd]" % (pad, mark, name, mark),
            "%s  default_runtime_name = %srunc%s" % (pad, mark, mark),
        ]
    return lines


def _text(source: random.Random, folder: Path, imports: float) -> str:
    version = source.choice([None, 1, 2, 2, 2, 2, 3, 3, 3])
    lines = ["# of the site"] if source.random() < 0.3 else []
    if version is not None:
        lines.append("version = %d" % version)
    if source.random() < imports:
        lines.append(
            "imports = %s" % _list(source, [one % folder if "%s" in one else one for one in _pick(source, PATTERNS, 2)])
        )
    if source.random() < 0.2:
        lines.append("disabled_plugins = %s" % _list(source, _pick(source, DISABLED, 2)))
    if source.random() < 0.2:
        lines.append("oom_score = %d" % source.choice([0, -999]))
    usual = TABLES[min(version or 2, 3) - 1]
    names = [usual] if source.random() < 0.75 else []
    if source.random() < 0.12:
        names.append(source.choice([name for name in TABLES if name not in names]))
    for name in names:
        lines += _table(source, name)
    return "\n".join(lines) + source.choice(["\n", "\n", ""])


def write(source: random.Random, folder: Path) -> Path:
    """Write a random set below the folder; the root file's path."""
    root = folder / "config.toml"
    folder.mkdir(parents=True)
    root.write_text(_text(source, folder, 0.8))
    for name in _pick(source, NAMES, 3):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(_text(source, folder, 0.1))
    return root
