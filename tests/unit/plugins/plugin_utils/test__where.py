# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On which nodes a component runs."""

from __future__ import annotations

from typing import Any

from ansible_collections.rebellions.npu.plugins.plugin_utils._placement import selects
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import objects, pod_of


def term(key: str) -> dict[str, Any]:
    return {"expressions": [{"key": key, "operator": "Exists"}]}


def test_shared_and_own_alternatives_are_multiplied() -> None:
    pod = pod_of(objects(affinity_terms=[term("a"), term("b")], validator={"affinity_terms": [term("c")]}), "validator")
    for names, expected in (("ac", True), ("bc", True), ("ab", False), ("c", False)):
        labels = {"rebellions.ai/npu.present": "true", **{name: "" for name in names}}
        assert selects(pod, {"metadata": {"name": "n", "labels": labels}}) is expected, names


def test_what_is_preferred_is_passed_on() -> None:
    wish = {"weight": 5, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}
    pod = pod_of(objects(preferred_node_affinity=[wish]), "device-plugin")
    assert pod["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] == [wish]
