# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of a run, from what Ansible tells its callbacks."""

from __future__ import annotations

DOCUMENTATION = r"""
name: rbln_report
type: aggregate
short_description: Write a report of each run on hosts with Rebellions NPUs
version_added: 0.1.0
description:
  - At the end of a run with tasks of this collection, writes what was found, changed and failed on each host and
    cluster, as a page for people, JSON, Markdown and JUnit.
  - A run that is aborted has a report too, of what it had come to. Only a run that is killed with C(SIGKILL) has none.
  - Compares each host with the newest earlier report in the same folder that has seen it.
  - What is wrong with the report or its options is one warning. It never changes how the run ends.
author:
  - The rebellions.npu authors (@rebellions-npu)
requirements:
  - Enable it in C(callbacks_enabled).
options:
  path:
    description:
      - The folder of the reports. It is made when it is missing. Where it is not set, it is C(rbln_reports) in the home
        of Ansible (C(~/.ansible)).
      - A name that ends with C(.html), C(.json), C(.md) or C(.xml) is one file that each run replaces; the other
        formats are written beside it.
      - Files have the mode 0640 and a folder that is made 0750. They name hosts, versions and what is wrong with them.
    type: path
    env:
      - name: RBLN_REPORT_PATH
    ini:
      - section: callback_rbln_report
        key: path
    vars:
      - name: rbln_report_path
  formats:
    description:
      - What is written, of V(html), V(json), V(markdown) and V(junit).
      - Without V(json) the next run has nothing to compare with.
    type: list
    elements: str
    default: [html, json]
    env:
      - name: RBLN_REPORT_FORMATS
    ini:
      - section: callback_rbln_report
        key: formats
    vars:
      - name: rbln_report_formats
  keep:
    description:
      - How many reports stay in the folder, a number. V(0) keeps all.
      - It is read when the run has ended, so that a wrong one is a warning then, and all of them are kept.
    type: str
    default: "100"
    env:
      - name: RBLN_REPORT_KEEP
    ini:
      - section: callback_rbln_report
        key: keep
    vars:
      - name: rbln_report_keep
notes:
  - Variables of a run (C(rbln_report_path) and so on) are those of its command line and its plays, not those of hosts.
  - In a container, such as that of a job of AWX, choose a folder that outlives it.
seealso:
  - module: rebellions.npu.rbln_report
"""

EXAMPLES = r"""
# ansible.cfg
# [defaults]
# callbacks_enabled = rebellions.npu.rbln_report
# [callback_rbln_report]
# path = /srv/reports/npu
# formats = html, json, junit
"""

import atexit
import contextlib
import functools
import os
import signal
import sys
import time
import typing as t

