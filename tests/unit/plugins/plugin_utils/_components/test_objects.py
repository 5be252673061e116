# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the cluster gets, for every kind of input."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.render import build, manifests
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.model import Capabilities, Context
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.placement import repelling_taints, selects
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import (
    container,
    containers,
    inputs,
    objects,
    one,
    pod_of,
)

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
DIGEST = "sha256:" + "0123456789abcdef" * 4
TOOL = "/usr/local/libexec/rebellions-npu/rbln-host"


def node(labels: dict[str, str], taints: Any = ()) -> dict[str, Any]:
    return {"metadata": {"name": "n", "labels": labels}, "spec": {"taints": list(taints)}}


def test_kinds_and_order() -> None:
    assert [(item["kind"], item["metadata"]["name"]) for item in objects()] == [
        ("Namespace", "rbln-system"),
        ("NetworkPolicy", "rbln-no-ingress"),
        ("ServiceAccount", "rbln-validator"),
        ("DaemonSet", "rbln-validator"),
        ("ServiceAccount", "rbln-device-plugin"),
        ("DaemonSet", "rbln-device-plugin"),
    ]


def test_order_with_everything() -> None:
    items = objects(
        pull_secret_content={"auths": {"r": {"auth": "x"}}},
        ca_bundle="PEM",
        validator={"source": "image", "image": {"tag": "1"}},
    )
    assert [item["kind"] for item in items] == [
        "Namespace",
        "Secret",
        "ConfigMap",
        "NetworkPolicy",
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "DaemonSet",
        "ServiceAccount",
        "DaemonSet",
    ]


@pytest.mark.parametrize("component, gone", [("device_plugin", "rbln-device-plugin"), ("validator", "rbln-validator")])
def test_a_component_can_be_switched_off(component: str, gone: str) -> None:
    names = {item["metadata"]["name"] for item in objects(**{component: {"enabled": "false"}})}
    assert gone not in names and len(names) == 3


def test_S01_podsecurity_labels() -> None:
    assert one(objects(), "Namespace")["metadata"]["labels"] == {
        "pod-security.kubernetes.io/enforce": "privileged",
        "pod-security.kubernetes.io/audit": "baseline",
        "pod-security.kubernetes.io/warn": "baseline",
        "rebellions.ai/npu.policy": "rbln",
    }
    assert one(objects(pod_security=""), "Namespace")["metadata"]["labels"] == {"rebellions.ai/npu.policy": "rbln"}


P04 = {
    "P04-nfd-label-forms node-a": ({"feature.node.kubernetes.io/pci-1200_1eff.present": "true"}, True),
    "P04-nfd-label-forms node-b": ({"feature.node.kubernetes.io/pci-1eff.present": "true"}, True),
    "P04-nfd-label-forms node-c": ({}, False),
    "our own label": ({"rebellions.ai/npu.present": "true"}, True),
    "our label says no": ({"rebellions.ai/npu.present": "false"}, False),
    "gate closed": ({"rebellions.ai/npu.present": "true", "rebellions.ai/npu.deploy.device-plugin": "false"}, False),
    "gate of another component closed": (
        {"rebellions.ai/npu.present": "true", "rebellions.ai/npu.deploy.validator": "false"},
        True,
    ),
    "another vendor": ({"feature.node.kubernetes.io/pci-1200_10de.present": "true"}, False),
}


@pytest.mark.parametrize("case", P04)
def test_placement(case: str) -> None:
    labels, expected = P04[case]
    assert selects(pod_of(objects(), "device-plugin"), node(labels)) is expected


def test_required_gate_needs_the_label() -> None:
    pod = pod_of(objects(require_gate=True), "device-plugin")
    assert not selects(pod, node({"rebellions.ai/npu.present": "true"}))
    assert selects(pod, node({"rebellions.ai/npu.present": "true", "rebellions.ai/npu.deploy.device-plugin": "true"}))


NPU_TAINTS = [
    {"key": "rebellions.ai/npu", "value": value, "effect": effect}
    for value in ("true", "present", "")
    for effect in ("NoSchedule", "NoExecute")
]


@pytest.mark.parametrize("name", ["device-plugin", "validator"])
@pytest.mark.parametrize("taint", NPU_TAINTS, ids=lambda taint: "P01-toleration-mismatch %(value)s %(effect)s" % taint)
def test_npu_taint_is_tolerated_with_any_value(name: str, taint: dict[str, str]) -> None:
    assert repelling_taints(pod_of(objects(), name), node({}, [taint])) == []


def test_P01_toleration_mismatch_other_taint_is_an_input() -> None:
    team = {"key": "team", "value": "ml", "effect": "NoExecute"}
    assert repelling_taints(pod_of(objects(), "device-plugin"), node({}, [team])) == ["team=ml:NoExecute"]
    items = objects(tolerations=[{"key": "team", "operator": "Exists"}])
    assert [repelling_taints(pod_of(items, name), node({}, [team])) for name in ("device-plugin", "validator")] == [
        [],
        [],
    ]


