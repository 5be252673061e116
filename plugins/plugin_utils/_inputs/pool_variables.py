# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inputs of a pool that another group of the host replaces.

Ansible makes the pool's group during the run. Groups at the same depth with a later name win over it, and so do all
deeper ones and, where they stand in files, those above it.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible.inventory.helpers import sort_groups
from ansible.utils.vars import load_extra_vars
from ansible.vars.plugins import get_vars_from_inventory_sources, get_vars_from_path
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._objects.names import INPUT

POOL = "npu_pool_"
# The group of all pools.
POOLS = "npu_pools"
Values = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class Layer:
    """The variables that one source has for one group."""

    group: str
    values: Values


def check_pool(inventory: t.Any, loader: t.Any, host: str, pool: str, variables: Values) -> None:
    """NpuError naming each input of the group `pool` that another group of the host replaces with another value.

    `variables` are those of the host, not templated. A value of the host itself, and what wins over every group (extra
    variables, variables of the play), may differ.
    """
    group = inventory.groups.get(pool)
    entity = inventory.get_host(host)
    if group is None or entity is None:
        return
    if not _inputs(_merged(_layers(inventory, loader, [group]))):
        return
    # What a person gave to this host, or to this run, wins over every group.
    own = {**_merged(_layers(inventory, loader, [entity])), **load_extra_vars(loader)}
    losses = lost(_layers(inventory, loader, sort_groups(entity.get_groups())), pool, own, variables)
    if losses:
        raise NpuError(
            "Inputs of the pool %s are not used: %s."
            % (pool, ", ".join("%s is replaced by group %s" % loss for loss in sorted(losses.items()))),
            # Ansible cannot take a host out of a group before the run ends.
            "Run again: the host was in the pool of its former kernel."
            if all(group.startswith(POOL) for group in losses.values())
            else "Set each in only one of the two groups; set what holds for several pools above them, and what holds "
            "for one host in host_vars.",
        )


def lost(layers: t.Sequence[Layer], pool: str, own: Values, variables: Values) -> dict[str, str]:
    """{input of the pool: the group whose other value is used}. `layers` are in Ansible's order: the last wins."""
    wanted = _inputs(_merged([layer for layer in layers if layer.group == pool]))
    found: dict[str, str] = {}
    for name, value in wanted.items():
        winner = [layer for layer in layers if name in layer.values][-1]
        used = winner.values[name]
        if name not in own and winner.group != pool and used != value and variables.get(name) == used:
            found[name] = winner.group
    return found


def _inputs(values: Values) -> dict[str, t.Any]:
    return {name: value for name, value in values.items() if name.startswith(INPUT)}


def _merged(layers: t.Iterable[Layer]) -> dict[str, t.Any]:
    merged: dict[str, t.Any] = {}
    for layer in layers:
        merged.update(layer.values)
    return merged


def _layers(inventory: t.Any, loader: t.Any, groups: t.Sequence[t.Any]) -> list[Layer]:
    """What each source has for each group, in the order of Ansible's VARIABLE_PRECEDENCE: the inventory itself, then
    files beside it and files beside the playbook; in each, `all` comes first."""
    top = [group for group in groups if group.name == "all"]
    rest = [group for group in groups if group.name != "all"]

    def inventory_files(entity: t.Any) -> Values:
        return _values(get_vars_from_inventory_sources(loader, inventory._sources, [entity], "task"))

    def playbook_files(entity: t.Any) -> Values:
        return _values(get_vars_from_path(loader, loader.get_basedir(), [entity], "task"))

    looks: tuple[tuple[t.Callable[[t.Any], Values], list[t.Any]], ...] = (
        (lambda entity: _values(entity.get_vars()), [*top, *rest]),
        (inventory_files, top),
        (playbook_files, top),
        (inventory_files, rest),
        (playbook_files, rest),
    )
    return [Layer(entity.name, look(entity)) for look, entities in looks for entity in entities]


def _values(found: t.Any) -> Values:
    values: Values = found
    return values
