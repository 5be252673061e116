# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter pool_key: the pool of an operating system and a kernel, from facts or from node labels."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError
from ansible_collections.rebellions.npu.plugins.module_utils._base.pool import pool_key

OS_ID = "feature.node.kubernetes.io/system-os_release.ID"
OS_VERSION = "feature.node.kubernetes.io/system-os_release.VERSION_ID"
KERNEL = "feature.node.kubernetes.io/kernel-version.full"


def to_pool_key(source: t.Any) -> str:
    """Key of rbln facts (`os`, `kernel`) or of a mapping of node labels; AnsibleFilterError when it is neither."""
    if not isinstance(source, t.Mapping):
        raise AnsibleFilterError(
            "rebellions.npu.pool_key: the input is not a mapping. "
            "Next: give it ansible_facts.rbln or the labels of a node."
        )
    if isinstance(source.get("os"), t.Mapping) and isinstance(source.get("kernel"), t.Mapping):
        system = source["os"]
        return pool_key(
            system.get("id"), system.get("version_id") or system.get("codename"), source["kernel"].get("running")
        )
    if OS_ID in source and KERNEL in source:
        return pool_key(source[OS_ID], source.get(OS_VERSION), source[KERNEL])
    raise AnsibleFilterError(
        "rebellions.npu.pool_key: the input has neither os and kernel of facts nor the labels %s and %s. "
        "Next: run rebellions.npu.rbln_driver_facts first." % (OS_ID, KERNEL)
    )


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, t.Callable[..., str]]:
        return {"pool_key": to_pool_key}