@pytest.mark.parametrize(
    ("host_network", "told"), [(True, []), (False, ["node.kubernetes.io/network-unavailable:NoSchedule"])]
)
def test_P01_toleration_mismatch_a_pod_with_the_network_of_the_node_waits_for_no_other(
    host_network: bool, told: list[str]
) -> None:
    taint = {"key": "node.kubernetes.io/network-unavailable", "effect": "NoSchedule"}
    items = objects(
        metrics_exporter={
            "enabled": True,
            "image": {"tag": "1"},
            "host_network": host_network,
            "daemon_url": "smd:50051",
        }
    )
    assert repelling_taints(pod_of(items, "metrics-exporter"), node({}, [taint])) == told


def test_P03_kubelet_root_socket_directory_stays() -> None:
    volumes = {volume["name"]: volume for volume in pod_of(objects(), "device-plugin")["volumes"]}
    assert volumes["device-plugins"]["hostPath"]["path"] == "/var/lib/kubelet/device-plugins"
    moved = pod_of(objects(device_plugin={"device_plugins_dir": "/opt/kubelet/device-plugins"}), "device-plugin")
    mount = [item for item in moved["containers"][0]["volumeMounts"] if item["name"] == "device-plugins"]
    assert {volume["name"]: volume for volume in moved["volumes"]}["device-plugins"]["hostPath"][
        "path"
    ] == "/opt/kubelet/device-plugins"
    assert mount == [{"name": "device-plugins", "mountPath": "/var/lib/kubelet/device-plugins"}]


REGISTRY = "registry.example.internal/npu"
EVERYTHING: list[dict[str, Any]] = [
    {},
    {"validator": {"source": "image", "image": {"tag": "v1"}}},
    {"device_plugin": {"image": {"registry": "ghcr.io", "repository": "acme/plugin", "tag": "2"}}},
    {"device_plugin": {"image": {"repository": "ghcr.io/acme/plugin", "digest": DIGEST}}},
    {"helper_image": {"registry": "localhost:5000", "repository": "tools/busybox"}},
]


@pytest.mark.parametrize(
    "given", EVERYTHING, ids=lambda given: "G01-airgap-no-internet " + (",".join(given) or "defaults")
)
@pytest.mark.parametrize("prefix", [REGISTRY, REGISTRY + "/", "10.0.0.5:5000"])
def test_every_image_starts_with_the_registry(given: dict[str, Any], prefix: str) -> None:
    images = [item["image"] for item in containers(objects(registry=prefix, **given))]
    assert len(images) == 6
    assert [image for image in images if not image.startswith(prefix.rstrip("/") + "/")] == []
    assert [
        image for image in images if "//" in image or "docker.io" in image or "ghcr.io" in image or "localhost" in image
    ] == []


IMAGES = {
    "defaults": ({}, "docker.io/rebellions/k8s-device-plugin:v0.4.3"),
    "tag": ({"tag": "v1.2"}, "docker.io/rebellions/k8s-device-plugin:v1.2"),
    "digest wins": ({"digest": DIGEST}, "docker.io/rebellions/k8s-device-plugin@" + DIGEST),
    "registry": ({"registry": "r.example:5000/a"}, "r.example:5000/a/rebellions/k8s-device-plugin:v0.4.3"),
    "registry in the repository": ({"repository": "quay.io/x/y"}, "quay.io/x/y:v0.4.3"),
    "no registry": ({"registry": ""}, "rebellions/k8s-device-plugin:v0.4.3"),
}


@pytest.mark.parametrize("case", IMAGES)
def test_image_reference(case: str) -> None:
    image, expected = IMAGES[case]
    assert container(objects(device_plugin={"image": image}), "device-plugin")["image"] == expected


