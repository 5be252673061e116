# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter group_with_hosts: the pattern of a group, or an error where the run would reach none of its hosts.

A play without hosts is skipped, and the run ends well. What `hosts` of a play says is the one place that is read
whatever the inventory, the tags and --limit are.
"""

from __future__ import annotations

import typing as t

from ansible import context
from ansible.errors import AnsibleFilterError
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.targets import POOL, require_hosts

# Options of ansible-playbook that run nothing; tools use them without an inventory.
LOOKS = ("syntax", "listhosts", "listtasks", "listtags")


def to_group_with_hosts(
    group: str,
    groups: t.Mapping[str, list[str]],
    run: list[str],
    limit: t.Any = "",
    pool: t.Any = "",
    named: bool = False,
) -> str:
    """The pattern of the group, within `pool` if there is one; AnsibleFilterError when the run reaches no host.

    With `named` an empty pool is no pool, where it otherwise means all hosts.
    """
    pattern = "%s,&%s" % (group, pool) if pool else group
    if any(context.CLIARGS.get(option) for option in LOOKS):
        return pattern
    try:
        if named and not pool:
            raise NpuError(
                "%s is empty, which names no host." % POOL, "Name a group, such as %s for all hosts." % group
            )
        require_hosts(group, groups, run, limit if isinstance(limit, str) else "", str(pool or ""))
    except NpuError as exc:
        raise AnsibleFilterError(str(exc)) from None
    return pattern


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, t.Callable[..., str]]:
        return {"group_with_hosts": to_group_with_hosts}
