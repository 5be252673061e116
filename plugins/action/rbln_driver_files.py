# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of rbln_driver_files: find and verify the files, send those that the host lacks."""

from __future__ import annotations

import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._packages.runfile import FILES_ARGUMENTS
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.action import Answering
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.answer import require
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_host.driver_files import Finder

NAME = "rbln_driver_files"
MODULE = "rebellions.npu." + NAME


class ActionModule(Answering):
    # A refused file must not change the host: the temporary directory is created only to send.
    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        task_vars = task_vars or {}
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        _validation, args = self.validate_argument_spec(argument_spec=FILES_ARGUMENTS)
        finder = Finder(args["cache"], args["timeout"], args["ca_path"], args["keyring"])
        found: dict[str, str] = {}
        try:
            for item in args["files"]:
                path, item["name"] = finder.find(item)
                if item["name"] in found:
                    raise NpuError(
                        "Two files have the name %s." % item["name"],
                        "Rename one: they go into one directory.",
                    )
                found[item["name"]] = path
        except NpuError as exc:
            result.update(failed=True, msg=str(exc))
            return result
        answer = self._execute_module(module_name=MODULE, module_args=args, task_vars=task_vars)
        if answer.get("failed") or not answer.get("missing") or self._task.check_mode:
            result.update(answer)
            return result
        try:
            # The names are of files that the controller sends.
            require(self._host_name(task_vars), NAME, found, answer["missing"], "missing")
        except NpuError as exc:
            result.update(failed=True, msg=str(exc))
            return result
        missing = [name for name in found if name in answer["missing"]]
        folder = self._make_tmp_path()
        try:
            args["staged"] = {}
            for name in missing:
                self._tell("%s: sending %s" % (task_vars.get("inventory_hostname", ""), name))
                args["staged"][name] = self._connection._shell.join_path(folder, name)
                self._transfer_file(found[name], args["staged"][name])
            result.update(self._execute_module(module_name=MODULE, module_args=args, task_vars=task_vars))
        finally:
            self._remove_tmp_path(folder)
        return result
