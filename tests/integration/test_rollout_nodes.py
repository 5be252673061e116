# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that leave service and return on a real API server, with its scheduler, budgets and controllers.

Kubelets are played: each pod of a node becomes ready, unless its name begins with `sick`, and one that is deleted goes,
unless its name begins with `deaf`.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import datetime
import json
import threading
import time
import typing as t
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.api import ApiError, Cluster
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.labels import owned_labels
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.marks import is_ours
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.nodes import labelled_nodes, unlabel_nodes
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout import evict as _evict
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout import outage as _outage
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout import states
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.budgets import in_the_way
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.evict import Drain, leave_node, look_at
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.node import ALONE, NodeWriter
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.pods import Policy
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.record import NodeRecord, PoolRecord, Record
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.rights import require_rollout_rights
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.store import RunStore
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs

from tests.integration._api_server import NAMESPACE, RESOURCE, ApiServer, Data, patient
from tests.lab._base import until

AUDITED = "rollout-audited"
CONTROLLERS = ("disruption-controller", "replicaset-controller", "statefulset-controller")
GATE = "rebellions.ai/npu.deploy.device-plugin"
POLICY = Policy(evict_timeout=patient(60))


class Site:
    """An API server with the nodes node-a and node-b, a namespace for workloads, and kubelets that are played."""

    def __init__(self, home: Path) -> None:
        self.server = ApiServer(home, ("mover", "reader"), audited=AUDITED, controllers=CONTROLLERS)
        self._over = threading.Event()
        self._kubelet = threading.Thread(target=self._play)

    def start(self) -> None:
        self.server.start()
        for number, name in enumerate(("node-a", "node-b"), 1):
            self.server.add_node(name, "aaaaaaaa-0000-4000-8000-00000000000%d" % number, 16)
        self.server.kubectl("create", "clusterrole", "reader", "--verb=get,list", "--resource=pods")
        self.server.kubectl("create", "clusterrolebinding", "reader", "--clusterrole=reader", "--user=reader")
        self.server.kubectl("create", "namespace", "team")
        self.server.kubectl("create", "namespace", NAMESPACE)
        self.server.start_scheduler()
        self._kubelet.start()

    def stop(self) -> None:
        self._over.set()
        if self._kubelet.ident:
            self._kubelet.join()
        self.server.stop()

    def _play(self) -> None:
        while not self._over.wait(0.4):
            with contextlib.suppress(OSError, ValueError, KeyError):
                self._look()

    def _look(self) -> None:
        for pod in self.ask("GET", "/api/v1/pods")["items"]:
            meta = pod["metadata"]
            path = "/api/v1/namespaces/%s/pods/%s" % (meta["namespace"], meta["name"])
            if meta.get("deletionTimestamp"):
                if not meta["name"].startswith("deaf"):
                    self.ask("DELETE", path, {"gracePeriodSeconds": 0})
            elif pod["spec"].get("nodeName") and pod["status"].get("phase") == "Pending":
                ready = {"type": "Ready", "status": str(not meta["name"].startswith("sick"))}
                self.ask("PATCH", path + "/status", {"status": {"phase": "Running", "conditions": [ready]}})

    def ask(self, method: str, path: str, body: Data | None = None) -> Data:
        return self.server._call(method, path, body)

    def cluster(self, user: str = "admin") -> Cluster:
        return Cluster(str(self.server.home / (user + ".kubeconfig")), "")

    def writer(self, name: str = "node-a", run: str = "run-1", user: str = "admin") -> NodeWriter:
        return NodeWriter(self.cluster(user), name, run)

    def drain(self, policy: Policy = POLICY, node: str = "node-a") -> list[str]:
        told: list[str] = []
        Drain(self.cluster(), node, policy).run(told.append)
        return told

    def node(self, name: str = "node-a") -> Data:
        return self.ask("GET", "/api/v1/nodes/" + name)

    def pods(self) -> dict[str, tuple[str, str]]:
        """{name: (node, uid)} of the workloads that run."""
        return {
            pod["metadata"]["name"]: (pod["spec"].get("nodeName", ""), pod["metadata"]["uid"])
            for pod in self.ask("GET", "/api/v1/namespaces/team/pods")["items"]
            if pod["status"].get("phase") == "Running"
        }

    def make(self, kind: str, name: str, replicas: int = 1, grace: int = 2, **parts: t.Any) -> None:
        """A workload whose pods run on node-a, of a DaemonSet on both; node-b takes pods again afterwards."""
        self.ask("PATCH", "/api/v1/nodes/node-b", {"spec": {"unschedulable": True}})
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": {**spec(grace), **parts}}
        plural = kind.lower() + "s"
        count = {} if kind == "DaemonSet" else {"replicas": replicas}
        body: Data = {
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": {"name": name},
            "spec": {**count, "selector": {"matchLabels": labels}, "template": template},
        }
        self.ask("POST", "/apis/apps/v1/namespaces/team/%s" % plural, body)
        until(60, "pods of " + name, lambda: list(self.of(name).values()).count("node-a") == replicas)
        self.ask("PATCH", "/api/v1/nodes/node-b", {"spec": {"unschedulable": None}})

    def of(self, name: str) -> dict[str, str]:
        """{name: node} of the pods of a workload that run."""
        return {one: node for one, (node, _uid) in self.pods().items() if one.rpartition("-")[0] == name}

    def bare(self, name: str, parts: Data | None = None, **more: t.Any) -> None:
        """A pod on node-a that no controller has made; `parts` are of its specification, `more` of its metadata."""
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **more},
                "spec": {**spec(1), "nodeName": "node-a", **(parts or {})}}  # fmt: skip
        self.ask("POST", "/api/v1/namespaces/team/pods", body)
        until(30, name, lambda: name in self.pods())

    def protect(self, name: str, app: str, least: int, judged: str = "currentHealthy", **more: t.Any) -> Data:
        body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
                "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": app}}, **more}}  # fmt: skip
        path = "/apis/policy/v1/namespaces/team/poddisruptionbudgets"
        self.ask("POST", path, body)
        until(30, name, lambda: bool(self.ask("GET", path + "/" + name).get("status", {}).get(judged)))
        return self.ask("GET", path + "/" + name)

    def clean(self) -> None:
        """No workload is left, and both nodes are in service and without a word of a rollout."""
        for kind in ("replicasets", "statefulsets", "daemonsets"):
            self.ask("DELETE", "/apis/apps/v1/namespaces/team/" + kind, {"propagationPolicy": "Background"})
        self.ask("DELETE", "/apis/policy/v1/namespaces/team/poddisruptionbudgets")
        for pod in self.ask("GET", "/api/v1/namespaces/team/pods")["items"]:
            path = "/api/v1/namespaces/team/pods/" + pod["metadata"]["name"]
            self.ask("DELETE", path, {"gracePeriodSeconds": 0})
        until(60, "no pods", lambda: not self.ask("GET", "/api/v1/namespaces/team/pods")["items"])
        for name in ("node-a", "node-b"):
            meta = self.node(name)["metadata"]
            ours = {key: None for key in meta.get("annotations", {}) if "rollout" in key or key in ALONE}
            labels = {key: None for key in meta.get("labels", {}) if key.startswith("rebellions.ai/")}
            self.ask(
                "PATCH",
                "/api/v1/nodes/" + name,
                {"metadata": {"labels": labels, "annotations": ours}, "spec": {"unschedulable": None, "taints": None}},
            )


