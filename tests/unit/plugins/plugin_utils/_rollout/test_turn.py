# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way of one node: its turn, its leave, its return; what is left of it after each kind of failure."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any, Callable, Sequence

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.api import ApiError
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.parts import OURS
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout import states
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.decide import Begin, Skip
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.node import NodeWriter
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.pods import KEEP, Policy
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.record import NodeRecord, PoolRecord, Record
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.settings import Settings
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.store import RunStore
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.turn import (
    Back,
    Refused,
    Turn,
    is_unfinished,
    not_back,
    was_given_back,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.window import read_windows
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.rollout_api import NODE, Api, node, pod

RUN, POOL, NPUS = "run-1", "pool", 2
START = datetime.datetime(2026, 11, 29, 12, tzinfo=datetime.timezone.utc)
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "rbln-system"}}
POLICY = Policy(evict_timeout=20.0)
BACK = Back(inputs(), NPUS, 60.0)


def offering(name: str = NODE, npus: int = NPUS, **more: Any) -> dict[str, Any]:
    found = node(name, **more)
    found["status"] = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "allocatable": {"rebellions.ai/npu": str(npus)},
    }
    return found


class Way:
    """A turn on an API server, with what is there before."""

    def __init__(self, *items: Any, waves: tuple[tuple[str, ...], ...] = ((NODE,),), **entries: NodeRecord) -> None:
        self.api = Api(NAMESPACE, *(items or (offering(),)))
        self.store = RunStore(self.api, inputs(), "", self.api.clock, self.api.sleep)  # type: ignore[arg-type]
        nodes = {
            name: entries.get(name.replace("-", "_"), NodeRecord(POOL, wave))
            for wave, names in enumerate(waves, 1)
            for name in names
        }
        fresh = Record("id", "goal", states.stamp(START), RUN, {POOL: PoolRecord(waves)}, nodes)
        self.store.change(lambda record: (fresh, None))
        self.waited: list[str] = []
        self.turn = self.of(RUN)

    def of(self, run: str) -> Turn:
        writer = NodeWriter(self.api, NODE, run, self.now, self.api.clock, self.api.sleep)  # type: ignore[arg-type]
        return Turn(self.store, run, NODE, self.waited.append, writer, self.now, self.api.clock, self.api.sleep)

    def now(self) -> datetime.datetime:
        return START + datetime.timedelta(seconds=self.api.now - 100)

    def begin(
        self, query: Callable[[], bool | None] = lambda: None, together: Sequence[str] = (), **pace: Any
    ) -> Begin | Skip:
        return self.turn.begin({POOL: Settings(**pace)}, query, together)

    def leave(self) -> None:
        turn = self.begin()
        assert isinstance(turn, Begin)
        self.turn.drain(POLICY, lambda text: None, self.turn.cordon(turn, POLICY))

    def entry(self) -> NodeRecord:
        record = self.store.read()[0]
        assert record is not None
        return record.nodes[NODE]

    def seen(self) -> tuple[str, bool, bool]:
        """(state, cordoned, tainted)."""
        live = self.api.node()
        taints = [one["key"] for one in live.get("spec", {}).get("taints") or []]
        state = (live["metadata"].get("labels") or {}).get(states.LABEL, "")
        return state, bool(live.get("spec", {}).get("unschedulable")), states.FAILED_TAINT in taints


def test_a_node_leaves_and_comes_back() -> None:
    way = Way(offering(), pod("job"))
    way.leave()
    assert way.seen() == (states.HOST, True, False) and way.entry().state == states.CORDON
    assert ("Pod", "team", "job") not in way.api.items
    assert way.turn.come_back(BACK) is True
    assert way.seen() == (states.DONE, False, False) and way.entry().state == states.DONE
    # Nothing is done twice.
    assert way.turn.come_back(BACK) is False


