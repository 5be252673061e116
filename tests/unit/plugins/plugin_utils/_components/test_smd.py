# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The system management daemon."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.smd import objects as smd_objects
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.model import Context
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import (
    container,
    inputs,
    objects,
    pod_of,
)

TAGGED = {"enabled": True, "image": {"tag": "3.4.1"}}


def image(**given: Any) -> str:
    name: str = container(smd_objects(Context(inputs(**given))), "smd")["image"]
    return name


def test_the_port_that_can_reset_devices_is_open_on_the_loopback_address_alone() -> None:
    main = container(objects(smd=TAGGED), "smd")
    assert main["ports"] == [
        {"name": "grpc", "containerPort": 50051, "hostPort": 50051, "hostIP": "127.0.0.1", "protocol": "TCP"}
    ]
    assert {"name": "RBLN_SMD_PORT", "value": "50051"} in main["env"]
    assert "hostNetwork" not in pod_of(objects(smd=TAGGED), "smd")
    other = container(objects(smd={**TAGGED, "port": 50077, "host_ip": ""}), "smd")
    assert other["ports"] == [{"name": "grpc", "containerPort": 50077, "hostPort": 50077, "protocol": "TCP"}]
    assert {"name": "RBLN_SMD_PORT", "value": "50077"} in other["env"]


def test_pod() -> None:
    items = objects(smd=TAGGED)
    pod, main = pod_of(items, "smd"), container(items, "smd")
    assert main["image"] == "repo.rebellions.ai/rebellions/rbln-smd:3.4.1"
    assert main["securityContext"] == {"privileged": True, "readOnlyRootFilesystem": True, "runAsUser": 0}
    assert main["livenessProbe"]["tcpSocket"] == main["readinessProbe"]["tcpSocket"] == {"port": "grpc"}
    assert {item["name"]: item["hostPath"]["path"] for item in pod["volumes"]} == {
        "dev": "/dev", "sys": "/sys", "logs": "/var/log/rebellions", "markers": "/run/rbln/validations",
    }  # fmt: skip
    assert {item["name"]: item["mountPath"] for item in main["volumeMounts"]} == {
        "dev": "/dev",
        "sys": "/sys",
        "logs": "/var/log/rebellions",
    }
    (wait,) = pod["initContainers"]
    assert {"name": "WAIT_MARKERS", "value": "/run/rbln/validations/driver-ready"} in wait["env"]
    assert (pod["automountServiceAccountToken"], pod["hostPID"]) == (False, True)


def test_002_06_it_finds_the_libraries_of_drivers_in_containers() -> None:
    instances = [
        {"name": name, "host_root": "/opt/" + name, "node_selector": {"at": name}, "image": {"tag": "1"}}
        for name in ("a", "b")
    ]
    own = {**TAGGED, "host_paths": [{"name": "opt", "path": "/opt", "mount_path": "/host-opt"}]}
    items = objects(smd=own, driver={"enabled": True, "manager": {"image": {"tag": "1"}}}, driver_instances=instances)
    pod, main = pod_of(items, "smd"), container(items, "smd")
    more = {"readOnly": True, "mountPropagation": "HostToContainer"}
    expected = [
        {"name": "driver-root", "mountPath": "/opt/a", **more},
        {"name": "driver-root-1", "mountPath": "/opt/b", **more},
    ]
    assert [mount for mount in main["volumeMounts"] if mount["mountPath"].startswith("/opt/")] == expected
    paths = {item["name"]: item["hostPath"]["path"] for item in pod["volumes"]}
    assert (paths["driver-root"], paths["driver-root-1"]) == ("/opt/a", "/opt/b")
    assert {mount["name"]: mount.get("mountPropagation") for mount in main["volumeMounts"]}["opt"] == "HostToContainer"


def test_it_sees_the_files_of_the_next_driver() -> None:
    """They are mounted anew below /run/rbln, and a mount of the root itself would keep the former ones."""
    driver = {"enabled": True, "image": {"tag": "1"}, "manager": {"image": {"tag": "1"}}}
    items = objects(smd=TAGGED, driver=driver)
    (mount,) = (one for one in container(items, "smd")["volumeMounts"] if one["name"] == "driver-root")
    assert mount == {
        "name": "driver-root",
        "mountPath": "/run/rbln",
        "readOnly": True,
        "mountPropagation": "HostToContainer",
    }


def test_probes_can_be_left_out() -> None:
    main = container(objects(smd={**TAGGED, "probes": False}), "smd")
    assert [name for name in main if name.endswith("Probe")] == []


@pytest.mark.parametrize(
    ("smd", "more", "expected"),
    [
        ({}, {"driver": {"enabled": True, "image": {"tag": "3.5.0"}}}, "repo.rebellions.ai/rebellions/rbln-smd:3.5.0"),
        (
            {"image": {"tag": "3.4.0"}},
            {"driver": {"enabled": True, "image": {"tag": "3.5.0"}}},
            "repo.rebellions.ai/rebellions/rbln-smd:3.4.0",
        ),
        (
            {"image": {"digest": "sha256:" + "a" * 64}},
            {"driver": {"enabled": True, "image": {"tag": "3.5.0"}}},
            "repo.rebellions.ai/rebellions/rbln-smd@sha256:" + "a" * 64,
        ),
        (
            {},
            {"driver": {"enabled": True, "image": {"tag": "3.5.0"}}, "driver_instances": [{"name": "one"}]},
            "repo.rebellions.ai/rebellions/rbln-smd:3.5.0",
        ),
    ],
)
def test_the_version_is_that_of_the_driver(smd: dict[str, Any], more: dict[str, Any], expected: str) -> None:
    assert image(smd={"enabled": True, **smd}, **more) == expected


def test_several_drivers_need_a_version_that_is_said() -> None:
    instances = [
        {"name": "atom", "node_selector": {"family": "atom"}, "image": {"tag": "3.4.1"}},
        {"name": "rebel", "node_selector": {"family": "rebel"}, "image": {"tag": "3.5.1"}},
    ]
    with pytest.raises(
        NpuError, match=r"rbln_operands_smd.image has no tag, and the drivers have several: 3.4.1, 3.5.1\."
    ):
        image(smd={"enabled": True}, driver={"enabled": True}, driver_instances=instances)
    with pytest.raises(NpuError, match="rbln_operands_smd.image has neither tag nor digest"):
        image(smd={"enabled": True})
