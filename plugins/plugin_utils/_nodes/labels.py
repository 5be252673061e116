# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The labels that a host gives its own node: its NPUs, its system, and a gate for each component."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._npu.labels import label_value, npu_labels

from .._answers.passed import passed_names
from .._components.discovery import NAME as DISCOVERY
from .._components.registry import wanted
from .._components.variants import KUBELET_LABEL, OTHER_RUNTIME, RUNTIME_LABEL, kubelet_key, kubelet_roots
from .._objects.inputs import Inputs
from .._objects.model import PASSTHROUGH
from .._objects.names import OPERANDS
from .._objects.parts import (
    GATE_PREFIX,
    KERNEL_LABEL,
    OS_ID_LABEL,
    OS_VERSION_LABEL,
    PRESENT_LABEL,
    WORKLOAD_LABEL,
    applied_fields,
)

RUNTIME_WORDS = {"containerd": "containerd", "docker": "docker", "cri-o": "crio"}
# Components for nodes whose NPUs virtual machines use, and those for nodes of either workload.
SANDBOX = ("vfio_manager", "sandbox_validator", "sandbox_device_plugin")
EITHER = ("dra_driver", "feature_discovery")
# Components that mount something below the kubelet's root, so that they need to know it.
USE_KUBELET_ROOT = ("dra_driver", "metrics_exporter")
DRIVER_READY = "driver-ready"
DISCOVERY_GATE = GATE_PREFIX + DISCOVERY
# In it the master of Node Feature Discovery, of any instance, notes on a node which labels are its own.
NFD_NOTE = "nfd.node.kubernetes.io/feature-labels"

Data = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class Seen:
    """What a run knows of a host: facts of its NPUs and runtimes, its observation, and a proof of this run, if any.

    `driver_source` and `toolkit_source` are inputs of the host roles, empty when they are not set.
    """

    facts: Data = field(default_factory=dict)
    runtimes: Data = field(default_factory=dict)
    observed: Data = field(default_factory=dict)
    proof: Data = field(default_factory=dict)
    driver_source: str = ""
    toolkit_source: str = ""

    def proven(self, driver_only: bool = False) -> bool:
        """Whether driver and toolkit, or the driver alone, were proven in this run or have the right ready files."""
        again = "passed" in self.proof
        record = self.proof if again else self.observed
        markers = record.get("markers") or {}
        if record.get("passed") and (again or markers.get("current")):
            return True
        if not driver_only or not (again or DRIVER_READY in (markers.get("present") or ())):
            return False
        names = ("failed_checks", "unknown_checks") if again else ("failed", "unknown")
        bad = {name for key in names for name in record.get(key) or ()}
        checks = [check["name"] for check in record.get("checks") or () if check["scope"] == "driver"]
        checks += passed_names(record).get("driver", [])
        return bool(checks) and not bad.intersection(checks)

    @property
    def has_driver(self) -> bool:
        """Whether the host has its own driver, or will get one."""
        if self.driver_source and self.driver_source != "container":
            return True
        return (self.facts.get("driver") or {}).get("installed_via", "none") not in ("none", "container")

    @property
    def has_toolkit(self) -> bool:
        """Whether the host writes its CDI specification itself.

        What it has done so far does not tell: the first run of a host begins before its toolkit.
        """
        return self.toolkit_source != "container"

    @property
    def has_daemon(self) -> bool:
        return (self.facts.get("daemon") or {}).get("state") == "active"


def node_labels(inputs: Inputs, seen: Seen) -> dict[str, str] | None:
    """All labels of a host's node; None when its NPUs are not known. Other unknown values are left out.

    With feature discovery only npu.present is ours of the labels about NPUs, because the discovery selects its nodes by
    it. NpuError when a component needs the kubelet's root directory and the inputs do not name it.
    """
    labels = npu_labels(PROFILE, seen.facts) if seen.facts else None
    if labels is None:
        return None
    if inputs["feature_discovery"]["enabled"]:
        labels = {PRESENT_LABEL: labels[PRESENT_LABEL]}
    labels.update(_host_labels(inputs, seen))
    if inputs["node_workload"]:
        labels[WORKLOAD_LABEL] = inputs["node_workload"]
    for row in wanted(inputs):
        if row.pods:
            labels[GATE_PREFIX + row.name] = "true" if _is_open(row.key, inputs, seen) else "false"
    return labels


def _host_labels(inputs: Inputs, seen: Seen) -> dict[str, str]:
    system = seen.facts.get("os") or {}
    values = {
        OS_ID_LABEL: system.get("id"),
        OS_VERSION_LABEL: system.get("version_id") or system.get("codename"),
        KERNEL_LABEL: (seen.facts.get("kernel") or {}).get("running"),
        RUNTIME_LABEL: _runtime(seen.runtimes),
        KUBELET_LABEL: _kubelet(inputs, seen.runtimes),
    }
    return {name: label_value(value) for name, value in values.items() if value}


