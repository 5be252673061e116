# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operating system: os-release(5), and which base a derivative is built from."""

from __future__ import annotations

import re
import shlex
import typing as t

from .host import Host, Limit, Probe

UBUNTU_CODENAMES = {
    "xenial": "16.04",
    "bionic": "18.04",
    "focal": "20.04",
    "jammy": "22.04",
    "kinetic": "22.10",
    "lunar": "23.04",
    "mantic": "23.10",
    "noble": "24.04",
    "oracular": "24.10",
    "plucky": "25.04",
    "questing": "25.10",
    "resolute": "26.04",
}
DEBIAN_CODENAMES = {
    "stretch": "9",
    "buster": "10",
    "bullseye": "11",
    "bookworm": "12",
    "trixie": "13",
    "forky": "14",
    "duke": "15",
}
# Devuan has other names for the releases of Debian.
DEBIAN_CODENAMES.update({"beowulf": "10", "chimaera": "11", "daedalus": "12", "excalibur": "13"})
# Number of a release without its point release, as VERSION_ID has it.
RELEASES = {"ubuntu": r"[0-9]+\.[0-9]+", "debian": r"[0-9]+"}
REDHAT_IDS = (
    "rhel",
    "centos",
    "rocky",
    "almalinux",
    "ol",
    "fedora",
    "scientific",
    "virtuozzo",
    "circle",
    "eurolinux",
    "miraclelinux",
    "amzn",
)
SUSE_IDS = ("sles", "sle_hpc", "sled", "opensuse", "opensuse-leap", "opensuse-tumbleweed", "suse")
# Sold under other names, with the releases of SLES.
SLES_EDITIONS = ("sles", "sled", "sle_")
# Built from the RHEL sources release by release, so their version is the base's version.
REDHAT_REBUILDS = ("rhel", "rocky", "almalinux", "ol", "centos", "circle", "eurolinux", "miraclelinux", "scientific")
# Systems that are only ever replaced as a whole, by their ID.
IMAGE_IDS = (
    "bottlerocket",
    "cos",
    "flatcar",
    "nixos",
    "opensuse-microos",
    "sl-micro",
    "sle-micro",
    "suse-microos",
    "talos",
    "ubuntu-core",
)
# What images are made of; composefs is the name of a source.
IMAGE_SYSTEMS = ("composefs", "erofs", "squashfs")
OSTREE, READ_ONLY = "ostree", "read-only"
ELF_MACHINES = {
    3: "i686",
    21: "ppc64le",
    22: "s390x",
    40: "armv7l",
    62: "x86_64",
    183: "aarch64",
    243: "riscv64",
    258: "loongarch64",
}


def parse_os_release(text: str) -> dict[str, str]:
    """KEY=value lines with shell quoting; other lines are ignored."""
    found: dict[str, str] = {}
    for line in text.lstrip("\ufeff").splitlines():
        match = re.match(r"^\s*([A-Za-z_][A-Za-z0-9_]*)=(.*)$", line)
        if not match:
            continue
        try:
            words = shlex.split(match.group(2), comments=True)
        except ValueError:
            continue
        # shlex keeps the backslash before these two, unlike a shell.
        found[match.group(1)] = re.sub(r"\\([$`])", r"\1", " ".join(words))
    return found


def _family(names: t.Sequence[str]) -> str | None:
    for name in names:
        if name in ("debian", "ubuntu"):
            return "debian"
        if name in REDHAT_IDS:
            return "redhat"
        if name in SUSE_IDS:
            return "suse"
    return None


