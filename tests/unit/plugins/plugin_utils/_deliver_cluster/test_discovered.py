# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature discovery and our rule that are turned off, beside a Node Feature Discovery that goes on."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster import discovered
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster.work import ClusterWork
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.labels import NFD_NOTE, owned_labels
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.outcome import judge_host
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.parts import OURS
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils._deliver_cluster.test_acts import (
    Owner,
    member,
    node,
)
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs

Data = dict[str, Any]
PRESENT, COUNT, VERSION = "rebellions.ai/npu.present", "rebellions.ai/npu.count", "rebellions.ai/driver-version.full"
GATE = "rebellions.ai/npu.deploy.feature-discovery"
# What the host says with feature discovery, and what it says without it, after its driver was upgraded.
WITH: Data = {PRESENT: "true", GATE: "true"}
WITHOUT: Data = {PRESENT: "true", COUNT: "2", VERSION: "3.4.0"}
OLD: Data = {PRESENT: "true", COUNT: "2", VERSION: "3.2.2"}
RULED: Data = {PRESENT: "true", "rebellions.ai/npu.family": "ATOM", "rebellions.ai/npu.product": "RBLN-CA22"}
ON: Data = {"feature_discovery": {"enabled": True}}


class Discovered(Owner):
    """A cluster with Node Feature Discovery: `file` is what each node's file has, and rules of ours give labels too.

    Its master looks at every node at each third list of nodes, as slowly as the real one does.
    """

    def __init__(self, *nodes: Data, keeps: bool = False) -> None:
        super().__init__(*nodes)
        self.answers["/apis"] = {"groups": [{"name": "nfd.k8s-sigs.io", "versions": [{"version": "v1alpha1"}]}]}
        self.answers["/apis/nfd.k8s-sigs.io/v1alpha1"] = {
            "resources": [{"name": "nodefeaturerules", "kind": "NodeFeatureRule"}]
        }
        self.files: dict[str, Data] = {}
        self.keeps, self.looks = keeps, 0

    def list(self, api_version: str, kind: str, *more: Any, **named: Any) -> list[Data]:
        if kind == "Node":
            self.looks += 1
            if self.looks % 3 == 0 and not self.keeps:
                self.master()
        return super().list(api_version, kind, *more, **named)

    def master(self) -> None:
        rules = [item for item in self.items.values() if item["kind"] == "NodeFeatureRule"]
        for item in self.items.values():
            if item["kind"] != "Node":
                continue
            given = {**(RULED if rules else {}), **self.files.get(item["metadata"]["name"], {})}
            labels, notes = item["metadata"]["labels"], item["metadata"].setdefault("annotations", {})
            for name in str(notes.get(NFD_NOTE, "")).split(","):
                if name not in given:
                    labels.pop(name, None)
            labels.update(given)
            notes[NFD_NOTE] = ",".join(sorted(given))

    def pod(self, name: str) -> None:
        labels = {**OURS, "app.kubernetes.io/component": "feature-discovery"}
        meta = {"name": "rbln-feature-discovery-x", "namespace": "rbln-system", "labels": labels}
        self._put({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"nodeName": name}})

    def labels(self, name: str) -> Data:
        return dict(self.items["Node", "", name]["metadata"]["labels"])


