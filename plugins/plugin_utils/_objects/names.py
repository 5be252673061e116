# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The vendor's words on the cluster side, all of them from its profile."""

from __future__ import annotations

from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE

SHORT = PROFILE.short_name
# Starts of the names of inputs and facts: of all roles, and of the role for the cluster side.
INPUT = SHORT + "_"
OPERANDS = INPUT + "operands_"
# Start of the names of environment variables.
ENV = SHORT.upper() + "_"

OPERATOR = PROFILE.operator
POLICY_KIND = ("%s/%s" % (OPERATOR.group, OPERATOR.policy[0]), OPERATOR.policy[1])
DRIVER_KIND = ("%s/%s" % (OPERATOR.group, OPERATOR.driver[0]), OPERATOR.driver[1])


def role(name: str) -> str:
    """A role by its full name: role("driver")."""
    return INPUT + name
