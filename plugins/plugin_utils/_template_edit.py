# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One marked block in a Go template. The template is never parsed: what is not between the marks is not looked at, except for its first line."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.rebellions.npu.plugins.plugin_utils._runtime_edit import FileEdit, Source
from ansible_collections.rebellions.npu.plugins.plugin_utils._text_edit import Buffer, newline_of

BASE = '{{ template "base" . }}'
BEGIN = "# BEGIN rebellions.npu"
END = "# END rebellions.npu"
_BASE = re.compile(r"\A\ufeff?\s*\{\{-?\s*template\s+\"base\"\s+\.\s*-?\}\}")


def block_edit(found: Source, lines: t.Sequence[str], warnings: list[str]) -> t.Optional[FileEdit]:
    """Put `lines` between our marks at the end of the template; None when nothing differs or the template is a frozen copy (a warning says so)."""
    buffer = Buffer(found.text)
    if found.data is None or not buffer.text.strip("\ufeff \t\r\n"):
        buffer.splice(0, len(buffer.text), BASE + "\n")
    elif not _BASE.match(buffer.text):
        warnings.append("%s is a frozen copy of a template (its first line is not %s): not edited, CDI stays as it is there" % (found.path, BASE))
        return None
    end_line = newline_of(buffer.text)
    block = end_line.join([BEGIN, *lines, END])
    start, stop = span(buffer.text)
    if start >= 0:
        buffer.splice(start, stop, block)
    else:
        gap = end_line if buffer.text.endswith("\n") else end_line * 2
        buffer.splice(len(buffer.text), len(buffer.text), gap + block + end_line)
    if buffer.text == found.text:
        return None
    return FileEdit(found, buffer.text.encode("utf-8"), "template", buffer.splices, [{"op": "block", "path": [], "old": None, "new": block}])


def span(text: str) -> tuple[int, int]:
    """Offsets of our block without its last line end; (-1, -1) when there is none."""
    start = text.find(BEGIN)
    stop = text.find(END, start) if start >= 0 else -1
    return (start, stop + len(END)) if stop >= 0 else (-1, -1)
