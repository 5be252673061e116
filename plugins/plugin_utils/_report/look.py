# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a report keeps of one look at a host: little of its facts, and of its checks the names of those that passed."""

from __future__ import annotations

import typing as t
from collections import Counter
from dataclasses import dataclass, field

from .._answers.answer import PREFIX
from .._answers.passed import passed_names
from .._nodes.overview import HostState, findings, told, versions
from .document import FAILED, NOTE, UNKNOWN, VERSIONS, WARNING, CheckResult

# Words of a finding as results of a report.
_RESULTS = {"FAILED": FAILED, "unknown": UNKNOWN, "warning": WARNING}
RUNTIMES, OBSERVED, PROOF = (f"{PREFIX}_{name}" for name in ("runtimes", "observed", "proof"))

Data = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class Look:
    """A host as it was seen; `checks` are those that have not passed. Of a host that was not seen it is empty."""

    pool: str = ""
    npus: int | None = None
    products: t.Mapping[str, int] = field(default_factory=dict)
    versions: t.Mapping[str, str] = field(default_factory=lambda: dict.fromkeys(VERSIONS, ""))
    passed: t.Sequence[str] = ()
    checks: t.Sequence[CheckResult] = ()

    @property
    def seen(self) -> bool:
        return bool(self.pool)


def look(facts: Data) -> Look:
    """The look of facts of ours by their names; those of a proof are newer than an observation's."""
    own = facts[PREFIX]
    record = facts.get(PROOF) or facts.get(OBSERVED) or {}
    state = HostState("", own, facts.get(RUNTIMES) or {}, record)
    products = Counter(str(npu.get("product") or UNKNOWN) for npu in own.get("npus") or ())
    return Look(
        str(own.get("pool_key") or UNKNOWN),
        (own.get("counts") or {}).get("devices"),
        products,
        versions(state),
        [f"{scope}/{name}" for scope, names in passed_names(record).items() for name in names],
        results(state),
    )


def results(state: HostState) -> list[CheckResult]:
    """What has not passed, the worst first; at the end what is only worth a note."""
    found: list[CheckResult] = [
        {"id": one.what, "result": _RESULTS[one.word], "detail": one.detail, "next_step": one.next_step}
        for one in findings(state)
    ]
    for check in state.record.get("checks") or ():
        if check["ok"] is not True and check["severity"] == "info":
            what, detail, step = told(check)
            found.append({"id": what, "result": NOTE, "detail": detail, "next_step": step})
    return found