BAD_INPUTS = {
    "A04-string-bools tag as float": (
        {"device_plugin": {"image": {"tag": 3.2}}},
        ["rbln_operands_device_plugin.image.tag", "Quote it"],
    ),
    "tag as number": ({"device_plugin": {"image": {"tag": 3}}}, ["image.tag", "Quote it"]),
    "bad tag": ({"device_plugin": {"image": {"tag": "a b"}}}, ["rbln_operands_device_plugin.image.tag", "'a b'"]),
    "bad digest": ({"device_plugin": {"image": {"digest": "sha256:12"}}}, ["image.digest", "64 hexadecimal"]),
    "bad repository": (
        {"device_plugin": {"image": {"repository": "Rebellions/X"}}},
        ["image.repository", "Rebellions/X"],
    ),
    "G01-airgap-no-internet registry with capitals in its path": (
        {"registry": "r.example/NPU"},
        ["r.example/NPU", "host[:port][/path]"],
    ),
    "G01-airgap-no-internet registry with quotes": ({"registry": '"r.example"'}, ["is not an image prefix"]),
    "G01-airgap-no-internet registry with dots": ({"registry": "../x"}, ["../x", "is not an image prefix"]),
    "registry with scheme": ({"registry": "https://r.example"}, ["https://r.example", "without https://"]),
    "vendor validator without a tag": ({"validator": {"source": "image"}}, ["rbln_operands_validator.image", "tag"]),
    "unknown key": ({"device_plugin": {"imge": {}}}, ["rbln_operands_device_plugin", "imge", "image"]),
    "unknown source": ({"validator": {"source": "magic"}}, ["validator.source", "host_tool, image"]),
    "no boolean": ({"device_plugin": {"enabled": "perhaps"}}, ["device_plugin.enabled", "true or false"]),
    "env of the wrong shape": ({"device_plugin": {"env": ["A=1"]}}, ["rbln_operands_device_plugin.env", "NAME: value"]),
    "no dockerconfigjson": ({"pull_secret_content": "hunter2"}, ["rbln_operands_pull_secret_content", "auths"]),
    "no timeout": ({"wait_timeout": 0}, ["rbln_operands_wait_timeout", "at least 1"]),
    "render without a directory": ({"delivery": "render"}, ["rbln_operands_render_dir", "Name a directory"]),
}


@pytest.mark.parametrize(
    "prefix", ["[2001:db8::1]:5000/npu", "r.example:5000", "localhost:5000/a/b", "r.example/a_b/c-d"]
)
def test_G01_prefixes_that_are_taken(prefix: str) -> None:
    assert (
        container(objects(registry=prefix), "device-plugin")["image"] == prefix + "/rebellions/k8s-device-plugin:v0.4.3"
    )


def test_S02_credentials_in_a_registry_are_refused_and_not_shown() -> None:
    with pytest.raises(NpuError, match="holds credentials") as caught:
        objects(registry="svc:not-a-real-secret@r.example")
    assert "not-a-real-secret" not in str(caught.value)


@pytest.mark.parametrize("case", BAD_INPUTS)
def test_bad_input_is_one_error(case: str) -> None:
    given, words = BAD_INPUTS[case]
    with pytest.raises(NpuError) as caught:
        objects(**given)
    assert [word for word in words if word not in str(caught.value)] == []
    assert "hunter2" not in str(caught.value)


COMMON: dict[str, Any] = {
    "resources": {"limits": {"memory": "1Gi"}},
    "labels": {"team": "a"},
    "annotations": {"note": "b"},
    "node_selector": {"zone": "c"},
    "tolerations": [{"key": "d", "operator": "Exists"}],
    "priority_class": "high",
    "update_strategy": {"type": "OnDelete"},
    "node_affinity": [{"key": "e", "operator": "Exists"}],
}


def observe(items: list[dict[str, Any]], component: str, field: str) -> Any:
    """The place in the objects where a component's field takes effect."""
    whole = one(items, "DaemonSet", component)
    template = whole["spec"]["template"]
    pod = template["spec"]
    first = pod["containers"][0] if component == "device-plugin" else pod["initContainers"][0]
    terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return {
        "resources": lambda: first["resources"],
        "labels": lambda: (
            {"team": template["metadata"]["labels"]["team"]} if whole["metadata"]["labels"]["team"] == "a" else None
        ),
        "annotations": lambda: template["metadata"]["annotations"],
        "node_selector": lambda: pod["nodeSelector"],
        "tolerations": lambda: pod["tolerations"][1:],
        "priority_class": lambda: pod["priorityClassName"],
        "update_strategy": lambda: whole["spec"]["updateStrategy"],
        "node_affinity": lambda: [term["matchExpressions"][-1] for term in terms][:1] if len(terms) == 3 else None,
    }[field]()


@pytest.mark.parametrize("component", ["device_plugin", "validator"])
@pytest.mark.parametrize("field", COMMON)
def test_every_common_field_takes_effect(component: str, field: str) -> None:
    items = objects(**{component: {field: COMMON[field]}})
    assert observe(items, component.replace("_", "-"), field) == COMMON[field]


SHARED = {
    "node_selector": ({"zone": "c"}, "node_selector"),
    "tolerations": ([{"key": "d", "operator": "Exists"}], "tolerations"),
    "priority_class": ("high", "priority_class"),
    "node_affinity": ([{"key": "e", "operator": "Exists"}], "node_affinity"),
    "labels": ({"team": "a"}, "labels"),
    "annotations": ({"note": "b"}, "annotations"),
}


