# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of rbln_rollout: which hosts go, and the way of each. Nothing runs on the host."""

from __future__ import annotations

import gc
import json
import time
import typing as t

from ansible import constants
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.action import OnController
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.text import clean, clean_all
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.api import TELL_EVERY
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.of_task import registered_of
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.transport import preload
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs import cluster as of_cluster
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.names import known
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.roles import (
    PREFLIGHT,
    role_defaults,
    role_inputs,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.names import INPUT
from ansible_collections.rebellions.npu.plugins.plugin_utils._plan.foretold import host_part, of_this_run
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout import given as of_rollout
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.decide import Skip
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.fleet import batches
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.gather import Cut, Gathering, Hosts
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.metrics import holds
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.node import NodeWriter
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.places import (
    LEFT,
    PLAN,
    Place,
    disturbs,
    policy_of,
    whole,
    works,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.returning import UNSCHEDULABLE
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.store import RunStore
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.table import document, lines, summary, table
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.turn import NO_TURN, Refused, Turn
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.turns import all_of, foretold, turn_of, written

Result = dict[str, t.Any]
# What the roles register of the look at the clusters, and what the act plan has cut.
OPENED, CUT = "%s_opened" % PREFLIGHT, "%s_plan" % of_rollout.ROLE
FAILURE, REBOOT = INPUT + "failure", INPUT + "driver_reboot_required"
HOSTS = "npu_nodes"
# Once a run: Ansible loads its plugins before it starts a process for each task.
for _role in (of_cluster.ROLE, of_rollout.ROLE):
    role_inputs((_role,))
    role_defaults(_role)
known()
preload()
# To look for garbage in what the run knows of its hosts would copy it: processes that wait have it as it was.
gc.collect()
gc.freeze()


class ActionModule(Gathering, OnController):
    def run(self, tmp: str | None = None, task_vars: Result | None = None) -> Result:
        task_vars = task_vars or {}
        result: Result = super().run(tmp, task_vars)
        _validation, args = self.validate_argument_spec(argument_spec=ARGUMENTS)
        self._dry_run = bool(self._task.check_mode)
        self._told_at = time.monotonic()
        # {host: its pool} of those without a cluster.
        self._local: dict[str, str] = {}
        try:
            with self._environment():
                # Names of pods, and the API server's words, may be in it.
                result.update(clean_all(ACTS[args["act"]](self, args, task_vars)))
        except NpuError as exc:
            result.update(failed=True, msg=clean(str(exc), True), refused=isinstance(exc, Refused))
        return result

    def _plan(self, args: Result, task_vars: Result) -> Result:
        """Cut the hosts into waves. What is for a play is text: a list would be templated for each host."""
        raw = {host: task_vars["hostvars"].raw_get(host) for host in task_vars["ansible_play_batch"]}
        made = {host: whole(found, of_this_run(registered_of(found, PLAN), task_vars)) for host, found in raw.items()}
        plans = {host: plan for host, plan in made.items() if "steps" in plan and not plan.get("failed")}
        opened = registered_of(task_vars, OPENED) if host_part(task_vars) else {}
        unfinished = set(opened.get("unfinished") or ())
        mine = {host for host, plan in plans.items() if (host in unfinished or disturbs(plan)) and not plan["stops"]}
        cut = Cut()
        turns, fleets, self._local = cut.turns, cut.fleets, cut.local
        for places in self._clusters(task_vars, plans) if mine else ():
            same = [place for place in places if place.given["enabled"]]
            try:
                if same:
                    self._gather(same, Hosts(plans, mine, unfinished), task_vars, cut)
            except NpuError as exc:
                turns.update({host: {"refused": str(exc)} for place in same for host in place.hosts if host in mine})
        refused = list(dict.fromkeys(one["refused"] for one in turns.values() if "refused" in one))
        if refused and not fleets:
            # All of them, in one message, before a host is touched.
            raise NpuError(" ".join(refused))
        back = [host for host in opened.get("given_back") or () if host in plans and works(plans[host])]
        changed, warnings = (bool(back), []) if self._dry_run else self._say_works_again(task_vars, plans, back)
        result: Result = {"changed": changed, "hosts": ",%s," % ",".join(turns) if turns else ""}
        warnings = [*cut.warnings, *warnings]
        result.update({"warnings": warnings} if warnings else {})
        if turns:
            result["turns"] = written(turns)
            if self._local:
                result["local"] = json.dumps(self._local)
        if any(fleet.limited for fleet in fleets):
            waves = batches(fleets)
            order = ",".join([*(host for wave in waves for host in wave), HOSTS])
            serial = [*map(len, waves[:-1]), "100%"]
            result.update(order=order, serial=serial, strategy="ansible.builtin.host_pinned")
        if self._dry_run and fleets:
            found = table(fleets, cut.told, constants.DEFAULT_FORKS, *self._playbook(task_vars))
            result["table"] = json.dumps({**document(found), "lines": lines(found)})
        return result

    def _leave(self, args: Result, task_vars: Result) -> Result:
        mine, place = self._mine(task_vars), self._place(task_vars)
        if self._dry_run:
            return foretold(mine)
        turn = self._turn(mine, place, task_vars)
        settings = of_rollout.settings_of(place.given, [mine["pool"]])
        together: list[str] = []
        if settings[mine["pool"]].limited and self._is_linear():
            together = self._together(_turns(task_vars), mine, task_vars["ansible_play_batch"])
        outcome = turn.begin(settings, lambda: holds(place.given["metrics"]), together)
        if isinstance(outcome, Skip):
            return {"changed": False, "goes": False, "msg": "%s was left as it is. %s" % (mine["node"], outcome.reason)}
        policy = policy_of(place.given, place.operands, mine["keeps_pods"])
        result: Result = {"changed": True, "goes": True, "begun": turn.cordon(outcome, policy), "before": ""}
        if place.given["before"] and not mine["only_back"]:
            return {**result, "before": place.given["before"]}
        if not mine["only_back"]:
            result.update(turn.drain(policy, self._tell, result["begun"])._asdict())
        return result

    def _drain(self, args: Result, task_vars: Result) -> Result:
        mine, place, left = self._mine(task_vars), self._place(task_vars), registered_of(task_vars, LEFT)
        policy, turn = policy_of(place.given, place.operands, mine["keeps_pods"]), self._turn(mine, place, task_vars)
        return {"changed": True, **turn.drain(policy, self._tell, bool(left.get("begun")))._asdict()}

    def _return(self, args: Result, task_vars: Result) -> Result:
        mine, place = self._mine(task_vars), self._place(task_vars)
        if not registered_of(task_vars, LEFT).get("goes"):
            return {"changed": False, "msg": "%s was not taken out of service." % mine["node"]}
        if self._dry_run:
            return {"changed": True, "msg": "%s would be put back into service." % mine["node"]}
        turn = self._turn(mine, place, task_vars)
        if args["failure"]:
            what, _next, step = str(args["failure"]).partition(" Next: ")
            said = turn.failed(NpuError("%s: %s" % (args["failed_task"], what), step))
            told = " ".join(part for part in (what, said) if part)
            reason = {"task": args["failed_task"], "msg": str(NpuError(told, step))}
            return {"changed": bool(said), "reason": reason, "msg": said}
        if args["reboot_required"]:
            return {"changed": True, "msg": turn.waits_for_reboot("A reboot is due. Next: Reboot it, and run again.")}
        smoke = args["smoke"] and place.given["smoke"] and place.login[0] and of_cluster.wants_smoke(place.operands)
        changed = turn.come_back(self._back(mine, place, task_vars) if place.login[0] else None, not smoke)
        if smoke and changed:
            tolerations = [*place.operands["tolerations"], {"key": UNSCHEDULABLE, "operator": "Exists"}]
            return {"changed": True, "smoke": mine["node"], "tolerations": tolerations}
        return {"changed": changed, "after": place.given["after"], "msg": "%s is back in service." % mine["node"]}

    def _finish(self, args: Result, task_vars: Result) -> Result:
        if self._dry_run:
            return {"changed": False, "msg": []}
        hosts = _turns(task_vars)
        for places in self._clusters(task_vars, hosts):
            first = next((place for place in places if place.login[0] and place.given["enabled"]), None)
            if first:
                RunStore(self._open(first.operands), first.operands, constants.DEFAULT_LOCAL_TMP).release()
        raw = {host: task_vars["hostvars"].raw_get(host) for host in hosts}
        left = {host: {**registered_of(found, LEFT), "reboot": REBOOT in found} for host, found in raw.items()}
        failures = {host: found.get(FAILURE) or {} for host, found in raw.items()}
        told = [(clean(text), tone) for text, tone in summary(left, failures)]
        self._show(told)
        return {"changed": False, "msg": [text for text, _tone in told]}

    def _mine(self, task_vars: Result) -> Result:
        """What the act plan has cut for this host. NpuError where it may not go, or was not asked."""
        cut = registered_of(task_vars, CUT)
        self._local = json.loads(cut.get("local") or "{}")
        found = turn_of(cut.get("turns") or "", task_vars["inventory_hostname"])
        if not found or found.get("refused"):
            what, _next, step = str(found.get("refused") or NO_TURN).partition(" Next: ")
            raise NpuError(what, step)
        return found

    def _turn(self, mine: Result, place: Place, task_vars: Result) -> Turn:
        cluster = self._open(place.operands) if place.login[0] else None
        store = self._store(cluster, place.operands, self._local, task_vars)
        writer = NodeWriter(cluster, mine["node"], mine["run"]) if cluster else None
        return Turn(store, mine["run"], mine["node"], cluster.waits if cluster else self._waits, writer)

    def _waits(self, text: str) -> None:
        """Say every TELL_EVERY seconds what is waited for."""
        if time.monotonic() - self._told_at >= TELL_EVERY:
            self._told_at = time.monotonic()
            self._tell(text)


def _turns(task_vars: t.Mapping[str, t.Any]) -> Result:
    """{host: what the act plan has cut for it} of all hosts."""
    return all_of(registered_of(task_vars, CUT).get("turns") or "")


ACTS: dict[str, t.Callable[[ActionModule, Result, Result], Result]] = {
    "plan": ActionModule._plan,
    "leave": ActionModule._leave,
    "drain": ActionModule._drain,
    "return": ActionModule._return,
    "finish": ActionModule._finish,
}
ARGUMENTS = {
    "act": {"type": "str", "required": True, "choices": list(ACTS)},
    "failure": {"type": "str", "default": ""},
    "failed_task": {"type": "str", "default": ""},
    "reboot_required": {"type": "bool", "default": False},
    "smoke": {"type": "bool", "default": True},
}
