# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action plugins' way to a host: what comes back is clean and judged before anything uses it."""

from __future__ import annotations

import functools
import gc
import json
import os
import typing as t

from ansible import constants
from ansible.errors import (
    AnsibleActionFail,
    AnsibleActionSkip,
    AnsibleConnectionFailure,
    AnsibleError,
)
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import callback_loader
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE

from .answer import checked, known, of_run, refuse_inputs, run_of, wrong_answer
from .bytecode import before_ansible
from .text import clean, clean_output

before_ansible()
# Each process of a task is a copy of the main one, and to look for garbage in what it has inherited would copy its
# memory, whatever the task is.
os.register_at_fork(after_in_child=gc.freeze)

# Characters of one output. The largest is that of a few configuration files of 16 MiB each.
OUTPUT = 64 * 1024 * 1024
# The fact caches that end with their run.
MEMORY = ("memory", "ansible.builtin.memory", "ansible.legacy.memory")
# What reading an answer raises in ansible-core when the host has put other types into it than core expects.
UNREADABLE = (AttributeError, KeyError, RecursionError, TypeError, ValueError)
# Ansible's own colours for the tones of _text/screen.py; it leaves them out where it writes no colours.
COLOURS = {
    "title": constants.COLOR_HIGHLIGHT,
    "good": constants.COLOR_OK,
    "change": constants.COLOR_CHANGED,
    "disrupt": constants.COLOR_CHANGED,
    "unsure": constants.COLOR_WARN,
    "bad": constants.COLOR_ERROR,
}

# The variable of a play that names what its tasks register: their failures are kept there, and its end says them.
KEPT = "__%s_kept" % PROFILE.short_name

Result = dict[str, t.Any]
Run = t.Callable[["Answering", "str | None", "Result | None"], Result]


@functools.lru_cache(maxsize=None)
def stdout_is_for_people() -> bool:
    """Whether the callback that writes to stdout is Ansible's default one, or made of it. Others write for programs."""
    found = callback_loader.get(constants.DEFAULT_STDOUT_CALLBACK, class_only=True)
    # By name: under its full name Ansible loads the same file as another class.
    made_of = [base.__module__ for base in found.__mro__] if isinstance(found, type) else []
    return any(name.endswith(".plugins.callback.default") for name in made_of)


def lost(host: str, exc: AnsibleConnectionFailure) -> AnsibleConnectionFailure:
    """The same failure with the host and a next step, once; one of become, which is no lost connection, stays."""
    said = " ".join(str(exc).split()).rstrip(".")
    if "become" in said or "privilege escalation" in said or said.startswith("%s cannot be reached: " % host):
        return exc
    return AnsibleConnectionFailure(
        str(
            NpuError(
                "%s cannot be reached: %s." % (host, said[:300]),
                "Correct its address, user or key until `ansible -m ping %s` answers, and run again." % host,
            )
        )
    )


def _keeping(run: Run) -> Run:
    """`run` of a plugin, whose failure is the key `failure` of a good result where the play keeps it."""

    @functools.wraps(run)
    def kept(self: Answering, tmp: str | None = None, task_vars: Result | None = None) -> Result:
        if not self._is_kept(task_vars or {}):
            return run(self, tmp, task_vars)
        try:
            result = run(self, tmp, task_vars)
        except AnsibleActionSkip:
            raise
        except AnsibleConnectionFailure as exc:
            # Of an unreachable host Ansible runs neither a rescue nor, for a batch of them, any later play.
            result = {"failed": True, "msg": str(lost(self._host_name(task_vars), exc))}
        except AnsibleError as exc:
            result = {"failed": True, "msg": str(exc)}
        if not result.get("failed"):
            return result
        told = {"task": self._task.name, "msg": str(result.get("msg") or "It failed without a message.")}
        left = {key: value for key, value in result.items() if key not in ("exception", "failed", "msg")}
        # Where a result does not say it, Ansible makes a failure of another exit code than 0.
        return {"changed": False, **left, "failed": False, "failure": told}

    return kept