from ansible import constants, context
from ansible.plugins.callback import CallbackBase
from ansible.release import __version__ as core
from ansible.template import Templar
from ansible_collections.rebellions.npu.plugins.module_utils._base.mask import mask
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.answer import run_of
from ansible_collections.rebellions.npu.plugins.plugin_utils._report.about import about, playbook_name
from ansible_collections.rebellions.npu.plugins.plugin_utils._report.build import About, Stats, document
from ansible_collections.rebellions.npu.plugins.plugin_utils._report.files import (
    Place,
    against_earlier,
    chosen_formats,
    chosen_keep,
    write,
    wrong_formats,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._report.run import (
    FAILED,
    IGNORED,
    OK,
    RESCUED,
    SKIPPED,
    UNREACHABLE,
    Run,
    TaskOf,
    delegated,
)

Handler = t.TypeVar("Handler", bound=t.Callable[..., None])


def harmless(handler: Handler) -> Handler:
    """A fault of the report is one warning, and ends the report alone."""

    @functools.wraps(handler)
    def safe(self: CallbackModule, *args: t.Any, **more: t.Any) -> None:
        if self.run is None and handler.__name__ != "v2_playbook_on_start":
            return
        try:
            handler(self, *args, **more)
        except Exception as exc:  # pylint: disable=broad-except
            self.give_up(str(exc) if isinstance(exc, NpuError) else "%s: %s" % (type(exc).__name__, exc))

    return t.cast("Handler", safe)


class CallbackModule(CallbackBase):
    """Keeps what a report needs of each result, and writes the report at the end."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "rebellions.npu.rbln_report"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *args: t.Any, **more: t.Any) -> None:
        super().__init__(*args, **more)
        self.run: Run | None = None
        self.about = About()
        self.variables: dict[str, t.Any] = {}
        self.tasks: dict[str, TaskOf] = {}
        self.play: t.Any = None
        # Those of Ansible are forks of this process and have all of this, too.
        self.process = os.getpid()

    def give_up(self, why: str) -> None:
        self.run = None
        self._display.warning("%s: %s The run goes on without a report." % (self.CALLBACK_NAME, why))

    @harmless
    def v2_playbook_on_start(self, playbook: t.Any) -> None:
        given = context.CLIARGS
        self.run = Run(time.time(), bool(given.get("check")))
        self.about = about(os.environ, core)
        self.about.playbook = playbook_name(os.path.abspath(str(getattr(playbook, "_file_name", ""))))
        self.about.limit = str(given.get("subset") or "")
        self.about.tags = [str(tag) for tag in given.get("tags") or () if tag != "all"]
        self.about.skip_tags = [str(tag) for tag in given.get("skip_tags") or ()]
        self.tasks, self.variables = {}, {}
        atexit.register(self._aborted)
        self._former = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, self._terminated)

    @harmless
    def v2_playbook_on_play_start(self, play: t.Any) -> None:
        run, self.play = self._known(), play
        variables = play.get_variable_manager().get_vars(play=play, include_hostvars=False)
        run.play(mask(play.get_name().strip()), variables.get("ansible_play_hosts_all") or (), time.time())
        given = {name: variables[name] for name in variables if name.startswith("rbln_report_")}
        if given:
            given = Templar(loader=play.get_loader(), variables=variables).template(given)
        # A survey of AWX gives an empty text where nothing was answered.
        self.variables.update({name: value for name, value in given.items() if value not in ("", None)})
        self.about.by = str(variables.get("awx_user_name") or variables.get("tower_user_name") or self.about.by)

    @harmless
    def v2_runner_on_start(self, host: t.Any, task: t.Any) -> None:
        self._known().start(host.name, self._task(task), time.time())

    @harmless
    def v2_runner_on_ok(self, result: t.Any) -> None:
        self._result(result, OK)

    @harmless
    def v2_runner_on_failed(self, result: t.Any, ignore_errors: bool = False) -> None:
        # Before it tells this, Ansible takes a host from its play, but for one that a block rescues. Where a file to
        # include is not there it does so later.
        lost = result._host.name in getattr(self.play, "_removed_hosts", (result._host.name,))
        lost = lost or str(result._task.action).rpartition(".")[2] in ("include_tasks", "include_role")
        self._result(result, IGNORED if ignore_errors else FAILED if lost else RESCUED)

    @harmless
    def v2_runner_on_unreachable(self, result: t.Any) -> None:
        self._result(result, IGNORED if result._task.ignore_unreachable else UNREACHABLE)

    @harmless
    def v2_runner_on_skipped(self, result: t.Any) -> None:
        self._result(result, SKIPPED)

    @harmless
    def v2_playbook_on_stats(self, stats: t.Any) -> None:
        self._end(Stats(set(stats.failures), set(stats.dark)))

    def _known(self) -> Run:
        """The run: no handler does anything without one."""
        if self.run is None:
            raise NpuError("There is no run to report.", "Report this as a fault of the collection.")
        return self.run

    def _result(self, result: t.Any, how: str) -> None:
        task = self._task(result._task)
        changed = how == OK and result.is_changed()
        where = result._task.delegate_to if how == UNREACHABLE else None
        where = None if where == result._host.name else where
        self._known().result(
            result._host.name, task, how, changed, lambda: delegated(result._result, where), time.time()
        )

    def _task(self, task: t.Any) -> TaskOf:
        found = self.tasks.get(task._uuid)
        if found is None:
            run = self._known()
            run.id = run.id or run_of(task)
            action = str(getattr(task, "resolved_action", None) or task.action)
            role = task._role.get_name() if task._role else ""
            act = task.args.get("act") if isinstance(task.args, dict) else ""
            # Ansible may have put values of variables into it.
            name, act = mask(str(task.name or task.action)), act if isinstance(act, str) else ""
            # It may also be a template.
            check = getattr(task, "check_mode", None) is True
            found = self.tasks[task._uuid] = TaskOf(task._uuid, name, role, action, act, check)
        return found

    def _end(self, stats: Stats | None) -> None:
        """Write the report, once. Without stats the run was aborted."""
        run, self.run = self.run, None
        atexit.unregister(self._aborted)
        if signal.getsignal(signal.SIGTERM) == self._terminated:
            signal.signal(signal.SIGTERM, self._former)
        if run is None or not run.ours or run.reported:
            return
        self.set_options(var_options=self.variables)
        formats, unknown = chosen_formats(self.get_option("formats"))
        place = Place(self.folder())
        made = against_earlier(document(run, self.about, stats, time.time()), place)
        wrong = [str(wrong_formats(unknown))] if unknown else []
        keep = 0
        try:
            keep = chosen_keep(self.get_option("keep"))
        except NpuError as exc:
            wrong.append(str(exc))
        try:
            paths = write(made, place, formats, keep)
        except NpuError as exc:
            paths, wrong = {}, [*wrong, str(exc)]
        for path in paths.values():
            self._display.display("Report: %s" % path, stderr=not self._for_people())
        if wrong:
            self._display.warning("%s: %s" % (self.CALLBACK_NAME, " ".join(wrong)))

    def folder(self) -> str:
        """Where the reports go. Of plugins, ansible-core 2.16 does not render a default."""
        home = str(constants.config.get_config_value("ANSIBLE_HOME"))
        return str(self.get_option("path") or os.path.join(home, "rbln_reports"))

    @staticmethod
    def _for_people() -> bool:
        # Only here: it loads what an action plugin needs.
        from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.action import (  # noqa: PLC0415
            stdout_is_for_people,
        )

        return stdout_is_for_people()

    @harmless
    def _aborted(self) -> None:
        if os.getpid() == self.process:
            self._end(None)

    def _terminated(self, number: int, frame: t.Any) -> None:
        # The signal may have come in the middle of a write to the same stream.
        with contextlib.suppress(Exception):
            self._aborted()
            # Ansible flushes it at its end, to which this run does not come.
            sys.stdout.flush()
        if callable(self._former) and os.getpid() == self.process:
            self._former(number, frame)
        else:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
