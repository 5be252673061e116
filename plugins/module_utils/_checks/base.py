# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a check is made of. To add one, write a function under `@SCOPE.check(severity)`; both have one name."""

from __future__ import annotations

import typing as t

from .._base.model import ERROR, WARNING, Check
from .._base.records import dataclass, field, replace
from .._base.vendor import VendorProfile
from .._host.host import Host

Data = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class Verdict:
    """What a check found. `ok` None: it could not be found out. `severity` replaces that of the check when set."""

    ok: bool | None
    detail: str
    evidence: Data = field(default_factory=dict)
    next_step: str = ""
    severity: str = ""


@dataclass(frozen=True)
class Context:
    """All that checks may look at.

    facts as of collect_facts(), runtimes as of detect_runtimes(), cdi as of compare(). Checks of the scope driver need
    neither runtimes nor cdi, so that the facts alone can be checked.

    wanted: driver_version, firmware_version, library_version (str or None), expected_addresses (list of PCI addresses),
    expected_devices (int or None), node_allocatable (dict, int or None), expected_allocatable (int or None),
    resource_name, containers_before (list or None), no_runtime (fail, warn or ignore).
    """

    profile: VendorProfile
    host: Host
    facts: Data
    runtimes: Data
    cdi: Data
    wanted: Data

    @property
    def npus(self) -> list[Data]:
        return list(self.facts.get("npus") or [])

    @property
    def container_npus(self) -> list[Data]:
        """The functions that containers should get: none given to virtual machines, no PF whose VFs are in use."""
        return [
            npu
            for npu in self.npus
            if npu.get("state") != "passthrough" and not (npu.get("function") == "pf" and npu.get("vfs"))
        ]

    @property
    def served_npus(self) -> list[Data]:
        """The functions that the host's driver serves: those for containers, and a PF whose VFs are in use."""
        return [npu for npu in self.npus if npu.get("state") != "passthrough"]

    def probe(self, name: str) -> Data:
        """How a look of the facts ended; empty when there was none."""
        value = self.part("probes").get(name)
        return value if isinstance(value, dict) else {}

    def part(self, name: str) -> Data:
        """A sub-dictionary of the facts, empty when absent."""
        value = self.facts.get(name)
        return value if isinstance(value, dict) else {}


Function = t.Callable[[Context], t.Optional[Verdict]]


@dataclass(frozen=True)
class Entry:
    name: str
    severity: str
    function: Function


@dataclass(frozen=True)
class Scope:
    """A named, ordered table of checks."""

    name: str
    entries: list[Entry] = field(default_factory=list)

    def check(self, severity: str = ERROR) -> t.Callable[[Function], Function]:
        """Put a function into the table. It returns a Verdict, or None when the check does not apply to this host."""

        def add(function: Function) -> Function:
            self.entries.append(Entry(function.__name__, severity, function))
            return function

        return add

    def run(self, context: Context) -> list[Check]:
        """Run every check; one that breaks is unknown, and the others still run."""
        records = []
        for entry in self.entries:
            started = context.host.clock()
            try:
                verdict = entry.function(context)
            except (KeyError, TypeError, ValueError, AttributeError) as exc:
                verdict = Verdict(None, "the check could not read its input: %s: %s" % (type(exc).__name__, exc))
            if verdict is None:
                continue
            records.append(
                Check(
                    name=entry.name,
                    scope=self.name,
                    ok=verdict.ok,
                    severity=verdict.severity or entry.severity,
                    detail=verdict.detail,
                    evidence=dict(verdict.evidence),
                    next_step="" if verdict.ok else verdict.next_step,
                    seconds=round(max(0.0, context.host.clock() - started), 3),
                    vendor=context.profile.name,
                )
            )
        return records


def verdict_of(bad: t.Sequence[str], unknown: t.Sequence[str], good: str, evidence: Data, next_step: str) -> Verdict:
    """False when anything is bad, else None when anything is unknown, else True."""
    if bad:
        return Verdict(False, "; ".join(bad), evidence, next_step)
    if unknown:
        return Verdict(None, "not known: " + "; ".join(unknown), evidence, next_step)
    return Verdict(True, good, evidence)


def without_npus(context: Context, verdict: Verdict) -> Verdict | None:
    """What a check says on a host that gives no NPU to containers: only what is wrong, and that as a warning."""
    if context.container_npus:
        return verdict
    return replace(verdict, severity=WARNING) if verdict.ok is False else None


def address_of(npu: Data) -> str:
    """`0000:83:00.0 (npu0)` for a message: the address is the identity, the device name only helps."""
    return "%s (%s)" % (npu.get("address"), npu["device"]) if npu.get("device") else str(npu.get("address"))
