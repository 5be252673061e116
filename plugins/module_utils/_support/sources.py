# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is collected from a host, the most telling first: where there is no more room, the last ones are left out.

Files with credentials (auth files of registries, kubeconfigs, keys, the directory of the machine owner key) are never
opened.
"""

from __future__ import annotations

import posixpath
import re
import typing as t

from .._base.records import dataclass
from .._base.vendor import VendorProfile
from .._host.host import Host
from .._host.systemd import units_there
from .._npu.driver import DKMS_DIR
from .._npu.smi import find_smi
from .._runtime.base import UNITS

# Files of one directory; the newest ones are taken.
FILES = 40
MODPROBE_DIRS = (
    "/etc/modprobe.d", "/run/modprobe.d", "/usr/local/lib/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d",
)  # fmt: skip
LOAD_DIRS = ("/etc/modules-load.d", "/run/modules-load.d", "/usr/lib/modules-load.d")
UDEV_DIRS = ("/etc/udev/rules.d", "/run/udev/rules.d", "/usr/lib/udev/rules.d")
CDI_DIRS = ("/etc/cdi", "/var/run/cdi")
# Beside the vendor's own packages, those that decide whether NPUs work.
PACKAGES = (
    "containerd*", "docker*", "cri-o*", "crio*", "podman*", "runc", "crun", "kubelet", "kubeadm", "kubectl", "dkms",
    "linux-image-*", "linux-headers-*", "linux-modules-*", "kernel*", "systemd", "udev", "kmod",
)  # fmt: skip
# What a kernel says when a device on the bus, its memory or its module is in trouble.
TROUBLE = (
    r"\bAER\b|pcieport|PCIe Bus Error|DMAR|AMD-Vi|(?i:iommu)|vfio|Out of memory|oom-kill|hung_task|blocked for more|"
    r"soft lockup|segfault|I/O error|EXT4-fs error|XFS.*(?:error|corrupt)|module verification|Lockdown|"
    r"disagrees about version|Unknown symbol"
)


@dataclass(frozen=True)
class Source:
    """One thing to collect. `name` is its path in the archive.

    One of `command`, `path`, `directory` (each file in it that fits one of `patterns` becomes NAME/FILE), `work` (what
    a function writes) says where from. `newest` keeps the end where it is too long, `only` lines that match. `accept`
    are exit codes that are no failure; `seconds` is a time limit of its own.
    """

    name: str
    command: tuple[str, ...] = ()
    path: str = ""
    directory: str = ""
    patterns: tuple[str, ...] = ("*",)
    work: str = ""
    newest: bool = False
    only: str = ""
    accept: tuple[int, ...] = (0,)
    lines: int = 0
    seconds: float = 0.0


def unit_names(profile: VendorProfile, host: Host, more: t.Iterable[str] = ()) -> list[str]:
    """The units of runtimes, kubelet, vendor and ourselves that this host may have."""
    tool, short = posixpath.basename(profile.host_tool), profile.short_name
    ours = ["%s-%s.service" % (tool, name) for name in ("cdi", "ready")]
    ours += ["%s-%s.service" % (short, name) for name in ("pull", "bundle")]
    wanted = [*more, *UNITS, *profile.daemon_units, *ours]
    return units_there(host, dict.fromkeys(wanted))


def of_host(
    profile: VendorProfile, host: Host, units: t.Sequence[str], configs: t.Sequence[str], lines: int
) -> list[Source]:
    """All sources but the observation. `units` as unit_names() has them; `configs` are files that runtimes read."""
    newest = ("-n", str(lines))
    short = ("--no-pager", "-o", "short-iso")
    words = _words(profile)
    smi = find_smi(host, profile) or posixpath.join(profile.smi_dirs[0], profile.smi_names[0])
    tool = posixpath.basename(smi)
    found = [
        Source("host_tool/validate.json", (profile.host_tool, "validate", "--json"), accept=(0, 1, 3), seconds=60.0),
        Source("npu/%s.txt" % tool, (smi,)),
        Source("npu/%s.json" % tool, (smi, *profile.smi_json_args)),
        Source("npu/%s-groups.json" % tool, (smi, *profile.smi_group_args)),
        Source("npu/lspci.txt", ("lspci", "-nnvvv", "-d", profile.pci_vendor + ":")),
        Source("kernel/npu.txt", ("journalctl", "-k", *short), only=words + "|" + TROUBLE, newest=True, lines=lines),
        Source("kernel/journal.txt", ("journalctl", "-k", *short, *newest), newest=True),
        Source("kernel/dmesg.txt", ("dmesg", "--time-format", "iso"), newest=True, lines=lines),
        *(
            Source("journal/%s.txt" % plain(unit), ("journalctl", "-u", unit, *short, *newest), newest=True)
            for unit in units
        ),
        Source("units/status.txt", ("systemctl", "status", "--no-pager", "-l", "-n", "0", *units), accept=(0, 3))
        if units
        else None,
        Source("units/files.txt", ("systemctl", "cat", "--no-pager", *units)) if units else None,
        Source("units/failed.txt", ("systemctl", "list-units", "--failed", "--no-pager", "--plain")),
        Source("state/ready_files.txt", work="list:" + profile.validation_dir),
        Source("state/ready_files", directory=profile.validation_dir, patterns=("*", ".*")),
        Source("state/driver.txt", work="list:" + profile.runfile_stamp_dir),
        Source("state/driver", directory=profile.runfile_stamp_dir, patterns=("*.json",), newest=True),
        Source("state/configuration", directory=profile.state_dir, patterns=("*.json",), newest=True),
        Source("state/options", directory="/etc/" + posixpath.basename(profile.state_dir), patterns=("*.json",)),
        *(Source("cdi/%s" % plain(path), directory=path, patterns=("*.json", "*.yaml")) for path in CDI_DIRS),
        *_runtime(configs),
        *_module(profile, words),
        *_packages(profile),
        Source("logs/%s" % profile.name, directory=profile.log_dir, patterns=("*",), newest=True),
        *_system(lines),
    ]
    return [one for one in found if one is not None]


def _words(profile: VendorProfile) -> str:
    """A pattern of lines that are about the vendor's devices, driver or tools."""
    names = {profile.module, profile.short_name, profile.device_prefix, profile.pci_vendor + ":"}
    return r"(?i:" + "|".join(sorted(map(re.escape, names))) + ")"