class Answering(ActionBase):
    """An action plugin whose modules answer by docs/schemas; a wrong answer fails its host and no other.

    Strings that are returned here are never marked as templates: ansible does not render what a module returns.
    """

    def __init_subclass__(cls, **more: t.Any) -> None:
        super().__init_subclass__(**more)
        cls.run = _keeping(cls.run)  # type: ignore[assignment, method-assign]

    def _is_kept(self, task_vars: Result) -> bool:
        """Whether the play keeps the failure of this task, which registers it under a name that the play knows."""
        kept = task_vars.get(KEPT)
        if not kept:
            return False
        # A mapping since ansible-core 2.21.
        register = self._task.register or ()
        return not ({register} if isinstance(register, str) else set(register)).isdisjoint(kept)

    # Ansible itself would fetch the result of a job, and nothing would judge it.
    _supports_async = False

    def run(self, tmp: str | None = None, task_vars: Result | None = None) -> Result:
        try:
            refuse_inputs(self._host_name(task_vars), task_vars or {})
        except NpuError as exc:
            raise AnsibleActionFail(str(exc)) from None
        result: Result = super().run(tmp, task_vars)
        return result

    def _show(self, lines: t.Iterable[tuple[str, str | None]]) -> None:
        """Show lines at once, each with a tone or a colour: on stdout, or on stderr where stdout may be a program's."""
        for text, tone in lines:
            colour = COLOURS.get(tone, tone) if tone else None
            self._display.display(clean(text, True), color=colour, stderr=not stdout_is_for_people())

    def _tell(self, line: str) -> None:
        """Show one line while the task still runs."""
        self._show([(line, "")])

    def _brief(self, result: Result, *names: str) -> Result:
        """A failed result without these keys, which -vvv shows: callbacks print all of it around its message."""
        left = {name: result.pop(name) for name in names if result.get("failed") and name in result}
        if left:
            self._display.vvv(json.dumps(left, default=str))
        return result

    def _run_id(self) -> str:
        """The run of this task; empty where Ansible keeps no facts for later runs."""
        return "" if constants.CACHE_PLUGIN in MEMORY else run_of(self._task)

    @staticmethod
    def _host_name(task_vars: Result | None) -> str:
        return str((task_vars or {}).get("inventory_hostname") or "The host")

    def _beside(self, path: str) -> str:
        """A file where any task finds one: beside the role, then beside the playbook. Else the path as it is."""
        try:
            return str(self._find_needle("files", path))
        except AnsibleError:
            return path

    def _execute_module(
        self,
        module_name: str | None = None,
        module_args: Result | None = None,
        tmp: str | None = None,
        task_vars: Result | None = None,
        **more: t.Any,
    ) -> Result:
        """The answer of a module; one that is wrong becomes a failure."""
        name = str(module_name or self._task.action).rpartition(".")[2]
        host = self._host_name(task_vars)
        try:
            answer: Result = super()._execute_module(
                module_name=module_name, module_args=module_args, tmp=tmp, task_vars=task_vars, **more
            )
        except AnsibleConnectionFailure as exc:
            raise lost(host, exc) from None
        except AnsibleError:
            raise
        except UNREADABLE as exc:
            wrong = wrong_answer(host, name, "", "Ansible cannot read it (%s)" % type(exc).__name__)
            return {"failed": True, "msg": str(wrong)}
        try:
            return self._judged(name, host, answer, not more.get("wrap_async")) if known(name) else answer
        except NpuError as exc:
            return {"failed": True, "msg": str(exc)}

    def _judged(self, name: str, host: str, answer: Result, whole: bool = True) -> Result:
        """An answer of the module `name` as it may be used, with the run in its facts. NpuError when it is wrong."""
        return of_run(checked(host, name, answer, whole), self._run_id())

    def _low_level_execute_command(self, *args: t.Any, **more: t.Any) -> Result:
        """What a command on the host prints, clean: ansible itself shows parts of it before a plugin sees them."""
        answer: Result = super()._low_level_execute_command(*args, **more)
        for key in ("stdout", "stderr"):
            text = answer.get(key)
            if isinstance(text, str):
                if len(text) > OUTPUT:
                    raise AnsibleActionFail(
                        "The %s of a command has more than %d characters. "
                        "Next: look at what runs on this host before you trust it." % (key, OUTPUT)
                    )
                answer[key] = clean_output(text)
                answer[key + "_lines"] = answer[key].splitlines()
        return answer


class OnController(Answering):
    """An action that runs nothing on the host of its task."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True


class OfPlay(OnController):
    """An action that tells of all hosts of a play, from what each has registered, and changes none."""

    ARGUMENTS: t.ClassVar[dict[str, t.Any]] = {}

    def run(self, tmp: str | None = None, task_vars: Result | None = None) -> Result:
        variables = task_vars or {}
        result: Result = super().run(tmp, variables)
        _validation, args = self.validate_argument_spec(argument_spec=self.ARGUMENTS)
        # Untemplated: this holds text of hosts.
        known = {host: variables["hostvars"].raw_get(host) for host in variables.get("ansible_play_hosts_all") or ()}
        try:
            result.update(self._told(args, known, variables), changed=False)
        except NpuError as exc:
            raise AnsibleActionFail(str(exc)) from None
        return result

    def _told(self, args: Result, known: dict[str, Result], variables: Result) -> Result:
        """The result; `known` are the variables of each host."""
        raise NotImplementedError
