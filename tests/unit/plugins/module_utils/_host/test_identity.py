# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machine id, system UUID, node name, container and hypervisor."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Callable

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._host import identity
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import DENIED, Host, Probe
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import Tree

UNIT = "/usr/lib/systemd/system/kubelet.service"
DROPIN = "/etc/systemd/system/kubelet.service.d/"
KUBEADM = """[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_KUBEADM_ARGS
"""


K3S = "/etc/rancher/k3s/config.yaml"
AGENT = "/etc/systemd/system/k3s-agent.service"


def write_all(files: dict[str, str], tree: Tree) -> None:
    for path, text in files.items():
        tree.write(path, text)


def unit(line: str) -> str:
    return "[Service]\n# --hostname-override=commented\nExecStart=/usr/bin/kubelet %s\n" % line


NAMES: list[tuple[str, Callable[[Tree], Any], str | None, str]] = [
    ("host name", lambda tree: tree, "host-a.example.org", "hostname"),
    ("unit", lambda tree: tree.write(UNIT, unit("--hostname-override=Worker-1 --v=2")), "worker-1", UNIT),
    ("unit, two words", lambda tree: tree.write(UNIT, unit("--hostname-override worker-1")), "worker-1", UNIT),
    (
        "unit, continued line",
        lambda tree: tree.write(UNIT, unit("\\\n  --v=2 \\\n  --hostname-override=worker-1")),
        "worker-1",
        UNIT,
    ),
    ("unit, quotes", lambda tree: tree.write(UNIT, unit('"--hostname-override=worker-1"')), "worker-1", UNIT),
    (
        "drop-in wins",
        lambda tree: tree.write(UNIT, unit("--hostname-override=a")).write(
            DROPIN + "10-b.conf", unit("--hostname-override=b")
        ),
        "b",
        DROPIN + "10-b.conf",
    ),
    (
        "kubeadm flags",
        lambda tree: (
            tree.write(UNIT, unit(""))
            .write(DROPIN + "10-kubeadm.conf", KUBEADM)
            .write("/var/lib/kubelet/kubeadm-flags.env", 'KUBELET_KUBEADM_ARGS="--x=1 --hostname-override=gpu1"\n')
        ),
        "gpu1",
        "/var/lib/kubelet/kubeadm-flags.env",
    ),
    (
        "defaults file",
        lambda tree: tree.write("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--hostname-override=gpu2\n"),
        "gpu2",
        "/etc/default/kubelet",
    ),
    (
        "variable of an environment file",
        lambda tree: tree.write(
            UNIT, "[Service]\nEnvironmentFile=-/etc/node.env\nExecStart=/usr/bin/kubelet --hostname-override=${NODE}\n"
        ).write("/etc/node.env", "NODE=edge-7\n"),
        "edge-7",
        UNIT,
    ),
    (
        "variable of the unit",
        lambda tree: tree.write(
            UNIT, "[Service]\nEnvironment=NODE=edge-8\nExecStart=/usr/bin/kubelet --hostname-override=$NODE\n"
        ),
        "edge-8",
        UNIT,
    ),
    ("variable nobody sets", lambda tree: tree.write(UNIT, unit("--hostname-override=$NODE")), None, UNIT),
    ("systemd specifier", lambda tree: tree.write(UNIT, unit("--hostname-override=%H")), "host-a.example.org", UNIT),
    ("short host name", lambda tree: tree.write(UNIT, unit("--hostname-override=%l")), "host-a", UNIT),
    (
        "command",
        lambda tree: tree.write(UNIT, unit("--hostname-override=$(curl http://169.254.169.254/name)")),
        None,
        UNIT,
    ),
    (
        "process wins over the unit",
        lambda tree: (
            tree.write(UNIT, unit("--hostname-override=a"))
            .write("/sys/fs/cgroup/system.slice/kubelet.service/cgroup.procs", "4242\n")
            .write("/proc/4242/cmdline", "/usr/bin/kubelet\0--hostname-override=B\0--v=2\0")
        ),
        "b",
        "process of kubelet.service",
    ),
    (
        "process without the flag",
        lambda tree: tree.write("/sys/fs/cgroup/system.slice/kubelet.service/cgroup.procs", "4242\n").write(
            "/proc/4242/cmdline", "/usr/bin/kubelet\0"
        ),
        "host-a.example.org",
        "hostname",
    ),
    (
        "k3s unit",
        lambda tree: tree.write(
            "/etc/systemd/system/k3s-agent.service",
            "[Service]\nExecStart=/usr/local/bin/k3s \\\n    agent \\\n\t'--node-name' \\\n\t'edge-1' \\\n",
        ),
        "edge-1",
        "/etc/systemd/system/k3s-agent.service",
    ),
    (
        "rke2 configuration",
        lambda tree: tree.write("/etc/rancher/rke2/config.yaml", 'token: x\nnode-name: "Rke-1" # me\n'),
        "rke-1",
        "/etc/rancher/rke2/config.yaml",
    ),
    *(
        (name, functools.partial(write_all, files), wanted, source)
        for name, files, wanted, source in (
            (
                "drop-in resets",
                {
                    UNIT: unit("--hostname-override=a"),
                    DROPIN + "20-b.conf": "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet\n",
                },
                "host-a.example.org",
                "hostname",
            ),
            (
                "kubespray",
                {
                    UNIT: (
                        "[Service]\nEnvironmentFile=-/etc/kubernetes/kubelet.env\n"
                        "ExecStart=/usr/local/bin/kubelet $KUBE_LOG $KUBELET_HOSTNAME\n"
                    ),
                    "/etc/kubernetes/kubelet.env": 'KUBE_LOG=""\nKUBELET_HOSTNAME="--hostname-override=node1"\n',
                },
                "node1",
                UNIT,
            ),
            ("flag without a value", {UNIT: unit("--hostname-override $NODE --v=2")}, None, UNIT),
            (
                "k3s drop-in",
                {K3S: "token: x\nnode-name: a\n", K3S + ".d/10.yaml": '"node-name": Foo\n'},
                "foo",
                K3S + ".d/10.yaml",
            ),
            ("k3s kubelet-arg", {K3S: "kubelet-arg:\n  - v=2\n  - hostname-override=foo\n"}, "foo", K3S),
            ("k3s flow", {K3S: "{node-name: foo, kubelet-arg: [v=2]}\n"}, "foo", K3S),
            ("k3s anchors", {K3S: "x: &a 1\nnode-name: foo # me\n"}, "foo", K3S),
            ("k3s with-node-id", {K3S: "with-node-id: true\n"}, None, K3S),
            (
                "k3s environment",
                {
                    AGENT: "[Service]\nEnvironmentFile=-%s.env\nExecStart=/usr/local/bin/k3s agent\n" % AGENT,
                    AGENT + ".env": "K3S_NODE_NAME='Foo'\n",
                },
                "foo",
                AGENT,
            ),
        )
    ),
    (
        "process wins over a flag it was not started with",
        lambda tree: write_all(
            {
                UNIT: unit("--hostname-override=a"),
                "/sys/fs/cgroup/system.slice/kubelet.service/cgroup.procs": "7\n",
                "/proc/7/cmdline": "/usr/bin/kubelet\0",
            },
            tree,
        ),
        "host-a.example.org",
        "hostname",
    ),
    (
        "masked unit",
        lambda tree: tree.write(UNIT, unit("--hostname-override=a")).link(
            "/etc/systemd/system/kubelet.service", "/dev/null"
        ),
        "host-a.example.org",
        "hostname",
    ),
    (
        "microk8s",
        lambda tree: tree.write("/var/snap/microk8s/current/args/kubelet", "--x=1\n--hostname-override=mk\n"),
        "mk",
        "/var/snap/microk8s/current/args/kubelet",
    ),
]


