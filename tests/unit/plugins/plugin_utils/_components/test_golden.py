# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Policies and the bytes they render to.

To store them again after a wanted change, run this file with RBLN_REWRITE_GOLDEN set to tests/unit/fixtures/operands
of the checkout: each test then writes its policy instead of comparing it.
"""

from __future__ import annotations

import os
import pathlib
from typing import Any

import pytest
import yaml
from ansible_collections.rebellions.npu.plugins.plugin_utils._components import render
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.render import manifests
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.golden import (
    WHOLE,
    apply,
    differences,
    documents,
    golden,
    names,
)
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import objects

FILES = pathlib.Path(__file__).parents[3] / "fixtures" / "policies"
JAMMY = {"os_id": "ubuntu", "os_version": "22.04", "kernel": "6.8.0-138-generic"}
NOBLE = {"os_id": "ubuntu", "os_version": "24.04", "kernel": "6.8.0-138-generic"}
RHEL = {"os_id": "rhel", "os_version": "9.4", "kernel": "5.14.0-427.el9.x86_64"}
DRIVER: dict[str, Any] = {"enabled": True, "manager": {"image": {"tag": "0.3.0"}}}
POLICIES: dict[str, dict[str, Any]] = {
    "01-defaults": {},
    "02-everything-in-containers": {
        "capabilities": {"groups": ["monitoring.coreos.com", "nfd.k8s-sigs.io"]},
        "driver": {**DRIVER, "image": {"tag": "3.4.1"}, "pools": [JAMMY]},
        "container_toolkit": {"enabled": True, "image": {"tag": "0.2.3"}},
        "smd": {"enabled": True, "image": {"tag": "3.4.1"}},
        "metrics_exporter": {"enabled": True, "image": {"tag": "0.3.4"}},
        "feature_discovery": {"enabled": True},
        "node_feature_rule": {"enabled": True},
    },
    "03-sandbox": {
        "workload": "vm-passthrough",
        "device_plugin": {"enabled": False},
        "vfio_manager": {"enabled": True, "release_on_exit": True},
        "sandbox_device_plugin": {"enabled": True, "image": {"tag": "0.1.1"}, "health_port": 51517},
        "validator": {
            "driver": {"enabled": False},
            "toolkit": {"enabled": False},
            "plugin": {"enabled": False},
            "vfio": {"env": {"LEVEL": "debug"}},
        },
    },
    "04-hybrid": {
        "container_toolkit": {"enabled": True, "image": {"tag": "0.2.3"}},
        "vfio_manager": {"enabled": True, "source": "image", "image": {"tag": "1.0.1"}},
        "sandbox_device_plugin": {"enabled": True, "image": {"tag": "0.1.1"}},
    },
    "05-dra": {
        "device_plugin": {"enabled": False},
        "dra_driver": {"enabled": True, "image": {"tag": "0.2.1"}, "extended_resource": True},
    },
    "06-driver-pools": {
        "driver": {**DRIVER, "pools": [JAMMY, NOBLE, RHEL], "env": {"LEVEL": "info"}},
        "driver_instances": [
            {"name": "atom", "image": {"tag": "3.4.1"}, "node_selector": {"rebellions.ai/npu.family": "atom"}},
            {
                "name": "canary",
                "image": {"tag": "3.5.0"},
                "node_selector": {"rebellions.ai/npu.family": "atom", "stage": "canary"},
            },
        ],
        "deadlines": {"driver": 2400},
    },
    "07-air-gap": {
        "registry": "mirror.example.org:5000/npu",
        "image_pull_secrets": ["site-pull"],
        "pull_secret_content": {"auths": {"mirror.example.org:5000": {"auth": "dXNlcjpwYXNz"}}},
        "http_proxy": "http://proxy.example.org:3128",
        "https_proxy": "http://proxy.example.org:3128",
        "no_proxy": "10.0.0.0/8,.svc",
        "ca_bundle": "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "helper_image": {"repository": "library/busybox", "digest": "sha256:" + "ab" * 32},
        "device_plugin": {"image": {"digest": "sha256:" + "cd" * 32, "pull_secrets": ["plugin-pull"]}},
        "validator": {"source": "image", "image": {"tag": "v1.2.3"}},
    },
    "08-runtimes-and-kubelet-roots": {
        "kubelet_roots": ["/data/kubelet"],
        "container_toolkit": {
            "enabled": True,
            "image": {"tag": "0.2.3"},
            "runtimes": ["docker", "crio"],
            "restart": False,
            "env_from_marker": False,
        },
        "metrics_exporter": {"enabled": True, "image": {"tag": "0.3.4"}},
    },
    "09-monitoring-openshift": {
        "capabilities": {"groups": ["monitoring.coreos.com", "nfd.k8s-sigs.io", "security.openshift.io"]},
        "feature_discovery": {"enabled": True, "interval": 120},
        "metrics_exporter": {
            "enabled": True,
            "image": {"tag": "0.3.4"},
            "service": {"annotations": {"team": "npu"}},
            "service_monitor": {"labels": {"release": "prometheus"}, "interval": "30s"},
        },
        "node_feature_rule": {"enabled": True},
        "runtime_class": {"enabled": True, "handler": "rbln", "node_selector": {"rebellions.ai/npu.present": "true"}},
        "smd": {"enabled": True, "image": {"tag": "3.4.1"}},
    },
    "10-bare": {
        "pod_security": "",
        "require_gate": True,
        "node_affinity": [{"key": "zone", "operator": "In", "values": ["a", "b"]}],
        "node_selector": {"pool": "npu"},
        "tolerations": [{"key": "site", "operator": "Exists"}],
        "labels": {"team": "npu"},
        "annotations": {"note": "text"},
        "priority_class": "system-node-critical",
        "marker_timeout": 30,
        "validator": {"driver": {"env": {"DEBUG": "1"}}, "node_affinity": [{"key": "check", "operator": "Exists"}]},
        "device_plugin": {
            "args": ["-v"],
            "device_plugins_dir": "/data/kubelet/device-plugins",
            "node_selector": {"kind": "card"},
        },
    },
    "11-values-of-the-chart": {"policy_files": [str(FILES / "flat.yaml")]},
    "12-hardened": {
        "api_server_cidrs": ["10.0.0.10/32", "fd00::10/128"],
        "label_policy": {"enabled": True, "users": ["deployer"], "groups": ["npu-admins"]},
        "device_plugin": {"enabled": False},
        "dra_driver": {"enabled": True, "image": {"tag": "0.2.1"}},
        "feature_discovery": {"enabled": True, "source": "image", "image": {"tag": "0.3.0"}},
    },
    "14-own-names-and-gates": {
        "name_prefix": "acme-npu",
        "namespace": "acme",
        "require_gate": True,
        "resource_name": "rebellions.ai/ATOM",
        "affinity_terms": [
            {"expressions": [{"key": "rack", "operator": "In", "values": ["r1"]}]},
            {
                "expressions": [
                    {"key": "rack", "operator": "In", "values": ["r2"]},
                    {"key": "spare", "operator": "DoesNotExist"},
                ]
            },
        ],
        "preferred_node_affinity": [
            {"weight": 1, "preference": {"matchExpressions": [{"key": "fast", "operator": "Exists"}]}}
        ],
        "network_policy": False,
        "validator": {"checks": {"plugin": {"enabled": False}}},
        "device_plugin": {"privileged": False, "probes": False},
    },
}


def rendered(name: str) -> str:
    return manifests(objects(**POLICIES[name]))


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_bytes_of_a_policy(name: str) -> None:
    text, target = rendered(name), os.environ.get("RBLN_REWRITE_GOLDEN")
    if target and name in WHOLE:
        (pathlib.Path(target) / (name + ".manifests")).write_text(text, encoding="utf-8")
    elif target:
        different = differences(text, {whole: rendered(whole) for whole in WHOLE})
        (pathlib.Path(target) / (name + ".diff")).write_text(different, encoding="utf-8")
    else:
        assert text == golden(name)


def test_every_policy_is_stored_once() -> None:
    assert names() == sorted(POLICIES)


def test_a_difference_gives_the_same_bytes_back() -> None:
    wholes = {name: golden(name) for name in WHOLE}
    made = differences(wholes["03-sandbox"], {"01-defaults": wholes["01-defaults"]})
    assert made.count("\n+++ ") == len(documents(wholes["03-sandbox"])) and apply(made) == wholes["03-sandbox"]


@pytest.mark.parametrize(
    "files", [["nested.yaml"], ["objects.yaml"]], ids=["chart nested", "policy and driver objects"]
)
def test_every_form_of_a_policy_renders_to_the_same_bytes_000_31_000_39(files: list[str]) -> None:
    given = {"policy_files": [str(FILES / name) for name in files]}
    assert manifests(objects(**given)) == manifests(objects(**POLICIES["11-values-of-the-chart"]))


def test_order_of_keys_does_not_matter() -> None:
    given = POLICIES["10-bare"]
    assert manifests(objects(**given)) == manifests(objects(**dict(reversed(given.items()))))


NASTY: list[Any] = [
    "word " * 20 + "~\xe9" + "x" * 70 + " word" * 5,
    "x" * 150 + "\a",
    "  tabs\t",
    "\n",
    "two\n\n",
    "text\n",
    "a \n b",
    "",
    "'\"",
    'say "so": it',
    "#" * 200,
    "word " * 60,
    {"": "empty"},
    {"k" * 126: "long"},
    {"%s: %s" % ("k" * 60, "k" * 60): 1},
    {"null": None, "yes": True, "no": [], "x": {}},
    ["1e3", "0x1", 1e300, -1, "12:30", "2020-01-01", "<", "=", "---", "..."],
]


@pytest.mark.parametrize("value", NASTY, ids=range(len(NASTY)))
def test_the_fast_emitter_changes_no_byte(value: Any) -> None:
    for item in ({"k": value}, {"k": [value, {"k": value}], "z": value}, {"k": [[value]]}):
        assert render._document(item) == render._dumped(item, render._Dumper)


def test_the_fast_emitter_writes_nearly_all_and_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyYAML of an operating system or of a new Python may have been built without libyaml."""
    made = objects(**POLICIES["01-defaults"])
    assert (render._Fast is not None) is hasattr(yaml, "CSafeDumper")
    for item in made if render._Fast else ():
        if item["kind"] != "ConfigMap":
            assert not render._OTHER_BYTES.search(render._dumped(item, render._Fast)), item["kind"]
    text = manifests(made)
    monkeypatch.setattr(render, "_Fast", None)
    assert manifests(made) == text
