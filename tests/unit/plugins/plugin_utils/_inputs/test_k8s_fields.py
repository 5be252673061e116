# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A wrong field in Kubernetes form is named before any API server is asked."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs

EXPRESSION = {"key": "zone", "operator": "In", "values": ["a"]}

WRONG: dict[str, tuple[str, Any, tuple[str, ...]]] = {
    "toleration field": (
        "tolerations",
        [{"key": "a", "efect": "NoExecute"}],
        ("tolerations[0].efect", "Did you mean effect?"),
    ),
    "toleration effect": (
        "tolerations",
        [{"key": "a", "effect": "NoExec"}],
        ("tolerations[0].effect is 'NoExec'", "NoExecute"),
    ),
    "toleration value": ("tolerations", [{"key": "a", "value": True}], ("tolerations[0].value is True", "Quote it.")),
    "toleration without key": ("tolerations", [{"value": "a"}], ("tolerations[0] has no key",)),
    "toleration with too much": (
        "tolerations",
        [{"key": "a", "operator": "Exists", "value": "b"}],
        ("Exists and a value",),
    ),
    "toleration seconds": (
        "tolerations",
        [{"key": "a", "operator": "Exists", "tolerationSeconds": 5}],
        ("tolerationSeconds needs", "NoExecute"),
    ),
    "toleration seconds as text": (
        "tolerations",
        [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": "5"}],
        ("tolerationSeconds is '5'", "whole number"),
    ),
    "no mapping": ("tolerations", ["a"], ("tolerations[0]",)),
    "affinity field": ("node_affinity", [{"key": "a", "operater": "In"}], ("node_affinity[0].operater", "operator")),
    "affinity operator": (
        "node_affinity",
        [{"key": "a", "operator": "in", "values": ["x"]}],
        ("operator is 'in'", "Did you mean In?"),
    ),
    "affinity incomplete": ("node_affinity", [{"key": "a"}], ("no operator",)),
    "affinity no values": ("node_affinity", [{"key": "a", "operator": "In"}], ("In and no values",)),
    "affinity too many": (
        "node_affinity",
        [{"key": "a", "operator": "Exists", "values": ["x"]}],
        ("Exists and values",),
    ),
    "affinity number": ("node_affinity", [{"key": "a", "operator": "Gt", "values": ["x"]}], ("one whole number",)),
    "affinity value type": (
        "node_affinity",
        [{"key": "a", "operator": "In", "values": [1]}],
        ("values[0] is 1", "Quote it."),
    ),
    "affinity values": ("node_affinity", [{"key": "a", "operator": "In", "values": "x"}], ("values must be a list",)),
    "alternative": (
        "affinity_terms",
        [{"expressions": [{"kay": "a"}]}],
        ("affinity_terms[0].expressions[0].kay", "key"),
    ),
    "preference field": ("preferred_node_affinity", [{"wieght": 1}], ("wieght", "weight")),
    "preference weight": (
        "preferred_node_affinity",
        [{"weight": 0, "preference": {"matchExpressions": [EXPRESSION]}}],
        ("weight from 1 to 100",),
    ),
    "preference part": (
        "preferred_node_affinity",
        [{"weight": 1, "preference": {"matchExpresions": []}}],
        ("matchExpresions", "matchExpressions"),
    ),
    "preference expression": (
        "preferred_node_affinity",
        [{"weight": 1, "preference": {"matchFields": [{"key": "a"}]}}],
        ("matchFields[0]",),
    ),
    "strategy type": ("update_strategy", {"type": "Rolling"}, ("update_strategy.type", "RollingUpdate")),
    "strategy field": ("update_strategy", {"rollingUpdate": {"maxUnavailble": 1}}, ("maxUnavailble", "maxUnavailable")),
    "strategy share": (
        "update_strategy",
        {"rollingUpdate": {"maxUnavailable": "ten"}},
        ("maxUnavailable is 'ten'", "10%"),
    ),
    "strategy both": (
        "update_strategy",
        {"type": "OnDelete", "rollingUpdate": {"maxUnavailable": 1}},
        ("OnDelete and rollingUpdate",),
    ),
    "strategy surge": ("update_strategy", {"rollingUpdate": {"maxSurge": 1}}, ("maxSurge", "maxUnavailable")),
    "resources field": (
        "device_plugin",
        {"resources": {"request": {}}},
        ("device_plugin.resources.request", "requests"),
    ),
    "resource name": ("device_plugin", {"resources": {"limits": {"memmory": "1Mi"}}}, ("limits.memmory", "memory")),
    "resource amount": (
        "device_plugin",
        {"resources": {"limits": {"memory": "1 MB"}}},
        ("limits.memory is '1 MB'", "40Mi"),
    ),
    "resource list": ("device_plugin", {"resources": {"limits": []}}, ("limits must be a mapping",)),
    "env field": (
        "device_plugin",
        {"env": [{"name": "A", "valeFrom": {}}]},
        ("device_plugin.env[0].valeFrom", "valueFrom"),
    ),
    "env source": (
        "smd",
        {"env": [{"name": "A", "valueFrom": {"fieldref": {}}}]},
        ("smd.env[0].valueFrom.fieldref", "fieldRef"),
    ),
    "env both": (
        "smd",
        {"env": [{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]},
        ("both value and valueFrom",),
    ),
    "env no source": ("smd", {"env": [{"name": "A", "valueFrom": {}}]}, ("exactly one source",)),
    "env name": ("smd", {"env": {"A B": "1"}}, ("not a variable name",)),
    "inside an instance": (
        "driver_instances",
        [{"name": "a", "tolerations": [{"key": "a", "oprator": "Exists"}]}],
        ("driver_instances[0].tolerations[0].oprator", "operator"),
    ),
    "inside a step": (
        "validator",
        {"plugin": {"env": [{"name": "A", "vale": "1"}]}},
        ("validator.plugin.env[0].vale", "value"),
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_field_is_named(case: str) -> None:
    name, value, words = WRONG[case]
    with pytest.raises(NpuError) as caught:
        inputs(**{name: value})
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert "rbln_operands_" + name in str(caught.value)


RIGHT: dict[str, Any] = {
    "tolerations": [
        {"operator": "Exists"},
        {"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 5},
        {"key": "a", "effect": ""},
    ],
    "node_affinity": [EXPRESSION, {"key": "a", "operator": "Exists"}, {"key": "n", "operator": "Gt", "values": ["4"]}],
    "affinity_terms": [{"expressions": [EXPRESSION]}, {"expressions": [EXPRESSION, EXPRESSION]}],
    "preferred_node_affinity": [
        {"weight": 100, "preference": {"matchExpressions": [EXPRESSION], "matchFields": [EXPRESSION]}}
    ],
    "update_strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": "25%"}},
    "device_plugin": {
        "update_strategy": {"type": "OnDelete"},
        "resources": {
            "requests": {"cpu": 1, "memory": "1.5Gi", "hugepages-2Mi": "4Mi"},
            "limits": {"example.com/x": "1e3"},
            "claims": [{"name": "c"}],
        },
        "env": [
            {"name": "A", "value": 1},
            {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "C", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
        ],
    },
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_fields_pass(name: str) -> None:
    assert inputs(**{name: RIGHT[name]})[name]