def _base(fields: t.Mapping[str, str], name: str, family: str | None) -> tuple[str | None, str | None]:
    version = fields.get("VERSION_ID") or None
    like = fields.get("ID_LIKE", "").lower().split()
    own = fields.get("VERSION_CODENAME", "").lower()
    if name in ("ubuntu", "debian", "fedora", "amzn"):
        release = re.match(RELEASES.get(name, ""), version or "")
        return name, (release.group(0) if release else "") or version
    if family == "suse":
        return ("sles" if name.startswith(SLES_EDITIONS) else name), version
    ubuntu = fields.get("UBUNTU_CODENAME", "").lower()
    if ubuntu or "ubuntu" in like:
        return "ubuntu", UBUNTU_CODENAMES.get(ubuntu or own)
    if "debian" in like:
        return "debian", DEBIAN_CODENAMES.get(fields.get("DEBIAN_CODENAME", "").lower() or own)
    if name in REDHAT_REBUILDS:
        return "rhel", version
    if family == "redhat":
        platform = re.match(r"^platform:(el|f)([0-9]+)$", fields.get("PLATFORM_ID", ""))
        if platform:
            rhel = platform.group(1) == "el"
            return ("rhel", fields.get("RHEL_VERSION") or platform.group(2)) if rhel else ("fedora", platform.group(2))
        return ("rhel" if "rhel" in like or "centos" in like else "fedora"), None
    return (name or None), version


def describe_os(fields: t.Mapping[str, str], debian_version: str = "") -> dict[str, t.Any]:
    """Shape `os` of the facts without `arch`: id, version_id, family, base_id, base_version, codename, pretty.

    `version_id` is None when the system gives none (Debian testing and sid). A derivative's base version comes from the
    base's code name or platform, never from the derivative's own number: Linux Mint 22.1 is Ubuntu 24.04.
    """
    name = fields.get("ID", "").lower()
    family = _family([name] + fields.get("ID_LIKE", "").lower().split())
    base_id, base_version = _base(fields, name, family)
    codename = fields.get("VERSION_CODENAME") or fields.get("UBUNTU_CODENAME") or fields.get("DEBIAN_CODENAME")
    if not codename and name == "debian" and "/" in debian_version:
        codename = debian_version.split("/")[-1].strip()
    if not codename and name == "debian" and "VERSION_ID" not in fields:
        pretty = re.search(r"\b[a-z]+/(sid)\b", fields.get("PRETTY_NAME", ""))
        codename = pretty.group(1) if pretty else None
    return {
        "id": name or None,
        "version_id": fields.get("VERSION_ID") or None,
        "family": family,
        "base_id": base_id,
        "base_version": base_version,
        "codename": codename or None,
        "pretty": fields.get("PRETTY_NAME") or fields.get("NAME") or None,
    }


def read_arch(host: Host) -> str | None:
    """Machine name (x86_64, aarch64, ...) of the user land, from the ELF header of its shell, else None."""
    for path in ("/bin/sh", "/usr/bin/sh", "/usr/bin/env"):
        head = host.read_head(path, 20).get(b"")
        if head[:4] == b"\x7fELF" and len(head) == 20:
            return ELF_MACHINES.get(int.from_bytes(head[18:20], "big" if head[5] == 2 else "little"))
    return None


def read_image(host: Host, os_id: str | None, options: t.Mapping[str, t.Sequence[str] | None]) -> str | None:
    """How the system comes as an image, into which nothing can be installed while it runs; None when it does not.

    `ostree` also for bootc, the ID of a system that is always one, else for /usr that is read-only beside a writable
    /var the file system of images that it is on, or `read-only`: where /var is read-only too, the disk may have failed.
    `options` are the fact mount_options.
    """
    if host.exists("/run/ostree-booted"):
        return OSTREE
    if os_id in IMAGE_IDS:
        return os_id
    var = options["/var"]
    if "ro" not in (options["/usr"] or ()) or var is None or "ro" in var:
        return None
    rows = [line.split(" ") for line in host.read_text("/proc/mounts", Limit.PROC).get("").splitlines()]
    words = [word for row in rows if len(row) > 2 and row[1] in ("/", "/usr") for word in (row[0], row[2])]
    return next((word for word in words if word in IMAGE_SYSTEMS), READ_ONLY)


def read_os(host: Host) -> tuple[dict[str, t.Any], Probe]:
    """The `os` part of the facts and the probe of os-release."""
    probe = Probe("absent", None, "no os-release file")
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        probe = host.read_text(path, Limit.OS_RELEASE)
        if probe.get("").strip() or probe.state not in ("absent", "value"):
            break
    fields = parse_os_release(probe.get(""))
    described = describe_os(
        fields, host.read_text("/etc/debian_version").get("") if fields.get("ID") == "debian" else ""
    )
    described["arch"] = read_arch(host)
    return described, probe
