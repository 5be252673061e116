# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Our labels of nodes on a real API server, which kubelets and others may not set."""

from __future__ import annotations

import itertools
import json
import typing as t

import pytest

from tests.integration._cluster_site import Site, running
from tests.lab._base import until

GATE = "rebellions.ai/npu.deploy.device-plugin"
POLICY = {"label_policy": {"enabled": True, "users": ["deployer"]}}
KUBELET = ("--as=system:node:node-0000", "--as-group=system:nodes")
DEPLOYER = ("--as=deployer",)
# May change nodes by RBAC, and is nobody by the policy.
OPERATOR = ("--as=operator",)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Site]:
    """Kubelets, a deployer and an operator may change nodes; no admission plugin of Kubernetes limits the kubelets."""
    with running(Site(tmp_path_factory.mktemp("labels") / "home")) as one:
        verbs = "--verb=get,list,create,update,patch"
        one.server.kubectl("create", "clusterrole", "it-nodes", verbs, "--resource=nodes,nodes/status")
        who = ["--group=system:nodes", "--user=deployer", "--user=operator"]
        one.server.kubectl("create", "clusterrolebinding", "it-nodes", "--clusterrole=it-nodes", *who)
        yield one


@pytest.fixture(scope="module")
def protected(site: Site) -> Site:
    """The site with the policy in force."""
    assert patch(site, KUBELET, {GATE: "true"}) == ""
    assert site.run(**POLICY)["warnings"] == []
    # Another value each time: what stays the same is nobody's business.
    values = itertools.count()
    until(30, "the policy is in force", lambda: patch(site, KUBELET, {"rebellions.ai/try": str(next(values))}) != "")
    assert patch(site, (), {"rebellions.ai/try": None}) == ""
    return site


def patch(site: Site, who: tuple[str, ...], labels: dict[str, str | None], node: str = "node-0000", *more: str) -> str:
    """Empty when `who` may change these labels, else the refusal."""
    change = json.dumps({"metadata": {"labels": labels}})
    done = site.server.kubectl("patch", "node", node, "--type=merge", "-p", change, *who, *more, check=False)
    return done.stderr.strip() if done.returncode else ""


@pytest.mark.parametrize("who", [KUBELET, OPERATOR], ids=["kubelet", "operator"])
@pytest.mark.parametrize(
    "labels",
    [
        {"rebellions.ai/npu.present": "false"},
        {GATE: "oddity"},
        {GATE: None},
        {"rebellions.ai/oddity": "true", "zone": "a"},
    ],
    ids=["change", "gate", "removal", "new beside others"],
)
@pytest.mark.parametrize("more", [(), ("--subresource=status",)], ids=["node", "status"])
def test_others_may_not_touch_our_labels(
    protected: Site, who: tuple[str, ...], labels: dict[str, str | None], more: tuple[str, ...]
) -> None:
    before = protected.labels()
    for node in ("node-0000", "node-0001"):
        told = patch(protected, who, labels, node, *more)
        assert "Forbidden" in told or "forbidden" in told, told
        assert "the account needs the ClusterRole rbln-node-labels" in told
    assert protected.labels() == before


@pytest.mark.parametrize("who", [KUBELET, OPERATOR], ids=["kubelet", "operator"])
def test_others_may_change_everything_else(protected: Site, who: tuple[str, ...]) -> None:
    assert patch(protected, who, {"zone": "a", "example.com/rebellions.ai": "b"}) == ""
    assert (
        patch(protected, who, {"zone": None, "example.com/rebellions.ai": None}, "node-0000", "--subresource=status")
        == ""
    )
    same = protected.labels()["node-0000"]["rebellions.ai/npu.present"]
    assert patch(protected, who, {"rebellions.ai/npu.present": same}) == ""


@pytest.mark.parametrize("labels, refused", [({GATE: "true"}, True), ({"zone": "a"}, False), ({}, False)])
def test_a_kubelet_registers_its_node_without_our_labels(
    protected: Site, labels: dict[str, str], refused: bool
) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-new", "labels": labels}}
    done = protected.server.kubectl("create", "-f", "-", *KUBELET, stdin=json.dumps(node), check=False)
    protected.server.kubectl("delete", "node", "node-new", "--ignore-not-found")
    assert ("rbln-node-labels" in done.stderr) is refused and bool(done.returncode) is refused, done.stderr


def test_the_named_and_the_administrator_may(protected: Site) -> None:
    for who in (DEPLOYER, ()):
        assert patch(protected, who, {GATE: "false", "rebellions.ai/oddity": "true"}) == ""
        assert patch(protected, who, {GATE: None, "rebellions.ai/oddity": None}) == ""


def test_a_second_run_writes_nothing_and_absent_leaves_nothing(protected: Site) -> None:
    protected.run(**POLICY)
    assert protected.run(**POLICY)["changed"] is False and protected.written == []
    kinds = {item["kind"] for item in protected.ours()}
    assert kinds >= {
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ClusterRole",
        "ClusterRoleBinding",
    }
    protected.absent()
    assert protected.ours() == []
    until(30, "the policy is gone", lambda: patch(protected, KUBELET, {GATE: "oddity"}) == "")
