# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of rbln_observe: tells the module what the host tool should be, so that one look sees that too."""

from __future__ import annotations

import re
import typing as t

from ansible.errors import AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._observe.settings import merge
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.action import Answering
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_host.host_tool import (
    fingerprints,
    judge_again,
    kept_options,
    runtime_units,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.host import read_inputs
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.roles import observe_options
from ansible_collections.rebellions.npu.plugins.plugin_utils._text.line import line

# What Pythons before 3.8 say to a module of this collection.
TOO_OLD = ("future feature annotations is not defined", "SyntaxError")

# The code of a shell that does not find its program.
NOT_FOUND = 127
# What programs that give root, and Ansible, say when they do not. sudo also warns, and gives root all the same.
NO_ROOT = re.compile(
    r"^(?!.*\bsudo: (?:unable to resolve host|setrlimit)).*(?:\b(?:sudo|su|doas|ksu|dzdo|pfexec): |"
    r"\bnot in the sudoers file|^sorry, user \S+ (?:is not allowed|may not)|"
    r"(?:missing|incorrect) \w+ password|become success|privilege escalation).*$",
    re.I | re.M,
)


def _no_root(host: str, said: str) -> str:
    """The message that the account cannot become root; empty when `said` is about something else."""
    found = NO_ROOT.findall(said)
    if not found:
        return ""
    return str(
        NpuError(
            "%s: become does not work: %s." % (host, line(found[-1], 300).rstrip(".")),
            "Let the account of the connection become root, give its password with --ask-become-pass, or connect as "
            "root.",
        )
    )


def _no_python(host: str, said: str, code: t.Any) -> str:
    """The message that the Python of the host is no program; empty for another exit code."""
    if code != NOT_FOUND:
        return ""
    missing = (text for text in said.splitlines() if "not found" in text or "No such" in text)
    told = line(next(missing, "no such program"), 300).rstrip(".")
    return str(
        NpuError(
            "%s: its Python does not run: %s." % (host, told),
            "Install Python 3.8 or newer there, and set ansible_python_interpreter to its path.",
        )
    )


class ActionModule(Answering):
    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        args = dict(self._task.args)
        try:
            if boolean(args.pop("from_inputs", False)):
                args["options"] = dict(
                    observe_options(read_inputs(self._templar, task_vars or {})), **args.get("options") or {}
                )
            config = kept_options(merge(args))
            wanted = fingerprints(config)
        except NpuError as exc:
            result.update(failed=True, msg=str(exc))
            return result
        args.setdefault("host_tool", wanted)
        name = "rebellions.npu.rbln_observe"
        try:
            result.update(self._execute_module(module_name=name, module_args=args, task_vars=task_vars))
        except AnsibleError as exc:
            refused = _no_root(self._host_name(task_vars), str(exc)) if self._task.become else ""
            if not refused:
                raise
            result.update(failed=True, msg=refused)
            return result
        said = "%s%s" % (result.get("module_stderr", ""), result.get("module_stdout", ""))
        if result.get("failed"):
            told = self._why(self._host_name(task_vars), said, result.get("rc"))
            if told:
                result["msg"] = told
                return self._brief(result, "module_stdout", "module_stderr")
        observed = result.get("ansible_facts", {}).get("rbln_observed")
        if observed:
            observed["host_tool"]["config"] = config
            units = runtime_units(result["ansible_facts"].get("rbln_runtimes") or {})
            if units and args["host_tool"] == wanted:
                observed["host_tool"] = judge_again(observed["host_tool"], config, units)
        return result

    def _why(self, host: str, said: str, code: t.Any) -> str:
        """Why no module has run on the host; empty when none of this is the cause."""
        if any(text in said for text in TOO_OLD):
            return (
                "The Python of %s is older than 3.8, which the modules of this collection need. "
                "Next: install a newer one there and set ansible_python_interpreter to it." % host
            )
        return (_no_root(host, said) if self._task.become else "") or _no_python(host, said, code)
