# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The acts on a cluster as one: what is in their results, and what they leave alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster import work as cluster_work
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster.status import write_status
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster.work import ClusterWork
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.outcome import judge_host
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.compare import reduce_both
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.parts import MANAGER
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.cluster_store import Store
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs

Data = dict[str, Any]
LABEL = "rebellions.ai/npu.present"


def node(name: str, **labels: str) -> Data:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": dict(labels)}}


def member(name: str, labels: Any = None, expected: int | None = 1) -> Data:
    word = {"system_uuid": None, "machine_id": None, "kubelet_name": None}
    return {
        **word,
        "host": name,
        "node_name": name,
        "address": "",
        "labels": {LABEL: "true"} if labels is None else labels,
        "expected": expected,
        "driver_managed": False,
        "lacks_proof": False,
        "awaits_driver": False,
    }


def work(store: Store, *members: Data, dry_run: bool = False, **given: Any) -> ClusterWork:
    return ClusterWork(store, inputs(**{"wait": False, **given}), members, dry_run)  # type: ignore[arg-type]


class Owner(Store):
    """A store that notes who owns the labels of a node, as server-side apply does."""

    def apply(self, item: Data, force: bool, dry_run: bool) -> tuple[bool, Data]:
        answer = super().apply(item, force, dry_run)
        if item["kind"] == "Node" and not dry_run:
            live = self.items[self.key(item)]
            wanted = item["metadata"]["labels"]
            owned = live["metadata"].pop("managedFields", [{"fieldsV1": {"f:metadata": {"f:labels": {}}}}])[0][
                "fieldsV1"
            ]["f:metadata"]["f:labels"]
            for name in [name[2:] for name in owned]:
                if name not in wanted:
                    live["metadata"]["labels"].pop(name, None)
            fields = {"f:metadata": {"f:labels": {"f:" + name: {} for name in wanted}}}
            live["metadata"]["managedFields"] = (
                [{"manager": MANAGER, "operation": "Apply", "fieldsV1": fields}] if wanted else []
            )
            if not wanted:
                live["metadata"].pop("managedFields")
        return answer


def test_one_result_of_labels_and_objects_and_the_second_writes_nothing() -> None:
    store = Owner(node("n1"))
    result = work(store, member("n1")).present()
    assert result["changed"] and result["nodes"]["n1"]["after"] == {LABEL: "true"}
    assert result["objects"]["DaemonSet rbln-system/rbln-validator"] == "created" and "failed" not in result
    assert [one["after_header"] for one in result["diff"]][:2] == ["Node n1", "Namespace rbln-system (created)"]
    store.writes.clear()
    store.requests = 0
    again = work(store, member("n1")).present()
    assert (again["changed"], again["diff"], store.writes) == (False, [], [])
    assert again["requests"] == 7


def test_check_mode_writes_nothing_and_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_work, "Waiter", None)
    store = Owner(node("n1"))
    result = work(store, member("n1"), dry_run=True, wait=True).present()
    assert result["changed"] and store.writes == [] and "waited" not in result


def test_a_failure_keeps_what_was_done_before() -> None:
    result = work(Owner(node("n1"), refuse={"NetworkPolicy": 403}), member("n1")).present()
    assert result["failed"] and "NetworkPolicy" in result["msg"] and result["nodes"]["n1"]["changed"] is True


def test_what_was_written_before_an_error_that_ends_everything_is_in_the_result() -> None:
    result = work(Owner(node("n1"), refuse={"NetworkPolicy": 403}), member("n1")).present()
    assert result["objects"]["Namespace rbln-system"] == "created" and result["changed"]
    store = Owner(node("n1"))
    work(store, member("n1")).present()
    delete = store.delete

    def away(item: Data, dry_run: bool) -> None:
        if item["kind"] == "NetworkPolicy":
            raise NpuError("The API server cannot be reached.", "Check.")
        delete(item, dry_run)

    store.delete = away  # type: ignore[method-assign]
    later = work(store, member("n1"), network_policy=False, device_plugin={"image": {"tag": "v9"}}).present()
    assert later["failed"] and later["msg"] == "The API server cannot be reached. Next: Check."
    assert later["objects"]["DaemonSet rbln-system/rbln-device-plugin"] == "changed" and [
        one["before_header"] for one in later["diff"]
    ]
    gone = work(store, member("n1")).absent()
    assert (
        gone["failed"]
        and gone["msg"] == "The API server cannot be reached. Next: Check."
        and gone["nodes"]["n1"]["changed"]
    )
    assert gone["objects"]["DaemonSet rbln-system/rbln-device-plugin"] == "deleted"


def test_a_component_that_is_refused_fails_the_task_with_its_name() -> None:
    result = work(Owner(node("n1"), refuse={"DaemonSet": 422}), member("n1")).present()
    assert (
        result["failed"]
        and result["msg"].startswith("validator: Apply DaemonSet rbln-validator")
        and " | device_plugin: " in result["msg"]
    )


