# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All checks, run by scope, and which of their results block."""

from __future__ import annotations

import typing as t

from .._base.model import ERROR, INFO, WARNING, Check, NpuError
from .._base.vendor import VendorProfile
from .._host.host import Host
from . import driver, plugin, toolkit, vfio
from .base import Context, Data

TABLES = (*driver.TABLES, toolkit.SCOPE, plugin.SCOPE, vfio.SCOPE)
SCOPES = tuple(dict.fromkeys(table.name for table in TABLES))
FOR_CONTAINERS = (toolkit.SCOPE.name, plugin.SCOPE.name)
SEVERITIES = (ERROR, WARNING, INFO)
NAMES = tuple(entry.name for table in TABLES for entry in table.entries)


def run_checks(
    profile: VendorProfile,
    host: Host,
    facts: Data,
    runtimes: Data,
    cdi: Data,
    wanted: Data | None = None,
    scopes: t.Sequence[str] = ("driver", "toolkit"),
) -> list[Check]:
    """Run the checks of `scopes`, read-only, in the order of their tables; `wanted` as in Context.

    What lies above the driver does not matter on a host whose NPUs all belong to virtual machines; one record says so.
    NpuError on an unknown scope.
    """
    check_scopes(scopes)
    context = Context(profile, host, facts, runtimes, cdi, wanted or {})
    passthrough_only = bool(context.npus) and not context.container_npus
    records: list[Check] = []
    for table in TABLES:
        if table.name in scopes and table.name in FOR_CONTAINERS and passthrough_only:
            detail = "every NPU is given to virtual machines"
            records.append(Check("not_for_containers", table.name, True, INFO, detail, vendor=profile.name))
        elif table.name in scopes:
            records.extend(table.run(context))
    return records


def check_scopes(scopes: t.Sequence[str]) -> None:
    """NpuError when a scope is not one of SCOPES."""
    for scope in scopes:
        if scope not in SCOPES:
            raise NpuError("%r is not a scope." % scope, "Use one of: %s." % ", ".join(SCOPES))


def check_blocking(blocking: t.Sequence[str]) -> None:
    """NpuError when an entry is neither a severity nor the name of a check."""
    for entry in blocking:
        if entry not in SEVERITIES and entry not in NAMES:
            raise NpuError(
                "blocking names %r, which is neither a severity nor a check." % entry,
                "Use %s, or one of: %s." % (", ".join(SEVERITIES), ", ".join(sorted(NAMES))),
            )


def blocks(check: Check, blocking: t.Sequence[str]) -> bool:
    """Whether this check, if it is not true, stands in the way: its severity or its name is listed."""
    return check.severity in blocking or check.name in blocking
