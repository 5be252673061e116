# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On which nodes a component runs."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.where import daemon_set, terms
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.model import CONTAINER, PASSTHROUGH, Variant
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.placement import matches, selects
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs, objects, pod_of

SKIP = "rebellions.ai/npu.deploy.skip"
GATE = "rebellions.ai/npu.deploy.validator"


def term(key: str) -> dict[str, Any]:
    return {"expressions": [{"key": key, "operator": "Exists"}]}


@pytest.mark.parametrize(
    "path, words",
    [
        ({"name": "dev", "path": "/more"}, ("rbln_operands_smd.host_paths", "a volume named dev")),
        ({"name": "more", "path": "/dev/"}, ("a mount at /dev", "mount_path")),
        ({"name": "more", "path": "/more", "mount_path": "/sys"}, ("a mount at /sys",)),
    ],
)
def test_no_host_path_is_there_twice(path: dict[str, str], words: tuple[str, ...]) -> None:
    with pytest.raises(NpuError) as caught:
        objects(smd={"enabled": True, "image": {"tag": "1"}, "host_paths": [path]})
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_shared_and_own_alternatives_are_multiplied() -> None:
    pod = pod_of(objects(affinity_terms=[term("a"), term("b")], validator={"affinity_terms": [term("c")]}), "validator")
    for names, expected in (("ac", True), ("bc", True), ("ab", False), ("c", False)):
        labels = {"rebellions.ai/npu.present": "true", **{name: "" for name in names}}
        assert selects(pod, {"metadata": {"name": "n", "labels": labels}}) is expected, names


def test_what_is_preferred_is_passed_on() -> None:
    wish = {"weight": 5, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}
    pod = pod_of(objects(preferred_node_affinity=[wish]), "device-plugin")
    assert pod["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] == [wish]


WORKLOAD = "rebellions.ai/npu.workload.config"
# {(workload of the inputs, of the node): (container components, those for virtual machines)}
MATRIX = {
    ("container", None): (True, False),
    ("container", "container"): (True, False),
    ("container", "vm-passthrough"): (False, True),
    ("container", "vm-vgpu"): (True, False),
    ("vm-passthrough", None): (False, True),
    ("vm-passthrough", "container"): (True, False),
    ("vm-passthrough", "vm-passthrough"): (False, True),
    ("vm-passthrough", "vm-vgpu"): (False, True),
}


@pytest.mark.parametrize("default, own", MATRIX)
def test_001_12_workload_of_a_node_decides_which_components_it_gets(default: str, own: Any) -> None:
    labels = {"rebellions.ai/npu.present": "true", **({WORKLOAD: own} if own else {})}
    typed = inputs(workload=default)
    found = []
    for mode in (CONTAINER, PASSTHROUGH, ""):
        found.append(chosen(terms(typed, "device-plugin", typed["device_plugin"], mode), labels))
    assert tuple(found) == (*MATRIX[default, own], True)


def chosen(alternatives: Any, labels: dict[str, str]) -> bool:
    return any(all(matches(item, labels) for item in term) for term in alternatives)


PRESENT = (
    "rebellions.ai/npu.present",
    "feature.node.kubernetes.io/pci-1200_1eff.present",
    "feature.node.kubernetes.io/pci-1eff.present",
    None,
)


def test_a_node_gets_a_component_when_all_of_the_rules_allow_it() -> None:
    seen = 0
    for present, skip, gate, required, own in itertools.product(
        PRESENT, (None, "true", "false"), (None, "true", "false"), (False, True), (None, PASSTHROUGH)
    ):
        labels = {
            key: value
            for key, value in ((present, "true"), (SKIP, skip), (GATE, gate), (WORKLOAD, own))
            if key and value
        }
        typed = inputs(require_gate=required)
        wanted = bool(present) and skip != "true" and own is None and (gate == "true" if required else gate != "false")
        assert chosen(terms(typed, "validator", typed["validator"]), labels) is wanted, labels
        seen += wanted
    assert seen == 18


def test_variants_have_names_labels_and_nodes_of_their_own() -> None:
    typed = inputs()
    one = {"key": "kind", "operator": "In", "values": ["a"]}
    made = daemon_set(typed, "x", typed["validator"], {}, variant=Variant("a", ((one,),)))
    assert made["metadata"]["name"] == "rbln-x-a"
    assert made["spec"]["selector"]["matchLabels"]["rebellions.ai/npu.variant"] == "a"
    assert made["spec"]["selector"]["matchLabels"].items() <= made["spec"]["template"]["metadata"]["labels"].items()
    for term in made["spec"]["template"]["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]:
        assert one in term["matchExpressions"]
    assert (
        "rebellions.ai/npu.variant"
        not in daemon_set(typed, "x", typed["validator"], {})["spec"]["selector"]["matchLabels"]
    )
