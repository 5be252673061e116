# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The screen of a support bundle, which is also the table in its README. Pure."""

from __future__ import annotations

import typing as t

from .._text.line import line
from .._text.screen import BAD, GOOD, PLAIN, TITLE, UNSURE, Line, some, table
from .parts import CLUSTER, COLLECTED, HOST, PLANNED

# Rows that are shown of those that are well; of the others all.
ROWS = 20
Summaries = t.Mapping[str, t.Mapping[str, t.Mapping[str, t.Any]]]


def lines(found: Summaries, path: str, size: int, dry: bool) -> list[Line]:
    """A row for each host and cluster; those that are whole come last, and are counted where they are many."""
    rows: list[tuple[str, ...]] = []
    tones: list[str] = []
    whole: list[str] = []
    every = [(kind, name, one) for kind in (HOST, CLUSTER) for name, one in found[kind].items()]
    for kind, name, one in sorted(every, key=lambda item: _is_whole(item[2])):
        if _is_whole(one) and len(whole) >= ROWS:
            whole.append(name)
            continue
        if _is_whole(one):
            whole.append(name)
        why = one["detail"] or ("not whole: " + some(one["failed"]) if one["failed"] else "")
        # What is not collected yet has no size: none would read as nothing.
        sizes = ("-", "-") if one["state"] == PLANNED else (str(one["files"]), kib(one["size"]))
        rows.append((kind, name, one["state"], *sizes, line(why, 160)))
        tones.append(GOOD if _is_whole(one) else UNSURE if one["state"] == COLLECTED else BAD)
    shown = table(("what", "name", "state", "files", "size", "note"), rows, tones)
    more = [Line("and %d more, whole" % (len(whole) - ROWS), PLAIN)] if len(whole) > ROWS else []
    title = "Support bundle of %s and %s" % tuple(_number(len(found[kind]), kind) for kind in (HOST, CLUSTER))
    end = [Line("%s %s%s" % ("Would be written:" if dry else "Written:", path, "" if dry else ", " + kib(size)), TITLE)]
    return [Line(title, TITLE), *shown, *more, *(end if path else [])]


def _number(count: int, what: str) -> str:
    return "%d %s%s" % (count, what, "" if count == 1 else "s")


def kib(size: int) -> str:
    return "%d KiB" % -(-size // 1024) if size < 10 * 1024 * 1024 else "%d MiB" % (size >> 20)


def _is_whole(one: t.Mapping[str, t.Any]) -> bool:
    return one["state"] == PLANNED or (one["state"] == COLLECTED and not one["failed"] and not one["detail"])
