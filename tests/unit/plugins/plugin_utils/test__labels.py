# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Labels of a host's node, and whose they are."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.rebellions.npu.plugins.plugin_utils._labels import label_value, node_labels, owned_labels, settle_labels


def facts(npus: list[dict[str, Any]], version: str | None = "3.2.2-rebel1", usable: int | None = None) -> dict[str, Any]:
    return {
        "npus": npus,
        "counts": {"cards": len(npus), "functions": len(npus), "devices": len(npus), "usable": len(npus) if usable is None else usable},
        "driver": {"version_loaded": version},
    }


CA22 = {"product": "RBLN-CA22", "family": "ATOM"}
GATES = {"rebellions.ai/npu.deploy.device-plugin": "true", "rebellions.ai/npu.deploy.validator": "true"}
CLOSED = {name: "false" for name in GATES}
VERSION = {
    "rebellions.ai/driver-version.full": "3.2.2-rebel1",
    "rebellions.ai/driver-version.major": "3",
    "rebellions.ai/driver-version.minor": "2",
    "rebellions.ai/driver-version.patch": "2",
}
TWO = {"rebellions.ai/npu.present": "true", "rebellions.ai/npu.count": "2", "rebellions.ai/npu.product": "RBLN-CA22", "rebellions.ai/npu.family": "ATOM"}

CASES = {
    "two devices": (facts([CA22, CA22]), {**TWO, **VERSION, **GATES}),
    "no NPU": (facts([]), {"rebellions.ai/npu.present": "false", **CLOSED}),
    "driver not loaded": (facts([CA22, CA22], None, 0), {**TWO, **CLOSED}),
    "unknown product is left out": (
        facts([{"product": None, "family": None}], "3.2"),
        {"rebellions.ai/npu.present": "true", "rebellions.ai/npu.count": "1", "rebellions.ai/driver-version.full": "3.2",
         "rebellions.ai/driver-version.major": "3", "rebellions.ai/driver-version.minor": "2", **GATES},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_labels(case: str) -> None:
    given, expected = CASES[case]
    assert node_labels(given) == expected


@pytest.mark.parametrize("given, expected", [("3.0.0~rc1+x", "3.0.0_rc1_x"), ("a" * 80, "a" * 63), ("-x-", "x"), ("RBLN CA 22", "RBLN_CA_22")])
def test_label_value_is_legal(given: str, expected: str) -> None:
    assert label_value(given) == expected


def node(labels: dict[str, str], ours: list[str]) -> dict[str, Any]:
    fields = {"f:metadata": {"f:labels": {"f:" + name: {} for name in ours}}}
    entries = [
        {"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:metadata": {"f:labels": {"f:kubernetes.io/os": {}}}}},
        {"manager": "rebellions-npu", "operation": "Apply", "fieldsV1": fields},
    ]
    return {"metadata": {"name": "n", "labels": labels, "managedFields": entries}}


def test_only_what_we_applied_is_ours() -> None:
    assert owned_labels(node({"a": "1", "kubernetes.io/os": "linux"}, ["a"])) == {"a"}
    assert owned_labels({"metadata": {"name": "n"}}) == set()


SETTLE = {
    "new label": ({}, [], {"g": "true"}, {"g": "true"}, 0),
    "ours is updated": ({"g": "false"}, ["g"], {"g": "true"}, {"g": "true"}, 0),
    "an administrator's other value stays": ({"g": "false"}, [], {"g": "true"}, {}, 1),
    "an administrator's same value stays theirs": ({"g": "true"}, [], {"g": "true"}, {}, 0),
}


@pytest.mark.parametrize("case", SETTLE)
def test_labels_of_others_are_respected(case: str) -> None:
    live, ours, wanted, apply, notes = SETTLE[case]
    found = settle_labels(wanted, node(live, ours))
    assert found[0] == apply
    assert len(found[1]) == notes
    assert all("g=false" in note for note in found[1])
