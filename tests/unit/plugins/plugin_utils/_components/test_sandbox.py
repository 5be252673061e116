# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The components of nodes whose NPUs go to virtual machines."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.vfio_script import MANAGER
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.placement import selects
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import objects, one

SANDBOX: dict[str, Any] = {
    "vfio_manager": {"enabled": True},
    "sandbox_device_plugin": {"enabled": True, "image": {"tag": "0.1.1"}},
}
PARTS = ("vfio-manager", "sandbox-validator", "sandbox-device-plugin")


def pods(**given: Any) -> dict[str, dict[str, Any]]:
    made = objects(**{**SANDBOX, **given})
    found = [item for item in made if item["kind"] == "DaemonSet"]
    return {item["metadata"]["name"]: item["spec"]["template"]["spec"] for item in found}


def env(container: dict[str, Any]) -> dict[str, Any]:
    return {item["name"]: item.get("value") for item in container["env"]}


def places(pod: dict[str, Any]) -> dict[str, tuple[str, bool]]:
    volumes = {volume["name"]: volume.get("hostPath", {"path": ""})["path"] for volume in pod["volumes"]}
    return {
        item["mountPath"]: (volumes[item["name"]], item.get("readOnly", False))
        for item in pod["containers"][0]["volumeMounts"]
    }


def test_001_09_they_come_in_order_on_nodes_of_virtual_machines_alone() -> None:
    found = [name for name in pods() if name[len("rbln-") :] in PARTS]
    assert found == ["rbln-" + name for name in PARTS]
    for name, pod in pods().items():
        for workload, machines in (("vm-passthrough", True), ("container", False)):
            labels = {"rebellions.ai/npu.present": "true", "rebellions.ai/npu.workload.config": workload}
            assert selects(pod, {"metadata": {"name": "n", "labels": labels}}) is (
                machines == (name[len("rbln-") :] in PARTS)
            ), name


def test_the_manager_runs_its_script_and_is_ready_when_all_is_bound() -> None:
    made = objects(**SANDBOX)
    assert one(made, "ConfigMap", "vfio-manager")["data"] == {"vfio-manager.sh": MANAGER}
    item = one(made, "DaemonSet", "vfio-manager")
    pod = item["spec"]["template"]["spec"]
    (main,) = pod["containers"]
    assert main["command"] == ["/bin/sh", "/opt/rbln/vfio-manager.sh", "manage"]
    assert main["readinessProbe"]["exec"]["command"] == ["/bin/sh", "/opt/rbln/vfio-manager.sh", "check"]
    assert (pod["hostPID"], main["securityContext"]["privileged"], "initContainers" in pod) == (True, True, False)
    assert places(pod) == {"/sys": ("/sys", False), "/opt/rbln": ("", True)}
    assert len(item["spec"]["template"]["metadata"]["annotations"]["rebellions.ai/script-sha256"]) == 64
    assert env(main) == {
        "NODE_NAME": None,
        "PCI_VENDOR": "0x1eff",
        "PCI_CLASS": "0x1200",
        "CLASS_DIR": "/sys/class/rebellions",
        "DEVICE_NODE": "rbln",
        "GROUP_NODE": "rsd",
        "STORAGE_NODE": "rblnfs",
        "MODULE": "rebellions",
        "RELEASE_ON_EXIT": "false",
    }


def test_an_image_can_take_the_place_of_the_script() -> None:
    given = {"vfio_manager": {"enabled": True, "source": "image", "image": {"tag": "1.0.1"}, "args": ["-v"]}}
    made = objects(**given)
    assert not [item for item in made if item["kind"] == "ConfigMap"]
    (main,) = one(made, "DaemonSet", "vfio-manager")["spec"]["template"]["spec"]["containers"]
    assert (main["image"], main["args"]) == ("docker.io/rebellions/rbln-vfio-manager:1.0.1", ["-v"])
    assert "command" not in main and "readinessProbe" not in main


def test_000_33_the_validator_proves_it_by_the_tool_of_the_host_or_by_an_image() -> None:
    given = {"env": {"A": "1"}, "vfio": {"env": {"B": "2"}, "args": ["--timeout", "5"]}}
    pod = pods(validator=given, marker_timeout=90)["rbln-sandbox-validator"]
    (check,) = pod["initContainers"]
    assert check["name"] == "vfio-validation"
    assert check["command"][:2] == ["/bin/sh", "-c"]
    assert 'exec chroot /host "$HOST_TOOL" validate --scope vfio --wait "$WAIT_SECONDS"' in check["command"][2]
    # A shell takes the word after its script as its name, and gives only those after it to the tool.
    assert (check["command"][3:], check["args"]) == (["sandbox-validator"], ["--timeout", "5"])
    told = env(check)
    assert (told["HOST_TOOL"], told["WAIT_SECONDS"]) == ("/usr/local/libexec/rebellions-npu/rbln-host", "90")
    assert (told["A"], told["B"], told["PCI_VENDOR"]) == ("1", "2", "0x1eff")
    assert check["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_CHROOT"]}
    assert pod["containers"][0]["securityContext"]["runAsUser"] == 65534
    own = {
        "source": "image",
        "image": {"tag": "1"},
        "args": ["-a"],
        "vfio": {"command": ["check"], "args": ["-b"], "privileged": True},
    }
    (check,) = pods(validator=own)["rbln-sandbox-validator"]["initContainers"]
    assert (check["image"], check["command"], check["args"]) == (
        "docker.io/rebellions/rbln-validator:1",
        ["check"],
        ["-b", "-a"],
    )
    assert check["securityContext"]["privileged"] is True


@pytest.mark.parametrize(
    "own", [{"vfio": {"enabled": False}}, {"enabled": False}, {"checks": {"vfio": {"enabled": False}}}]
)
def test_000_33_the_proof_can_be_left_out(own: dict[str, Any]) -> None:
    assert "rbln-sandbox-validator" not in pods(validator=own)


def test_the_plugin_waits_for_the_bus_and_not_for_a_later_part() -> None:
    own = {"enabled": True, "image": {"tag": "0.1.1"}, "device_plugins_dir": "/data/device-plugins"}
    pod = pods(sandbox_device_plugin=own, marker_timeout=90)["rbln-sandbox-device-plugin"]
    (wait,) = pod["initContainers"]
    assert wait["name"] == "wait-for-vfio" and "volumeMounts" not in wait
    assert "/sys/bus/pci/devices" in wait["command"][-1] and "validations" not in str(wait)
    assert env(wait)["WAIT_SECONDS"] == "90" and env(wait)["PCI_VENDOR"] == "0x1eff"
    assert places(pod) == {
        "/var/lib/kubelet/device-plugins": ("/data/device-plugins", False),
        "/dev/vfio": ("/dev/vfio", False),
        "/sys": ("/sys", True),
    }
    assert "livenessProbe" not in pod["containers"][0]
    pod = pods(sandbox_device_plugin={**own, "health_port": 51517})["rbln-sandbox-device-plugin"]
    assert pod["containers"][0]["livenessProbe"]["grpc"] == {"port": 51517, "service": "liveness"}
    assert env(pod["containers"][0])["HEALTHCHECK_PORT"] == "51517"