def spec(grace: int) -> Data:
    resources = {"limits": {RESOURCE: "1"}}
    return {
        "terminationGracePeriodSeconds": grace,
        "tolerations": [{"operator": "Exists", "key": "node.kubernetes.io/not-ready"}],
        "containers": [{"name": "main", "image": "x", "resources": resources}],
    }


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Site]:
    one = Site(tmp_path_factory.mktemp("rollout") / "home")
    try:
        one.start()
        yield one
    finally:
        one.stop()


@pytest.fixture
def site(running: Site, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[Site]:
    monkeypatch.setattr(_evict, "PAUSE", 1.0)
    monkeypatch.setattr(_outage, "PAUSE", 1.0)
    yield running
    running.clean()


def test_U04_pods_leave_the_node_and_their_successors_elsewhere_are_others(site: Site) -> None:
    site.make("StatefulSet", "sts")
    site.make("ReplicaSet", "web", 2)
    before = site.pods()
    assert {node for node, _uid in before.values()} == {"node-a"} and len(before) == 3
    site.writer().cordon(states.PODS, 1)
    start = time.monotonic()
    told = site.drain()
    assert time.monotonic() - start < patient(30)
    assert told[0].startswith("Node node-a: evicts team/") and "team/sts-0" in told[0]
    left = look_at(site.cluster(), "node-a", POLICY)
    assert not left.pending and not left.refused
    until(30, "the pods run elsewhere", lambda: len(site.pods()) == 3)
    after = site.pods()
    assert {node for node, _uid in after.values()} == {"node-b"} and after["sts-0"][1] != before["sts-0"][1]


def test_U05_a_real_budget_ends_the_drain_and_lets_it_go_on_when_it_can(site: Site) -> None:
    site.make("ReplicaSet", "web", 1)
    site.protect("keep-web", "web", 1)
    site.writer().cordon(states.PODS, 1)
    with pytest.raises(NpuError, match="team/web-.*: the PodDisruptionBudget team/keep-web allows no disruption"):
        site.drain(Policy(evict_timeout=2))
    assert list(site.of("web").values()) == ["node-a"]
    site.ask("PATCH", "/apis/apps/v1/namespaces/team/replicasets/web", {"spec": {"replicas": 2}})
    site.drain()
    until(30, "two elsewhere", lambda: sorted(site.of("web").values()) == ["node-b", "node-b"])


@pytest.mark.parametrize(
    "app, least, more, kept",
    [
        ("web", 1, {}, True),
        ("web", 0, {}, False),
        ("sick", 1, {}, True),
        ("sick", 1, {"unhealthyPodEvictionPolicy": "AlwaysAllow"}, False),
        ("web", 1, {"unhealthyPodEvictionPolicy": "AlwaysAllow"}, True),
    ],
)
def test_a_budget_is_judged_as_the_server_judges_it(site: Site, app: str, least: int, more: Data, kept: bool) -> None:
    site.make("ReplicaSet", app, 1)
    # Of pods that are sick nobody counts one.
    one = site.protect("keep", app, least, "observedGeneration" if app == "sick" else "currentHealthy", **more)
    cluster = site.cluster()
    (pod,) = cluster.list("v1", "Pod", "team")
    assert in_the_way(pod, [one]) == (["team/keep"] if kept else [])
    meta = {"name": pod["metadata"]["name"], "namespace": "team"}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta, "deleteOptions": {"dryRun": ["All"]}}
    path = cluster.path("v1", "Pod", **meta) + "/eviction"
    if kept:
        with pytest.raises(ApiError, match="HTTP 429"):
            cluster.request("POST", path, "Evict", {}, body, tries=1)
    else:
        cluster.request("POST", path, "Evict", {}, body, tries=1)


