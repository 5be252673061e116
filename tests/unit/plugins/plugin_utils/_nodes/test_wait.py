# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each component ends by itself: ready, failed at its deadline, or not waited for; and its proof beyond its pods."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.api import ApiError
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.capabilities import declared
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.render import build
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster.status import status_object, write_status
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.readiness import (
    endpoints_text,
    left_out,
    slices_text,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.wait import Waiter
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.model import Context, Pool
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.placement import repelling_taints, selects
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.cluster_store import Store
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_cases import case
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs

Data = dict[str, Any]
PRESENT = {"rebellions.ai/npu.present": "true"}
NFD = (
    "feature.node.kubernetes.io/system-os_release.ID",
    "feature.node.kubernetes.io/system-os_release.VERSION_ID",
    "feature.node.kubernetes.io/kernel-version.full",
)
POOLS = (Pool("ubuntu", "22.04", "5"), Pool("ubuntu", "24.04", "6"))
IMAGE = {"enabled": True, "image": {"tag": "1"}}
DRIVER = {"driver": {**IMAGE, "manager": {"image": {"tag": "1"}}}}
HASH = {"controller-revision-hash": "aa"}
QUIET = {"device_plugin": {"enabled": False}}


def node(name: str, pool: Pool | None = None, allocatable: Data | None = None, **labels: str) -> Data:
    known = dict(zip(NFD, (pool.os_id, pool.os_version, pool.kernel))) if pool else {}
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "allocatable": {"rebellions.ai/npu": "1", **(allocatable or {})},
    }
    return {"metadata": {"name": name, "labels": {**PRESENT, **known, **labels}}, "spec": {}, "status": status}


class Cluster:
    """Pods of every DaemonSet on the nodes it selects; pods of `broken` components are never ready, `late` later."""

    def __init__(
        self,
        objects: list[Data],
        nodes: list[Data],
        broken: tuple[str, ...] = (),
        late: dict[str, float] | None = None,
        **more: Any,
    ) -> None:
        self.objects, self.nodes, self.broken, self.late, self.more = objects, nodes, broken, late or {}, more
        self.now = 0.0
        self.requests: list[str] = []

    def _places(self, item: Data) -> list[Data]:
        spec = item["spec"]["template"]["spec"]
        return [where for where in self.nodes if selects(spec, where) and not repelling_taints(spec, where)]

    def _ready(self, item: Data) -> bool:
        component = item["metadata"]["labels"]["app.kubernetes.io/component"]
        return component not in self.broken and self.now >= self.late.get(component, 0.0)

    def list(
        self, api_version: str, kind: str, namespace: str = "", selector: str = "", fields: str = ""
    ) -> list[Data]:
        self.requests.append(kind)
        sets = [item for item in self.objects if item["kind"] == "DaemonSet"]
        if kind == "Node":
            return self.nodes
        if kind == "DaemonSet":
            return [self._set(item) for item in sets]
        if kind == "Pod":
            return [self._pod(item, where) for item in sets for where in self._places(item)]
        found: list[Data] | ApiError = self.more.get(kind, [])
        if isinstance(found, ApiError):
            raise found
        return found

    def get(self, api_version: str, kind: str, name: str, namespace: str = "") -> Data | None:
        self.requests.append("one " + kind)
        return next((item for item in self.nodes if item["metadata"]["name"] == name), None)

    def _set(self, item: Data) -> Data:
        count = len(self._places(item))
        ready = count if self._ready(item) else 0
        updated = 0 if self.more.get("old") == item["metadata"]["name"] else count
        status = {
            "observedGeneration": 1,
            "desiredNumberScheduled": count,
            "numberReady": ready,
            "numberAvailable": ready,
            "updatedNumberScheduled": updated,
        }
        annotations = {"deprecated.daemonset.template.generation": "2"}
        return {
            **item,
            "metadata": {
                **item["metadata"],
                "uid": item["metadata"]["name"],
                "generation": 1,
                "annotations": annotations,
            },
            "status": status,
        }

    def _pod(self, item: Data, where: Data) -> Data:
        name, generation = item["metadata"]["name"], "1" if self.more.get("old") == item["metadata"]["name"] else "2"
        ready = "True" if self._ready(item) else "False"
        meta = {
            "name": name + "-x",
            "labels": {**item["metadata"]["labels"], "pod-template-generation": generation, **HASH},
            "ownerReferences": [{"uid": name}],
        }
        return {
            "metadata": meta,
            "spec": {"nodeName": where["metadata"]["name"]},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }


