# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inputs as the role hands them over, for the tests of the cluster part."""

from __future__ import annotations

from typing import Any

from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.capabilities import declared
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.render import build
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.cluster import read_inputs
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.model import Context

BASE: dict[str, Any] = {
    "rbln_operands_enabled": True,
    "rbln_operands_kubeconfig": "/etc/kube/config",
    "rbln_operands_context": "",
    "rbln_operands_node_name": "",
    "rbln_operands_delivery": "apply",
    "rbln_operands_namespace": "rbln-system",
    "rbln_operands_registry": "",
    "rbln_operands_sdk": "",
    "rbln_operands_image_pull_secrets": [],
    "rbln_operands_pull_secret_content": "",
    "rbln_operands_http_proxy": "",
    "rbln_operands_https_proxy": "",
    "rbln_operands_no_proxy": "",
    "rbln_operands_cluster_domain": "cluster.local",
    "rbln_operands_cluster_cidrs": [],
    "rbln_operands_ca_bundle": "",
    "rbln_operands_node_workload": "",
    "rbln_operands_driver_instances": [],
}


def inputs(**given: Any) -> dict[str, Any]:
    """Typed inputs; names without the role's prefix."""
    return read_inputs({**BASE, **{"rbln_operands_" + name: value for name, value in given.items()}})


def objects(**given: Any) -> list[dict[str, Any]]:
    typed = inputs(**given)
    return build(Context(typed, declared(typed)))


def one(items: list[dict[str, Any]], kind: str, name: str = "") -> dict[str, Any]:
    found = [item for item in items if item["kind"] == kind and name in item["metadata"]["name"]]
    assert len(found) == 1, (kind, name, found)
    return found[0]


def pod_of(items: list[dict[str, Any]], name: str) -> dict[str, Any]:
    spec: dict[str, Any] = one(items, "DaemonSet", name)["spec"]["template"]["spec"]
    return spec


def containers(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every container of every DaemonSet, init containers too."""
    found = []
    for item in items:
        if item["kind"] == "DaemonSet":
            spec = item["spec"]["template"]["spec"]
            found += spec.get("initContainers", []) + spec["containers"]
    assert found
    return found


def container(items: list[dict[str, Any]], name: str) -> dict[str, Any]:
    found = [item for item in containers(items) if item["name"] == name]
    assert len(found) == 1, name
    return found[0]