@pytest.mark.parametrize(("build", "name", "source"), [row[1:] for row in NAMES], ids=[row[0] for row in NAMES])
def test_node_name(tmp_path: Path, build: Callable[[Tree], Any], name: str | None, source: str) -> None:
    tree = Tree(tmp_path)
    build(tree)
    assert identity.read_node_name(tree.host(), "Host-A.example.org") == (name, source)


def test_node_name_without_a_host_name(tmp_path: Path) -> None:
    assert identity.read_node_name(Tree(tmp_path).host(), None) == (None, "unknown")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0123456789ABCDEF0123456789abcdef\n", "0123456789abcdef0123456789abcdef"),
        ("uninitialized\n", None),
        ("", None),
        ("0123\n", None),
    ],
)
def test_machine_id(tmp_path: Path, text: str, expected: str | None) -> None:
    found, probes = identity.read_identity(Tree(tmp_path).write("/etc/machine-id", text).host(), None)
    assert found["machine_id"] == expected
    assert probes["machine_id"].state == ("value" if expected else "failed")


def test_machine_id_of_dbus(tmp_path: Path) -> None:
    tree = Tree(tmp_path).write("/etc/machine-id", "").write("/var/lib/dbus/machine-id", "f" * 31 + "0\n")
    assert identity.read_identity(tree.host(), None)[0]["machine_id"] == "f" * 31 + "0"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4C4C4544-0042-3510-8054-C3C04F573732\n", "4c4c4544-0042-3510-8054-c3c04f573732"),
        ("00000000-0000-0000-0000-000000000000", None),
        ("FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF", None),
        ("03000200-0400-0500-0006-000700080009", None),
        ("Not Settable", None),
    ],
)
def test_system_uuid(tmp_path: Path, text: str, expected: str | None) -> None:
    found, probes = identity.read_identity(Tree(tmp_path).write("/sys/class/dmi/id/product_uuid", text).host(), None)
    assert found["system_uuid"] == expected
    assert probes["system_uuid"].state == ("value" if expected else "failed")


