# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine needs before it can run the lab, as a table that people and tools read."""

from __future__ import annotations

import os
import shutil
import typing as t
from pathlib import Path

# Debian package -> (command or file that proves it, why, needed without Kubernetes)
PACKAGES: dict[str, tuple[str, str, bool]] = {
    "podman": ("podman", "runs the hosts", True),
    "runc": ("runc", "crun refuses hybrid cgroups and lowered limits", True),
    "netavark": ("/usr/lib/podman/netavark", "the hosts' network", True),
    "iptables": ("iptables", "podman's network rules", True),
    "iproute2": ("ip", "bridge and routes", True),
    "procps": ("sysctl", "forwarding, inotify limits", True),
    "mmdebstrap": ("mmdebstrap", "the hosts' root file systems", True),
    "debian-archive-keyring": (
        "/usr/share/keyrings/debian-archive-keyring.gpg",
        "checks what mmdebstrap downloads",
        True,
    ),
    "gnupg": ("gpg-agent", "signs the stand-in driver", True),
    "busybox-static": ("/bin/busybox", "the smallest image", False),
    "etcd-server": ("etcd", "the cluster's store", False),
    "openssl": ("openssl", "the cluster's certificates", False),
}
# The same for virtual machines, which need nothing of the above but mmdebstrap and its keyring.
VM_PACKAGES: dict[str, tuple[str, str]] = {
    "qemu-system-x86": (
        "qemu-system-x86_64",
        "emulates the machines; Debian 12's 7.2, whose edu device becomes an NPU",
    ),
    "qemu-utils": ("qemu-img", "their disks"),
    "ovmf": ("/usr/share/OVMF/OVMF_CODE_4M.secboot.fd", "their firmware, with and without secure boot"),
    "mmdebstrap": PACKAGES["mmdebstrap"][:2],
    "debian-archive-keyring": PACKAGES["debian-archive-keyring"][:2],
    "e2fsprogs": ("mke2fs", "their root file system"),
    "fdisk": ("sfdisk", "their partition table"),
    "mtools": ("mcopy", "their EFI partition"),
    "openssh-client": ("ssh", "the way in"),
    "gnupg": PACKAGES["gnupg"][:2],
}


def missing(kube: bool = True) -> list[str]:
    """Debian packages that are not here."""
    return [package for package, (proof, _why, always) in PACKAGES.items() if (always or kube) and not _present(proof)]


def missing_vm() -> list[str]:
    """Debian packages that virtual machines need and that are not here."""
    return [package for package, (proof, _why) in VM_PACKAGES.items() if not _present(proof)]


def _present(proof: str) -> bool:
    path = os.environ.get("PATH", "") + os.pathsep + "/usr/sbin:/sbin"
    return Path(proof).exists() if proof.startswith("/") else shutil.which(proof, path=path) is not None


def obstacles(kube: bool = True) -> list[str]:
    """Why the lab cannot be built here and now, one sentence each with the remedy; empty when it can."""
    found: list[str] = []
    if os.geteuid() != 0:
        found.append("the lab needs root (hosts with systemd, a bridge, cgroups): run it as root")
    if os.uname().machine != "x86_64":
        found.append("the stand-ins are for x86_64, this is %s" % os.uname().machine)
    absent = missing(kube)
    if absent:
        if shutil.which("apt-get"):
            found.append("missing packages: apt-get install -y --no-install-recommends %s" % " ".join(absent))
        else:
            found.append("missing %s, and this is no Debian to install them on" % ", ".join(absent))
    return found


def vm_obstacles() -> list[str]:
    """Why no virtual machine can run here and now, as `obstacles`."""
    found: list[str] = []
    if os.geteuid() != 0:
        found.append("the machines' disks are made by root: run it as root")
    absent = missing_vm()
    if absent:
        found.append("missing packages: apt-get install -y --no-install-recommends %s" % " ".join(absent))
    return found


def vm_table() -> t.Iterator[tuple[str, str, str]]:
    absent = set(missing_vm())
    for package, (_proof, why) in VM_PACKAGES.items():
        yield package, "missing" if package in absent else "present", why


def table() -> t.Iterator[tuple[str, str, str]]:
    absent = set(missing())
    for package, (_proof, why, _always) in PACKAGES.items():
        yield package, "missing" if package in absent else "present", why