def wait(
    nodes: list[Data],
    failures: dict[str, str] | None = None,
    expected: int | None = 1,
    missing: str = "",
    cluster: Data | None = None,
    **given: Any,
) -> tuple[Data, Cluster]:
    typed = inputs(**{"wait_timeout": 60, **given})
    objects = build(Context(typed, declared(typed), POOLS))
    api = Cluster([item for item in objects if item["metadata"]["name"] != missing], nodes, **(cluster or {}))

    def sleep(seconds: float) -> None:
        api.now += seconds

    hosts = {
        name: {"node": name, "error": "", "expected": expected} for name in (item["metadata"]["name"] for item in nodes)
    }
    waiter = Waiter(api, typed, hosts, objects, failures or {}, lambda: api.now, sleep)  # type: ignore[arg-type]
    return waiter.run(), api


def waited(
    at: dict[float, list[Data]], expected: int | None = 1, hosts: tuple[str, ...] = (), **given: Any
) -> tuple[Data, Cluster, list[str]]:
    """A wait during which the nodes of the cluster become others; and what it said meanwhile.

    `hosts` are the nodes of the run, by default all of the first look.
    """
    typed = inputs(**{"wait_timeout": 300, **given})
    objects = build(Context(typed, declared(typed), POOLS))
    api = Cluster(objects, at[0.0])
    said: list[str] = []

    def sleep(seconds: float) -> None:
        api.now += seconds
        api.nodes = at[max(when for when in at if when <= api.now)]

    names = hosts or tuple(item["metadata"]["name"] for item in at[0.0])
    records = {name: {"node": name, "error": "", "expected": expected} for name in names}
    waiter = Waiter(api, typed, records, objects, {}, lambda: api.now, sleep, said.append)  # type: ignore[arg-type]
    return waiter.run(), api, said


def states(result: Data) -> dict[str, str]:
    return {key: one["state"] for key, one in result["components"].items()}


def test_all_is_there_after_two_looks_and_no_pod_is_asked_for() -> None:
    result, api = wait([node("n1"), node("n2")])
    assert result["ok"] and states(result) == {"validator": "ready", "device_plugin": "ready"}
    assert api.requests == ["DaemonSet", "Node", "DaemonSet", "one Node", "one Node"]
    assert {name: state["settled"] for name, state in result["allocatable"].items()} == {"n1": True, "n2": True}


@pytest.mark.parametrize(
    "status, seconds, ends",
    [(0, 40.0, True), (503, 40.0, True), (429, 40.0, True), (403, 40.0, False), (503, 70.0, False)],
)
def test_a_server_that_is_away_for_a_while_does_not_end_the_wait(
    monkeypatch: pytest.MonkeyPatch, status: int, seconds: float, ends: bool
) -> None:
    plain = Cluster.list

    def away(self: Cluster, *words: Any, **more: Any) -> list[Data]:
        if 5.0 <= self.now <= seconds:
            raise ApiError(status, "List", {}) if status else NpuError("The API server cannot be reached.", "Check.")
        return plain(self, *words, **more)

    monkeypatch.setattr(Cluster, "list", away)
    late = {"late": {"validator": 10.0, "device_plugin": 10.0}}
    if ends:
        assert wait([node("n1")], cluster=late)[0]["ok"]
    else:
        with pytest.raises(ApiError):
            wait([node("n1")], cluster=late)


def test_many_nodes_are_asked_for_at_once() -> None:
    _result, api = wait([node("n%d" % number) for number in range(30)])
    assert api.requests == ["DaemonSet", "Node", "DaemonSet", "Node"]


def test_a_component_that_fails_does_not_stop_those_that_do_not_need_it() -> None:
    result, api = wait(
        [node("n1")], cluster={"broken": ("validator",)}, metrics_exporter={**IMAGE, "service": {"enabled": False}}
    )
    assert states(result) == {"validator": "failed", "device_plugin": "ready", "metrics_exporter": "ready"}
    assert result["components"]["device_plugin"]["seconds"] == 5.0 and api.now == 60.0
    assert [(problem["component"], problem["node"]) for problem in result["problems"]] == [("validator", "n1")]
    assert (
        "rbln-validator on node n1, pod rbln-validator-x" in result["problems"][0]["text"]
        and "Next: " in result["problems"][0]["text"]
    )