def test_pods_that_run_on_stay_on_a_node_that_is_out_of_service() -> None:
    way = Way(offering(), pod("job"))
    turn, policy = way.begin(), dataclasses.replace(POLICY, pods=KEEP)
    assert isinstance(turn, Begin)
    way.turn.drain(policy, lambda text: None, way.turn.cordon(turn, policy))
    assert way.seen() == (states.HOST, True, False) and ("Pod", "team", "job") in way.api.items
    assert way.turn.come_back(BACK) is True and way.seen() == (states.DONE, False, False)


def test_a_node_without_pods_needs_few_requests() -> None:
    way = Way(offering())
    meta = {**way.api.node()["metadata"], "labels": {states.GATE_PREFIX + "device-plugin": "true"}}
    way.api.apply({"apiVersion": "v1", "kind": "Node", "metadata": meta}, True, False)
    policy = dataclasses.replace(POLICY, components=("device-plugin",))
    # All nodes of a run share it.
    way.store.look()
    before = len(way.api.asked)
    turn = way.begin()
    assert isinstance(turn, Begin)
    way.turn.drain(policy, lambda text: None, way.turn.cordon(turn, policy))
    # In the play each act is a process of its own.
    assert way.of(RUN).come_back(BACK) is True
    assert len(way.api.asked) - before <= 11, way.api.asked[before:]
    assert way.seen() == (states.DONE, False, False)


def test_it_waits_until_its_npus_are_allocatable_again() -> None:
    way = Way(offering(npus=0))
    way.leave()
    seen = []

    def offer() -> None:
        seen.append(way.seen())
        way.api.put({**way.api.node(), "status": offering()["status"]})

    way.api.events.append((way.api.now + 17, offer))
    way.turn.come_back(BACK)
    assert seen == [(states.RESTART, True, False)]
    assert way.seen() == (states.DONE, False, False)
    assert "Node node-a: 0 of 60 s: waits until it is back: 0 rebellions.ai/npu allocatable, 2 expected" in way.waited


def test_a_node_that_is_not_back_stays_out_with_its_reason() -> None:
    way = Way(offering(npus=1))
    way.leave()
    with pytest.raises(
        NpuError, match="not back after 60 s: 1 rebellions.ai/npu allocatable, 2 expected.*taint"
    ) as told:
        way.turn.come_back(BACK)
    assert str(told.value).count(" Next: ") == 1
    assert way.seen() == (states.FAILED, True, True)
    # The record has the reason without a next step: a message of others repeats it.
    assert way.entry().state == states.FAILED and " Next: " not in way.entry().reason


def resource_slice(devices: int, name: str = NODE) -> dict[str, Any]:
    spec = {"driver": "npu.rebellions.ai", "nodeName": name, "devices": [{}] * devices}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "of-" + name},
        "spec": spec,
    }


def test_npus_that_the_dra_driver_offers_are_in_its_slices() -> None:
    by_dra = inputs(dra_driver={"enabled": True}, device_plugin={"enabled": False})
    for devices, why in ((1, "1 devices in the ResourceSlices of npu.rebellions.ai, 2 expected"), (2, "")):
        api = Api(offering(npus=0), resource_slice(devices), resource_slice(4, "node-b"))
        if not why:
            assert not_back(api, NODE, Back(by_dra, NPUS, 60.0)) == "it has no pod of dra-driver"  # type: ignore[arg-type]
        api.put(ours("dra-x", "dra-driver", True))
        assert not_back(api, NODE, Back(by_dra, NPUS, 60.0)).removeprefix("node node-a: ") == why  # type: ignore[arg-type]
    # Of a node that offered nothing no pod is waited for.
    assert not_back(Api(offering(npus=0)), NODE, Back(by_dra, 0, 60.0)) == ""  # type: ignore[arg-type]
    # The host does not know how many it has.
    api = Api(offering(npus=0), resource_slice(4, "node-b"), ours("dra-x", "dra-driver", True))
    unknown = Back(by_dra, None, 60.0)
    assert not_back(api, NODE, unknown).endswith("0 devices in the ResourceSlices of npu.rebellions.ai, some expected")  # type: ignore[arg-type]
    api.put(resource_slice(1))
    assert not_back(api, NODE, unknown) == ""  # type: ignore[arg-type]


