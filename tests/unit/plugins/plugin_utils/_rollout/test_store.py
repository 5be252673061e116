# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record in its ConfigMap: compare and swap, what people say on it, one look for all processes."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster.inventory import KEPT
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster.namespace import CREATED
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout import states
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.record import (
    NodeRecord,
    PoolRecord,
    Record,
    from_json,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.store import COMPONENT, TICK, RunStore
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.rollout_api import Api, node

NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "rbln-system"}}
MAP = ("ConfigMap", "rbln-system", "rbln-rollout")
START = "2026-11-29T12:00:00Z"


def record(*names: str, **more: str) -> Record:
    nodes = {name: NodeRecord("pool", 1, more[name], START, run="run") if name in more else NodeRecord("pool", 1)
             for name in names}  # fmt: skip
    return Record("id", "goal", START, "run", {"pool": PoolRecord((names,))}, nodes)


def store(api: Api, folder: Path | str = "") -> RunStore:
    return RunStore(api, inputs(), str(folder), api.clock, api.sleep)  # type: ignore[arg-type]


def begin(one: RunStore, name: str) -> str:
    """Take a slot for a node; who had it before."""

    def judge(now: Record | None) -> tuple[Record | None, str]:
        assert now is not None
        entry = now.nodes[name]
        taken = dataclasses.replace(entry, state=states.CORDON, since=START)
        return dataclasses.replace(now, nodes={**now.nodes, name: taken}), entry.state

    return one.change(judge)


def test_the_record_is_made_and_changed_by_compare_and_swap() -> None:
    api = Api(NAMESPACE)
    one, other = store(api), store(api)
    assert one.read() == (None, "", "")
    assert one.change(lambda now: (record("a", "b"), now)) is None
    assert other.read()[0] == record("a", "b")
    assert begin(one, "a") == states.REQUIRED and begin(other, "b") == states.REQUIRED
    kept = from_json(api.items[MAP]["data"]["run"])
    assert {name: entry.state for name, entry in kept.nodes.items()} == {"a": states.CORDON, "b": states.CORDON}
    assert api.items[MAP]["metadata"]["labels"]["app.kubernetes.io/component"] == COMPONENT and COMPONENT in KEPT


def test_who_was_slower_judges_again_what_the_faster_one_wrote() -> None:
    api = Api(NAMESPACE)
    one, other = store(api), store(api)
    one.change(lambda now: (record("a"), None))
    other.read()
    begin(one, "a")
    seen: list[str] = []

    def judge(now: Record | None) -> tuple[Record | None, bool]:
        assert now is not None
        seen.append(now.nodes["a"].state)
        return (now, False) if now.nodes["a"].under_way else (record("a", a=states.CORDON), True)

    assert other.change(judge) is False
    assert seen == [states.REQUIRED, states.CORDON]


def test_nothing_is_written_for_the_same_record() -> None:
    api = Api(NAMESPACE)
    one = store(api)
    one.change(lambda now: (record("a"), None))
    asked = api.requests
    assert one.change(lambda now: (now, "same")) == "same" and one.change(lambda now: (None, "none")) == "none"
    assert api.requests == asked


def test_a_change_costs_one_request_where_nobody_else_writes() -> None:
    api = Api(NAMESPACE)
    one = store(api)
    one.change(lambda now: (record("a", "b"), None))
    asked = api.requests
    begin(one, "a")
    begin(one, "b")
    assert api.requests == asked + 2


def test_pause_abort_and_approval_are_read_with_the_record() -> None:
    api = Api(NAMESPACE)
    one = store(api)
    one.change(lambda now: (record("a"), None))
    for word, held in (("pause", "pause"), ("Abort", "abort"), ("resume", ""), ("stop", "stop")):
        live = api.items[MAP]
        live["metadata"]["labels"][states.HOLD] = word
        live["metadata"]["annotations"] = {states.APPROVED: "1,2"}
        api.put(live)
        said: list[str] = []
        one.change(lambda now: (record("a", a=states.DONE), said.append(one.held)))  # noqa: B023
        assert said[-1] == held and one.read()[1:] == (held, "1,2")
        assert api.items[MAP]["metadata"]["labels"][states.HOLD] == word
        one.change(lambda now: (record("a"), None))