def _runtime(runtimes: Data) -> str:
    """The runtime of the kubelet; `other` for one that we do not know, empty when it was not found out."""
    name = runtimes.get("kubernetes_runtime")
    named = name or (runtimes.get("kubelet") or {}).get("runtime_endpoint")
    return RUNTIME_WORDS.get(str(name), OTHER_RUNTIME) if named else ""


def _kubelet(inputs: Inputs, runtimes: Data) -> str:
    kubelet = runtimes.get("kubelet") or {}
    if not kubelet.get("present") or not kubelet.get("root_dir"):
        return ""
    root, default = kubelet["root_dir"], inputs["kubelet_root"]
    declared = {kubelet_key(path, default) for path, _variant in kubelet_roots(inputs)}
    key = kubelet_key(root, default)
    users = [row.name for row in wanted(inputs) if row.key in USE_KUBELET_ROOT]
    if users and key not in declared:
        raise NpuError(
            "The kubelet of this host has the root directory %s, which no input names and %s must know."
            % (root, ", ".join(users)),
            f"Add it for the whole cluster: {OPERANDS}kubelet_roots: [{', '.join([*inputs['kubelet_roots'], root])}]",
        )
    return key


def _is_open(key: str, inputs: Inputs, seen: Seen) -> bool:
    """Whether a gate is open: the host part is proven, there is an NPU to use, and the host does not do the work."""
    functions = [
        npu for npu in seen.facts.get("npus") or [] if npu.get("state") != "unreachable" and not npu.get("vfs")
    ]
    workload = inputs["node_workload"] or inputs["workload"]
    if key in SANDBOX or (key in EITHER and workload == PASSTHROUGH):
        # Without an IOMMU the manager and the validator report what is wrong; a plugin would offer nothing.
        return (
            any(npu.get("iommu_group") is not None for npu in functions)
            if key == "sandbox_device_plugin"
            else bool(functions)
        )
    if {"driver": seen.has_driver, "container_toolkit": seen.has_toolkit, "smd": seen.has_daemon}.get(key):
        return False
    if "driver" in {row.key for row in wanted(inputs)} and not seen.has_driver:
        # The host can prove nothing before the driver's pod runs; the pods wait for the ready files.
        return any(npu.get("state") != "passthrough" for npu in functions)
    return _usable(seen) and not lacks_proof(inputs, seen)


def _usable(seen: Seen) -> bool:
    return int((seen.facts.get("counts") or {}).get("usable") or 0) > 0


def lacks_proof(inputs: Inputs, seen: Seen) -> bool:
    """Whether the gates of a node are closed because its host has NPUs for containers and has not proven its part."""
    pods = {row.key for row in wanted(inputs)}
    machines = (inputs["node_workload"] or inputs["workload"]) == PASSTHROUGH
    if machines or not _usable(seen) or ("driver" in pods and not seen.has_driver):
        return False
    return not seen.proven(driver_only="container_toolkit" in pods and not seen.has_toolkit)


def awaits_driver(inputs: Inputs, seen: Seen) -> bool:
    """Whether a container is to bring the driver of a host, and none is loaded yet."""
    comes = "driver" in {row.key for row in wanted(inputs)} and not seen.has_driver
    return comes and bool(expected_npus(inputs, seen)) and not (seen.facts.get("driver") or {}).get("version_loaded")


def expected_npus(inputs: Inputs, seen: Seen) -> int | None:
    """How many NPUs the node must offer to containers; None when that is not known, or virtual machines use them.

    Where the driver comes as a container, NPUs without a driver count too.
    """
    usable, npus = (seen.facts.get("counts") or {}).get("usable"), seen.facts.get("npus") or []
    states = [npu.get("state") for npu in npus]
    if (
        usable is None
        or "unknown" in states
        or (npus and (inputs["node_workload"] or inputs["workload"]) == PASSTHROUGH)
    ):
        return None
    if not seen.has_driver and "driver" in {row.key for row in wanted(inputs)}:
        return int(usable) + states.count("unbound")
    return int(usable)


def owned_labels(node: Data) -> set[str]:
    """The labels of a node that are ours by server-side apply."""
    labels = [(fields.get("f:metadata") or {}).get("f:labels") or {} for fields in applied_fields(node)]
    return {name[2:] for ours in labels for name in ours if name.startswith("f:")}


def discovered_labels(node: Data) -> set[str]:
    """The labels of a node that Node Feature Discovery has set, and will remove when their source is gone."""
    notes = node["metadata"].get("annotations") or {}
    return {name for key, value in notes.items() if str(key).endswith(NFD_NOTE) for name in str(value).split(",")}


def settle_labels(labels: t.Mapping[str, str], node: Data) -> tuple[dict[str, str], list[str]]:
    """(labels to apply, notes). A label that another manager has set stays; a note tells when its value is not ours."""
    live = node["metadata"].get("labels") or {}
    ours = owned_labels(node)
    apply: dict[str, str] = {}
    notes = []
    for name, value in labels.items():
        if name not in live or name in ours:
            apply[name] = value
        elif live[name] != value:
            notes.append(
                "%s=%s was set by another manager and stays; this host would set %s" % (name, live[name], value)
            )
    return apply, notes
