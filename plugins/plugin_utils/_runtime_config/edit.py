# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The records of a change of runtime configuration, and the marked block in a Go template.

A template is never parsed: only the line of the base template and what is between our marks are looked at.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.rebellions.npu.plugins.module_utils._host.writer import digest
from ansible_collections.rebellions.npu.plugins.module_utils._runtime.base import (
    BLOCK_BEGIN,
    BLOCK_END,
    block_span,
    has_dir,
)
from ansible_collections.rebellions.npu.plugins.module_utils._runtime.distro_containerd import BASE_TEMPLATE

from .._text.splice import Buffer, decode, newline_of

MARK = "# Managed by the rebellions.npu collection: "
MANAGED = MARK + "CDI in containers. Removed by state=absent."


@dataclass(frozen=True)
class Source:
    """A file as the host has it: its bytes, or None when it is not there."""

    path: str
    data: bytes | None = None

    @property
    def text(self) -> str:
        return decode(self.data or b"", self.path)

    @property
    def sha256(self) -> str | None:
        return None if self.data is None else digest(self.data)


@dataclass
class FileEdit:
    """New bytes for one file (None deletes it), with what removal has to know.

    `aside` is a directory for helper files when the own one is read whole.
    """

    source: Source
    new: bytes | None
    format: str = "toml"
    splices: list[list[t.Any]] = field(default_factory=list)
    changes: list[dict[str, t.Any]] = field(default_factory=list)
    aside: str = ""

    @property
    def path(self) -> str:
        return self.source.path


@dataclass
class RuntimeEdit:
    """What has to be written for one runtime.

    `judge` tells the writer how the program itself reads the result (see the module config_write).

    `effective` is False when CDI will not be on because the file must not be edited. `restart` is True when the files
    are right, and the distribution has yet to make its configuration from them.
    """

    name: str
    files: list[FileEdit] = field(default_factory=list)
    judge: dict[str, t.Any] | None = None
    warnings: list[str] = field(default_factory=list)
    effective: bool = True
    flavor: str = ""
    restart: bool = False


Files = t.Mapping[str, Source]


def covers(have: t.Sequence[str], wanted: t.Sequence[str]) -> bool:
    """True when every wanted directory is in `have`."""
    return all(has_dir(have, directory) for directory in wanted)


def source(files: Files, path: str) -> Source:
    """The file as read, or one that is not there."""
    return files.get(path) or Source(path)


BASE = '{{ template "base" . }}'


def block_edit(found: Source, lines: t.Sequence[str], warnings: list[str]) -> FileEdit | None:
    """Put `lines` between our marks at the end of the template.

    None when nothing differs, or when the template is a frozen copy, which a warning says.
    """
    buffer = Buffer(found.text)
    if found.data is None or not buffer.text.strip("\ufeff \t\r\n"):
        buffer.splice(0, len(buffer.text), BASE + "\n")
    elif not BASE_TEMPLATE.search(buffer.text):
        warnings.append(
            "%s is a frozen copy of a template (no line of it is %s): not edited, CDI stays as it is there"
            % (found.path, BASE)
        )
        return None
    end_line = newline_of(buffer.text)
    block = end_line.join([BLOCK_BEGIN, *lines, BLOCK_END])
    start, stop = block_span(buffer.text)
    if start >= 0:
        buffer.splice(start, stop, block)
    else:
        gap = end_line if buffer.text.endswith("\n") else end_line * 2
        buffer.splice(len(buffer.text), len(buffer.text), gap + block + end_line)
    if buffer.text == found.text:
        return None
    return FileEdit(
        found,
        buffer.text.encode("utf-8"),
        "template",
        buffer.splices,
        [{"op": "block", "path": [], "old": None, "new": block}],
    )