def test_a_pod_that_its_controller_puts_back_on_the_cordoned_node_ends_the_drain(site: Site) -> None:
    site.make("ReplicaSet", "web", 1, nodeName="node-a")
    site.writer().cordon(states.PODS, 1)
    with pytest.raises(NpuError, match="team/web-.* is started again on this cordoned node by the ReplicaSet team/web"):
        site.drain()


def test_U05_forbidden_and_two_budgets_end_it_at_once(site: Site) -> None:
    site.make("ReplicaSet", "web", 1)
    start = time.monotonic()
    with pytest.raises(ApiError, match="Evict pod team/web-.* of node node-a: not allowed") as caught:
        Drain(site.cluster("reader"), "node-a", POLICY).run(lambda text: None)
    assert caught.value.status == 403
    site.protect("one", "web", 0)
    site.protect("two", "web", 0)
    with pytest.raises(NpuError, match="2 PodDisruptionBudgets select it.*team/one, team/two"):
        site.drain()
    assert time.monotonic() - start < patient(20)
    assert list(site.of("web").values()) == ["node-a"]


def test_a_pod_that_ignores_its_grace_period_is_named_and_goes_by_force_alone(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_evict, "LATE", 3.0)
    site.make("ReplicaSet", "deaf", 1, grace=1)
    site.writer().cordon(states.PODS, 1)
    with pytest.raises(NpuError, match="team/deaf-.*: its grace period of 1 s is over and it ignores it"):
        site.drain(Policy(evict_timeout=7))
    assert len([node for node, _uid in site.pods().values() if node == "node-a"]) == 1
    site.drain(Policy(evict_timeout=60, force=True))
    assert not look_at(site.cluster(), "node-a", POLICY).pending


