# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that another program writes: who, and where the change belongs. Case H06."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.tests.unit.fixtures.runtimes.tree import Machine, case, only

ROOT = "/etc/containerd/config.toml"
H06 = "H06-config-of-another-tool"
UNITS = "/etc/systemd/system/"
PLAIN = "version = 2\n"


def owners(root: Path, config: str, files: dict[str, str] | None = None, version: str = "1.7.27") -> list[Any]:
    machine = Machine(root)
    machine.containerd(version, config)
    machine.kubelet()
    for path, text in (files or {}).items():
        machine.write(path, text)
    found = only(machine.detect(state_dir="/var/lib/rebellions-npu"))
    assert found["changes"] and found["refusal"] is None
    assert len(found["owners"]) == sum("is written by" in warning for warning in found["warnings"])
    return [(owner["path"], owner["name"], owner["next_step"]) for owner in found["owners"]]


def unit(text: str) -> str:
    return "[Unit]\nDescription=x\n%s" % text


CASES: list[Any] = [
    pytest.param(case(H06, "puppet.toml"), {}, "Puppet", "Puppet manifest", id="H06-puppet"),
    pytest.param(case(H06, "chef.toml"), {}, "Chef", "Chef cookbook", id="H06-chef"),
    pytest.param(
        case(H06, "bootstrap/config.toml"),
        {UNITS + "nodeadm-run.service": case(H06, "bootstrap/nodeadm-run.service")},
        "nodeadm",
        "spec.containerd.config of the NodeConfig",
        id="H06-bootstrap",
    ),
    pytest.param("# {{ ansible_managed }} Ansible managed\n" + PLAIN, {}, "another Ansible playbook", "", id="ansible"),
    pytest.param(
        PLAIN + "# BEGIN ANSIBLE MANAGED BLOCK\n# END ANSIBLE MANAGED BLOCK\n",
        {},
        "another Ansible playbook",
        "",
        id="ansible-block",
    ),
    pytest.param(
        "# DO NOT EDIT\n#\n# salt://containerd/files/config.toml\n" + PLAIN, {}, "Salt", "pillar", id="salt-two-lines"
    ),
    pytest.param(
        "#\n# This file is auto-generated; manual changes will be overwritten.\n" + PLAIN,
        {},
        'the program that has written "This file is auto-generated; manual changes will be overwritten." into it',
        "what that program makes the file from",
        id="nobody-named",
    ),
    pytest.param("# Created by cloud-init\n" + PLAIN, {}, "cloud-init", "user data", id="made-by-a-known-program"),
    pytest.param(
        PLAIN,
        {"/opt/puppetlabs/puppet/cache/state/resources.txt": "file[/etc/hosts]\nfile[%s]\n" % ROOT},
        "Puppet",
        "manifest",
        id="puppet-without-a-header",
    ),
    pytest.param(
        PLAIN,
        {"/var/chef/backup%s.chef-20260101120000.123456" % ROOT: "old"},
        "Chef",
        "cookbook",
        id="chef-without-a-header",
    ),
    pytest.param(
        PLAIN,
        {"/var/lib/cloud/instance/cloud-config.txt": "write_files:\n- path: %s\n  content: x\n" % ROOT},
        "cloud-init",
        "user data",
        id="cloud-init-without-a-header",
    ),
    pytest.param(
        PLAIN,
        {
            UNITS + "site-node.service": unit(
                "Before=network.target containerd.service\n[Service]\nExecStart=/opt/s/up\n"
            ),
            "/opt/s/up": "#!/bin/sh\ncat > %s <<X\nX\n" % ROOT,
        },
        "the unit site-node.service",
        "what that unit makes the file from",
        id="a-script-before-the-runtime",
    ),
    pytest.param(
        PLAIN,
        {
            UNITS + "containerd.service.d/10-site.conf": "[Service]\nExecStartPre=-/bin/sh -c 'cp /srv/c.toml %s'\n"
            % ROOT,
        },
        "the unit containerd.service.d/10-site.conf",
        "",
        id="before-every-start-of-the-runtime",
    ),
    pytest.param("# Diese Datei verwaltet Ansible.\n" + PLAIN, {}, "another Ansible playbook", "", id="in-german"),
    pytest.param("# 이 파일은 Ansible이 관리합니다\n" + PLAIN, {}, "another Ansible playbook", "", id="in-korean"),
    pytest.param("# Source: puppet:///modules/x/config.toml\n" + PLAIN, {}, "Puppet", "", id="a-source"),
    pytest.param("# Changes will not survive: maintained by Cinc Client\n" + PLAIN, {}, "Chef", "", id="cinc"),
    pytest.param(
        PLAIN,
        {UNITS + "bashible.service": unit("[Service]\nExecStart=/var/lib/bashible/bashible.sh\n")},
        "Deckhouse",
        "a NodeGroupConfiguration",
        id="deckhouse-without-an-order",
    ),
    pytest.param(
        PLAIN,
        {
            UNITS + "setup.service": unit("[Service]\nType=oneshot\nExecStart=/bin/bash -eu /opt/setup.sh --all\n"),
            "/opt/setup.sh": "containerd config default > %s\n" % ROOT,
        },
        "the unit setup.service",
        "",
        id="a-script-that-a-shell-runs",
    ),
    pytest.param(
        PLAIN,
        {"/etc/cron.d/site": "*/30 * * * * root rsync -a /srv/conf/config.toml %s\n" % ROOT},
        "the cron job /etc/cron.d/site",
        "",
        id="cron",
    ),
    pytest.param(
        PLAIN, {"/etc/eks/bootstrap.sh": "mv /tmp/c %s\n" % ROOT}, "the bootstrap script of EKS", "", id="eks-al2"
    ),
    pytest.param(
        PLAIN,
        {
            "/usr/lib/systemd/system/kops-configuration.service": unit(
                "Before=containerd.service\n[Service]\nType=oneshot\nExecStart=/opt/kops/bin/nodeup --conf=/x\n"
            ),
        },
        "kOps",
        "spec.containerd",
        id="kops",
    ),
]


