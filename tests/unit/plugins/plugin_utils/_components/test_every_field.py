# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every input changes an object, or is on a list that says why not."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.render import manifests
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.roles import role_inputs
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import objects

SPEC = {name[len("rbln_operands_") :]: entry for name, entry in role_inputs(("rbln_operands",)).items()}
NO_OBJECT = {
    "state": "says what is done with the objects",
    "enabled": "says whether there is a cluster",
    "kubeconfig": "names the cluster",
    "context": "names the cluster",
    "node_name": "is of a host",
    "require_node_proof": "is about the nodes of hosts",
    "node_workload": "is of a host",
    "delivery": "says where the objects go",
    "render_dir": "says where the objects go",
    "policy_files": "are inputs themselves",
    "policy_ignore": "is about files",
    "node_labels": "is of hosts",
    "force_conflicts": "is how the objects are written",
    "wait": "is after the objects",
    "wait_timeout": "is after the objects",
    "wait_delay": "is after the objects",
    "wait_scope": "is after the objects",
    "rollback": "is how the objects are written",
    "rollback_retry": "is how the objects are written",
    "deadlines": "is after the objects",
    "absent_scope": "is without objects",
    "coexistence": "is before the objects",
    "takeover": "is before the objects",
    "smoke": "is after the objects",
    "lease_timeout": "is how the objects are written",
    "lease_duration": "is how the objects are written",
    "capabilities": "says which objects a cluster takes",
    "require_digest": "refuses images, and changes none",
    "driver.remove_legacy": "is about objects of others",
    "driver.privileged": "is refused when it is false",
}
VALUES: dict[str, Any] = {
    "env": {"ODDITY": "oddity"},
    "resources": {"limits": {"memory": "77Mi"}},
    "update_strategy": {"type": "OnDelete"},
    "tolerations": [{"key": "oddity", "operator": "Exists"}],
    "node_affinity": [{"key": "oddity", "operator": "Exists"}],
    "affinity_terms": [{"expressions": [{"key": "oddity", "operator": "Exists"}]}],
    "preferred_node_affinity": [
        {"weight": 1, "preference": {"matchExpressions": [{"key": "oddity", "operator": "Exists"}]}}
    ],
    "digest": "sha256:" + "7" * 64,
    "image_digests": {"docker.io/library/busybox:1.37": "sha256:" + "7" * 64},
    "sdk": "0.10.3",
    "host_sys_path": "/oddity",
    "cluster_cidrs": ["10.8.8.0/24"],
    "name_prefix": "oddity",
    "kubelet_root": "/oddity",
    "kubelet_roots": ["/oddity"],
    "runtimes": ["crio"],
    "tag_template": "{tag}-oddity",
    "pull_secret_content": {"auths": {"oddity": {}}},
    "registry": "oddity.example",
    "scan_interval": "77s",
    "service_monitor.interval": "77s",
    "service_monitor.enabled": "no",
    "host_paths": [{"name": "oddity", "path": "/oddity"}],
    "ca_bundle": "oddity",
    "helper_image.tag": "oddity",
    "driver_instances": [{"name": "oddity"}],
    "driver.enabled": False,
    "driver.update_strategy": {"type": "OnDelete", "rollingUpdate": {}},
    "handler": "oddity",
    "api_server_cidrs": ["10.7.7.7/32"],
    "pools": [{"os_id": "oddity", "os_version": "1", "kernel": "2"}],
    "resource_name": "rebellions.ai/REBEL",
    "deadlines": {"driver": 7},
    "metrics_exporter.interval": 7,
    "host_ip": "10.0.0.7",
}
DRIVER: dict[str, Any] = {
    "enabled": True,
    "image": {"tag": "1"},
    "manager": {"image": {"tag": "1"}},
    "pools": [{"os_id": "a", "os_version": "1", "kernel": "2"}],
}
# What an input needs beside it to have a meaning.
WITH: dict[str, dict[str, Any]] = {
    "validator.image": {"validator": {"source": "image", "image": {"tag": "1"}}},
    "validator.source": {"validator": {"image": {"tag": "1"}}},
    "pull_secret_name": {"pull_secret_content": {"auths": {"a": {}}}},
    "dra_driver": {"device_plugin": {"enabled": False}, "dra_driver": {"image": {"tag": "1"}}},
    "metrics_exporter": {
        "metrics_exporter": {"image": {"tag": "1"}},
        "capabilities": {"groups": ["monitoring.coreos.com"]},
    },
    "metrics_exporter.host_network": {"metrics_exporter": {"image": {"tag": "1"}, "daemon_url": "smd:50051"}},
    "smd": {"smd": {"image": {"tag": "1"}}},
    "feature_discovery.image": {"feature_discovery": {"source": "image", "image": {"tag": "1"}}},
    "feature_discovery.fail_on_init_error": {"feature_discovery": {"source": "image", "image": {"tag": "1"}}},
    "feature_discovery.host_sys_path": {"feature_discovery": {"source": "image", "image": {"tag": "1"}}},
    "feature_discovery.config.directory": {"feature_discovery": {"config": {"config_map": "a"}}},
    "device_plugin.config.directory": {"device_plugin": {"config": {"config_map": "a"}}},
    "smd.config.directory": {"smd": {"image": {"tag": "1"}, "config": {"config_map": "a"}}},
    "feature_discovery.source": {"feature_discovery": {"image": {"tag": "1"}}},
    "node_feature_rule": {"capabilities": {"groups": ["nfd.k8s-sigs.io"]}},
    "runtime_class": {"runtime_class": {"handler": "a"}},
    "cluster_domain": {"https_proxy": "http://a"},
    "cluster_cidrs": {"https_proxy": "http://a"},
    "container_toolkit": {"container_toolkit": {"image": {"tag": "1"}}},
    "vfio_manager.image": {"vfio_manager": {"source": "image", "image": {"tag": "1"}}},
    "vfio_manager.source": {"vfio_manager": {"image": {"tag": "1"}}},
    "sandbox_device_plugin": {"sandbox_device_plugin": {"image": {"tag": "1"}}},
    "sandbox_device_plugin.probes": {"sandbox_device_plugin": {"image": {"tag": "1"}, "health_port": 7}},
    "validator.vfio": {"vfio_manager": {"enabled": True}},
    "validator.checks.vfio": {"vfio_manager": {"enabled": True}},
    "driver": {"driver": DRIVER},
    "driver_instances": {"driver": DRIVER},
    "kubelet_root": {"metrics_exporter": {"enabled": True, "image": {"tag": "1"}}},
    "kubelet_roots": {"metrics_exporter": {"enabled": True, "image": {"tag": "1"}}},
}


