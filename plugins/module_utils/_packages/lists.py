# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a package manager's lists are read anew: when they lack what is wanted, or are older than their source."""

from __future__ import annotations

import typing as t

from .._base.model import NpuError

T = t.TypeVar("T")


class Missing(NpuError):
    """The lists do not have what was asked for, or name a file that the mirror no longer has."""


class Lists:
    """The lists of one host, each read at most once: those of our own source first, those of all repositories when that is not enough.

    `refresh(source)` reads them. `own()` is our source as refresh calls it, empty when there is none. `stale()` is True when its lists are older than it.
    """

    def __init__(self, refresh: t.Callable[[str], None], own: t.Callable[[], str], stale: t.Callable[[], bool]) -> None:
        self._refresh = refresh
        self._own = own
        self._stale = stale
        self._own_is_read = False
        self._all_are_read = False
        self._error: NpuError | None = None

    def answer(self, attempt: t.Callable[[], T], found: t.Callable[[T], bool] = lambda _value: True) -> T:
        """What `attempt` returns, asked again with fresh lists while it raises Missing or its value is not `found`.

        A mirror that fails is an error only when what is wanted was not found; it is named then.
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
                "%s The lists could not be read anew: %s" % (lacking.message, self._error.message),
                self._error.next_step,
            )

    def freeze(self) -> None:
        """Take the lists as they are: reading them is a change too."""
        self._own_is_read = self._all_are_read = True

    def _read(self) -> bool:
        """Read the next lists; False when all were read before."""
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
