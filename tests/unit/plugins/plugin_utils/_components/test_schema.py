# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every object of the golden policies against the schemas of Kubernetes, 1.29 to the newest, without unknown fields."""

from __future__ import annotations

import copy
import functools
import json
import pathlib
import re
from typing import Any, Iterator

import pytest
import yaml
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.capabilities import declared, serves
from ansible_collections.rebellions.npu.tests.unit.fixtures.custom_kinds import CUSTOM_KINDS
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.golden import golden, names

jsonschema = pytest.importorskip("jsonschema")
kubernetes_validate = pytest.importorskip("kubernetes_validate")
referencing = pytest.importorskip("referencing")

FIRST = 29
SCHEMAS = pathlib.Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
VERSIONS = [
    minor
    for minor in sorted(int(path.name.split(".")[1]) for path in SCHEMAS.glob("v1.*.0-local-strict"))
    if minor >= FIRST
]
POLICIES = names()
# First minor version of Kubernetes that serves a kind, where it is not FIRST.
SINCE = {
    ("resource.k8s.io/v1", "DeviceClass"): 34,
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"): 30,
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"): 30,
}


@functools.lru_cache(maxsize=None)
def definitions(minor: int) -> Any:
    path = SCHEMAS / ("v1.%d.0-local-strict" % minor) / "_definitions.json"
    return referencing.Resource.from_contents(json.loads(path.read_text(encoding="utf-8"))) @ referencing.Registry()


@functools.lru_cache(maxsize=None)
def validator(minor: int, api_version: str, kind: str) -> Any | None:
    """None for a kind that this version has no schema of."""
    if (api_version, kind) in CUSTOM_KINDS:
        return jsonschema.Draft202012Validator(CUSTOM_KINDS[(api_version, kind)])
    name = "%s-%s.json" % (kind.lower(), re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api_version))
    path = SCHEMAS / ("v1.%d.0-local-strict" % minor) / name
    if not path.exists():
        return None
    schema = json.loads(path.read_text(encoding="utf-8"))
    return jsonschema.Draft202012Validator(
        schema, registry=referencing.Resource.from_contents(schema) @ definitions(minor)
    )


def faults(minor: int, item: dict[str, Any]) -> Iterator[str]:
    """What a version of Kubernetes finds wrong with an object that it serves."""
    key = (item["apiVersion"], item["kind"])
    if minor < SINCE.get(key, FIRST):
        return
    judge = validator(minor, *key)
    if judge is None:
        yield "%s %s has no schema in 1.%d" % (*key, minor)
        return
    for error in judge.iter_errors(item):
        yield "%s %s: %s: %s" % (
            item["kind"],
            item["metadata"]["name"],
            ".".join(str(part) for part in error.absolute_path),
            error.message[:300],
        )


@functools.lru_cache(maxsize=None)
def objects(policy: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = list(yaml.safe_load_all(golden(policy)))
    assert found
    return found


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("minor", VERSIONS)
def test_objects_are_valid(minor: int, policy: str) -> None:
    assert [fault for item in objects(policy) for fault in faults(minor, item)] == []


def test_versions_without_a_gap() -> None:
    assert VERSIONS == list(range(FIRST, FIRST + len(VERSIONS))) and VERSIONS[-1] >= 37


@pytest.mark.parametrize("key", sorted(SINCE))
def test_kinds_are_left_out_only_where_they_are_not_served(key: tuple[str, str]) -> None:
    assert [minor for minor in VERSIONS if validator(minor, *key)] == [
        minor for minor in VERSIONS if minor >= SINCE[key]
    ]
    told = [
        minor
        for minor in VERSIONS
        if serves(declared({"capabilities": {"kubernetes": "1.%d" % minor, "groups": []}}), *key)
    ]
    assert told == [minor for minor in VERSIONS if minor >= SINCE[key]]


def test_every_kind_is_judged_in_some_policy() -> None:
    made = {(item["apiVersion"], item["kind"]) for policy in POLICIES for item in objects(policy)}
    assert set(SINCE) | set(CUSTOM_KINDS) <= made


def broken(kind: str, *path: Any, value: Any = "x") -> dict[str, Any]:
    """The first object of a kind in any policy, with a value put somewhere."""
    item = copy.deepcopy(next(item for policy in POLICIES for item in objects(policy) if item["kind"] == kind))
    place: Any = item
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return item


@pytest.mark.parametrize(
    "item",
    [
        broken("DaemonSet", "spec", "template", "spec", "containers", 0, "imagePulPolicy"),
        broken("DaemonSet", "spec", "template", "spec", "automountServiceAccountToken"),
        broken("DaemonSet", "metadata", "labels", value={"a": 1}),
        broken("ServiceMonitor", "spec", "endpoints", 0, "honourLabels", value=True),
        broken("ServiceMonitor", "metadata", "namespace", value=7),
        broken(
            "NodeFeatureRule", "spec", "rules", 0, "matchFeatures", 0, "matchExpressions", "vendor", "op", value="Is"
        ),
        broken("NodeFeatureRule", "metadata", "namespace", value="rbln-system"),
        broken("DaemonSet", "apiVersion", value="apps/v7"),
    ],
)
def test_a_wrong_object_is_found(item: dict[str, Any]) -> None:
    assert list(faults(VERSIONS[-1], item)) != []