class Clock:
    """Time that goes on where somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def _at_once_and_only_for_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovered, "time", Clock())
    monkeypatch.setattr(ClusterWork, "_wait", lambda *_arguments: None)


def work(store: Discovered, *members: Data, dry_run: bool = False, features: Any = None, **given: Any) -> ClusterWork:
    return ClusterWork(store, inputs(**given), members, dry_run, features=features)  # type: ignore[arg-type]


def discovered_node() -> Discovered:
    """A node that has feature discovery: its file is on it, and its labels come from there."""
    store = Discovered(node("n1"))
    work(store, member("n1", WITH), **ON).present()
    store.files["n1"] = OLD
    store.master()
    assert store.labels("n1") == {**OLD, GATE: "true"}
    return store


def test_what_feature_discovery_has_left_goes_at_its_source_and_the_run_ends_with_the_right_labels() -> None:
    store = discovered_node()
    store.pod("n1")
    closed: list[str] = []

    def ends(text: str) -> None:
        closed.append(text)
        del store.items["Pod", "rbln-system", "rbln-feature-discovery-x"]

    store.waits = ends  # type: ignore[method-assign]
    first = work(store, member("n1", WITHOUT)).present()
    # Its pod has ended, as its gate is closed; nothing else was done, and the file is for its host to remove.
    assert first["features"] == ["n1"] and first["objects"] == {} and "failed" not in first
    assert len(closed) == 1 and "feature discovery ends on n1" in closed[0]
    assert store.labels("n1")[GATE] == "false"
    store.waits = lambda text: None  # type: ignore[method-assign]
    del store.files["n1"]
    second = work(store, member("n1", WITHOUT), features={"n1": ""}).present()
    assert second["objects"]["DaemonSet rbln-system/rbln-feature-discovery"] == "deleted" and "failed" not in second
    assert store.labels("n1") == WITHOUT and "features" not in second
    assert not [text for text in second["warnings"] if VERSION in text], second["warnings"]
    assert second["nodes"]["n1"]["after"] == WITHOUT and second["nodes"]["n1"]["before"][GATE] == "false"
    # Nothing of Node Feature Discovery changes them later, and the next run changes nothing.
    store.master()
    store.writes.clear()
    third = work(store, member("n1", WITHOUT)).present()
    assert (third["changed"], store.writes, store.labels("n1")) == (False, [], WITHOUT)
    assert owned_labels(store.items["Node", "", "n1"]) == set(WITHOUT)


def test_the_hosts_are_judged_when_the_work_is_at_its_end() -> None:
    """A host that fails on the way would leave the others without their end."""
    store = discovered_node()
    first = work(store, {**member("n1", WITHOUT), "lacks_proof": True}).present()
    outcome = {"cluster": "k", "actor": "n1", "round": "r", "applied": {**first, "round": "r"}}
    assert first["nodes"]["n1"]["error"]
    found = judge_host("n1", outcome)
    assert (found["again"], "failed" in found) == ({"features": ["n1"], "brought": []}, False)
    second = work(store, {**member("n1", WITHOUT), "lacks_proof": True}, features={"n1": ""}).present()
    assert judge_host("n1", {**outcome, "applied": {**second, "round": "r"}})["failed"]
    told = work(discovered_node(), member("n1", WITHOUT), dry_run=True).present()
    foretold = judge_host("n1", {**outcome, "applied": {**told, "round": "r"}})
    assert foretold["again"]["features"] == ["n1"] and "the cluster is as wanted" in foretold["msg"]


def test_a_run_that_ends_between_is_taken_up_by_the_next_one() -> None:
    store = discovered_node()
    for _run in range(2):
        assert work(store, member("n1", WITHOUT)).present()["features"] == ["n1"]


def test_check_mode_tells_that_the_file_goes_and_writes_nothing() -> None:
    store = discovered_node()
    store.writes.clear()
    told = work(store, member("n1", WITHOUT), dry_run=True).present()
    assert told["features"] == ["n1"] and store.writes == [] and GATE not in told["nodes"]["n1"]["after"]
    assert told["objects"]["DaemonSet rbln-system/rbln-feature-discovery"] == "deleted"


def test_a_file_that_stays_fails_its_host_alone_and_the_next_run_tries_again() -> None:
    store = Discovered(node("n1"), node("n2"))
    members = [member("n1", WITH), member("n2", WITH)]
    work(store, *members, **ON).present()
    store.files = {"n1": OLD, "n2": OLD}
    store.master()
    members = [member("n1", WITHOUT), member("n2", WITHOUT)]
    assert work(store, *members).present()["features"] == ["n1", "n2"]
    del store.files["n1"]
    found = work(store, *members, features={"n1": "", "n2": "rmtree failed: read-only file system"}).present()
    assert found["nodes"]["n1"]["error"] == "" and store.labels("n1") == WITHOUT
    assert "rmtree failed: read-only file system. Next: " in found["nodes"]["n2"]["error"]
    assert store.labels("n2")[GATE] == "false" and work(store, *members).present()["features"] == ["n2"]


def test_after_our_rule_is_off_a_run_ends_with_the_labels_that_the_rule_had_given() -> None:
    store = Discovered(node("n1"))
    host = {**RULED, COUNT: "2"}
    work(store, member("n1", host), node_feature_rule={"enabled": True}).present()
    store.master()
    store.looks = 0
    found = work(store, member("n1", host)).present()
    assert found["objects"]["NodeFeatureRule rbln-npu"] == "deleted" and found["warnings"] == []
    assert store.labels("n1") == host and owned_labels(store.items["Node", "", "n1"]) == set(host)
    store.master()
    assert store.labels("n1") == host and store.waited


def test_a_rule_that_goes_on_keeps_its_labels_and_nobody_waits_for_them() -> None:
    store = Discovered(node("n1"))
    both: Data = {**ON, "node_feature_rule": {"enabled": True}}
    work(store, member("n1", WITH), **both).present()
    store.files["n1"] = OLD
    store.master()
    rule: Data = {"node_feature_rule": {"enabled": True}}
    assert work(store, member("n1", WITHOUT), **rule).present()["features"] == ["n1"]
    del store.files["n1"]
    found = work(store, member("n1", WITHOUT), features={"n1": ""}, **rule).present()
    assert found["warnings"] == [] and store.labels("n1") == {**RULED, **WITHOUT}


def test_labels_that_others_go_on_to_give_are_told_when_the_time_is_over() -> None:
    store = discovered_node()
    assert work(store, member("n1", WITHOUT)).present()["features"] == ["n1"]
    store.keeps = True
    found = work(store, member("n1", WITHOUT), features={"n1": ""}).present()
    assert any(
        "after 300 s Node Feature Discovery still keeps %s, %s, %s" % (VERSION, COUNT, PRESENT) in text
        for text in found["warnings"]
    ), found["warnings"]
    assert "failed" not in found


def test_without_a_discovery_of_ours_a_file_is_not_ours() -> None:
    """The vendor's own feature discovery writes a file of the same name."""
    store = Discovered(node("n1"))
    store.files["n1"] = OLD
    store.master()
    found = work(store, member("n1", WITHOUT)).present()
    assert "features" not in found and store.waited == []
    gated = Discovered(node("n1", **{GATE: "true"}))
    assert "features" not in work(gated, member("n1", WITHOUT)).present()