def test_npus_of_virtual_machines_have_a_resource_of_their_own() -> None:
    machines = inputs(
        workload="vm-passthrough", vfio_manager={"enabled": True}, sandbox_device_plugin={"enabled": True}
    )
    live = offering(npus=0)
    assert "offers no function to virtual machines" in not_back(Api(live), NODE, Back(machines, None, 60.0))  # type: ignore[arg-type]
    alone = inputs(workload="vm-passthrough", device_plugin={"enabled": False})
    assert not_back(Api(live), NODE, Back(alone, None, 60.0)) == ""  # type: ignore[arg-type]
    live["status"]["allocatable"]["rebellions.ai/ATOM_PT"] = "2"
    assert not_back(Api(live), NODE, Back(machines, None, 60.0)) == ""  # type: ignore[arg-type]


def test_a_node_that_people_keep_the_plugin_off_offers_nothing() -> None:
    live = offering(npus=0, theirs={states.GATE_PREFIX + "device-plugin": "false"})
    assert not_back(Api(live), NODE, BACK) == ""  # type: ignore[arg-type]


@pytest.mark.parametrize("stopped", [True, False])
def test_what_a_plugin_offered_before_it_was_stopped_is_no_proof(stopped: bool) -> None:
    """Its kubelet reports the resource a while longer, and then refuses the pods that came for it."""
    plugin, gate = "device-plugin", {states.GATE_PREFIX + "device-plugin": "true"}
    way = Way(offering(labels=gate), *([ours("plugin-x", plugin, True)] if stopped else []))
    way.api.events.append((way.api.now + 3, lambda: way.api.pop("Pod", "rbln-system", "plugin-x")))
    turn, policy = way.begin(), dataclasses.replace(POLICY, components=(plugin,), namespace="rbln-system")
    assert isinstance(turn, Begin)
    left = way.turn.drain(policy, lambda text: None, way.turn.cordon(turn, policy))
    assert left.stopped == ([plugin] if stopped else [])
    back, start = BACK._replace(stopped=left.stopped), way.api.now
    way.api.events.append((start + 8, lambda: way.api.put(ours("plugin-y", plugin, False)) and None))
    way.api.events.append((start + 16, lambda: way.api.put(ours("plugin-y", plugin, True)) and None))
    assert way.of(RUN).come_back(back) is True and (way.api.now - start >= 16) is stopped
    assert any("it has no pod of device-plugin" in text for text in way.waited) is stopped


def test_a_plugin_of_others_is_waited_for_too() -> None:
    theirs = Back(inputs(device_plugin={"enabled": False}), NPUS, 60.0)
    assert not_back(Api(offering(npus=1)), NODE, theirs) == "1 rebellions.ai/npu allocatable, 2 expected"  # type: ignore[arg-type]
    assert not_back(Api(offering()), NODE, theirs) == ""  # type: ignore[arg-type]


@pytest.mark.parametrize(("devices", "driver", "back"), [
    (NPUS, "npu.rebellions.ai", True), (1, "npu.rebellions.ai", False), (NPUS, "gpu.example.com", False),
])  # fmt: skip
def test_a_dra_driver_of_others_offers_them_too(devices: int, driver: str, back: bool) -> None:
    theirs = Back(inputs(device_plugin={"enabled": False}), NPUS, 60.0)
    found = resource_slice(devices)
    found["spec"]["driver"] = driver
    why = "" if back else "0 rebellions.ai/npu allocatable, 2 expected"
    assert not_back(Api(offering(npus=0), found), NODE, theirs) == why  # type: ignore[arg-type]


def test_U03_drain_failed_before_the_host_part_the_node_is_given_back() -> None:
    way = Way(offering(), pod("stays", owner=None))
    with pytest.raises(NpuError, match="team/stays.*The host was not changed, and the node node-a is back in service"):
        way.leave()
    assert way.seen() == (states.FAILED, False, False) and way.entry().state == states.FAILED


