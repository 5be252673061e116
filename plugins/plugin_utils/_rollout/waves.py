# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""In which order the nodes of a pool go, and in which waves."""

from __future__ import annotations

import itertools
import typing as t

from .settings import SPREAD, Settings, share

Waves = tuple[tuple[str, ...], ...]


class Placed(t.Protocol):
    """What the order asks of a node."""

    @property
    def name(self) -> str: ...

    @property
    def labels(self) -> t.Mapping[str, str]: ...


def order_nodes(nodes: t.Sequence[Placed], settings: Settings) -> list[str]:
    """The names of the nodes of one pool in the order in which they go.

    As given; or one node of each zone in turn; or rack by rack. Zones and racks come in the order in which they are
    first seen; nodes without the label are one more of them.
    """
    if not settings.order_label:
        return [node.name for node in nodes]
    groups: dict[str, list[str]] = {}
    for node in nodes:
        groups.setdefault(node.labels.get(settings.order_label, ""), []).append(node.name)
    if settings.order != SPREAD:
        return list(itertools.chain.from_iterable(groups.values()))
    turns = itertools.zip_longest(*groups.values())
    return [name for turn in turns for name in turn if name is not None]


def cut(ordered: t.Sequence[str], waves: t.Sequence[int | str]) -> Waves:
    """The waves of a pool; `waves` are cumulative sizes, percentages round up.

    A wave that adds no node falls out. Where the last size is not all nodes, one more wave has the rest.
    """
    ends = [min(share(size, len(ordered)), len(ordered)) for size in waves]
    found, begin = [], 0
    for end in (*ends, len(ordered)):
        if end > begin:
            found.append(tuple(ordered[begin:end]))
            begin = end
    return tuple(found)


def rounds(pools: t.Mapping[str, Waves]) -> list[list[str]]:
    """The waves of several pools side by side: the first waves of all pools, then the second, and so on."""
    together = itertools.zip_longest(*pools.values(), fillvalue=())
    return [[name for wave in same for name in wave] for same in together]
