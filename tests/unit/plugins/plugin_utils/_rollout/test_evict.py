# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the pods of a node leave it, and what is said of those that do not."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.api import ApiError
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.transport import NoAnswer
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout import states
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.evict import Drain, leave_node
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.node import NodeWriter
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.places import told_pods
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.pods import Policy
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.rollout_api import (
    NODE,
    NPU,
    Api,
    budget,
    node,
    pod,
)

STAY = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}


def drain(api: Api, **policy: Any) -> tuple[list[str], list[str]]:
    """(lines told, states of the node)."""
    told: list[str] = []
    said: list[str] = []
    Drain(api, NODE, Policy(**policy), said.append, api.clock, api.sleep).run(told.append)  # type: ignore[arg-type]
    return told, said


def names(api: Api) -> list[str]:
    return sorted(key[2] for key in api.items if key[0] == "Pod")


def test_a_node_without_pods_costs_one_request() -> None:
    api = Api(node(), pod("elsewhere", "node-b"))
    assert drain(api) == ([], []) and api.asked == ["list Pod"]


def test_the_table_asks_for_budgets_only_where_pods_are_evicted() -> None:
    api = Api(node(), pod("web"), budget("keep"))
    told_pods(api, {"host": NODE}, [(["host"], Policy(pods="refuse"))])  # type: ignore[arg-type]
    assert api.asked == ["list Pod"]
    told_pods(api, {"host": NODE}, [(["host"], Policy(pods="npu"))])  # type: ignore[arg-type]
    assert "list PodDisruptionBudget" in api.asked


def test_the_table_lists_pods_once_for_many_nodes() -> None:
    places = ["node-%d" % at for at in range(11)]
    pods = [pod("web-%d" % at, name) for at, name in enumerate(places) if at]
    policy, hosts = Policy(pods="refuse"), {"host-" + name: name for name in places}
    api = Api(*map(node, places), *pods, pod("other", "node-x"))
    told = told_pods(api, hosts, [(hosts, policy)])  # type: ignore[arg-type]
    assert api.asked == ["list Node", "list Pod"]
    # As each node alone says.
    one_by_one = {host: told_pods(api, {host: name}, [([host], policy)])[host] for host, name in hosts.items()}  # type: ignore[arg-type]
    assert told == one_by_one and "web-3" in told["host-node-3"].refused[0] and told["host-node-0"].refused == ()
    # A few nodes of a large cluster: their own pods are less to read than those of all.
    few = Api(*map(node, places), *(node("cpu-%d" % at) for at in range(40)), *pods)
    assert told_pods(few, hosts, [(hosts, policy)]) == told and few.asked.count("list Pod") == 11  # type: ignore[arg-type]


def test_pods_are_listed_then_evicted_and_their_end_is_waited_for() -> None:
    api = Api(node(), pod("a"), pod("b"), pod("other", "node-b"))
    api.ends = {"a": 0.5, "b": 8}
    told, said = drain(api)
    assert told == ["Node node-a: evicts team/a, team/b."] and said == [states.PODS]
    assert names(api) == ["other"] and 8 <= api.now - 100 < 14
    assert api.asked.count("POST eviction") == 2
    assert api.waited[-1].endswith("waits until team/b left")


def test_U04_one_pod_is_waited_for_and_its_successor_elsewhere_is_another() -> None:
    api = Api(node(), pod("sts-0", uid="u1"))
    api.ends = {"sts-0": 3}
    api.events.append((105.0, lambda: api.put(pod("sts-0", "node-b", uid="u2")) and None))
    api.events.append((104.5, lambda: api.pop("Pod", "team", "sts-0")))
    drain(api)
    assert api.now >= 103


def test_U04_a_successor_on_the_same_node_is_evicted_too() -> None:
    api = Api(node(), pod("sts-0", uid="u1"))
    api.ends = {"sts-0": 1e9}
    api.events.append((101.0, lambda: (api.ends.clear(), api.put(pod("sts-0", uid="u2")))[0]))
    drain(api)
    assert names(api) == [] and api.asked.count("POST eviction") == 2


