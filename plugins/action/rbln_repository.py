# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of rbln_repository: find, judge and send the key."""

from __future__ import annotations

import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._packages.repository import ARGUMENTS
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.action import Answering
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_host.signing_key import is_file, signing_key

MODULE = "rebellions.npu.rbln_repository"


class ActionModule(Answering):
    # A refused key must not change the host.
    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        task_vars = task_vars or {}
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        _validation, args = self.validate_argument_spec(argument_spec=ARGUMENTS)
        try:
            if is_file(args["key"]):
                args["key"] = self._beside(args["key"])
            args["key"] = signing_key(args["key"], args["fingerprint"], args["timeout"], args["ca_path"])
        except NpuError as exc:
            result.update(failed=True, msg=str(exc))
            return result
        result.update(self._execute_module(module_name=MODULE, module_args=args, task_vars=task_vars))
        return result