@pytest.mark.parametrize("name", SHARED)
def test_one_shared_setting_reaches_every_daemon_set(name: str) -> None:
    value, field = SHARED[name]
    items = objects(**{name: value})
    assert [observe(items, component, field) for component in ("device-plugin", "validator")] == [value, value]


def test_users_cannot_replace_our_labels() -> None:
    labels = one(objects(labels={"app.kubernetes.io/managed-by": "me"}), "DaemonSet", "device-plugin")["metadata"][
        "labels"
    ]
    assert labels["app.kubernetes.io/managed-by"] == "rebellions-npu"


def test_selector_is_part_of_the_pod_labels_and_needs_no_input() -> None:
    for given in ({}, {"labels": {"team": "a"}}):
        for name in ("device-plugin", "validator"):
            whole = one(objects(**given), "DaemonSet", name)
            assert whole["spec"]["selector"]["matchLabels"] == {
                "app.kubernetes.io/name": "rbln-" + name,
                "app.kubernetes.io/part-of": "rebellions-npu",
            }
            assert (
                whole["spec"]["selector"]["matchLabels"].items()
                <= whole["spec"]["template"]["metadata"]["labels"].items()
            )


def test_device_plugin_command_args_env() -> None:
    given = {"command": ["/p"], "args": ["-x", "1"], "env": {"LOG": "debug", "FLAG": True, "CDI_ROOT": "/etc/cdi"}}
    found = container(objects(device_plugin=given), "device-plugin")
    env = {item["name"]: item.get("value") for item in found["env"]}
    assert (found["command"], found["args"]) == (["/p"], ["-x", "1"])
    assert (env["LOG"], env["FLAG"], env["CDI_ROOT"], env["KUBELET_DEVICE_PLUGIN_PATH"]) == (
        "debug",
        "true",
        "/etc/cdi",
        "/var/lib/kubelet/device-plugins",
    )
    assert len(env) == len(found["env"])


def test_env_may_be_the_kubernetes_list() -> None:
    item = {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}
    assert item in container(objects(device_plugin={"env": [item]}), "device-plugin")["env"]


@pytest.mark.parametrize("resource, generic", [("rebellions.ai/npu", "true"), ("rebellions.ai/ATOM", "false")])
def test_resource_name_decides_the_generic_switch(resource: str, generic: str) -> None:
    env = {
        item["name"]: item.get("value") for item in container(objects(resource_name=resource), "device-plugin")["env"]
    }
    assert env["USE_GENERIC_RESOURCE_NAME"] == generic


def test_W01_ready_before_driver_plugin_waits_for_the_host() -> None:
    pod = pod_of(objects(marker_timeout=90), "device-plugin")
    wait = pod["initContainers"][0]
    env = {item["name"]: item.get("value") for item in wait["env"]}
    assert env["WAIT_MARKERS"] == "/run/rbln/validations/driver-ready /run/rbln/validations/toolkit-ready"
    assert env["WAIT_SECONDS"] == "90"
    assert wait["volumeMounts"] == [{"name": "markers", "mountPath": "/run/rbln/validations", "readOnly": True}]
    assert {"name": "markers", "hostPath": {"path": "/run/rbln/validations", "type": "DirectoryOrCreate"}} in pod[
        "volumes"
    ]


def test_validator_runs_the_host_tool_by_default() -> None:
    pod = pod_of(objects(), "validator")
    assert [item["name"] for item in pod["initContainers"]] == [
        "driver-validation",
        "toolkit-validation",
        "plugin-validation",
    ]
    assert pod["initContainers"][0]["command"] == ["chroot", "/host", TOOL, "validate", "--scope", "driver"]
    assert pod["initContainers"][1]["command"] == ["chroot", "/host", TOOL, "validate", "--scope", "toolkit"]
    assert "validate --scope plugin" in pod["initContainers"][2]["command"][2]
    assert {"name": "host", "hostPath": {"path": "/", "type": "Directory"}} in pod["volumes"]
    for item in pod["initContainers"]:
        assert item["volumeMounts"][0] == {
            "name": "host",
            "mountPath": "/host",
            "readOnly": True,
            "mountPropagation": "HostToContainer",
        }


@pytest.mark.parametrize("step", ["driver", "toolkit", "plugin"])
@pytest.mark.parametrize("source", ["host_tool", "image"])
def test_validator_command_args_env_of_each_init_container(step: str, source: str) -> None:
    part = {"command": ["/v", step], "args": ["--a"], "env": {"ONLY": "here"}}
    given: dict[str, Any] = {
        "source": source,
        "image": {"tag": "v1"},
        step: part,
        "args": ["--all"],
        "env": {"ALL": "1"},
    }
    items = objects(validator=given)
    for name in ("driver", "toolkit", "plugin"):
        found = container(items, name + "-validation")
        env = {item["name"]: item.get("value") for item in found["env"]}
        assert env["ALL"] == "1" and env.get("ONLY") == ("here" if name == step else None)
        assert found["args"][-1] == "--all"
    assert container(items, step + "-validation")["command"] == ["/v", step]
    assert container(items, step + "-validation")["args"] == ["--a", "--all"]


