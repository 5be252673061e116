# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter plan_exit: the exit code of a run whose plan has changes.

A playbook cannot choose the exit code of ansible-playbook, and a callback plugin, which could, has to be enabled by
each user. What a play is made of is templated in the process whose exit code it is; there Ansible takes the code of a
good end from one constant. Codes of failed and unreachable hosts stay, as they are other constants.
"""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError
from ansible.executor.task_queue_manager import TaskQueueManager

PENDING = 3


def plan_exit(hosts: str, pending: bool) -> str:
    """`hosts` as it is. With `pending`, ansible-playbook ends with 3 where it would end with 0."""
    if pending:
        if getattr(TaskQueueManager, "RUN_OK", None) not in (0, PENDING):
            raise AnsibleFilterError(
                "rebellions.npu.plan_exit: this ansible-core has no TaskQueueManager.RUN_OK. "
                "Next: leave out rbln_plan_exit, and read the plan with rbln_plan_format: json."
            )
        setattr(TaskQueueManager, "RUN_OK", PENDING)  # noqa: B010 - typed as the constant that it is elsewhere
    return hosts


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, t.Callable[..., str]]:
        return {"plan_exit": plan_exit}
