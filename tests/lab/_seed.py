# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files a host boots with: hardware, container engine, kubelet; everything is there before its systemd starts."""

from __future__ import annotations

import json
import typing as t
import uuid
from pathlib import Path

from ._base import API, LAB_DIR, POD_CIDR, PREFIX

# Each of them is a process at every start and every reload of systemd, and none finds something in a container.
_GENERATORS = (
    "cryptsetup debug fstab getty gpt-auto hibernate-resume integritysetup rc-local run ssh system-update sysv tpm2 "
    "veritysetup"
).split()


class Kind(t.NamedTuple):
    """A kind of host of the lab.

    Image flavour, container engine as (flavour of its configuration, from the Go build), whether it may be a node, and
    the root directory of its kubelet.
    """

    flavour: str
    containerd: str
    built: bool
    node: bool
    says: str
    kubelet_root: str = "/var/lib/kubelet"


KINDS: dict[str, Kind] = {
    "containerd2": Kind("bookworm", "3", True, True, "Debian 12, containerd 2.x, CDI on by default"),
    "containerd17": Kind("trixie", "2", False, True, "Debian 13, its containerd 1.7, CDI off"),
    "containerd16": Kind("bookworm-containerd", "2", False, True, "Debian 12, its containerd 1.6, no CDI"),
    "dkms": Kind(
        "bookworm-dkms", "3", True, True, "containerd2 with dkms, gcc and the headers of Debian's own cloud kernel"
    ),
    "dataroot": Kind(
        "bookworm", "3", True, True, "containerd2 whose kubelet has its root at /data/kubelet", "/data/kubelet"
    ),
    "engines": Kind("trixie-engines", "2", False, False, "Debian 13, its docker and podman"),
}
HOSTS: dict[str, str] = {"npu-a": "containerd2", "npu-b": "containerd17", "npu-c": "containerd16", "npu-d": "engines"}
DEFAULT_HOSTS = ("npu-a", "npu-b")


class Npu(t.NamedTuple):
    """One PCI function of the fake hardware: link speeds in GT/s, numa -1 for none."""

    address: str
    device: str = "1220"
    numa: int = 0
    speed: str = "32.0"
    width: int = 8
    max_speed: str = "32.0"
    max_width: int = 8


HARDWARE = (Npu("0000:01:00.0", numa=0), Npu("0000:02:00.0", numa=1))

_CONTAINERD_2 = """version = 3

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "lab.local/pause:1"

[plugins."io.containerd.cri.v1.runtime"]
  # The machine that runs the lab may not lower an OOM score.
  restrict_oom_score_adj = true

  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "/etc/cni/net.d"

  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    base_runtime_spec = "/etc/containerd/npu-lab-base.json"

    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      SystemdCgroup = false

[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
"""
_CONTAINERD_1 = """version = 2

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "lab.local/pause:1"
  # The machine that runs the lab may not lower an OOM score.
  restrict_oom_score_adj = true

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"

  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    base_runtime_spec = "/etc/containerd/npu-lab-base.json"

[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
"""
_CONTAINERD_UNIT = """[Unit]
Description=containerd container runtime
After=network.target local-fs.target

[Service]
ExecStart=/usr/local/bin/containerd
Type=notify
Delegate=yes
KillMode=process
Restart=always
RestartSec=5

[Install]
WantedBy=multi-user.target
"""
_HARDWARE_UNIT = """[Unit]
Description=Lay the lab's hardware over the machine's sysfs
DefaultDependencies=no
Before=sysinit.target systemd-modules-load.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/lib/npu-lab/hardware.sh
"""
_PREP_UNIT = """[Unit]
Description=Mounts and cgroups of a node in a container
Before=containerd.service kubelet.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/lib/npu-lab/node-prep.sh
ExecStop=/usr/local/lib/npu-lab/node-stop.sh
"""
_AFTER_PREP = "[Unit]\nRequires=npu-lab-node.service\nAfter=npu-lab-node.service\n"
_KUBELET_UNIT = """[Unit]
Description=kubelet
Wants=containerd.service
After=containerd.service npu-lab-node.service
Requires=npu-lab-node.service
StartLimitIntervalSec=0

[Service]
EnvironmentFile=/run/npu-lab/node.env
ExecStartPre=/usr/local/lib/npu-lab/node-images.sh
ExecStart=/usr/local/bin/kubelet --config=/etc/kubernetes/kubelet.yaml --kubeconfig=/etc/kubernetes/kubelet.kubeconfig \
    --cgroup-root=${CGROUP_ROOT} --hostname-override=%(name)s --node-ip=%(ip)s --root-dir=%(root)s
Restart=always
RestartSec=1
KillMode=process
Delegate=yes
"""
_PROXY_UNIT = """[Unit]
Description=kube-proxy
After=npu-lab-node.service
StartLimitIntervalSec=0

[Service]
ExecStart=/usr/local/bin/kube-proxy --config=/etc/kubernetes/kube-proxy.yaml
Restart=always
RestartSec=1
"""
_KUBELET = """apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: /etc/kubernetes/pki/serving.crt
tlsPrivateKeyFile: /etc/kubernetes/pki/serving.key
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
clusterDomain: cluster.local
clusterDNS: [10.96.0.10]
resolvConf: /etc/kubernetes/resolv.conf
staticPodPath: /etc/kubernetes/manifests
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, nodefs.inodesFree: 1%, imagefs.available: 1%}
nodeStatusUpdateFrequency: 5s
registerNode: true
maxPods: 100
"""
_PROXY = """apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: /etc/kubernetes/kube-proxy.kubeconfig}
mode: nftables
clusterCIDR: %(pods)s
hostnameOverride: %(name)s
conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
"""


