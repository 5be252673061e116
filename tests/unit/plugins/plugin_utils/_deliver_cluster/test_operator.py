# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster where the vendor's operator runs: refused, lived beside, taken over, given back."""

from __future__ import annotations

import copy
import pathlib
from typing import Any

import pytest
import yaml
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster.takeover import component_like
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_cluster.work import ClusterWork
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.cluster_store import Stopped, Store
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs

Data = dict[str, Any]
GROUP = "/apis/rebellions.ai/"
POLICY = {
    "apiVersion": "rebellions.ai/v1beta1",
    "kind": "RBLNClusterPolicy",
    "metadata": {"name": "policy"},
    "spec": {"x": {"env": [{"name": "API_TOKEN", "value": "not-a-real-secret"}]}},
}
DRIVER = {"apiVersion": "rebellions.ai/v1alpha1", "kind": "RBLNDriver", "metadata": {"name": "driver"}, "spec": {}}
DEPLOYMENT = ("Deployment", "rbln-operator", "rbln-npu-operator-controller-manager")


def owned(name: str, kind: str = "RBLNClusterPolicy") -> Data:
    owner = {"apiVersion": "rebellions.ai/v1beta1", "kind": kind, "name": "policy", "uid": "1"}
    meta = {"name": name, "namespace": "rbln-operator", "ownerReferences": [owner], "uid": name, "labels": {}}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": meta,
        "spec": {"template": {"spec": {"containers": []}}},
    }


def cluster(*more: Data, policies: tuple[Data, ...] = (POLICY,), drivers: tuple[Data, ...] = (), **given: Any) -> Store:
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": DEPLOYMENT[2], "namespace": DEPLOYMENT[1], "labels": {}, "annotations": {"a": "b"}},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "operator"}}},
    }
    stranger = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "any-device-plugin", "namespace": "other", "labels": {}},
        "spec": {},
    }
    store = Store(
        deployment,
        owned("rbln-device-plugin-daemonset"),
        owned("rbln-npu-operator-validator"),
        owned("rbln-odd"),
        stranger,
        *more,
        **given,
    )
    versions = [{"version": "v1beta1"}, {"version": "v1alpha1"}]
    store.answers["/apis"] = {"groups": [{"name": "rebellions.ai", "versions": versions}]}
    store.answers[GROUP + "v1beta1"] = {
        "resources": [
            {"name": "rblnclusterpolicies", "kind": "RBLNClusterPolicy"},
            {"name": "rblnclusterpolicies/status", "kind": "RBLNClusterPolicy"},
        ]
    }
    store.answers[GROUP + "v1alpha1"] = {"resources": [{"name": "rblndrivers", "kind": "RBLNDriver"}]}
    store.answers[GROUP + "v1beta1/rblnclusterpolicies"] = {"items": list(policies)}
    store.answers[GROUP + "v1alpha1/rblndrivers"] = {"items": list(drivers)}
    return store


def run(store: Store, members: Any = (), dry_run: bool = False, **given: Any) -> Data:
    result: Data = ClusterWork(store, inputs(**{"wait": False, **given}), members, dry_run).present()  # type: ignore[arg-type]
    return result


def names(store: Store, kind: str = "DaemonSet") -> set[str]:
    return {key[2] for key in store.items if key[0] == kind}


def snapshot(store: Store) -> Data:
    return {str(key): copy.deepcopy(item) for key, item in store.items.items()}


def taking(tmp_path: pathlib.Path, **more: Any) -> Data:
    return {"coexistence": "takeover", "takeover": {"backup_dir": str(tmp_path / "copies")}, **more}


def test_refused_by_default_with_the_choices_and_nothing_is_written() -> None:
    store = cluster(drivers=(DRIVER,))
    before = snapshot(store)
    with pytest.raises(NpuError) as caught:
        run(store)
    for word in (
        "RBLNClusterPolicy policy",
        "RBLNDriver driver",
        "Nothing was changed",
        "coexist",
        "takeover",
        "restore",
    ):
        assert word in str(caught.value)
    assert snapshot(store) == before and store.writes == []


