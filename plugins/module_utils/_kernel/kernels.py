# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernels: running, installed, next boot, and their headers."""

from __future__ import annotations

import fnmatch
import posixpath
import re
import typing as t

from .._base.mask import mask
from .._base.regex import regex
from .._base.versions import natural_key
from .._host.host import ABSENT, Host, Limit, Probe
from .boot import read_next_boot

# Packages of kernels, modules and headers; a name without a release is a meta package for the newest kernel.
PACKAGE_PATTERNS = (
    "linux-image-*",
    "linux-headers-*",
    "linux-modules-*",
    "linux-generic*",
    "linux-virtual*",
    "linux-lowlatency*",
    "linux-kvm*",
    "linux-aws*",
    "linux-azure*",
    "linux-gcp*",
    "linux-oracle*",
    "kernel",
    "kernel-*",
)
NO_KERNEL = regex(
    r"^(linux-headers-\S+-common\S*|linux-\S+-(dbg|dbgsym|signed-template)|"
    r"kernel-(tools|srpm|rpm|doc|abi|macros|headers|debug).*)$"
)
# Files beside a kernel that have a similar name but are no kernel.
BESIDE = regex(
    r"rescue|~$|;[0-9a-f]+$|\.(?:dpkg-[a-z]+|rpm(?:new|save|orig|moved)|old|orig|bak|backup|"
    r"saved?|prev|tmp|temp|new|disabled|hmac|sig|signed|efi|gz)$"
)


def installed_kernels(host: Host, packages: t.Sequence[t.Mapping[str, str]]) -> list[str]:
    """Releases with an image in /boot, an image or a module tree of their own in /lib/modules, or an image package.

    Oldest first.

    A directory of /lib/modules that only holds add-on modules is what an uninstalled kernel leaves behind.
    """
    found = {posixpath.basename(path)[len("vmlinuz-") :] for path in host.glob("/boot", "vmlinuz-[0-9]*")}
    for name in host.listdir("/lib/modules").get([]):
        base = "/lib/modules/" + name
        if host.exists(base + "/vmlinuz") or host.exists(base + "/kernel"):
            found.add(name)
    for package in packages:
        match = re.match(r"^linux-image-(?:unsigned-)?([0-9][0-9A-Za-z.+~-]*?)(?:-unsigned)?$", package["name"])
        if (
            match
            and package["state"] == "installed"
            and not NO_KERNEL.match(package["name"])
            and re.search(r"[0-9]+\.[0-9]+.*-", match.group(1))
        ):
            found.add(match.group(1))
    return sorted((name for name in found if not BESIDE.search(name)), key=natural_key)


def has_headers(host: Host, kernel: str, packages: t.Sequence[t.Mapping[str, str]]) -> bool:
    """True when modules can be built for a kernel: complete build directory, or headers package installed."""
    for directory in ("/lib/modules/%s/build", "/usr/src/linux-headers-%s", "/usr/src/kernels/%s"):
        if host.exists((directory % kernel) + "/Makefile"):
            return True
    return any(item["name"] == "linux-headers-" + kernel and item["state"] == "installed" for item in packages)


def kernel_packages(packages: t.Sequence[t.Mapping[str, str]]) -> list[dict[str, str]]:
    """[{name, version}] of the installed packages of kernels, modules and headers, by name."""
    names = re.compile("|".join(fnmatch.translate(pattern) for pattern in PACKAGE_PATTERNS))
    found = [
        item
        for item in packages
        if item["state"] == "installed" and names.match(item["name"]) and not NO_KERNEL.match(item["name"])
    ]
    return [
        {"name": item["name"], "version": item["version"]}
        for item in sorted(found, key=lambda item: (item["name"], natural_key(item["version"])))
    ]


def read_kernel(
    host: Host,
    packages: t.Sequence[t.Mapping[str, str]],
    in_container: bool,
    running: str | None = None,
) -> tuple[dict[str, t.Any], dict[str, Probe]]:
    """The `kernel` part of the facts without `modules` and `guard`, and the probes.

    `running` overrides /proc, for an image that has none. In a container the boot loader is not this machine's, so the
    next boot is not known.
    """
    release = host.read_text("/proc/sys/kernel/osrelease", Limit.ATTRIBUTE)
    now = running or release.get("").strip() or None
    installed = installed_kernels(host, packages)
    cmdline = host.read_text("/proc/cmdline", Limit.OS_RELEASE)
    if in_container:
        upcoming, source = None, "not known in a container"
    else:
        upcoming, source = read_next_boot(host, installed, now)
        # The file of the same kernel that older Ubuntu releases boot under Secure Boot.
        upcoming = re.sub(r"(?:\.efi)?\.signed$", "", upcoming) if upcoming else None
    tree = host.listdir("/lib/modules/" + now) if now else release
    wanted = sorted(set(installed) | {name for name in (now, upcoming) if name}, key=natural_key)
    return {
        "running": now,
        "next_boot": upcoming,
        "next_boot_source": source,
        "installed": installed,
        "module_tree": True if tree.ok else False if tree.state == ABSENT and now else None,
        "headers": {name: has_headers(host, name, packages) for name in wanted},
        "packages": kernel_packages(packages),
        "cmdline": mask(cmdline.value.strip()) if cmdline.ok else None,
    }, {"kernel": release, "cmdline": cmdline}


def guard(kernel: t.Mapping[str, t.Any]) -> list[dict[str, t.Any]]:
    """[{kernel, headers, module, running, next_boot}] of each installed kernel, oldest first; module None: unknown."""
    return [
        {
            "kernel": name,
            "headers": kernel["headers"].get(name, False),
            "module": kernel["modules"].get(name),
            "running": name == kernel["running"],
            "next_boot": name == kernel["next_boot"],
        }
        for name in sorted(
            set(kernel["installed"]) | {name for name in (kernel["running"], kernel["next_boot"]) if name},
            key=natural_key,
        )
    ]
