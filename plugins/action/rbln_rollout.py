# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of rbln_rollout: which hosts go, and the way of each. Nothing runs on the host."""

from __future__ import annotations

import gc
import json
import time
import typing as t
import uuid

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
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.names import INPUT, SHORT
from ansible_collections.rebellions.npu.plugins.plugin_utils._plan.foretold import host_part, of_this_run
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout import given as of_rollout
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.decide import Skip
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.fleet import Fleet, Going, batches, goal_of
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.metrics import holds
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.node import NodeWriter
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.places import (
    LEFT,
    PLAN,
    Place,
    Places,
    disturbs,
    facts_of,
    going,
    keeps_pods,
    policy_of,
    told_pods,
    whole,
    works,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.rights import require_rollout_rights
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.settings import Settings
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.states import moment, utc
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.store import RunStore
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.table import document, lines, summary, table
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.turn import NO_TURN, Refused, Turn
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.turns import all_of, turn_of, written

Result = dict[str, t.Any]
# What the roles register of the two looks at the controller, and what the act plan has cut.
INPUTS, OPENED, CUT = "%s_inputs" % PREFLIGHT, "%s_opened" % PREFLIGHT, "%s_plan" % of_rollout.ROLE
# The taint of a cordoned node.
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
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


class ActionModule(Places, OnController):
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
        turns: Result = {}
        fleets: list[Fleet] = []
        told: Result = {}
        places: dict[tuple[str, str], list[Place]] = {}
        for place in self._places(task_vars, plans) if mine else ():
            if place.given["enabled"]:
                places.setdefault(place.login, []).append(place)
        for same in places.values():
            try:
                self._gather(same, mine, plans, unfinished, task_vars, fleets, turns, told)
            except NpuError as exc:
                turns.update({host: {"refused": str(exc)} for place in same for host in place.hosts if host in mine})
        refused = list(dict.fromkeys(one["refused"] for one in turns.values() if "refused" in one))
        if refused and not fleets:
            # All of them, in one message, before a host is touched.
            raise NpuError(" ".join(refused))
        back = [host for host in opened.get("given_back") or () if host in plans and works(plans[host])]
        warnings = [] if self._dry_run else self._say_works_again(task_vars, plans, back)
        result: Result = {"changed": bool(back), "hosts": ",%s," % ",".join(turns) if turns else ""}
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
            found = table(fleets, told, constants.DEFAULT_FORKS, *self._playbook(task_vars))
            result["table"] = json.dumps({**document(found), "lines": lines(found)})
        return result

    def _gather(
        self,
        places: list[Place],
        mine: t.Collection[str],
        plans: t.Mapping[str, Result],
        unfinished: t.Collection[str],
        task_vars: Result,
        fleets: list[Fleet],
        turns: Result,
        told: Result,
    ) -> None:
        """Cut the hosts of one cluster, or those without; NpuError where they cannot go, before one is touched."""
        first = places[0]
        cluster = self._open(first.operands) if first.login[0] else None
        settings: dict[str, Settings] = {}
        nodes: dict[str, str] = {}
        hosts: list[Going] = []
        for place in places:
            of_rollout.judge_place(place.given, place.operands if cluster else None)
        asked = self._known(cluster, places, task_vars)
        for place in places:
            found, wrong = self._nodes(asked, place, plans, task_vars)
            # What it changes may disturb a node that nobody would cordon.
            turns.update({host: {"refused": error} for host, error in wrong.items() if host in mine})
            chosen = [host for host in place.hosts if host in mine and host in found]
            own = [going(host, found[host], plans[host], host in unfinished, place.operands) for host in chosen]
            settings = {**of_rollout.settings_of(place.given, {one.pool for one in own}), **settings}
            nodes.update({host: one["metadata"]["name"] if one else host for host, one in found.items()})
            hosts += own
        policies = [(place, policy_of(place.given, place.operands)) for place in places] if cluster and hosts else []
        if cluster and hosts:
            require_rollout_rights(cluster, [(place.operands, policy) for place, policy in policies], first.login[0])
        settings = {pool: own for pool, own in settings.items() if pool in {one.pool for one in hosts}}
        wanted = (plans[host].get("wanted") or {} for place in places for host in place.hosts)
        # Of a host that is stopped, or stays as it is, nobody knows whether what has failed there works again.
        seen = {node for host, node in nodes.items() if host in mine or works(plans[host])}
        fleet = Fleet(hosts, settings, seen, goal_of(wanted, INPUT))
        hooks = any(place.given["before"] or place.given["after"] for place in places)
        if not hosts or not (cluster or fleet.limited or hooks):
            # Without a node and without limits there is nothing to wait for.
            return
        run, now = uuid.uuid4().hex[:12], utc()
        at = registered_of(task_vars, INPUTS).get("at")
        pools = {host: str(facts_of(plans[host])[SHORT]["pool_key"]) for host in nodes}
        store = self._store(cluster, first.operands, pools, task_vars, seen.difference(mine), set(plans) - set(pools))
        if not self._dry_run:
            store.claim(run)
        fleet.cut(store, run, moment(at) if at else now, now, not self._dry_run)
        if cluster and self._dry_run:
            leaving = {one.host: one.node for one in hosts if not keeps_pods(plans[one.host])}
            told.update(told_pods(cluster, leaving, [(place.hosts, policy) for place, policy in policies]))
        fleets.append(fleet)
        self._local.update({} if cluster else pools)
        for one, plan in ((one, plans[one.host]) for one in hosts):
            way = {"only_back": not disturbs(plan), "keeps_pods": keeps_pods(plan), "offers": one.offers}
            mine = {"run": run, "node": one.node, "pool": one.pool, "wave": fleet.wave_of(one.node)}
            turns[one.host] = {**mine, "left": fleet.stays(one), **way}

    def _leave(self, args: Result, task_vars: Result) -> Result:
        mine, place = self._mine(task_vars), self._place(task_vars)
        if self._dry_run:
            goes, would = not mine["left"], "left as it is" if mine["left"] else "taken out of service"
            drains = goes and bool(place.login[0]) and policy_of(place.given, place.operands, mine["keeps_pods"]).evicts
            return {"changed": goes, "goes": goes, "drains": drains, "msg": "%s would be %s." % (mine["node"], would)}
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
            result["unready"] = turn.drain(policy, self._tell, result["begun"])
        return result

    def _drain(self, args: Result, task_vars: Result) -> Result:
        mine, place, left = self._mine(task_vars), self._place(task_vars), registered_of(task_vars, LEFT)
        policy, turn = policy_of(place.given, place.operands, mine["keeps_pods"]), self._turn(mine, place, task_vars)
        return {"changed": True, "unready": turn.drain(policy, self._tell, bool(left.get("begun")))}

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
        for place in self._places(task_vars, hosts):
            if place.login[0] and place.given["enabled"]:
                RunStore(self._open(place.operands), place.operands, constants.DEFAULT_LOCAL_TMP).release()
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