@pytest.mark.parametrize("state", [states.HOST, states.VALIDATE, states.REBOOT])
def test_U03_drain_failed_after_the_host_part_began_the_node_stays_out(state: str) -> None:
    way = Way()
    way.leave()
    writer = way.turn._writer
    assert writer is not None
    writer.state(state)
    said = way.turn.failed(NpuError("Driver: It broke.", "Mend it."))
    assert said == "The node node-a stays cordoned, with the taint %s." % states.FAILED_TAINT
    assert way.seen() == (states.FAILED, True, True) and is_unfinished(way.api.node())


def test_U02_state_lost_a_node_of_a_killed_run_may_have_been_changed() -> None:
    way = Way()
    way.leave()
    way.store.change(lambda record: (Record("id", "goal", record.started, "run-2", record.pools, record.nodes), None))
    way.turn = way.of("run-2")
    turn = way.begin()
    assert isinstance(turn, Begin) and turn.resume
    assert way.turn.cordon(turn, POLICY) is True
    assert way.seen() == (states.HOST, True, False)
    # The former run no longer decides.
    assert way.of(RUN).failed(NpuError("It broke.")) == ""
    way.turn.come_back(BACK)
    assert way.seen() == (states.DONE, False, False)


def test_a_refusal_is_no_failure_of_the_node() -> None:
    failed = NodeRecord(POOL, 1, states.FAILED, states.stamp(START), "It broke.", RUN)
    way = Way(offering(), offering("node-b"), waves=(("node-b",), (NODE,)), node_b=failed)
    with pytest.raises(Refused, match="node-a was left as it is. .*node-b failed.*rbln_rollout_failure_budget"):
        way.begin(failure_budget=1)
    assert way.entry().state == states.REQUIRED and way.seen() == ("", False, False)


def test_a_host_of_an_earlier_wave_that_never_came_back_is_a_failure_and_is_not_waited_for() -> None:
    """The batch before has ended: nobody works on it any more."""
    for lost in (None, NodeRecord(POOL, 1, states.CORDON, states.stamp(START), "", RUN)):
        entries = {"node_b": lost} if lost else {}
        way = Way(offering(), offering("node-b"), waves=(("node-b",), (NODE,)), **entries)
        with pytest.raises(Refused, match="in wave 1, node-b failed"):
            way.begin(failure_budget=1)
        assert isinstance(way.begin(), Begin) and way.waited == []


def test_a_cordon_that_the_api_server_refuses_is_a_failure_of_the_record_too() -> None:
    way = Way()
    turn = way.begin()
    assert isinstance(turn, Begin)
    way.api.kubectl_cordon()
    writer = way.turn._writer
    assert writer is not None
    writer.read()
    with pytest.raises(NpuError, match="is cordoned, and not by this collection"):
        way.turn.cordon(turn, POLICY)
    assert way.entry().state == states.FAILED and way.seen() == ("", True, False)


def test_the_state_of_another_program_is_no_unfinished_rollout() -> None:
    live = offering(labels={states.LABEL: states.DRAIN})
    assert not is_unfinished(live)
    live["metadata"]["annotations"] = {states.RUN: RUN}
    assert is_unfinished(live)


def test_a_state_that_another_program_left_is_no_change_of_the_host() -> None:
    """The node is as it was: a drain that fails gives it back."""
    way = Way(offering(theirs={states.LABEL: states.RESTART}), pod("stays", owner=None))
    with pytest.raises(NpuError, match="The host was not changed, and the node node-a is back in service"):
        way.leave()
    assert way.seen() == (states.FAILED, False, False)


@pytest.mark.parametrize("label", [states.REQUIRED, states.DONE, None])
def test_a_label_that_another_program_writes_meanwhile_leaves_no_node_cordoned(label: str | None) -> None:
    way = Way()
    way.leave()
    way.api._merge(way.api.node(), {"metadata": {"labels": {states.LABEL: label}}}, "operator")
    way.api.put(way.api.node())
    assert is_unfinished(way.api.node())
    assert way.of(RUN).come_back(BACK) is True
    assert way.seen() == (states.DONE, False, False) and way.entry().state == states.DONE