@pytest.mark.parametrize("status", [429, 500, 503, 0])
def test_U05_a_refusal_is_asked_again_by_its_status_alone(status: int) -> None:
    api = Api(node(), pod("a"))
    api.evictions = {"a": [status, status, 201]}
    drain(api)
    assert api.asked.count("POST eviction") == 3 and names(api) == []


def test_U05_a_budget_that_allows_nothing_ends_the_drain_in_time_with_its_name() -> None:
    api = Api(node(), pod("a", labels={"app": "x"}), pod("b"), budget("keep", app="x"), budget("spare", 1, app="x"))
    api.evictions = {"a": [429]}
    with pytest.raises(NpuError) as caught:
        drain(api, evict_timeout=60)
    assert str(caught.value) == (
        "Node node-a was not drained within 60 s: team/a: the PodDisruptionBudget team/keep allows no disruption."
        " Next: Give the application more ready replicas, or raise rbln_rollout_evict_timeout."
    )
    assert api.now - 100 == 60 and names(api) == ["a"] and "DELETE pods" not in " ".join(api.asked)


def test_a_node_that_is_not_ready_is_named_and_not_its_pod() -> None:
    api = Api(node(), pod("a"), pod("b", spec={**NPU, "terminationGracePeriodSeconds": 600}))
    api.ends = {"a": 1e9, "b": 1e9}
    api.events.append((102.0, lambda: api.put(node(ready=False)) and None))
    with pytest.raises(NpuError) as caught:
        drain(api, evict_timeout=60)
    assert str(caught.value) == (
        "Node node-a was not drained within 60 s: team/a cannot end, since the node is not Ready, team/b cannot end,"
        " since the node is not Ready. Next: Bring the node back (its kubelet, its network, its power), and run again."
    )


def test_U05_a_busy_server_is_no_budget() -> None:
    api = Api(node(), pod("a"), budget("other", app="x"))
    api.evictions = {"a": [429]}
    with pytest.raises(NpuError, match="team/a: the API server answered with HTTP 429"):
        drain(api, evict_timeout=30)


def test_U05_forbidden_fails_at_once() -> None:
    api = Api(node(), pod("a"))
    api.evictions = {"a": [403]}
    with pytest.raises(ApiError, match="Evict pod team/a of node node-a: not allowed"):
        drain(api)
    assert api.now == 100


def test_a_pod_of_an_ending_namespace_is_waited_for() -> None:
    api = Api(node(), pod("a"))

    def evict(*_args: Any) -> Any:
        api.events.append((103.0, lambda: api.pop("Pod", "team", "a")))
        raise ApiError(403, "Evict", {"message": "no", "details": {"causes": [{"reason": "NamespaceTerminating"}]}})

    api._evict = evict  # type: ignore[method-assign]
    drain(api)
    assert names(api) == []


def test_several_budgets_on_one_pod_fail_at_once() -> None:
    api = Api(node(), pod("a", labels={"app": "x"}), budget("one", 1, app="x"), budget("two", 1, app="x"))
    api.evictions = {"a": [500]}
    with pytest.raises(NpuError, match="2 PodDisruptionBudgets select it.*team/one, team/two.*Let one budget"):
        drain(api)
    assert api.now == 100


WEBHOOK = 'admission webhook "drain-cleaner.example" denied the request: The pod is rolled by its operator.'
POLICY = "ValidatingAdmissionPolicy 'hours' with binding 'all' denied request: No eviction of kafka-0 before 22:00."


def refused_by_rule(api: Api, status: int, said: str = WEBHOOK) -> None:

    def evict(*_args: Any) -> Any:
        raise ApiError(status, "Evict", {"message": 'pods "kafka-0" is forbidden: ' + said})

    api._evict = evict  # type: ignore[method-assign]


@pytest.mark.parametrize("status, said", [(400, WEBHOOK), (403, WEBHOOK), (429, WEBHOOK), (422, POLICY), (403, POLICY)])
def test_a_pod_that_a_rule_lets_go_later_is_waited_for(status: int, said: str) -> None:
    """kubereboot/kured#1269 and Azure/AKS#4720: the webhook refuses until its operator has moved the pod."""
    api = Api(node(), pod("kafka-0"))
    refused_by_rule(api, status, said)
    api.events.append((130.0, lambda: api.pop("Pod", "team", "kafka-0")))
    drain(api, evict_timeout=60)
    assert names(api) == [] and api.asked.count("POST eviction") > 1


