# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter bundle_name: the folder of an operating system's bundle, from facts."""

from __future__ import annotations

import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._bundle.manifest import safe_name


def to_bundle_name(system: t.Any) -> str:
    """ID-VERSION-ARCHITECTURE of `rbln.os`; empty when that is not the name of a folder: a host said it."""
    if not isinstance(system, t.Mapping):
        return ""
    words = [system.get("id"), system.get("version_id") or "rolling", system.get("arch")]
    return "-".join(map(str, words)) if all(safe_name(word) for word in words) else ""


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, t.Callable[..., str]]:
        return {"bundle_name": to_bundle_name}