def test_what_was_approved_is_of_one_rollout() -> None:
    api = Api(NAMESPACE)
    one = store(api)
    one.change(lambda now: (record("a"), None))
    live = api.items[MAP]
    live["metadata"]["labels"][states.HOLD] = states.PAUSE
    live["metadata"]["annotations"] = {states.APPROVED: "all", "team": "x"}
    api.put(live)
    store(api).change(lambda now: (dataclasses.replace(record("a", "b"), run="run-2"), None))
    assert one.read()[1:] == (states.PAUSE, "all")
    store(api).change(lambda now: (dataclasses.replace(record("b"), id="next", goal="next"), None))
    assert one.read()[1:] == (states.PAUSE, "") and api.items[MAP]["metadata"]["annotations"] == {"team": "x"}


def test_a_record_that_was_deleted_is_seen_as_none() -> None:
    api = Api(NAMESPACE)
    one = store(api)
    one.change(lambda now: (record("a"), None))
    api.pop(*MAP)
    seen: list[Any] = []
    one.change(lambda now: (seen.append(now), (record("b"), None))[1])
    assert seen == [record("a"), None] and from_json(api.items[MAP]["data"]["run"]) == record("b")


def test_a_cluster_without_our_namespace_gets_it_with_our_mark() -> None:
    api = Api()
    store(api).change(lambda now: (record("a"), None))
    assert api.items[("Namespace", "", "rbln-system")]["metadata"]["annotations"] == {CREATED: "true"}
    assert MAP in api.items


def test_a_damaged_record_is_an_error() -> None:
    api = Api(NAMESPACE)
    store(api).change(lambda now: (record("a"), None))
    api.items[MAP]["data"]["run"] = "{"
    with pytest.raises(NpuError, match="record of the rollout is damaged"):
        store(api).change(lambda now: (record("b"), None))


def test_a_lost_answer_is_asked_again_and_an_endless_race_ends() -> None:
    api = Api(NAMESPACE)
    one = store(api)
    one.change(lambda now: (record("a"), None))
    api.away = (api.now, api.now + 30)
    assert begin(one, "a") == states.REQUIRED
    api.before_write = lambda: api.put(api.items[MAP]) and None
    with pytest.raises(NpuError, match="ConfigMap rbln-system/rbln-rollout is written by others all the time"):
        begin(one, "a") and one.change(lambda now: (record("z"), None))


def test_one_look_serves_all_processes_for_a_tick(tmp_path: Path) -> None:
    api = Api(NAMESPACE, node("a"), node("b", spec={"unschedulable": True}, ready=False))
    processes = [store(api, tmp_path) for _number in range(20)]
    processes[0].change(lambda now: (record("a"), None))
    asked = api.requests
    looks = [one.look() for one in processes]
    assert api.requests == asked + 2 and all(look == looks[0] for look in looks)
    assert [(one.name, one.ready, one.schedulable) for one in looks[0].nodes] == [
        ("a", True, True),
        ("b", False, False),
    ]
    begin(processes[3], "a")
    look = processes[4].look().record
    assert look is not None and look.nodes["a"].under_way and api.requests == asked + 3
    api.now += TICK
    assert processes[5].nodes()[0].name == "a" and api.requests == asked + 5


def test_what_was_kept_is_for_the_user_alone_and_damage_is_looked_up_again(tmp_path: Path) -> None:
    api = Api(NAMESPACE, node("a"))
    one = store(api, tmp_path)
    one.look()
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    kept = sorted(path for path in tmp_path.iterdir() if path.suffix != ".lock")
    assert [path.suffix for path in kept] == [".map", ".nodes"]
    for text, paths in (("", kept), ("[]", kept), ('{"at": 1', kept[:1]), ("{}", kept[1:])):
        for path in paths:
            path.write_text(text)
        assert [view.name for view in store(api, tmp_path).nodes()] == ["a"]


def test_a_node_that_we_changed_is_known_to_all_at_once(tmp_path: Path) -> None:
    api = Api(NAMESPACE, node("a"), node("b"))
    one, other = store(api, tmp_path), store(api, tmp_path)
    one.look()
    api.node("a")["spec"]["unschedulable"] = True
    one.saw(api.node("a"))
    assert {view.name: view.schedulable for view in other.nodes()} == {"a": False, "b": True}