def test_a_killed_run_whose_label_is_gone_may_have_changed_the_host() -> None:
    way = Way()
    way.leave()
    way.api._merge(way.api.node(), {"metadata": {"labels": {states.LABEL: None}}}, "operator")
    way.api.put(way.api.node())
    way.store.change(lambda record: (Record("id", "goal", record.started, "run-2", record.pools, record.nodes), None))
    way.turn = way.of("run-2")
    turn = way.begin()
    assert isinstance(turn, Begin)
    assert way.turn.cordon(turn, POLICY) is True and way.seen() == (states.HOST, True, False)


@pytest.mark.parametrize("pods", [KEEP, "npu"])
def test_a_node_that_others_uncordon_while_it_drains_is_not_changed(pods: str) -> None:
    """rancher/system-upgrade-controller#341: new pods come to it, and nobody has looked at them."""
    way = Way(offering(), pod("job"))
    turn = way.begin()
    assert isinstance(turn, Begin)
    policy = dataclasses.replace(POLICY, pods=pods)
    begun = way.turn.cordon(turn, policy)
    way.api.kubectl_cordon(False, "system-upgrade-controller")
    with pytest.raises(NpuError, match="node-a was uncordoned by others, .* while it was drained") as out:
        way.turn.drain(policy, lambda text: None, begun)
    assert "back in service" in str(out.value) and "Find who uncordons it" in str(out.value)
    assert way.seen() == (states.FAILED, False, False) and way.entry().state == states.FAILED


def test_a_node_whose_host_was_to_change_already_is_looked_at_again() -> None:
    way = Way()
    way.leave()
    writer = way.of(RUN)._writer
    assert writer is not None
    writer.read()
    way.api.kubectl_cordon(False)
    with pytest.raises(NpuError, match="was uncordoned by others"):
        writer.begin_host()


def test_it_waits_for_its_turn_and_says_so() -> None:
    under_way = NodeRecord(POOL, 1, states.CORDON, states.stamp(START), "", RUN)
    way = Way(offering(), offering("node-b"), waves=(("node-b", NODE),), node_b=under_way)

    def done(record: Record | None) -> tuple[Record | None, None]:
        assert record is not None
        ended = NodeRecord(POOL, 1, states.DONE, states.stamp(way.now()), "", RUN)
        return Record(
            record.id, record.goal, record.started, RUN, record.pools, {**record.nodes, "node-b": ended}
        ), None

    way.api.events.append((way.api.now + 30, lambda: way.store.change(done)))
    assert isinstance(way.begin(max_parallel=1), Begin)
    assert way.waited[0] == "node-a waits for its turn: rbln_rollout_max_parallel is 1: node-b"


def test_one_that_waits_for_a_host_that_waits_for_it_is_refused() -> None:
    """In a play of the strategy linear no host goes on before the others have left."""
    under_way = NodeRecord(POOL, 1, states.CORDON, states.stamp(START), "", RUN)
    way = Way(offering(), offering("node-b"), waves=(("node-b", NODE),), node_b=under_way)
    with pytest.raises(Refused, match="max_parallel is 1: node-b. The play has the strategy linear") as told:
        way.begin(max_parallel=1, together=["node-b"])
    assert " Next: Give the play that changes hosts the order, serial and strategy" in str(told.value)
    assert way.waited == [] and way.seen() == ("", False, False)


def test_time_that_a_window_takes_is_not_time_without_progress() -> None:
    done = NodeRecord(POOL, 1, states.DONE, states.stamp(START), "", RUN)
    way = Way(offering(), offering("node-b", spec={"unschedulable": True}), waves=((NODE, "node-b"),), node_b=done)
    closed = read_windows("w", [{"from": "14:00", "to": "20:00"}])
    began = way.api.now
    with pytest.raises(Refused, match="No node began or ended for 3600 s: .*node-b is cordoned"):
        way.begin(window=closed, max_unavailable=1)
    # Two hours until the window opens, and one after it.
    assert 3 * 3600 - 10 < way.api.now - began < 3 * 3600 + 60