def test_what_needs_a_component_that_failed_is_not_waited_for() -> None:
    result, api = wait(
        [node("n1", POOLS[0])], cluster={"broken": ("rbln-driver",)}, deadlines={"driver": 100}, smd=IMAGE, **DRIVER
    )
    assert states(result) == {
        "driver": "failed",
        "validator": "not_waited",
        "device_plugin": "not_waited",
        "smd": "not_waited",
    }
    assert api.now == 100.0
    assert [problem["text"] for problem in result["problems"] if problem["component"] == "smd"] == [
        "smd: not waited for, because it needs driver"
    ]


def test_the_clock_of_a_component_starts_when_what_it_needs_is_ready() -> None:
    result, api = wait(
        [node("n1", POOLS[0])], cluster={"late": {"rbln-driver": 200.0, "device-plugin": 250.0}}, **DRIVER
    )
    assert result["ok"] and result["components"]["driver"]["seconds"] == 200.0 and api.now == 255.0


def test_deadlines_are_each_components_own() -> None:
    result, api = wait(
        [node("n1")],
        cluster={"broken": ("validator", "device-plugin")},
        deadlines={"validator": 30, "device_plugin": 90},
    )
    assert {key: one["seconds"] for key, one in result["components"].items()} == {
        "validator": 30.0,
        "device_plugin": 90.0,
    } and api.now == 90.0


def test_refused_objects_are_named_and_not_waited_for() -> None:
    result, api = wait([node("n1")], failures={"validator": "Apply DaemonSet: not allowed. Next: Give the right."})
    assert states(result) == {"validator": "failed", "device_plugin": "ready"} and api.now == 5.0
    assert result["problems"] == [
        {
            "component": "validator",
            "node": "",
            "text": "validator: Apply DaemonSet: not allowed. Next: Give the right.",
            "fatal": True,
        }
    ]


def test_a_refusal_of_what_has_no_pods_is_told() -> None:
    result, _api = wait(
        [node("n1")], failures={"node_feature_rule": "Apply NodeFeatureRule: not allowed. Next: Give the right."}
    )
    assert states(result) == {"validator": "ready", "device_plugin": "ready"} and result["ok"] is False
    assert result["problems"] == [
        {
            "component": "node_feature_rule",
            "node": "",
            "text": "node_feature_rule: Apply NodeFeatureRule: not allowed. Next: Give the right.",
            "fatal": True,
        }
    ]


def test_a_daemon_set_that_is_not_there_is_named() -> None:
    result, api = wait([node("n1")], missing="rbln-validator")
    assert states(result)["validator"] == "failed" and api.now == 20.0
    assert result["problems"][0]["text"] == "The DaemonSet rbln-validator does not exist. Next: Run again."


LEFT_OUT = {
    "skip": ({"rebellions.ai/npu.deploy.skip": "true"}, {}, "keeps everything off"),
    "gate": ({"rebellions.ai/npu.deploy.validator": "false"}, {}, "npu.deploy.validator=false keeps it off"),
    "virtual machines": (
        {"rebellions.ai/npu.workload.config": "vm-passthrough"},
        {},
        "its NPUs are for vm-passthrough",
    ),
    "all for virtual machines": ({}, {"workload": "vm-passthrough"}, "its NPUs are for vm-passthrough"),
    "unknown workload": ({"rebellions.ai/npu.workload.config": "vm-vgpu"}, {}, ""),
    "gate asked for": ({}, {"require_gate": True}, "npu.deploy.validator is not true"),
    "meant": ({"rebellions.ai/npu.deploy.validator": "true"}, {"require_gate": True}, ""),
}


@pytest.mark.parametrize("case", LEFT_OUT)
def test_nodes_that_labels_leave_out(case: str) -> None:
    labels, given, words = LEFT_OUT[case]
    found = left_out(inputs(**given), "validator", "validator", node("n", **labels))
    assert words in found and bool(found) is bool(words)


def test_a_node_that_is_left_out_is_told_and_does_not_fail() -> None:
    result, api = wait(
        [
            node("n1"),
            node(
                "n2", allocatable={"rebellions.ai/npu": "0"}, **{"rebellions.ai/npu.workload.config": "vm-passthrough"}
            ),
        ]
    )
    assert result["ok"] and api.now == 5.0 and set(result["allocatable"]) == {"n1"}
    assert "device-plugin on node n2: not expected, its NPUs are for vm-passthrough." in result["warnings"]


