# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The text of a change that failed: what the host has now, the reason, and one next step."""

from __future__ import annotations

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._driver.result import (
    AFTER,
    FAILURES,
    REMOVED,
    UNFINISHED,
    ChangeResult,
    Ending,
)


def error(outcome: str, reason: str) -> str:
    result = ChangeResult(previous="3.2.2")
    result.end(Ending(outcome, reason))
    return result.error


@pytest.mark.parametrize("outcome", [*FAILURES, UNFINISHED, REMOVED])
@pytest.mark.parametrize("reason", ["The disk is full.", "The disk is full. Next: Make room."])
def test_one_next_step_at_the_end(outcome: str, reason: str) -> None:
    text = error(outcome, reason)
    assert text.startswith(outcome.replace("_", " ") + ": ") and reason in text and text.count("Next: ") == 1
    assert AFTER.get(outcome, "").format(previous="3.2.2") in text.partition(" Next: ")[0]


def test_the_next_step_of_the_reason_wins() -> None:
    assert error("rolled_back", "It hangs. Next: Reboot.") == (
        "rolled back: Driver 3.2.2 works again. It hangs. Next: Reboot."
    )
    assert error("rolled_back", "It hangs.") == (
        "rolled back: Driver 3.2.2 works again. It hangs. Next: fix the cause and run again."
    )
    assert error("removed", "Parts are left: x.") == (
        "removed: Parts are left: x. Next: find out what keeps it in place, and run again."
    )
