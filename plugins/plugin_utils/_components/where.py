# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On which nodes the pods of a component run, decided here alone, and the DaemonSet around them."""

from __future__ import annotations

import hashlib
import itertools
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._objects.inputs import Inputs, Placed
from .._objects.model import CONTAINER, PASSTHROUGH, Object, Terms, Variant
from .._objects.names import OPERANDS
from .._objects.parts import (
    GATE_PREFIX,
    LABEL_PREFIX,
    NFD_LABELS,
    NPU_KEY,
    PRESENT_LABEL,
    SKIP_LABEL,
    VARIANT_LABEL,
    WORKLOAD_LABEL,
    identity,
    metadata,
    object_name,
    pod_metadata,
    texts,
)

NONE = Variant("")


def terms(inputs: Inputs, component: str, own: Placed, mode: str = CONTAINER, variant: Variant = NONE) -> Terms:
    """Alternatives, each a list of match expressions that all hold.

    The node has an NPU by our own label or either form of the discovery's; it is not skipped; the component's gate is
    open; its workload is that of `mode` ("" for both); and it fits the variant and the inputs.
    """
    gate = GATE_PREFIX + component
    required = [{"key": SKIP_LABEL, "operator": "NotIn", "values": ["true"]}]
    required += (
        [{"key": gate, "operator": "In", "values": ["true"]}]
        if inputs["require_gate"]
        else [{"key": gate, "operator": "NotIn", "values": ["false"]}]
    )
    required += workload(inputs, mode)
    required += list(inputs["node_affinity"]) + list(own["node_affinity"])
    npu = [[{"key": key, "operator": "In", "values": ["true"]}] for key in (PRESENT_LABEL, *NFD_LABELS)]
    choices = [[list(term["expressions"]) for term in holder["affinity_terms"]] or [[]] for holder in (inputs, own)]
    parts = [list(term) for term in variant.terms] or [[]]
    return [
        [*first, *required, *part, *shared, *mine]
        for first, part, shared, mine in itertools.product(npu, parts, *choices)
    ]


def workload(inputs: Inputs, mode: str) -> list[Object]:
    """What a node's workload must be for a component of `mode`.

    A node without a known workload has that of the inputs.
    """
    if not mode:
        return []
    if mode == inputs["workload"]:
        other = PASSTHROUGH if mode == CONTAINER else CONTAINER
        return [{"key": WORKLOAD_LABEL, "operator": "NotIn", "values": [other]}]
    return [{"key": WORKLOAD_LABEL, "operator": "In", "values": [mode]}]


def affinity(inputs: Inputs, component: str, own: Placed, mode: str = CONTAINER, variant: Variant = NONE) -> Object:
    """Node affinity of a component: required `terms`, and what the inputs prefer."""
    required = {
        "nodeSelectorTerms": [{"matchExpressions": term} for term in terms(inputs, component, own, mode, variant)]
    }
    result: Object = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    preferred = [*inputs["preferred_node_affinity"], *own["preferred_node_affinity"]]
    if preferred:
        result["preferredDuringSchedulingIgnoredDuringExecution"] = preferred
    return {"nodeAffinity": result}


def tolerations(inputs: Inputs, own: Placed) -> list[Object]:
    """The NPU taint with any value and effect, then what the inputs add, each once."""
    result: list[Object] = []
    for item in [{"key": NPU_KEY, "operator": "Exists"}, *inputs["tolerations"], *own["tolerations"]]:
        if item not in result:
            result.append(dict(item))
    return result


def placement(inputs: Inputs, component: str, own: Placed, mode: str = CONTAINER, variant: Variant = NONE) -> Object:
    """Affinity, node selector, tolerations and priority of a DaemonSet's pods: the one place that decides them."""
    result: Object = {
        "affinity": affinity(inputs, component, own, mode, variant),
        "tolerations": tolerations(inputs, own),
    }
    selector = texts({**inputs["node_selector"], **own["node_selector"]})
    if selector:
        result["nodeSelector"] = selector
    priority = own["priority_class"] or inputs["priority_class"]
    if priority:
        result["priorityClassName"] = priority
    return result


def _check_mounts(component: str, pod: Object) -> None:
    """NpuError when the input host_paths names something twice, or something that the component has itself."""
    name = "%s%s.host_paths" % (OPERANDS, component.replace("-", "_"))
    containers = [*pod.get("initContainers", []), *pod.get("containers", [])]
    mounted = [[mount["mountPath"].rstrip("/") for mount in item.get("volumeMounts", [])] for item in containers]
    for what, values in (
        ("a volume named", [volume["name"] for volume in pod.get("volumes", [])]),
        *(("a mount at", paths) for paths in mounted),
    ):
        twice = next((value for number, value in enumerate(values) if value in values[:number]), "")
        if twice:
            raise NpuError(
                "%s: %s %s exists twice." % (name, what, twice),
                "Remove it, or give it another name or mount_path.",
            )


def daemon_set(
    inputs: Inputs, component: str, own: Placed, pod: Object, mode: str = CONTAINER, variant: Variant = NONE
) -> Object:
    """A DaemonSet around a pod specification; placement and pod-wide security come from here."""
    _check_mounts(component, pod)
    spec: Object = {
        "serviceAccountName": object_name(inputs, component),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        **placement(inputs, component, own, mode, variant),
        **pod,
    }
    selector, template = identity(component), pod_metadata(inputs, component, own)
    meta: t.Any = metadata(inputs, component, object_name(inputs, component, variant.name), own)
    if variant.name:
        for labels in (selector, template["labels"], meta["labels"]):
            labels[VARIANT_LABEL] = variant.name
    if component != "driver" and any(volume["name"] == "ca" for volume in pod.get("volumes", [])):
        # Programs read the authorities only when they start, so new ones replace the pods; but never those of a driver.
        digest = hashlib.sha256(inputs["ca_bundle"].strip().encode("utf-8")).hexdigest()
        template.setdefault("annotations", {})[LABEL_PREFIX + "ca-sha256"] = digest
    chosen: Object = {"matchLabels": selector}
    if variant.several and not variant.name:
        chosen["matchExpressions"] = [{"key": VARIANT_LABEL, "operator": "DoesNotExist"}]
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": meta,
        "spec": {
            "selector": chosen,
            "updateStrategy": dict(own["update_strategy"]),
            "template": {"metadata": template, "spec": spec},
        },
    }