def test_an_operator_without_objects_and_one_of_another_group_do_not_matter() -> None:
    store = cluster(policies=())
    assert run(store)["changed"] is True
    store = Store()
    store.answers["/apis"] = {"groups": [{"name": "rebellions.example", "versions": [{"version": "v1"}]}]}
    assert run(store)["changed"] is True


def node(name: str) -> Data:
    status = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"rebellions.ai/npu": "1"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {}}, "spec": {}, "status": status}


def member(name: str, **more: Any) -> Data:
    found = {
        "host": name,
        "node_name": name,
        "address": "",
        "system_uuid": None,
        "machine_id": None,
        "kubelet_name": None,
        "labels": {"a": "b"},
        "expected": 1,
        "lacks_proof": False,
        "awaits_driver": False,
    }
    return {**found, "driver_managed": False, **more}


def test_beside_the_operator_nothing_is_written_and_the_npus_are_proven() -> None:
    store = cluster(node("n1"), owned("rbln-container-toolkit"))
    result = run(store, [member("n1")], coexistence="coexist", wait=True, wait_delay=1)
    assert store.writes == [] and result["changed"] is False and result["objects"] == {}
    assert result["waited"]["ok"] and result["waited"]["allocatable"]["n1"]["settled"] is True
    assert (
        "DaemonSet rbln-operator/rbln-container-toolkit of the operator writes the CDI specification"
        in result["warnings"][0]
    )


def test_beside_the_operator_two_drivers_for_one_host_are_refused_for_that_host() -> None:
    store = cluster(node("n1"), node("n2"), drivers=(DRIVER,))
    result = run(store, [member("n1", driver_managed=True), member("n2")], coexistence="coexist")
    assert (
        "RBLNDriver driver manages drivers here" in result["nodes"]["n1"]["error"]
        and result["nodes"]["n2"]["error"] == ""
    )


def test_a_takeover_and_its_way_back(tmp_path: pathlib.Path) -> None:
    store = cluster()
    result = run(store, **taking(tmp_path))
    assert names(store) == {"rbln-device-plugin", "rbln-validator", "rbln-odd", "any-device-plugin"}
    operator = store.items[DEPLOYMENT]
    assert operator["spec"]["replicas"] == 0 and operator["metadata"]["annotations"] == {
        "a": "b",
        "rebellions.ai/npu.replicas-before": "2",
    }
    assert result["objects"]["DaemonSet rbln-operator/rbln-device-plugin-daemonset"] == "deleted"
    assert result["warnings"] == [
        (
            "DaemonSet rbln-operator/rbln-odd of the operator stays, and nothing manages it while the "
            "operator is scaled to 0."
        )
    ]
    copies = sorted((tmp_path / "copies").iterdir())
    assert [path.name for path in copies] == [
        "DaemonSet-rbln-operator-rbln-device-plugin-daemonset.yaml",
        "DaemonSet-rbln-operator-rbln-npu-operator-validator.yaml",
        "DaemonSet-rbln-operator-rbln-odd.yaml",
        "Deployment-rbln-operator-rbln-npu-operator-controller-manager.yaml",
        "RBLNClusterPolicy-policy.yaml",
    ]
    assert {path.stat().st_mode & 0o777 for path in copies} == {0o600} and (
        tmp_path / "copies"
    ).stat().st_mode & 0o777 == 0o700
    assert (
        "not-a-real-secret" not in copies[-1].read_text()
        and yaml.safe_load(copies[-1].read_text())["kind"] == "RBLNClusterPolicy"
    )
    store.writes.clear()
    assert run(store, **taking(tmp_path))["changed"] is False and store.writes == []
    assert run(store)["changed"] is False and store.writes == []
    back = run(store, coexistence="restore")
    assert back["changed"] and names(store) == {"rbln-odd", "any-device-plugin"}
    assert store.items[DEPLOYMENT]["spec"]["replicas"] == 2 and store.items[DEPLOYMENT]["metadata"]["annotations"] == {
        "a": "b"
    }
    assert names(store, "ConfigMap") == set() and names(store, "Namespace") == set()
    store.writes.clear()
    assert run(store, coexistence="restore")["changed"] is False and store.writes == []


