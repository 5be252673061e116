# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sample inventories: their inputs are known, and bring the components of their workload to the right nodes."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.registry import component_of
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.cluster import read_inputs
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.normalise import normalise
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.roles import HOST_ROLES, role_inputs
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.parts import GATE_PREFIX, WORKLOAD_LABEL
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import BASE, objects

Data = dict[str, Any]
ROOT = Path(__file__).resolve().parents[5]
PREFIX = "rbln_operands_"
GROUPS = {"container-workload": ["npu_nodes"], "sandbox-workload": ["npu_nodes", "container_hosts", "vm_hosts"]}
ALONE = [(name, group) for name, groups in GROUPS.items() for group in groups]


@functools.lru_cache(maxsize=None)
def variables(name: str, group: str = "npu_nodes") -> Data:
    """Variables of a group, over those of npu_nodes."""
    folder = ROOT / "inventories" / name / "group_vars"
    found: Data = {}
    for part in dict.fromkeys(("npu_nodes", group)):
        found.update(yaml.safe_load((folder / (part + ".yml")).read_text(encoding="utf-8")))
    return found


def policy(name: str) -> Data:
    given = variables(name)
    own = {key[len(PREFIX) :]: value for key, value in given.items() if key.startswith(PREFIX)}
    return {"sdk": given["rbln_sdk"], **own}


def shown(name: str) -> dict[str, list[Data]]:
    """The DaemonSets of each component."""
    found: dict[str, list[Data]] = {}
    for item in objects(**policy(name)):
        if item["kind"] == "DaemonSet":
            found.setdefault(component_of(item), []).append(item)
    return found


@pytest.mark.parametrize("name", GROUPS)
def test_files_are_those_of_the_groups(name: str) -> None:
    folder = ROOT / "inventories" / name
    assert sorted(path.stem for path in (folder / "group_vars").glob("*")) == sorted(GROUPS[name])
    npu_nodes = yaml.safe_load((folder / "hosts.yml").read_text(encoding="utf-8"))["all"]["children"]["npu_nodes"]
    assert sorted(npu_nodes.get("children") or {}) == [group for group in GROUPS[name] if group != "npu_nodes"]
    assert (folder / "ansible.cfg").read_text(encoding="utf-8") == (ROOT / "inventories/example/ansible.cfg").read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize("name, group", ALONE)
def test_every_input_is_known_and_typed(name: str, group: str) -> None:
    given = variables(name, group)
    own = role_inputs(HOST_ROLES)
    cluster = role_inputs(("rbln_operands",))
    shared = (ROOT / "docs" / "inputs.md").read_text(encoding="utf-8")
    assert [key for key in given if key not in own and key not in cluster and "`%s`" % key not in shared] == []
    normalise({key: value for key, value in given.items() if key in own}, own)
    asked = {key: value for key, value in given.items() if key in cluster}
    typed = read_inputs({**BASE, PREFIX + "sdk": given["rbln_sdk"], **asked}, given)
    assert typed["notes"] == []


COMPONENTS = {
    "container-workload": {"validator", "device_plugin", "smd", "metrics_exporter"},
    "sandbox-workload": {"validator", "device_plugin", "vfio_manager", "sandbox_validator", "sandbox_device_plugin"},
}


@pytest.mark.parametrize("name", GROUPS)
def test_components(name: str) -> None:
    assert set(shown(name)) == COMPONENTS[name]


def wanted_of(item: Data, key: str) -> set[tuple[str, tuple[str, ...]]]:
    affinity = item["spec"]["template"]["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    found = [
        [one for one in term["matchExpressions"] if one["key"].startswith(key)]
        for term in affinity["nodeSelectorTerms"]
    ]
    assert found and all(len(term) == 1 for term in found)
    return {(term[0]["operator"], tuple(term[0]["values"])) for term in found}


def test_containers_take_every_node_but_those_for_virtual_machines_and_only_with_a_gate() -> None:
    for items in shown("container-workload").values():
        assert [wanted_of(item, WORKLOAD_LABEL) for item in items] == [{("NotIn", ("vm-passthrough",))}] * len(items)
        gates = [
            wanted_of(item, GATE_PREFIX + item["metadata"]["labels"]["app.kubernetes.io/component"]) for item in items
        ]
        assert gates == [{("In", ("true",))}] * len(items)


def test_virtual_machines_take_every_node_but_those_for_containers() -> None:
    for key, items in shown("sandbox-workload").items():
        expected = ("In", ("container",)) if key in ("validator", "device_plugin") else ("NotIn", ("container",))
        assert [wanted_of(item, WORKLOAD_LABEL) for item in items] == [{expected}] * len(items)