def test_what_may_not_leave_stops_the_drain_before_the_first_eviction(site: Site) -> None:
    site.make("ReplicaSet", "web", 1)
    site.bare("alone")
    with pytest.raises(NpuError, match="Node node-a cannot be drained: team/alone no controller would start it again"):
        site.drain()
    assert list(site.of("web").values()) == ["node-a"]
    site.drain(dataclasses.replace(POLICY, unmanaged="delete"))
    assert "alone" not in site.pods()


def test_001_07_pods_with_npus_are_found_in_what_a_server_makes_of_them(site: Site) -> None:
    plain, held = {"name": "main", "image": "x"}, spec(1)["containers"][0]
    claims = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims"
    request = {"name": "npu", "exactly": {"deviceClassName": "npu.rebellions.ai"}}
    claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}
    site.ask("POST", claims, {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **claim})
    result = {"request": "npu", "driver": "npu.rebellions.ai", "pool": "node-a", "device": "npu0"}
    site.ask("PATCH", claims + "/c/status", {"status": {"allocation": {"devices": {"results": [result]}}}})
    kinds: dict[str, Data] = {
        "sidecar": {"initContainers": [{**held, "name": "s", "restartPolicy": "Always"}], "containers": [plain]},
        "init": {"initContainers": [{**held, "name": "i"}], "containers": [plain]},
        "claims": {"containers": [plain], "resourceClaims": [{"name": "n", "resourceClaimName": "c"}]},
        "annotated": {"containers": [plain], "annotations": {"cdi.k8s.io/npu": "rebellions.ai/npu=0"}},
        "done": {"containers": [held]},
        "plain": {"containers": [plain]},
    }
    for name, parts in kinds.items():
        annotations = parts.pop("annotations", {})
        site.bare(name, parts, annotations=annotations)
    site.make("DaemonSet", "agent")
    site.ask("PATCH", "/api/v1/namespaces/team/pods/done/status", {"status": {"phase": "Succeeded"}})
    leaving = look_at(site.cluster(), "node-a", dataclasses.replace(POLICY, unmanaged="delete"))
    assert sorted(pod["metadata"]["name"] for pod in leaving.evict) == ["annotated", "claims", "init", "sidecar"]
    assert [told.why for told in leaving.refused] == ["has rebellions.ai/npu and its DaemonSet would start it again"]
    assert sorted(told.pod["metadata"]["name"] for told in leaving.stays) == ["done", "plain"]


def test_a_kubectl_cordon_is_known_by_its_owner_and_stays(site: Site) -> None:
    site.server.kubectl("cordon", "node-a")
    with pytest.raises(NpuError, match="node-a is cordoned, and not by this collection"):
        site.writer().cordon(states.PODS, 1)
    site.server.kubectl("uncordon", "node-a")
    site.writer().cordon(states.PODS, 1)
    assert is_ours(site.node())
    site.server.kubectl("uncordon", "node-a")
    site.server.kubectl("cordon", "node-a")
    assert not is_ours(site.node())
    site.writer().done()
    assert site.node()["spec"]["unschedulable"] is True


def test_U02_U03_states_taint_and_reason_are_on_the_node_and_undone_by_another_run(site: Site) -> None:
    one = site.writer()
    one.cordon(states.VALIDATE, 2)
    one.fail("driver_loaded failed")
    shown = site.server.kubectl("get", "nodes", "-L", states.LABEL).stdout
    assert "upgrade-failed" in shown and "SchedulingDisabled" in shown
    node = site.node()
    assert {"key": states.FAILED_TAINT, "value": states.VALIDATE, "effect": "NoSchedule"} in node["spec"]["taints"]
    assert node["metadata"]["annotations"][states.REASON] == "driver_loaded failed"
    assert [node["metadata"]["annotations"][key] for key in ALONE] == ["true", "true"]
    again = site.writer(run="run-2")
    again.cordon(states.HOST, 1)
    again.done()
    node = site.node()
    assert "unschedulable" not in node["spec"]
    assert states.FAILED_TAINT not in [taint["key"] for taint in node["spec"].get("taints", [])]
    assert node["metadata"]["labels"][states.LABEL] == states.DONE
    assert not {*ALONE, states.REASON, states.CORDONED} & set(node["metadata"]["annotations"])


