# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The admission policy for our labels of nodes. Whether it holds, a real API server says: tests/integration."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.capabilities import declared
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.label_policy import NAME
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.render import build, left_out
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.model import Context
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs, one

ALL = ["ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]


def made(own: dict[str, Any], **more: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """(its objects, warnings)."""
    typed = inputs(label_policy=own, **more)
    context = Context(typed, declared(typed))
    items = [
        item for item in build(context) if item["metadata"].get("labels", {}).get("app.kubernetes.io/component") == NAME
    ]
    return items, left_out(context)


def test_off_by_default() -> None:
    assert made({}) == ([], [])


def test_who_has_the_right_is_said_by_rbac() -> None:
    items, warnings = made({"enabled": True, "users": ["deployer"], "groups": ["admins"]})
    assert ([item["kind"] for item in items], warnings) == (ALL, [])
    assert {item["metadata"]["name"] for item in items} == {"rbln-node-labels"}
    assert items[0]["rules"] == [{"apiGroups": ["rebellions.ai"], "resources": ["nodelabels"], "verbs": ["set"]}]
    assert [(item["kind"], item["name"]) for item in items[1]["subjects"]] == [
        ("User", "deployer"),
        ("Group", "admins"),
    ]
    spec = items[2]["spec"]
    assert spec["failurePolicy"] == "Fail" and items[3]["spec"]["validationActions"] == ["Deny"]
    assert spec["matchConstraints"]["resourceRules"][0]["resources"] == ["nodes", "nodes/status"]
    assert "rbln-node-labels" in spec["validations"][0]["message"]


def test_without_accounts_there_is_no_binding_of_the_right() -> None:
    items, warnings = made({"enabled": True}, name_prefix="acme")
    assert [item["kind"] for item in items] == [kind for kind in ALL if kind != "ClusterRoleBinding"]
    assert one(items, "ValidatingAdmissionPolicyBinding")["spec"]["policyName"] == "acme-node-labels"
    assert warnings == []


@pytest.mark.parametrize("version", ["1.28", "1.29"])
def test_an_older_cluster_gets_a_warning_and_no_object(version: str) -> None:
    items, warnings = made({"enabled": True, "users": ["a"]}, capabilities={"kubernetes": version})
    assert items == []
    (warning,) = warnings
    assert "rbln_operands_label_policy is wanted and left out" in warning and "1.30 or newer" in warning


@pytest.mark.parametrize("key", ["node_feature_rule", "feature_discovery"])
def test_discovery_that_would_be_refused_is_told(key: str) -> None:
    more = {key: {"enabled": True}, "capabilities": {"groups": ["nfd.k8s-sigs.io"]}}
    (warning,) = made({"enabled": True}, **more)[1]
    assert "Name the account of its master in rbln_operands_label_policy.users" in warning
    assert made({"enabled": True, "users": ["system:serviceaccount:nfd:master"]}, **more)[1] == []
