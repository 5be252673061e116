# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rule for Node Feature Discovery."""

from __future__ import annotations

from typing import Any

from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.capabilities import declared
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.node_feature_rule import notes
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.model import Context
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs, objects, one

SERVED = {"groups": ["nfd.k8s-sigs.io"]}


def told(**given: Any) -> list[str]:
    typed = inputs(**given)
    return notes(Context(typed, declared(typed)))


def test_rules_by_pci_ids() -> None:
    rule = one(objects(node_feature_rule={"enabled": True}, capabilities=SERVED), "NodeFeatureRule")
    assert rule["apiVersion"] == "nfd.k8s-sigs.io/v1alpha1"
    assert rule["metadata"]["name"] == "rbln-npu"
    assert (
        "namespace" not in rule["metadata"]
        and rule["metadata"]["labels"]["app.kubernetes.io/instance"] == "rbln-system"
    )
    found = {}
    for item in rule["spec"]["rules"]:
        (match,) = item["matchFeatures"]
        ((label, value),) = item["labels"].items()
        assert match["feature"] == "pci.device" and item["name"] == "%s %s" % (label, value)
        assert {entry["op"] for entry in match["matchExpressions"].values()} == {"In"}
        found[(label, value)] = {name: entry["value"] for name, entry in match["matchExpressions"].items()}
    assert found[("rebellions.ai/npu.present", "true")] == {"vendor": ["1eff"], "class": ["1200"]}
    assert found[("rebellions.ai/npu.family", "REBEL")] == {
        "vendor": ["1eff"],
        "device": ["2030", "2031", "2130", "2131"],
    }
    assert found[("rebellions.ai/npu.product", "RBLN-CA25")] == {"vendor": ["1eff"], "device": ["1250", "1251"]}
    assert found[("rebellions.ai/npu.product", "RBLN-CA15")] == {"vendor": ["1eff"], "device": ["1150"]}
    assert len(found) == len(rule["spec"]["rules"]) == 1 + 2 + 7


def test_it_is_left_out_and_noted_where_the_kind_is_not_served() -> None:
    assert [item for item in objects(node_feature_rule={"enabled": True}) if item["kind"] == "NodeFeatureRule"] == []
    assert told(node_feature_rule={"enabled": True}) == [
        "rbln_operands_node_feature_rule is wanted and left out: the cluster does not serve "
        "nfd.k8s-sigs.io/v1alpha1 NodeFeatureRule. "
        "Next: Install Node Feature Discovery, or leave the labels to the hosts; for manifests name "
        "the group in rbln_operands_capabilities.groups."
    ]
    assert told(node_feature_rule={"enabled": True}, capabilities=SERVED) == []
    assert told() == []