def test_what_is_waited_for_is_in_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    class Waiter:
        def __init__(self, *arguments: Any, tell: Any) -> None:
            assert arguments[4] == {}

        def run(self) -> Data:
            problems = [{"component": "validator", "node": "n1", "text": "validator: no. Next: Look.", "fatal": False}]
            return {
                "ok": False,
                "components": {},
                "warnings": ["slow"],
                "seconds": 1,
                "problems": problems,
                "nodes": ["n1"],
                "judged": ["n1"],
            }

    monkeypatch.setattr(cluster_work, "Waiter", Waiter)
    store = Owner(node("n1"))
    result = work(store, member("n1"), wait=True).present()
    assert result["warnings"] == ["slow"] and result["msg"] == "After 1 s: validator: no. Next: Look."
    assert ("ConfigMap", "rbln-system", "rbln-status") in store.items
    assert work(store, member("n1"), wait=True).present()["changed"] is False
    # The status of a run that ended otherwise: it is written anew, which check mode could not know before.
    key = ("ConfigMap", "rbln-system", "rbln-status")
    store.items[key]["data"]["status.json"] = "{}"
    for dry_run in (True, False):
        assert work(store, member("n1"), dry_run=dry_run, wait=True).present()["changed"] is False
    assert "validator: no." in store.items[key]["data"]["status.json"]


@pytest.mark.parametrize("good", [True, False])
def test_a_host_whose_driver_has_come_is_looked_at_again(monkeypatch: pytest.MonkeyPatch, good: bool) -> None:
    class Waiter:
        def __init__(self, *_arguments: Any, tell: Any) -> None:
            pass

        def run(self) -> Data:
            waited = {"components": {}, "warnings": [], "seconds": 1, "problems": [], "nodes": [], "judged": []}
            return {**waited, "ok": good}

    monkeypatch.setattr(cluster_work, "Waiter", Waiter)
    store, members = Owner(node("n1"), node("n2")), [{**member("n1"), "awaits_driver": True}, member("n2")]
    result = work(store, *members, wait=True).present()
    assert result.get("brought", []) == (["n1"] if good else [])
    judged = judge_host("n2", {"cluster": "k", "actor": "n2", "applied": result})
    assert judged.get("again") == ({"features": [], "brought": ["n1"]} if good else None)
    assert "brought" not in work(store, member("n1"), member("n2"), wait=True).present()


EDITED = {
    "entries of other shapes": {"nodes": {"n1": {}, "n2": [1], "n3": {"reasons": "x"}, "n4": None, "n5": "x"}},
    "conditions that are no text": {"nodes": {"n1": {"ready_for_pooling": False, "conditions": [1], "reasons": []}}},
    "nodes are a list": {"nodes": ["n1"]},
    "no object": ["nodes"],
    "depth": "[" * 100000,
    "no JSON": "{",
}


@pytest.mark.parametrize("case", EDITED)
def test_a_status_that_somebody_edited_is_written_anew(case: str) -> None:
    live = EDITED[case]
    waited: Data = {"ok": True, "components": {}, "problems": [], "nodes": ["n1", "n2", "n3"], "judged": ["n8"]}
    store, key = Store(), ("ConfigMap", "rbln-system", "rbln-status")
    assert write_status(store, inputs(), waited)  # type: ignore[arg-type]
    store.items[key]["metadata"]["resourceVersion"] = "1"
    store.items[key]["data"]["status.json"] = live if isinstance(live, str) else json.dumps(live)
    for problems in ([], [{"component": "driver", "node": "n1", "text": "driver: no.", "fatal": True}]):
        assert write_status(store, inputs(), {**waited, "ok": not problems, "problems": problems})  # type: ignore[arg-type]
        told = json.loads(store.items[key]["data"]["status.json"])
        assert told["ready"] is (not problems) and sorted(told["nodes"]) == sorted(one["node"] for one in problems)


def test_a_status_that_may_not_be_written_fails_every_host(monkeypatch: pytest.MonkeyPatch) -> None:
    class Waiter:
        def __init__(self, *arguments: Any, tell: Any) -> None:
            pass

        def run(self) -> Data:
            return {
                "ok": True,
                "components": {},
                "warnings": [],
                "seconds": 1,
                "problems": [],
                "nodes": [],
                "judged": [],
            }

    def refuse(*arguments: Any) -> bool:
        raise NpuError("Apply ConfigMap rbln-status: not allowed.", "Give the right.")

    monkeypatch.setattr(cluster_work, "Waiter", Waiter)
    monkeypatch.setattr(cluster_work, "write_status", refuse)
    result = work(Owner(node("n1")), member("n1"), wait=True).present()
    assert (
        result["failed"]
        and result["msg"] == "After 1 s: all is there | Apply ConfigMap rbln-status: not allowed. Next: Give the right."
    )
    judged = judge_host("n1", {"cluster": "k", "actor": "n1", "applied": result, "error": result["msg"]})
    assert judged["failed"] and "rbln-status" in judged["result"]["error"]


