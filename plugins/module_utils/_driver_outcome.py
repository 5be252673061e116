# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a change of the driver can end, and who judges the driver in the middle of it."""

from __future__ import annotations

import typing as t

from ._model import NpuError

UNCHANGED = "unchanged"
INSTALLED = "installed"
UPGRADED = "upgraded"
PREPARED = "prepared"
REBOOT = "reboot_required"
FIRMWARE_FAILED = "firmware_failed"
RESTORED = "restored"
ROLLED_BACK = "rolled_back"
LEFT_STOPPED = "left_stopped"
FAILURES = (FIRMWARE_FAILED, RESTORED, ROLLED_BACK, LEFT_STOPPED)


class Unfit(NpuError):
    """The driver was installed and its validation failed."""


class Judge:
    """Validation of the driver that is loaded: failed() are the names of blocking checks that do not pass, prove() raises Unfit."""

    def failed(self) -> t.List[str]:
        raise NotImplementedError

    def prove(self, version: t.Optional[str], accepted: t.Collection[str] = ()) -> None:
        raise NotImplementedError
