# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the parts of one change share."""

from __future__ import annotations

import typing as t

from .._base.records import dataclass
from .._base.vendor import VendorProfile
from .._host.host import Host
from .journal import Journal
from .request import DriverValidation, Request
from .sources import Parts
from .units import Units


@dataclass(frozen=True)
class ChangeContext:
    """Host, request and tools of one change, built once. `warn` reports what went wrong without stopping it."""

    host: Host
    profile: VendorProfile
    request: Request
    validation: DriverValidation
    parts: Parts
    journal: Journal
    units: Units
    warn: t.Callable[[str], None]
