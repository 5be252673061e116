# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of rbln_observe: tells the look what the host tool should be, so that it sees that too.

The host tool itself looks, where it is installed and nobody but root can change it; else the module does.
"""

from __future__ import annotations

import json
import re
import shlex
import typing as t

from ansible import constants
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._observe.settings import merge
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.action import Answering, lost
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.passed import passed_as_names
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_host.host_tool import (
    fingerprints,
    judge_again,
    kept_options,
    runtime_units,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_host.look import (
    NOT_FOUND,
    TOO_OLD,
    command,
    order,
    read,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_host.zipapp import program
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.host import read_inputs
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.pool_variables import POOL, POOLS
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.roles import (
    by_host_tool,
    observe_options,
    role_inputs,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._text.line import line

# Where Ansible looks for a Python by itself.
DISCOVERED = ("", "auto", "auto_silent", "auto_legacy", "auto_legacy_silent")
# Options of the connection ssh, and what asks there for a terminal.
SSH_OPTIONS = ("ssh_args", "ssh_common_args", "ssh_extra_args")
TERMINAL = re.compile(r"(?:^|\s)-t+(?:\s|$)|(?i:requesttty)[= ]*(?i:yes|force)")
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
        by_tool = boolean(args.pop("by_host_tool", True))
        into_pool, as_names = (boolean(args.pop(name, False)) for name in ("into_pool", "passed_as_names"))
        try:
            if boolean(args.pop("from_inputs", False)):
                inputs = read_inputs(self._templar, task_vars or {})
                by_tool = by_tool and by_host_tool(inputs)
                args["options"] = dict(observe_options(inputs), **args.get("options") or {})
            config = kept_options(merge(args))
            wanted = fingerprints(config)
        except NpuError as exc:
            result.update(failed=True, msg=str(exc))
            return result
        args.setdefault("host_tool", wanted)
        try:
            found = self._by_host_tool(args, task_vars or {}) if by_tool else {}
            if "answer" not in found:
                name = "rebellions.npu.rbln_observe"
                result.update(self._execute_module(module_name=name, module_args=args, task_vars=task_vars))
            result.update(found.get("answer", {}))
        except AnsibleError as exc:
            refused = _no_root(self._host_name(task_vars), str(exc)) if self._task.become else ""
            if not refused:
                raise
            result.update(failed=True, msg=refused)
            return result
        if "caution" in found:
            result["warnings"] = [*result.get("warnings", []), found["caution"]]
        said = "%s%s" % (result.get("module_stderr", ""), result.get("module_stdout", ""))
        if result.get("failed"):
            if "module_stdout" in result and not said.strip() and self._task.become:
                said = self._becoming()
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
            if as_names:
                self._leave_out_passed(result["ansible_facts"])
            if into_pool and not result.get("failed"):
                self._put_into(POOL + result["ansible_facts"]["rbln"]["pool_key"], result)
        return result

    def _leave_out_passed(self, facts: dict[str, t.Any]) -> None:
        """What has passed is named; -vvv shows the records."""
        facts["rbln_observed"], left_out = passed_as_names(facts["rbln_observed"])
        if self._display.verbosity > 2:
            self._display.vvv(json.dumps({"passed_checks": left_out}))

    def _put_into(self, pool: str, result: dict[str, t.Any]) -> None:
        """Put the host into the group of its pool, as group_by does: a task by itself costs a process for each host."""
        result.update(add_group=pool, parent_groups=[POOLS])
        # Up to ansible-core 2.20 the strategy reads the result, which is changed by that.
        if hasattr(self, "add_group"):
            self.add_group(pool, parent_group_names=[POOLS])

    def _by_host_tool(self, args: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """{answer} of the host tool; else {caution} that says why not, or nothing where that is no fault."""
        # The module converts what it is given by itself; only options are of the right types already.
        if not set(args) <= {"host_tool", "options"} or not self._can_send(args.get("options") or {}):
            return {}
        environment: dict[str, t.Any] = {}
        self._compute_environment_string(environment)
        sent = order(args, environment)
        host = self._host_name(variables)
        try:
            done = self._low_level_execute_command(command(self._python(variables)), in_data=sent)
        except AnsibleConnectionFailure as exc:
            raise lost(host, exc) from None
        said = read(done["rc"], done["stdout"], done["stderr"])
        why, next_step = said.why, said.next_step
        if said.answer is not None:
            try:
                return {"answer": self._judged("rbln_observe", host, said.answer)}
            except NpuError as exc:
                why, next_step = exc.message, exc.next_step
        # Of an account that cannot become root the module speaks.
        if not why or (said.answer is None and self._task.become and _no_root(host, done["stderr"])):
            return {}
        told = "The host tool of %s was not used for the observation: %s." % (host, why.rstrip("."))
        return {"caution": str(NpuError(told, next_step))}

    def _can_send(self, options: t.Mapping[str, t.Any]) -> bool:
        """Whether a command can read what is sent to it, and is to look at this host, not at an image on it."""
        become = self._connection.become
        through = getattr(become, "pipelining", getattr(become, "name", "") != "su")
        terminal = become and self._connection.transport == "local" and become.expect_prompt()
        terminal = terminal or getattr(become, "require_tty", False) or self._asks_for_terminal()
        return (
            bool(self._connection.has_pipelining and through and not terminal)
            and not self._task.delegate_to
            and not constants.DEFAULT_KEEP_REMOTE_FILES
            and (options.get("root") or "/") == "/"
        )

    def _asks_for_terminal(self) -> bool:
        """Whether the inventory gives ssh a terminal, which shortens what is sent and never ends it."""
        if self._connection.transport != "ssh":
            return False
        try:
            return any(TERMINAL.search(self._connection.get_option(name) or "") for name in SSH_OPTIONS)
        except KeyError:
            # Another plugin of this name, with other options.
            return True

    def _python(self, variables: dict[str, t.Any]) -> str:
        """The Python that modules have there, as far as it is known; empty for the system's."""
        given = constants.config.get_config_value("INTERPRETER_PYTHON", variables=variables)
        named = str(self._templar.template(given) or "").strip()
        if named not in DISCOVERED:
            return named
        found = (variables.get("ansible_facts") or {}).get("discovered_interpreter_python")
        return shlex.quote(str(found)) if found else ""

    def _becoming(self) -> str:
        """What the program that gives root says when it is to do nothing else; empty when it does that."""
        try:
            again = self._low_level_execute_command("true")
            said = str(again["stderr"] or again["stdout"])
            if not again["rc"] or said.strip():
                return said if again["rc"] else ""
            without = self._low_level_execute_command("true", sudoable=False)
        except AnsibleError as exc:
            return str(exc)
        if without["rc"]:
            return ""
        name = getattr(self._connection.become, "name", "its program")
        return "privilege escalation by %s ends with %s and says nothing" % (name, again["rc"])

    def _why(self, host: str, said: str, code: t.Any) -> str:
        """Why no module has run on the host; empty when none of this is the cause."""
        if any(text in said for text in TOO_OLD):
            return (
                "The Python of %s is older than 3.8, which the modules of this collection need. "
                "Next: install a newer one there and set ansible_python_interpreter to it." % host
            )
        return (_no_root(host, said) if self._task.become else "") or _no_python(host, said, code)


# Once a run: ansible loads its plugins before it starts a process for each host and task.
program()
role_inputs()
