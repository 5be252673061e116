# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of a driver change. The change alone writes it; its helpers return what they found."""

from __future__ import annotations

import typing as t

from .._base.records import asdict, dataclass, field

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
AFTER = {
    FIRMWARE_FAILED: "The driver works.",
    RESTORED: "No file was replaced; the host is as it was.",
    ROLLED_BACK: "Driver {previous} works again.",
    LEFT_STOPPED: "No working driver is loaded; the host is marked tainted.",
    UNFINISHED: "The driver is partly removed; the next run continues.",
}
NEXT = {REMOVED: "find out what keeps it in place, and run again."}
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
        """How it ended, what the host has now, the reason, and a next step: that of the reason, if it has one."""
        step = "" if " Next: " in self.reason else NEXT.get(self.outcome, "fix the cause and run again.")
        after = AFTER.get(self.outcome, "").format(previous=self.previous)
        text = "%s: %s" % (self.outcome.replace("_", " "), " ".join(part for part in (after, self.reason) if part))
        return "%s Next: %s" % (text, step) if step else text

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
