# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of rbln_operands: one act on a cluster, or one thought about it. Nothing runs on the host."""

from __future__ import annotations

import pathlib
import typing as t

from ansible.plugins.action import ActionBase
from ansible_collections.rebellions.npu.plugins.module_utils._files import replace_file
from ansible_collections.rebellions.npu.plugins.module_utils._model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._apply import apply_objects, summarise
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster import Cluster, require_packages
from ansible_collections.rebellions.npu.plugins.plugin_utils._model_cluster import Context
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes import label_nodes, labelled_nodes, member_record, unlabel_nodes
from ansible_collections.rebellions.npu.plugins.plugin_utils._operands import ROLE, choose_actors, cluster_key, digest, read_inputs
from ansible_collections.rebellions.npu.plugins.plugin_utils._outcome import judge_host
from ansible_collections.rebellions.npu.plugins.plugin_utils._prune import remove_objects
from ansible_collections.rebellions.npu.plugins.plugin_utils._render import build, manifests
from ansible_collections.rebellions.npu.plugins.plugin_utils._role_inputs import raw_inputs, role_inputs
from ansible_collections.rebellions.npu.plugins.plugin_utils._waiter import Waiter

Result = dict[str, t.Any]
ARGUMENTS = {
    "act": {"type": "str", "required": True, "choices": ["member", "clusters", "render", "run", "label", "apply", "wait", "absent", "judge"]},
    "members": {"type": "list", "elements": "dict", "default": []},
    "nodes": {"type": "dict", "default": {}},
    "outcome": {"type": "dict", "default": {}},
}


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: t.Optional[str] = None, task_vars: t.Optional[dict[str, t.Any]] = None) -> Result:
        task_vars = task_vars or {}
        result = super().run(tmp, task_vars)
        _validation, args = self.validate_argument_spec(argument_spec=ARGUMENTS)
        self._dry_run = bool(self._task.check_mode)
        try:
            act = t.cast(t.Callable[[Result, dict[str, t.Any]], Result], getattr(self, "_" + args["act"]))
            result.update(act(args, task_vars))
        except NpuError as exc:
            result.update(failed=True, msg=str(exc))
        return result

    def _inputs(self, task_vars: dict[str, t.Any]) -> Result:
        return read_inputs(raw_inputs(self._templar, task_vars, role_inputs((ROLE,))))

    def _member(self, args: Result, task_vars: dict[str, t.Any]) -> Result:
        inputs = self._inputs(task_vars)
        facts = (task_vars.get("ansible_facts") or {}).get("rbln")
        member = member_record(task_vars["inventory_hostname"], inputs, facts)
        member.update(cluster=cluster_key(inputs), digest=digest(inputs))
        file = "render.yml" if inputs["delivery"] == "render" else inputs["state"] + ".yml"
        return {"changed": False, "member": member, "tasks": file, "wait": inputs["wait"] and not self._dry_run}

    def _clusters(self, args: Result, task_vars: dict[str, t.Any]) -> Result:
        members = {record["member"]["host"]: record["member"] for record in args["members"] if record.get("member")}
        clusters = choose_actors(members)
        if any(not key.startswith("manifests in ") for key in clusters):
            require_packages()
        actors = {host: cluster["actor"] for cluster in clusters.values() for host in cluster["members"]}
        mine = {cluster["actor"]: [members[host] for host in cluster["members"]] for cluster in clusters.values()}
        return {"changed": False, "actors": actors, "members": mine, "clusters": sorted(clusters)}

    def _render(self, args: Result, task_vars: dict[str, t.Any]) -> Result:
        inputs = self._inputs(task_vars)
        text = manifests([item for item in build(Context(inputs)) if item["kind"] != "Secret"])
        path = pathlib.Path(inputs["render_dir"]).expanduser() / (inputs["namespace"] + ".yaml")
        try:
            before = path.read_text(encoding="utf-8") if path.exists() else ""
            if before != text and not self._dry_run:
                path.parent.mkdir(parents=True, exist_ok=True)
                replace_file(str(path), text.encode("utf-8"), 0o644)
        except OSError as exc:
            raise NpuError("%s cannot be written: %s." % (path, exc.strerror), "Correct rbln_operands_render_dir.") from exc
        diff = {"before": before, "after": text, "before_header": str(path), "after_header": str(path)}
        result: Result = {"changed": before != text, "path": str(path), "diff": [diff] if before != text else []}
        if inputs["pull_secret_content"]:
            result["warnings"] = ["The pull secret %s is not in %s: make it in the cluster." % (inputs["pull_secret_name"], path)]
        return result

    def _run(self, args: Result, task_vars: dict[str, t.Any]) -> Result:
        """Label, apply and wait in one process. A later part that fails leaves what the earlier ones did in the result."""
        inputs = self._inputs(task_vars)
        cluster = self._cluster(inputs)
        result = _labelled(label_nodes(cluster, args["members"], True, self._dry_run))
        try:
            applied = self._applied(cluster, inputs)
            result.update(applied, changed=result["changed"] or applied["changed"], diff=result["diff"] + applied["diff"])
            if inputs["wait"] and not self._dry_run:
                waited = _waited(cluster, inputs, result["nodes"])
                result.update(waited, changed=result["changed"], warnings=result["warnings"] + waited["warnings"])
        except NpuError as exc:
            result.update(failed=True, msg=str(exc))
        return dict(result, requests=cluster.requests)

    def _label(self, args: Result, task_vars: dict[str, t.Any]) -> Result:
        return _labelled(label_nodes(self._cluster(self._inputs(task_vars)), args["members"], True, self._dry_run))

    def _apply(self, args: Result, task_vars: dict[str, t.Any]) -> Result:
        inputs = self._inputs(task_vars)
        cluster = self._cluster(inputs)
        return dict(self._applied(cluster, inputs), requests=cluster.requests)

    def _applied(self, cluster: Cluster, inputs: Result) -> Result:
        return summarise(apply_objects(cluster, build(Context(inputs)), inputs["namespace"], inputs["force_conflicts"], self._dry_run))

    def _wait(self, args: Result, task_vars: dict[str, t.Any]) -> Result:
        inputs = self._inputs(task_vars)
        return _waited(self._cluster(inputs), inputs, args["nodes"])

    def _absent(self, args: Result, task_vars: dict[str, t.Any]) -> Result:
        inputs = self._inputs(task_vars)
        cluster = self._cluster(inputs)
        result = _labelled(label_nodes(cluster, args["members"], False, self._dry_run))
        mine = {record["node"] for record in result["nodes"].values()}
        others = [name for name in labelled_nodes(cluster) if name not in mine]
        if inputs["absent_scope"] == "hosts" or (inputs["absent_scope"] == "auto" and others):
            if inputs["absent_scope"] == "auto":
                result["warnings"] = [
                    "The objects stay: %s still carry our labels. Set rbln_operands_absent_scope to cluster to remove everything." % ", ".join(others[:10])
                ]
            return result
        unlabelled = unlabel_nodes(cluster, self._dry_run)
        removed = summarise(remove_objects(cluster, inputs["namespace"], inputs["wait_timeout"], self._dry_run))
        if not self._dry_run and labelled_nodes(cluster):
            raise NpuError("The nodes %s still carry our labels." % ", ".join(labelled_nodes(cluster)), "Run again.")
        removed["changed"] = removed["changed"] or result["changed"] or bool(set(unlabelled) - mine)
        removed["diff"] = result["diff"] + removed["diff"]
        return dict(result, **removed, requests=cluster.requests)

    def _judge(self, args: Result, task_vars: dict[str, t.Any]) -> Result:
        return judge_host(task_vars["inventory_hostname"], args["outcome"])

    def _cluster(self, inputs: Result) -> Cluster:
        return Cluster(inputs["kubeconfig"], inputs["context"])


def _labelled(nodes: dict[str, Result]) -> Result:
    diff = [
        {"before": record["before"], "after": record["after"], "before_header": "Node " + record["node"], "after_header": "Node " + record["node"]}
        for record in nodes.values()
        if record["changed"]
    ]
    return {"changed": bool(diff), "nodes": nodes, "diff": diff, "warnings": [note for record in nodes.values() for note in record["notes"]]}


def _waited(cluster: Cluster, inputs: Result, nodes: dict[str, Result]) -> Result:
    waited = Waiter(cluster, inputs, nodes).run()
    found = "all is there" if waited["ok"] else "; ".join(problem["text"] for problem in waited["problems"])
    return {"changed": False, "waited": waited, "warnings": waited["warnings"], "msg": "After %s s: %s" % (waited["seconds"], found)}
