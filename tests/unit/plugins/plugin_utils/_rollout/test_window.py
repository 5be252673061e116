# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Maintenance windows: days, midnight, zones, and clocks that are set forward and back."""

from __future__ import annotations

import datetime
import typing as t

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.states import moment
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.window import Window, opens, read_windows


def windows(*items: dict[str, t.Any]) -> tuple[Window, ...]:
    return read_windows("window", list(items))


def opened(text: str, *items: dict[str, t.Any]) -> str:
    """ "open", or when the next one opens."""
    until = opens(windows(*items), moment(text))
    return until.strftime("%a %d %H:%M") if until else "open"


# 2026-01-05 is a Monday.
NIGHT = {"days": "mon-fri", "from": "22:00", "to": "04:00"}
SEOUL = {"days": ["sat"], "from": "02:00", "to": "06:00", "zone": "Asia/Seoul"}


@pytest.mark.parametrize(
    "now, expected",
    [
        ("2026-01-05T21:59:59Z", "Mon 05 22:00"),
        ("2026-01-05T22:00:00Z", "open"),
        ("2026-01-06T03:59:59Z", "open"),
        ("2026-01-06T04:00:00Z", "Tue 06 22:00"),
        # The night of Friday ends on Saturday; none begins on Saturday and Sunday.
        ("2026-01-10T03:00:00Z", "open"),
        ("2026-01-10T23:00:00Z", "Mon 12 22:00"),
        # Before the first night of the week no window has begun.
        ("2026-01-05T03:00:00Z", "Mon 05 22:00"),
    ],
)
def test_over_midnight(now: str, expected: str) -> None:
    assert opened(now, NIGHT) == expected


@pytest.mark.parametrize(
    "now, expected",
    [
        ("2026-01-09T16:59:59Z", "Fri 09 17:00"),
        ("2026-01-09T17:00:00Z", "open"),
        ("2026-01-09T21:00:00Z", "Fri 16 17:00"),
    ],
)
def test_days_and_hours_are_those_of_the_zone(now: str, expected: str) -> None:
    assert opened(now, SEOUL) == expected


def test_any_of_several_is_enough_and_the_next_one_counts() -> None:
    assert opened("2026-01-09T17:30:00Z", {"days": "sun", "from": "01:00", "to": "02:00"}, SEOUL) == "open"
    assert opened("2026-01-09T12:00:00Z", {"days": "sun", "from": "01:00", "to": "02:00"}, SEOUL) == "Fri 09 17:00"
    assert opens((), moment("2026-01-09T12:00:00Z")) is None


BERLIN = "Europe/Berlin"


@pytest.mark.parametrize(
    "now, expected",
    [
        # 2026-03-29: 02:00 becomes 03:00, at 01:00 UTC. The window is half an hour instead of one and a half.
        ("2026-03-29T00:59:00Z", "Sun 29 01:00"),
        ("2026-03-29T01:00:00Z", "open"),
        ("2026-03-29T01:29:59Z", "open"),
        ("2026-03-29T01:30:00Z", "Mon 30 00:00"),
    ],
)
def test_a_window_that_begins_in_the_hour_that_is_skipped(now: str, expected: str) -> None:
    assert opened(now, {"from": "02:00", "to": "03:30", "zone": BERLIN}) == expected


def test_a_window_within_the_hour_that_is_skipped_opens_a_week_later() -> None:
    item = {"days": "sun", "from": "02:10", "to": "02:50", "zone": BERLIN}
    assert opened("2026-03-29T00:30:00Z", item) == "Sun 05 00:10"


@pytest.mark.parametrize(
    "now, expected",
    [
        # 2026-10-25: 03:00 becomes 02:00 again, at 01:00 UTC. The hour from 02:00 is there twice.
        ("2026-10-24T23:59:00Z", "Sun 25 00:00"),
        ("2026-10-25T00:00:00Z", "open"),
        ("2026-10-25T00:59:00Z", "open"),
        ("2026-10-25T01:10:00Z", "open"),
        ("2026-10-25T01:30:00Z", "Mon 26 01:00"),
    ],
)
def test_a_window_in_the_hour_that_is_there_twice(now: str, expected: str) -> None:
    assert opened(now, {"from": "02:00", "to": "02:30", "zone": BERLIN}) == expected


