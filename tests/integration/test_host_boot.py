# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host that reboots without Ansible.

/run is empty, and the host tool makes the host ready again, before and after the runtimes start.
"""

from __future__ import annotations

import subprocess
import typing as t
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._host.owned_files import install
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_host.host_tool import (
    CDI_UNIT,
    READY_UNIT,
    RULE_PATH,
    TOOL_PATH,
    entries,
)

from tests.lab import Lab

NAME = "boot-b"
SPEC = "/var/run/cdi/rbln.yaml"
MARKERS = "/run/rbln/validations"


@pytest.fixture(scope="module")
def lab() -> t.Iterator[Lab]:
    made = Lab()
    made.up({NAME: "containerd17"}, kube=False)
    yield made
    made.down([NAME])


def show(lab: Lab, unit: str, key: str) -> str:
    return lab.exec(NAME, ["systemctl", "show", "-P", key, unit]).stdout.strip()


def wait_for(lab: Lab, command: str, seconds: int = 60) -> subprocess.CompletedProcess[str]:
    return lab.exec(
        NAME,
        "for i in $(seq %d); do %s && exit 0; sleep 1; done; exit 1" % (seconds, command),
        timeout=seconds + 30,
        check=False,
    )


def test_a_reboot_makes_the_host_ready_again(lab: Lab, tmp_path: Path) -> None:
    lab.install_driver(NAME)
    install(Host(str(tmp_path)), entries({}), "/usr/bin/python3")
    tar = subprocess.run(["tar", "-C", str(tmp_path), "-cf", "-", "."], capture_output=True, check=True).stdout
    subprocess.run(
        ["podman", "exec", "-i", NAME, "tar", "--no-overwrite-dir", "-C", "/", "-xf", "-"],
        input=tar,
        check=True,
        timeout=60,
    )
    lab.exec(NAME, ["udevadm", "verify", RULE_PATH])
    lab.exec(NAME, ["systemd-analyze", "verify", CDI_UNIT, READY_UNIT])
    lab.exec(
        NAME,
        (
            "mkdir -p /etc/containerd; containerd config default | sed 's/enable_cdi = false/enable_cdi = true/' "
            ">/etc/containerd/config.toml"
        ),
    )
    lab.exec(NAME, ["systemctl", "daemon-reload"])
    lab.restart_host(NAME)
    ready = wait_for(lab, "test -e %s/toolkit-ready" % MARKERS)
    assert ready.returncode == 0, lab.exec(
        NAME, "journalctl -b --no-pager -u %s -u %s; %s validate" % (CDI_UNIT, READY_UNIT, TOOL_PATH), check=False
    ).stdout
    assert lab.exec(NAME, ["ls", "-A", MARKERS]).stdout.split() == [
        ".driver-ctr-ready",
        "driver-ready",
        "toolkit-ready",
    ]
    assert lab.exec(NAME, [TOOL_PATH, "validate"]).stdout.endswith("passed\n")
    assert show(lab, CDI_UNIT, "Result") == "success" and show(lab, READY_UNIT, "Result") == "success"
    written = int(show(lab, CDI_UNIT, "InactiveEnterTimestampMonotonic"))
    started = int(show(lab, "containerd.service", "ExecMainStartTimestampMonotonic"))
    proven = int(show(lab, READY_UNIT, "ExecMainStartTimestampMonotonic"))
    assert 0 < written < started < proven
    lab.exec(NAME, ["rm", SPEC])
    assert lab.exec(NAME, [TOOL_PATH, "validate"], check=False).returncode == 1
    assert lab.exec(NAME, [TOOL_PATH, "ready"]).returncode == 0 and lab.exec(NAME, ["test", "-s", SPEC]).returncode == 0
    lab.exec(NAME, ["sed", "-i", "s/enable_cdi = true/enable_cdi = false/", "/etc/containerd/config.toml"])
    lab.exec(NAME, ["systemctl", "restart", "containerd"])
    done = lab.exec(NAME, [TOOL_PATH, "ready"], check=False)
    assert (
        done.returncode == 1
        and "FAILED   toolkit/runtime_sees_spec: CDI is off in the running containerd" in done.stdout
    )
    assert lab.exec(NAME, ["ls", "-A", MARKERS]).stdout.split() == [".driver-ctr-ready", "driver-ready"]
