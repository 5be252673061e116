# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of rbln_operands: each act is one small function. Nothing runs on the host."""

from __future__ import annotations

import os
import typing as t
import uuid

from ansible.plugins.loader import module_loader
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.action import OnController
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.answer import checked_facts
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.text import clean, clean_all
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.api import require_packages
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.capabilities import declared
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.for_tasks import given_to_tasks
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.login import ambient, read_login
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.of_task import (
    OfTask,
    outcome_of,
    registered,
    said_of_others,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.render import build
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster.manifests import write_manifests
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster.work import ClusterWork
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.cluster import (
    ROLE,
    act_of,
    choose_actors,
    digest,
    read_inputs,
    rendered_key,
    wants_smoke,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.names import known, own_prefixes, set_names
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.releases import judge_pairs
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.roles import raw_inputs, role_inputs
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.nodes import Hosts, match_members, member_record
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.outcome import difference_lines, judge_host
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.records import Named
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.smoke import (
    SMOKE,
    brief,
    shown_log,
    smoke_job,
    smoke_verdict,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.smoke_wait import wait_for_smoke
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.states import NO_NODE, node_states
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.inputs import Inputs
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.model import PASSTHROUGH, Context

Result = dict[str, t.Any]
# Once a run: ansible loads its plugins before it starts a process for each host and task.
role_inputs((ROLE,))
role_inputs()
known()
# What the role registers of each host, of the choice who acts, and of the work of who acts.
MEMBER, CLUSTERS, APPLIED = ("__%s_%s" % (ROLE, name) for name in ("member", "clusters", "applied"))
ENABLED = ROLE + "_enabled"


class ActionModule(OfTask, OnController):
    def run(self, tmp: str | None = None, task_vars: Result | None = None) -> Result:
        task_vars = task_vars or {}
        result: Result = super().run(tmp, task_vars)
        _validation, args = self.validate_argument_spec(argument_spec=ARGUMENTS)
        self._dry_run = bool(self._task.check_mode)
        try:
            with self._environment():
                result.update(ACTS[args["act"]](self, args, task_vars))
            if args["round"]:
                result["round"] = args["round"]
        except NpuError as exc:
            # The API server's words may be in it.
            result.update(failed=True, msg=clean(str(exc), True))
        if not args["fail"]:
            result["ok"] = not result.pop("failed", False)
        return result

    def _inputs(self, task_vars: Result) -> Inputs:
        raw = raw_inputs(self._templar, task_vars, role_inputs((ROLE,)))
        return t.cast(Inputs, read_inputs(raw, set_names(task_vars), own_prefixes(self._templar, task_vars)))

    def _work(self, args: Result, task_vars: Result) -> ClusterWork:
        inputs = self._inputs(task_vars)
        members, others = args["members"], self._others(task_vars, args["members"], inputs)
        cluster, show = self._open(inputs), bool(self._task.diff)
        return ClusterWork(cluster, inputs, members, self._dry_run, show, others, self._tell, args["features"])

    def _others(self, task_vars: Result, members: t.Sequence[t.Mapping[str, t.Any]], inputs: Inputs) -> list[Named]:
        """What the inventory says of the hosts of this cluster that are not members; facts are not asked."""
        hostvars, taken = task_vars.get("hostvars"), {member["host"] for member in members}
        names = (task_vars.get("groups") or {}).get("all") or () if hostvars else ()
        return t.cast("list[Named]", said_of_others(hostvars, [host for host in names if host not in taken], inputs))

    def _check(self, args: Result, task_vars: Result) -> Result:
        inputs = self._inputs(task_vars)
        if inputs["enabled"] and (inputs["image_digests"] or inputs["require_digest"]):
            build(Context(inputs, declared(inputs)))
        if rendered_key(inputs) is None:
            read_login(self._kubeconfig(inputs), inputs["context"])
        if wants_smoke(inputs):
            smoke_job(inputs, "any")
            _require_smoke_modules()
            self._access(inputs)
        # The driver that the host is about to get; the one that it has is judged with its record.
        given = task_vars.get("rbln_driver_version") if inputs["enabled"] else None
        judge_pairs(t.cast(Result, inputs), [str(self._templar.template(given))] if given else [])
        return _warned({"changed": False}, _unused_login(inputs, task_vars))

    def _member(self, args: Result, task_vars: Result) -> Result:
        inputs = self._inputs(task_vars)
        facts = checked_facts(task_vars["inventory_hostname"], task_vars.get("ansible_facts"), run=self._run_id())
        source = str(self._templar.template(task_vars.get("rbln_driver_source")) or "")
        proof = task_vars.get("rbln_validator_proof")
        if self._dry_run:
            # A seventh of all code that this plugin loads, and a real run needs none of it.
            from ansible_collections.rebellions.npu.plugins.plugin_utils._plan.foretold import seen_or_foretold

            facts, proof = seen_or_foretold(True, facts, task_vars)
        host = task_vars["inventory_hostname"]
        # Ansible lets no fact set it.
        address = str(self._templar.template(task_vars.get("ansible_host")) or "")
        toolkit = str(self._templar.template(task_vars.get("rbln_container_toolkit_source")) or "")
        loaded = ((facts.get("rbln") or {}).get("driver") or {}).get("version_loaded")
        if inputs["enabled"] and loaded:
            judge_pairs(t.cast(Result, inputs), [loaded])
        record = member_record(host, inputs, facts.get("rbln"), facts, proof, source, address, toolkit)
        cluster, mark = rendered_key(inputs), ""
        if cluster is None:
            login = read_login(self._kubeconfig(inputs), inputs["context"])
            cluster, mark = login.name, login.mark
        member = {**record, "cluster": cluster, "mark": mark, "digest": digest(inputs)}
        result: Result = {"changed": False, "member": member, "work": act_of(inputs)}
        return _warned(result, inputs["notes"] if member["cluster"] else _unused_login(inputs, task_vars))

    def _clusters(self, args: Result, task_vars: Result) -> Result:
        members = registered(task_vars, MEMBER)
        clusters = choose_actors(members)
        if any(not key.startswith("manifests in ") for key in clusters):
            require_packages()
        errors = {
            host: cluster["error"] for cluster in clusters.values() for host in cluster["members"] if cluster["error"]
        }
        agreed = [cluster for cluster in clusters.values() if not cluster["error"]]
        actors = {host: cluster["actor"] for cluster in agreed for host in cluster["members"]}
        mine = {cluster["actor"]: [members[host] for host in cluster["members"]] for cluster in agreed}
        # Where each host of a play makes its own choice, the rounds differ.
        result: Result = {"changed": False, "round": uuid.uuid4().hex}
        return {**result, "actors": actors, "members": mine, "errors": errors, "clusters": sorted(clusters)}

    def _render(self, args: Result, task_vars: Result) -> Result:
        return write_manifests(self._inputs(task_vars), self._dry_run, bool(self._task.diff))

    def _run(self, args: Result, task_vars: Result) -> Result:
        return told(self._work(args, task_vars).present())

    def _diff(self, args: Result, task_vars: Result) -> Result:
        result = told(self._work(args, task_vars).diff())
        self._show([("\n".join(difference_lines(result["differences"])), "")])
        return result

    def _absent(self, args: Result, task_vars: Result) -> Result:
        return told(self._work(args, task_vars).absent())

    def _judge(self, args: Result, task_vars: Result) -> Result:
        host = task_vars["inventory_hostname"]
        found = judge_host(host, outcome_of(host, task_vars, (MEMBER, CLUSTERS, APPLIED)))
        if found.get("failed"):
            # A callback prints all of it around the message.
            found["result"] = {key: found["result"][key] for key in ("cluster", "acted_by", "ok")}
        return found

    def _smoke(self, args: Result, task_vars: Result) -> Result:
        """What the smoke workload of this host is; `wanted` is false, with the reason in `msg`, where none runs."""
        inputs, host = self._inputs(task_vars), task_vars["inventory_hostname"]
        result: Result = {"changed": False, "wanted": False, "msg": ""}
        if not wants_smoke(inputs):
            return result
        members = registered(task_vars, MEMBER)
        mine = [one for one in members.values() if _cluster_of(one) == _cluster_of(members[host])]
        able = [one["host"] for one in mine if one["expected"] != 0]
        if host not in able or (inputs["node_workload"] or inputs["workload"]) == PASSTHROUGH:
            return {**result, "msg": "%s: no smoke workload, it has no NPU for containers." % host}
        if inputs["smoke"]["nodes"] == "one" and host != able[0]:
            return {**result, "msg": "%s: no smoke workload, the one of %s stands for all." % (host, able[0])}
        _require_smoke_modules()
        access = self._access(inputs)
        node = args["node"] or self._node(inputs, mine, host, task_vars)
        job = smoke_job(inputs, node)
        will = "would run" if self._dry_run else "runs"
        msg = clean("node %s: the smoke workload %s: %s" % (node, will, brief(job)), True)
        more = {"log_lines": inputs["smoke"]["log_lines"], "access": access}
        return {**result, **more, "wanted": True, "node": node, "definition": job, "msg": msg}

    def _smoke_wait(self, args: Result, task_vars: Result) -> Result:
        """Wait until the workload of a node has ended or its time is over; its pods, and warnings where it has not."""
        inputs = self._inputs(task_vars)
        return told({"changed": False, **wait_for_smoke(self._open(inputs), inputs, args["node"], self._tell)})

    def _nodes(self, args: Result, task_vars: Result) -> Result:
        """What the cluster says of the nodes of its members. It is shown and decides nothing, so nothing fails here."""
        members = args["members"]
        try:
            inputs = self._inputs(task_vars)
            hosts = Hosts(members, self._others(task_vars, members, inputs), inputs["require_node_proof"])
            states = node_states(self._open(inputs), hosts, inputs)
        except NpuError as exc:
            states = {member["host"]: {**NO_NODE, "error": str(exc)} for member in members}
        return told({"changed": False, "states": states})

    def _access(self, inputs: Inputs) -> Result:
        """What the tasks of kubernetes.core are given. Content is not in it: they take it from the input."""
        given = given_to_tasks(self._kubeconfig(inputs), inputs["context"], self._decrypted)
        return {**given._asdict(), "paths": os.pathsep.join(given.paths), "groups": list(given.groups)}

    def _node(self, inputs: Inputs, members: t.Sequence[t.Any], host: str, task_vars: Result) -> str:
        """The node of a host in a run that has not looked for it yet."""
        hosts = Hosts(members, self._others(task_vars, members, inputs), inputs["require_node_proof"])
        record = match_members(self._open(inputs), hosts)[host]
        if record["error"]:
            raise NpuError(record["error"])
        return record["node"]

    def _smoke_verdict(self, args: Result, task_vars: Result) -> Result:
        good, text = smoke_verdict(self._inputs(task_vars), args["node"], args["outcome"])
        log = shown_log(args["outcome"])
        result: Result = {"changed": False, "ok": good, "node": args["node"], "log": log}
        return self._brief(told({**result, "msg": text, **({} if good else {"failed": True})}), "log")


def _cluster_of(member: Result) -> tuple[t.Any, t.Any]:
    """Clusters whose kubeconfigs are content have one name, and differ in their mark."""
    return member["cluster"], member.get("mark")


def _unused_login(inputs: Inputs, task_vars: Result) -> list[str]:
    """The warning that the environment names a cluster and nothing of the host does."""
    variable, given = ambient(), any(inputs[name] for name in ("enabled", "kubeconfig", "context", "render_dir"))
    said = str(task_vars.get(ENABLED, "{{"))
    if not variable or given or "{{" not in said:
        return []
    text = "%s is set, and the host belongs to no cluster. Next: set %s: true for the hosts of its cluster, else false."
    return [text % (variable, ENABLED)]


def _warned(result: Result, warnings: list[str]) -> Result:
    return dict(result, warnings=warnings) if warnings else result


def _require_smoke_modules() -> None:
    require_packages()
    if module_loader.find_plugin("kubernetes.core.k8s") is None:
        raise NpuError(
            f"{SMOKE}.enabled is true, and the collection kubernetes.core is not installed on the controller.",
            "Run: ansible-galaxy collection install kubernetes.core",
        )


def told(result: Result) -> Result:
    """A result that a terminal can show: labels, annotations and messages of live objects are text of others."""
    cleaned: Result = clean_all(result)
    return cleaned


ACTS: dict[str, t.Callable[[ActionModule, Result, Result], Result]] = {
    "check": ActionModule._check,
    "member": ActionModule._member,
    "clusters": ActionModule._clusters,
    "render": ActionModule._render,
    "run": ActionModule._run,
    "diff": ActionModule._diff,
    "absent": ActionModule._absent,
    "judge": ActionModule._judge,
    "smoke": ActionModule._smoke,
    "smoke_wait": ActionModule._smoke_wait,
    "nodes": ActionModule._nodes,
    "smoke_verdict": ActionModule._smoke_verdict,
}
ARGUMENTS = {
    "act": {"type": "str", "required": True, "choices": list(ACTS)},
    "members": {"type": "list", "elements": "dict", "default": []},
    "outcome": {"type": "dict", "default": {}},
    "node": {"type": "str", "default": ""},
    "round": {"type": "str", "default": ""},
    "features": {"type": "dict", "default": {}},
    "fail": {"type": "bool", "default": True},
}
