# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts of one cluster, cut by its nodes, pods and slices: what is refused, foretold, and waited for later."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.api import ApiError
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.transport import NoAnswer
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.pools import OUR_POOL
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.parts import GATE_PREFIX, OURS
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout import gather, states
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.gather import Cut, Gathering, Hosts
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.places import Place
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.settings import Settings
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.store import RunStore
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.turns import foretold
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.rollout_api import Api, budget, node, pod

Data = dict[str, Any]
UUID = "4c4c4544-0051-3610-8052-b4c04f4e4d3%d"
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "rbln-system"}}
RESOURCE = "rebellions.ai/npu"
GIVEN = {
    "enabled": True,
    **dict.fromkeys(("before", "after", "unmanaged", "wait_selector"), ""),
    **{"smoke": False, "pods": "npu", "empty_dir": "delete", "wait_timeout": 1.0, "evict_timeout": 1.0},
    **{"grace": -1, "force": False, "pause_components": ["device-plugin"]},
}
GATES = {GATE_PREFIX + name: "true" for name in ("device-plugin", "dra-driver", "metrics-exporter")}


class HostVars(dict[str, Any]):
    def raw_get(self, host: str) -> Any:
        return self[host]


def machine(number: int, labels: Data | None = None, **allocatable: str) -> Data:
    """node-NUMBER, which is host-NUMBER."""
    found = node("node-%d" % number, labels)
    amounts = {name.replace("__", "/").replace("_", "."): value for name, value in allocatable.items()}
    return {**found, "status": {"nodeInfo": {"systemUUID": UUID % number}, "allocatable": amounts}}


def component(key: str, where: str, **more: Any) -> Data:
    labels = {**OURS, "app.kubernetes.io/component": key}
    owner = {"kind": "DaemonSet", "name": key, "controller": True}
    return pod(key, where, namespace="rbln-system", labels=labels, owner=owner, **more)


def plan(number: int, disruption: str = "evict") -> Data:
    facts = {"rbln": {"identity": {"system_uuid": UUID % number}, "pool_key": "p"}, "rbln_runtimes": {}}
    step = {"id": "driver.install", "role": "driver", "component": "driver", "disruption": disruption}
    return {"steps": [step], "stops": [], "observation": {"ansible_facts": facts}}


class Play(Gathering):
    """A run of these hosts, host-1 and so on, in one cluster with these objects."""

    def __init__(self, *items: Data, hosts: int = 1, dry_run: bool = False) -> None:
        self.api, self._dry_run, self.cut = Api(NAMESPACE, *items), dry_run, Cut()
        self.plans = {"host-%d" % number: plan(number) for number in range(1, hosts + 1)}

    def _open(self, inputs: Any, timeout: float = 30.0) -> Any:
        return self.api

    def _store(self, *more: Any, **named: Any) -> Any:
        return RunStore(self.api, inputs(), "", self.api.clock, self.api.sleep)  # type: ignore[arg-type]

    def _places(self, task_vars: Any, hosts: Any) -> list[Place]:
        return [self.place(list(hosts))]

    def place(self, hosts: list[str], **operands: Any) -> Place:
        return Place(("here", ""), inputs(**operands), GIVEN, hosts)  # type: ignore[arg-type]

    def task_vars(self) -> Data:
        return {"hostvars": HostVars({host: {} for host in self.plans}), "groups": {"all": list(self.plans)}}

    def of(self, *places: Place, unfinished: tuple[str, ...] = (), **operands: Any) -> dict[str, Data]:
        """{host: its turn}."""
        given = places or (self.place(list(self.plans), **operands),)
        self._gather(given, Hosts(self.plans, set(self.plans), unfinished), self.task_vars(), self.cut)
        return self.cut.turns


@pytest.fixture(autouse=True)
def pace(monkeypatch: pytest.MonkeyPatch) -> Data:
    """The pace of all pools."""
    own: Data = {}
    monkeypatch.setattr(gather.of_rollout, "judge_place", lambda given, operands: None)
    monkeypatch.setattr(gather.of_rollout, "settings_of", lambda given, pools: dict.fromkeys(pools, Settings(**own)))
    monkeypatch.setattr(gather, "require_rollout_rights", lambda *more: None)
    return own


