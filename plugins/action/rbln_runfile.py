# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of rbln_runfile: verify the file here before a byte is sent."""

from __future__ import annotations

import os
import re
import typing as t

from ansible.plugins.action import ActionBase

from ansible_collections.rebellions.npu.plugins.module_utils._runfile import ARGUMENTS, sha256_of


class ActionModule(ActionBase):
    # A refused file must not touch the host, so the temporary directory is made here, once, and only to send.
    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: t.Optional[str] = None, task_vars: t.Optional[dict[str, t.Any]] = None) -> dict[str, t.Any]:
        task_vars = task_vars or {}
        result = super().run(tmp, task_vars)
        _validation, args = self.validate_argument_spec(argument_spec=ARGUMENTS)
        if not re.match(r"^[0-9A-Fa-f]{64}$", args["sha256"]):
            result.update(failed=True, msg="sha256 is not 64 hexadecimal digits. Next: run sha256sum on a copy you trust.")
            return result
        try:
            with open(args["src"], "rb") as stream:
                found = sha256_of(stream)
        except OSError as exc:
            result.update(failed=True, msg="%s cannot be read on the controller: %s. Next: check the path." % (args["src"], exc.strerror))
            return result
        if found != args["sha256"].lower():
            result.update(
                failed=True,
                msg="The SHA-256 of %s is %s, not %s. Next: get the file or the digest again from a source you trust; nothing was sent."
                % (args["src"], found, args["sha256"]),
            )
            return result
        if self._task.check_mode:
            result.update(changed=True)
            return result
        folder = self._make_tmp_path()
        args["staged"] = self._connection._shell.join_path(folder, os.path.basename(args["src"]))
        self._transfer_file(args["src"], args["staged"])
        result.update(self._execute_module(module_name="rebellions.npu.rbln_runfile", module_args=args, task_vars=task_vars))
        self._remove_tmp_path(folder)
        return result