@pytest.mark.parametrize("status, said", [(429, WEBHOOK), (422, POLICY)])
def test_a_rule_that_never_lets_a_pod_go_is_named(status: int, said: str) -> None:
    api = Api(node(), pod("kafka-0", labels={"app": "x"}), budget("keep", app="x"))
    refused_by_rule(api, status, said)
    with pytest.raises(NpuError) as caught:
        drain(api, evict_timeout=60)
    assert str(caught.value) == (
        "Node node-a was not drained within 60 s: team/kafka-0: %s Next: Ask the owner of this rule, or raise"
        " rbln_rollout_evict_timeout." % said
    )


DEAD = (
    'Internal error occurred: failed calling webhook "evict.example": failed to call webhook: Post'
    ' "https://evict.team.svc:443/": dial tcp 10.0.0.9:443: connect: connection refused'
)


def test_a_webhook_that_does_not_answer_is_named_and_not_the_api_server() -> None:
    """deckhouse/deckhouse#23007: its pod was unreachable, and the eviction was never asked again."""
    api = Api(node(), pod("a"))
    refused_by_rule(api, 500, DEAD)
    with pytest.raises(NpuError) as caught:
        drain(api, evict_timeout=30)
    assert 'team/a: failed calling webhook "evict.example": failed to call webhook' in str(caught.value)
    assert str(caught.value).endswith("Let the pods of this webhook run on other nodes, or remove the webhook.")
    api.events.append((140.0, lambda: api.pop("Pod", "team", "a")))
    drain(api, evict_timeout=60)
    assert names(api) == []


def comes_back(api: Api, delay: float = 0.0, **more: Any) -> None:
    """After each eviction the controller starts one more pod on the node; a StatefulSet when the last one has ended."""
    evict = api._evict
    count = [0]

    def again(name: str, *args: Any) -> Any:
        answer = evict(name, *args)
        count[0] += 1
        after = pod("web-%d" % count[0], **more)
        api.events.append((api.now + delay, lambda: api.put(after) and None))
        return answer

    api._evict = again  # type: ignore[method-assign]


EVERYWHERE = {**NPU, "tolerations": [{"operator": "Exists"}]}
STATEFUL = {"kind": "StatefulSet", "name": "db", "controller": True}


@pytest.mark.parametrize(
    "more, delay, step",
    [
        # cilium/tetragon#3484: it tolerates every taint, so also that of the cordon.
        ({"spec": EVERYWHERE}, 0, "Remove its toleration of node.kubernetes.io/unschedulable, or stop the ReplicaSet"),
        ({"spec": EVERYWHERE, "owner": STATEFUL}, 3, "stop the StatefulSet team/db until the run is over."),
        # Its template names the node, so no scheduler is asked.
        ({}, 0, "Stop the ReplicaSet team/rs, whose pods name this node, until the run is over."),
    ],
)
def test_a_pod_that_comes_back_to_the_cordoned_node_is_not_evicted_for_ever(
    more: dict[str, Any], delay: float, step: str
) -> None:
    api = Api(node(), pod("web-0", **more))
    comes_back(api, delay, **more)
    with pytest.raises(NpuError, match="team/web-2 is started again on this cordoned node by the .* each time") as out:
        drain(api, evict_timeout=300)
    assert step in str(out.value) and api.asked.count("POST eviction") == 2 and api.now < 160


def test_many_pods_of_one_controller_that_leave_are_none_that_come_back() -> None:
    api = Api(node(), *(pod("web-%d" % number) for number in range(5)))
    # Bound before the cordon was seen.
    api.events.append((101.0, lambda: api.put(pod("web-5")) and None))
    api.events.append((104.0, lambda: api.put(pod("web-6")) and None))
    drain(api)
    assert names(api) == []


