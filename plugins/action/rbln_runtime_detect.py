# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of rbln_runtime_detect: the module's answer is judged."""

from __future__ import annotations

import typing as t

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action.normal import ActionModule as Normal
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.action import Answering


class ActionModule(Answering, Normal):
    """As ansible runs any module, with the answer judged."""

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        if boolean(self._task.args.get("ask", False), strict=False):
            # A host may leave it out, and a condition that reads it would fail with words of Jinja.
            for runtime in ((result.get("ansible_facts") or {}).get("rbln_runtimes") or {}).get("runtimes") or ():
                runtime.setdefault("answers", None)
        return result
