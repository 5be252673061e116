# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several DaemonSets of one component: by container runtime, and by the root directory of the kubelet."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.variants import (
    kubelet_key,
    kubelet_roots,
    runtimes,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.model import Variant
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.placement import matches
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs

RUNTIME = "rebellions.ai/host.runtime"
KUBELET = "rebellions.ai/host.kubelet"
DATA = "1fdec678"  # printf /data/kubelet | sha256sum
OPT = "866b53c0"  # printf /opt/kubelet | sha256sum


def chosen(found: tuple[tuple[str, Variant], ...], label: str, value: str | None) -> list[str]:
    """The values whose variant takes a node with that label, or without it."""
    labels = {} if value is None else {label: value}
    return [
        name
        for name, variant in found
        if not variant.terms or any(all(matches(item, labels) for item in term) for term in variant.terms)
    ]


# {(default, others): {label of the node: runtimes whose toolkit it gets}}
NODES: dict[tuple[str, tuple[str, ...]], dict[str | None, list[str]]] = {
    ("containerd", ()): {
        None: ["containerd"],
        "containerd": ["containerd"],
        "docker": [],
        "crio": [],
        "other": [],
        "new": ["containerd"],
    },
    ("crio", ("containerd", "crio")): {
        None: ["crio"],
        "crio": ["crio"],
        "containerd": ["containerd"],
        "docker": [],
        "other": [],
    },
    ("docker", ("crio", "containerd")): {
        None: ["docker"],
        "docker": ["docker"],
        "crio": ["crio"],
        "containerd": ["containerd"],
        "other": [],
    },
}


@pytest.mark.parametrize("default, others", NODES)
def test_003_08_one_toolkit_for_the_runtime_of_a_node(default: str, others: tuple[str, ...]) -> None:
    found = runtimes(inputs(container_toolkit={"default_runtime": default, "runtimes": list(others)}))
    assert {value: chosen(found, RUNTIME, value) for value in NODES[default, others]} == NODES[default, others]
    assert [variant.name for _runtime, variant in found] == [
        "",
        *(name for name in ("containerd", "docker", "crio") if name in others and name != default),
    ]


ROOTS: dict[str, tuple[dict[str, Any], list[tuple[str, str]], dict[str | None, list[str]]]] = {
    "one": (
        {},
        [("/var/lib/kubelet", "")],
        {None: ["/var/lib/kubelet"], "default": ["/var/lib/kubelet"], DATA: ["/var/lib/kubelet"]},
    ),
    "two more, one twice, and the default": (
        {"kubelet_roots": ["/data/kubelet", "/opt/kubelet/", "/data//kubelet/", "/var/lib/kubelet/"]},
        [("/var/lib/kubelet", ""), ("/data/kubelet", DATA), ("/opt/kubelet", OPT)],
        {
            None: ["/var/lib/kubelet"],
            "default": ["/var/lib/kubelet"],
            DATA: ["/data/kubelet"],
            OPT: ["/opt/kubelet"],
            "00000000": ["/var/lib/kubelet"],
        },
    ),
    "another default": (
        {"kubelet_root": "/data/kubelet/", "kubelet_roots": ["/data/kubelet", "/opt/kubelet"]},
        [("/data/kubelet", ""), ("/opt/kubelet", OPT)],
        {None: ["/data/kubelet"], "default": ["/data/kubelet"], OPT: ["/opt/kubelet"]},
    ),
}


@pytest.mark.parametrize("name", ROOTS)
def test_P03_one_daemon_set_for_each_root_of_a_kubelet(name: str) -> None:
    given, roots, nodes = ROOTS[name]
    found = kubelet_roots(inputs(**given))
    assert [(root, variant.name) for root, variant in found] == roots
    assert {value: chosen(found, KUBELET, value) for value in nodes} == nodes


@pytest.mark.parametrize(
    "path, default, key",
    [
        ("/var/lib/kubelet", "/var/lib/kubelet", "default"),
        ("/var/lib/kubelet/", "/var/lib/kubelet", "default"),
        ("/data/kubelet", "/var/lib/kubelet", DATA),
        ("/data//kubelet/", "/var/lib/kubelet", DATA),
        ("/opt/kubelet", "/opt/kubelet/", "default"),
    ],
)
def test_the_label_of_a_root(path: str, default: str, key: str) -> None:
    assert kubelet_key(path, default) == key
