# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The wait until the pods and the NPUs of the nodes are there."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._checks_plugin import amount, settled

from ._cluster import Cluster, Data
from ._object_parts import SELECTOR
from ._verdict import judge_daemon_set, pod_node, pod_ready, problem_text

FATAL_PATIENCE = 20.0


class Waiter:
    """Looks again and again until the DaemonSets and the NPUs of the nodes are as wanted, or a deadline passes."""

    def __init__(
        self,
        cluster: Cluster,
        inputs: t.Mapping[str, t.Any],
        nodes: t.Mapping[str, t.Mapping[str, t.Any]],
        clock: t.Callable[[], float] = time.monotonic,
        sleep: t.Callable[[float], None] = time.sleep,
    ) -> None:
        self._cluster = cluster
        self._inputs = inputs
        self._hosts = {host: record for host, record in nodes.items() if record["node"] and not record["error"]}
        self._clock = clock
        self._sleep = sleep
        self._samples: dict[str, list[Data]] = {}

    def run(self) -> Data:
        """{ok, daemonsets: [verdict], allocatable: {node: {...}}, problems: [{node, text}], warnings: [text], seconds}."""
        start = self._clock()
        fatal_since: t.Optional[float] = None
        while True:
            look = self._look(self._clock() - start)
            look["seconds"] = round(self._clock() - start, 1)
            if look["ok"] or look["seconds"] >= self._inputs["wait_timeout"]:
                return look
            if not look["fatal"]:
                fatal_since = None
            elif fatal_since is None:
                fatal_since = self._clock()
            elif self._clock() - fatal_since >= FATAL_PATIENCE:
                return look
            self._sleep(self._inputs["wait_delay"])

    def _scope(self) -> t.Optional[set[str]]:
        if self._inputs["wait_scope"] == "cluster":
            return None
        return {record["node"] for record in self._hosts.values() if record["expected"] is None or record["expected"] > 0}

    def _look(self, seconds: float) -> Data:
        namespace = self._inputs["namespace"]
        wanted = ["rbln-" + name.replace("_", "-") for name in ("device_plugin", "validator") if self._inputs[name]["enabled"]]
        sets = {item["metadata"]["name"]: item for item in self._cluster.list("apps/v1", "DaemonSet", namespace, SELECTOR)}
        pods = self._cluster.list("v1", "Pod", namespace, SELECTOR)
        nodes = self._cluster.list("v1", "Node")
        verdicts = [judge_daemon_set(sets[name], pods, [], nodes, self._scope()) for name in wanted if name in sets]
        if not all(verdict["done"] for verdict in verdicts):
            events = self._cluster.list("v1", "Event", namespace, fields="type=Warning")
            verdicts = [judge_daemon_set(sets[name], pods, events, nodes, self._scope()) for name in wanted if name in sets]
        problems = [
            {"node": problem["node"], "text": problem_text(problem, verdict["name"]), "fatal": problem["fatal"]}
            for verdict in verdicts
            for problem in verdict["problems"]
        ]
        problems += [{"node": "", "text": "The DaemonSet %s is not there. Next: Run again." % name, "fatal": True} for name in wanted if name not in sets]
        allocatable = self._allocatable(nodes, pods, seconds) if self._inputs["device_plugin"]["enabled"] else {}
        explained = {problem["node"] for problem in problems}
        for name, state in allocatable.items():
            if not state["settled"] and name not in explained:
                problems.append({"node": name, "text": _allocatable_text(name, state, self._inputs["resource_name"]), "fatal": False})
        return {
            "ok": not problems,
            "fatal": bool(problems) and all(problem["fatal"] for problem in problems),
            "daemonsets": verdicts,
            "allocatable": allocatable,
            "problems": problems,
            "warnings": [problem_text(warning, verdict["name"]) for verdict in verdicts for warning in verdict["warnings"]],
        }

    def _allocatable(self, nodes: t.Sequence[Data], pods: t.Sequence[Data], seconds: float) -> dict[str, Data]:
        """Node to {expected, allocatable, settled}: two equal right answers in a row, with the plugin's pod ready."""
        resource = self._inputs["resource_name"]
        ready = {pod_node(pod) for pod in pods if pod_ready(pod) and pod["metadata"]["labels"].get("app.kubernetes.io/component") == "device-plugin"}
        by_name = {node["metadata"]["name"]: node for node in nodes}
        result: dict[str, Data] = {}
        for record in self._hosts.values():
            node = by_name.get(record["node"])
            if node is None or record["expected"] is None:
                continue
            status = node.get("status") or {}
            conditions = status.get("conditions") or []
            sample = {
                "t": seconds,
                "ready": any(item.get("type") == "Ready" and item.get("status") == "True" for item in conditions),
                "alloc": status.get("allocatable") or {},
                "plugin_ready": record["node"] in ready or record["expected"] == 0,
            }
            samples = self._samples.setdefault(record["node"], [])
            samples[:] = samples[-3:] + [sample]
            state = settled(samples, record["expected"], resource)
            result[record["node"]] = {
                "expected": record["expected"],
                "allocatable": amount(sample["alloc"], resource),
                "node_ready": sample["ready"],
                "plugin_ready": sample["plugin_ready"],
                "settled": state["settled"],
            }
        return result


def _allocatable_text(name: str, state: Data, resource: str) -> str:
    if not state["node_ready"]:
        return "node %s is not Ready. Next: Look at the kubelet of the node." % name
    if state["allocatable"] == state["expected"]:
        return (
            "node %s: %d %s are allocatable as expected, not yet twice in a row with a ready plugin. Next: Give it more time: rbln_operands_wait_timeout."
            % (name, state["expected"], resource)
        )
    return "node %s: %d %s allocatable, %d expected. Next: Read the log of the device plugin's pod on this node." % (
        name,
        state["allocatable"],
        resource,
        state["expected"],
    )
