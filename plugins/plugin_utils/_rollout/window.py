# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Maintenance windows: days, hours and a time zone; also over midnight and when clocks are set forward or back."""

from __future__ import annotations

import datetime
import re
import typing as t
from dataclasses import dataclass

import zoneinfo
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._inputs.normalise import suggestion
from .._text.line import line

UTC = datetime.timezone.utc
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_KEYS = ("days", "from", "to", "zone")
_TIME = re.compile(r"\A([0-9]{1,2}):([0-9]{2})\Z")
_NUMBER = re.compile(r"\A[0-9]{2,4}\Z")
_EXAMPLE = 'Write for example [{days: [sat, sun], from: "22:00", to: "04:00", zone: Asia/Seoul}].'
WHOLE_DAY = 24 * 60
# An hour that the clock skips on one day of the week is there again a week later.
_AHEAD = 22


@dataclass(frozen=True)
class Window:
    """Open from `begin` on each of `days` (0 is Monday) to `end`, both in minutes of the day in `zone`.

    An `end` before `begin` is on the next day.
    """

    days: frozenset[int]
    begin: int
    end: int
    zone: str

    def opened(self, day: datetime.date) -> tuple[datetime.datetime, datetime.datetime] | None:
        """From when to when it is open that begins on this day; None when it does not."""
        if day.weekday() not in self.days:
            return None
        zone, midnight = zone_of(self.zone), datetime.datetime.combine(day, datetime.time())
        end = self.end + (WHOLE_DAY if self.end <= self.begin else 0)
        begins = _instant(midnight + datetime.timedelta(minutes=self.begin), zone, last=False)
        ends = _instant(midnight + datetime.timedelta(minutes=end), zone, last=True)
        return (begins, ends) if begins < ends else None


def opens(windows: t.Sequence[Window], now: datetime.datetime) -> datetime.datetime | None:
    """None when a node may begin now, else the next time at which one may. No windows: always."""
    found = []
    for window in windows:
        yesterday = now.astimezone(zone_of(window.zone)).date() - datetime.timedelta(days=1)
        for ahead in range(_AHEAD):
            times = window.opened(yesterday + datetime.timedelta(days=ahead))
            if times and times[0] <= now < times[1]:
                return None
            if times and times[0] > now:
                found.append(times[0])
                break
    return min(found, default=None)


def _instant(wall: datetime.datetime, zone: datetime.tzinfo, last: bool) -> datetime.datetime:
    """When clocks of the zone show `wall`: the first or the last time of the day.

    Where clocks are set forward over it, the moment at which they are.
    """
    first, second = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if first.astimezone(zone).replace(tzinfo=None) == wall:
        return second if last else first
    before, after = second, first
    while after - before > datetime.timedelta(seconds=1):
        middle = before + (after - before) // 2
        moved = middle.astimezone(zone).utcoffset() == after.astimezone(zone).utcoffset()
        before, after = (before, middle) if moved else (middle, after)
    return after.replace(microsecond=0)


def zone_of(name: str) -> datetime.tzinfo:
    """A zone by its name. NpuError when the controller does not know it."""
    if name == "UTC":
        return UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise NpuError(
            f"The controller does not know the time zone {line(repr(name), 60)}.",
            "Write a name such as Asia/Seoul or UTC; where /usr/share/zoneinfo is missing, install the Python package"
            " tzdata.",
        ) from None


def read_windows(name: str, given: t.Any) -> tuple[Window, ...]:
    """The windows of an input. NpuError names the one that is wrong, or that never opens."""
    if not isinstance(given or (), (list, tuple)):
        raise NpuError(f"{name} is {line(repr(given), 60)}, which is not a list of windows.", _EXAMPLE)
    return tuple(_read(f"{name}[{number}]", item) for number, item in enumerate(given or ()))


def _read(name: str, item: t.Any) -> Window:
    if not isinstance(item, t.Mapping):
        raise NpuError(
            f"{name} is {line(repr(item), 60)}, which is not a window.",
            _EXAMPLE,
        )
    for key in item:
        if key not in _KEYS:
            raise NpuError(f"{name} has the unknown key {line(key, 60)}.", suggestion(str(key), _KEYS))
    for key in ("from", "to"):
        if item.get(key) is None:
            raise NpuError(f"{name} has no {key}.", f'Write for example {key}: "04:00".')
    begin, end = (_minutes(f"{name}.{key}", item[key]) for key in ("from", "to"))
    if begin == end or begin == WHOLE_DAY:
        raise NpuError(
            f"{name} never opens: from is {_clock(begin)} and to is {_clock(end)}.",
            'Write another time; from: "00:00" and to: "24:00" are a whole day.',
        )
    zone = str(item.get("zone") or "UTC").strip()
    try:
        zone_of(zone)
    except NpuError as exc:
        raise NpuError(f"{name}.zone: {exc.message}", exc.next_step) from None
    return Window(_days(f"{name}.days", item.get("days")), begin, end, zone)


def _clock(minutes: int) -> str:
    return "%02d:%02d" % divmod(minutes, 60)


def _minutes(name: str, value: t.Any) -> int:
    text = str(value).strip()
    match = _TIME.match(text)
    if _NUMBER.match(text) and 60 <= int(text) <= WHOLE_DAY:
        # 22:00 without quotes is 1320, and so is 1320, which may mean 13:20.
        raise NpuError(
            f"{name} is the number {text}: YAML reads a time such as {_clock(int(text))} without quotes so.",
            f'Write it in quotes, such as "{_clock(int(text))}".',
        )
    found = int(match.group(1)) * 60 + int(match.group(2)) if match and int(match.group(2)) < 60 else WHOLE_DAY + 1
    if found > WHOLE_DAY:
        raise NpuError(
            f"{name} is {line(repr(value), 60)}, which is not a time of the day.", 'Write for example "22:00".'
        )
    return found


def _days(name: str, given: t.Any) -> frozenset[int]:
    """All days when none are given."""
    if given is None:
        return frozenset(range(7))
    found: set[int] = set()
    for part in given.split(",") if isinstance(given, str) else given if isinstance(given, list) else [given]:
        first, dash, last = str(part).strip().lower().partition("-")
        ends = [_day(name, part, word.strip()) for word in ((first, last) if dash else (first,))]
        found |= {day % 7 for day in range(ends[0], ends[-1] + (1 if ends[-1] >= ends[0] else 8))}
    if not found:
        raise NpuError(f"{name} is empty, so the window never opens.", "Name days, or leave the key out for all days.")
    return frozenset(found)


def _day(name: str, given: t.Any, word: str) -> int:
    for number, day in enumerate(DAYS):
        if word in (day, day[:3]):
            return number
    raise NpuError(
        f"{name} has {line(repr(given), 60)}, which is not a day.", "Write days such as mon, sat or mon-fri."
    )