def kubeconfig(user: str, cert: str, key: str, ca: str, data: bool = False) -> str:
    """A kubeconfig as JSON (which is YAML); paths, or base64 text when data."""
    tail = "-data" if data else ""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "lab", "cluster": {"server": API, "certificate-authority" + tail: ca}}],
            "users": [{"name": user, "user": {"client-certificate" + tail: cert, "client-key" + tail: key}}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": user}}],
            "current-context": "lab",
        },
        indent=1,
    )


def hardware_text(npus: t.Sequence[Npu]) -> str:
    return "".join("%s %s %d %s %d %s %d\n" % npu for npu in npus)


class Seed(t.NamedTuple):
    """{path from /: (text, mode)} and {path from /: link target}."""

    files: dict[str, tuple[str, int]]
    links: dict[str, str]


def host_seed(
    name: str, index: int, kind: Kind, node: bool, npus: t.Sequence[Npu], kernel: str, pki: t.Mapping[str, str]
) -> Seed:
    """What the host named so and numbered index boots with; pki gives file name: PEM for a node."""
    wants = "etc/systemd/system/multi-user.target.wants/"
    files: dict[str, tuple[str, int]] = {
        "etc/npu-lab/hardware": (hardware_text(npus), 0o644),
        "etc/npu-lab/product_uuid": (str(uuid.uuid5(uuid.NAMESPACE_DNS, name + ".lab.local")) + "\n", 0o400),
        "etc/systemd/system/npu-lab-hardware.service": (_HARDWARE_UNIT, 0o644),
        "etc/systemd/system/npu-lab-node.service": (_PREP_UNIT, 0o644),
        # Stands in for the headers of the machine's kernel, which no mirror has.
        "usr/src/linux-headers-%s/Makefile" % kernel: ("# stand-in\n", 0o644),
        "usr/lib/modules/%s/modules.order" % kernel: ("", 0o644),
        "usr/lib/modules/%s/modules.builtin" % kernel: ("", 0o644),
        "etc/containerd/config.toml": (_CONTAINERD_2 if kind.containerd == "3" else _CONTAINERD_1, 0o644),
        "etc/systemd/system/containerd.service.d/10-npu-lab.conf": (_AFTER_PREP, 0o644),
        "etc/cni/net.d/10-lab.conflist": (_cni(index), 0o644),
        # Newer than /usr: nothing is brought up to date at the first start.
        "etc/.updated": ("", 0o644),
        "var/.updated": ("", 0o644),
    }
    for script in ("hardware", "node-prep", "node-images", "node-stop"):
        files["usr/local/lib/npu-lab/%s.sh" % script] = ((LAB_DIR / "seed" / (script + ".sh")).read_text(), 0o755)
    links = {
        "etc/systemd/system/sysinit.target.wants/npu-lab-hardware.service": "../npu-lab-hardware.service",
        wants + "npu-lab-node.service": "../npu-lab-node.service",
        "usr/lib/modules/%s/build" % kernel: "/usr/src/linux-headers-" + kernel,
        "etc/systemd/system/systemd-binfmt.service": "/dev/null",
    }
    links.update({"etc/systemd/system-generators/systemd-%s-generator" % name: "/dev/null" for name in _GENERATORS})
    if kind.built:
        files["etc/systemd/system/containerd.service"] = (_CONTAINERD_UNIT, 0o644)
        links[wants + "containerd.service"] = "../containerd.service"
    if node:
        ip = "%s.0.%d" % (PREFIX, 10 + index)
        words = {"name": name, "ip": ip, "pods": POD_CIDR, "root": kind.kubelet_root}
        files["etc/systemd/system/kubelet.service"] = (_KUBELET_UNIT % words, 0o644)
        files["etc/systemd/system/kube-proxy.service"] = (_PROXY_UNIT, 0o644)
        files["etc/kubernetes/kubelet.yaml"] = (_KUBELET, 0o644)
        files["etc/kubernetes/kube-proxy.yaml"] = (_PROXY % words, 0o644)
        files["etc/kubernetes/resolv.conf"] = ("nameserver 10.96.0.10\n", 0o644)
        files["etc/kubernetes/manifests/.keep"] = ("", 0o644)
        for user in ("kubelet", "kube-proxy"):
            paths = ["/etc/kubernetes/pki/%s" % item for item in (user + ".crt", user + ".key", "ca.crt")]
            files["etc/kubernetes/%s.kubeconfig" % user] = (kubeconfig(user, *paths), 0o600)
            links[wants + user + ".service"] = "../%s.service" % user
        files.update({"etc/kubernetes/pki/" + item: (text, 0o600) for item, text in pki.items()})
    return Seed(files, links)


def _cni(index: int) -> str:
    ipam = {"type": "host-local", "ranges": [[{"subnet": pod_subnet(index)}]], "routes": [{"dst": "0.0.0.0/0"}]}
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False, "hairpinMode": True, "ipam": ipam}
    return json.dumps(
        {
            "cniVersion": "0.4.0",
            "name": "lab",
            "plugins": [bridge, {"type": "portmap", "capabilities": {"portMappings": True}}],
        },
        indent=1,
    )


def pod_subnet(index: int) -> str:
    return "%s.%d.0/24" % (PREFIX, 128 + index)


def write(seed: Seed, folder: Path) -> None:
    """Lay the seed below folder."""
    for name, (text, mode) in seed.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
    for name, target in seed.links.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)
