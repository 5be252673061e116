# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes the scheduler gives a DaemonSet's pod: selectors, affinity, taints. Pure, on API objects."""

from __future__ import annotations

import typing as t

Data = t.Mapping[str, t.Any]

# The tolerations that the DaemonSet controller adds to its pods by itself, with their effects.
CONTROLLER_TOLERATES = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
# The one more that pods with the network of the node get.
HOST_NETWORK_TOLERATES = ("node.kubernetes.io/network-unavailable", "NoSchedule")


def _number(text: t.Any) -> int | None:
    try:
        return int(str(text))
    except ValueError:
        return None


def matches(expression: Data, labels: Data) -> bool:
    """One match expression against labels; NotIn and DoesNotExist hold for an absent label, as in Kubernetes."""
    key, operator = expression["key"], expression["operator"]
    values = expression.get("values") or []
    value = labels.get(key)
    if operator == "In":
        return value is not None and value in values
    if operator == "NotIn":
        return value is None or value not in values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    left, right = _number(value), _number(values[0] if values else "")
    if left is None or right is None:
        return False
    return left > right if operator == "Gt" else left < right


def selects(pod_spec: Data, node: Data) -> bool:
    """Whether node selector and required affinity fit the node; terms of the affinity are alternatives."""
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (pod_spec.get("nodeSelector") or {}).items()):
        return False
    affinity = ((pod_spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if not affinity:
        return True
    fields = {"metadata.name": node["metadata"]["name"]}
    for term in affinity.get("nodeSelectorTerms") or []:
        expressions, field_expressions = term.get("matchExpressions") or [], term.get("matchFields") or []
        if not expressions and not field_expressions:
            continue
        if all(matches(item, labels) for item in expressions) and all(
            matches(item, fields) for item in field_expressions
        ):
            return True
    return False


def tolerates(toleration: Data, taint: Data) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")


def repelling(pod_spec: Data, node: Data) -> list[Data]:
    """The taints that keep a DaemonSet's pod off a node."""
    added = CONTROLLER_TOLERATES + ((HOST_NETWORK_TOLERATES,) if pod_spec.get("hostNetwork") else ())
    return [
        taint
        for taint in (node.get("spec") or {}).get("taints") or []
        if taint.get("effect") != "PreferNoSchedule"
        and (taint.get("key"), taint.get("effect")) not in added
        and not any(tolerates(item, taint) for item in pod_spec.get("tolerations") or [])
    ]


def taint_text(taint: Data) -> str:
    """key=value:effect, as kubectl writes it."""
    value = "=%s" % taint["value"] if taint.get("value") else ""
    return "%s%s:%s" % (taint.get("key"), value, taint.get("effect"))


def repelling_taints(pod_spec: Data, node: Data) -> list[str]:
    """The texts of the taints that keep a DaemonSet's pod off a node."""
    return [taint_text(taint) for taint in repelling(pod_spec, node)]
