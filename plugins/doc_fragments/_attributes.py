# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Promises that modules make about check mode, diff and repetition, in one wording. Private to this collection."""

from __future__ import annotations


class ModuleDocFragment:
    """Fragments: the plain one names the attributes, the others state the level of support."""

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Tells in check mode what would change, and changes nothing.
  diff_mode:
    description: Shows in diff mode the state before and after.
  idempotent:
    description: A second run with the same input on an unchanged host reports no change.
"""

    READS = r"""
options: {}
attributes:
  check_mode:
    support: full
    details:
      - This module only reads, so it does the same in check mode.
  diff_mode:
    support: N/A
    details:
      - This module changes nothing.
  idempotent:
    support: full
    details:
      - This module changes nothing.
"""

    FACTS = r"""
options: {}
attributes:
  facts:
    description: Returns C(ansible_facts), which Ansible merges into the facts of the host.
    support: full
"""

    WRITES = r"""
options: {}
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
"""

    GROUP = r"""
options: {}
attributes:
  action_group:
    description: >-
      Use C(group/rebellions.npu.rbln) in C(module_defaults) to set defaults for every module of this collection.
    support: full
    membership:
      - rebellions.npu.rbln
"""

    CONTROLLER = r"""
options: {}
attributes:
  action:
    description: Has a corresponding action plugin, which does all of it on the controller.
    support: full
"""

    JUDGED = r"""
options: {}
attributes:
  action:
    description: Has a corresponding action plugin, which judges on the controller what the host has answered.
    support: full
  async:
    description: Runs with the keyword C(async) of a task.
    support: none
"""