@pytest.mark.parametrize("config, files, name, where", CASES)
def test_who_writes_the_file(config: str, files: dict[str, str], name: str, where: str, tmp_path: Path) -> None:
    found = owners(tmp_path, config, files)
    assert [(path, who) for path, who, _step in found] == [(ROOT, name)]
    assert where in found[0][2] and found[0][2].endswith("the next run of " + name)


def test_h06_the_drop_in_of_another_vendor(tmp_path: Path) -> None:
    dropin = "/etc/containerd/conf.d/99-nvidia.toml"
    root, other = case(H06, "toolkit/config.toml"), {dropin: case(H06, "toolkit/conf.d/99-nvidia.toml")}
    found = owners(tmp_path / "old", root, other)
    assert [(path, who) for path, who, _step in found] == [(dropin, "NVIDIA's container toolkit")]
    assert "cdi.enabled of the GPU operator's ClusterPolicy" in found[0][2]
    # From 2.0 on a drop-in of ours is enough, and nobody else writes that.
    off = '\n[plugins."io.containerd.grpc.v1.cri".cni]\n'
    other = {dropin: other[dropin].replace("sandbox_image", "enable_cdi = false\n  sandbox_image") + off}
    assert owners(tmp_path / "new", root, other, "2.1.5") == []


CRI = 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n'
CRI_V3 = 'version = 3\n[plugins."io.containerd.cri.v1.runtime"]\nenable_cdi = false\n'