def test_diff_names_labels_and_fields_and_writes_nothing() -> None:
    store = Owner(node("n1", team="a"))
    result = work(store, member("n1")).diff()
    assert result["changed"] is False and store.writes == []
    assert result["differences"][0] == {
        "object": "Node n1",
        "action": "changed",
        "fields": [{"path": "metadata.labels." + LABEL, "before": None, "after": "true"}],
        "error": "",
    }
    assert {one["object"] for one in result["differences"]} > {
        "Namespace rbln-system",
        "DaemonSet rbln-system/rbln-validator",
    }
    work(store, member("n1")).present()
    assert work(store, member("n1")).diff()["differences"] == []
    # Differences are shown of a host that has proven nothing too; check mode fails it, as the run does.
    unproven = {**member("n1"), "lacks_proof": True}
    assert work(store, unproven).diff()["nodes"]["n1"]["error"] == ""
    assert "has not proven" in work(store, unproven, dry_run=True).present()["nodes"]["n1"]["error"]


def test_absent_takes_all_away_and_is_done_once() -> None:
    store = Owner(node("n1"))
    work(store, member("n1")).present()
    assert work(store, member("n1")).absent()["changed"] is True
    assert set(store.items) == {("Node", "", "n1")} and store.items[("Node", "", "n1")]["metadata"]["labels"] == {}
    assert work(store, member("n1")).absent()["changed"] is False


def test_absent_of_a_part_of_the_hosts_leaves_the_objects() -> None:
    store = Owner(node("n1"), node("n2"))
    work(store, member("n1"), member("n2")).present()
    result = work(store, member("n1")).absent()
    assert (
        "The objects stay: n2 still carry our labels, or have NPUs." in result["warnings"][0]
        and ("DaemonSet", "rbln-system", "rbln-validator") in store.items
    )
    whole = work(store, member("n1"), absent_scope="cluster").absent()
    assert whole["changed"] and {key[0] for key in store.items} == {"Node"}


@pytest.mark.parametrize("label", [LABEL, "feature.node.kubernetes.io/pci-1200_1eff.present"])
def test_absent_of_a_part_of_the_hosts_leaves_the_objects_where_others_label_the_nodes(label: str) -> None:
    store = Owner(node("n1", **{label: "true"}), node("n2", **{label: "true"}), node("n3"))
    work(store, member("n1", {})).present()
    result = work(store, member("n1", {})).absent()
    assert (
        "The objects stay: n2 still carry" in result["warnings"][0]
        and ("DaemonSet", "rbln-system", "rbln-validator") in store.items
    )
    assert work(store, member("n1", {}), member("n2", {})).absent()["changed"] and {key[0] for key in store.items} == {
        "Node"
    }


def test_a_run_of_some_hosts_makes_the_objects_of_all() -> None:
    few, many = Owner(node("n1"), node("n2")), Owner(node("n1"), node("n2"))
    work(few, member("n1")).present()
    work(many, member("n1"), member("n2")).present()
    assert {key for key in few.items if key[0] != "Node"} == {key for key in many.items if key[0] != "Node"}


DRIVER = {"driver": {"enabled": True, "image": {"tag": "1"}, "manager": {"image": {"tag": "1"}}}}
SYSTEM = {"rebellions.ai/host.os-id": "debian", "rebellions.ai/host.os-version": "12"}


def test_a_driver_is_made_for_the_pools_of_all_live_nodes() -> None:
    store = Owner(
        node("n1"),
        node("n2", **{LABEL: "true", **SYSTEM, "rebellions.ai/host.kernel": "6.1"}),
        node("n3", **{LABEL: "true"}),
    )
    result = work(
        store, member("n1", {LABEL: "true", **SYSTEM, "rebellions.ai/host.kernel": "5.10"}), **DRIVER
    ).present()
    sets = {key[2] for key in store.items if key[0] == "DaemonSet" and "driver" in key[2]}
    assert sets == {"rbln-driver-debian-12-k5-10", "rbln-driver-debian-12-k6-1"}
    assert "The nodes n3 have an NPU and no label with their operating system and kernel" in result["warnings"][0]


