# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A virtual machine as a node of the lab's cluster: a card on the lab's bridge, and what a node host boots with."""

from __future__ import annotations

import shutil
import tempfile
import time
import typing as t
from pathlib import Path

from . import _control, _machine, _pki, _seed
from ._base import (
    GATEWAY,
    LOCK,
    POD_CIDR,
    PREFIX,
    SERVICE_CIDR,
    LabError,
    cached,
    digest,
    lock,
    patience,
    run,
    say,
    until,
)
from ._go import program
from ._rootfs import pod_images
from ._vmqemu import Qmp, alive

if t.TYPE_CHECKING:
    from ._vm import Vm

_PREP = """[Unit]
Description=What a node of the lab finds
Before=containerd.service kubelet.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/sbin/modprobe -a overlay br_netfilter
ExecStart=/bin/sh -c 'mkdir -p /run/npu-lab && echo CGROUP_ROOT=/ >/run/npu-lab/node.env'
ExecStart=/sbin/sysctl -q net.ipv4.ip_forward=1

[Install]
WantedBy=multi-user.target
"""
_NETWORK = """[Match]
MACAddress=%(mac)s
[Network]
Address=%(ip)s/24
LinkLocalAddressing=no
IPv6AcceptRA=no
[Route]
Destination=%(pods)s
Gateway=%(gateway)s
[Route]
Destination=%(services)s
Gateway=%(gateway)s
"""
_SHARED = ("containerd.service", "kubelet.service", "kube-proxy.service", "node-images.sh")
_BINARIES = {
    "kubelet": "kube",
    "kube-proxy": "kube",
    "containerd": "containerd",
    "containerd-shim-runc-v2": "containerd-shim-runc-v2",
    "ctr": "ctr",
}


def _address(number: int) -> str:
    return "%s.0.%d" % (PREFIX, 10 + number)


def _tap(number: int) -> str:
    return "npu-vm%d" % number


def _mac(number: int) -> str:
    return "02:4e:50:56:00:%02x" % number


def _disk() -> Path:
    """A read-only disk with the programs and images that a container host gets by bind mounts."""
    sources = [program("kube") / "kube"] + [
        program("containerd") / name for name in ("containerd", "containerd-shim-runc-v2", "ctr")
    ]
    images = pod_images()

    def make(home: Path) -> None:
        tree = home / "tree"
        (tree / "bin").mkdir(parents=True)
        (tree / "images").mkdir()
        for source in sources:
            shutil.copy(source, tree / "bin" / source.name)
        for reference, archive in images.items():
            shutil.copy(archive, tree / "images" / (reference.split("/")[1].split(":")[0] + ".tar"))
        size = sum(path.stat().st_size for path in tree.rglob("*")) // (1 << 20) + 32
        run(
            [
                "mke2fs",
                "-q",
                "-t",
                "ext4",
                "-O",
                "^has_journal",
                "-m",
                "0",
                "-L",
                "npu-node",
                "-d",
                tree,
                home / "disk.img",
                "%dM" % size,
            ]
        )
        shutil.rmtree(tree)

    return cached("vm-node", digest(*[str(path) for path in [*sources, *images.values()]]), make) / "disk.img"


def _files(name: str, number: int) -> _seed.Seed:
    """What a node host has in /etc, without what only a container needs."""
    seed = _seed.host_seed(name, number, _seed.KINDS["containerd2"], True, (), "none", _pki.node(name, number))
    files: dict[str, tuple[str, int]] = {}
    for path, (text, mode) in seed.files.items():
        if path.startswith(("etc/kubernetes/", "etc/cni/")) or path.rsplit("/", 1)[1] in _SHARED:
            files[path] = (text, mode)
        elif path == "etc/containerd/config.toml":
            kept = [
                line
                for line in text.splitlines()
                if "base_runtime_spec" not in line and "restrict_oom_score_adj" not in line
            ]
            files[path] = ("\n".join(kept) + "\n", mode)
    words = {
        "mac": _mac(number),
        "ip": _address(number),
        "gateway": GATEWAY,
        "pods": POD_CIDR,
        "services": SERVICE_CIDR,
    }
    files["etc/systemd/network/20-lab.network"] = (_NETWORK % words, 0o644)
    files["etc/systemd/system/npu-lab-node.service"] = (_PREP, 0o644)
    files["etc/systemd/system/containerd.service.d/10-npu-lab.conf"] = (
        "[Unit]\nRequires=npu-lab-node.service\nAfter=npu-lab-node.service\n",
        0o644,
    )
    return _seed.Seed(files, {path: target for path, target in seed.links.items() if path.rsplit("/", 1)[1] in _SHARED})


