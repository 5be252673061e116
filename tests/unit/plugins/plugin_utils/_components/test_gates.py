# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No gate waits forever: on every kind of node, with all sets of components, each pod ends its init containers."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.registry import COMPONENTS, component_of
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.placement import selects
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import objects

TAG = {"image": {"tag": "1"}}
POOL = {"os_id": "ubuntu", "os_version": "24.04", "kernel": "6.8.0-45-generic"}
NODE = {
    "rebellions.ai/npu.present": "true",
    "rebellions.ai/host.os-id": "ubuntu",
    "rebellions.ai/host.os-version": "24.04",
    "rebellions.ai/host.kernel": "6.8.0-45-generic",
}
INPUTS: dict[str, dict[str, Any]] = {
    "driver": {**TAG, "manager": TAG, "pools": [POOL]},
    "container_toolkit": TAG,
    "device_plugin": {},
    "dra_driver": TAG,
    "smd": TAG,
    "metrics_exporter": TAG,
    "feature_discovery": {},
    "vfio_manager": {},
    "sandbox_device_plugin": TAG,
}
# Sets that differ in who makes what a gate waits for; the others wait and make nothing.
MAKERS = ("driver", "container_toolkit", "vfio_manager")
OTHERS = ("device_plugin", "smd", "metrics_exporter", "feature_discovery", "sandbox_device_plugin")
# What an init container of a validator needs beside its order, by who makes it; and what it leaves behind for others.
PROVES = {
    "driver": ("driver running", "driver-ready"),
    "toolkit": ("toolkit running", "toolkit-ready"),
    "plugin": ("plugin running", ""),
    "vfio": ("at vfio-pci", ""),
}
RUNNING = {
    "driver": "driver running",
    "container_toolkit": "toolkit running",
    "device_plugin": "plugin running",
    "vfio_manager": "at vfio-pci",
}


def policies() -> list[tuple[str, tuple[str, ...]]]:
    sets = [(*makers, *OTHERS) for size in range(len(MAKERS) + 1) for makers in itertools.combinations(MAKERS, size)]
    sets += [
        tuple(name for name in enabled if name not in ("device_plugin", "sandbox_device_plugin")) + ("dra_driver",)
        for enabled in sets
    ]
    sets += [(name,) for name in OTHERS]
    return [(workload, enabled) for workload in ("container", "vm-passthrough") for enabled in sets]


def settle(pods: dict[str, dict[str, Any]], there: set[str]) -> dict[str, str]:
    """{component: init container that it hangs in} on one node; `there` is what the host has made."""
    at = dict.fromkeys(pods, 0)
    moved = True
    while moved:
        moved = False
        for key, pod in pods.items():
            steps = pod.get("initContainers", [])
            while (
                at[key] < len(steps)
                and needs(steps[at[key]]) <= there
                or (at[key] < len(steps) and either(steps[at[key]], there))
            ):
                there |= leaves(steps[at[key]])
                at[key] += 1
                moved = True
            if at[key] == len(steps) and RUNNING.get(key, "") not in there | {""}:
                there.add(RUNNING[key])
                moved = True
    return {
        key: pods[key]["initContainers"][number]["name"]
        for key, number in at.items()
        if number < len(pods[key].get("initContainers", []))
    }


def needs(step: dict[str, Any]) -> set[str]:
    if step["name"].endswith("-validation"):
        return {PROVES[step["name"][: -len("-validation")]][0]}
    if step["name"] == "wait-for-vfio":
        return {"at vfio-pci"}
    markers = next((item["value"] for item in step.get("env", []) if item["name"] == "WAIT_MARKERS"), "")
    return {path.rsplit("/", 1)[1] for path in markers.split()}


def either(step: dict[str, Any], there: set[str]) -> bool:
    return "given_away" in str(step.get("command")) and "at vfio-pci" in there


def leaves(step: dict[str, Any]) -> set[str]:
    """A ready file, where the validator writes them."""
    return {PROVES[step["name"][: -len("-validation")]][1]} if "--markers" in step.get("command", []) else set()


def made_by_the_host(enabled: tuple[str, ...], machines: bool) -> set[str]:
    """What the host part makes: the ready files only where both driver and toolkit are its own."""
    if machines:
        return set() if "vfio_manager" in enabled else {"at vfio-pci"}
    there = {"driver running"} - ({"driver running"} if "driver" in enabled else set())
    there |= set() if "container_toolkit" in enabled else {"toolkit running"}
    if "driver" not in enabled:
        there.add("driver-ready")
        there |= set() if "container_toolkit" in enabled else {"toolkit-ready"}
    return there


@pytest.mark.parametrize(
    "workload, enabled", policies(), ids=lambda value: value if isinstance(value, str) else "+".join(value)
)
def test_every_pod_of_a_node_gets_through_its_gates(workload: str, enabled: tuple[str, ...]) -> None:
    given: dict[str, Any] = {
        "device_plugin": {"enabled": False},
        **{name: {"enabled": True, **INPUTS[name]} for name in enabled},
    }
    # A device plugin that is not there is not proven.
    given["validator"] = {"plugin": {"enabled": "device_plugin" in enabled or "dra_driver" in enabled}}
    sets = [item for item in objects(workload=workload, **given) if item["kind"] == "DaemonSet"]
    for own in (None, "container", "vm-passthrough"):
        labels = {**NODE, **({"rebellions.ai/npu.workload.config": own} if own else {})}
        node = {"metadata": {"name": "n", "labels": labels}}
        pods = {
            component_of(item): item["spec"]["template"]["spec"]
            for item in sets
            if selects(item["spec"]["template"]["spec"], node)
        }
        machines = (own or workload) == "vm-passthrough"
        assert settle(pods, made_by_the_host(enabled, machines)) == {}, (own, sorted(pods))
        expected = (
            {"vfio_manager", "sandbox_device_plugin"} if machines else {"driver", "container_toolkit", "device_plugin"}
        )
        assert expected & set(enabled) <= set(pods)


def test_a_gate_without_its_maker_is_seen() -> None:
    sets = [
        item
        for item in objects(container_toolkit={"enabled": True, **TAG})
        if item["kind"] == "DaemonSet" and component_of(item) != "validator"
    ]
    pods = {component_of(item): item["spec"]["template"]["spec"] for item in sets}
    assert settle(pods, {"driver running", "driver-ready"}) == {"device_plugin": "wait-for-host"}


def test_components_need_only_earlier_ones() -> None:
    seen: set[str] = set()
    for row in COMPONENTS:
        assert set(row.needs) <= seen, row.key
        seen.add(row.key)
