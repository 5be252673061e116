# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How fast a rollout may go, and when: the inputs of pace, read and judged once."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._inputs.normalise import suggestion
from .._text.line import line
from .states import ROLLOUT
from .window import Window, read_windows

INVENTORY, SPREAD, RACK = "inventory", "spread", "rack"
LEAVE_ALONE, UPGRADE = "skip", "upgrade"
ZONE_LABEL = "topology.kubernetes.io/zone"
# Seconds: longer than the host part of a node takes, a reboot included.
SLOT_TIMEOUT = 3600.0
# What each pool may have for itself in pools.
PACE: dict[str, t.Any] = {
    "waves": (),
    "max_unavailable": "100%",
    "max_parallel": 0,
    "failure_budget": 0,
    "soak": 0,
    "order": INVENTORY,
    "rack_label": "",
    "zone_label": ZONE_LABEL,
    "window": (),
    "approval": False,
    "last_wave": 0,
    "slot_timeout": SLOT_TIMEOUT,
    "foreign_cordon": LEAVE_ALONE,
}
_COUNT = re.compile(r"\A\s*([0-9]{1,6})\s*(%?)\s*\Z")
_DURATION = re.compile(r"\A\s*([0-9]{1,9}(?:\.[0-9]{1,3})?)\s*([smhd]?)\s*\Z")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_YES = {"true": True, "yes": True, "false": False, "no": False}


@dataclass(frozen=True)
class Settings:
    """The pace of one pool. Sizes are whole numbers or percentages of the pool (a budget: of the wave)."""

    waves: tuple[int | str, ...] = ()
    max_unavailable: int | str = "100%"
    # 0: as many as Ansible has forks.
    max_parallel: int = 0
    # How many nodes of a wave may fail until no other begins; 0: any number.
    failure_budget: int | str = 0
    # Seconds between the end of a wave and the begin of the next.
    soak: float = 0.0
    order: str = INVENTORY
    # The label of a zone or a rack that the order uses; "" in the order of the inventory.
    order_label: str = ""
    window: tuple[Window, ...] = ()
    approval: bool = False
    # Nodes of later waves are left as they are; 0: none.
    last_wave: int = 0
    # Seconds without progress after which a host no longer waits for other nodes; 0: for ever.
    slot_timeout: float = SLOT_TIMEOUT
    foreign_cordon: str = LEAVE_ALONE
    metrics: bool = False

    @property
    def limited(self) -> bool:
        """Whether hosts of the pool may have to wait for each other."""
        return bool(
            self.waves or self.max_parallel or self.max_unavailable != "100%" or self.failure_budget or self.window
        )

    @property
    def gated(self) -> bool:
        """Whether a later wave waits for more than the end of the one before."""
        return bool(self.soak or self.approval or self.metrics)


