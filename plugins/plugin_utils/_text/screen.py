# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines for people: a text and its tone. What has a screen decides on colours (`Answering._show`). Pure."""

from __future__ import annotations

import typing as t

# Tones, which _answers/action.py gives Ansible's own colours.
PLAIN, TITLE, GOOD, CHANGE, DISRUPT, UNSURE, BAD = "", "title", "good", "change", "disrupt", "unsure", "bad"
# Names that are listed before the others are counted.
NAMES = 5


class Line(t.NamedTuple):
    """One line of a screen, without its end."""

    text: str
    tone: str = PLAIN


def some(names: t.Sequence[str], most: int = NAMES) -> str:
    """`a, b and 61 more`."""
    told = ", ".join(names[:most])
    return "%s and %d more" % (told, len(names) - most) if len(names) > most else told


def table(head: t.Sequence[str], rows: t.Sequence[t.Sequence[str]], tones: t.Sequence[str] = ()) -> list[Line]:
    """Columns as wide as their widest cell, below a head; `tones` are those of the rows, plain where it ends."""
    cells = [head, *rows]
    widths = [max(len(row[at]) for row in cells) for at in range(len(head))]
    texts = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in cells]
    padded = [PLAIN, *tones, *[PLAIN] * (len(rows) - len(tones))]
    return [Line(text, tone) for text, tone in zip(texts, padded)]