def test_a_node_that_is_meant_and_not_selected_fails_early() -> None:
    result, api = wait([node("n1")], node_selector={"zone": "a"})
    assert states(result) == {"validator": "failed", "device_plugin": "failed"} and api.now == 20.0
    assert "the node selector or affinity excludes the node" in result["problems"][0]["text"]


def test_every_node_is_covered_by_one_of_the_pools() -> None:
    result, _api = wait([node("n1", POOLS[0]), node("n2", POOLS[1])], **QUIET, **DRIVER)
    assert result["ok"] and result["components"]["driver"]["desired"] == 2
    result, api = wait([node("n1", POOLS[0]), node("n2", Pool("rhel", "9", "5"))], **QUIET, **DRIVER)
    assert states(result)["driver"] == "failed" and api.now == 20.0
    assert [problem["node"] for problem in result["problems"] if problem["component"] == "driver"] == ["n2"]


def test_a_run_of_some_nodes_counts_the_daemon_sets_of_the_others_too() -> None:
    typed = inputs(**DRIVER, **QUIET)
    objects = build(Context(typed, declared(typed), POOLS))
    api = Cluster(objects, [node("n1", POOLS[0]), node("n2", POOLS[1])])
    result = Waiter(api, typed, {"n1": {"node": "n1", "error": "", "expected": 1}}, objects, {}, lambda: 0.0).run()  # type: ignore[arg-type]
    assert result["ok"] and result["judged"] == ["n1"]
    assert {key: (one["desired"], one["ready"]) for key, one in result["components"].items()} == {
        "driver": (2, 2),
        "validator": (2, 2),
    }


def test_a_node_that_two_daemon_sets_want_is_an_error() -> None:
    typed = inputs(**DRIVER, **QUIET)
    objects = build(Context(typed, declared(typed), POOLS))
    for item in objects:
        if item["kind"] == "DaemonSet":
            item["spec"]["template"]["spec"].pop("affinity", None)
    api = Cluster(objects, [node("n1", POOLS[0])])
    hosts = {"n1": {"node": "n1", "error": "", "expected": 1}}

    def sleep(seconds: float) -> None:
        api.now += seconds

    result = Waiter(api, typed, hosts, objects, {}, lambda: api.now, sleep).run()  # type: ignore[arg-type]
    assert "node n1: two DaemonSets of driver select it" in str(result["problems"]) and api.now == 20.0


def test_a_driver_without_a_pool_for_a_node_is_named() -> None:
    typed = inputs(**DRIVER, **QUIET)
    objects = build(Context(typed, declared(typed)))
    api = Cluster(objects, [node("n1")])
    hosts = {"n1": {"node": "n1", "error": "", "expected": 1}}

    def sleep(seconds: float) -> None:
        api.now += seconds

    result = Waiter(api, typed, hosts, objects, {}, lambda: api.now, sleep).run()  # type: ignore[arg-type]
    assert (
        result["components"]["driver"]["text"]
        == "driver: no pool is known for n1. Next: Label these nodes, or name their pools."
    )


def test_P01_a_taint_is_seen_even_when_the_counters_fit() -> None:
    tainted = node("n2")
    tainted["spec"]["taints"] = [{"key": "team", "value": "ml", "effect": "NoSchedule"}]
    result, _api = wait([node("n1"), tainted])
    assert {problem["node"] for problem in result["problems"]} == {"n2"} and "team=ml:NoSchedule" in str(
        result["problems"]
    )


def test_a_cluster_without_an_npu_is_named() -> None:
    bare = node("n1")
    bare["metadata"]["labels"] = {}
    result, _api = wait([bare], wait_scope="cluster", expected=0)
    assert result["problems"][0]["text"].startswith("validator: no node of the cluster has an NPU label.")


def test_a_driver_that_failed_on_one_node_fails_that_node_alone() -> None:
    result, _api = wait([node("n1", POOLS[0]), node("n2", Pool("rhel", "9", "5"))], **DRIVER)
    assert {problem["node"] for problem in result["problems"]} == {"n2"}
    assert states(result) == {"driver": "failed", "validator": "not_waited", "device_plugin": "not_waited"}


