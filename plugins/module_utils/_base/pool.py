# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key of a pool: hosts with one operating system and one kernel."""

from __future__ import annotations

import re


def _part(value: str | None) -> str:
    return re.sub(r"[^a-z0-9]+", "_", (value or "").lower()).strip("_") or "unknown"


def pool_key(os_id: str | None, os_version: str | None, kernel: str | None) -> str:
    """`ubuntu`, `24.04`, `6.8.0-117-generic` give `ubuntu_24_04_k6_8_0_117_generic`; what is not known reads `unknown`.

    The result always fits ^[a-z0-9_]+$, so it can end the name of an inventory group.
    """
    return "%s_%s_k%s" % (_part(os_id), _part(os_version), _part(kernel))
