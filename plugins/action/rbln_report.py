# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of rbln_report: a report of what is known, and what has changed since the last one."""

from __future__ import annotations

import os
import time
import typing as t

from ansible.plugins.loader import callback_loader
from ansible.release import __version__ as core
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.action import OfPlay, Result
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.answer import (
    FACTS,
    PREFIX,
    checked_facts,
    run_of,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.text import clean
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.of_task import registered_of
from ansible_collections.rebellions.npu.plugins.plugin_utils._report import drift as drifts
from ansible_collections.rebellions.npu.plugins.plugin_utils._report.about import about, playbook_name
from ansible_collections.rebellions.npu.plugins.plugin_utils._report.build import About, Stats, document
from ansible_collections.rebellions.npu.plugins.plugin_utils._report.compare import (
    last_clusters,
    last_looks,
    last_plans,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._report.document import Document, Drift, Host
from ansible_collections.rebellions.npu.plugins.plugin_utils._report.files import (
    Place,
    against_earlier,
    chosen_formats,
    chosen_keep,
    write,
    wrong_formats,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._report.known import known
from ansible_collections.rebellions.npu.plugins.plugin_utils._report.look import look
from ansible_collections.rebellions.npu.plugins.plugin_utils._report.markdown import object_text
from ansible_collections.rebellions.npu.plugins.plugin_utils._report.run import COLLECTION, REPORT, HostLog, Run
from ansible_collections.rebellions.npu.plugins.plugin_utils._report.totals import recounted
from ansible_collections.rebellions.npu.plugins.plugin_utils._report.words import shown
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.states import moment

OBSERVATION, PLAN = "%s_discover_observation" % PREFIX, "%s_preflight_plan" % PREFIX
# What drift.yml registers: the answer of the module that reads the logs of a host.
HISTORY = "__%s_report_history" % PREFIX
# What the role of the cluster registers: the cluster of a host, the dry run for it, and the verdict on the host.
CLUSTER = ("__%s_operands_member" % PREFIX, "__%s_operands_applied" % PREFIX, "%s_operands_result" % PREFIX)


class ActionModule(OfPlay):
    ARGUMENTS: t.ClassVar[Result] = {
        "act": {"type": "str", "choices": ["known", "compare", "drift"], "default": "known"},
        "path": {"type": "path"},
        "formats": {"type": "list", "elements": "str"},
        "keep": {"type": "int"},
        "format": {"type": "str", "choices": ["text", "json"], "default": "text"},
    }

    def _told(self, args: Result, known: dict[str, Result], variables: Result) -> Result:
        wanted = {**_configured(), **{name: told for name, told in args.items() if told is not None}}
        formats, unknown = chosen_formats(wanted["formats"])
        wrong = {"warnings": [str(wrong_formats(unknown))]} if unknown else {}
        self._place, self._formats, self._keep = Place(wanted["path"]), formats, chosen_keep(wanted["keep"])
        self._json = args["format"] == "json"
        names = shown(known)
        self._known = {names[host]: found for host, found in known.items()}
        self._hosts, self._inventory = list(self._known), {told: host for host, told in names.items()}
        return {**wrong, **ACTS[args["act"]](self, self._about(variables))}

    def _about(self, variables: Result) -> About:
        found = about(os.environ, core)
        found.by = str(variables.get("awx_user_name") or variables.get("tower_user_name") or found.by)
        found.playbook = playbook_name(str(self._task.get_path() or "").rpartition(":")[0])
        found.limit = str(variables.get("ansible_limit") or "")
        return found

    def _report(self, told: About) -> Result:
        """The report of what is known without asking a host."""
        # A fact set is no cached one: but both are what Ansible remembers of the host.
        cached = {host: found.get(FACTS) or {} for host, found in self._known.items()}
        last = next(self._place.earlier(), None)
        looks = last_looks(self._hosts, self._place.earlier())
        made = against_earlier(known(cached, looks, last, told, time.time()), self._place)
        lost = [one["name"] for one in made["hosts"] if not one["pool"]]
        result = self._written(made)
        lines = [drifts.of_report(made), *drifts.not_known(lost)]
        self._show(lines)
        return {**result, "hosts": _states(made), "msg": [text for text, _tone in lines]}

    def _compare(self, told: About) -> Result:
        """The hosts that are not as the last report has them, and what the logs of each are to be read for."""
        found = {}
        _at, looks = last_plans(self._hosts, self._place.earlier())
        for one in self._seen(told)["hosts"]:
            before = looks.get(one["name"])
            if before is not None and drifts.changed(one, before):
                facts = registered_of(self._known[one["name"]], OBSERVATION).get(FACTS) or {}
                found[self._inventory[one["name"]]] = {
                    "since": moment(before["seen"]).timestamp(),
                    "paths": drifts.paths_of(facts),
                }
        return {"hosts": found}

    def _drift(self, told: About) -> Result:
        """The report with what has changed by whom."""
        made = self._seen(told)
        since, looks = last_plans(self._hosts, self._place.earlier())
        told_hosts = [self._against(one, looks.get(one["name"])) for one in made["hosts"]]
        before = last_clusters([one["name"] for one in made["clusters"]], self._place.earlier())
        parts = drifts.of_clusters(made["clusters"], before)
        made = recounted({**made, "hosts": told_hosts, "clusters": parts})
        made = against_earlier(made, self._place)
        result = self._written(made)
        drifted = {one["name"]: one["drift"] for one in made["hosts"] if one["drift"]}
        clusters = {one["name"]: [object_text(item) for item in one["drift"]] for one in parts if one["drift"]}
        result.update(drifted=bool(drifted or clusters), since=since, clusters=clusters)
        new = [one["name"] for one in made["hosts"] if one["pool"] and one["name"] not in looks]
        lines = [(clean(text), tone) for text, tone in drifts.screen(made, since, new)]
        if self._json:
            lost = {one["name"]: one["not_known"] for one in made["hosts"] if one["not_known"]}
            return {**result, "drift": drifted, "not_known": lost, "_ansible_verbose_always": True}
        self._show(lines)
        return {**result, "hosts": _states(made), "msg": [text for text, _tone in lines]}

    def _against(self, one: Host, before: Host | None) -> Host:
        """A host with what has changed on it by whom, and what is not known of it any more."""
        if before is None:
            return one
        found, lost = drifts.compared(one, before)
        return {**one, "drift": self._explained(one, before, found) if found else [], "not_known": lost}

    def _explained(self, one: Host, before: Host, found: list[Drift]) -> list[Drift]:
        raw = self._known[one["name"]]
        told = registered_of(raw, HISTORY)
        driver = ((registered_of(raw, OBSERVATION).get(FACTS) or {}).get(PREFIX) or {}).get("driver") or {}
        return drifts.explained(found, told, drifts.noted(driver, before["seen"]), drifts.packages_of(driver))

    def _seen(self, told: About) -> Document:
        """The report of what the hosts of the play have registered in this run."""
        # What the cluster says is of a dry run.
        run = Run(time.time(), check=True, id=run_of(self._task))
        failed: list[str] = []
        unreachable: list[str] = []
        for host, raw in self._known.items():
            one = run.hosts[host] = HostLog(results=1)
            seen, plan = registered_of(raw, OBSERVATION), registered_of(raw, PLAN)
            try:
                one.look, one.seen = look(checked_facts(host, seen.get(FACTS), run=self._run_id())), run.began
            except (NpuError, AttributeError, KeyError, TypeError):
                (unreachable if seen.get("unreachable") else failed).append(host)
                one.unreachable = bool(seen.get("unreachable"))
                one.failed = ("Observe", str(seen.get("msg") or "It was not reached, or an earlier task failed."))
            else:
                run.planned(one, plan)
                for name in CLUSTER:
                    run.worked(host, one, registered_of(raw, name))
        made = document(run, told, Stats(failed, unreachable), run.began)
        # A task does not know when its run began.
        return {**made, "made": {**made["made"], "began": "", "seconds": None}}

    def _written(self, made: Document) -> Result:
        """Write the files, but in check mode; what AWX keeps as artifacts of a job is among the result."""
        paths = {} if self._task.check_mode else write(made, self._place, self._formats, self._keep)
        counts = {key: value for key, value in made["summary"].items() if not isinstance(value, dict)}
        data = {"%s_report" % PREFIX: {**counts, "states": made["summary"]["states"], "paths": paths}}
        if paths:
            self._show([("Report: %s" % path, "") for path in paths.values()])
        return {"paths": paths, "ansible_stats": {"data": data, "per_host": False, "aggregate": False}}


def _configured() -> Result:
    """The options of the callback: its reports and those of a task are the same ones."""
    callback = callback_loader.get(COLLECTION + REPORT)
    callback.set_options()
    return {"path": callback.folder(), **{name: callback.get_option(name) for name in ("formats", "keep")}}


def _states(made: Document) -> dict[str, t.Any]:
    return {one["name"]: {"state": one["state"], "reason": one["reason"]} for one in made["hosts"]}


ACTS: dict[str, t.Callable[[ActionModule, About], Result]] = {
    "known": ActionModule._report,
    "compare": ActionModule._compare,
    "drift": ActionModule._drift,
}