def test_the_other_nodes_are_proven_when_what_a_component_needs_failed_on_one() -> None:
    lost = node("n2", Pool("rhel", "9", "5"))
    result, api = wait([node("n1", POOLS[0]), lost], **DRIVER)
    assert result["allocatable"]["n1"]["settled"] is True and set(result["allocatable"]) == {"n1"} and api.now == 25.0
    assert result["components"]["device_plugin"]["text"] == "not waited for, because it needs driver"
    result, _api = wait([node("n1", POOLS[0], {"rebellions.ai/npu": "0"}), lost], **DRIVER)
    assert states(result) == {"driver": "failed", "validator": "not_waited", "device_plugin": "failed"}
    found = [
        (problem["node"], problem["text"]) for problem in result["problems"] if problem["component"] == "device_plugin"
    ]
    assert found == [
        (
            "n1",
            (
                "node n1: 0 rebellions.ai/npu allocatable, 1 expected. Next: Read the log of the device "
                "plugin's pod on this node."
            ),
        ),
        ("n2", "device-plugin: not waited for, because it needs driver"),
    ]


def revision(number: int, value: str) -> Data:
    owner = {"uid": "rbln-validator", "controller": True}
    labels = {"controller-revision-hash": value}
    return {"metadata": {"labels": labels, "ownerReferences": [owner]}, "revision": number}


def test_pods_of_a_template_that_is_wanted_again_are_right_and_the_hash_is_asked_for_once() -> None:
    asked = {"old": "rbln-validator", "ControllerRevision": [revision(3, "aa"), revision(2, "bb")]}
    result, api = wait([node("n1")], cluster={**asked, "late": {"device-plugin": 20.0}})
    assert result["ok"] and api.requests.count("ControllerRevision") == 1
    newer = [revision(3, "aa"), revision(4, "bb")]
    result, api = wait([node("n1")], cluster={**asked, "ControllerRevision": newer})
    assert not result["ok"] and api.requests.count("ControllerRevision") == 1 and api.requests.count("Pod") > 2


def test_without_the_right_to_see_hashes_the_generation_counts() -> None:
    denied = ApiError(403, "List ControllerRevision objects", {"message": "no"})
    result, api = wait([node("n1")], cluster={"old": "rbln-validator", "ControllerRevision": denied})
    assert "not of the newest template" in result["problems"][0]["text"]
    assert api.requests.count("ControllerRevision") == 1
    result, api = wait([node("n1")])
    assert result["ok"] and "ControllerRevision" not in api.requests


def test_an_old_driver_pod_is_a_warning() -> None:
    result, api = wait([node("n1", POOLS[0])], cluster={"old": "rbln-driver-ubuntu-22-04-k5"}, **QUIET, **DRIVER)
    assert result["ok"] and api.now == 0.0
    assert "Drain the node and delete the pod: the update strategy is OnDelete." in result["warnings"][0]


def test_dra_is_ready_when_the_slices_hold_all_devices() -> None:
    slices = [
        {"spec": {"driver": "npu.rebellions.ai", "nodeName": "n1", "devices": [{"name": "a"}]}},
        {"spec": {"driver": "x", "nodeName": "n1", "devices": [{}]}},
    ]
    given = {"dra_driver": IMAGE, **QUIET}
    assert wait([node("n1")], cluster={"ResourceSlice": slices}, **given)[0]["ok"]
    result, _api = wait([node("n1")], cluster={"ResourceSlice": slices}, expected=2, **given)
    assert result["problems"][0]["text"].startswith(
        "node n1: 1 devices in the ResourceSlices of npu.rebellions.ai, 2 expected"
    )
    assert slices_text("n1", 0, [], "d") == ""


@pytest.mark.parametrize(
    "slices, ready",
    [
        ([], False),
        ([{"endpoints": [{"conditions": {"ready": False}}]}], False),
        ([{"endpoints": [{"conditions": {}}]}], True),
    ],
)
def test_M01_a_service_without_an_endpoint_is_not_ready(slices: list[Data], ready: bool) -> None:
    assert (endpoints_text("s", slices) == "") is ready
    result, _api = wait([node("n1")], cluster={"EndpointSlice": slices}, metrics_exporter=IMAGE)
    assert (states(result)["metrics_exporter"] == "ready") is ready


