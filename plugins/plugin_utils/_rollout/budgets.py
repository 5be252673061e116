# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which PodDisruptionBudgets keep a pod, and what lets it go, as the eviction of Kubernetes judges. Pure."""

from __future__ import annotations

import typing as t

from .._nodes.pods import pod_ready
from .._text.line import line
from .pods import ROLLOUT, Data, pod_name

# With these values a budget allows no disruption, however many pods are ready.
_NEVER = (("maxUnavailable", ("0", "0%")), ("minAvailable", ("100%",)))
_ALWAYS = "AlwaysAllow"


def budgets_of(pod: t.Mapping[str, t.Any], budgets: t.Iterable[Data]) -> list[Data]:
    """The PodDisruptionBudgets that a pod counts for."""
    meta = pod["metadata"]
    return [
        one
        for one in budgets
        if one["metadata"].get("namespace") == meta.get("namespace")
        and selects((one.get("spec") or {}).get("selector"), meta.get("labels") or {})
    ]


def in_the_way(pod: t.Mapping[str, t.Any], budgets: t.Iterable[Data]) -> list[str]:
    """The budgets, by name, that allow no disruption of the pod now."""
    return [pod_name(one) for one in budgets_of(pod, budgets) if _keeps(one, pod)]


def _keeps(budget: t.Mapping[str, t.Any], pod: t.Mapping[str, t.Any]) -> bool:
    """Whether a budget allows no disruption now. A pod that is not ready may go where nothing is lost by it."""
    status = budget.get("status") or {}
    if status.get("disruptionsAllowed", 0) > 0 or (pod.get("status") or {}).get("phase") == "Pending":
        return False
    if pod_ready(dict(pod)):
        return True
    healthy, least = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    return not (healthy >= least > 0) and (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") != _ALWAYS


def why_kept(budget: t.Mapping[str, t.Any], pod: t.Mapping[str, t.Any]) -> tuple[str, str]:
    """(why a budget lets a pod not go, what to do)."""
    name, spec, status = pod_name(budget), budget.get("spec") or {}, budget.get("status") or {}
    conditions = status.get("conditions") or []
    wrong = next((one for one in conditions if one.get("reason") == "SyncFailed"), None)
    if wrong:
        said = line(wrong.get("message") or "no reason", 200).rstrip(".")
        return (
            f"the PodDisruptionBudget {name} cannot be judged by Kubernetes: {said}",
            "Correct the selector of this budget, or delete the budget.",
        )
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        return (
            f"Kubernetes has not judged the PodDisruptionBudget {name} yet",
            "Check the controller manager of the cluster, and run again.",
        )
    for key, values in _NEVER:
        if str(spec.get(key)) in values:
            return (
                f"the PodDisruptionBudget {name} never allows a disruption: its {key} is {spec[key]}",
                "Change this budget, or delete the pod yourself; more ready replicas do not help.",
            )
    if _is_unready(pod):
        return (
            f"the PodDisruptionBudget {name} allows no disruption, and the pod is not ready",
            f"Repair or delete the pod, or set unhealthyPodEvictionPolicy of its budget to {_ALWAYS}.",
        )
    return (
        f"the PodDisruptionBudget {name} allows no disruption",
        f"Give the application more ready replicas, or raise {ROLLOUT}evict_timeout.",
    )


def _is_unready(pod: t.Mapping[str, t.Any]) -> bool:
    """Whether a pod says that it is not ready."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(one.get("type") == "Ready" and one.get("status") != "True" for one in conditions)


def selects(selector: t.Mapping[str, t.Any] | None, labels: t.Mapping[str, t.Any]) -> bool:
    """Whether a label selector selects; one that is not there selects nothing, an empty one everything."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for one in selector.get("matchExpressions") or []:
        key, values = one.get("key"), one.get("values") or []
        fits = {
            "In": key in labels and labels[key] in values,
            "NotIn": key not in labels or labels[key] not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }
        if not fits.get(str(one.get("operator")), False):
            return False
    return True
