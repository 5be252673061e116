# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The DRA driver, its device classes and its admission policy."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import (
    container,
    objects,
    one,
    pod_of,
)


def dra(more: Any = None, **own: Any) -> list[dict[str, Any]]:
    given = {"device_plugin": {"enabled": False}, **(more or {})}
    return objects(dra_driver={"enabled": True, "image": {"tag": "0.2.1"}, **own}, **given)


def test_objects_in_the_order_of_creation() -> None:
    mine = [
        item for item in dra() if item["metadata"].get("labels", {}).get("app.kubernetes.io/component") == "dra-driver"
    ]
    assert [(item["kind"], item["metadata"]["name"], item["metadata"].get("namespace")) for item in mine] == [
        ("ServiceAccount", "rbln-dra-driver", "rbln-system"),
        ("ClusterRole", "rbln-dra-driver", None),
        ("ClusterRoleBinding", "rbln-dra-driver", None),
        ("DeviceClass", "npu.rebellions.ai", None),
        ("ValidatingAdmissionPolicy", "rbln-dra-driver-slices", None),
        ("ValidatingAdmissionPolicyBinding", "rbln-dra-driver-slices", None),
        ("DaemonSet", "rbln-dra-driver", "rbln-system"),
    ]


def test_pod() -> None:
    items = dra(args=["--a"], env={"LOG": "x"})
    pod, main = pod_of(items, "dra-driver"), container(items, "dra-driver")
    assert (main["command"], main["args"]) == (["npu-kubelet-plugin"], ["--a"])
    assert {item["name"]: item["value"] for item in main["env"] if "value" in item} == {
        "DRIVER_NAME": "npu.rebellions.ai",
        "CDI_ROOT": "/var/run/cdi",
        "KUBELET_PLUGINS_DIRECTORY_PATH": "/var/lib/kubelet/plugins",
        "KUBELET_REGISTRAR_DIRECTORY_PATH": "/var/lib/kubelet/plugins_registry",
        "HEALTHCHECK_PORT": "51516",
        "LOG": "x",
    }
    assert main["livenessProbe"]["grpc"] == {"port": 51516, "service": "liveness"}
    assert main["securityContext"] == {"privileged": True, "readOnlyRootFilesystem": True, "runAsUser": 0}
    # First of all, because other mounts are below it.
    assert main["volumeMounts"][0] == {"name": "run", "mountPath": "/var/run"}
    assert {"name": "run", "emptyDir": {}} in pod["volumes"]
    assert pod["automountServiceAccountToken"] is False
    (wait,) = pod["initContainers"]
    assert "api-token" in {mount["name"] for mount in main["volumeMounts"]}
    assert [mount["name"] for mount in wait["volumeMounts"]] == ["markers"]
    assert {
        "name": "WAIT_MARKERS",
        "value": "/run/rbln/validations/driver-ready /run/rbln/validations/toolkit-ready",
    } in wait["env"]
    assert "rebellions.ai/npu.workload.config" not in str(pod["affinity"])


@pytest.mark.parametrize(("own", "port"), [({"health_port": 0}, "-1"), ({"probes": False}, "51516")])
def test_without_a_probe(own: dict[str, Any], port: str) -> None:
    main = container(dra(**own), "dra-driver")
    assert "livenessProbe" not in main and {"name": "HEALTHCHECK_PORT", "value": port} in main["env"]


def test_sockets_are_below_each_root_of_a_kubelet_at_the_same_place_inside() -> None:
    items = dra({"kubelet_root": "/opt/kubelet", "kubelet_roots": ["/data/kubelet"]})
    for item in items:
        if item["kind"] == "DaemonSet" and "dra" in item["metadata"]["name"]:
            spec = item["spec"]["template"]["spec"]
            outside = {volume["name"]: volume["hostPath"] for volume in spec["volumes"] if "hostPath" in volume}
            inside = {mount["name"]: mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}
            root = outside["plugins"]["path"].rpartition("/")[0]
            assert root in ("/opt/kubelet", "/data/kubelet")
            assert outside["plugins-registry"] == {"path": root + "/plugins_registry", "type": "Directory"}
            assert inside["plugins"] == root + "/plugins" and inside["plugins-registry"] == root + "/plugins_registry"
    names = [item["metadata"]["name"] for item in items if item["kind"] == "DaemonSet"]
    assert len(names) == len(set(names)) == 3


def test_rights() -> None:
    assert one(dra(), "ClusterRole", "dra-driver")["rules"] == [
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
        {
            "apiGroups": ["resource.k8s.io"],
            "resources": ["resourceslices"],
            "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"],
        },
    ]


@pytest.mark.parametrize(
    ("more", "own", "expected"),
    [
        (
            {},
            {},
            {"npu.rebellions.ai": {"selectors": [{"cel": {"expression": 'device.driver == "npu.rebellions.ai"'}}]}},
        ),
        (
            {"resource_name": "example.com/npu"},
            {"driver_name": "npu.example.com", "extended_resource": True},
            {
                "npu.example.com": {
                    "selectors": [{"cel": {"expression": 'device.driver == "npu.example.com"'}}],
                    "extendedResourceName": "example.com/npu",
                }
            },
        ),
    ],
)
def test_device_class(more: dict[str, Any], own: dict[str, Any], expected: dict[str, Any]) -> None:
    assert {
        item["metadata"]["name"]: item["spec"] for item in dra(more, **own) if item["kind"] == "DeviceClass"
    } == expected


def test_devices_of_virtual_machines_have_a_class_of_their_own() -> None:
    found = {
        item["metadata"]["name"]: item["spec"]["selectors"][0]["cel"]["expression"]
        for item in dra({"workload": "vm-passthrough"})
        if item["kind"] == "DeviceClass"
    }
    assert found == {
        "npu.rebellions.ai": (
            'device.driver == "npu.rebellions.ai" && device.attributes["npu.rebellions.ai"].type != "vfio"'
        ),
        "vfio-npu.rebellions.ai": (
            'device.driver == "npu.rebellions.ai" && device.attributes["npu.rebellions.ai"].type == "vfio"'
        ),
    }


def test_a_node_writes_slices_of_its_own_alone() -> None:
    items = dra(more={"namespace": "npu", "name_prefix": "site"}, driver_name="npu.example.com")
    policy = one(items, "ValidatingAdmissionPolicy")
    assert policy["spec"]["failurePolicy"] == "Fail"
    assert policy["spec"]["matchConditions"] == [
        {
            "name": "driver-account",
            "expression": "request.userInfo.username == 'system:serviceaccount:npu:site-dra-driver'",
        }
    ]
    assert policy["spec"]["matchConstraints"]["resourceRules"] == [
        {
            "apiGroups": ["resource.k8s.io"],
            "apiVersions": ["*"],
            "operations": ["CREATE", "UPDATE", "DELETE"],
            "resources": ["resourceslices"],
        }
    ]
    assert [item["expression"] for item in policy["spec"]["validations"]] == [
        "variables.node != ''",
        "has(variables.slice.spec.nodeName) && variables.slice.spec.nodeName == variables.node",
        "variables.slice.spec.driver == 'npu.example.com'",
    ]
    binding = one(items, "ValidatingAdmissionPolicyBinding")
    assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}
    assert [item["kind"] for item in dra(admission_policy=False) if item["kind"].startswith("Validating")] == []


@pytest.mark.parametrize("name", ["NPU", "a'b", "-a", "a" * 64])
def test_a_name_of_the_driver_that_is_none(name: str) -> None:
    with pytest.raises(NpuError, match="rbln_operands_dra_driver.driver_name is"):
        dra(driver_name=name)