def test_discovery_is_ready_when_its_label_is_there() -> None:
    assert not wait([node("n1")], feature_discovery={"enabled": True})[0]["ok"]
    assert wait([node("n1", **{"rebellions.ai/npu.count": "1"})], feature_discovery={"enabled": True})[0]["ok"]


def test_virtual_machines_are_offered_functions_by_product() -> None:
    given = {
        "workload": "vm-passthrough",
        "vfio_manager": {"enabled": True},
        "sandbox_device_plugin": IMAGE,
        "device_plugin": {"enabled": False},
    }
    result, _api = wait([node("n1")], **given)
    assert states(result)["sandbox_device_plugin"] == "failed" and "offers no function to virtual machines" in str(
        result["problems"]
    )
    assert wait([node("n1", allocatable={"rebellions.ai/RBLN-CA25_PF": "1"})], **given)[0]["ok"]


def test_scope_of_the_whole_cluster_judges_every_node() -> None:
    result, _api = wait([node("n1"), node("n2")], wait_scope="cluster", cluster={"broken": ("validator",)})
    assert {problem["node"] for problem in result["problems"]} == {"n1", "n2"}


def test_002_08_the_status_names_nodes_and_their_conditions_and_is_written_once() -> None:
    result, _api = wait([node("n1", POOLS[0])], cluster={"broken": ("rbln-driver",)}, deadlines={"driver": 5}, **DRIVER)
    told = json.loads(status_object(inputs(), result)["data"]["status.json"])
    assert (
        told["ready"] is False
        and told["components"]["driver"]["state"] == "failed"
        and told["components"]["validator"]["state"] == "not_waited"
    )
    assert {name: (one["ready_for_pooling"], one["conditions"]) for name, one in told["nodes"].items()} == {
        "n1": (False, ["DriverMissing"])
    }
    store = Store()
    assert write_status(store, inputs(), result) is True  # type: ignore[arg-type]
    later = copy.deepcopy(result)
    later["seconds"] = 999.0
    assert write_status(store, inputs(), later) is False  # type: ignore[arg-type]


def test_the_status_of_a_limited_run_keeps_what_is_known_of_other_nodes() -> None:
    def told() -> Data:
        found: Data = json.loads(store.items[("ConfigMap", "rbln-system", "rbln-status")]["data"]["status.json"])
        return found

    def judge(*hosts: str, alive: tuple[str, ...] = ("n1", "n2"), bad: tuple[str, ...] = ()) -> bool:
        problems = [
            {"component": "validator", "node": name, "text": "driver-validation failed", "fatal": False} for name in bad
        ]
        return write_status(
            store, inputs(), {"ok": not bad, "components": {}, "problems": problems, "nodes": alive, "judged": hosts}
        )  # type: ignore[arg-type]

    store = Store()
    assert judge("n1", "n2", bad=("n2",))
    assert judge("n1") is False and told()["ready"] is False and set(told()["nodes"]) == {"n2"}
    assert judge("n1", bad=("n1",)) and set(told()["nodes"]) == {"n1", "n2"}
    assert judge("n1", alive=()) and set(told()["nodes"]) == {"n2"}
    assert judge("n1", alive=("n1",)) and told() == {"ready": True, "components": {}, "nodes": {}, "nodes_not_shown": 0}
    store.items[("ConfigMap", "rbln-system", "rbln-status")]["data"]["status.json"] = "nonsense"
    assert judge("n1") and told()["ready"] is True


def test_a_wait_tells_which_nodes_it_judged() -> None:
    result, _api = wait([node("n1")])
    assert (result["nodes"], result["judged"]) == (["n1"], ["n1"])


def test_the_status_shows_some_of_very_many_nodes() -> None:
    problems = [
        {"component": "validator", "node": "n%03d" % number, "text": "toolkit-validation failed", "fatal": False}
        for number in range(120)
    ]
    told = json.loads(
        status_object(inputs(), {"ok": False, "components": {}, "problems": problems})["data"]["status.json"]
    )
    assert (len(told["nodes"]), told["nodes_not_shown"]) == (50, 70) and told["nodes"]["n000"]["conditions"] == [
        "ToolkitMissing"
    ]


STATUS = ("ConfigMap", "rbln-system", "rbln-status")