def test_000_11_an_image_is_told_which_step_it_is() -> None:
    image: dict[str, Any] = {"source": "image", "image": {"tag": "v1"}}
    for source, told in (({}, [None] * 4), (image, ["driver", "toolkit", "plugin", "vfio"])):
        items = objects(validator=source, vfio_manager={"enabled": True})
        found = [container(items, step + "-validation")["env"] for step in ("driver", "toolkit", "plugin", "vfio")]
        assert [
            next((item["value"] for item in env if item["name"] == "RBLN_VALIDATION"), None) for env in found
        ] == told


def test_001_11_a_component_is_made_in_the_order_of_need() -> None:
    items = objects(validator={"source": "image", "image": {"tag": "1"}})
    kinds = [
        item["kind"]
        for item in items
        if item["metadata"].get("labels", {}).get("app.kubernetes.io/component") == "validator"
    ]
    assert kinds == ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "DaemonSet"]


def test_all_names_begin_with_one_prefix() -> None:
    image = {"image": {"tag": "1"}}
    items = objects(
        name_prefix="acme",
        ca_bundle="x",
        validator={"source": "image", **image},
        container_toolkit={"enabled": True, **image},
    )
    assert {item["metadata"]["name"].split("-")[0] for item in items if item["kind"] != "Namespace"} == {"acme"}
    assert {pod_of(items, name)["serviceAccountName"] for name in ("device-plugin", "validator")} == {
        "acme-device-plugin",
        "acme-validator",
    }
    assert one(items, "ClusterRoleBinding", "acme-validator")["roleRef"]["name"] == "acme-validator"


def test_device_plugin_is_probed_on_the_port_it_is_told() -> None:
    found = container(objects(device_plugin={"health_port": 7000, "scan_interval": "30s"}), "device-plugin")
    env = {item["name"]: item.get("value") for item in found["env"]}
    assert (env["HEALTHCHECK_PORT"], env["DEVICE_SCAN_INTERVAL"]) == ("7000", "30s")
    assert found["livenessProbe"]["grpc"] == {"port": 7000, "service": "liveness"}
    assert "livenessProbe" not in container(objects(device_plugin={"probes": False}), "device-plugin")
    silent = container(objects(device_plugin={"health_port": 0}), "device-plugin")
    assert "livenessProbe" not in silent and {"name": "HEALTHCHECK_PORT", "value": "-1"} in silent["env"]


def test_the_device_plugin_can_write_its_log() -> None:
    """Its library of groups ends the program where it cannot write to /tmp."""
    items = objects()
    assert {"name": "tmp", "mountPath": "/tmp"} in container(items, "device-plugin")["volumeMounts"]
    pod = one(items, "DaemonSet", "rbln-device-plugin")["spec"]["template"]["spec"]
    assert {"name": "tmp", "emptyDir": {}} in pod["volumes"]


IMAGE: dict[str, Any] = {"enabled": True, "image": {"tag": "1"}}
CONTAINERS = {
    "driver": {"driver": {**IMAGE, "manager": {"image": {"tag": "1"}}}},
    "toolkit": {"container_toolkit": IMAGE},
}


@pytest.mark.parametrize("which", CONTAINERS)
def test_000_13_the_validator_writes_the_ready_files_where_no_host_part_does(which: str) -> None:
    items = objects(marker_timeout=90, **CONTAINERS[which])
    pod = pod_of(items, "rbln-validator")
    patience = {"driver": "1800", "toolkit": "90"}[which]
    assert pod["initContainers"][0]["command"] == [
        "chroot",
        "/host",
        TOOL,
        "validate",
        "--scope",
        "driver",
        "--markers",
        "write",
        "--wait",
        patience,
    ]
    assert pod["initContainers"][1]["command"][4:] == ["--scope", "toolkit", "--markers", "write", "--wait", patience]
    wait = {item["name"]: item.get("value") for item in pod_of(items, "device-plugin")["initContainers"][0]["env"]}
    assert wait["WAIT_SECONDS"] == patience
    assert "--markers" not in pod["initContainers"][2]["command"][2]
    main = pod["containers"][0]
    assert main["args"] == ["--scope", "driver", "--scope", "toolkit"] and "--markers write" in main["command"][2]
    for item in (*pod["initContainers"], main):
        writes = item["name"] != "plugin-validation"
        assert ({"name": "markers", "mountPath": "/host/run/rbln/validations"} in item["volumeMounts"]) is writes
        assert item["volumeMounts"][0]["readOnly"] is True


