# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of rbln_operands: one act on a cluster, or one thought about it. Nothing runs on the host."""

from __future__ import annotations

import pathlib
import typing as t

from ansible.plugins.action import ActionBase
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._host.files import replace_file
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.api import Cluster, require_packages
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.capabilities import declared
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.render import build, left_out, manifests, shown
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster.work import ClusterWork
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.cluster import (
    ROLE,
    check_served,
    choose_actors,
    cluster_key,
    digest,
    read_inputs,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.roles import raw_inputs, role_inputs
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.nodes import member_record
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.outcome import difference_lines, judge_host
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.model import Context

Result = dict[str, t.Any]
ARGUMENTS = {
    "act": {
        "type": "str",
        "required": True,
        "choices": ["check", "member", "clusters", "render", "run", "diff", "absent", "judge"],
    },
    "members": {"type": "list", "elements": "dict", "default": []},
    "outcome": {"type": "dict", "default": {}},
}
# Read before the workers of the tasks are forked, which inherit it.
role_inputs((ROLE,))


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> Result:
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
        return read_inputs(raw_inputs(self._templar, task_vars, role_inputs((ROLE,))), task_vars)

    def _check(self, args: Result, task_vars: dict[str, t.Any]) -> Result:
        self._inputs(task_vars)
        return {"changed": False}

    def _member(self, args: Result, task_vars: dict[str, t.Any]) -> Result:
        inputs = self._inputs(task_vars)
        facts = task_vars.get("ansible_facts") or {}
        source = str(self._templar.template(task_vars.get("rbln_driver_source")) or "")
        member = member_record(
            task_vars["inventory_hostname"],
            inputs,
            facts.get("rbln"),
            facts,
            task_vars.get("rbln_validator_proof"),
            source,
        )
        member.update(cluster=cluster_key(inputs), digest=digest(inputs))
        work = (
            inputs["delivery"] if inputs["delivery"] != "apply" else "run" if inputs["state"] == "present" else "absent"
        )
        result: Result = {"changed": False, "member": member, "work": work}
        return dict(result, warnings=inputs["notes"]) if inputs["notes"] and member["cluster"] else result

    def _clusters(self, args: Result, task_vars: dict[str, t.Any]) -> Result:
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

    def _render(self, args: Result, task_vars: dict[str, t.Any]) -> Result:
        inputs = self._inputs(task_vars)
        capabilities = declared(inputs)
        check_served(inputs, capabilities)
        gone = inputs["state"] == "absent"
        context = Context(inputs, capabilities)
        text = "" if gone else manifests([item for item in build(context) if item["kind"] != "Secret"])
        path = pathlib.Path(inputs["render_dir"]).expanduser() / (inputs["namespace"] + ".yaml")
        try:
            before = path.read_text(encoding="utf-8") if path.exists() else ""
            if gone and path.exists() and not self._dry_run:
                path.unlink()
            elif before != text and not self._dry_run:
                path.parent.mkdir(parents=True, exist_ok=True)
                replace_file(str(path), text.encode("utf-8"), 0o644)
        except OSError as exc:
            raise NpuError(
                "%s cannot be written: %s." % (path, exc.strerror), "Correct rbln_operands_render_dir."
            ) from exc
        result: Result = {
            "changed": before != text,
            "path": str(path),
            "diff": [],
            "warnings": [] if gone else left_out(context),
        }
        if before != text and self._task.diff:
            result["diff"] = [
                {"before": shown(before), "after": shown(text), "before_header": str(path), "after_header": str(path)}
            ]
        if inputs["pull_secret_content"] and not gone:
            result["warnings"] += [
                "The pull secret %s is not in %s: make it in the cluster." % (inputs["pull_secret_name"], path)
            ]
        return result

    def _run(self, args: Result, task_vars: dict[str, t.Any]) -> Result:
        return self._work(args, task_vars).present()

    def _diff(self, args: Result, task_vars: dict[str, t.Any]) -> Result:
        result = self._work(args, task_vars).diff()
        if "differences" in result:
            self._display.display("\n".join(difference_lines(result["differences"])))
        return result

    def _absent(self, args: Result, task_vars: dict[str, t.Any]) -> Result:
        return self._work(args, task_vars).absent()

    def _work(self, args: Result, task_vars: dict[str, t.Any]) -> ClusterWork:
        inputs = self._inputs(task_vars)
        return ClusterWork(
            Cluster(inputs["kubeconfig"], inputs["context"]),
            inputs,
            args["members"],
            self._dry_run,
            bool(self._task.diff),
        )

    def _judge(self, args: Result, task_vars: dict[str, t.Any]) -> Result:
        return judge_host(task_vars["inventory_hostname"], args["outcome"])