def test_a_takeover_that_is_killed_at_any_write_is_finished_by_the_next(tmp_path: pathlib.Path) -> None:
    points = 0
    while True:
        store = cluster(stop_after=points)
        try:
            run(store, **taking(tmp_path / str(points)))
            break
        except Stopped:
            points += 1
        store.stop_after = -1
        run(store, **taking(tmp_path / str(points)))
        assert names(store) == {"rbln-device-plugin", "rbln-validator", "rbln-odd", "any-device-plugin"}, points
        assert store.items[DEPLOYMENT]["spec"]["replicas"] == 0
        run(store, coexistence="restore")
        assert store.items[DEPLOYMENT]["spec"]["replicas"] == 2
    assert points > 10


@pytest.mark.parametrize("choice", ["refuse", "coexist"])
def test_a_record_of_a_takeover_does_not_count_while_the_operator_is_awake(tmp_path: pathlib.Path, choice: str) -> None:
    store = cluster()
    run(store, **taking(tmp_path))
    store.items[DEPLOYMENT]["spec"]["replicas"] = 1
    store.writes.clear()
    if choice == "refuse":
        with pytest.raises(NpuError, match="manages this cluster"):
            run(store)
    else:
        assert run(store, coexistence="coexist")["objects"] == {}
    assert store.writes == []
    run(store, **taking(tmp_path))
    assert store.items[DEPLOYMENT]["spec"]["replicas"] == 0


def test_copies_have_no_secret_of_a_key_or_an_argument(tmp_path: pathlib.Path) -> None:
    spec = {
        "image": {"password": "not-real-1", "tag": "1"},
        "args": ["--token=not-real-2", "--level=3"],
        "imagePullSecrets": ["pull"],
    }
    run(cluster(policies=({**POLICY, "spec": spec},)), **taking(tmp_path))
    copy_of = yaml.safe_load((tmp_path / "copies" / "RBLNClusterPolicy-policy.yaml").read_text())
    assert copy_of["spec"] == {
        "image": {"password": "********", "tag": "1"},
        "args": ["--token=********", "--level=3"],
        "imagePullSecrets": ["pull"],
    }


def test_a_restore_that_is_killed_at_any_write_is_finished_by_the_next(tmp_path: pathlib.Path) -> None:
    taken = cluster()
    run(taken, **taking(tmp_path))
    points = 0
    while True:
        store = copy.deepcopy(taken)
        store.writes, store.stop_after = [], points
        try:
            run(store, coexistence="restore")
            break
        except Stopped:
            points += 1
        store.stop_after = -1
        run(store, coexistence="restore")
        assert store.items[DEPLOYMENT]["spec"]["replicas"] == 2, points
        assert {key[0] for key in store.items} == {"Deployment", "DaemonSet"} and names(store) == {
            "rbln-odd",
            "any-device-plugin",
        }, points
    assert points > 8


def test_diff_minds_the_operator() -> None:
    def compare(store: Store, **given: Any) -> Data:
        result: Data = ClusterWork(store, inputs(**given), [], False).diff()  # type: ignore[arg-type]
        return result

    with pytest.raises(NpuError, match="Nothing was changed"):
        compare(cluster())
    beside = compare(cluster(), coexistence="coexist")
    assert (beside["differences"], beside["warnings"]) == (
        [],
        ["rbln_operands_coexistence is coexist: nothing is compared."],
    )


