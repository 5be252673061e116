# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Flash the cards during a change. The driver must pass validation before and after."""

from __future__ import annotations

import typing as t

from .._base.model import NpuError
from .._checks.ready_files import remove_markers
from .._npu.firmware import FlashFailed, flash
from .context import ChangeContext
from .result import Row


class Cards:
    """The cards of one change. `results` has one row per card. The journal has them too, for a run that takes over."""

    def __init__(self, context: ChangeContext) -> None:
        self.host, self.profile, self.request = context.host, context.profile, context.request
        self.journal, self.units, self.validation = context.journal, context.units, context.validation
        self.results: list[Row] = []
        self.passed = False

    @property
    def begun(self) -> bool:
        """Whether flashing has begun, so that cards may have other firmware than before."""
        return self.journal.record.get("flashed") is not None

    def write(self) -> FlashFailed | None:
        """Flash, load, validate. Returns a failure of a card; raises when the flash tool still runs."""
        journal, failure = self.journal, None
        # A run that takes over must load and validate the driver again.
        journal.save(done=[name for name in journal.record["done"] if name != "validate"])
        try:
            journal.step("firmware", self._flash)
        except FlashFailed as exc:
            if exc.hung:
                raise
            failure = exc
        if self.units.loaded_version() is None:
            journal.step("load", self.units.load)
        journal.step("start", lambda: self.units.start_daemon(journal))
        journal.step("validate", lambda: self.validation.prove(self.request.version or None))
        self.passed = True
        return failure

    def _flash(self) -> None:
        before = self.journal.record.get("flashed")
        try:
            # Loading the driver may have written them again.
            remove_markers(self.host, self.profile)
            self.units.stop_daemon()
            self.units.unload()
            self.journal.save(flashed=before or [])
            self._note(flash(self.host, self.profile, self.request.firmware))
        except FlashFailed as exc:
            self._note(exc.cards)
            raise
        except NpuError as exc:
            self.journal.save(flashed=before)
            raise FlashFailed("No card was flashed: %s" % exc.message, exc.next_step) from exc

    def _note(self, cards: t.Sequence[t.Mapping[str, t.Any]]) -> None:
        self.results = [dict(card) for card in cards]
        self.journal.save(flashed=self.results)
