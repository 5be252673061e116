# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts a playbook works on, and how many at a time."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._objects.names import INPUT
from .normalise import nearest, normalise, suggestion
from .pool_variables import POOL as POOL_PREFIX
from .pool_variables import POOLS
from .roles import COLLECTION, judge_numbers, role_inputs

SERIAL, BUDGET, POOL, KEEP = (INPUT + name for name in ("serial", "failure_budget", "pool", "report_keep"))
# Inputs that only playbooks and defaults of roles read, with what a survey may give for them.
PLAYBOOKS: dict[str, dict[str, t.Any]] = {
    SERIAL: {"type": "list", "elements": "raw"},
    BUDGET: {"type": "int"},
    INPUT + "airgap": {"type": "bool"},
    INPUT + "drift_exit": {"type": "bool"},
    INPUT + "drift_format": {"type": "str", "choices": ["text", "json"]},
    INPUT + "doctor_exit": {"type": "bool"},
    INPUT + "doctor_format": {"type": "str", "choices": ["text", "json"]},
    INPUT + "plan_exit": {"type": "bool"},
    INPUT + "plan_upgrade": {"type": "bool"},
    INPUT + "plan_format": {"type": "str", "choices": ["text", "json"]},
    POOL: {"type": "str"},
    INPUT + "report_formats": {"type": "list", "elements": "str"},
    KEEP: {"type": "int"},
}
# Groups with a meaning of their own, which nobody has misspelt.
OWN = ("all", "ungrouped", "npu_nodes", "npu_bundle", "npu_bundle_server", POOLS)
EXAMPLE = """
npu_nodes:
  hosts:
    npu1.example.com:
    npu2.example.com:
"""
_BATCH = re.compile(r"\A\s*([0-9]{1,6})\s*(%?)\s*\Z")


def require_hosts(
    group: str, groups: t.Mapping[str, t.Sequence[str]], run: t.Collection[str], limit: str, pool: str = ""
) -> None:
    """NpuError when the inventory has no host in the group, or the run (of all hosts within --limit) reaches none.

    It shows an inventory as an example, or the group that looks like a misspelt one. `pool` is the group that the run
    is kept to, or empty.
    """
    hosts = groups.get(group) or []
    if not hosts:
        strange = {name for name in groups if name not in OWN and not name.startswith(POOL_PREFIX)}
        near = nearest(group, strange)
        what = "The group %s of the inventory has no host." if group in groups else "The inventory has no group %s."
        rename = "Rename the group %s, or write" % near if near and groups[near] else "Write"
        example = EXAMPLE.replace("npu_nodes", group)
        raise NpuError(what % group, "%s an inventory such as this, and name it with -i:%s" % (rename, example))
    if pool:
        _require_pool(group, groups, pool)
    if not set(hosts) & set(run) & set(groups[pool] if pool else run):
        raise NpuError(
            "No host of the group %s%s is within --limit %s."
            % (group, " in %s" % pool if pool else "", limit or "of this run"),
            "Name hosts of %s: %s." % (group, ", ".join(hosts[:5]) + (", ..." if len(hosts) > 5 else "")),
        )


def _require_pool(group: str, groups: t.Mapping[str, t.Sequence[str]], pool: str) -> None:
    """NpuError unless `pool` is a group of the inventory with hosts of the group."""
    if pool not in groups:
        like = [name for name in sorted(groups) if name not in ("all", "ungrouped") and groups[name]]
        near = nearest(pool, set(like))
        told = near or ", ".join(like[:8]) + (", ..." if len(like) > 8 else "")
        raise NpuError("%s is %r, and the inventory has no such group." % (POOL, pool), "Name one of these: %s." % told)
    if not set(groups[pool]) & set(groups[group]):
        raise NpuError("%s is %s, and that group has no host of %s." % (POOL, pool, group), "Name another group.")


def require_kept(
    group: str, groups: t.Mapping[str, t.Sequence[str]], hosts: t.Mapping[str, t.Mapping[str, t.Any]]
) -> None:
    """NpuError when the run goes to a host of the group outside of the pool that its variables name.

    The playbooks take the pool from an extra variable: of an inventory they would not read it in time.
    """
    mine = frozenset(groups.get(group) or ())
    for host, variables in hosts.items():
        pool = str(variables.get(POOL) or "")
        if host in mine and pool and "{{" not in pool and host not in (groups.get(pool) or ()):
            raise NpuError(
                "%s is %s, and this run also goes to %s, which is not in that group." % (POOL, pool, host),
                "Give it as an extra variable, -e %s=%s, and not in the inventory or a play; or use --limit."
                % (POOL, pool),
            )


def typed_input(name: str, value: t.Any, default: t.Any = None) -> t.Any:
    """The typed value of an input of a role or of the playbooks; its default, or None, when it is not set.

    `default` is for an input whose default is a template. NpuError names it and its form.
    """
    spec = PLAYBOOKS.get(name) or _of_roles().get(name)
    if spec is None:
        raise NpuError("%s is not an input of this collection." % name, suggestion(name, PLAYBOOKS))
    given = [value] if name == SERIAL and isinstance(value, (int, float)) else value
    found = normalise({name: given}, {name: spec if default is None else {**spec, "default": default}})[name]
    if name == BUDGET and found is not None and found < 1:
        raise NpuError(
            "%s is %d, so no host would be changed." % (name, found), "Write 1 to stop at the first host that fails."
        )
    judge_numbers({name: found})
    return _batches(found, value) if name == SERIAL and found is not None else found


def _of_roles() -> t.Mapping[str, t.Mapping[str, t.Any]]:
    return role_inputs(tuple(sorted(path.name for path in (COLLECTION / "roles").iterdir())))


def _batches(items: t.Sequence[t.Any], given: t.Any) -> list[t.Any]:
    """Whole numbers and percentages, as the keyword `serial` takes them."""
    batches: list[t.Any] = []
    for item in items:
        match = None if isinstance(item, bool) else _BATCH.match(str(item))
        number = int(match.group(1)) if match else 0
        if not match or number < 1 or (match.group(2) and number > 100):
            raise NpuError(
                "%s is %r, and %r is not a number of hosts." % (SERIAL, given, item),
                'Write whole numbers or percentages: 1, "25%", or [1, "25%"].',
            )
        batches.append("%d%%" % number if match.group(2) else number)
    if not batches:
        raise NpuError("%s is an empty list." % SERIAL, 'Write [1, "25%"], or "100%" for all hosts at a time.')
    return batches
