# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of a driver change. The change alone writes it; its helpers return what they found."""

from __future__ import annotations

import typing as t
from dataclasses import asdict, dataclass, field

UNCHANGED = "unchanged"
INSTALLED = "installed"
UPGRADED = "upgraded"
PREPARED = "prepared"
REBOOT = "reboot_required"
FIRMWARE_FAILED = "firmware_failed"
RESTORED = "restored"
ROLLED_BACK = "rolled_back"
LEFT_STOPPED = "left_stopped"
REMOVED = "removed"
UNFINISHED = "unfinished"
NEXT = {
    FIRMWARE_FAILED: "The driver works. Next: fix the cause and run again.",
    RESTORED: "No file was replaced; the host is as it was. Next: fix the cause and run again.",
    ROLLED_BACK: "Driver {previous} works again. Next: fix the cause and run again.",
    LEFT_STOPPED: (
        "No working driver is loaded; the host is marked tainted. Next: fix the reported cause and run again."
    ),
    REMOVED: "Next: find out what keeps it in place, and run again.",
    UNFINISHED: "The driver is partly removed. Next: fix the cause and run again; the next run continues.",
}
FAILURES = (FIRMWARE_FAILED, RESTORED, ROLLED_BACK, LEFT_STOPPED)

Row = t.Dict[str, t.Any]


@dataclass(frozen=True)
class Ending:
    """How a change ended; `reason` says why it did not reach its goal."""

    outcome: str
    reason: str = ""


@dataclass
class ChangeResult:
    """What a change returns; the module's documentation explains the fields."""

    version: str | None = None
    previous: str | None = None
    changed: bool = False
    outcome: str = UNCHANGED
    reason: str = ""
    reboot_required: bool = False
    steps: list[Row] = field(default_factory=list)
    in_use: list[Row] = field(default_factory=list)
    simulated: list[Row] = field(default_factory=list)
    firmware: list[Row] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        return self.outcome in FAILURES and bool(self.reason)

    @property
    def error(self) -> str:
        """What failed, why, and what to do next."""
        after = NEXT[self.outcome].format(previous=self.previous)
        return "%s: %s %s" % (self.outcome.replace("_", " "), self.reason, after)

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def end(self, ending: Ending) -> None:
        self.outcome, self.reason = ending.outcome, ending.reason

    def to_dict(self) -> Row:
        return dict(asdict(self), failed=self.failed)


@dataclass
class RemovalResult(ChangeResult):
    """What a removal returns besides; `packages` is None when it has removed none."""

    left: list[str] = field(default_factory=list)
    installer: bool = False
    packages: list[str] | None = None

    @property
    def failed(self) -> bool:
        return bool(self.reason)

    def to_dict(self) -> Row:
        found = super().to_dict()
        if self.packages is None:
            del found["packages"]
        return found
