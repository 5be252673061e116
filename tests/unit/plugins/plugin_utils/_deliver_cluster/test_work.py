# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who acts for a cluster, what a host says about itself, the wait, and the judgement of each host."""

from __future__ import annotations

import os
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.login import read_login
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.cluster import choose_actors, digest, rendered_key
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.match import find_nodes
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.nodes import Hosts, label_nodes, member_record
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.outcome import difference_lines, judge_host
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.wait import Waiter
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs, objects

Data = dict[str, Any]


def member(cluster: str, digest_: str = "same") -> Data:
    return {"cluster": cluster, "digest": digest_}


def test_each_cluster_has_one_acting_host_and_hosts_without_a_cluster_have_none() -> None:
    members = {"a": member("k1"), "b": member("k2", "x"), "c": member("k1"), "d": member(""), "e": member("k2", "x")}
    assert choose_actors(members) == {
        "k1": {"actor": "a", "members": ["a", "c"], "error": ""},
        "k2": {"actor": "b", "members": ["b", "e"], "error": ""},
    }
    assert choose_actors({"d": member("")}) == {}


def test_a_limited_run_chooses_among_its_own_hosts() -> None:
    assert choose_actors({"c": member("k1")}) == {"k1": {"actor": "c", "members": ["c"], "error": ""}}


def test_hosts_of_one_cluster_must_agree_and_another_cluster_is_not_stopped() -> None:
    found = choose_actors({"a": member("k1"), "b": member("k1", "other"), "c": member("k2"), "d": member("k1")})
    assert found["k1"]["error"].startswith("a and b belong to one cluster (k1)") and found["k1"]["members"] == [
        "a",
        "b",
        "d",
    ]
    assert found["k2"] == {"actor": "c", "members": ["c"], "error": ""}


def test_what_hosts_of_one_cluster_differ_in_is_named() -> None:
    a, b = inputs(registry="r.example"), inputs(validator={"enabled": False}, node_name="b")
    error = choose_actors({"a": member("k", digest(a)), "b": member("k", digest(b))})["k"]["error"]
    assert error.startswith(
        "a and b belong to one cluster (k) and differ in rbln_operands_registry, rbln_operands_validator. Next: "
    )


KEYS: dict[str, tuple[Data, dict[str, str], str]] = {
    "none": ({"enabled": False}, {}, ""),
    "kubeconfig": ({}, {}, "/etc/kube/config"),
    "context": ({"context": "prod"}, {}, "/etc/kube/config context prod"),
    "default": ({"kubeconfig": ""}, {}, "default kubeconfig"),
    "variable": ({"kubeconfig": ""}, {"KUBECONFIG": "/a:/b", "K8S_AUTH_CONTEXT": "x"}, "/a:/b context x"),
    "K13": ({"kubeconfig": ""}, {"KUBECONFIG": "/a", "K8S_AUTH_KUBECONFIG": "/b"}, "/b"),
    "server": (
        {"kubeconfig": ""},
        {"K8S_AUTH_HOST": "https://u:secretive@h", "K8S_AUTH_API_KEY": "k"},
        "the server https://********@h of K8S_AUTH_HOST",
    ),
    "K11": ({"kubeconfig": {"users": [{"token": "REP-SECRET"}]}}, {}, "the kubeconfig in rbln_kubeconfig"),
    "render": ({"delivery": "render", "render_dir": "/out"}, {}, "manifests in /out"),
}