def test_a_server_that_is_too_busy_for_its_budgets_does_not_end_the_drain() -> None:
    api = Api(node(), pod("a"))
    api.evictions = {"a": [500, 500, 201]}
    listing = api.list

    def busy(api_version: str, kind: str, *args: Any, **more: Any) -> Any:
        if kind == "PodDisruptionBudget":
            raise ApiError(500, "List PodDisruptionBudget", {"message": "etcdserver: request timed out"})
        return listing(api_version, kind, *args, **more)

    api.list = busy  # type: ignore[method-assign]
    drain(api)
    assert names(api) == []
    api.put(pod("a"))
    api.evictions = {"a": [429]}
    with pytest.raises(NpuError, match="not drained within 60 s: team/a: the API server answered with HTTP 429"):
        drain(api, evict_timeout=60)


def test_a_forced_deletion_without_an_answer_is_asked_again() -> None:
    api = Api(node(), pod("deaf", spec={**NPU, "terminationGracePeriodSeconds": 5}))
    api.ends = {"deaf": 1e9}
    request, lost = api.request, [True, True]

    def unanswered(method: str, *args: Any, **more: Any) -> Any:
        if method == "DELETE" and lost:
            lost.pop()
            raise NoAnswer("Delete pod team/deaf: the API server cannot be reached.", "Check it.")
        return request(method, *args, **more)

    api.request = unanswered  # type: ignore[method-assign]
    drain(api, force=True, evict_timeout=120)
    assert names(api) == [] and lost == []


def test_a_pod_that_ignores_its_grace_period_is_named_and_never_deleted_unasked() -> None:
    api = Api(node(), pod("deaf", spec={**NPU, "terminationGracePeriodSeconds": 10}))
    api.ends = {"deaf": 1e9}
    with pytest.raises(NpuError, match="team/deaf: its grace period of 10 s is over and it ignores it.*rollout_force"):
        drain(api, evict_timeout=60)
    assert names(api) == ["deaf"]


def test_a_pod_with_more_time_than_the_limit_is_no_fault_of_the_pod() -> None:
    api = Api(node(), pod("slow", spec={**NPU, "terminationGracePeriodSeconds": 600}))
    api.ends = {"slow": 500}
    with pytest.raises(NpuError, match="team/slow still ends, for which it has 600 s.*rollout_evict_timeout"):
        drain(api, evict_timeout=60)


@pytest.mark.parametrize("runs", [False, True])
def test_a_claim_that_nobody_gives_back_is_named(runs: bool) -> None:
    """NVIDIA/k8s-driver-manager#213: after a boot without a driver no pod of the DRA driver is there to do it."""
    claims = [{"name": "n", "resourceClaimName": "two-npus"}]
    api = Api(node(), pod("held", spec={**NPU, "resourceClaims": claims, "terminationGracePeriodSeconds": 10}))
    ready = {"conditions": [{"type": "Ready", "status": "True" if runs else "False"}]}
    labels = {**OURS, "app.kubernetes.io/component": "dra-driver"}
    owner = {"kind": "DaemonSet", "name": "dra", "controller": True}
    api.put(pod("dra-x", owner=owner, namespace="rbln-system", labels=labels, spec={"containers": []}, status=ready))
    api.ends = {"held": 1e9}
    claim = "it holds the ResourceClaim two-npus, which .* while a pod of dra-driver runs on the node. Next: Let that"
    with pytest.raises(NpuError, match="ignores it" if runs else claim):
        drain(api, evict_timeout=60, namespace="rbln-system")


def test_a_finalizer_is_named() -> None:
    api = Api(node(), pod("held"))
    api.items[("Pod", "team", "held")]["metadata"]["finalizers"] = ["example.com/save"]
    api.ends = {"held": 1e9}
    with pytest.raises(NpuError, match="finalizer example.com/save. Next: Find who removes the finalizer.$"):
        drain(api, evict_timeout=60)


def test_force_removes_only_what_ignores_its_grace_period() -> None:
    api = Api(node(), pod("deaf", spec={**NPU, "terminationGracePeriodSeconds": 5}), pod("good"))
    api.ends = {"deaf": 1e9, "good": 2}
    drain(api, force=True, evict_timeout=120)
    assert names(api) == [] and api.asked.count("DELETE pods") == 1 and 20 <= api.now - 100 < 40
    blocked = Api(node(), pod("a", labels={"app": "x"}), budget("keep", app="x"))
    blocked.evictions = {"a": [429]}
    with pytest.raises(NpuError, match="PodDisruptionBudget"):
        drain(blocked, force=True, evict_timeout=60)
    assert names(blocked) == ["a"]


