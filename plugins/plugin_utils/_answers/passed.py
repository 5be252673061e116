# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks of an observation that have passed, by their names alone.

Their records are more than half of an observation, and Ansible copies, renders and pickles what a task registers for
each host several times. Roles ask only which checks have passed.
"""

from __future__ import annotations

import typing as t

# In an observation of which only this is kept of them: {scope: [name]}.
NAMES = "passed_checks"

Record = t.Mapping[str, t.Any]


def passed_names(record: Record) -> dict[str, list[str]]:
    """{scope: the names of its checks that have passed}; `record` has them in either form."""
    names = {scope: list(found) for scope, found in (record.get(NAMES) or {}).items()}
    for check in record.get("checks") or ():
        if check.get("ok") is True:
            names.setdefault(check["scope"], []).append(check["name"])
    return names


def passed_as_names(record: Record) -> tuple[dict[str, t.Any], list[Record]]:
    """(the record with the names of the checks that have passed, what is left out of it)."""
    left_out = [check for check in record["checks"] if check["ok"] is True]
    checks = [check for check in record["checks"] if check["ok"] is not True]
    return {**record, "checks": checks, NAMES: passed_names(record)}, left_out
