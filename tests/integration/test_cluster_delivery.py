# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every component on a real API server.

Installation, a change of each class of field, pruning, removal, and runs that see a part of the hosts.
"""

from __future__ import annotations

import copy
import typing as t

import pytest

from tests.integration._act import clusters, inputs, member
from tests.integration._api_server import NAMESPACE, Data
from tests.integration._cluster_site import HOSTS, Site, running
from tests.integration._everything import EVERYTHING, FACTS

# The plan writes `Kind` and the API its plural.
DS, SVC, SM, SECRET, RC = "daemonsets", "services", "servicemonitors", "secrets", "runtimeclasses"
DRIVER = ("driver", "rbln-driver")
EXPORTER, PLUGIN = "rbln-metrics-exporter", "rbln-device-plugin"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Site]:
    with running(Site(tmp_path_factory.mktemp("cluster") / "home")) as one:
        yield one


def plus(component: str, **more: t.Any) -> Data:
    """EVERYTHING with more inputs of one component."""
    return {component: {**EVERYTHING.get(component, {}), **more}}


def test_full_install_again_without_a_write_and_absent_leaves_nothing(site: Site) -> None:
    before, labels = site.names(), site.labels()
    result = site.everything()
    assert set(result["objects"].values()) == {"created"}
    assert {item["kind"] for item in site.ours()} >= {
        "DaemonSet", "Service", "ServiceAccount", "Secret", "ConfigMap", "ClusterRole", "ClusterRoleBinding",
        "NetworkPolicy", "RuntimeClass",
        "ServiceMonitor", "NodeFeatureRule",
    }  # fmt: skip
    drivers = [
        item
        for item in site.ours()
        if item["kind"] == "DaemonSet" and item["metadata"]["labels"]["app.kubernetes.io/component"] in DRIVER
    ]
    assert len(drivers) == 3
    again = site.everything()
    assert (again["changed"], site.written) == (False, [])
    assert site.requests < len(result["objects"])
    site.absent()
    assert (site.names() - before, before - site.names()) == (set(), set())
    assert site.labels() == labels
    assert site.absent()["changed"] is False
    assert site.written == []


CHANGES: dict[str, tuple[Data, set[tuple[str, str]]]] = {
    "env": (plus("metrics_exporter", env={"LOG": "debug"}), {(DS, EXPORTER)}),
    "args": (plus("device_plugin", args=["-v"]), {(DS, PLUGIN)}),
    "resources": (plus("device_plugin", resources={"limits": {"memory": "64Mi"}}), {(DS, PLUGIN)}),
    "image tag": (plus("metrics_exporter", image={"tag": "0.3.5"}), {(DS, EXPORTER)}),
    "pull policy": (plus("device_plugin", image={"pull_policy": "Always"}), {(DS, PLUGIN)}),
    "node selector": (plus("device_plugin", node_selector={"zone": "a"}), {(DS, PLUGIN)}),
    "tolerations": (plus("device_plugin", tolerations=[{"key": "x", "operator": "Exists"}]), {(DS, PLUGIN)}),
    "affinity": (plus("device_plugin", node_affinity=[{"key": "x", "operator": "Exists"}]), {(DS, PLUGIN)}),
    "priority class": (plus("device_plugin", priority_class="system-cluster-critical"), {(DS, PLUGIN)}),
    "update strategy": (plus("device_plugin", update_strategy={"type": "OnDelete"}), {(DS, PLUGIN)}),
    "probes off": (plus("device_plugin", probes=False), {(DS, PLUGIN)}),
    "interval of the monitor": (plus("metrics_exporter", service_monitor={"interval": "45s"}), {(SM, EXPORTER)}),
    "port": (plus("metrics_exporter", port=9191), {(DS, EXPORTER), (SVC, EXPORTER)}),
    "annotation of a service": (plus("metrics_exporter", service={"annotations": {"team": "a"}}), {(SVC, EXPORTER)}),
    "pull secret": (
        {"pull_secret_content": {"auths": {"other.example.org": {"auth": "eDp5"}}}},
        {(SECRET, "rbln-registry")},
    ),
    "runtime class": (
        {"runtime_class": {"enabled": True, "handler": "rbln", "node_selector": {"x": "y"}}},
        {(RC, "rbln")},
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_field_is_exactly_its_writes_and_no_more(site: Site, name: str) -> None:
    given, expected = CHANGES[name]
    site.everything()
    result = site.everything(**given)
    assert site.objects_written() == sorted(("patch", *one) for one in expected)
    assert len([one for one in result["objects"].values() if one != "unchanged"]) == len(expected)
    assert not [one for one in site.written if one[2] == "rbln-inventory"]
    site.everything(**given)
    assert site.written == []


def test_labels_for_all_reach_every_object_but_the_namespace(site: Site) -> None:
    everything = site.everything()["objects"]
    result = site.everything(labels={"team": "npu"})["objects"]
    assert {name for name, action in result.items() if action == "unchanged"} == {"Namespace " + NAMESPACE}
    assert len(result) == len(everything)


def _foreign(item: Data, name: str, labelled: bool) -> Data:
    found = copy.deepcopy({key: value for key, value in item.items() if key != "status"})
    meta = {"name": name, "labels": {"team": "theirs", **(item["metadata"]["labels"] if labelled else {})}}
    if item["metadata"].get("namespace"):
        meta["namespace"] = item["metadata"]["namespace"]
    if item["kind"] == "Service":
        found["spec"] = {key: value for key, value in found["spec"].items() if not key.startswith("clusterIP")}
    return {**found, "metadata": meta}


def test_every_kind_is_pruned_and_look_alikes_of_others_stay(site: Site) -> None:
    site.everything()
    mine = site.ours()
    kinds: dict[str, Data] = {
        item["kind"]: item
        for item in mine
        if item["metadata"]["labels"]["app.kubernetes.io/component"] not in ("inventory", *DRIVER)
    }
    plain = ["%s-theirs" % item["metadata"]["name"] for item in kinds.values()]
    copied = ["%s-copied" % item["metadata"]["name"] for item in kinds.values()]
    for item in kinds.values():
        site.create(_foreign(item, item["metadata"]["name"] + "-theirs", False))
        site.create(_foreign(item, item["metadata"]["name"] + "-copied", True))
    try:
        off = {name: {"enabled": False} for name in ("device_plugin", "validator")}
        result = site.run(**off)
        left = {item["metadata"]["name"] for item in site.ours()} - set(copied)
        assert left <= {"rbln-inventory", "rbln-no-ingress", "rbln-operands"}
        told = " ".join(result["warnings"])
        for item in kinds.values():
            name = item["metadata"]["name"]
            assert name + "-copied has our labels" in told or name in left, name
        everything = " ".join(site.names())
        assert [name for name in plain + copied if name not in everything] == []
    finally:
        site.absent()
        there = [name.partition(" ") for name in site.names() if name.endswith(("-theirs", "-copied"))]
        for kind, _space, place in there:
            namespace, _slash, name = place.partition("/")
            site.server.kubectl("delete", kind, name, *(["-n", namespace] if namespace else []))
    assert {place.partition("/")[2] for _kind, _space, place in there} == {*plain, *copied}


def test_a_new_node_by_limit_is_labelled_and_nothing_else_is_written(site: Site) -> None:
    site.everything()
    site.act("absent", ["b"], state="absent", absent_scope="hosts", **EVERYTHING)
    assert {one[1] for one in site.written} == {"nodes"}
    result = site.run(["b"], **EVERYTHING)
    assert site.written == [("patch", "nodes", "node-0001")]
    assert set(result["objects"].values()) == {"unchanged"}


def test_a_bad_label_of_one_node_leaves_out_its_pool_alone(site: Site) -> None:
    site.absent()
    label = "feature.node.kubernetes.io/system-os_release.VERSION_ID"
    good = site.labels()["node-0002"][label]
    site.server.kubectl("label", "node", "node-0002", "--overwrite", "%s=%s" % (label, "9" * 60))
    try:
        result = site.everything()
    finally:
        site.server.kubectl("label", "node", "node-0002", "--overwrite", "%s=%s" % (label, good))
    told = [text for text in result["warnings"] if text.startswith("No driver is made for the pools of node-0002")]
    assert len(told) == 1 and "%s=%s" % (label, "9" * 60) in told[0]
    drivers = [name for name, action in result["objects"].items() if "/rbln-driver-" in name and action == "created"]
    assert sorted(name.split("-driver-")[1][:12] for name in drivers) == ["ubuntu-22-04", "ubuntu-24-04"]
    healed = site.everything()
    made = [name for name, action in healed["objects"].items() if "/rbln-driver-" in name and action == "created"]
    assert len(made) == 1 and not [text for text in healed["warnings"] if "No driver" in text]
    site.absent()


def test_a_run_that_sees_no_host_of_a_pool_keeps_its_driver(site: Site) -> None:
    site.everything()
    result = site.run(["a"], **EVERYTHING)
    assert (result["changed"], site.written) == (False, [])


def test_two_clusters_in_slices(site: Site, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = Site(tmp_path_factory.mktemp("second") / "home")
    try:
        other.start()
        records = []
        for host, one in (("a", site), ("b", other), ("c", site), ("d", other)):
            variables = inputs(one.config, wait=False, metrics_exporter=EVERYTHING["metrics_exporter"])
            records.append({"member": member(variables, host, FACTS, node_name=HOSTS["a" if host in "ab" else "b"])})
        chosen = clusters(records)
        assert chosen["actors"] == {"a": "a", "c": "a", "b": "b", "d": "b"}
        sliced = clusters(records[2:])
        assert sliced["actors"] == {"c": "c", "d": "d"}
        site.run(metrics_exporter=EVERYTHING["metrics_exporter"])
        for hosts in (["a"], ["b"]):
            other.run(hosts, metrics_exporter=EVERYTHING["metrics_exporter"])
            site.run(hosts, metrics_exporter=EVERYTHING["metrics_exporter"])
            assert site.written == []
        assert other.written == [("patch", "nodes", "node-0001")]
    finally:
        other.server.stop()
    site.absent()


def test_check_mode_and_diff_write_nothing_and_tell_the_same(site: Site) -> None:
    site.everything()
    given = {**EVERYTHING, **plus("metrics_exporter", env={"LOG": "debug"})}
    checked = site.act("run", check=True, **given)
    assert (checked["changed"], site.written) == (True, [])
    told = site.act("diff", **given)
    assert site.written == []
    assert [one["object"] for one in told["differences"]] == ["DaemonSet %s/%s" % (NAMESPACE, EXPORTER)]
    assert [name for name, action in checked["objects"].items() if action != "unchanged"] == [
        "DaemonSet %s/%s" % (NAMESPACE, EXPORTER)
    ]
    site.absent()
