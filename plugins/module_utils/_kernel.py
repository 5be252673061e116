# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernels: the one that runs, those installed, their headers, and the one the boot loader will start next."""

from __future__ import annotations

import posixpath
import re
import typing as t

from ._boot import read_next_boot
from ._host import Host, Probe
from ._versions import natural_key

SECRET = re.compile(r"(\S*(?:passw(?:or)?d|secret|token)[^\s=]*)=\S+", re.I)


def installed_kernels(host: Host, packages: t.Sequence[t.Mapping[str, str]]) -> list[str]:
    """Releases with an image in /boot, an image or a module tree of their own in /lib/modules, or an image package; oldest first.

    A directory of /lib/modules that only holds add-on modules is what an uninstalled kernel leaves behind.
    """
    found = {posixpath.basename(path)[len("vmlinuz-") :] for path in host.glob("/boot", "vmlinuz-*")}
    for name in host.listdir("/lib/modules").get([]):
        base = "/lib/modules/" + name
        if host.exists(base + "/vmlinuz") or host.exists(base + "/kernel"):
            found.add(name)
    for package in packages:
        match = re.match(r"^linux-image-(?:unsigned-)?([0-9][0-9A-Za-z.+~-]*)$", package["name"])
        if match and package["state"] == "installed" and re.search(r"[0-9]+\.[0-9]+.*-", match.group(1)):
            found.add(match.group(1))
    return sorted((name for name in found if not re.search(r"rescue|\.old$", name)), key=natural_key)


def has_headers(host: Host, kernel: str, packages: t.Sequence[t.Mapping[str, str]]) -> bool:
    """True when modules can be built for a kernel: its build directory is complete, or its headers package is installed."""
    for directory in ("/lib/modules/%s/build", "/usr/src/linux-headers-%s", "/usr/src/kernels/%s"):
        if host.exists((directory % kernel) + "/Makefile"):
            return True
    return any(item["name"] == "linux-headers-" + kernel and item["state"] == "installed" for item in packages)


def read_kernel(
    host: Host,
    packages: t.Sequence[t.Mapping[str, str]],
    in_container: bool,
    running: t.Optional[str] = None,
) -> t.Tuple[dict[str, t.Any], dict[str, Probe]]:
    """The `kernel` part of the facts without `modules`, and the probes.

    `running` overrides /proc, for an image that has none. In a container the boot loader is not this machine's, so the
    next boot is not known.
    """
    release = host.read_text("/proc/sys/kernel/osrelease", 512)
    now = running or release.get("").strip() or None
    installed = installed_kernels(host, packages)
    cmdline = host.read_text("/proc/cmdline", 65536)
    if in_container:
        upcoming, source = None, "not known in a container"
    else:
        upcoming, source = read_next_boot(host, installed, now)
    wanted = sorted(set(installed) | {name for name in (now, upcoming) if name}, key=natural_key)
    return {
        "running": now,
        "next_boot": upcoming,
        "next_boot_source": source,
        "installed": installed,
        "headers": {name: has_headers(host, name, packages) for name in wanted},
        "cmdline": SECRET.sub(r"\1=***", cmdline.value.strip()) if cmdline.ok else None,
    }, {"kernel": release, "cmdline": cmdline}
