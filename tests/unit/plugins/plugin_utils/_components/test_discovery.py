# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Feature discovery, by the host's tool and by the vendor's image; the script is run."""

from __future__ import annotations

import os
import pathlib
import subprocess
import time
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.containers import EITHER_SCRIPT as WAIT
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.discovery import SCRIPT
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import (
    container,
    objects,
    one,
    pod_of,
)

TOOL = "/usr/local/libexec/rebellions-npu/rbln-host"


def env(main: dict[str, Any]) -> dict[str, str]:
    return {item["name"]: item["value"] for item in main["env"] if "value" in item}


def test_by_the_tool_of_the_host() -> None:
    items = objects(feature_discovery={"enabled": True, "features_dir": "/etc/nfd/features.d"})
    pod, main = pod_of(items, "feature-discovery"), container(items, "feature-discovery")
    assert main["image"] == "docker.io/library/busybox:1.37"
    assert env(main) == {
        "RBLN_HOST_TOOL": TOOL,
        "FEATURES_DIR": "/features",
        "FEATURES_FILE": "rbln-features",
        "INTERVAL": "60",
        "EXPIRY_SECONDS": "3660",
        "ONESHOT": "false",
    }
    assert (
        main["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_CHROOT"]}
        and main["securityContext"]["readOnlyRootFilesystem"] is True
    )
    follow = {"readOnly": True, "mountPropagation": "HostToContainer"}
    assert main["volumeMounts"] == [
        {"name": "host", "mountPath": "/host", **follow},
        {"name": "host-proc", "mountPath": "/host/proc", **follow},
        {"name": "host-sys", "mountPath": "/host/sys", **follow},
        {"name": "host-dev", "mountPath": "/host/dev", **follow},
        {"name": "no-run", "mountPath": "/host/run"},
        {"name": "rbln", "mountPath": "/host/run/rbln", **follow},
        {"name": "features", "mountPath": "/features"},
    ]
    assert {"name": "no-run", "emptyDir": {}} in pod["volumes"]
    assert {"name": "features", "hostPath": {"path": "/etc/nfd/features.d", "type": "DirectoryOrCreate"}} in pod[
        "volumes"
    ]
    assert main["readinessProbe"]["exec"] == {"command": ["test", "-e", "/features/rbln-features"]}
    assert "hostNetwork" not in pod


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ("60", "3660", "false")),
        ({"interval": 3600}, ("3600", "7200", "false")),
        ({"no_timestamp": True}, ("60", "0", "false")),
        ({"oneshot": True}, ("60", "0", "true")),
    ],
)
def test_labels_expire_only_when_somebody_renews_them(given: dict[str, Any], expected: tuple[str, ...]) -> None:
    found = env(container(objects(feature_discovery={"enabled": True, **given}), "feature-discovery"))
    assert (found["INTERVAL"], found["EXPIRY_SECONDS"], found["ONESHOT"]) == expected


def test_by_the_vendors_image() -> None:
    given = {
        "enabled": True,
        "source": "image",
        "image": {"tag": "0.2.3", "pull_secrets": ["mine"]},
        "interval": 30,
        "no_timestamp": True,
    }
    items = objects(feature_discovery=given)
    pod, main = pod_of(items, "feature-discovery"), container(items, "feature-discovery")
    assert main["image"] == "docker.io/rebellions/rbln-npu-feature-discovery:0.2.3" and "command" not in main
    assert env(main) == {
        "RBLN_NPU_FEATURE_DISCOVERY_SLEEP_INTERVAL": "30",
        "RBLN_NPU_FEATURE_DISCOVERY_ONESHOT": "false",
        "RBLN_NPU_FEATURE_DISCOVERY_NO_TIMESTAMP": "true",
        "RBLN_NPU_FEATURE_DISCOVERY_FAIL_ON_INIT_ERROR": "true",
    }
    assert main["volumeMounts"] == [
        {"name": "features", "mountPath": "/etc/kubernetes/node-feature-discovery/features.d"}
    ]
    assert main["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert pod["hostNetwork"] is True and pod["imagePullSecrets"] == [{"name": "mine"}]


def test_it_runs_on_nodes_of_every_workload() -> None:
    affinity = one(objects(feature_discovery={"enabled": True}), "DaemonSet", "feature-discovery")["spec"]["template"][
        "spec"
    ]["affinity"]
    assert "rebellions.ai/npu.workload.config" not in str(affinity)


class Pod:
    """The script in a shell of this machine, with a chroot that only runs the tool."""

    def __init__(self, place: pathlib.Path, tool: str, **more: str) -> None:
        self.features = place / "features"
        self.features.mkdir()
        programs = place / "bin"
        programs.mkdir()
        for name, body in (("chroot", 'shift; exec "$@"'), ("tool", tool)):
            (programs / name).write_text("#!/bin/sh\n%s\n" % body, encoding="utf-8")
            (programs / name).chmod(0o755)
        variables = {
            "RBLN_HOST_TOOL": str(programs / "tool"),
            "FEATURES_DIR": str(self.features),
            "FEATURES_FILE": "rbln-features",
        }
        settings = {
            "INTERVAL": "0.05",
            "EXPIRY_SECONDS": "0",
            "ONESHOT": "false",
            "PATH": "%s:%s" % (programs, os.environ["PATH"]),
            **variables,
            **more,
        }
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", SCRIPT, "feature-discovery", "--more"], env=settings, stderr=subprocess.DEVNULL
        )

    def wait(self, name: str = "rbln-features") -> str:
        until = time.monotonic() + 10
        while not (self.features / name).exists():
            assert time.monotonic() < until, os.listdir(self.features)
            time.sleep(0.01)
        return (self.features / name).read_text(encoding="utf-8")

    def end(self) -> int:
        self.process.terminate()
        return self.process.wait(10)