_JOIN = """set -eu
mkdir -p /opt/npu-lab/node
until [ -e /dev/disk/by-label/npu-node ]; do sleep 0.1; done
echo 'LABEL=npu-node /opt/npu-lab/node ext4 ro,nofail 0 0' >>/etc/fstab
mount /opt/npu-lab/node
ln -sfn node/images /opt/npu-lab/images
for pair in %s; do ln -sfn "/opt/npu-lab/node/bin/${pair#*:}" "/usr/local/bin/${pair%%%%:*}"; done
systemctl daemon-reload
networkctl reload
until ip -4 -br address | grep -qF ' %s/'; do sleep 0.1; done
systemctl enable -q --now npu-lab-node.service containerd.service kubelet.service kube-proxy.service
"""


def join(vm: Vm) -> None:
    """The running machine becomes a Ready node; the control plane is brought up when it is not there."""
    from .lab import Lab

    lab, number, tap = Lab(), vm.number, _tap(vm.number)
    if not _control.ready():
        lab.up({}, kube=True)
    disk, start = _disk(), time.time()
    with lock(LOCK):
        bridge = _machine.podman_network()
        if bridge is None:
            raise LabError("the lab's network is gone")
        run(["ip", "link", "del", tap], check=False)
        run(["ip", "tuntap", "add", "dev", tap, "mode", "tap"])
        run(["ip", "link", "set", tap, "master", bridge, "up"])
        run(["ip", "route", "replace", _seed.pod_subnet(number), "via", _address(number)])
    with Qmp(vm.folder) as do:
        do("netdev_add", type="tap", id="lab", ifname=tap, script="no", downscript="no")
        do(
            "device_add",
            driver="virtio-net-pci",
            id="lab-card",
            netdev="lab",
            mac=_mac(number),
            bus="slot0",
            romfile="",
        )
        do(
            "blockdev-add",
            **{
                "driver": "raw",
                "node-name": "node",
                "read-only": True,
                "file": {"driver": "file", "filename": str(disk), "read-only": True},
            },
        )
        do("device_add", driver="virtio-blk-pci", id="node-disk", drive="node", bus="slot1")
    with tempfile.TemporaryDirectory(prefix="npu-lab-") as folder:
        _seed.write(_files(vm.name, number), Path(folder))
        vm.push(Path(folder), "/")
    vm.exec(_JOIN % (" ".join("%s:%s" % pair for pair in _BINARIES.items()), _address(number)), 180 * patience())
    wait_ready(vm, start)
    say("%s: node Ready after %.1f s" % (vm.name, time.time() - start))


def wait_ready(vm: Vm, since: float, seconds: float = 300) -> None:
    """Until the API server has a heartbeat of the node that is younger than since."""
    from .lab import Lab

    lab, stamp = Lab(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(since))

    def ready() -> bool:
        found = lab.nodes().get(vm.name, {})
        return bool(found.get("ready")) and found["heartbeat"] >= stamp

    try:
        until(seconds, "%s: node Ready" % vm.name, ready, 0.5)
    except LabError as exc:
        state = vm.exec(
            "systemctl --no-pager --failed; journalctl --no-pager -n 20 -u containerd -u kubelet -u npu-lab-node",
            check=False,
        )
        raise LabError("%s\n%s" % (exc, state.stdout[-4000:])) from exc


def leave(vm: Vm, final: bool) -> None:
    """Take the node out of the cluster and off the bridge.

    When final, the last node ends the control plane, and the whole lab if there are no hosts.
    """
    from .lab import Lab

    lab, number = Lab(), vm.number
    if _control.alive("kube-apiserver"):
        lab.kubectl("delete", "node", vm.name, "--ignore-not-found", "--timeout=20s", check=False)
    run(["ip", "route", "del", _seed.pod_subnet(number)], check=False)
    if alive(vm.folder):
        with Qmp(vm.folder) as do:
            do("quit")
        until(10, "end of qemu", lambda: alive(vm.folder) is None, 0.05)
    run(["ip", "link", "del", _tap(number)], check=False)
    if not final:
        return
    others = [
        name
        for name in type(vm).names()
        if name != vm.name and type(vm).named(name).kube and type(vm).named(name).running()
    ]
    with lock(LOCK):
        hosts = lab.hosts()
        if not others and not any(host["node"] for host in hosts.values()):
            _control.down()
    if not others and not hosts:
        lab.down()
