# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which budgets keep a pod, as Kubernetes judges an eviction, and what is said of each."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.budgets import (
    budgets_of,
    in_the_way,
    selects,
    why_kept,
)
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.rollout_api import budget, pod

UNREADY = {"conditions": [{"type": "Ready", "status": "False"}]}
READY = {"conditions": [{"type": "Ready", "status": "True"}]}


@pytest.mark.parametrize(
    "selector, fits",
    [
        (None, False),
        ({}, True),
        ({"matchLabels": {"app": "x"}}, True),
        ({"matchLabels": {"app": "y"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["x", "z"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]}, False),
        ({"matchExpressions": [{"key": "no", "operator": "NotIn", "values": ["x"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
        ({"matchLabels": {"app": "x"}, "matchExpressions": [{"key": "b", "operator": "Exists"}]}, False),
    ],
)
def test_selectors_are_those_of_kubernetes(selector: Any, fits: bool) -> None:
    assert selects(selector, {"app": "x"}) is fits


def test_budgets_of_a_pod_are_of_its_namespace_and_labels() -> None:
    one = pod("a", labels={"app": "x"})
    budgets = [
        budget("b", app="x"),
        budget("c", 1, app="x"),
        budget("d", namespace="other", app="x"),
        budget("e", app="y"),
    ]
    assert [item["metadata"]["name"] for item in budgets_of(one, budgets)] == ["b", "c"]
    assert in_the_way(one, budgets) == ["team/b"]


def keep(spec: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    found = budget("keep", app="x")
    found["spec"].update(spec or {})
    found["status"].update(status)
    return found


@pytest.mark.parametrize(
    "status, one, kept",
    [
        (READY, keep(), True),
        (READY, keep(disruptionsAllowed=1), False),
        # kubernetes/kubernetes#72320: a pod that crashes again and again is kept where its application lacks pods.
        (UNREADY, keep(currentHealthy=1, desiredHealthy=2), True),
        (UNREADY, keep(currentHealthy=0, desiredHealthy=0), True),
        # Its application has enough without it.
        (UNREADY, keep(currentHealthy=2, desiredHealthy=2), False),
        (READY, keep(currentHealthy=2, desiredHealthy=2), True),
        (UNREADY, keep({"unhealthyPodEvictionPolicy": "AlwaysAllow"}, currentHealthy=0, desiredHealthy=2), False),
        (READY, keep({"unhealthyPodEvictionPolicy": "AlwaysAllow"}, currentHealthy=0, desiredHealthy=2), True),
        (UNREADY, keep({"unhealthyPodEvictionPolicy": "IfHealthyBudget"}, currentHealthy=0, desiredHealthy=2), True),
        # Its containers have never run.
        ({"phase": "Pending", **UNREADY}, keep(), False),
    ],
)
def test_a_budget_is_in_the_way_of_what_kubernetes_would_not_evict(
    status: dict[str, Any], one: dict[str, Any], kept: bool
) -> None:
    assert in_the_way(pod("a", labels={"app": "x"}, status=status), [one]) == (["team/keep"] if kept else [])


SYNC = {"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed",
        "message": "found no controllers for pod \"a\""}  # fmt: skip


@pytest.mark.parametrize(
    "status, one, why, step",
    [
        (READY, keep(), "allows no disruption", "Give the application more ready replicas"),
        (READY, keep({"maxUnavailable": 0}), "never allows a disruption: its maxUnavailable is 0", "do not help"),
        (READY, keep({"maxUnavailable": "0%"}), "never allows a disruption: its maxUnavailable is 0%", "do not help"),
        (READY, keep({"minAvailable": "100%"}), "never allows a disruption: its minAvailable is 100%", "do not help"),
        (READY, keep({"minAvailable": 1}), "allows no disruption", "more ready replicas"),
        (UNREADY, keep({"minAvailable": 2}), "and the pod is not ready", "unhealthyPodEvictionPolicy"),
        (READY, keep(conditions=[SYNC]), 'cannot be judged by Kubernetes: found no controllers for pod "a"', "Correct"),
    ],
)
def test_what_is_said_of_a_budget_is_what_would_let_the_pod_go(
    status: dict[str, Any], one: dict[str, Any], why: str, step: str
) -> None:
    said, cure = why_kept(one, pod("a", labels={"app": "x"}, status=status))
    assert said.startswith("the PodDisruptionBudget team/keep ") and said.endswith(why) and step in cure


def test_a_budget_that_no_controller_has_judged_is_no_lack_of_replicas() -> None:
    one = keep(observedGeneration=1)
    one["metadata"]["generation"] = 2
    said, cure = why_kept(one, pod("a", labels={"app": "x"}, status=READY))
    assert said == "Kubernetes has not judged the PodDisruptionBudget team/keep yet" and "controller manager" in cure