def test_a_takeover_in_check_mode_says_what_it_would_do_and_writes_nothing(tmp_path: pathlib.Path) -> None:
    store = cluster()
    before = snapshot(store)
    result = run(store, dry_run=True, **taking(tmp_path))
    assert snapshot(store) == before and store.writes == [] and not (tmp_path / "copies").exists()
    assert result["objects"]["Deployment rbln-operator/rbln-npu-operator-controller-manager"] == "changed"
    assert result["objects"]["DaemonSet rbln-operator/rbln-device-plugin-daemonset"] == "deleted"


TOOLKIT = {"container_toolkit": {"enabled": True, "image": {"tag": "1"}}}


def test_what_is_not_made_here_is_not_taken_from_the_operator(tmp_path: pathlib.Path) -> None:
    """The device plugin needs the toolkit, whose objects are refused."""
    store = cluster(refuse={"DaemonSet": 403})
    result = run(store, **taking(tmp_path, **TOOLKIT))
    assert "device_plugin: not tried, because it needs container_toolkit" in result["msg"]
    assert (
        "rbln-device-plugin-daemonset" in names(store)
        and result["objects"].get("DaemonSet rbln-operator/rbln-device-plugin-daemonset") is None
    )


def test_the_operators_daemon_set_stays_where_ours_would_be_refused(tmp_path: pathlib.Path) -> None:
    store = cluster(refuse={"DaemonSet": 422})
    result = run(store, **taking(tmp_path))
    assert result["failed"] and {"rbln-device-plugin-daemonset", "rbln-npu-operator-validator"} <= names(store)
    assert "delete DaemonSet" not in store.writes


def test_daemon_sets_of_one_name_in_two_namespaces_both_go(tmp_path: pathlib.Path) -> None:
    twin = owned("rbln-device-plugin-daemonset")
    twin["metadata"]["namespace"] = "elsewhere"
    store = cluster(twin)
    result = run(store, **taking(tmp_path))
    assert [
        result["objects"]["DaemonSet %s/rbln-device-plugin-daemonset" % name] for name in ("rbln-operator", "elsewhere")
    ] == ["deleted"] * 2
    assert "rbln-device-plugin-daemonset" not in names(store)


LEASE = ("Lease", "rbln-system", "rbln-operands")


def test_nothing_of_a_takeover_is_written_while_another_holds_the_lease(tmp_path: pathlib.Path) -> None:
    store = cluster()
    run(store, **taking(tmp_path))
    held = {"holderIdentity": "another", "leaseDurationSeconds": 60}
    # Woken by somebody; one set of the operator is there again.
    store.items[DEPLOYMENT]["spec"]["replicas"] = 1
    back = owned("rbln-device-plugin-daemonset")
    store.items[Store.key(back)] = back
    store.items[LEASE]["spec"] = held
    store.writes.clear()
    result = run(store, **taking(tmp_path, lease_timeout=0))
    assert result["failed"] and "another holds the Lease" in result["msg"] and store.writes == []
    assert result["warnings"] == []
    store.items[LEASE]["spec"] = {"holderIdentity": ""}
    run(store, **taking(tmp_path))
    assert (store.items[DEPLOYMENT]["spec"]["replicas"], store.writes) == (0, ["patch Deployment", "delete DaemonSet"])


def test_a_takeover_that_another_run_did_meanwhile_is_not_noted_again(tmp_path: pathlib.Path) -> None:
    store = cluster()
    request = store.request

    def late(method: str, path: str, *more: Any) -> Any:
        """The other run ends when this one asks for the Lease."""
        if path.endswith("/leases/rbln-operands") and "begun" not in store.answers:
            store.answers["begun"] = {}
            run(store, **taking(tmp_path))
            store.writes.clear()
        return request(method, path, *more)

    store.request = late  # type: ignore[method-assign]
    run(store, **taking(tmp_path))
    # What is gone already is deleted once more.
    assert set(store.writes) == {"delete DaemonSet"}
    store.request = request  # type: ignore[method-assign]
    run(store, coexistence="restore")
    assert store.items[DEPLOYMENT]["spec"]["replicas"] == 2


