# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The records of a change of runtime configuration, and what the edits of every runtime share."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.rebellions.npu.plugins.module_utils._runtime_base import has_dir
from ansible_collections.rebellions.npu.plugins.module_utils._write import digest
from ansible_collections.rebellions.npu.plugins.plugin_utils._text_edit import decode

MANAGED = "# Managed by the rebellions.npu collection: CDI in containers. Removed by state=absent."


@dataclass(frozen=True)
class Source:
    """A file as the host has it: its bytes, or None when it is not there."""

    path: str
    data: t.Optional[bytes] = None

    @property
    def text(self) -> str:
        return decode(self.data or b"", self.path)

    @property
    def sha256(self) -> t.Optional[str]:
        return None if self.data is None else digest(self.data)


@dataclass
class FileEdit:
    """New bytes for one file (None deletes it), with what removal has to know. `aside` is a directory for helper files when the own one is read whole."""

    source: Source
    new: t.Optional[bytes]
    format: str = "toml"
    splices: list[list[t.Any]] = field(default_factory=list)
    changes: list[dict[str, t.Any]] = field(default_factory=list)
    aside: str = ""

    @property
    def path(self) -> str:
        return self.source.path


@dataclass
class RuntimeEdit:
    """What has to be written for one runtime. `judge` tells the writer how the program itself reads the result (see rbln_config_write).

    `effective` is False when CDI will not be on because the file must not be edited.
    """

    name: str
    files: list[FileEdit] = field(default_factory=list)
    judge: t.Optional[dict[str, t.Any]] = None
    warnings: list[str] = field(default_factory=list)
    effective: bool = True
    flavor: str = ""


Files = t.Mapping[str, Source]


def covers(have: t.Sequence[str], wanted: t.Sequence[str]) -> bool:
    """True when every wanted directory is in `have`."""
    return all(has_dir(have, directory) for directory in wanted)


def source(files: Files, path: str) -> Source:
    """The file as read, or one that is not there."""
    return files.get(path) or Source(path)