@pytest.mark.parametrize(
    "version, config",
    [
        pytest.param("1.7.27", CRI + "  max_container_log_line_size = 16384\n", id="R21-kubespray-overwrite-1.7"),
        pytest.param("2.1.5", "# template: kubespray\n" + CRI_V3, id="R21-kubespray-2.1-no-imports"),
        pytest.param(
            "2.1.5",
            "# %s" % case("R21-kubespray-overwrite", "marker.txt").strip() + "\n" + CRI_V3,
            id="R21-kubespray-overwrite-marker",
        ),
        pytest.param(
            "1.7.27",
            CRI
            + '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]\n'
            + 'base_runtime_spec = "/etc/containerd/cri-base.json"\n',
            id="R21-kubespray-base-spec",
        ),
    ],
)
def test_R21_kubespray_is_to_be_refused(version: str, config: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.containerd(version, config)
    machine.kubelet()
    found = only(machine.detect())
    assert found["refusal"] is None and {owner["path"] for owner in found["owners"]} == {ROOT}
    assert [(owner["name"], owner["refuse"]) for owner in found["owners"]] == [("kubespray", True)]
    assert "enable_cdi: true" in found["owners"][0]["next_step"]


NOBODY = [
    pytest.param("# copied from ansible docs by bob\n" + PLAIN, {}, id="a-tool-that-is-only-mentioned"),
    pytest.param("# see the salt ticket 12; puppet is gone since May\n" + PLAIN, {}, id="two-tools-in-a-sentence"),
    pytest.param("# kubespray used another pause image here\n" + PLAIN, {}, id="kubespray-in-a-sentence"),
    pytest.param(
        CRI + "  disable_tcp_service = true\n  max_container_log_line_size = 16384\n", {}, id="dump-of-the-defaults"
    ),
    pytest.param(PLAIN, {}, id="no-header"),
    pytest.param("# nvidia needs this runtime class\n" + PLAIN, {}, id="a-vendor-in-a-sentence"),
    pytest.param(
        "# our settings, edited by Kim\n# sandbox image is written with a tag\n" + PLAIN, {}, id="of-a-person"
    ),
    pytest.param("# generated by containerd config default\n" + PLAIN, {}, id="defaults-of-the-program"),
    pytest.param(
        "#   Copyright 2018-2022 Docker Inc.\n#   you may not use this file except in compliance with the License.\n"
        + PLAIN,
        {},
        id="R09-package-of-docker",
    ),
    pytest.param(
        PLAIN + "# Managed by the rebellions.npu collection: CDI in containers. Removed by state=absent.\n",
        {},
        id="ours",
    ),
    pytest.param(
        PLAIN,
        {
            UNITS + "containerd.service": unit("[Service]\nExecStart=/usr/bin/containerd --config %s\n" % ROOT),
            UNITS + "rbln-host-cdi.service": unit(
                "Before=containerd.service\n[Service]\nExecStart=/usr/bin/x %s\n" % ROOT
            ),
            UNITS + "modules.service": unit(
                "Before=containerd.service\n[Service]\nType=oneshot\nExecStart=/sbin/modprobe overlay\n"
            ),
            "/opt/puppetlabs/puppet/cache/state/resources.txt": "file[%s.d]\nfile[/srv%s]\n" % (ROOT, ROOT),
        },
        id="units-that-do-not-write-it",
    ),
]


@pytest.mark.parametrize("config, files", NOBODY)
def test_a_file_of_nobody_else(config: str, files: dict[str, str], tmp_path: Path) -> None:
    assert owners(tmp_path, config, files) == []


def test_a_template_and_the_file_of_docker(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.program("/usr/bin/dockerd", "Docker version 27.5.1, build abc\n")
    machine.unit("docker.service", "/usr/bin/dockerd -H fd://")
    machine.write("/opt/puppetlabs/puppet/cache/state/resources.txt", "file[/etc/docker/daemon.json]\n")
    assert [owner["name"] for owner in only(machine.detect(), "docker")["owners"]] == ["Puppet"]
    machine = Machine(tmp_path / "k3s")
    base = "/var/lib/rancher/k3s/agent/etc/containerd/"
    machine.program("/var/lib/rancher/k3s/data/current/bin/containerd", "containerd x v1.7.23 y\n")
    machine.unit("k3s.service", "/usr/local/bin/k3s server")
    machine.write(base + "config.toml", "# File generated by k3s. DO NOT EDIT.\nversion = 2\n")
    machine.write(base + "config.toml.tmpl", '{{ template "base" . }}\n{{/* managed by Puppet */}}\n')
    found = only(machine.detect())
    assert [(owner["path"], owner["name"]) for owner in found["owners"]] == [(base + "config.toml.tmpl", "Puppet")]


def test_an_unchanged_host_is_not_asked(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.containerd("2.1.5", "# managed by Puppet\nversion = 3\n")
    machine.kubelet()
    assert (only(machine.detect())["changes"], only(machine.detect())["owners"]) == ([], [])