def test_validator_of_a_cluster_whose_hosts_write_the_ready_files_writes_nothing() -> None:
    pod = pod_of(objects(), "validator")
    mounts = [mount for item in pod["initContainers"] for mount in item["volumeMounts"]]
    assert len(mounts) == 4 + 4 + 6
    assert [mount["name"] for mount in mounts if not mount.get("readOnly")] == ["no-run"]
    assert "volumeMounts" not in pod["containers"][0]


def test_only_what_asks_the_host_has_the_sockets_of_the_host() -> None:
    items = objects(
        validator={"vfio": {"enabled": True}}, vfio_manager={"enabled": True}, feature_discovery={"enabled": True}
    )
    masked = {
        item["name"]
        for item in containers(items)
        if {"name": "no-run", "mountPath": "/host/run"} in item.get("volumeMounts", [])
    }
    rooted = {
        item["name"]
        for item in containers(items)
        if "/host" in [mount["mountPath"] for mount in item.get("volumeMounts", [])]
    }
    assert rooted - masked == {"driver-validation", "toolkit-validation"}
    assert masked == {"plugin-validation", "vfio-validation", "feature-discovery"}


def test_a_policy_keeps_everybody_out_of_pods_that_serve_nobody() -> None:
    spec = one(objects(), "NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress"] and "ingress" not in spec
    assert spec["podSelector"]["matchExpressions"] == [
        {"key": "app.kubernetes.io/component", "operator": "NotIn", "values": ["metrics-exporter"]}
    ]
    assert [item for item in objects(network_policy=False) if item["kind"] == "NetworkPolicy"] == []


@pytest.mark.parametrize(
    "address, opened", [("127.0.0.1", False), ("::1", False), ("", True), ("0.0.0.0", True), ("10.0.0.7", True)]
)
def test_a_daemon_that_others_may_reach_is_not_kept_from_them(address: str, opened: bool) -> None:
    spec = one(objects(smd={"enabled": True, "image": {"tag": "1"}, "host_ip": address}), "NetworkPolicy")["spec"]
    assert spec["podSelector"]["matchExpressions"][0]["values"] == ["metrics-exporter"] + (["smd"] if opened else [])


CIDRS = ["10.0.0.10/32", "fd00::10/128"]


@pytest.mark.parametrize(
    ("given", "asking"),
    [
        ({}, []),
        ({"validator": {"source": "image", "image": {"tag": "1"}}}, ["validator"]),
        ({"validator": {"source": "image", "image": {"tag": "1"}, "plugin": {"enabled": False}}}, []),
        (
            {"device_plugin": {"enabled": False}, "dra_driver": {"enabled": True, "image": {"tag": "1"}}},
            ["dra-driver"],
        ),
    ],
    ids=["host tool", "validator image", "image without the plugin", "DRA"],
)
def test_pods_reach_the_api_server_alone_and_only_if_they_ask_it(given: dict[str, Any], asking: list[str]) -> None:
    items = {item["metadata"]["name"]: item for item in objects(api_server_cidrs=CIDRS, **given)}
    spec = items["rbln-no-egress"]["spec"]
    assert spec["policyTypes"] == ["Egress"] and "egress" not in spec
    assert spec["podSelector"]["matchExpressions"] == [
        {
            "key": "app.kubernetes.io/component",
            "operator": "NotIn",
            "values": ["metrics-exporter", "rbln-driver", *asking],
        }
    ]
    assert ("rbln-api-egress" in items) is bool(asking)
    if asking:
        spec = items["rbln-api-egress"]["spec"]
        assert spec["podSelector"]["matchExpressions"][0]["values"] == asking
        assert spec["egress"] == [{"to": [{"ipBlock": {"cidr": cidr}} for cidr in CIDRS]}]


def test_nobody_is_limited_without_the_addresses_of_the_api_server() -> None:
    assert [item["metadata"]["name"] for item in objects() if item["kind"] == "NetworkPolicy"] == ["rbln-no-ingress"]


def test_002_02_openshift_objects_only_where_it_is_openshift() -> None:
    assert [item for item in objects() if item["kind"] == "RoleBinding"] == []
    found = one(build(Context(inputs(), Capabilities({"security.openshift.io": ("v1",)}))), "RoleBinding")
    assert (
        found["roleRef"]["name"] == "system:openshift:scc:privileged"
        and found["metadata"]["namespace"] == "rbln-system"
    )
    assert [item["name"] for item in found["subjects"]] == ["rbln-validator", "rbln-device-plugin"]


