# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Flashing the cards in the middle of a change: under a driver that has passed, which passes again with them before anybody may use it."""

from __future__ import annotations

import typing as t

from .._base.model import NpuError
from .._base.vendor import VendorProfile
from .._checks.ready_files import remove_markers
from .._host.host import Host
from .._npu.driver_notes import Record
from .._npu.firmware import FlashFailed, flash
from .journal import Journal
from .request import Judge, Request
from .units import Units


class Cards:
    """The cards of one change. Their results are in its journal, so that whoever takes the change over knows of them."""

    def __init__(
        self,
        host: Host,
        profile: VendorProfile,
        request: Request,
        journal: Journal,
        units: Units,
        judge: Judge,
        result: Record,
    ) -> None:
        self.host, self.profile, self.request, self.journal = host, profile, request, journal
        self.units, self.judge, self.result = units, judge, result
        self.passed = False

    @property
    def begun(self) -> bool:
        """Whether cards may have other firmware than before the change."""
        return self.journal.record.get("flashed") is not None

    def write(self) -> FlashFailed | None:
        """Flash, load, validate. The failure of a card is returned, since it is none of the driver; one that has left the tool at work is raised."""
        journal, failure = self.journal, None
        # Whoever takes this over has to load the driver and to validate it again.
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
        journal.step("validate", lambda: self.judge.prove(self.request.version or None))
        self.passed = True
        return failure

    def _flash(self) -> None:
        before = self.journal.record.get("flashed")
        try:
            # Loading the driver may have had them written anew.
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
        self.result["firmware"] = [dict(card) for card in cards]
        self.journal.save(flashed=self.result["firmware"])
