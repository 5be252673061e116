# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Validation during a change: the checks of the scope driver, repeated for cards that start slowly."""

from __future__ import annotations

import time
import typing as t

from .._base.vendor import VendorProfile
from .._checks.prove import PASSED, Proof
from .._host.host import Host
from .._observe.observe import look, prove_look
from .._observe.settings import complete, read_settings
from .request import DriverValidation, Unfit

PATIENCE = (0.0, 1.0, 3.0, 6.0)


class Checks(DriverValidation):
    """The checks of this collection."""

    def __init__(
        self,
        host: Host,
        profile: VendorProfile,
        options: t.Mapping[str, t.Any],
        sleep: t.Callable[[float], None] = time.sleep,
    ) -> None:
        self.host, self.profile, self.options, self.sleep = host, profile, options, sleep
        complete(options, "options")

    def _proof(self, version: str | None) -> Proof:
        params = complete(dict(self.options, scopes=["driver"], driver_version=version), "options")
        settings = read_settings(self.profile, params)
        return prove_look(self.profile, self.host, look(self.profile, self.host, settings), settings)

    def failed(self) -> list[str]:
        """Names of the blocking checks that do not pass, whatever the version."""
        proof = self._proof(None)
        return sorted(proof.failed + proof.unknown)

    def prove(self, version: str | None, accepted: t.Collection[str] = ()) -> None:
        """Unfit when a blocking check does not pass. Checks in `accepted` failed before the change too."""
        message = ""
        for pause in PATIENCE:
            self.sleep(pause)
            proof = self._proof(version)
            if proof.state == PASSED or set(proof.failed + proof.unknown) <= set(accepted):
                return
            message = proof.message()
        raise Unfit("The driver is installed, but its validation failed: %s" % message)