def test_grace_of_the_inputs_is_sent() -> None:
    api = Api(node(), pod("a"))
    api.ends = {"a": 1e9}
    with pytest.raises(NpuError, match="its grace period of 3 s"):
        drain(api, grace=3, evict_timeout=60)


def test_a_refused_pod_stops_the_node_before_any_eviction() -> None:
    api = Api(node(), pod("a"), pod("bare", owner=None))
    with pytest.raises(NpuError, match="Node node-a cannot be drained: team/bare no controller.*Delete the pod"):
        drain(api)
    assert api.asked == ["list Pod"]


def test_jobs_are_waited_for_and_evicted_after_the_limit() -> None:
    api = Api(node(), pod("job", labels={"kind": "job"}), pod("a"))
    api.events.append((130.0, lambda: api.pop("Pod", "team", "job")))
    _told, said = drain(api, wait_selector="kind=job", wait_timeout=600)
    assert 130 <= api.now and said == [states.JOBS, states.PODS] and api.asked.count("POST eviction") == 1
    late = Api(node(), pod("job", labels={"kind": "job"}))
    drain(late, wait_selector="kind=job", wait_timeout=20)
    assert late.now >= 120 and names(late) == []


def test_finished_jobs_are_not_waited_for() -> None:
    api = Api(node(), pod("job", labels={"kind": "job"}, status={"phase": "Succeeded"}))
    assert drain(api, wait_selector="kind=job", wait_timeout=600)[1] == [] and api.now == 100


@pytest.mark.parametrize(
    "more",
    [
        {"owner": {"kind": "DaemonSet", "name": "agent", "controller": True}},
        {"owner": None, "annotations": {"kubernetes.io/config.mirror": "x"}},
    ],
)
def test_pods_of_the_selector_that_never_end_are_not_waited_for(more: dict[str, Any]) -> None:
    api = Api(node(), pod("agent", labels={"kind": "job"}, spec={"containers": [{"name": "a"}]}, **more))
    assert drain(api, wait_selector="kind=job", wait_timeout=600)[1] == [] and api.now == 100


def test_pods_that_ask_to_stay_are_waited_for_and_then_end_the_drain() -> None:
    api = Api(node(), pod("train", annotations=STAY), pod("a"))
    with pytest.raises(NpuError, match="after 30 s these pods still run.*: team/train .*safe-to-evict=false"):
        drain(api, wait_timeout=30)
    assert names(api) == ["a", "train"]
    api.events.append((150.0, lambda: api.pop("Pod", "team", "train")))
    drain(api, wait_timeout=300)
    assert names(api) == []


def test_an_api_server_that_is_away_in_the_middle_does_not_end_the_drain() -> None:
    api = Api(node(), pod("a"), pod("b"))
    api.ends = {"a": 20, "b": 20}
    api.away = (101.0, 161.0)
    drain(api)
    assert names(api) == []


NO_ROLES = (
    'pods is forbidden: User "mover" cannot list resource "pods" in API group "" at the cluster scope: RBAC:'
    ' [clusterrole.rbac.authorization.k8s.io "mover" not found, clusterrole.rbac.authorization.k8s.io "x" not found]'
)


@pytest.mark.parametrize("said, waits", [(NO_ROLES, True), (NO_ROLES.partition(": RBAC")[0], False)])
def test_an_api_server_that_has_just_started_and_knows_no_roles_does_not_end_the_drain(said: str, waits: bool) -> None:
    """kubernetes/kubernetes#121635: it answers before it has read who may do what."""
    api = Api(node(), pod("a"))
    listing = api.list

    def starting(api_version: str, kind: str, *args: Any, **more: Any) -> Any:
        if 101 <= api.now < 130:
            raise ApiError(403, "List Pod objects", {"message": said})
        return listing(api_version, kind, *args, **more)

    api.list = starting  # type: ignore[method-assign]
    api.ends = {"a": 20}
    if waits:
        drain(api)
        assert names(api) == []
    else:
        with pytest.raises(ApiError, match="not allowed"):
            drain(api)


