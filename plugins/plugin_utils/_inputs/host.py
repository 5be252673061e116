# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inputs of the host roles with what follows for a host from the inputs of its cluster."""

from __future__ import annotations

import typing as t

from .._objects.names import OPERANDS
from . import roles
from .cluster import FILES, ROLE, plain
from .normalise import normalise
from .policy_files import overlay, read_policy

HOOKNAME = f"{roles.TOOLKIT}_legacy_hookname"
DRA = OPERANDS + "dra_driver"


def read_inputs(templar: t.Any, variables: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """All inputs of the host roles, typed and settled. NpuError names the variable that is wrong."""
    wanted = roles.read_inputs(templar, variables)
    if wanted[HOOKNAME] is None:
        wanted[HOOKNAME] = _wants_dra(templar, variables)
    return wanted


def _wants_dra(templar: t.Any, variables: t.Mapping[str, t.Any]) -> bool:
    """Whether the cluster gets the DRA driver, by its variable or a policy file. Other inputs are not judged here."""
    names = (*FILES, DRA)
    if not any(variables.get(name) for name in names):
        return False
    spec = roles.role_inputs((ROLE,))
    raw = plain(roles.raw_inputs(templar, variables, {name: spec[name] for name in names}))
    files, ignore = (normalise(raw, {name: spec[name]})[name] for name in FILES)
    given, _sources = overlay(read_policy(files, ignore, spec), raw, spec)
    return bool(normalise(given, {DRA: spec[DRA]})[DRA]["enabled"])