def test_a_gate_alone_makes_nobody_wait_for_npus_that_nothing_offers() -> None:
    none: Data = {"device_plugin": {"enabled": False}}
    # Nobody has ever offered NPUs there: nothing can come.
    assert Play(machine(1, GATES)).of(**none)["host-1"]["offers"] is False
    # The kubelet knows a device plugin that does not run now.
    assert Play(machine(1, GATES, rebellions_ai__npu="0")).of(**none)["host-1"]["offers"] is True
    # What a run that was killed has stopped is not seen any more.
    assert Play(machine(1, GATES)).of(unfinished=("host-1",), **none)["host-1"]["offers"] is True
    # Without a gate nothing is waited for in any case.
    assert Play(machine(1)).of(**none)["host-1"]["offers"] is False


def test_a_dra_driver_of_others_or_ours_offers_the_npus_of_a_node() -> None:
    spec = {"driver": "npu.rebellions.ai", "nodeName": "node-1", "devices": [{}]}
    one = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": spec}
    for given in (
        {"device_plugin": {"enabled": False}},
        {"dra_driver": {"enabled": True}, "device_plugin": {"enabled": False}},
    ):
        play = Play(machine(1, GATES), machine(2, GATES), one, hosts=2)
        assert {host: turn["offers"] for host, turn in play.of(**given).items()} == {"host-1": True, "host-2": False}
        assert play.api.asked.count("list ResourceSlice") == 1
    other = {**one, "spec": {**spec, "driver": "gpu.example.com"}}
    assert Play(machine(1, GATES), other).of(device_plugin={"enabled": False})["host-1"]["offers"] is False


def test_our_device_plugin_may_offer_where_it_has_a_pod_even_a_broken_one() -> None:
    play = Play(machine(1, GATES), machine(2, GATES), component("device-plugin", "node-1"), hosts=2)
    assert {host: turn["offers"] for host, turn in play.of().items()} == {"host-1": True, "host-2": False}
    # A pod that offers nothing is no reason to wait.
    play = Play(machine(1, GATES), component("metrics-exporter", "node-1"))
    assert play.of()["host-1"]["offers"] is False


def test_nodes_that_no_limit_counts_are_named_before_the_first_act(pace: Data) -> None:
    ours = dict(zip(OUR_POOL, ("debian", "12", "6.1")))
    there = {"rebellions.ai/npu.present": "true"}
    nodes = (machine(1, there), machine(3, there), machine(4, rebellions_ai__npu="2"), machine(5))
    play = Play(*nodes, machine(6, {**there, **ours}))
    play.of()
    assert play.cut.warnings == [], "a rollout without limits counts no node"
    pace["max_unavailable"] = 1
    play = Play(*nodes, machine(6, {**there, **ours}))
    play.of()
    assert play.cut.warnings == [
        "Nodes with NPUs have no label with their operating system and kernel, so they are in no pool, and no limit of"
        " a rollout counts them: node-3, node-4. Next: Run the host part for them too, or Node Feature Discovery."
    ]


def test_hosts_of_a_cluster_whose_records_would_differ_are_refused() -> None:
    play = Play(machine(1), machine(2), hosts=2)
    with pytest.raises(NpuError, match="host-1 and host-2 belong to one cluster.*differ in rbln_operands_namespace"):
        play.of(play.place(["host-1"]), play.place(["host-2"], namespace="other"))
    assert play.api.asked == []
    # What makes no other record is not refused here, and each host goes by its own.
    own = play.place(["host-2"], device_plugin={"enabled": False})
    assert set(play.of(play.place(["host-1"]), own)) == {"host-1", "host-2"}