def test_a_runtime_class_is_made_when_it_is_wanted() -> None:
    assert [item for item in objects() if item["kind"] == "RuntimeClass"] == []
    found = one(
        objects(runtime_class={"enabled": True, "handler": "rbln-runtime", "node_selector": {"a": True}}),
        "RuntimeClass",
    )
    assert (found["metadata"]["name"], found["handler"], found["scheduling"]) == (
        "rbln",
        "rbln-runtime",
        {"nodeSelector": {"a": "true"}},
    )


def test_validator_part_can_be_switched_off() -> None:
    pod = pod_of(objects(validator={"plugin": {"enabled": False}}), "validator")
    assert [item["name"] for item in pod["initContainers"]] == ["driver-validation", "toolkit-validation"]


def test_rbac_exists_only_where_the_api_is_asked() -> None:
    assert [item for item in objects() if "Role" in item["kind"]] == []
    items = objects(namespace="npu", validator={"source": "image", "image": {"tag": "v1"}})
    assert one(items, "ClusterRole", "rbln-validator")["rules"] == [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}
    ]
    assert one(items, "ClusterRoleBinding")["subjects"] == [
        {"kind": "ServiceAccount", "name": "rbln-validator", "namespace": "npu"}
    ]
    pod = pod_of(items, "validator")
    assert pod["automountServiceAccountToken"] is False
    assert [
        item["name"]
        for item in (*pod["initContainers"], *pod["containers"])
        if "api-token" in [mount["name"] for mount in item.get("volumeMounts", [])]
    ] == ["plugin-validation"]


def test_no_plugin_to_prove_no_right() -> None:
    items = objects(validator={"source": "image", "image": {"tag": "v1"}, "plugin": {"enabled": False}})
    assert [item for item in items if "Role" in item["kind"]] == []
    assert "api-token" not in [volume["name"] for volume in pod_of(items, "validator")["volumes"]]