def test_the_query_is_asked_when_only_it_is_missing() -> None:
    ended = NodeRecord(POOL, 1, states.DONE, states.stamp(START), "", RUN)
    way = Way(offering(), offering("node-b"), waves=(("node-b",), (NODE,)), node_b=ended)
    answers = [None, False, True]
    assert isinstance(way.begin(lambda: answers.pop(0), metrics=True), Begin)
    assert answers == [] and "says no" in way.waited[1]


def test_somebody_who_cordons_meanwhile_keeps_the_node() -> None:
    way = Way()
    assert way.store.look().nodes[0].schedulable
    way.api.kubectl_cordon()
    # The shared look is older than that; the node itself is asked before it is taken.
    outcome = way.begin()
    assert isinstance(outcome, Skip) and "cordoned by someone else" in outcome.reason
    record = way.store.read()[0]
    assert record is not None and way.seen() == ("", True, False) and NODE not in record.nodes


def test_one_more_proof_comes_before_the_uncordon() -> None:
    way = Way()
    way.leave()
    assert way.turn.come_back(BACK, uncordon=False) is True
    assert way.seen() == (states.VALIDATE, True, False) and way.entry().state == states.CORDON
    way.turn.come_back(BACK)
    assert way.seen() == (states.DONE, False, False)


def test_a_reboot_by_a_person_keeps_the_node_out_and_the_turn_free() -> None:
    way = Way()
    way.leave()
    way.turn.waits_for_reboot("A reboot is due.")
    assert way.seen() == (states.REBOOT, True, False) and way.entry().state == states.REBOOT


def test_a_node_that_was_given_back_says_so_until_its_host_works() -> None:
    way = Way(offering(), pod("stays", owner=None))
    with pytest.raises(NpuError):
        way.leave()
    assert was_given_back(way.api.node()) and not is_unfinished(way.api.node())
    writer = NodeWriter(way.api, NODE, "run-2", way.now, way.api.clock, way.api.sleep)  # type: ignore[arg-type]
    assert writer.works_again() is True
    assert way.seen() == (states.DONE, False, False)
    assert states.REASON not in way.api.node()["metadata"]["annotations"]
    assert not was_given_back(way.api.node()) and writer.works_again() is False


def test_a_node_that_is_out_of_service_after_its_failure_was_not_given_back() -> None:
    way = Way()
    way.leave()
    way.of(RUN).failed(NpuError("Driver: It broke.", "Mend it."))
    assert way.seen() == (states.FAILED, True, True) and not was_given_back(way.api.node())
    writer = NodeWriter(way.api, NODE, RUN, way.now, way.api.clock, way.api.sleep)  # type: ignore[arg-type]
    assert writer.works_again() is False
    # A person has removed the taint and not the cordon.
    way.api._merge(way.api.node(), {"metadata": {}, "spec": {"taints": None}}, "kubectl")
    assert not was_given_back(way.api.node())


def gone(way: Way) -> None:
    way.api.pop("Node", "", NODE)


DELETED = "The node node-a was deleted while the rollout worked on it."


def test_a_node_that_is_deleted_while_it_drains_holds_no_turn() -> None:
    way = Way(offering(), pod("slow"))
    way.api.ends["slow"] = 10
    way.api.events.append((way.api.now + 5, lambda: gone(way)))
    with pytest.raises(NpuError) as told:
        way.leave()
    assert told.value.message.count(DELETED) == 1
    assert way.entry().state == states.FAILED


def test_a_node_that_is_deleted_during_the_host_part_holds_no_turn() -> None:
    way = Way()
    way.leave()
    gone(way)
    with pytest.raises(NpuError, match=DELETED):
        way.of(RUN).come_back(BACK)
    assert way.entry().state == states.FAILED


def test_a_node_that_is_deleted_before_it_is_back_holds_no_turn() -> None:
    way = Way(offering(npus=0))
    way.leave()
    way.api.events.append((way.api.now + 12, lambda: gone(way)))
    with pytest.raises(NpuError, match=DELETED):
        way.of(RUN).come_back(BACK)
    assert way.entry().state == states.FAILED


