# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes should have a component, and what a component proves beyond running pods. Pure, on API objects."""

from __future__ import annotations

import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._checks.plugin import amount, settled

from .._objects.inputs import Inputs
from .._objects.model import CONTAINER, PASSTHROUGH
from .._objects.names import OPERANDS
from .._objects.parts import GATE_PREFIX, LABEL_PREFIX, NPU_KEY, SKIP_LABEL, WORKLOAD_LABEL
from .labels import EITHER, SANDBOX
from .records import Offer

Data = dict[str, t.Any]
COUNT_LABEL = NPU_KEY + ".count"
# What Node Feature Discovery itself leaves on a node, in every release.
NFD_PREFIXES = ("nfd.node.kubernetes.io/", "feature.node.kubernetes.io/")


def workload_of(inputs: Inputs, labels: t.Mapping[str, str]) -> str:
    """What uses the NPUs of a node: its label, or the inputs when the label is missing or unknown."""
    said = labels.get(WORKLOAD_LABEL)
    return said if said in (CONTAINER, PASSTHROUGH) else str(inputs["workload"])


def left_out(inputs: Inputs, key: str, name: str, node: t.Mapping[str, t.Any]) -> str:
    """Why a node with NPUs is not meant to have the component, by its labels; empty when it is."""
    labels = node["metadata"].get("labels") or {}
    if labels.get(SKIP_LABEL) == "true":
        return "its label %s=true keeps everything off" % SKIP_LABEL
    if labels.get(GATE_PREFIX + name) == "false":
        return "its label %s=false keeps it off" % (GATE_PREFIX + name)
    mode = "" if key in EITHER else PASSTHROUGH if key in SANDBOX else CONTAINER
    own = workload_of(inputs, labels)
    if mode and own != mode:
        return "its NPUs are for %s" % own
    if inputs["require_gate"] and labels.get(GATE_PREFIX + name) != "true":
        return "its label %s is not true" % (GATE_PREFIX + name)
    return ""


def npus_to_offer(inputs: Inputs, node: t.Mapping[str, t.Any], expected: int | None) -> int | None:
    """How many NPUs a node is to offer to containers, of the `expected` of its host; None where that is not known.

    Also where it is not to offer any: another way than the device plugin, or people keep the node for something else.
    """
    labels = node["metadata"].get("labels") or {}
    spared = labels.get(SKIP_LABEL) == "true" or workload_of(inputs, labels) != CONTAINER
    return None if spared or not inputs["device_plugin"]["enabled"] else expected


def node_ready(node: t.Mapping[str, t.Any]) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or []
    return any(item.get("type") == "Ready" and item.get("status") == "True" for item in conditions)


def allocatable_of(node: t.Mapping[str, t.Any]) -> Data:
    return (node.get("status") or {}).get("allocatable") or {}


class Allocatable:
    """Allocatable NPUs over several looks: two right answers in a row, with the plugin's pod ready, settle a node."""

    def __init__(self, resource: str) -> None:
        self._resource = resource
        self._samples: dict[str, list[Data]] = {}

    def look(self, node: t.Mapping[str, t.Any], expected: int, plugin_ready: bool, seconds: float) -> Offer:
        """What one node offers at this look."""
        name = node["metadata"]["name"]
        sample: Data = {
            "t": seconds,
            "ready": node_ready(node),
            "alloc": allocatable_of(node),
            "plugin_ready": plugin_ready or expected == 0,
        }
        samples = self._samples.setdefault(name, [])
        samples[:] = samples[-3:] + [sample]
        return {
            "expected": expected,
            "allocatable": _amount(sample["alloc"], self._resource),
            "node_ready": sample["ready"],
            "plugin_ready": sample["plugin_ready"],
            "settled": bool(settled(samples, expected, self._resource)["settled"]),
        }


def _amount(allocatable: Data, resource: str) -> int:
    try:
        return amount(allocatable, resource) or 0
    except ValueError:
        # Such a node never settles, and the others must be judged.
        return 0


def allocatable_npus(node: t.Mapping[str, t.Any], resource: str) -> int:
    """How many NPUs a node offers; 0 where it says nothing that counts."""
    return _amount(allocatable_of(node), resource)


def allocatable_text(name: str, state: Offer, resource: str) -> str:
    """Why a node is not settled."""
    if not state["node_ready"]:
        return "node %s is not Ready. Next: Look at the kubelet of the node." % name
    if state["allocatable"] == state["expected"]:
        return (
            f"node {name}: {state['expected']} {resource} are allocatable as expected, "
            f"not yet twice in a row with a ready plugin. Next: Give it more time: {OPERANDS}wait_timeout."
        )
    return (
        f"node {name}: {state['allocatable']} {resource} allocatable, {state['expected']} expected. "
        "Next: Read the log of the device plugin's pod on this node."
    )


def vfio_text(node: t.Mapping[str, t.Any], resource: str) -> str:
    """Why a node of virtual machines offers nothing; empty when it does. Its resources are named by product."""
    offered = {
        key: value
        for key, value in allocatable_of(node).items()
        if key.startswith(LABEL_PREFIX) and key != resource and str(value) != "0"
    }
    if offered:
        return ""
    return (
        "node %s offers no function to virtual machines. "
        "Next: Read the logs of the vfio manager and the sandbox device plugin on this node." % node["metadata"]["name"]
    )


def slices_text(name: str, expected: int | None, slices: t.Iterable[t.Mapping[str, t.Any]], driver: str) -> str:
    """Why the ResourceSlices of a node do not hold as many devices as its host has NPUs; empty when they do.

    Where that number is not known, any above zero will do.
    """
    specs = [item.get("spec") or {} for item in slices]
    found = sum(
        len(spec.get("devices") or [])
        for spec in specs
        if spec.get("driver") == driver and spec.get("nodeName") == name
    )
    if found == expected or (found and expected is None):
        return ""
    return (
        f"node {name}: {found} devices in the ResourceSlices of {driver}, {number_text(expected)} expected. "
        "Next: Read the log of the DRA driver's pod on this node."
    )


def number_text(expected: int | None) -> str:
    """How many NPUs a node is expected to offer, in words."""
    return "some" if expected is None else str(expected)


def endpoints_text(service: str, slices: t.Iterable[t.Mapping[str, t.Any]]) -> str:
    """Why metrics cannot be read through a Service; empty when it has a ready endpoint."""
    for item in slices:
        for endpoint in item.get("endpoints") or []:
            if (endpoint.get("conditions") or {}).get("ready") is not False:
                return ""
    return "the Service %s has no ready endpoint. Next: Look at the pods of the metrics exporter." % service


def discovered_text(node: t.Mapping[str, t.Any]) -> str:
    """Why a node lacks the label that the discovery writes; empty when it has it.

    Node Feature Discovery leaves annotations and labels of its own on each node that it has looked at.
    """
    meta = node["metadata"]
    if (meta.get("labels") or {}).get(COUNT_LABEL):
        return ""
    name = meta["name"]
    if not any(str(key).startswith(NFD_PREFIXES) for part in ("annotations", "labels") for key in meta.get(part) or {}):
        return (
            f"Node Feature Discovery has not looked at node {name}: it has none of its labels and annotations. "
            "Next: Install it, or let its worker run on this node; without it, disable feature_discovery, and each "
            "host labels its own node."
        )
    return (
        f"node {name} has no label {COUNT_LABEL} yet. Next: Wait for the next round of Node Feature Discovery; "
        f"if it stays, read the log of its worker on this node, and allow labels of {LABEL_PREFIX.rstrip('/')} in its "
        "settings."
    )