def test_half_an_hour_may_be_skipped_too() -> None:
    item = {"from": "02:15", "to": "04:00", "zone": "Australia/Lord_Howe"}
    # 2026-10-04: 02:00 becomes 02:30, at 15:30 UTC.
    assert opened("2026-10-03T15:29:00Z", item) == "Sat 03 15:30"
    assert opened("2026-10-03T15:30:00Z", item) == "open"


@pytest.mark.parametrize(
    "item, expected",
    [
        ({"days": None, "from": "22:00", "to": "4:00", "zone": None}, Window(frozenset(range(7)), 1320, 240, "UTC")),
        ({"days": "fri-mon", "from": "0:00", "to": "24:00"}, Window(frozenset({4, 5, 6, 0}), 0, 1440, "UTC")),
        ({"days": "Saturday, sun", "from": "1:30", "to": "02:00"}, Window(frozenset({5, 6}), 90, 120, "UTC")),
        ({"days": ["mon"], "from": "23:00", "to": "00:00"}, Window(frozenset({0}), 1380, 0, "UTC")),
    ],
)
def test_forms(item: dict[str, t.Any], expected: Window) -> None:
    assert windows(item) == (expected,)


def test_a_whole_day_ends_at_midnight() -> None:
    item = {"days": "mon", "from": "00:00", "to": "24:00"}
    assert opened("2026-01-05T23:59:59Z", item) == "open"
    assert opened("2026-01-06T00:00:00Z", item) == "Mon 12 00:00"


@pytest.mark.parametrize(
    "item, message",
    [
        ({"from": "22:00", "to": "22:00"}, r"window\[0\] never opens: from is 22:00 and to is 22:00"),
        ({"from": "24:00", "to": "02:00"}, r"window\[0\] never opens: from is 24:00"),
        ({"from": "22:00", "to": "23:00", "days": []}, r"window\[0\]\.days is empty, so the window never opens"),
        ({"from": "22:00"}, r"window\[0\] has no to"),
        ({"from": "25:00", "to": "02:00"}, r"window\[0\]\.from is '25:00', which is not a time"),
        ({"from": 1320, "to": "23:00"}, r"window\[0\]\.from is the number 1320: YAML reads a time such as 22:00 "),
        (
            {"from": "22:00", "to": 1440},
            r'window\[0\]\.to is the number 1440.* Next: Write it in quotes, such as "24:00"',
        ),
        ({"from": "1320", "to": "23:00"}, r'window.* Next: Write it in quotes, such as "22:00"'),
        ({"from": 2200, "to": "23:00"}, r"window\[0\]\.from is 2200, which is not a time"),
        ({"from": 22, "to": "23:00"}, r"window\[0\]\.from is 22, which is not a time"),
        ({"from": "22:60", "to": "23:00"}, r"window\[0\]\.from is '22:60'"),
        ({"from": "22:00", "to": "23:00", "days": "mo"}, r"window\[0\]\.days has 'mo', which is not a day"),
        ({"from": "22:00", "to": "23:00", "zone": "Asia/Soul"}, r"window\[0\]\.zone: The controller does not know"),
        ({"from": "22:00", "to": "23:00", "zone": "../etc/passwd"}, r"window\[0\]\.zone: The controller does not"),
        ({"from": "22:00", "until": "23:00"}, r"window\[0\] has the unknown key until"),
        ("always", r"window\[0\] is 'always', which is not a window"),
    ],
)
def test_what_is_no_window_is_named(item: t.Any, message: str) -> None:
    with pytest.raises(NpuError, match="^" + message) as caught:
        windows(item)
    assert " Next: " in str(caught.value)


def test_days_of_a_year_agree_with_a_clock_that_is_read_minute_by_minute() -> None:
    """Where no clock is set, a window is open exactly while the wall clock of its zone is within it."""
    item = windows({"days": "wed,sun", "from": "23:30", "to": "01:15", "zone": "Asia/Seoul"})
    begin = moment("2026-05-01T00:00:00Z")
    for step in range(0, 14 * 24 * 60, 7):
        now = begin + datetime.timedelta(minutes=step)
        wall = now + datetime.timedelta(hours=9)
        minute, day = wall.hour * 60 + wall.minute, wall.weekday()
        inside = day in (2, 6) and minute >= 1410 or day in (3, 0) and minute < 75
        assert (opens(item, now) is None) == inside, now