def share(size: int | str, total: int) -> int:
    """How many of `total` a size is; percentages round up."""
    if isinstance(size, str):
        return -(-total * int(size.rstrip("%")) // 100)
    return size


def read_settings(inputs: t.Mapping[str, t.Any], place: str = ROLLOUT) -> Settings:
    """Inputs without the prefix; what is not given has the default of PACE. NpuError on what cannot work."""
    given = {**PACE, **{name: value for name, value in inputs.items() if value is not None}}
    order = _word(place + "order", given["order"], (INVENTORY, SPREAD, RACK))
    label = {INVENTORY: "", SPREAD: str(given["zone_label"]), RACK: str(given["rack_label"])}[order]
    if order != INVENTORY and not label.strip():
        key = "rack_label" if order == RACK else "zone_label"
        raise NpuError(
            f"{place}order is {order}, and {place}{key} is empty.", "Name the label of the nodes that has it."
        )
    unavailable = _size(place + "max_unavailable", given["max_unavailable"])
    if share(unavailable, 100) == 0:
        raise NpuError(
            f"{place}max_unavailable is {unavailable}, so no node could ever begin.", 'Write 1 or more, or "25%".'
        )
    return Settings(
        waves=_waves(place + "waves", given["waves"]),
        max_unavailable=unavailable,
        max_parallel=_whole(place + "max_parallel", given["max_parallel"]),
        failure_budget=_size(place + "failure_budget", given["failure_budget"]),
        soak=seconds(place + "soak", given["soak"]),
        order=order,
        order_label=label.strip(),
        window=read_windows(place + "window", given["window"]),
        approval=_yes(place + "approval", given["approval"]),
        last_wave=_whole(place + "last_wave", given["last_wave"]),
        slot_timeout=seconds(place + "slot_timeout", given["slot_timeout"]),
        foreign_cordon=_word(place + "foreign_cordon", given["foreign_cordon"], (LEAVE_ALONE, UPGRADE)),
        metrics=bool((given.get("metrics") or {}).get("query")),
    )


def read_pools(inputs: t.Mapping[str, t.Any], known: t.Collection[str]) -> dict[str, Settings]:
    """The settings of each known pool. NpuError also for a pool or a key in `pools` that nobody knows."""
    everywhere = read_settings(inputs)
    own = inputs.get("pools") or {}
    if not isinstance(own, t.Mapping):
        raise NpuError(f"{ROLLOUT}pools is {line(repr(own), 60)}.", "Write {POOL: {max_unavailable: 1}}.")
    found = {pool: everywhere for pool in known}
    for pool, more in own.items():
        place = f"{ROLLOUT}pools.{line(pool, 100)}"
        if pool not in found:
            raise NpuError(f"{place} is not a pool of these hosts.", suggestion(str(pool), sorted(known)))
        if not isinstance(more, t.Mapping):
            raise NpuError(f"{place} is {line(repr(more), 60)}.", "Write for example {max_unavailable: 1}.")
        for key in more:
            if key not in PACE:
                raise NpuError(f"{place} has the unknown key {line(key, 60)}.", suggestion(str(key), PACE))
        # A key without a value is that of all pools.
        own_values = {key: value for key, value in more.items() if value is not None}
        found[pool] = read_settings({**inputs, **own_values}, place + ".")
    return found


def _size(name: str, value: t.Any) -> int | str:
    """A whole number, or a percentage of at most 100."""
    match = None if isinstance(value, bool) else _COUNT.match(str(value))
    if not match:
        raise NpuError(f"{name} is {line(repr(value), 60)}, which is not a number of nodes.", 'Write 2 or "25%".')
    number = int(match.group(1))
    if match.group(2) and number > 100:
        raise NpuError(f"{name} is {number}%, which is more than all nodes.", 'Write at most "100%".')
    return f"{number}%" if match.group(2) else number


def _waves(name: str, given: t.Any) -> tuple[int | str, ...]:
    items = given.split(",") if isinstance(given, str) else given if isinstance(given, (list, tuple)) else [given]
    sizes = [_size(f"{name}[{number}]", item) for number, item in enumerate(items)]
    for number, size in enumerate(sizes):
        grown = number and [former for former in sizes[:number] if not _may_grow(former, size)]
        if share(size, 100) == 0 or grown:
            why = f"does not grow after {grown[0]}" if grown else "has no node"
            raise NpuError(
                f"{name}[{number}] is {size}: the wave {why}. Sizes count all nodes from the first wave on.",
                'Write for example [1, "10%", "50%", "100%"].',
            )
    return tuple(sizes)


def _may_grow(former: int | str, size: int | str) -> bool:
    """Whether a wave can be larger than a former one in some pool: 5 can after 10 %, 1 cannot after any."""
    if isinstance(former, str) and isinstance(size, int):
        return former != "100%" and size > 1
    if isinstance(former, int) and isinstance(size, str):
        return True
    return share(size, 100) > share(former, 100)


def _whole(name: str, value: t.Any) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not re.match(r"\A[0-9]{1,6}\Z", text):
        raise NpuError(f"{name} is {line(repr(value), 60)}, which is not a whole number from 0 on.", "Write 0 or more.")
    return int(text)


def seconds(name: str, value: t.Any) -> float:
    """A duration in seconds: a number of them, or text with a unit. NpuError names the input."""
    match = None if isinstance(value, bool) else _DURATION.match(str(value))
    if not match:
        raise NpuError(
            f"{name} is {line(repr(value), 60)}, which is not a duration.",
            "Write seconds, such as 1800, or a unit: 90s, 30m, 2h, 1d.",
        )
    return float(match.group(1)) * _SECONDS[match.group(2)]


def _yes(name: str, value: t.Any) -> bool:
    found = _YES.get(str(value).strip().lower())
    if found is None:
        raise NpuError(f"{name} is {line(repr(value), 60)}.", "Write true or false.")
    return found


def _word(name: str, value: t.Any, words: t.Sequence[str]) -> str:
    if value not in words:
        raise NpuError(f"{name} is {line(repr(value), 60)}.", f"Write {', '.join(words[:-1])} or {words[-1]}.")
    return str(value)