def _runtime(configs: t.Sequence[str]) -> list[Source]:
    """Configuration of runtimes and kubelet: as they have read it, and its files."""
    known = (
        "/etc/containerd/config.toml", "/etc/docker/daemon.json", "/etc/crio/crio.conf",
        "/etc/containers/containers.conf", "/etc/containers/registries.conf", "/var/lib/kubelet/config.yaml",
        "/var/lib/kubelet/kubeadm-flags.env", "/etc/default/kubelet", "/etc/sysconfig/kubelet",
    )  # fmt: skip
    files = dict.fromkeys([*configs, *known])
    return [
        Source("runtime/containerd-effective.toml", ("containerd", "config", "dump")),
        Source("runtime/containerd-version.txt", ("containerd", "--version")),
        Source("runtime/crictl-info.json", ("crictl", "info")),
        Source("runtime/docker-info.json", ("docker", "info", "--format", "{{json .}}")),
        Source("runtime/crio-effective.toml", ("crio", "status", "config")),
        Source("runtime/podman-info.json", ("podman", "info", "--format", "json")),
        *(Source("runtime/files/%s" % plain(path), path=path) for path in files),
        Source("runtime/containerd-conf.d", directory="/etc/containerd/conf.d", patterns=("*.toml",)),
        Source("runtime/crio.conf.d", directory="/etc/crio/crio.conf.d", patterns=("*",)),
    ]


