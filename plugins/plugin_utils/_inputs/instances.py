# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Driver instances: their selectors alone decide which of them gets a node, so that none gets two drivers."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE

from .._objects.names import OPERANDS

Data = t.Mapping[str, t.Any]
FAMILY_KEY = PROFILE.resource_name + ".family"
OWNER_KEY = PROFILE.resource_name + ".driver.owner"
GATE_PREFIX = PROFILE.resource_name + ".deploy."
_NAME = re.compile(r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$")
DRIVER = f"{OPERANDS}driver"
NAME = f"{DRIVER}_instances"


def spellings(family: str) -> tuple[str, ...]:
    """Every value of the family label that means the same family."""
    return next((names for names in PROFILE.family_spellings if family in names), (family,))


def selector(own: Data) -> dict[str, str]:
    """The labels an instance asks for, as text, each family by one spelling."""
    texts = {
        str(key): ("true" if value else "false") if isinstance(value, bool) else str(value)
        for key, value in own["node_selector"].items()
    }
    return {key: spellings(value)[0] if key == FAMILY_KEY else value for key, value in texts.items()}


def relation(left: t.Mapping[str, str], right: t.Mapping[str, str]) -> str:
    """`disjoint`, `wider` (left has the nodes of right and others), `narrower`, `same`, or `unclear`."""
    if any(right.get(key, value) != value for key, value in left.items()):
        return "disjoint"
    mine, other = set(left.items()), set(right.items())
    if mine == other:
        return "same"
    return "wider" if mine < other else "narrower" if mine > other else "unclear"


def selector_keys(own: Data) -> t.Iterator[str]:
    """Every label key that decides on which nodes a component runs."""
    yield from map(str, own["node_selector"])
    for terms in (own["node_affinity"], *(term["expressions"] for term in own["affinity_terms"])):
        yield from (str(item["key"]) for item in terms)


def check_instances(driver: Data, instances: t.Sequence[Data]) -> None:
    """Refuse names, selectors and pairs of instances that leave open which driver a node gets.

    NpuError names both and the remedy.
    """
    for name, own in [(DRIVER, driver)] + [(f"{NAME} {own['name']}", own) for own in instances]:
        for key in selector_keys(own):
            if key == OWNER_KEY or key.startswith(GATE_PREFIX):
                raise NpuError(
                    "%s selects nodes by %s, which is written during a rollout." % (name, key),
                    "Select by a label of your own.",
                )
    wanted = [own for own in instances if own["enabled"]]
    for number, own in enumerate(instances):
        if not _NAME.match(own["name"]):
            raise NpuError(
                "%s[%d].name is %r." % (NAME, number, own["name"]), "Write at most 40 small letters, digits and dashes."
            )
        if any(own["name"] == other["name"] for other in instances[:number]):
            raise NpuError("%s has two instances %s." % (NAME, own["name"]), "Give each its own name.")
        if own in wanted and len(wanted) > 1 and not own["node_selector"]:
            raise NpuError(
                "%s: %s has no node selector, and it is not the only one." % (NAME, own["name"]),
                "Set its node_selector.",
            )
    for number, own in enumerate(wanted):
        for other in wanted[:number]:
            _check_pair(other, own)


def _check_pair(left: Data, right: Data) -> None:
    mine, other = selector(left), selector(right)
    found = relation(mine, other)
    names = (NAME, left["name"], right["name"])
    if found == "same":
        raise NpuError(
            "%s: %s and %s select the same nodes." % names, "Give one of them a label more, or another value."
        )
    if found == "unclear":
        only = sorted(set(mine) - set(other))[0], sorted(set(other) - set(mine))[0]
        raise NpuError(
            "%s: a node can have the labels of both %s and %s, and neither is the more exact one." % names,
            "Give both one key with two values, or add %s to %s or %s to %s."
            % (only[0], right["name"], only[1], left["name"]),
        )
