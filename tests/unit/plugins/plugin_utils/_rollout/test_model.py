# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rollouts in a cluster in which everything goes wrong: the rules hold after each step, and each node arrives.

`make proof-rollout` plays many more.
"""

from __future__ import annotations

import collections

from ansible_collections.rebellions.npu.tests.unit.fixtures.rollout_model import play

STORIES = 1000
# What has to be seen, so that none of the rules holds only because nothing happened.
SEEN = {
    "Begin: begin",
    "Begin: begin without cordon",
    "Begin: takes over",
    "Refuse: Its upgrade failed",
    "Refuse: aborted",
    "Refuse: has stopped",
    "Refuse: is not proven",
    "Refuse: nobody works on",
    "Refuse: proved nothing",
    "Refuse: taken over",
    "Skip: It was upgraded",
    "Skip: cordoned by someone else",
    "Skip: excludes it",
    "Wait: has not ended",
    "Wait: max_parallel is",
    "Wait: max_unavailable is",
    "Wait: not approved",
    "Wait: paused",
    "Wait: soaks",
    "Wait: window",
    "runs in calm: 1",
}


def test_rules_hold_whatever_happens_and_every_node_arrives() -> None:
    seen: collections.Counter[str] = collections.Counter()
    for number in range(STORIES):
        try:
            seen.update(play(f"unit {number}"))
        except AssertionError as exc:
            raise AssertionError(f'play("unit {number}"): {exc}') from exc
    assert set(seen) >= SEEN, sorted(SEEN - set(seen))