def test_what_a_rollout_left_goes_with_our_labels(site: Site) -> None:
    cluster = site.cluster()
    labels = {GATE: "true"}
    cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a", "labels": labels}}, False, False)
    before = site.node("node-b")["metadata"]["resourceVersion"]
    one = site.writer()
    one.cordon(states.PODS, 1)
    one.close_gates(["device-plugin", "smd"])
    one.fail("no")
    assert unlabel_nodes(cluster, True) == labelled_nodes(cluster) == ["node-a"]
    assert unlabel_nodes(cluster, False) == ["node-a"] and labelled_nodes(cluster) == []
    node = site.node()
    assert "unschedulable" not in node["spec"] and "rollout" not in json.dumps(node["metadata"].get("annotations"))
    assert not {states.LABEL, GATE} & set(node["metadata"].get("labels", {}))
    assert site.node("node-b")["metadata"]["resourceVersion"] == before


def test_gates_close_and_open_and_our_labels_keep_their_owner(site: Site) -> None:
    labels = {GATE: "true", "rebellions.ai/npu.count": "2"}
    cluster = site.cluster()
    cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a", "labels": labels}}, False, False)
    theirs = "rebellions.ai/npu.deploy.dra-driver"
    site.server.kubectl("label", "node", "node-a", theirs + "=true")
    site.writer().close_gates(["device-plugin", "dra-driver", "smd"])
    closed = site.node()["metadata"]["labels"]
    smd = "rebellions.ai/npu.deploy.smd"
    assert (closed[GATE], closed[theirs], closed[smd]) == ("false", "false", "false")
    site.writer(run="run-2").open_gates()
    node = site.node()
    opened = node["metadata"]["labels"]
    assert (opened[GATE], opened[theirs]) == ("true", "true") and smd not in opened
    assert owned_labels(node) == set(labels)


def test_leaving_and_returning_costs_at_most_twelve_requests(site: Site) -> None:
    labels = {GATE: "true"}
    site.cluster().apply(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a", "labels": labels}}, False, False
    )
    record = Record("id", "goal", "2026-11-29T12:00:00Z", "run-1", {"p": PoolRecord((("node-a",),))}, {})
    record = dataclasses.replace(record, nodes={"node-a": NodeRecord("p", 1)})
    RunStore(site.cluster(), inputs()).change(lambda now: (record, None))
    since = len(site.server.asked())
    slot(RunStore(site.cluster(AUDITED), inputs()), "node-a", states.CORDON)
    writer = site.writer(user=AUDITED)
    writer.cordon(states.PODS, 1, components=["device-plugin"])
    policy = dataclasses.replace(POLICY, namespace=NAMESPACE, components=("device-plugin",))
    leave_node(writer, policy, lambda text: None)
    writer.state(states.HOST)
    writer = site.writer(user=AUDITED)
    writer.open_gates()
    writer.done()
    slot(RunStore(site.cluster(AUDITED), inputs()), "node-a", states.DONE)
    asked = site.server.asked(since)
    assert 8 <= len(asked) <= 12, asked
    assert site.node()["metadata"]["labels"][GATE] == "true" and "unschedulable" not in site.node()["spec"]


def slot(store: RunStore, name: str, state: str, most: int = 1000) -> bool:
    """Whether the node got this state: while fewer than `most` are under way."""

    def judge(now: Record | None) -> tuple[Record | None, bool]:
        assert now is not None
        if sum(entry.under_way for entry in now.nodes.values()) >= most:
            return now, False
        entry = dataclasses.replace(now.nodes[name], state=state, since=states.stamp(_now()), run=now.run)
        return dataclasses.replace(now, nodes={**now.nodes, name: entry}), True

    return store.change(judge)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)