@pytest.mark.parametrize("kernel", ["", "5.10"])
def test_without_a_write_a_driver_is_seen_for_the_labels_that_a_host_would_set(kernel: str) -> None:
    """Also when the kernel of the host is another one by now."""
    store = Owner(node("n1"))
    if kernel:
        work(store, member("n1", {LABEL: "true", **SYSTEM, "rebellions.ai/host.kernel": kernel}), **DRIVER).present()
    new = member("n1", {LABEL: "true", **SYSTEM, "rebellions.ai/host.kernel": "6.1"})
    store.writes.clear()
    told = {one["object"]: one["action"] for one in work(store, new, **DRIVER).diff()["differences"]}
    tried = work(store, new, dry_run=True, **DRIVER).present()
    assert store.writes == [] and tried["warnings"] == []
    done = work(store, new, **DRIVER).present()["objects"]
    wanted = {name: action for name, action in done.items() if "DaemonSet" in name and action != "unchanged"}
    assert wanted["DaemonSet rbln-system/rbln-driver-debian-12-k6-1"] == "created"
    assert {name: action for name, action in told.items() if "DaemonSet" in name} == wanted
    assert {
        name: action for name, action in tried["objects"].items() if "DaemonSet" in name and action != "unchanged"
    } == wanted


def test_what_a_cluster_does_not_serve_is_refused_before_anything_is_written() -> None:
    store = Owner(node("n1"))
    with pytest.raises(NpuError, match="does not serve resource.k8s.io/v1"):
        work(
            store, member("n1"), device_plugin={"enabled": False}, dra_driver={"enabled": True, "image": {"tag": "1"}}
        ).present()
    assert store.writes == []


WITHOUT_PLUGIN = {"device_plugin": {"enabled": False}}
CHANGES: dict[str, tuple[Any, dict[str, Any]]] = {
    "from nothing": (None, {}),
    "nothing": ({}, {}),
    "image": ({}, {"registry": "other.local"}),
    "labels of objects": ({}, {"labels": {"team": "npu"}}),
    "a component less": ({}, WITHOUT_PLUGIN),
    "a component more": (WITHOUT_PLUGIN, {}),
    "removal": ({}, {"state": "absent"}),
}


@pytest.mark.parametrize("case", CHANGES)
def test_check_mode_foretells_each_object_and_label_of_a_change(case: str) -> None:
    before, after = CHANGES[case]
    store = Owner(node("n1"))
    if before is not None:
        work(store, member("n1", {LABEL: "true", "gate": "false"}), **before).present()
    store.writes.clear()
    act = "absent" if after.get("state") == "absent" else "present"
    ready = member("n1", {LABEL: "true", "gate": "true"})
    told = getattr(work(store, ready, dry_run=True, **after), act)()
    assert store.writes == []
    real = getattr(work(store, ready, **after), act)()
    assert told["changed"] is real["changed"] is True
    assert told["objects"] == real["objects"] and "failed" not in real
    assert told["nodes"] == real["nodes"] and real["nodes"]["n1"]["changed"]
    headers = [[(one["before_header"], one["after_header"]) for one in run["diff"]] for run in (told, real)]
    assert sorted(headers[0]) == sorted(headers[1])
    if before is not None:
        assert {one["after_header"]: one for one in told["diff"]} == {one["after_header"]: one for one in real["diff"]}
    again = getattr(work(store, ready, dry_run=True, **after), act)()
    assert (again["changed"], again["diff"]) == (False, [])


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        # A trial of an image: the strategy is another one meanwhile.
        (
            ({"image": "1", "how": {"type": "RollingUpdate", "max": 1}}, {"image": "2", "how": {"type": "OnDelete"}}),
            ({"how": {"type": "OnDelete"}}, {"how": {"type": "RollingUpdate", "max": 1}}),
            ({"image": "1"}, {"image": "2"}),
        ),
        (({"image": "1"}, {"image": "2"}), ({"image": "2"}, {"image": "1"}), ({}, {})),
        (({}, {"made": 1}), ({"made": 1, "a": {"b": 1}}, {"a": {"c": 2}}), ({"a": {"b": 1}}, {"a": {"c": 2}})),
        (({"gone": 1}, {}), ({}, {"gone": 3}), ({"gone": 1}, {"gone": 3})),
        (({"a": [1]}, {"a": [2]}), ({"a": [2]}, {"a": [3]}), ({"a": [1]}, {"a": [3]})),
    ],
)
def test_two_passes_over_an_object_are_one_difference(first: Any, second: Any, both: Any) -> None:
    assert reduce_both(first, second) == both


@pytest.mark.parametrize("created", [True, False])
def test_check_mode_foretells_what_becomes_of_the_namespace(created: bool) -> None:
    store = Owner(node("n1")) if created else Owner(node("n1"), namespace("rbln-system"))
    work(store, member("n1")).present()
    stranger = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs", "namespace": "rbln-system"}}
    if not created:
        store.apply(stranger, False, False)
    label = "Namespace rbln-system"
    told = work(store, member("n1"), dry_run=True).absent()["objects"][label]
    assert told == work(store, member("n1")).absent()["objects"][label] == ("deleted" if created else "changed")


def namespace(name: str) -> Data:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {}}}
