# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On which nodes the pods of a component run: the one place that decides it, and the DaemonSet around them."""

from __future__ import annotations

import itertools

from ._object_parts import GATE_PREFIX, NFD_LABELS, NPU_KEY, PRESENT_LABEL, Inputs, Object, identity, metadata, pod_metadata, texts


def terms(inputs: Inputs, component: str, own: Inputs) -> list[list[Object]]:
    """Alternatives, each a list of match expressions that all hold: an NPU by our own label or either form of the discovery's, the gate, the inputs."""
    gate = GATE_PREFIX + component
    required = [{"key": gate, "operator": "In", "values": ["true"]}] if inputs["require_gate"] else [{"key": gate, "operator": "NotIn", "values": ["false"]}]
    required += list(inputs["node_affinity"]) + list(own["node_affinity"])
    npu = [[{"key": key, "operator": "In", "values": ["true"]}] for key in (PRESENT_LABEL, *NFD_LABELS)]
    choices = [[list(term["expressions"]) for term in holder["affinity_terms"]] or [[]] for holder in (inputs, own)]
    return [[*first, *required, *shared, *mine] for first, shared, mine in itertools.product(npu, *choices)]


def affinity(inputs: Inputs, component: str, own: Inputs) -> Object:
    """Node affinity of a component: required `terms`, and what the inputs prefer."""
    required = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms(inputs, component, own)]}
    result: Object = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    preferred = [*inputs["preferred_node_affinity"], *own["preferred_node_affinity"]]
    if preferred:
        result["preferredDuringSchedulingIgnoredDuringExecution"] = preferred
    return {"nodeAffinity": result}


def tolerations(inputs: Inputs, own: Inputs) -> list[Object]:
    """The NPU taint with any value and effect, then what the inputs add, each once."""
    result: list[Object] = []
    for item in [{"key": NPU_KEY, "operator": "Exists"}, *inputs["tolerations"], *own["tolerations"]]:
        if item not in result:
            result.append(dict(item))
    return result


def placement(inputs: Inputs, component: str, own: Inputs) -> Object:
    """Affinity, node selector, tolerations and priority of a DaemonSet's pods: the one place that decides them."""
    result: Object = {"affinity": affinity(inputs, component, own), "tolerations": tolerations(inputs, own)}
    selector = texts({**inputs["node_selector"], **own["node_selector"]})
    if selector:
        result["nodeSelector"] = selector
    priority = own["priority_class"] or inputs["priority_class"]
    if priority:
        result["priorityClassName"] = priority
    return result


def daemon_set(inputs: Inputs, component: str, own: Inputs, pod: Object) -> Object:
    """A DaemonSet around a pod specification; placement and pod-wide security come from here."""
    spec: Object = {
        "serviceAccountName": "rbln-" + component,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        **placement(inputs, component, own),
        **pod,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata(inputs, component, "rbln-" + component, own),
        "spec": {
            "selector": {"matchLabels": identity(component)},
            "updateStrategy": dict(own["update_strategy"]),
            "template": {"metadata": pod_metadata(inputs, component, own), "spec": spec},
        },
    }