class Refusing(Host):
    def read_text(self, path: str, limit: int = 4096) -> Probe:
        return (
            Probe(DENIED, None, "Permission denied")
            if path.endswith("product_uuid")
            else super().read_text(path, limit)
        )


def test_system_uuid_only_for_root_is_denied(tmp_path: Path) -> None:
    found, probes = identity.read_identity(Refusing(str(tmp_path)), None)
    assert (found["system_uuid"], probes["system_uuid"].state, probes["machine_id"].state) == (None, "denied", "absent")


def first(tree: Tree, root: str) -> Tree:
    """Process 1 is in the kernel's first namespace of processes and has this root."""
    return tree.link("/proc/1/ns/pid", "pid:[4026531836]").link("/proc/1/root", str(tree.real(root)))


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda tree: tree, False),
        (lambda tree: tree.write("/.dockerenv"), True),
        # A machine whose disk was made from the image of a container; then a container with the processes of its host.
        (lambda tree: first(tree.write("/.dockerenv"), "/"), False),
        (lambda tree: first(tree.write("/.dockerenv").folder("/elsewhere"), "/elsewhere"), True),
        (lambda tree: tree.write("/run/.containerenv"), True),
        (lambda tree: tree.write("/run/systemd/container", "podman"), True),
        (lambda tree: tree.write("/proc/1/environ", "HOME=/\0container=lxc\0"), True),
        (lambda tree: tree.write("/proc/1/environ", "HOME=/\0"), False),
        (lambda tree: tree.write("/proc/1/cgroup", "0::/kubepods.slice/kubepods-pod1.slice\n"), True),
        (lambda tree: tree.write("/proc/1/cgroup", "0::/init.scope\n"), False),
        (lambda tree: tree.write("/proc/1/cgroup", "1:name=systemd:/libpod_parent/libpod-abc\n"), True),
    ],
    ids=[
        "host",
        "A05 docker",
        "left marker",
        "processes of the host",
        "podman",
        "systemd",
        "environment",
        "environment of a host",
        "kubepods",
        "init of a host",
        "libpod",
    ],
)
def test_A05_in_container(tmp_path: Path, build: Callable[[Tree], Any], expected: bool) -> None:
    tree = Tree(tmp_path)
    build(tree)
    assert identity.read_container(tree.host()) is expected


@pytest.mark.parametrize(
    ("vendor", "product", "flags", "expected"),
    [
        ("QEMU", "Standard PC (Q35 + ICH9, 2009)", "hypervisor", "kvm"),
        ("VMware, Inc.", "VMware7,1", "hypervisor", "vmware"),
        ("Microsoft Corporation", "Virtual Machine", "hypervisor", "hyperv"),
        ("Microsoft Corporation", "Surface", "fpu", "none"),
        ("Supermicro", "AS -4125GS-TNRT2", "fpu", "none"),
        ("", "", "hypervisor", "other"),
        ("", "", "fpu", "unknown"),
    ],
)
def test_virtualization(tmp_path: Path, vendor: str, product: str, flags: str, expected: str) -> None:
    tree = Tree(tmp_path).write("/proc/cpuinfo", "flags\t\t: %s\n" % flags)
    if vendor:
        tree.write("/sys/class/dmi/id/sys_vendor", vendor + "\n").write(
            "/sys/class/dmi/id/product_name", product + "\n"
        )
    assert identity.read_virtualization(tree.host())[0] == expected