@pytest.mark.parametrize("case", KEYS)
def test_the_name_of_a_cluster(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given, environment, expected = KEYS[case]
    for name in [name for name in os.environ if name.startswith("K8S_AUTH_") or name == "KUBECONFIG"]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    typed = inputs(**given)
    key = rendered_key(typed)
    assert (read_login(typed["kubeconfig"], typed["context"]).name if key is None else key) == expected


def test_k11_clusters_of_one_name_are_told_apart_by_what_is_no_secret() -> None:
    one, same, other = (
        read_login('{"clusters": [{"server": "https://%s"}], "token": "%s"}' % words, "")
        for words in (("a", "secret-1"), ("a", "secret-2"), ("b", "secret-1"))
    )
    members = {host: {**member(login.name), "mark": login.mark} for host, login in zip("xyz", (one, other, same))}
    assert choose_actors(members) == {
        "the kubeconfig in rbln_kubeconfig": {"actor": "x", "members": ["x", "z"], "error": ""},
        "the kubeconfig in rbln_kubeconfig (2)": {"actor": "y", "members": ["y"], "error": ""},
    }


def test_digest_ignores_what_is_the_host_s_own() -> None:
    assert digest(inputs(node_name="a")) == digest(inputs(node_name="b"))
    assert digest(inputs()) != digest(inputs(registry="r.example"))


FACTS: Data = {
    "npus": [{"product": "RBLN-CA22", "family": "ATOM"}],
    "counts": {"devices": 1, "usable": 1},
    "driver": {"version_loaded": "3.2.2"},
    "identity": {"machine_id": "m" * 32, "system_uuid": "11111111-0000-0000-0000-000000000001", "node_name": "n1"},
}


def test_member_record_without_facts_knows_nothing() -> None:
    record = member_record("a", inputs(), None)
    assert (record["labels"], record["expected"], record["system_uuid"]) == (None, None, None)


def test_member_record_with_facts() -> None:
    record = member_record("a", inputs(), FACTS)
    assert record["expected"] == 1 and record["labels"]["rebellions.ai/npu.count"] == "1"
    assert member_record("a", inputs(node_labels="false"), FACTS)["labels"] is None


def test_a_host_whose_driver_comes_as_a_container_is_to_offer_its_npus_before_it_runs() -> None:
    driver = {"enabled": True, "image": {"tag": "1"}, "manager": {"image": {"tag": "1"}}}
    bare = {
        **FACTS,
        "npus": [{"state": "unbound", "iommu_group": 1}],
        "counts": {"devices": 1, "usable": 0},
        "driver": {"installed_via": "none"},
    }
    first = member_record("a", inputs(driver=driver), bare)
    assert first["expected"] == 1 and first["awaits_driver"] is True
    # Its version is known after that only, and is a label.
    come = {**bare, "driver": {"installed_via": "container", "version_loaded": "3.4.1"}}
    after = member_record("a", inputs(driver=driver), {**come, "npus": [{"state": "bound"}]})
    assert after["awaits_driver"] is False and "rebellions.ai/driver-version.full" in set(after["labels"] or ())
    assert "rebellions.ai/driver-version.full" not in first["labels"]
    assert member_record("a", inputs(), bare)["awaits_driver"] is False
    assert member_record("a", inputs(workload="vm-passthrough"), bare)["expected"] is None


def node(name: str, allocatable: str = "1", ready: str = "True", labels: Data | None = None) -> Data:
    status = {
        "nodeInfo": {},
        "conditions": [{"type": "Ready", "status": ready}],
        "allocatable": {"rebellions.ai/npu": allocatable},
    }
    return {
        "metadata": {"name": name, "labels": {"rebellions.ai/npu.present": "true"} if labels is None else labels},
        "spec": {},
        "status": status,
    }


def record(host: str, node_name: str) -> Data:
    return {**member_record(host, inputs(node_name=node_name), FACTS)}


def test_a_host_without_a_node_does_not_stop_the_others() -> None:
    found = find_nodes([record("a", "n1"), record("b", "n9")], [node("n1")])
    assert found["a"] == {"node": "n1", "error": "", "proof": "input"}
    assert "n9" in found["b"]["error"]


def test_two_hosts_cannot_be_one_node() -> None:
    found = find_nodes([record("a", "n1"), record("b", "n1")], [node("n1"), node("n2")])
    assert all("a, b were all found to be the node 'n1'" in found[host]["error"] for host in "ab")


class Api:
    """Answers lists from a script: one entry per look; the last one stays."""

    def __init__(self, looks: list[dict[str, list[Data]]]) -> None:
        self.looks = looks
        self.look = -1
        self.applied: list[Data] = []

    def list(
        self, api_version: str, kind: str, namespace: str = "", selector: str = "", fields: str = ""
    ) -> list[Data]:
        if kind == "DaemonSet":
            self.look += 1
        return self.looks[max(0, min(self.look, len(self.looks) - 1))].get(kind, [])

    def get(self, api_version: str, kind: str, name: str, namespace: str = "") -> Data | None:
        found = self.looks[max(0, min(self.look, len(self.looks) - 1))].get(kind, [])
        return next((item for item in found if item["metadata"]["name"] == name), None)

    def apply(self, item: Data, force: bool, dry_run: bool) -> tuple[bool, Data]:
        assert force is False
        if not dry_run:
            self.applied.append(item)
        return False, item


def look(
    allocatable: str = "1", pod_ready: bool = True, desired: int = 1, nodes: list[Data] | None = None
) -> dict[str, list[Data]]:
    sets = []
    pods = []
    for item in objects():
        if item["kind"] == "DaemonSet":
            name = item["metadata"]["name"]
            sets.append(
                {
                    **item,
                    "metadata": {**item["metadata"], "uid": name, "generation": 1},
                    "status": {
                        "observedGeneration": 1,
                        "desiredNumberScheduled": desired,
                        "numberReady": desired,
                        "updatedNumberScheduled": desired,
                    },
                }
            )
            pods.append(
                {
                    "metadata": {
                        "name": name + "-x",
                        "labels": item["metadata"]["labels"],
                        "ownerReferences": [{"uid": name}],
                    },
                    "spec": {"nodeName": "n1"},
                    "status": {
                        "phase": "Running",
                        "conditions": [{"type": "Ready", "status": "True" if pod_ready else "False"}],
                    },
                }
            )
    return {
        "DaemonSet": sets,
        "Pod": pods if desired else [],
        "Node": [node("n1", allocatable)] if nodes is None else nodes,
        "Event": [],
    }


def wait(looks: list[dict[str, list[Data]]], expected: int | None = 1, **given: Any) -> tuple[Data, list[float]]:
    now = [0.0]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    nodes = {"a": {"node": "n1", "error": "", "expected": expected}}
    typed = inputs(wait_timeout=30, wait_delay=5, **given)
    waiter = Waiter(Api(looks), typed, nodes, objects(**given), {}, clock=lambda: now[0], sleep=sleep)  # type: ignore[arg-type]
    return waiter.run(), slept


def test_P05_allocatable_race_needs_two_equal_samples_with_a_ready_plugin() -> None:
    result, slept = wait([look("1", pod_ready=False), look("0"), look("1"), look("1")])
    assert result["ok"] is True
    assert len(slept) == 3
    assert result["allocatable"]["n1"] == {
        "expected": 1,
        "allocatable": 1,
        "node_ready": True,
        "plugin_ready": True,
        "settled": True,
    }


def test_P05_allocatable_race_one_good_sample_is_not_enough() -> None:
    result, slept = wait([look("1"), look("0"), look("1"), look("0"), look("1"), look("0"), look("1")])
    assert result["ok"] is False and len(slept) == 6


def test_wrong_allocatable_fails_at_the_deadline_and_names_both_numbers() -> None:
    result, slept = wait([look("2")])
    assert sum(slept) == 30
    assert [problem["node"] for problem in result["problems"]] == ["n1"]
    assert "2 rebellions.ai/npu allocatable, 1 expected" in result["problems"][0]["text"]


def test_what_does_not_heal_ends_the_wait_early() -> None:
    tainted = node("n1", "0")
    tainted["spec"]["taints"] = [{"key": "team", "value": "ml", "effect": "NoSchedule"}]
    result, slept = wait([look(desired=0, nodes=[tainted])])
    assert result["ok"] is False and sum(slept) == 20
    assert {problem["node"] for problem in result["problems"]} == {"n1"}
    assert all("team=ml:NoSchedule" in problem["text"] for problem in result["problems"])


def test_a_host_without_usable_npus_needs_no_pod() -> None:
    labels = {
        "rebellions.ai/npu.present": "true",
        "rebellions.ai/npu.deploy.device-plugin": "false",
        "rebellions.ai/npu.deploy.validator": "false",
    }
    result, _slept = wait([look(desired=0, nodes=[node("n1", "0", labels=labels)])], expected=0)
    assert [problem["text"] for problem in result["problems"]] == []


def test_labels_go_to_the_own_node_only_and_once() -> None:
    api = Api([{"Node": [node("n1", labels={}), node("n2", labels={})]}])
    result = label_nodes(api, Hosts([record("a", "n1")]), True, False)  # type: ignore[arg-type]
    assert [item["metadata"]["name"] for item in api.applied] == ["n1"]
    assert result["a"]["changed"] is True and result["a"]["after"]["rebellions.ai/npu.count"] == "1"


def test_labels_in_check_mode_write_nothing() -> None:
    api = Api([{"Node": [node("n1", labels={})]}])
    assert label_nodes(api, Hosts([record("a", "n1")]), True, True)["a"]["changed"] is True  # type: ignore[arg-type]
    assert api.applied == []


def test_a_host_that_has_not_proven_itself_fails_when_its_gates_are_closed() -> None:
    gated = {**record("a", "n1"), "lacks_proof": True}
    for dry_run in (True, False):
        api = Api([{"Node": [node("n1", labels={})]}])
        error = label_nodes(api, Hosts([gated]), True, dry_run)["a"]["error"]  # type: ignore[arg-type]
        assert len(api.applied) == (0 if dry_run else 1)
        # Check mode has the host as its run will leave it, so it fails as the run will.
        assert "its gates are closed" in error and "Next: Run rebellions.npu.site" in error


NODES = {"a": {"node": "n1", "error": "", "expected": 1}, "b": {"node": "n2", "error": "", "expected": 1}}


def outcome(
    problems: list[Data] | None = None, nodes: Data | None = None, looked: bool = True, done: str = "", **more: Any
) -> Data:
    """What an acting host registered in the round `done`; without a look nothing was waited for."""
    waited = {"problems": problems or [], "daemonsets": [], "allocatable": {"n1": {"allocatable": 1, "expected": 1}}}
    applied = {"objects": {"Namespace x": "created"}, "nodes": nodes or NODES, **({"waited": waited} if looked else {})}
    applied.update({"round": done} if done else {})
    return {"cluster": "k", "actor": "a", "applied": applied, **more}


ALONE = (
    "a acted for the cluster without this host. "
    "Next: Give the play the strategy linear: with free, host_pinned or mitogen_free, hosts reach this point "
    "one by one. Then run again."
)
OTHER_ROUND = ALONE.replace(" without this host", ", but not in the same task as this host")
NOBODY = ALONE.replace(
    "a acted for the cluster without this host", "No host of the play acts for the cluster of this host"
)
JUDGE = {
    "no cluster": ({"cluster": ""}, {"a": None, "b": None}),
    "all well": (outcome(), {"a": None, "b": None}),
    "own node": (outcome([{"node": "n1", "text": "bad"}]), {"a": "bad", "b": None}),
    "node of another host": (outcome([{"node": "n2", "text": "bad"}]), {"a": None, "b": "bad"}),
    "trouble of the whole cluster": (outcome([{"node": "", "text": "bad"}]), {"a": "bad", "b": "bad"}),
    "node of no host": (outcome([{"node": "n7", "text": "bad"}]), {"a": "bad", "b": "bad"}),
    "nobody acted": (outcome(error="two inputs", looked=False), {"a": "two inputs", "b": "two inputs"}),
    "apply failed": (
        {"cluster": "k", "actor": "a", "applied": {"failed": True, "msg": "conflict"}},
        {"a": "conflict", "b": "conflict"},
    ),
    "the task broke": (
        {"cluster": "k", "actor": "a", "applied": {"failed": True}},
        dict.fromkeys("ab", "The work on the cluster failed without a message."),
    ),
    "what has one next step is said once, with a count": (
        outcome(
            [{"node": "n1", "text": "%s. Next: Z" % one} for one in "ABBCD"] + [{"node": "", "text": "E. Next: Y"}]
        ),
        {"a": "A. | B. (and 2 more) Next: Z | E. Next: Y", "b": "E. Next: Y"},
    ),
    "no node of its own": (
        outcome(nodes={**NODES, "a": {"node": "", "error": "no match"}}),
        {"a": "no match", "b": None},
    ),
    "trouble of the whole cluster, and a host that is no node": (
        outcome([{"node": "", "text": "bad"}], nodes={**NODES, "a": {"node": "", "error": "no match"}}),
        {"a": "no match", "b": "bad"},
    ),
    "K23-strategy-free: another host acted without this one": (
        outcome(nodes={"a": NODES["a"]}),
        {"a": None, "b": ALONE},
    ),
    "K23-strategy-free: another host has not acted yet": (
        {"cluster": "k", "actor": "a", "applied": {"skipped": True}},
        {"b": ALONE},
    ),
    "K23-strategy-free: nothing was registered": ({"cluster": "k", "actor": "a", "applied": {}}, {"a": ALONE}),
    "K23-strategy-free: nobody was chosen": ({"cluster": "k", "actor": "", "applied": {}}, {"b": NOBODY}),
    "K23-strategy-free: the record of an earlier pass": (outcome(round="2", done="1"), {"b": OTHER_ROUND}),
    "K23-strategy-free: a record without a round": (outcome(round="2"), {"b": OTHER_ROUND}),
    # With free, a task that runs once for all overwrites what an earlier one has registered.
    "K23-strategy-free: the actor knows its own work": (outcome(round="2", done="1"), {"a": None}),
    "K23-strategy-free: one choice for all": (outcome(round="1", done="1"), {"a": None, "b": None}),
    "manifests were written": ({"cluster": "k", "actor": "a", "applied": {"path": "/m"}}, {"a": None, "b": None}),
    "wait skipped": (outcome(looked=False), {"a": None, "b": None}),
}


@pytest.mark.parametrize("case", JUDGE)
def test_each_host_is_judged_by_its_own_trouble(case: str) -> None:
    given, expected = JUDGE[case]
    for host, error in expected.items():
        found = judge_host(host, given)
        assert found.get("failed", False) is (error is not None), host
        assert found["result"]["ok"] is (error is None)
        assert found["result"]["error"] == (error or "")
        assert error is None or found["msg"] == "%s: %s" % (host, error)


def test_the_result_carries_what_the_report_needs() -> None:
    result = judge_host("a", outcome())["result"]
    assert set(result) == {"cluster", "acted_by", "objects", "node", "daemonsets", "allocatable", "ok", "error"}
    assert result["allocatable"] == {"allocatable": 1, "expected": 1}


def test_differences_are_told_by_object_and_field() -> None:
    changed = {
        "object": "DaemonSet n/d",
        "action": "changed",
        "error": "",
        "fields": [{"path": "spec.a", "before": None, "after": ["x"]}],
    }
    created = {
        "object": "Service n/s",
        "action": "created",
        "error": "",
        "fields": [{"path": "spec", "before": None, "after": {}}],
    }
    refused = {"object": "Namespace n", "action": "changed", "error": "not allowed", "fields": []}
    long = {
        "object": "ConfigMap n/c",
        "action": "changed",
        "error": "",
        "fields": [{"path": "data", "before": "y" * 300, "after": "\u00e9"}],
    }
    tail = {
        "object": "ConfigMap n/t",
        "action": "changed",
        "error": "",
        "fields": [{"path": "data", "before": "z" * 300 + "1", "after": "z" * 300 + "2"}],
    }
    assert difference_lines([tail]) == ["ConfigMap n/t: changed", '  data: ...%s1" -> ...%s2"' % ("z" * 30, "z" * 30)]
    assert difference_lines([changed, created, refused, long]) == [
        "DaemonSet n/d: changed",
        '  spec.a: (none) -> ["x"]',
        "Service n/s: created",
        "Namespace n: changed, but refused: not allowed",
        "ConfigMap n/c: changed",
        '  data: "%s... -> "\u00e9"' % ("y" * 196),
    ]
    assert difference_lines([]) == ["nothing would change"]