def test_an_operators_daemon_set_that_does_not_go_ends_only_its_component(tmp_path: pathlib.Path) -> None:
    store = cluster()
    delete = store.delete

    def refuse(item: Data, dry_run: bool) -> None:
        if item["metadata"]["name"] == "rbln-npu-operator-validator":
            raise NpuError("Delete DaemonSet rbln-npu-operator-validator: not allowed.", "Give the right.")
        delete(item, dry_run)

    store.delete = refuse  # type: ignore[method-assign]
    result = run(store, **taking(tmp_path))
    assert result["msg"].startswith("validator: Delete DaemonSet rbln-npu-operator-validator: not allowed.")
    assert "rbln-device-plugin" in names(store) and "rbln-validator" not in names(store)


def test_drivers_in_containers_are_not_taken_over(tmp_path: pathlib.Path) -> None:
    store = cluster(owned("rbln-driver-x", "RBLNDriver"), drivers=(DRIVER,))
    with pytest.raises(NpuError, match="DaemonSet rbln-operator/rbln-driver-x.*one by one"):
        run(store, **taking(tmp_path))
    assert store.items[DEPLOYMENT]["spec"]["replicas"] == 2 and store.writes == []


@pytest.mark.parametrize("second", [True, False])
def test_an_operator_that_is_not_known_is_asked_for(tmp_path: pathlib.Path, second: bool) -> None:
    store = cluster()
    if second:
        twin = copy.deepcopy(store.items[DEPLOYMENT])
        twin["metadata"]["namespace"] = "elsewhere"
        store.items[Store.key(twin)] = twin
    else:
        del store.items[DEPLOYMENT]
    with pytest.raises(NpuError, match="The operator's Deployment is not known.*operator_deployment"):
        run(store, **taking(tmp_path))
    assert store.writes == []
    if second:
        named = {
            "backup_dir": str(tmp_path),
            "operator_namespace": "rbln-operator",
            "operator_deployment": DEPLOYMENT[2],
        }
        assert "failed" not in run(store, coexistence="takeover", takeover=named)


@pytest.mark.parametrize("served", [True, False])
def test_the_choice_may_stay_when_the_operator_is_deleted_after_a_takeover(
    tmp_path: pathlib.Path, served: bool
) -> None:
    store = cluster()
    run(store, **taking(tmp_path))
    del store.items[DEPLOYMENT]
    if not served:
        store.answers["/apis"] = {"groups": []}
    store.writes.clear()
    result = run(store, **taking(tmp_path))
    assert ("failed" in result, result["changed"], store.writes) == (False, False, [])
    assert (
        run(store, **taking(tmp_path, device_plugin={"image": {"tag": "v9"}}))["objects"][
            "DaemonSet rbln-system/rbln-device-plugin"
        ]
        == "changed"
    )


def test_a_restore_without_the_operator_says_what_to_do(tmp_path: pathlib.Path) -> None:
    store = cluster()
    run(store, **taking(tmp_path))
    del store.items[DEPLOYMENT]
    before = snapshot(store)
    with pytest.raises(
        NpuError,
        match=(
            "Deployment rbln-operator/rbln-npu-operator-controller-manager does not exist any "
            "more.*Install the operator again"
        ),
    ):
        run(store, coexistence="restore")
    assert snapshot(store) == before


def test_absent_does_not_forget_an_operator_that_rests(tmp_path: pathlib.Path) -> None:
    store = cluster(node("n1"))
    run(store, [member("n1")], **taking(tmp_path))
    before = snapshot(store)
    work = ClusterWork(store, inputs(wait=False), [member("n1")], False)  # type: ignore[arg-type]
    with pytest.raises(
        NpuError,
        match="rbln-npu-operator-controller-manager to 0.*rbln_operands_coexistence: restore",
    ):
        work.absent()
    assert snapshot(store) == before
    del store.items[DEPLOYMENT]
    assert work.absent()["changed"] and names(store, "ConfigMap") == set()


