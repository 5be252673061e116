# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node lacks, and whether it may still come."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.readiness import discovered_text


def node(labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    return {"metadata": {"name": "npu-1", "labels": labels, "annotations": annotations}}


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        pytest.param(node(), "has not looked at node npu-1", id="no discovery"),
        pytest.param(
            node({"rebellions.ai/npu.present": "true"}, {"node.alpha.kubernetes.io/ttl": "0"}),
            "has not looked at node npu-1",
            id="labels of others",
        ),
        pytest.param(
            node({}, {"nfd.node.kubernetes.io/worker.version": "v0.13.4"}), "has no label rebellions.ai/npu.count yet",
            id="former release, annotation",
        ),
        pytest.param(
            node({"feature.node.kubernetes.io/cpu-model.id": "1"}), "allow labels of rebellions.ai", id="a first round"
        ),
        pytest.param(node({"rebellions.ai/npu.count": "4"}), "", id="done"),
    ],
)  # fmt: skip
def test_a_missing_discovery_is_told_apart_from_a_slow_one(seen: dict[str, Any], words: str) -> None:
    text = discovered_text(seen)
    assert (words in text) if words else text == ""