def judged(name: str) -> Data:
    problems = [{"component": "validator", "node": name, "text": "validator: no", "fatal": True}]
    return {"ok": False, "components": {}, "problems": problems, "nodes": ["n1", "n2", "n3"], "judged": [name]}


def test_two_runs_that_write_the_status_at_once_keep_what_both_say(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    write_status(store, inputs(), judged("n1"))  # type: ignore[arg-type]
    plain, others = store.apply, [judged("n2")]

    def apply(item: Data, force: bool, dry_run: bool) -> Any:
        if others:
            write_status(store, inputs(), others.pop())  # type: ignore[arg-type]
        if item["metadata"].pop("resourceVersion", None) != store.items[STATUS]["metadata"]["resourceVersion"]:
            raise ApiError(409, "Apply", {"message": "modified"})
        return plain(item, force, dry_run)

    monkeypatch.setattr(store, "apply", apply)
    assert write_status(store, inputs(), judged("n3")) is True  # type: ignore[arg-type]
    assert sorted(json.loads(store.items[STATUS]["data"]["status.json"])["nodes"]) == ["n1", "n2", "n3"]


def test_a_status_of_somebody_else_stays() -> None:
    store = Store(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": STATUS[2], "namespace": STATUS[1]},
            "data": {"a": "b"},
        }
    )
    with pytest.raises(NpuError, match="ConfigMap rbln-system/rbln-status exists already and is not ours"):
        write_status(store, inputs(), judged("n1"))  # type: ignore[arg-type]
    assert store.writes == []


def test_K18_startup_taints_are_waited_for_and_said() -> None:
    start, later = (case("K18-startup-taints", "node-%ds.yaml" % second) for second in (0, 45))
    result, api, said = waited({0.0: [start], 45.0: [later]}, expected=8)
    assert result["ok"] and api.now == 50.0
    assert [line.partition(":")[0] for line in said] == ["validator", "device-plugin"] * 4
    assert all("node.cilium.io/agent-not-ready" in line and "Cilium" in line for line in said)
    assert said[0].startswith("validator: 0 of 1 nodes ready, 10 of 300 s: ")
    people = copy.deepcopy(start)
    people["spec"]["taints"] = case("K18-startup-taints", "taints.yaml")[-1:]
    result, api, said = waited({0.0: [people]}, expected=8)
    assert not result["ok"] and result["fatal"] and api.now == 20.0


