# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of rbln_host_tool: builds the files. Sends nothing when the observation shows the same files."""

from __future__ import annotations

import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._host.owned_files import ARGUMENTS, combined
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.action import Answering
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_host.host_tool import (
    DIRECTORIES,
    LIB_DIR,
    PROGRAM,
    entries,
    fingerprints,
)


class ActionModule(Answering):
    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        _validation, args = self.validate_argument_spec(argument_spec=ARGUMENTS)
        units = args["units"] or args["state"] != "present"
        runtimes = args["observed"].get("runtimes") or []
        try:
            wanted = fingerprints(args["config"], units, runtimes)
        except NpuError as exc:
            result.update(failed=True, msg=str(exc))
            return result
        if args["state"] == "present" and args["observed"].get("sha256") == combined(wanted):
            result.update(changed=False, changed_paths=[])
            return result
        stopped = args["state"] == "stopped"
        files: list[dict[str, t.Any]] = [
            {"path": path, "folder": path == LIB_DIR}
            for path in reversed(list(wanted))
            if not (stopped and path in PROGRAM)
        ]
        if args["state"] == "present":
            files = entries(args["config"], units, runtimes)
        result.update(
            self._execute_module(
                module_name="rebellions.npu.rbln_host_tool",
                module_args={
                    "state": args["state"],
                    "files": files,
                    "directories": [] if stopped else list(DIRECTORIES),
                    "interpreter": args["interpreter"],
                    "root": args["root"],
                },
                task_vars=task_vars,
            )
        )
        # The invocation has the whole program.
        result.pop("invocation", None)
        return result
