# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When to update the lists of a package manager: they lack a wanted package, or are older than their source."""

from __future__ import annotations

import typing as t

from .._base.model import NpuError

T = t.TypeVar("T")


class Missing(NpuError):
    """The lists lack the package, or the mirror no longer has its file."""


class Lists:
    """The lists of one host, each updated at most once: our own source first, then all repositories.

    `refresh(source)` updates them. `own()` is our source, empty when there is none. `stale()` is True when its lists
    are older.
    """

    def __init__(self, refresh: t.Callable[[str], None], own: t.Callable[[], str], stale: t.Callable[[], bool]) -> None:
        self._refresh = refresh
        self._own = own
        self._stale = stale
        self._own_is_read = False
        self._all_are_read = False
        self._error: NpuError | None = None

    def answer(self, attempt: t.Callable[[], T], found: t.Callable[[T], bool] = lambda _value: True) -> T:
        """Result of `attempt`, repeated with updated lists while it raises Missing or the value is not `found`.

        A failed mirror is an error only when the package was not found.
        """
        if not self._own_is_read and self._stale():
            self._read()
        while True:
            lacking: Missing | None = None
            try:
                value = attempt()
                if found(value):
                    return value
            except Missing as exc:
                lacking = exc
            if self._read():
                continue
            if lacking is None:
                if self._error is not None:
                    raise self._error
                return value
            if self._error is None:
                raise lacking
            raise Missing(
                "%s Updating the lists failed: %s" % (lacking.message, self._error.message),
                self._error.next_step,
            )

    def freeze(self) -> None:
        """Use the lists as they are: updating them is a change too."""
        self._own_is_read = self._all_are_read = True

    def _read(self) -> bool:
        """Update the next lists; False when all were updated before."""
        if self._all_are_read:
            return False
        source = "" if self._own_is_read else self._own()
        self._own_is_read = True
        self._all_are_read = not source
        try:
            self._refresh(source)
            self._error = None
        except NpuError as error:
            self._error = error
        return True
