# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a cluster serves, told by inputs and asked of an API server."""

from __future__ import annotations

from typing import Any, cast

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.api import KINDS, ApiError, Cluster
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.capabilities import declared, discover, serves
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.model import Capabilities

MONITOR = ("monitoring.coreos.com/v1", "ServiceMonitor")
RULE = ("nfd.k8s-sigs.io/v1alpha1", "NodeFeatureRule")
CLASS = ("resource.k8s.io/v1", "DeviceClass")
POLICY = ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy")
BINDING = ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding")
OPERATOR = ("rebellions.ai/v1beta1", "RBLNClusterPolicy")
OPERATOR_DRIVER = ("rebellions.ai/v1alpha1", "RBLNDriver")
SOMETIMES = {
    MONITOR,
    RULE,
    CLASS,
    POLICY,
    BINDING,
    OPERATOR,
    OPERATOR_DRIVER,
    ("resource.k8s.io/v1", "ResourceSlice"),
    ("resource.k8s.io/v1", "ResourceClaim"),
}


class Server:
    """Answers of an API server: path to a body, or to the status of an error. `asked` lists the paths."""

    def __init__(self, **answers: Any) -> None:
        self.answers: dict[str, Any] = answers
        self.asked: list[str] = []

    def request(self, method: str, path: str, what: str) -> tuple[int, dict[str, Any]]:
        assert method == "GET" and what
        self.asked.append(path)
        answer = self.answers[path]
        if isinstance(answer, int):
            raise ApiError(answer, what, {})
        return 200, answer


def server(groups: dict[str, list[str]], **answers: Any) -> Server:
    listed = [
        {"name": name, "versions": [{"version": version} for version in versions]} for name, versions in groups.items()
    ]
    return Server(**{"/apis": {"groups": listed}, **answers})


def kinds(*names: str) -> dict[str, Any]:
    return {"resources": [{"name": name.lower() + "s", "kind": name} for name in names]}


def tell(kubernetes: str = "1.34", *groups: str) -> Capabilities:
    return declared({"capabilities": {"kubernetes": kubernetes, "groups": list(groups)}})


def test_what_every_release_has_is_served_without_a_look() -> None:
    assert {key for key in KINDS if not serves(Capabilities(), *key)} == SOMETIMES
    assert not serves(Capabilities(), "example.com/v1", "Odd")
    assert serves(Capabilities({"example.com": ("v1",)}), "example.com/v1", "Odd")


@pytest.mark.parametrize(
    ("kubernetes", "classes", "policies"),
    [
        ("1.29", False, False),
        ("v1.30.4", False, True),
        ("1.33.1+rke2r1", False, True),
        ("1.34", True, True),
        ("1.100", True, True),
        ("2.0", True, True),
    ],
)
def test_told_version(kubernetes: str, classes: bool, policies: bool) -> None:
    found = tell(kubernetes)
    assert (serves(found, *CLASS), serves(found, *POLICY), serves(found, *BINDING)) == (classes, policies, policies)
    assert not serves(found, *MONITOR)


def test_told_groups_have_all_kinds_we_know() -> None:
    found = tell("1.29", "monitoring.coreos.com", "security.openshift.io", "rebellions.ai")
    assert {key for key in SOMETIMES if serves(found, *key)} == {MONITOR, OPERATOR, OPERATOR_DRIVER}
    assert found.groups["security.openshift.io"] == ("v1",)
    assert found.groups["rebellions.ai"] == ("v1beta1", "v1alpha1")


@pytest.mark.parametrize("kubernetes", ["", "new", "1", "1.x"])
def test_no_version(kubernetes: str) -> None:
    with pytest.raises(
        NpuError, match="rbln_operands_capabilities.kubernetes is '%s', which is not a version" % kubernetes
    ):
        tell(kubernetes)


def test_a_plain_cluster_costs_one_request() -> None:
    plain = server({"apps": ["v1"], "resource.k8s.io": ["v1"], "admissionregistration.k8s.io": ["v1"]})
    found = discover(cast(Cluster, plain))
    assert plain.asked == ["/apis"]
    assert serves(found, *CLASS) and serves(found, *POLICY)


@pytest.mark.parametrize(
    ("listed", "served"),
    [
        (("ValidatingWebhookConfiguration",), set()),
        (("ValidatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"), None),
    ],
    ids=["1.29", "1.30"],
)
def test_an_older_cluster_is_asked_for_policies(listed: tuple[str, ...], served: set[tuple[str, str]] | None) -> None:
    old = server(
        {"apps": ["v1"], "resource.k8s.io": ["v1beta1"], "admissionregistration.k8s.io": ["v1"]},
        **{"/apis/admissionregistration.k8s.io/v1": kinds(*listed)},
    )
    found = discover(cast(Cluster, old))
    assert old.asked == ["/apis", "/apis/admissionregistration.k8s.io/v1"]
    assert {key for key in SOMETIMES if serves(found, *key)} == ({POLICY, BINDING} if served is None else served)


def test_custom_groups_are_looked_into_only_at_versions_we_know() -> None:
    full = server(
        {
            "resource.k8s.io": ["v1", "v1beta2"],
            "monitoring.coreos.com": ["v1", "v1alpha1"],
            "nfd.k8s-sigs.io": ["v1alpha1"],
            "rebellions.ai": ["v1beta1"],
        },
        **{
            "/apis/monitoring.coreos.com/v1": kinds("PodMonitor", "ServiceMonitor"),
            "/apis/nfd.k8s-sigs.io/v1alpha1": kinds("NodeFeature"),
            "/apis/rebellions.ai/v1beta1": kinds("RBLNClusterPolicy"),
        },
    )
    found = discover(cast(Cluster, full))
    assert full.asked == [
        "/apis",
        "/apis/monitoring.coreos.com/v1",
        "/apis/nfd.k8s-sigs.io/v1alpha1",
        "/apis/rebellions.ai/v1beta1",
    ]
    assert found.kinds == {MONITOR, OPERATOR, POLICY, BINDING}
    assert serves(found, *CLASS) and not serves(found, *RULE)


@pytest.mark.parametrize(("status", "expected"), [(403, {MONITOR}), (404, set())])
def test_what_may_not_be_looked_into_is_not_taken_for_missing(status: int, expected: set[tuple[str, str]]) -> None:
    shut = server({"monitoring.coreos.com": ["v1"]}, **{"/apis/monitoring.coreos.com/v1": status})
    assert discover(cast(Cluster, shut)).kinds == expected


@pytest.mark.parametrize("answers", [{"/apis": 403}, {"/apis/monitoring.coreos.com/v1": 500}])
def test_other_errors_are_errors(answers: dict[str, int]) -> None:
    with pytest.raises(ApiError):
        discover(cast(Cluster, server({"monitoring.coreos.com": ["v1"]}, **answers)))
