# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What settings of Ansible are worth: unchanged runs under the sample's, and with one of them changed."""

from __future__ import annotations

import typing as t
from statistics import median

from ._contenders import Spent, ours, unchanged
from ._hosts import ALL, FOLDER, Hosts

SIZE = 20
VARIANTS: dict[str, dict[str, str]] = {
    "the sample": {},
    "forks = 5": {"forks": "5"},
    "pipelining = false": {"pipelining": "false"},
    "internal_poll_interval = 0.001": {"internal_poll_interval": "0.001"},
    "fact_caching = memory": {"fact_caching": "memory"},
}


class Teller(t.Protocol):
    """The report of the benchmark."""

    def gate(self, good: bool, text: str) -> None: ...

    def tell(self, text: str) -> None: ...


def settings(report: Teller, hosts: Hosts, rounds: int) -> None:
    """Each in turn, so that what else the machine does meets all of them."""
    spent: dict[str, list[Spent]] = {name: [] for name in VARIANTS}
    least = SIZE
    for _round in range(rounds):
        for name, variant in VARIANTS.items():
            spent[name].append(ours(hosts, ALL[:SIZE], **variant))
            least = min(least, unchanged((FOLDER / "ours.log").read_text(encoding="utf-8", errors="replace")))
    report.gate(least == SIZE, "%d of %d hosts unchanged in every run" % (least, SIZE))
    for name, runs in spent.items():
        parts = [[one.cpu / SIZE for one in runs], [one.controller / SIZE for one in runs], [one.wall for one in runs]]
        report.tell(
            "%s, %d hosts: %s CPU-s a host, %s of them the controller's; %s s"
            % (name, SIZE, *("%.2f (%.2f-%.2f)" % (median(part), min(part), max(part)) for part in parts))
        )