def test_every_ten_seconds_a_wait_says_what_it_waits_for_how_many_of_how_many_and_why_U03_drain_failed() -> None:
    tainted, lost, good = node("n1"), node("n1"), node("n1")
    tainted["spec"]["taints"] = [{"key": "ebs.csi.aws.com/agent-not-ready", "effect": "NoExecute"}]
    lost["spec"]["taints"] = [{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]
    lost["status"] = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    result, api, said = waited({0.0: [tainted], 60.0: [lost], 120.0: [good]})
    assert result["ok"] and api.now == 125.0
    mine = [line for line in said if line.startswith("device-plugin")]
    assert len(mine) == 12 and [line for line in mine if ": 0 of 1 nodes ready, " not in line] == []
    assert mine[0].startswith("device-plugin: 0 of 1 nodes ready, 10 of 300 s: ") and "EBS" in mine[0]
    assert mine[5].startswith("device-plugin: 0 of 1 nodes ready, 60 of 300 s: ") and "the node is lost" in mine[5]


def test_nodes_with_one_cause_are_counted_and_those_that_are_ready_too() -> None:
    nodes = [node("n%d" % number) for number in range(4)]
    for one in nodes[:3]:
        one["spec"]["taints"] = [{"key": "node.cilium.io/agent-not-ready", "effect": "NoSchedule"}]
    _result, _api, said = waited({0.0: nodes, 15.0: [node("n%d" % number) for number in range(4)]})
    assert [line.partition(" s: ")[0] for line in said] == [
        "validator: 1 of 4 nodes ready, 10 of 300",
        "device-plugin: 1 of 4 nodes ready, 10 of 300",
    ]
    assert all("Cilium" in line and line.endswith("(and on 2 more)") for line in said)


def test_what_waits_for_another_component_is_named_and_a_server_that_is_away_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    typed = inputs(wait_timeout=60, smd=IMAGE, **DRIVER)
    objects = build(Context(typed, declared(typed), POOLS))
    api, said = Cluster(objects, [node("n1", POOLS[0])], late={"rbln-driver": 45.0}), []
    plain = Cluster.list

    def away(self: Cluster, *words: Any, **more: Any) -> list[Data]:
        if 18.0 <= self.now <= 33.0:
            raise NpuError("The API server cannot be reached.", "Check.")
        return plain(self, *words, **more)

    def sleep(seconds: float) -> None:
        api.now += seconds

    monkeypatch.setattr(Cluster, "list", away)
    hosts = {"n1": {"node": "n1", "error": "", "expected": 1}}
    Waiter(api, typed, hosts, objects, {}, lambda: api.now, sleep, said.append).run()  # type: ignore[arg-type]
    assert [line.partition(": ")[0] for line in said] == ["driver", "not begun"] + ["API server"] * 2 + [
        "driver",
        "not begun",
    ]
    assert "validator, device-plugin" in said[1]
    assert said[2] == "API server: waiting, 5 of 60 s: The API server cannot be reached."


def test_a_wait_of_less_than_ten_seconds_says_nothing() -> None:
    _result, api, said = waited({0.0: [node("n1")]})
    assert said == [] and api.now < 10.0


def test_a_node_that_is_deleted_fails_alone_also_where_a_component_has_several_daemon_sets() -> None:
    both = [node("n1", POOLS[0]), node("n2", POOLS[1])]
    assert waited({0.0: both}, **QUIET, **DRIVER)[0]["ok"]
    result, api, _said = waited({0.0: both[:1]}, hosts=("n1", "n2"), **QUIET, **DRIVER)
    assert [one["node"] for one in result["problems"] if one["component"] == "driver"] == ["n2"] and api.now == 20.0
    assert {one["node"] for one in result["problems"]} == {"n2"}
    assert "no longer in the cluster" in result["problems"][0]["text"]


def test_a_node_that_is_deleted_is_no_success_where_the_components_are_of_the_operator() -> None:
    typed = inputs(wait_timeout=60, validator={"enabled": False})
    api = Cluster([], [node("n1")])
    hosts = {name: {"node": name, "error": "", "expected": 1} for name in ("n1", "n2")}

    def sleep(seconds: float) -> None:
        api.now += seconds

    result = Waiter(api, typed, hosts, [], {}, lambda: api.now, sleep).run()  # type: ignore[arg-type]
    assert {problem["node"] for problem in result["problems"]} == {"n2"}


def test_the_first_round_of_the_discovery_is_waited_for() -> None:
    bare = node("n1")
    bare["metadata"]["labels"] = {}
    labelled = node("n1", **{"feature.node.kubernetes.io/pci-1200_1eff.present": "true"})
    result, api, said = waited({0.0: [bare], 60.0: [labelled]}, node_labels=False)
    assert result["ok"] and api.now == 65.0 and "Node Feature Discovery has not labelled the node yet" in said[0]
    result, api, _said = waited({0.0: [bare]})
    assert not result["ok"] and api.now == 20.0


def test_K21_a_lost_node_outside_of_the_run_is_looked_at_again() -> None:
    typed = inputs(wait_timeout=100, validator={"enabled": False})
    objects = build(Context(typed, declared(typed), POOLS))
    api = Cluster(objects, [node("n1"), node("n2")], old="rbln-device-plugin", broken=("nobody",))
    plain = api._pod

    def pod_of(item: Data, where: Data) -> Data:
        found = plain(item, where)
        lost = where["metadata"]["name"] == "n2" and api.now >= 20.0
        found["status"]["conditions"][0]["status"] = "False" if lost else "True"
        return found

    def sleep(seconds: float) -> None:
        api.now += seconds
        if api.now >= 20.0:
            api.nodes[1]["status"]["conditions"][0]["status"] = "Unknown"

    api._pod = pod_of  # type: ignore[method-assign]
    api.nodes = copy.deepcopy(api.nodes)
    plain_list = api.list
    api.list = lambda *words, **more: copy.deepcopy(plain_list(*words, **more))  # type: ignore[method-assign]
    hosts = {"n1": {"node": "n1", "error": "", "expected": 1}}
    said: list[str] = []
    result = Waiter(api, typed, hosts, objects, {}, lambda: api.now, sleep, said.append).run()  # type: ignore[arg-type]
    assert "the update is held" in result["problems"][0]["text"] and "n2 (the node is lost)" in str(said)
    assert api.requests.count("Node") < 6