def test_least_privilege() -> None:
    items = objects()
    assert sorted(item["name"] for item in containers(items) if item["securityContext"].get("privileged")) == [
        "device-plugin",
        "driver-validation",
    ]
    assert [
        item["name"] for item in containers(items) if item["securityContext"].get("readOnlyRootFilesystem") is not True
    ] == []
    for key in ("device_plugin", "feature_discovery"):
        name = key.replace("_", "-")
        loose = container(objects(**{key: {"enabled": True, "read_only_root": False}}), name)
        assert loose["securityContext"]["readOnlyRootFilesystem"] is False
    for item in containers(items):
        if not item["securityContext"].get("privileged"):
            assert item["securityContext"]["capabilities"]["drop"] == ["ALL"]
            assert item["securityContext"]["allowPrivilegeEscalation"] is False
            assert item["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for name in ("device-plugin", "validator"):
        pod = pod_of(items, name)
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    tight = container(objects(device_plugin={"privileged": False}), "device-plugin")
    assert tight["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_pull_secret_from_a_variable_is_made_and_used() -> None:
    content = {"auths": {"r.example": {"auth": "c2VjcmV0"}}}
    for value in (content, json.dumps(content)):
        items = objects(
            pull_secret_content=value,
            image_pull_secrets=["mine"],
            device_plugin={"image": {"pull_secrets": ["more", "mine"]}},
        )
        secret = one(items, "Secret")
        assert secret["type"] == "kubernetes.io/dockerconfigjson"
        assert json.loads(base64.b64decode(secret["data"][".dockerconfigjson"])) == content
        assert pod_of(items, "device-plugin")["imagePullSecrets"] == [
            {"name": "mine"},
            {"name": "rbln-registry"},
            {"name": "more"},
        ]
        assert pod_of(items, "validator")["imagePullSecrets"] == [{"name": "mine"}, {"name": "rbln-registry"}]


def test_G02_what_no_proxy_reaches_is_named_beside_the_ranges() -> None:
    lines = (FIXTURES / "G02-no-proxy-cidr.env").read_text(encoding="utf-8").split()
    given = dict(line.split("=", 1) for line in lines)
    host = given["kubernetes_host"].rpartition("/")[2].partition(":")[0]
    items = objects(
        https_proxy=given["https_proxy"],
        no_proxy=given["no_proxy"],
        cluster_domain="npu.example.",
        cluster_cidrs=["10.244.0.0/16"],
        api_server_cidrs=[host + "/32"],
    )
    every = [part.get("env", []) for part in containers(items)]
    told = [env for env in every if any(item["name"] == "https_proxy" for item in env)]
    assert len(told) > 1
    for env in told:
        names = [item["name"] for item in env]
        values = {item["name"]: item.get("value") for item in env}
        wanted = (values["NO_PROXY"] or "").split(",")
        assert wanted[:3] == ["localhost", "10.96.0.0/12", ".svc"] and len(wanted) == len(set(wanted))
        assert {host, "$(KUBERNETES_SERVICE_HOST)", "$(NODE_IP)", ".npu.example", "10.244.0.0/16"} <= set(wanted)
        assert values["no_proxy"] == values["NO_PROXY"]
        # The kubelet fills in only what stands before.
        assert names.index("NODE_IP") < min(names.index("NO_PROXY"), names.index("no_proxy"))
    plain = {item["name"]: item.get("value") for item in container(objects(no_proxy="x"), "device-plugin")["env"]}
    assert plain["NO_PROXY"] == "x" and "NODE_IP" not in plain, "without a proxy there is nothing to go around"


def test_proxy_and_authorities_reach_the_containers() -> None:
    items = objects(
        http_proxy="http://p:1",
        https_proxy="http://p:2",
        no_proxy="10.0.0.0/8",
        ca_bundle="-----BEGIN CERTIFICATE-----\n",
    )
    env = {item["name"]: item.get("value") for item in container(items, "device-plugin")["env"]}
    assert [env[name] for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "NO_PROXY")] == [
        "http://p:1",
        "http://p:1",
        "http://p:2",
        "10.0.0.0/8,localhost,127.0.0.1,::1,$(NODE_IP),$(KUBERNETES_SERVICE_HOST),.svc,.cluster.local",
    ]
    assert env["no_proxy"] == env["NO_PROXY"]
    assert env["SSL_CERT_FILE"] == "/etc/rbln-ca/ca.crt"
    assert one(items, "ConfigMap")["data"] == {"ca.crt": "-----BEGIN CERTIFICATE-----\n"}
    assert {"name": "ca", "configMap": {"name": "rbln-ca"}} in pod_of(items, "device-plugin")["volumes"]


@pytest.mark.parametrize("given", [*EVERYTHING, {"ca_bundle": "x", "pull_secret_content": {"auths": {}}}])
def test_every_mount_has_its_volume_and_names_are_unique(given: dict[str, Any]) -> None:
    items = objects(**given)
    for name in ("device-plugin", "validator"):
        pod = pod_of(items, name)
        volumes = [volume["name"] for volume in pod["volumes"]]
        everyone = pod["initContainers"] + pod["containers"]
        assert len(volumes) == len(set(volumes))
        assert {mount["name"] for item in everyone for mount in item.get("volumeMounts", [])} == set(volumes)
        assert len({item["name"] for item in everyone}) == len(everyone)


def test_namespace_is_everywhere() -> None:
    items = objects(namespace="npu")
    assert {item["metadata"].get("namespace") for item in items if item["kind"] in ("DaemonSet", "ServiceAccount")} == {
        "npu"
    }


def test_manifests_are_the_same_bytes_and_read_back() -> None:
    first, second = manifests(objects()), manifests(objects())
    assert first == second
    assert list(yaml.safe_load_all(first)) == objects()
    assert "&id" not in first


def test_survey_text_makes_the_same_objects() -> None:
    """A04-string-bools: text from a survey or -e means what the typed value means."""
    typed = objects(
        require_gate=True,
        marker_timeout=30,
        tolerations=[{"key": "a", "operator": "Exists"}],
        device_plugin={"privileged": False},
    )
    text = objects(
        require_gate="true",
        marker_timeout="30",
        tolerations='[{"key": "a", "operator": "Exists"}]',
        device_plugin='{"privileged": "false"}',
    )
    assert text == typed


def test_inputs_of_the_tests_are_those_of_the_role() -> None:
    assert {"device_plugin", "validator", "wait_timeout", "pull_secret_content"} <= set(inputs())


def test_what_mounts_the_host_reads_it_where_selinux_enforces() -> None:
    image = {"enabled": True, "image": {"tag": "1"}}
    items = objects(
        metrics_exporter=image,
        feature_discovery={"enabled": True},
        vfio_manager={"enabled": True},
        sandbox_device_plugin=image,
    )
    for item in containers(items):
        context = item["securityContext"]
        if item.get("volumeMounts"):
            assert context.get("privileged") or context["seLinuxOptions"] == {"type": "spc_t"}, item["name"]
        elif context["runAsUser"]:
            assert "seLinuxOptions" not in context


def test_other_authorities_start_the_pods_anew_but_no_driver() -> None:
    driver = {
        "enabled": True,
        "image": {"tag": "1"},
        "manager": {"image": {"tag": "1"}},
        "pools": [{"os_id": "a", "os_version": "1", "kernel": "2"}],
    }
    made = [objects(driver=driver, ca_bundle=text) for text in ("a", "b", "")]
    first, second, none = (
        {item["metadata"]["name"]: item["spec"]["template"] for item in items if item["kind"] == "DaemonSet"}
        for items in made
    )
    assert {name for name in first if first[name] != second[name]} == {"rbln-device-plugin", "rbln-validator"}
    assert all("annotations" not in template["metadata"] for template in none.values())