@pytest.mark.parametrize(
    "damaged",
    [
        {},
        {"takeover.json": "{"},
        {"takeover.json": "[]"},
        {"takeover.json": '{"name": "", "namespace": "x", "replicas": 2}'},
    ],
)
def test_a_damaged_record_of_a_takeover_is_one_error_and_can_be_made_anew(
    tmp_path: pathlib.Path, damaged: Data
) -> None:
    store = cluster()
    run(store, **taking(tmp_path))
    record = ("ConfigMap", "rbln-system", "rbln-takeover")
    store.items[record]["data"] = damaged
    store.writes.clear()
    work = ClusterWork(store, inputs(wait=False), [], False)  # type: ignore[arg-type]
    for act in (
        lambda: run(store),
        lambda: run(store, **taking(tmp_path)),
        lambda: run(store, coexistence="restore"),
        work.absent,
    ):
        with pytest.raises(
            NpuError, match="ConfigMap rbln-system/rbln-takeover, cannot be read.*Delete it and run with"
        ):
            act()
    assert store.writes == []
    del store.items[record]
    run(store, **taking(tmp_path))
    run(store, coexistence="restore")
    assert store.items[DEPLOYMENT]["spec"]["replicas"] == 2 and store.items[DEPLOYMENT]["metadata"]["annotations"] == {
        "a": "b"
    }


def test_a_restore_of_some_hosts_takes_our_labels_off_every_node(tmp_path: pathlib.Path) -> None:
    fields = [
        {"manager": "rebellions-npu", "operation": "Apply", "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}}}}
    ]
    other = node("n2")
    other["metadata"].update(labels={"a": "b"}, managedFields=fields)
    store = cluster(node("n1"), other)
    run(store, [member("n1")], **taking(tmp_path))
    applied: list[Data] = []
    apply = store.apply
    store.apply = lambda item, *more: (applied.append(item), apply(item, *more))[1]  # type: ignore[method-assign, func-returns-value]
    run(store, [member("n1")], coexistence="restore")
    assert [(item["metadata"]["name"], item["metadata"]["labels"]) for item in applied if item["kind"] == "Node"] == [
        ("n2", {})
    ]


def test_a_restore_where_nothing_was_taken_over_leaves_ours(tmp_path: pathlib.Path) -> None:
    store = Store(node("n1"))
    run(store, [member("n1")])
    fields = [
        {"manager": "rebellions-npu", "operation": "Apply", "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}}}}
    ]
    store.items[("Node", "", "n1")]["metadata"]["managedFields"] = fields
    store.writes.clear()
    result = run(store, [member("n1")], coexistence="restore")
    assert (result["changed"], store.writes, result["nodes"]["n1"]["node"]) == (False, [], "n1")


THEIRS = {
    "rbln-device-plugin-daemonset": "device_plugin",
    "rbln-sandbox-device-plugin": "sandbox_device_plugin",
    "rbln-npu-operator-validator": "validator",
    "rbln-sandbox-validator": "sandbox_validator",
    "rbln-container-toolkit-daemonset": "container_toolkit",
    "rbln-metrics-exporter": "metrics_exporter",
    "rbln-npu-feature-discovery": "feature_discovery",
    "rbln-vfio-manager": "vfio_manager",
    "rbln-smd": "smd",
    "rbln-daemon": "smd",
    "rbln-dra-kubelet-plugin": "dra_driver",
    "rbln-other": "",
}


@pytest.mark.parametrize("name", THEIRS)
def test_which_component_takes_the_place_of_which(name: str) -> None:
    assert component_like(name) == THEIRS[name]
