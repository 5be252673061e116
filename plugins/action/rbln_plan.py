# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of rbln_plan: inputs and one observation in, plan out. Nothing runs on the host."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase

from ansible_collections.rebellions.npu.plugins.module_utils._inputs import misspelt, normalise
from ansible_collections.rebellions.npu.plugins.module_utils._model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._plan import plan
from ansible_collections.rebellions.npu.plugins.module_utils._support import check_rules
from ansible_collections.rebellions.npu.plugins.plugin_utils._role_inputs import role_inputs

PREFIX = "rbln"
ROLES = ("rbln_preflight", "rbln_driver", "rbln_container_toolkit", "rbln_validator")


def _problem_text(problem: t.Mapping[str, t.Any]) -> str:
    return "%s Next: %s" % (problem["detail"], problem["next_step"]) if problem["next_step"] else problem["detail"]


def _table(host: str, steps: t.Sequence[t.Mapping[str, t.Any]]) -> str:
    lines = ["plan of %s:" % host]
    for step in steps:
        after = ", known after %s" % step["after"] if step["after"] else ""
        lines.append("  %-28s %s -> %s [%s%s] %s" % (step["id"], step["now"], step["wanted"], step["disruption"], after, step["reason"]))
    return "\n".join(lines)


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: t.Optional[str] = None, task_vars: t.Optional[dict[str, t.Any]] = None) -> dict[str, t.Any]:
        task_vars = task_vars or {}
        result = super().run(tmp, task_vars)
        _validation, args = self.validate_argument_spec(
            argument_spec={
                "observation": {"type": "dict", "required": True},
                "support_matrix": {"type": "list", "elements": "dict", "required": True},
                "fail_on_stops": {"type": "bool", "default": True},
            }
        )
        spec = role_inputs(ROLES)
        set_names = [name for name in task_vars if name.startswith(PREFIX + "_")]
        raw = {name: self._templar.template(task_vars[name]) for name in set_names if name in spec}
        observation = args["observation"]
        try:
            wanted = normalise(raw, spec)
            extra = wanted["rbln_preflight_support_matrix_extra"]
            check_rules(extra, "rbln_preflight_support_matrix_extra")
            planned = plan(
                wanted,
                observation["ansible_facts"]["rbln"],
                observation["ansible_facts"]["rbln_runtimes"],
                observation["ansible_facts"]["rbln_observed"],
                extra + args["support_matrix"],
                task_vars.get("group_names", []),
                prefix=PREFIX,
            ).to_dict()
        except NpuError as exc:
            result.update(failed=True, msg=str(exc))
            return result
        host = task_vars.get("inventory_hostname", "")
        cautions = [_problem_text(item) for item in planned["cautions"] if item["severity"] != "info"]
        for name, near in misspelt(set_names, spec, [role + "_" for role in ROLES]):
            cautions.append("%s is no input of a role. Next: perhaps %s is meant." % (name, near))
        result.update(planned, changed=False, wanted=wanted)
        if cautions:
            result["warnings"] = ["%s: %s" % (host, text) for text in cautions]
        if planned["steps"]:
            self._display.display(_table(host, planned["steps"]))
        if planned["stops"] and args["fail_on_stops"]:
            result.update(failed=True, msg="Nothing was changed on %s. %s" % (host, " ".join(_problem_text(stop) for stop in planned["stops"])))
        return result