def test_the_failure_of_a_host_whose_node_was_deleted_is_not_lost() -> None:
    way = Way()
    way.leave()
    gone(way)
    assert way.of(RUN).failed(NpuError("The driver does not load.", "Look.")) == DELETED
    assert way.entry().state == states.FAILED and way.entry().reason == "The driver does not load."
    way = Way()
    way.leave()
    gone(way)
    with pytest.raises(NpuError, match=DELETED):
        way.of(RUN).waits_for_reboot("A reboot is due.")
    assert way.entry().state == states.FAILED


def test_a_node_that_nobody_may_write_any_more_holds_no_turn() -> None:
    """A webhook, or a right that was taken: the way back is refused as the way there was."""
    way = Way(offering(), pod("stays", owner=None))
    turn = way.begin()
    assert isinstance(turn, Begin)
    begun = way.turn.cordon(turn, POLICY)

    def refuse(*_args: Any, **_more: Any) -> Any:
        raise ApiError(403, "Return node node-a", {"message": "denied by a policy"})

    way.api._merge = refuse  # type: ignore[method-assign]
    with pytest.raises(NpuError, match="team/stays.*Return node node-a: not allowed.*denied by a policy") as told:
        way.turn.drain(POLICY, lambda text: None, begun)
    assert "back in service" not in str(told.value)
    assert way.entry().state == states.FAILED


def test_a_node_that_was_created_anew_holds_no_turn() -> None:
    """A kubelet that registers its node again knows nothing of the rollout."""
    way = Way()
    way.leave()
    way.api.put(offering())
    with pytest.raises(NpuError, match="no longer says that the run run-1 works on it: its label .* is absent"):
        way.of(RUN).come_back(BACK)
    assert way.entry().state == states.FAILED and way.seen() == ("", False, False)
    way = Way()
    way.leave()
    way.api.put(offering())
    assert way.of(RUN).failed(NpuError("The driver does not load.", "Look.")) == ""
    assert way.entry().state == states.FAILED


def ours(name: str, component: str, ready: bool) -> dict[str, Any]:
    labels = {**OURS, "app.kubernetes.io/component": component}
    owner = {"kind": "DaemonSet", "name": component, "controller": True}
    status = {"conditions": [{"type": "Ready", "status": str(ready)}]}
    return pod(name, namespace="rbln-system", labels=labels, owner=owner, spec={}, status=status)


@pytest.mark.parametrize("pods", [KEEP, "npu"])
def test_a_component_that_was_broken_before_keeps_no_node_out_of_service(pods: str) -> None:
    """An image of the exporter that nobody can pull would take one node after the other out of service."""
    broken, works = ours("exporter-x", "metrics-exporter", False), ours("discovery-x", "feature-discovery", True)
    replaced = ours("smd-x", "smd", False)
    replaced["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    way = Way(offering(), broken, works, replaced, pod("job", status={"conditions": []}))
    way.api.events.append((way.api.now + 1, lambda: way.api.pop("Pod", "rbln-system", "smd-x")))
    turn, policy = way.begin(), Policy(pods=pods, namespace="rbln-system")
    assert isinstance(turn, Begin)
    told: list[str] = []
    unready = way.turn.drain(policy, told.append, way.turn.cordon(turn, policy)).unready
    assert unready == ["metrics-exporter"]
    assert told[-1] == "Node node-a: not ready before its change, so not waited for after it: metrics-exporter."
    way.api.pop("Pod", "rbln-system", "smd-x")
    # A new pod of the same component, and one that the change has broken.
    way.api.pop("Pod", "rbln-system", "exporter-x")
    way.api.put(ours("exporter-y", "metrics-exporter", False))
    way.api.put(ours("discovery-x", "feature-discovery", False))
    back = BACK._replace(unready=unready)
    both = "not ready: rbln-system/discovery-x, rbln-system/exporter-y"
    assert not_back(way.api, NODE, BACK) == both  # type: ignore[arg-type]
    assert not_back(way.api, NODE, back) == "not ready: rbln-system/discovery-x"  # type: ignore[arg-type]
    way.api.put(works)
    assert way.turn.come_back(back) is True and way.seen() == (states.DONE, False, False)
