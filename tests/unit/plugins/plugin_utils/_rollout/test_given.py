# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the inputs of a rollout may be, which nodes are in service, and what a query of Prometheus says."""

from __future__ import annotations

import http.server
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.roles import role_defaults
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout import given
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.metrics import holds, judge
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.places import (
    disturbs,
    is_in_service,
    keeps_pods,
    offers,
    policy_of,
    worst_of,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.states import GATES, RUN
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs

Data = dict[str, Any]


def read(upgrade: bool = False, **own: Any) -> Data:
    variables = {
        **role_defaults(given.ROLE),
        given.UPGRADE: upgrade,
        **{"rbln_rollout_" + key: value for key, value in own.items()},
    }
    return given.read_inputs(Templar(loader=DataLoader(), variables=variables), variables)


def test_the_playbook_upgrade_has_other_defaults() -> None:
    names = ("waves", "max_unavailable", "failure_budget", "pods")
    # ansible-core 2.16 makes text of a number in a template.
    assert list(map(str, (read()[name] for name in names))) == ["[]", "100%", "0", "refuse"]
    upgrade = read(True)
    assert [*map(str, upgrade["waves"]), *(str(upgrade[name]) for name in names[1:])] == [
        *("1", "10%", "50%", "100%"),
        *("25%", "1", "npu"),
    ]
    # The empty answer of a survey is no answer.
    assert [read(True, waves="", pods=None)[name] for name in ("waves", "pods")] == [upgrade["waves"], "npu"]
    empty = read(True, max_unavailable="", failure_budget="")
    assert [str(empty[name]) for name in ("max_unavailable", "failure_budget")] == ["25%", "1"]
    assert read(True, waves="1,50%")["waves"] == ["1", "50%"]


@pytest.mark.parametrize(
    ("own", "told"),
    [
        ({"waves": [5, 2]}, "rbln_rollout_waves"),
        ({"waves": ["120%"]}, "rbln_rollout_waves"),
        ({"max_unavailable": 0}, "rbln_rollout_max_unavailable"),
        ({"pods": "some"}, "rbln_rollout_pods"),
        ({"pools": {"nowhere": {"soak": 1}}}, "rbln_rollout_pools.nowhere is not a pool"),
        ({"pools": {"a": {"sook": 1}}}, "unknown key sook"),
        ({"window": [{"from": "05:00", "to": "05:00"}]}, "rbln_rollout_window"),
        ({"order": "rack"}, "rbln_rollout_rack_label"),
        ({"metrics": {"url": "https://p"}}, "rbln_rollout_metrics needs url and query"),
        ({"metrics": {"url": "https://p", "query": "up", "timeout": 0}}, "metrics.timeout is 0"),
        (
            {"metrics": {"url": "https://p", "query": "up", "ca_cert": "/nowhere"}},
            "ca_cert names /nowhere, which cannot",
        ),
        ({"evict_timeout": "0"}, "rbln_rollout_evict_timeout is 0"),
        ({"return_timeout": -1}, "rbln_rollout_return_timeout is -1"),
        ({"wait_timeout": -1}, "rbln_rollout_wait_timeout is -1"),
        ({"grace": -2}, "rbln_rollout_grace is -2"),
        (
            {"wait_selector": "job-kind: training"},
            "wait_selector is 'job-kind: training', which is not a label selector",
        ),
        ({"wait_selector": "a==b==c"}, "is not a label selector"),
        ({"wait_selector": "a=b;c"}, "is not a label selector"),
        ({"wait_selector": "a in train"}, "is not a label selector"),
        ({"pause_components": "smd,deviceplugin"}, "unknown component deviceplugin. Next: Did you mean device-plugin"),
        ({"pools": {"a": {"window": 5}}}, "rbln_rollout_pools.a.window is 5, which is not a list of windows"),
        (
            {"soak": -1},
            "rbln_rollout_soak is -1, which is not a duration. Next: Write seconds, such as 1800, or a unit",
        ),
        ({"evict_timeout": "5 weeks"}, "rbln_rollout_evict_timeout is '5 weeks', which is not a duration"),
        ({"grace": "1y"}, "rbln_rollout_grace is '1y', which is not a duration"),
        ({"before": "hook.yml"}, "not an absolute path"),
        ({"after": "/nowhere/hook.yml"}, "cannot be read: No such file"),
    ],
)
def test_what_cannot_work_is_named(own: Data, told: str) -> None:
    with pytest.raises(NpuError, match=told) as found:
        given.judge(read(**own), given.Pools(frozenset("a"), True))
    assert str(found.value).count(" Next: ") == 1


@pytest.mark.parametrize(
    "selector",
    [
        "job-kind=training", "a==b", "a != b", "a", "!a", "! a", "a in (b, c),!d", "kubeflow.org/job-name",
        "a notin (b)", "a=,b", "gen > 3", " app.kubernetes.io/name = x , y ", "",
    ],
)  # fmt: skip
def test_a_selector_of_kubernetes_is_taken(selector: str) -> None:
    given.judge(read(wait_selector=selector), None)


def test_the_least_that_can_work_is_taken() -> None:
    given.judge(read(wait_timeout="0", evict_timeout="1", return_timeout=1, grace=-1, pause_components=[]), None)
    given.judge(read(metrics={"url": "https://p", "query": "up"}), None)


def test_a_pool_is_judged_by_the_whole_inventory_with_limit_too() -> None:
    key, other, wrong = "ubuntu_24_04_k6_8_0_117_generic", "rhel_9_6_k5_14_0_570_12_1_el9_6_x86_64", "ubuntu_24_04"
    groups = {"npu_nodes": ["h1", "h2"], "npu_pool_" + key: ["h1"]}
    # h2 is outside of --limit. Of its pool nothing is known: it may be one that this inventory has.
    part = given.pools_of(groups, {}, groups["npu_nodes"])
    assert part == given.Pools(frozenset({key}), False)
    given.judge(read(pools={key: {"soak": 1}, other: {"soak": 1}}), part)
    for name in (wrong, "nowhere", "npu_pool_" + key, "rhel_9_6_kernel"):
        with pytest.raises(NpuError, match="rbln_rollout_pools.%s is not a pool of these hosts" % name):
            given.judge(read(pools={name: {"soak": 1}}), part)
    # What an earlier run has kept of it, or a group of the inventory, tells.
    for whole in (
        given.pools_of(groups, {"h2": key}, groups["npu_nodes"]),
        given.pools_of({**groups, "npu_pool_" + key: ["h1", "h2"]}, {}, groups["npu_nodes"]),
    ):
        with pytest.raises(NpuError, match="rbln_rollout_pools.%s is not a pool of these hosts" % other):
            given.judge(read(pools={other: {"soak": 1}}), whole)
    given.judge(read(pools={other: {"soak": 1}}), given.pools_of(groups, {"h2": other}, groups["npu_nodes"]))


def test_every_duration_has_a_unit_or_is_seconds() -> None:
    own = {"wait_timeout": "1d", "evict_timeout": "90s", "return_timeout": " 10 m", "grace": "2m"}
    found = read(**own, metrics={"url": "https://p", "query": "up", "timeout": "1m"})
    assert [found[name] for name in own] == [86400.0, 90.0, 600.0, 120] and found["metrics"]["timeout"] == 60.0
    assert [read(grace=value)["grace"] for value in (-1, "-1", 30, "30")] == [-1, -1, 30, 30]
    assert [read(grace=value)["grace"] for value in (0, "0.5", 1.5, "0.5m")] == [0, 1, 2, 30]
    pace = given.settings_of(read(soak="30m", slot_timeout="2h"), ["a"])["a"]
    assert (pace.soak, pace.slot_timeout) == (1800.0, 7200.0)
    # The defaults, and the empty answers of a survey.
    for values in (read(), read(soak="", slot_timeout="", wait_timeout="", evict_timeout=None, grace="")):
        pace = given.settings_of(values, ["a"])["a"]
        assert (pace.soak, pace.slot_timeout) == (0.0, 3600.0)
        assert (values["wait_timeout"], values["evict_timeout"], values["grace"]) == (3600.0, 300.0, -1)
    assert given.settings_of(read(slot_timeout=0), ["a"])["a"].slot_timeout == 0


def test_a_proof_by_a_workload_needs_one() -> None:
    operands = {"enabled": True, "delivery": "apply", "state": "present", "smoke": {"enabled": False}}
    with pytest.raises(NpuError, match="rbln_rollout_smoke is true, but rbln_operands_smoke is not enabled"):
        given.judge_place(read(smoke="true"), operands)
    given.judge_place(read(smoke=True), {**operands, "smoke": {"enabled": True}})
    given.judge_place(read(smoke=True), None)
    with pytest.raises(NpuError, match="rbln_rollout_evict_timeout is 0"):
        given.judge_place(read(evict_timeout=0), None)
    given.judge_place(read(), operands)


def test_a_hook_is_a_list_of_tasks(tmp_path: Path) -> None:
    hook = tmp_path / "hook.yml"
    for text, good in (("- debug:\n", True), ("a: b\n", False), ("- {", False)):
        hook.write_text(text)
        if good:
            given.judge(read(before=str(hook)), None)
        else:
            with pytest.raises(NpuError, match="hook.yml"):
                given.judge(read(before=str(hook)), None)


def test_the_pods_of_a_node_go_by_the_inputs() -> None:
    policy = policy_of(read(True, evict_timeout=5, pause_components=["smd"], grace=30), inputs())
    assert (policy.pods, policy.evict_timeout, policy.components, policy.grace) == ("npu", 5.0, ("smd",), 30)
    assert (policy.namespace, policy.dra_driver) == (inputs()["namespace"], "npu.rebellions.ai")
    named = inputs(dra_driver={"driver_name": "npus.example.com"})
    assert policy_of(read(True), named).dra_driver == "npus.example.com"


@pytest.mark.parametrize(
    ("steps", "kubelets", "expected"),
    [
        ([("containerd", "restart")], "containerd", True),
        ([("containerd of k3s", "restart"), ("CDI specification", "none")], "containerd", True),
        ([("docker", "restart")], "containerd", True),
        ([("docker", "restart")], "docker", False),
        ([("docker", "restart")], None, False),
        ([("containerd", "restart"), ("driver", "evict")], "containerd", False),
        ([("host", "reboot")], "containerd", False),
        ([], "containerd", True),
    ],
)
def test_pods_run_on_while_their_runtime_restarts(
    steps: list[tuple[str, str]], kubelets: str | None, expected: bool
) -> None:
    facts = {"rbln_runtimes": {"kubernetes_runtime": kubelets}}
    plan = {
        "steps": [{"component": name, "disruption": kind} for name, kind in steps],
        "observation": {"ansible_facts": facts},
    }
    assert keeps_pods(plan) is expected
    policy = policy_of(read(True, pause_components=["smd"]), inputs(), expected)
    assert (policy.pods, policy.components) == (("keep", ()) if expected else ("npu", ("smd",)))


def node(labels: Data | None = None, npus: int = 0, taints: list[Data] | None = None) -> Data:
    amounts = {"rebellions.ai/npu": str(npus)} if npus else {}
    return {"metadata": {"name": "n", "labels": labels or {}, "annotations": {RUN: "run-1"}},
            "spec": {"taints": taints or []}, "status": {"allocatable": amounts}}  # fmt: skip


@pytest.mark.parametrize(
    ("live", "expected"),
    [
        (node(), False),
        (node(npus=1), True),
        (node({"rebellions.ai/npu.deploy.device-plugin": "true"}), True),
        (node({"rebellions.ai/npu.deploy.device-plugin": "false"}), False),
        (node({"rebellions.ai/npu.deploy.skip": "true"}), False),
        (node({"rebellions.ai/npu-driver-upgrade-state": "host-change-required"}), True),
        (node({"rebellions.ai/npu-driver-upgrade-state": "upgrade-done"}), False),
        (node(taints=[{"key": "rebellions.ai/npu-driver-upgrade-failed"}]), True),
    ],
)
def test_a_node_that_was_never_in_service_is_known(live: Data, expected: bool) -> None:
    assert is_in_service(live, "rebellions.ai/npu") is expected


def test_a_node_whose_gates_a_rollout_has_closed_did_offer_npus() -> None:
    closed = node({"rebellions.ai/npu.deploy.device-plugin": "false"})
    assert not offers(closed, "rebellions.ai/npu")
    closed["metadata"]["annotations"] = {GATES: '{"rebellions.ai/npu.deploy.device-plugin": "true"}'}
    assert offers(closed, "rebellions.ai/npu")


def test_U06_noop_upgrade_steps_that_disturb_nothing_take_no_node_out() -> None:
    plan: Data = {"steps": [{"disruption": "none"}, {"disruption": "none"}]}
    assert not disturbs(plan) and not disturbs({"steps": []})
    plan["steps"].append({"disruption": "restart"})
    assert disturbs(plan) and worst_of(plan) == "restart"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"resultType": "vector", "result": [{"value": [1, "1"]}, {"value": [1, "0.5"]}]}, True),
        ({"resultType": "vector", "result": [{"value": [1, "1"]}, {"value": [1, "0"]}]}, False),
        ({"resultType": "vector", "result": []}, False),
        ({"resultType": "vector", "result": [{"value": [1, "NaN"]}]}, False),
        ({"resultType": "scalar", "result": [1, "1"]}, True),
        ({"resultType": "matrix", "result": [{"values": [[1, "1"]]}]}, None),
        ({}, None),
    ],
)
def test_a_query_holds_when_it_has_samples_and_none_is_zero(data: Data, expected: bool | None) -> None:
    assert judge({"data": data}) is expected