def leaves(spec: dict[str, Any], path: str = "") -> list[str]:
    found: list[str] = []
    for name, entry in spec.items():
        inner = entry.get("options") if entry["type"] == "dict" else None
        found += leaves(inner, path + name + ".") if inner else [path + name]
    return found


LEAVES = leaves(SPEC)


def below(path: str, rows: Any) -> str:
    """The longest row that an input is on, or empty."""
    return max((row for row in rows if path == row or path.startswith(row + ".")), key=len, default="")


def option(path: str) -> dict[str, Any]:
    entry: dict[str, Any] = {"options": SPEC}
    for name in path.split("."):
        entry = entry["options"][name]
    return entry


def other(path: str) -> Any:
    """A value of the right type that is not the default."""
    entry = option(path)
    parts = path.split(".")
    known = [name for name in (".".join(parts[-2:]), parts[-1]) if name in VALUES]
    if known:
        return VALUES[known[0]]
    if entry.get("choices"):
        return next(choice for choice in entry["choices"] if choice not in ("", entry.get("default")))
    values: dict[str, Any] = {
        "bool": entry.get("default") is False,
        "int": 77,
        "list": ["oddity"],
        "dict": {"oddity": "oddity"},
        "path": "/oddity",
    }
    return values.get(entry["type"], "/oddity" if str(entry.get("default")).startswith("/") else "oddity")


def merged(below_it: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    result = dict(below_it)
    for name, value in above.items():
        result[name] = (
            merged(result[name], value) if isinstance(value, dict) and isinstance(result.get(name), dict) else value
        )
    return result


def rendered(path: str) -> tuple[str, str]:
    """All objects without and with another value of one input."""
    row = below(path, WITH)
    base = WITH.get(row, {})
    given: Any = other(path)
    parts = path.split(".")
    component = option(parts[0]).get("options") or {}
    if option(parts[0])["type"] == "dict" and "enabled" in component and path != parts[0] + ".enabled":
        base = merged(base, {parts[0]: {"enabled": True}})
    for name in reversed(parts):
        given = {name: given}
    return manifests(objects(**base)), manifests(objects(**merged(base, given)))


@pytest.mark.parametrize("path", [path for path in LEAVES if not below(path, NO_OBJECT)])
def test_every_input_changes_an_object(path: str) -> None:
    before, after = rendered(path)
    assert before != after
    if other(path) in ("oddity", "/oddity", ["oddity"]):
        assert "oddity" in after and "oddity" not in before


def test_the_lists_name_inputs_only_once() -> None:
    assert [row for row in NO_OBJECT if not any(below(path, (row,)) for path in LEAVES)] == []