def test_check_mode_says_which_pods_go_and_what_is_in_the_way() -> None:
    items = (
        machine(1, GATES, rebellions_ai__npu="2"),
        pod("job", "node-1", labels={"app": "job"}),
        budget("keep", app="job"),
        component("device-plugin", "node-1"),
        pod("plain", "node-1", spec={"containers": []}),
    )
    turn = Play(*items, dry_run=True).of()["host-1"]
    assert foretold(turn) == {
        "changed": True,
        "goes": True,
        # Not that of the pod without NPUs, which stays.
        "leaving": ["uid-job", "uid-device-plugin"],
        "msg": "node-1 would be taken out of service. Of its pods the run evicts team/job; stops"
        " rbln-system/device-plugin; leaves 1 (hold no NPU). No disruption is allowed now by team/keep.",
    }
    turn = Play(*items, pod("lone", "node-1", owner=None), dry_run=True).of()["host-1"]
    with pytest.raises(NpuError, match="Node node-1 cannot be drained: team/lone no controller.* Next: Delete the pod"):
        foretold(turn)
    assert foretold({**turn, "left": "is of a later wave"})["goes"] is False
    # No pod leaves while only the runtime restarts.
    play = Play(*items, dry_run=True)
    play.plans["host-1"]["steps"][0].update(disruption="restart", component="containerd configuration")
    assert foretold(play.of()["host-1"])["leaving"] == []


def given_back(number: int) -> Data:
    found = machine(number, None)
    found["metadata"].update(labels={states.LABEL: states.FAILED}, annotations={states.RUN: "r1"})
    return found


def test_a_node_that_was_given_back_says_that_it_works_and_changed_means_written() -> None:
    play = Play(given_back(1), given_back(2), hosts=2)
    hosts = list(play.plans)
    assert play._say_works_again(play.task_vars(), play.plans, hosts) == (True, [])
    assert [play.api.node("node-%d" % number)["metadata"]["labels"][states.LABEL] for number in (1, 2)] == [
        states.DONE
    ] * 2
    # Nothing is left to write.
    assert play._say_works_again(play.task_vars(), play.plans, hosts) == (False, [])
    assert play._say_works_again(play.task_vars(), play.plans, []) == (False, [])


def test_a_node_that_may_not_be_written_is_a_warning_and_no_change() -> None:
    play = Play(given_back(1), given_back(2), hosts=2)
    write, refused = play.api.request, ["node-1", "node-2"]

    def request(method: str, path: str, what: str, *more: Any, **named: Any) -> Any:
        if path.rpartition("/")[2] in refused:
            raise ApiError(403, what, {"message": "nodes is forbidden"})
        return write(method, path, what, *more, **named)

    play.api.request = request  # type: ignore[method-assign]
    changed, told = play._say_works_again(play.task_vars(), play.plans, list(play.plans))
    assert changed is False and len(told) == 2 and all("not allowed: nodes is forbidden" in text for text in told)
    # One of them holds up no other.
    refused.remove("node-2")
    changed, told = play._say_works_again(play.task_vars(), play.plans, list(play.plans))
    assert changed is True and len(told) == 1
    assert play.api.node("node-2")["metadata"]["labels"][states.LABEL] == states.DONE


def test_an_api_server_that_is_away_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play(given_back(1), given_back(2), hosts=2)
    asked: list[str] = []

    def works_again(self: Any) -> bool:
        asked.append(self.name)
        raise NoAnswer("Label node: the API server cannot be reached.", "Check it.")

    monkeypatch.setattr("ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.node.NodeWriter.works_again",
                        works_again)  # fmt: skip
    changed, told = play._say_works_again(play.task_vars(), play.plans, list(play.plans))
    assert (changed, len(told), asked) == (False, 1, ["node-1"])


def test_hosts_are_of_one_place_only_where_all_inputs_of_their_cluster_are_alike() -> None:
    class Many(Gathering):
        def _variables(self, task_vars: Any) -> Any:
            names = ("a", "b", "c", "d")
            given = ("rbln-system", "other", "rbln-system", "rbln-system")
            found = {host: {"rbln_operands_namespace": name} for host, name in zip(names, given)}
            found["c"]["rbln_driver_version"], found["d"]["rbln_node_name"] = "3", "node-d"
            return found

        def _place(self, variables: Any) -> Place:
            operands = inputs(
                namespace=variables["rbln_operands_namespace"], node_name=variables.get("rbln_node_name", "")
            )
            return Place(("here", ""), operands, {"pods": "npu"}, [])  # type: ignore[arg-type]

    (places,) = Many()._clusters({}, "abcd")
    assert [sorted(place.hosts) for place in places] == [["a", "c", "d"], ["b"]]
    assert places[1].operands["namespace"] == "other"
