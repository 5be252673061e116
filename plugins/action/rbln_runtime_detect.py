# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of rbln_runtime_detect: the module's answer is judged, and a restart is waited for."""

from __future__ import annotations

import time
import typing as t

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action.normal import ActionModule as Normal
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.action import Answering
from ansible_collections.rebellions.npu.plugins.plugin_utils._text.line import line

Result = dict[str, t.Any]
# Seconds between two looks, between two lines that say what is waited for, and for one command of a look.
DELAY, TELL_EVERY, COMMAND = 2.0, 10.0, 10.0


class ActionModule(Answering, Normal):
    """As ansible runs any module, with the answer judged."""

    def run(self, tmp: str | None = None, task_vars: Result | None = None) -> Result:
        unit = str(self._task.args.get("wait_for") or "")
        if unit:
            result: Result = self._wait(unit, task_vars or {})
        else:
            result = super().run(tmp, task_vars)
        return self._complete(result)

    def _complete(self, result: Result) -> Result:
        if boolean(self._task.args.get("ask", False), strict=False):
            # A host may leave it out, and a condition that reads it would fail with words of Jinja.
            for runtime in ((result.get("ansible_facts") or {}).get("rbln_runtimes") or {}).get("runtimes") or ():
                runtime.setdefault("answers", None)
        return result

    def _wait(self, unit: str, task_vars: Result) -> Result:
        """Looks until the unit is back or the time is over; the time of a look counts as well."""
        args = {key: value for key, value in self._task.args.items() if key not in ("wait_for", "wait")}
        try:
            limit, longest = float(self._task.args.get("wait", 60.0)), float(args.get("timeout", COMMAND))
        except (TypeError, ValueError):
            raise AnsibleActionFail("wait or timeout is no number. Next: Give seconds, such as 60.") from None
        start = told = time.monotonic()
        while True:
            left = start + limit - time.monotonic()
            args["timeout"] = max(1.0, min(longest, left))
            try:
                answer = self._execute_module(module_args=args, task_vars=task_vars)
            except AnsibleConnectionFailure:
                answer = {"failed": True, "msg": "the host cannot be reached"}
            except AnsibleError as exc:
                # Of sudo, for which a busy host has no time; a play that keeps failures would roll nothing back.
                answer = {"failed": True, "msg": str(exc)}
            why = why_not_back(answer, unit)
            now = time.monotonic()
            if not why or now + DELAY >= start + limit:
                kept = {"changed": False} if answer.get("failed") else answer
                return {**kept, "back": not why, "why": why}
            if now - told >= TELL_EVERY:
                told, host = now, self._host_name(task_vars)
                self._tell("%s: waiting for %s, %d of %d s: %s" % (host, unit, now - start, limit, why))
            time.sleep(DELAY)


def why_not_back(answer: Result, unit: str) -> str:
    """Why the runtime of a unit does not run with its configuration, by one look; empty when it does."""
    if answer.get("failed"):
        return line(answer.get("msg") or "the look has failed", 200).rstrip(".")
    runtimes = answer["ansible_facts"]["rbln_runtimes"]["runtimes"]
    # The facts leave the suffix of services out, as people do or do not.
    found = [one for one in runtimes if str(one.get("restart_unit")) == unit.removesuffix(".service")]
    reasons = [_why_not(one) for one in found] or ["no runtime of this unit is found"]
    return "" if "" in reasons else reasons[0]


def _why_not(runtime: Result) -> str:
    if runtime["unit_state"] != "active":
        return "the unit is %s" % runtime["unit_state"]
    if not runtime["socket_exists"]:
        return "the socket %s does not exist" % runtime["socket"]
    if runtime["process_stale"]:
        return "the process is older than its configuration"
    return "it does not answer over its socket" if runtime.get("answers") is False else ""
