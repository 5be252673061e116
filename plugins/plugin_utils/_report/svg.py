# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small drawings inside a page: bars without words. What they show also stands beside them as text.

They have no style of their own: a class names the colour, and the page's style sheet gives it, so that a page needs no
style attribute, which its policy forbids.
"""

from __future__ import annotations

import typing as t

# A drawing is this wide and is stretched to its place.
WIDE = 1000
# Narrower than this nobody sees it.
LEAST = 4


def _drawing(kind: str, inner: str) -> str:
    return (
        '<svg class="%s" viewBox="0 0 %d 10" preserveAspectRatio="none" aria-hidden="true" focusable="false">%s</svg>'
    ) % (kind, WIDE, inner)


def _rect(colour: str, begin: float, wide: float) -> str:
    return '<rect class="%s" x="%.1f" width="%.1f" height="10"/>' % (colour, begin, wide)


def shares(parts: t.Iterable[tuple[str, int]]) -> str:
    """Parts of a whole, side by side: (colour, how many)."""
    some = [(colour, number) for colour, number in parts if number > 0]
    # Even one of a thousand is seen; the others give way.
    wides = [max(number, sum(every for _colour, every in some) * LEAST / WIDE) for _colour, number in some]
    scale, begin, drawn = WIDE / (sum(wides) or 1), 0.0, []
    for (colour, _number), wide in zip(some, wides):
        drawn.append(_rect(colour, begin, max(wide * scale - (2 if len(some) > 1 else 0), 1)))
        begin += wide * scale
    return _drawing("shares", "".join(drawn))


def scaled(value: float, most: float, colour: str = "accent") -> str:
    """A value on a scale that ends at `most`."""
    return _drawing("bar", _rect(colour, 0, max(LEAST, WIDE * value / most)) if most > 0 and value > 0 else "")


def span(begin: float, end: float, whole: float, colour: str) -> str:
    """A time between `begin` and `end` on a line that is `whole` long."""
    if whole <= 0:
        return _drawing("span", _rect(colour, 0, WIDE))
    at = min(WIDE * begin / whole, WIDE - LEAST)
    return _drawing("span", _rect(colour, at, min(max(LEAST, WIDE * (end - begin) / whole), WIDE - at)))