def test_the_pool_of_a_node_is_that_of_the_record_else_of_its_labels() -> None:
    labels = {"rebellions.ai/host.os-id": "ubuntu", "rebellions.ai/host.os-version": "24.04",
              "rebellions.ai/host.kernel": "6.8.0-90-generic"}  # fmt: skip
    api = Api(NAMESPACE, node("a", labels), node("b", labels), node("c"), node("d", theirs={states.SKIP: "True"}))
    one = store(api)
    one.change(lambda now: (record("a"), None))
    views = {view.name: view for view in one.nodes()}
    assert views["a"].pool == "pool" and views["b"].pool.startswith("ubuntu") and views["c"].pool == ""
    assert views["d"].skip and not views["a"].skip


def test_the_taint_of_an_autoscaler_is_known_to_all_processes(tmp_path: Path) -> None:
    taints = {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "value": "17", "effect": "NoSchedule"}]}
    soft = {"taints": [{"key": "DeletionCandidateOfClusterAutoscaler", "value": "17", "effect": "PreferNoSchedule"}]}
    spot = {"taints": [{"key": "cloud.google.com/gke-preemptible", "value": "true", "effect": "NoSchedule"}]}
    api = Api(NAMESPACE, node("a", spec=taints), node("b", spec=soft), node("c", spec=spot), node("d"))
    one, other = store(api, tmp_path), store(api, tmp_path)
    for looks in (one.nodes(), other.nodes()):
        told = {view.name: view.leaves for view in looks}
        assert told == {"a": "ToBeDeletedByClusterAutoscaler=17:NoSchedule", "b": "", "c": "", "d": ""}
        assert [view.name for view in looks if view.foreign and view.down] == ["a"]


def test_a_look_at_a_thousand_nodes_is_small(tmp_path: Path) -> None:
    big = {"rebellions.ai/l%d" % number: "x" * 20 for number in range(20)}
    api = Api(NAMESPACE, *(node("node-%04d" % number, big) for number in range(1000)))
    one = store(api, tmp_path)
    names = tuple("node-%04d" % number for number in range(1000))
    one.change(lambda now: (record(*names), None))
    assert len(one.look().nodes) == 1000
    assert len(json.dumps(api.items[MAP])) < 200_000
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 400_000


def test_all_labels_are_there_where_nodes_are_put_in_order(tmp_path: Path) -> None:
    api = Api(NAMESPACE, node("a", {"topology.kubernetes.io/zone": "z1"}))
    store(api, tmp_path).look()
    asked = api.requests
    assert store(api, tmp_path).look(whole=True).nodes[0].labels["topology.kubernetes.io/zone"] == "z1"
    assert api.requests == asked + 2 and store(api, tmp_path).look().nodes[0].labels == {}


LEASE = ("Lease", "rbln-system", "rbln-rollout")


def test_a_second_controller_waits_for_the_lease_that_looks_renew(tmp_path: Path) -> None:
    api = Api(node("a"))
    one = store(api, tmp_path)
    one.claim("run-1")
    assert api.items[LEASE]["spec"]["holderIdentity"].endswith("/run-1")
    second = store(api)
    second._inputs["lease_timeout"] = 5
    with pytest.raises(NpuError, match="Another run writes to this cluster: .*/run-1 holds the Lease rbln-rollout"):
        second.claim("run-2")
    worker = store(api, tmp_path)
    before = api.items[LEASE]["spec"]["renewTime"]
    api.now += 30
    worker.look()
    assert api.items[LEASE]["spec"]["renewTime"] != before
    asked = api.requests
    api.now += TICK
    worker.look()
    assert api.requests == asked + 2
    worker.release()
    second.claim("run-2")
    assert api.items[LEASE]["spec"]["holderIdentity"].endswith("/run-2")


def test_a_lease_that_was_lost_stops_nobody_and_a_dead_holder_is_replaced(tmp_path: Path) -> None:
    api = Api(NAMESPACE, node("a"))
    one = store(api, tmp_path)
    one.claim("run-1")
    second = store(api)
    second.claim("run-2")
    assert 60 <= api.now - 100 < 70 and api.items[LEASE]["spec"]["holderIdentity"].endswith("/run-2")
    assert [view.name for view in one.look().nodes] == ["a"]
    asked = api.requests
    api.now += 2 * TICK
    one.look()
    assert api.requests == asked + 2
    one.release()
    assert api.items[LEASE]["spec"]["holderIdentity"].endswith("/run-2")
