# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From signs to causes, the most likely first: what nothing else that was found explains. Pure."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass

from .cause import Cause
from .causes import BY_ID, CAUSES, cause_of
from .signs import LEVELS, UNKNOWN, WRONG, Sign

_PLACE = {cause.id: number for number, cause in enumerate(CAUSES)}


@dataclass(frozen=True)
class Found:
    """A cause with its signs, the worst first, and the ids of the found causes that explain it; `cluster` names the
    cluster that it is a fault of, empty for the host's own.
    """

    cause: Cause
    signs: tuple[Sign, ...]
    explained_by: tuple[str, ...] = ()
    cluster: str = ""

    @property
    def level(self) -> str:
        return min((one.level for one in self.signs), key=LEVELS.index)


@functools.lru_cache(maxsize=None)
def explained(cause: str) -> frozenset[str]:
    """The ids of all causes that follow from one, directly or through others."""
    direct = BY_ID[cause].explains
    return frozenset(direct).union(*(explained(one) for one in direct))


def group(signs: t.Iterable[Sign], cluster: str = "") -> list[Found]:
    """The causes that signs tell, in the order of the tree; a sign without a cause is a fault of the tree."""
    told: dict[str, list[Sign]] = {}
    for one in dict.fromkeys(signs):
        cause = cause_of(one)
        if cause is None:
            raise ValueError("no cause has the sign %s" % one.code)
        told.setdefault(cause.id, []).append(one)
    return [
        Found(BY_ID[name], tuple(sorted(mine, key=lambda one: LEVELS.index(one.level))), (), cluster)
        for name, mine in sorted(told.items(), key=lambda item: _PLACE[item[0]])
    ]


def ordered(signs: t.Iterable[Sign], beside: t.Sequence[Found] = ()) -> list[Found]:
    """The causes of one host or cluster, the most likely first.

    `beside` are those of the cluster of a host: one that explains something of the host is a cause of the host too.
    """
    own = group(signs)
    told = {one.cause.id for one in own}
    found = own + [one for one in beside if one.level != UNKNOWN and explained(one.cause.id) & told - {one.cause.id}]
    known = [one for one in found if one.level != UNKNOWN]
    result = []
    for one in found:
        why = [other.cause.id for other in known if one.cause.id in explained(other.cause.id)]
        result.append(Found(one.cause, one.signs, tuple(dict.fromkeys(why)), one.cluster))
    return sorted(result, key=lambda one: (bool(one.explained_by), _rank(one, result), _PLACE[one.cause.id]))


def _rank(one: Found, found: t.Sequence[Found]) -> int:
    """How bad a cause is: as bad as the worst that it explains."""
    of_it = explained(one.cause.id) if one.level != UNKNOWN else frozenset()
    return min(LEVELS.index(other.level) for other in found if other is one or other.cause.id in of_it)


def state_of(found: t.Sequence[Found]) -> str:
    """ok, faults, warnings or unknown; not_reached where the host itself gave no answer."""
    if any(sign.code.startswith("reach:") for one in found for sign in one.signs):
        return "not_reached"
    levels = {one.level for one in found}
    if WRONG in levels:
        return "faults"
    return "ok" if not found else "unknown" if levels == {UNKNOWN} else "warnings"
