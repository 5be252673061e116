# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of rbln_operands: each act is one small function. Nothing runs on the host."""

from __future__ import annotations

import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.action import Answering
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.answer import checked_facts
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.api import Cluster, require_packages
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster.manifests import write_manifests
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster.work import ClusterWork
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.cluster import (
    ROLE,
    choose_actors,
    cluster_key,
    digest,
    read_inputs,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.roles import raw_inputs, role_inputs
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.nodes import member_record
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.outcome import difference_lines, judge_host
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.inputs import Inputs

Result = dict[str, t.Any]
role_inputs((ROLE,))


class ActionModule(Answering):
    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: Result | None = None) -> Result:
        task_vars = task_vars or {}
        result: Result = super().run(tmp, task_vars)
        _validation, args = self.validate_argument_spec(argument_spec=ARGUMENTS)
        self._dry_run = bool(self._task.check_mode)
        try:
            result.update(ACTS[args["act"]](self, args, task_vars))
        except NpuError as exc:
            result.update(failed=True, msg=str(exc))
        return result

    def _inputs(self, task_vars: Result) -> Inputs:
        return t.cast(Inputs, read_inputs(raw_inputs(self._templar, task_vars, role_inputs((ROLE,))), task_vars))

    def _work(self, args: Result, task_vars: Result) -> ClusterWork:
        inputs = self._inputs(task_vars)
        cluster = Cluster(inputs["kubeconfig"], inputs["context"])
        return ClusterWork(cluster, inputs, args["members"], self._dry_run, bool(self._task.diff))

    def _check(self, args: Result, task_vars: Result) -> Result:
        self._inputs(task_vars)
        return {"changed": False}

    def _member(self, args: Result, task_vars: Result) -> Result:
        inputs = self._inputs(task_vars)
        facts = checked_facts(task_vars["inventory_hostname"], task_vars.get("ansible_facts"))
        source = str(self._templar.template(task_vars.get("rbln_driver_source")) or "")
        proof = task_vars.get("rbln_validator_proof")
        record = member_record(task_vars["inventory_hostname"], inputs, facts.get("rbln"), facts, proof, source)
        member = {**record, "cluster": cluster_key(inputs), "digest": digest(inputs)}
        result: Result = {"changed": False, "member": member, "work": _act_of(inputs)}
        return dict(result, warnings=inputs["notes"]) if inputs["notes"] and member["cluster"] else result

    def _clusters(self, args: Result, task_vars: Result) -> Result:
        members = {record["member"]["host"]: record["member"] for record in args["members"] if record.get("member")}
        clusters = choose_actors(members)
        if any(not key.startswith("manifests in ") for key in clusters):
            require_packages()
        errors = {
            host: cluster["error"] for cluster in clusters.values() for host in cluster["members"] if cluster["error"]
        }
        agreed = [cluster for cluster in clusters.values() if not cluster["error"]]
        actors = {host: cluster["actor"] for cluster in agreed for host in cluster["members"]}
        mine = {cluster["actor"]: [members[host] for host in cluster["members"]] for cluster in agreed}
        return {"changed": False, "actors": actors, "members": mine, "errors": errors, "clusters": sorted(clusters)}

    def _render(self, args: Result, task_vars: Result) -> Result:
        return write_manifests(self._inputs(task_vars), self._dry_run, bool(self._task.diff))

    def _run(self, args: Result, task_vars: Result) -> Result:
        return self._work(args, task_vars).present()

    def _diff(self, args: Result, task_vars: Result) -> Result:
        result = self._work(args, task_vars).diff()
        self._display.display("\n".join(difference_lines(result["differences"])))
        return result

    def _absent(self, args: Result, task_vars: Result) -> Result:
        return self._work(args, task_vars).absent()

    def _judge(self, args: Result, task_vars: Result) -> Result:
        return judge_host(task_vars["inventory_hostname"], args["outcome"])


def _act_of(inputs: Inputs) -> str:
    """The act that does the work for a cluster with these inputs."""
    if inputs["delivery"] != "apply":
        return inputs["delivery"]
    return "run" if inputs["state"] == "present" else "absent"


ACTS: dict[str, t.Callable[[ActionModule, Result, Result], Result]] = {
    "check": ActionModule._check,
    "member": ActionModule._member,
    "clusters": ActionModule._clusters,
    "render": ActionModule._render,
    "run": ActionModule._run,
    "diff": ActionModule._diff,
    "absent": ActionModule._absent,
    "judge": ActionModule._judge,
}
ARGUMENTS = {
    "act": {"type": "str", "required": True, "choices": list(ACTS)},
    "members": {"type": "list", "elements": "dict", "default": []},
    "outcome": {"type": "dict", "default": {}},
}
