# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""prove(): run checks, decide, and keep the ready files true.

The rule: a check that is false and listed in `blocking` (by severity or name) fails the proof. One that is not known
and is listed leaves it unknown, which is not passed unless `unknown_blocks` is off. Everything else is only reported.

The ready files follow: a scope that passed writes its files, one that failed removes them and those of every later
scope, and one that is unknown neither writes nor removes.
"""

from __future__ import annotations

import typing as t

from .._base.model import ERROR, Check, NpuError
from .._base.records import asdict, dataclass, field, replace
from .._base.vendor import VendorProfile
from .._host.files import remove_file, renew, write_file
from .._host.host import Host
from .base import Context, Data
from .ready_files import (
    INSTALLED,
    MARKERS,
    READY,
    STOPPED,
    TOOLKIT,
    change_mark,
    find_spec,
    marker_path,
    ready_values,
    render_ready,
)
from .run import blocks, check_blocking, check_scopes, run_checks

WRITE = "write"
KEEP = "keep"
REMOVE = "remove"
REMOVE_TOOLKIT = "remove_toolkit"
MARKER_MODES = (WRITE, KEEP, REMOVE, REMOVE_TOOLKIT)

PASSED = "passed"
FAILED = "failed"
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Rules:
    """How to judge and what to do with the ready files. `dry` says what would be done and does nothing."""

    scopes: t.Sequence[str] = ("driver", "toolkit")
    blocking: t.Sequence[str] = ("error",)
    unknown_blocks: bool = True
    markers: str = KEEP
    host_root: str = "/host"
    library_path: str | None = None
    dry: bool = False


@dataclass
class Proof:
    """The checks, and what followed.

    `failed` and `unknown` name those that block because they are false or not known; `changes` are the ready files
    that were written, removed or renewed: host paths with the act.
    """

    checks: list[Check] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    changes: list[dict[str, str]] = field(default_factory=list)

    @property
    def state(self) -> str:
        if self.failed:
            return FAILED
        return UNKNOWN if self.unknown else PASSED

    def to_dict(self) -> dict[str, t.Any]:
        return dict(asdict(self), state=self.state, passed=self.state == PASSED, changed=bool(self.changes))

    def message(self) -> str:
        """What each check that stands in the way says, and one next step: that of the first, which may mend others."""
        found = [check for check in self.checks if check.name in self.failed or check.name in self.unknown]
        found.sort(key=lambda check: check.name not in self.failed)
        lines = ["%s/%s: %s." % (check.scope, check.name, check.detail.rstrip(".")) for check in found]
        step = next((" Next: %s" % check.next_step for check in found if check.next_step), "")
        counts = [_count(self.failed, "failed", "failed"), _count(self.unknown, "is not known", "are not known")]
        return "%s. %s%s" % (", ".join(filter(None, counts)), " | ".join(lines), step)


def _count(names: t.Sequence[str], one: str, more: str) -> str:
    """`1 check is not known`; empty for none."""
    return (
        "%d check%s %s" % (len(names), "" if len(names) == 1 else "s", one if len(names) == 1 else more)
        if names
        else ""
    )


def judge(proof: Proof, checks: t.Sequence[Check], rules: Rules) -> str:
    """Add `checks` to the proof; passed, failed or unknown for these alone."""
    failed = [check.name for check in checks if check.ok is False and blocks(check, rules.blocking)]
    unknown = [
        check.name for check in checks if check.ok is None and blocks(check, rules.blocking) and rules.unknown_blocks
    ]
    proof.checks.extend(checks)
    proof.failed.extend(failed)
    proof.unknown.extend(unknown)
    return FAILED if failed else UNKNOWN if unknown else PASSED


CHANGING = Check(
    "driver_change",
    "driver",
    None,
    ERROR,
    "the driver is being changed, or a change of it was interrupted, so no ready file was written",
    next_step="Wait until the change ends, or run site.yml again to finish it.",
)


class _Files:
    """The ready files of one host, each change noted."""

    def __init__(self, profile: VendorProfile, host: Host, proof: Proof, dry: bool) -> None:
        self.profile, self.host, self.proof, self.dry = profile, host, proof, dry
        self.present = {name for name in MARKERS if host.stat(marker_path(profile, name)).ok}
        self.mark = change_mark(host, profile)

    def write(self, name: str, text: str) -> None:
        """Write a ready file, unless the driver is being changed or was changed since the proof began."""
        path = marker_path(self.profile, name)
        if self._undisturbed():
            written = write_file(self.host, path, text, dry=self.dry)
            # A change that began meanwhile has removed the ready files: this one must not come back.
            if self.dry or self._undisturbed():
                self._note(path, "written", written)
                self.present.add(name)
                return
            remove_file(self.host, path)
        self.present.discard(name)
        if CHANGING.name not in self.proof.unknown:
            self.proof.checks.append(replace(CHANGING, vendor=self.profile.name))
            self.proof.unknown.append(CHANGING.name)

    def _undisturbed(self) -> bool:
        return self.mark is not None and change_mark(self.host, self.profile) == self.mark

    def remove(self, *names: str) -> None:
        for name in names:
            path = marker_path(self.profile, name)
            self._note(path, "removed", remove_file(self.host, path, dry=self.dry))
            self.present.discard(name)

    def renew_spec(self, path: str | None) -> None:
        marker = self.host.stat(marker_path(self.profile, READY))
        if path and marker.ok:
            self._note(path, "renewed", renew(self.host, path, marker.value.mtime, dry=self.dry))

    def _note(self, path: str, act: str, changed: bool) -> None:
        if changed:
            self.proof.changes.append({"path": path, "act": act})


def prove(
    profile: VendorProfile, host: Host, facts: Data, runtimes: Data, cdi: Data, wanted: Data, rules: Rules
) -> Proof:
    """Run the checks of the rules' scopes and keep the ready files. NpuError on bad rules or a write that failed."""
    check_blocking(rules.blocking)
    check_scopes(rules.scopes)
    if rules.markers not in MARKER_MODES:
        raise NpuError("markers is %r." % rules.markers, "Use one of: %s." % ", ".join(MARKER_MODES))
    proof = Proof()
    files = _Files(profile, host, proof, rules.dry)
    if rules.markers == REMOVE:
        files.remove(TOOLKIT, READY, INSTALLED, STOPPED)
    elif rules.markers == REMOVE_TOOLKIT:
        files.remove(TOOLKIT)
    write = rules.markers == WRITE

    def run(scope: str) -> str:
        return (
            judge(proof, run_checks(profile, host, facts, runtimes, cdi, wanted, (scope,)), rules)
            if scope in rules.scopes
            else ""
        )

    driver = run("driver")
    for_containers = bool(Context(profile, host, facts, runtimes, cdi, wanted).container_npus)
    if write and driver == PASSED and for_containers:
        library_path = profile.container_library_path if rules.library_path is None else rules.library_path
        files.write(INSTALLED, "")
        files.write(
            READY, render_ready(ready_values(profile, facts.get("driver") or {}, rules.host_root, library_path))
        )
    elif write and (driver == FAILED or (driver and not for_containers)):
        files.remove(TOOLKIT, READY, INSTALLED)
    if write and driver != FAILED and "toolkit" in rules.scopes and cdi.get("state") == "current":
        files.renew_spec(find_spec(profile, host, cdi.get("path")))
    toolkit = run("toolkit")
    if write and toolkit == PASSED and READY in files.present:
        files.write(TOOLKIT, "")
    elif write and toolkit == FAILED:
        files.remove(TOOLKIT)
    run("plugin")
    run("vfio")
    return proof