def _module(profile: VendorProfile, words: str) -> list[Source]:
    """The kernel module: what is loaded, what decides about it, how it was built."""
    matters = words + r"|vfio|^\s*(?:install|blacklist)\s+\S*(?:%s|pci)" % re.escape(profile.module)
    places = [(one, "modprobe") for one in MODPROBE_DIRS] + [(one, "load") for one in LOAD_DIRS]
    places += [(one, "udev") for one in UDEV_DIRS]
    kinds = dict.fromkeys(kind for _one, kind in places)
    return [
        Source("module/modinfo.txt", ("modinfo", profile.module)),
        Source("module/modules.txt", path="/proc/modules", only=words + "|vfio|nouveau|iommu|ib_|mlx"),
        *(
            Source(
                "module/%s.txt" % kind,
                work=":".join(["grep", *(one for one, of in places if of == kind)]),
                only=matters,
            )
            for kind in kinds
        ),
        Source("dkms/status.txt", ("dkms", "status")),
        Source("dkms/make", work="logs:" + DKMS_DIR, newest=True),
    ]


def _packages(profile: VendorProfile) -> list[Source]:
    """Versions and history of the packages that matter."""
    patterns = (*profile.package_patterns, *PACKAGES)
    matters = r"(?<![\w.-])(?:%s)" % "|".join(re.escape(one).replace(r"\*", r"\S*") for one in patterns)
    return [
        Source(
            "packages/dpkg.txt",
            ("dpkg-query", "-W", "-f", "${db:Status-Abbrev} ${Package} ${Version} ${Architecture}\\n", *patterns),
            accept=(0, 1),
        ),
        Source("packages/holds.txt", ("apt-mark", "showhold")),
        Source("packages/rpm.txt", ("rpm", "-qa", "--last", *patterns)),
        Source(
            "packages/dnf_history.txt",
            ("dnf", "history", "list", *profile.package_patterns),
            accept=(0, 1),
            seconds=30.0,
        ),
        Source("packages/dpkg_log.txt", path="/var/log/dpkg.log", only=matters, newest=True),
        Source("packages/apt_history.txt", path="/var/log/apt/history.log", newest=True),
        Source("packages/dnf_rpm_log.txt", path="/var/log/dnf.rpm.log", only=matters, newest=True),
        Source("packages/apt_proxy", directory="/etc/apt/apt.conf.d", patterns=("*proxy*",)),
    ]


def _system(lines: int) -> list[Source]:
    """The machine around it."""
    return [
        Source("system/uname.txt", ("uname", "-a")),
        Source("system/cmdline.txt", path="/proc/cmdline"),
        Source("system/os-release.txt", path="/etc/os-release"),
        Source("system/uptime.txt", ("uptime",)),
        Source("system/kernels.txt", work="list:/lib/modules"),
        Source("system/secure_boot.txt", ("mokutil", "--sb-state"), accept=(0, 1, 255)),
        Source("system/mounts.txt", path="/proc/self/mountinfo"),
        # Of file systems of this machine: one of a server may hang.
        Source("system/df.txt", ("df", "-lhT"), accept=(0, 1)),
        Source("system/df_inodes.txt", ("df", "-li"), accept=(0, 1)),
        Source("system/memory.txt", path="/proc/meminfo"),
        Source("system/load.txt", path="/proc/loadavg"),
        Source("system/cpu.txt", ("lscpu",)),
        Source("system/time.txt", ("timedatectl", "show")),
        Source("system/chrony.txt", ("chronyc", "-n", "tracking")),
        Source("system/timesync.txt", ("timedatectl", "timesync-status", "--no-pager")),
        Source("system/ntpq.txt", ("ntpq", "-pn")),
        Source("system/addresses.txt", ("ip", "-brief", "address")),
        Source("system/routes.txt", ("ip", "route")),
        Source("system/resolv.conf", path="/etc/resolv.conf"),
        Source("system/hosts.txt", path="/etc/hosts"),
        Source("system/environment.txt", path="/etc/environment"),
        Source("system/proxies", directory="/etc/profile.d", patterns=("*proxy*",)),
        Source("system/dnf.conf", path="/etc/dnf/dnf.conf"),
        Source("system/boots.txt", ("journalctl", "--list-boots", "--no-pager"), newest=True, lines=lines),
    ]


def plain(text: str) -> str:
    """A path or a name of the host as one part of a name in the archive."""
    found = re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip("_.")[:120]
    return found or "file"