def test_claims_are_read_once_for_each_look() -> None:
    plain = {"containers": [{"name": "a"}], "resourceClaims": [{"name": "n", "resourceClaimName": "c"}]}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
             "metadata": {"name": "c", "namespace": "team"},
             "status": {"allocation": {"devices": {"results": [{"driver": "npu.rebellions.ai"}]}}}}  # fmt: skip
    api = Api(node(), pod("a", spec=plain), pod("b", spec=plain), claim)
    told, _said = drain(api)
    assert told == ["Node node-a: evicts team/a, team/b."] and api.asked[:3] == [
        "list Pod",
        "get ResourceClaim",
        "POST eviction",
    ]


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_a_claim_of_an_older_cluster_holds_too(version: str) -> None:
    """Before Kubernetes 1.34 a server has no v1 of it, and answers as for a claim that is gone."""
    plain = {"containers": [{"name": "a"}], "resourceClaims": [{"name": "n", "resourceClaimName": "c"}]}
    claim = {"apiVersion": "resource.k8s.io/" + version, "kind": "ResourceClaim",
             "metadata": {"name": "c", "namespace": "team"},
             "spec": {"devices": {"requests": [{"name": "n", "deviceClassName": "npu.rebellions.ai"}]}}}  # fmt: skip
    api = Api(node(), pod("a", spec=plain), claim)
    reading = api.get

    def served(api_version: str, *args: str) -> Any:
        found = reading(api_version, *args)
        return found if found and found["apiVersion"] == api_version else None

    api.get = served  # type: ignore[method-assign]
    assert drain(api)[0] == ["Node node-a: evicts team/a."] and names(api) == []


OURS = {"app.kubernetes.io/part-of": "rebellions-npu", "app.kubernetes.io/component": "device-plugin"}
GATE = "rebellions.ai/npu.deploy.device-plugin"


def component(api: Api, name: str = "plugin-x") -> dict[str, Any]:
    owner = {"kind": "DaemonSet", "name": "rbln-device-plugin", "controller": True}
    return pod(name, owner=owner, namespace="rbln-system", labels=OURS, spec={"containers": [{"name": "p"}]})


def leave(api: Api, **policy: Any) -> None:
    writer = NodeWriter(api, NODE, "run", clock=api.clock, sleep=api.sleep)  # type: ignore[arg-type]
    writer.cordon(states.PODS, 1, components=["device-plugin"])
    given = Policy(**{"namespace": "rbln-system", "components": ("device-plugin",), **policy})
    leave_node(writer, given, lambda text: None, api.clock, api.sleep)


def test_components_leave_by_their_gates_after_the_pods() -> None:
    api = Api(node(labels={GATE: "true"}), pod("a"))
    api.put(component(api))
    api.events.append((104.0, lambda: api.pop("Pod", "rbln-system", "plugin-x")))
    leave(api)
    assert names(api) == [] and api.node()["metadata"]["labels"][GATE] == "false"
    assert api.asked.count("POST eviction") == 1


def test_components_that_do_not_leave_are_named() -> None:
    api = Api(node(labels={GATE: "true"}))
    api.put(component(api))
    with pytest.raises(NpuError, match="did not leave within 60 s: rbln-system/plugin-x.*DaemonSet controller"):
        leave(api, evict_timeout=60)


def test_a_pod_that_was_bound_before_the_cordon_is_evicted_at_the_last_look() -> None:
    api = Api(node(labels={GATE: "true"}))
    api.put(component(api))
    api.events.append((101.0, lambda: api.put(pod("late")) and None))
    api.events.append((103.0, lambda: api.pop("Pod", "rbln-system", "plugin-x")))
    leave(api)
    assert names(api) == []


def test_leaving_and_returning_costs_a_bounded_number_of_requests() -> None:
    api = Api(node(labels={GATE: "true", "rebellions.ai/npu.present": "true"}))
    leave(api)
    writer = NodeWriter(api, NODE, "run", clock=api.clock, sleep=api.sleep)  # type: ignore[arg-type]
    writer.state(states.HOST)
    back = NodeWriter(api, NODE, "run", clock=api.clock, sleep=api.sleep)  # type: ignore[arg-type]
    back.open_gates()
    back.done()
    assert api.requests <= 9, api.asked
