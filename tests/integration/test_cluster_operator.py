# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real API server with the objects of the vendor's operator: refused, left alone, taken over and given back."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from tests.integration._api_server import Data
from tests.integration._cluster_site import DRIVER, POLICY, Site, running

THEIRS = "npu-operator"
NAMES = ("npu-device-plugin", "npu-container-toolkit", "npu-operator-validator")
OPERATOR = "rbln-npu-operator"


def workload(kind: str, name: str, owner: Data | None = None) -> Data:
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"nodeSelector": {"no": "where"}, "containers": [{"name": "c", "image": "x"}]},
    }
    meta: Data = {"name": name, "namespace": THEIRS}
    if owner:
        known = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
        meta["ownerReferences"] = [{**known, "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}]
    spec: Data = {"selector": {"matchLabels": {"app": name}}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": meta,
        "spec": {**spec, "replicas": 2} if kind == "Deployment" else spec,
    }


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Site]:
    with running(Site(tmp_path_factory.mktemp("operator") / "home")) as one:
        yield one


def theirs(site: Site) -> tuple[set[str], int]:
    """The DaemonSets in the operator's namespace, and the replicas of its Deployment."""
    names = {item["metadata"]["name"] for item in site.server.get("-n", THEIRS, "daemonsets")["items"]}
    return names, site.server.get("-n", THEIRS, "deployment", OPERATOR)["spec"]["replicas"]


def test_definitions_without_objects_are_no_operator(site: Site) -> None:
    site.define(POLICY, "v1beta1")
    site.define(DRIVER, "v1alpha1")
    assert set(site.run()["objects"].values()) == {"created"}
    site.absent()


def test_refuse_names_the_objects_and_the_choices_and_writes_nothing(site: Site) -> None:
    site.create(
        {
            "apiVersion": "rebellions.ai/v1beta1",
            "kind": "RBLNClusterPolicy",
            "metadata": {"name": "cluster-policy"},
            "spec": {},
        }
    )
    policy = site.server.get("rblnclusterpolicies", "cluster-policy")
    site.server.kubectl("create", "namespace", THEIRS)
    site.create(workload("Deployment", OPERATOR))
    for name in NAMES:
        site.create(workload("DaemonSet", name, policy))
    result = site.act("run")
    assert result["failed"] and site.written == []
    assert [
        word
        for word in ("RBLNClusterPolicy cluster-policy", "coexist", "takeover", "restore")
        if word not in result["msg"]
    ] == []


def test_coexist_applies_nothing(site: Site) -> None:
    result = site.run(coexistence="coexist")
    assert (result.get("changed"), site.written) == (False, [])
    assert any("npu-container-toolkit" in note for note in result["warnings"])
    assert theirs(site) == (set(NAMES), 2)


def test_takeover_in_check_mode_writes_nothing(site: Site, tmp_path: Path) -> None:
    result = site.act("run", check=True, coexistence="takeover", takeover={"backup_dir": str(tmp_path / "copies")})
    assert not result.get("failed"), result["msg"]
    assert (result["changed"], site.written, (tmp_path / "copies").exists()) == (True, [], False)


def test_takeover_again_and_restore(site: Site, tmp_path: Path) -> None:
    given = {"coexistence": "takeover", "takeover": {"backup_dir": str(tmp_path / "copies")}}
    site.run(**given)
    # Nothing of ours takes the place of the toolkit's, so it stays.
    assert theirs(site) == ({"npu-container-toolkit"}, 0)
    copies = sorted((tmp_path / "copies").iterdir())
    assert len(copies) == 2 + len(NAMES)
    assert {oct(path.stat().st_mode & 0o777) for path in copies} == {"0o600"}
    site.run(**given)
    assert site.written == []
    # What was taken over is ours, also for a run that does not say how it came.
    site.run()
    assert site.written == []
    for _round in range(2):
        result = site.act("run", coexistence="restore", takeover=given["takeover"])
        assert not result.get("failed"), result["msg"]
        assert theirs(site)[1] == 2
        assert site.ours() == []
    assert site.written == []
    assert site.server.get("rblnclusterpolicies", "cluster-policy")["spec"] == {}


def test_drivers_in_containers_are_not_taken_over(site: Site, tmp_path: Path) -> None:
    site.create(
        {"apiVersion": "rebellions.ai/v1alpha1", "kind": "RBLNDriver", "metadata": {"name": "default"}, "spec": {}}
    )
    site.create(workload("DaemonSet", "npu-driver", site.server.get("rblndrivers", "default")))
    before = theirs(site)
    result = site.act("run", coexistence="takeover", takeover={"backup_dir": str(tmp_path)})
    assert result["failed"] and "npu-driver" in result["msg"] and "docs/cluster.md" in result["msg"]
    assert theirs(site) == before