def test_two_controllers_with_many_processes_never_take_more_slots_than_there_are(site: Site, tmp_path: Path) -> None:
    names = tuple("n%02d" % number for number in range(24))
    nodes = {name: NodeRecord("p", 1) for name in names}
    record = Record("id", "goal", "2026-11-29T12:00:00Z", "run-1", {"p": PoolRecord((names,))}, nodes)
    RunStore(site.cluster(), inputs()).change(lambda now: (record, None))
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()

    def take(number: int) -> bool:
        return slot(RunStore(site.cluster(), inputs(), str(folders[number % 2])), names[number], states.CORDON, 5)

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        taken = list(pool.map(take, range(24)))
    kept = RunStore(site.cluster(), inputs()).read()[0]
    assert kept is not None
    assert sum(taken) == 5 and [kept.nodes[name].under_way for name in names] == taken


def test_a_label_pauses_and_an_annotation_approves(site: Site) -> None:
    store = RunStore(site.cluster(), inputs())
    record = Record("id", "goal", "2026-11-29T12:00:00Z", "run-1")
    store.change(lambda now: (record, None))
    site.server.kubectl("-n", NAMESPACE, "label", "configmap", "rbln-rollout", states.HOLD + "=pause")
    site.server.kubectl("-n", NAMESPACE, "annotate", "configmap", "rbln-rollout", states.APPROVED + "=1,2")
    assert store.read() == (record, "pause", "1,2")
    seen: list[str] = []
    other = RunStore(site.cluster(), inputs())
    other.change(lambda now: (dataclasses.replace(record, goal="next"), seen.append(other.held)))
    assert seen == ["pause"] and store.read()[1] == "pause"


def test_a_second_controller_is_kept_out_until_the_first_one_ends(site: Site) -> None:
    one, other = RunStore(site.cluster(), inputs()), RunStore(site.cluster(), inputs(lease_timeout=1))
    one.claim("run-1")
    with pytest.raises(NpuError, match="/run-1 holds the Lease rbln-rollout"):
        other.claim("run-2")
    one.release()
    other.claim("run-2")
    other.release()


def test_rights_are_asked_before_the_first_cordon(site: Site) -> None:
    site.server.kubectl(
        "create", "clusterrole", "mover", "--verb=get,list,patch,create,update", "--resource=nodes,pods,configmaps,"
        "leases.coordination.k8s.io,poddisruptionbudgets.policy,resourceclaims.resource.k8s.io"
    )  # fmt: skip
    site.server.kubectl("create", "clusterrolebinding", "mover", "--clusterrole=mover", "--user=mover")
    with pytest.raises(NpuError, match="The account that the test names lacks rights: create pods/eviction. Next: "):
        require_rollout_rights(site.cluster("mover"), [(inputs(), POLICY)], "the test")
    site.server.kubectl("create", "clusterrole", "evict", "--verb=create", "--resource=pods/eviction")
    site.server.kubectl("create", "clusterrolebinding", "evict", "--clusterrole=evict", "--user=mover")
    until(20, "the right", lambda: _allowed(site))
    site.make("ReplicaSet", "web", 1)
    site.writer(user="mover").cordon(states.PODS, 1)
    Drain(site.cluster("mover"), "node-a", POLICY).run(lambda text: None)
    site.writer(user="mover").done()


def _allowed(site: Site) -> bool:
    try:
        require_rollout_rights(site.cluster("mover"), [(inputs(), POLICY)], "the test")
    except NpuError:
        return False
    return True


def test_an_api_server_that_is_away_in_the_middle_is_waited_for(site: Site) -> None:
    site.make("ReplicaSet", "web", 1)
    site.protect("keep-web", "web", 1)
    writer = site.writer()
    writer.cordon(states.PODS, 1)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        draining = pool.submit(site.drain, Policy(evict_timeout=patient(90)))
        time.sleep(2)
        site.server.stop_server()
        stopped = time.monotonic()
        time.sleep(4)
        site.server.start_server()
        site.ask("DELETE", "/apis/policy/v1/namespaces/team/poddisruptionbudgets/keep-web")
        draining.result(timeout=patient(90))
    assert time.monotonic() - stopped > 4 and not look_at(site.cluster(), "node-a", POLICY).pending
    assert writer.done() and json.dumps(site.node()).count('"unschedulable"') == 0
