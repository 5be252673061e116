# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of rbln_driver: takes the options from the plan, runs the change apart from the connection."""

from __future__ import annotations

import json
import re
import time
import typing as t

from ansible.errors import AnsibleConnectionFailure
from ansible.playbook.task import Task
from ansible_collections.rebellions.npu.plugins.module_utils._base.mask import MASK
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._npu.driver_notes import JOURNAL, WAITS, state_path
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.action import Answering
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.answer import checked
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.text import clean
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_host.driver_options import driver_options
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.roles import read_inputs

ROLE = "rbln_driver"
MODULE = "rebellions.npu." + ROLE
# Each long part of a change (build tools, build, rollback) has its own limit; this one only ends a job that hangs.
LIMIT = 6 * 3600
# {option of the module: input with arguments of an installer}
WORDS = {
    "arguments": "rbln_driver_runfile_args",
    "uninstall": "rbln_driver_runfile_uninstall",
    "extract": "rbln_driver_runfile_extract",
}
PAUSES = (0.5, 0.5, 1.0, 1.0, 2.0)
PAUSE = 3.0
TELL_EVERY = 10.0
LOST = 600.0
# Keys that ansible adds to the answer of a job that has ended.
OF_THE_JOB = (
    "ansible_job_id",
    "started",
    "finished",
    "results_file",
    "stdout",
    "stderr",
    "stdout_lines",
    "stderr_lines",
    "cmd",
    "data",
    "outdata",
)
INTERRUPTED = "The change of the driver was interrupted. Next: run again; the next run takes it over."
HEAD = re.compile(r"^=(note|jobs|waits|journal)\s*$", re.M)


class ActionModule(Answering):
    _supports_check_mode = True
    _supports_async = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        args = dict(self._task.args)
        plan = args.pop("plan", None)
        if plan is not None:
            try:
                args = driver_options(ROLE, plan, args)
                # A plan shows the arguments of an installer with their secrets masked.
                if any(MASK in str(args.get(option)) for option in WORDS):
                    wanted = read_inputs(self._templar, task_vars or {})
                    args.update({option: wanted[name] for option, name in WORDS.items() if option in args})
            except NpuError as exc:
                return dict(result, failed=True, msg=str(exc))
        if self._task.check_mode or self._task.async_val or getattr(self._connection, "has_native_async", False):
            result.update(
                self._execute_module(
                    module_name=MODULE, module_args=args, task_vars=task_vars, wrap_async=bool(self._task.async_val)
                )
            )
            return result
        self._task.async_val = LIMIT
        try:
            job = self._execute_module(module_name=MODULE, module_args=args, task_vars=task_vars, wrap_async=True)
        finally:
            self._task.async_val = 0
        if "ansible_job_id" not in job:
            result.update(job)
            return result
        host = self._host_name(task_vars)
        if not self._follow(host, str(job["ansible_job_id"]), str(job.get("results_file", ""))):
            result.update(failed=True, msg=INTERRUPTED)
            return result
        status = self._status(job["ansible_job_id"], task_vars)
        if status.get("failed") and "cmd" in status and not status.get("data") and not status.get("stderr"):
            # The module was killed: the process that watches it has read nothing, and tells of its own trouble.
            status = {"failed": True, "msg": INTERRUPTED}
        try:
            result.update(checked(host, ROLE, {key: value for key, value in status.items() if key not in OF_THE_JOB}))
        except NpuError as exc:
            result.update(failed=True, msg=str(exc))
        self._status(job["ansible_job_id"], task_vars, "cleanup")
        return result

    def _status(self, job: str, task_vars: dict[str, t.Any] | None, mode: str = "status") -> dict[str, t.Any]:
        task = Task.load(
            {
                "action": "async_status",
                "args": {"jid": job, "mode": mode},
                "check_mode": False,
                "environment": self._task.environment,
            }
        )
        action = self._shared_loader_obj.action_loader.get(
            "ansible.legacy.async_status",
            task=task,
            connection=self._connection,
            play_context=self._play_context,
            loader=self._loader,
            templar=self._templar,
            shared_loader_obj=self._shared_loader_obj,
        )
        # It is an action of ansible's own: what the host prints is to be clean before core reads it.
        action._low_level_execute_command = self._low_level_execute_command
        return dict(action.run(task_vars=task_vars))

    def _follow(self, host: str, job: str, results: str) -> bool:
        """Wait until the job ends; False when it is gone without a result.

        Each step is shown as it begins, and every TELL_EVERY seconds what goes on. A broken connection is retried for
        ten minutes. The process that watches a job has the job's name in its arguments; the brackets keep the searching
        shell from finding itself. Only the list of grep counts, not its exit code, which is an error when another
        process ends meanwhile. Each part has a head, because a terminal adds empty lines before the first.
        """
        name = "[%s]%s" % (job[0], job[1:].partition(".")[0])
        look = (
            "echo =note; cat %s; echo; echo =jobs; grep -lsa '%s' /proc/[0-9]*/cmdline; "
            "echo =waits; cat %s; echo; echo =journal; cat %s"
        )
        notes = [state_path(PROFILE, note) for note in (WAITS, JOURNAL)]
        command = look % (results.replace(job, "[%s]%s" % (job[0], job[1:])), name, *notes)
        begun = told_at = seen_at = time.monotonic()
        pauses = list(PAUSES)
        told, missed = "", 0
        while time.monotonic() - begun < LIMIT and missed < 2:
            time.sleep(pauses.pop(0) if pauses else PAUSE)
            try:
                answer = self._low_level_execute_command("(%s) 2>/dev/null" % command)
            except AnsibleConnectionFailure:
                if time.monotonic() - seen_at > LOST:
                    raise
                self._connection.reset()
                continue
            now = seen_at = time.monotonic()
            parts = HEAD.split(str(answer.get("stdout", "")))
            said = dict(zip(parts[1::2], parts[2::2]))
            state = _object(said.get("note", ""))
            # The note of a running job has no result yet.
            if state and (state.get("finished") or "started" not in state):
                return True
            missed = 0 if "/cmdline" in said.get("jobs", "") else missed + 1
            text = _progress(_object(said.get("journal", "")), _object(said.get("waits", "")))
            if (text != told and text) or now - told_at > TELL_EVERY:
                told, told_at = text, now
                self._tell("%s: driver %s (%d s)" % (host, text or "checks before the change", now - begun))
        return False


def _object(text: str) -> dict[str, t.Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _progress(journal: t.Mapping[str, t.Any], waits: t.Mapping[str, t.Any]) -> str:
    """The step of a change, or what is waited for before it; empty before both."""
    step = clean(str(journal.get("step") or ""))[:64].replace("_", " ")
    return "%s, %s" % (_between(journal), step) if step else clean(str(waits.get("text") or ""))[:500]


def _between(journal: t.Mapping[str, t.Any]) -> str:
    sides = [journal.get(key) for key in ("previous", "wanted")]
    versions = [side.get("version") if isinstance(side, dict) else None for side in sides]
    return " -> ".join(clean(str(part or "none"))[:64] for part in versions)
