# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of rbln_symptoms: what to ask follows from inputs and facts, and two clocks are compared here."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.action import Answering
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.answer import checked_facts
from ansible_collections.rebellions.npu.plugins.plugin_utils._doctor.ask import asked_names, asked_of, skew
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.roles import raw_inputs, role_inputs
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.names import OPERANDS, role

Result = dict[str, t.Any]
DRIVER_REPOSITORY, REGISTRY = role("driver") + "_repository", OPERANDS + "registry"


class ActionModule(Answering):
    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: Result | None = None) -> Result:
        task_vars = task_vars or {}
        result: Result = super().run(tmp, task_vars)
        args = dict(self._task.args)
        try:
            facts = checked_facts(self._host_name(task_vars), task_vars.get("ansible_facts"), run=self._run_id())
            given = asked_of(facts)
            given["names"] = self._names(task_vars)
        except NpuError as exc:
            result.update(failed=True, msg=str(exc))
            return result
        before = time.time()
        name = "rebellions.npu.rbln_symptoms"
        answer = self._execute_module(module_name=name, module_args={**given, **args}, task_vars=task_vars)
        result.update(answer)
        if "clock" in answer:
            result["skew"] = skew(answer["clock"], before, time.time())
        return result

    def _names(self, task_vars: Result) -> list[str]:
        spec = {
            **{name: one for name, one in role_inputs().items() if name == DRIVER_REPOSITORY},
            **{name: one for name, one in role_inputs((role("operands"),)).items() if name == REGISTRY},
        }
        raw = raw_inputs(self._templar, task_vars, spec)
        return asked_names(raw.get(DRIVER_REPOSITORY), raw.get(REGISTRY))


# Once a run: ansible loads its plugins before it starts a process for each host and task.
role_inputs()
role_inputs((role("operands"),))