def test_the_script_writes_what_the_tool_says(tmp_path: pathlib.Path) -> None:
    pod = Pod(tmp_path, 'echo "said=$*"', ONESHOT="true", EXPIRY_SECONDS="3660")
    assert pod.wait() == "said=labels --nfd --expiry 3660 --more\n"
    assert pod.end() == 0 and sorted(os.listdir(pod.features)) == ["rbln-features"]


@pytest.mark.parametrize(("oneshot", "again"), [("false", True), ("true", False)])
def test_the_script_looks_again_unless_told_otherwise(tmp_path: pathlib.Path, oneshot: str, again: bool) -> None:
    count = tmp_path / "count"
    pod = Pod(tmp_path, "echo x >>%s; echo a=b" % count, ONESHOT=oneshot)
    pod.wait()
    until = time.monotonic() + (10 if again else 0.3)
    while time.monotonic() < until and len(count.read_text(encoding="utf-8")) < 6:
        time.sleep(0.01)
    assert pod.end() == 0
    assert (len(count.read_text(encoding="utf-8")) > 2) is again


def test_the_script_keeps_the_labels_it_has_when_the_tool_fails_and_tries_again(tmp_path: pathlib.Path) -> None:
    (tmp_path / "fails").touch()
    pod = Pod(
        tmp_path,
        "echo half=; [ ! -e %s ] || { echo x >>%s; exit 1; }; echo a=b" % (tmp_path / "fails", tmp_path / "count"),
    )
    until = time.monotonic() + 10
    while not (tmp_path / "count").exists() or len((tmp_path / "count").read_text(encoding="utf-8")) < 4:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert not (pod.features / "rbln-features").exists()
    (tmp_path / "fails").unlink()
    assert pod.wait() == "half=\na=b\n"
    assert pod.end() == 0


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"ready": ""}, 0),
        ({}, 1),
        ({"vfio/0000:01:00.0/vendor": "0x1eff\n"}, 0),
        ({"vfio/0000:01:00.0/vendor": "0x8086\n"}, 1),
        ({"vfio/0000:01:00.0/vendor": "0x8086\n", "vfio/0000:02:00.0/vendor": "0x1eff\n"}, 0),
    ],
)
def test_the_gate_opens_for_a_ready_host_or_an_npu_of_virtual_machines(
    tmp_path: pathlib.Path, files: dict[str, str], expected: int
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    script = WAIT.replace("/sys/bus/pci/drivers/vfio-pci", str(tmp_path / "vfio"))
    assert script != WAIT
    variables = {
        "WAIT_MARKERS": str(tmp_path / "ready"),
        "WAIT_SECONDS": "0",
        "NODE_NAME": "n1",
        "PCI_VENDOR": "0x1eff",
        "PATH": os.environ["PATH"],
    }
    done = subprocess.run(
        ["/bin/sh", "-c", script], env=variables, capture_output=True, text=True, timeout=10, check=False
    )
    assert done.returncode == expected
    assert done.stderr == (
        "" if expected == 0 else "n1 has neither %s nor an NPU at vfio-pci after 0 s\n" % (tmp_path / "ready")
    )