def test_prometheus_is_asked_with_its_token() -> None:
    asked: list[tuple[str, str | None]] = []

    class Prometheus(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers.get("Authorization")))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"data": {"resultType": "scalar", "result": [1, "1"]}}).encode())

        def log_message(self, *words: Any) -> None:
            return

    with http.server.HTTPServer(("127.0.0.1", 0), Prometheus) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        spec = {"url": "http://127.0.0.1:%d/" % server.server_port, "query": "up > 0", "token": "t", "timeout": 5.0}
        assert holds(spec) is True
    assert asked == [("/api/v1/query?query=up+%3E+0", "Bearer t")]
    # Whoever does not answer has not said no.
    assert holds({**spec, "timeout": 1.0}) is None


def test_a_token_is_not_for_the_host_of_a_redirect_and_nonsense_is_no_answer() -> None:
    asked: list[str | None] = []

    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers.get("Authorization"))
            if len(asked) == 2:
                self.wfile.write(b"nonsense\r\n\r\n")
                return
            self.send_response(302)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *words: Any) -> None:
            return

    with http.server.HTTPServer(("127.0.0.1", 0), Other) as server:

        def serve() -> None:
            for _each in range(2):
                server.handle_request()

        threading.Thread(target=serve, daemon=True).start()
        spec = {"url": "http://127.0.0.1:%d" % server.server_port, "query": "up", "token": "t", "timeout": 20.0}
        assert holds(spec) is None
    assert asked == ["Bearer t", None]
