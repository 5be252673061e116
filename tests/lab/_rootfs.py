# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Root file systems of the hosts, and the container images made of them.

mmdebstrap makes them from the mirror that this machine's apt uses, or from Debian's own where the machine is no Debian.
"""

from __future__ import annotations

import inspect
import os
import re
import typing as t
from pathlib import Path

from ._base import CACHE, LabError, cached, digest, lock, podman, run
from ._go import PROGRAMS, program
from ._image import Entry, tar_of, write_image

DEBIAN = "http://deb.debian.org/debian"
_ADDRESS = re.compile(r"^(?:URIs:|deb(?:\s+\[[^]]*\])?)\s+(\S+)", re.M)
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_BASE = "systemd systemd-sysv dbus python3 python3-apt sudo ca-certificates iproute2 kmod pciutils procps udev".split()
_NODE = "runc containernetworking-plugins iptables nftables conntrack ethtool mount util-linux".split()
_MASKED = (
    "systemd-udevd.service systemd-udev-trigger.service systemd-udevd-kernel.socket systemd-udevd-control.socket "
    "systemd-resolved.service "
    "systemd-networkd.service systemd-networkd-wait-online.service systemd-timesyncd.service getty@tty1.service "
    "console-getty.service "
    "systemd-logind.service apt-daily.timer apt-daily-upgrade.timer nftables.service"
)


class Flavour(t.NamedTuple):
    """suite, packages beyond the base."""

    suite: str
    packages: tuple[str, ...]


FLAVOURS: dict[str, Flavour] = {
    "bookworm": Flavour("bookworm", (*_BASE, *_NODE)),
    "trixie": Flavour("trixie", (*_BASE, *_NODE, "containerd")),
    "bookworm-dkms": Flavour(
        "bookworm", (*_BASE, *_NODE, "dkms", "gcc", "make", "libc6-dev", "linux-headers-cloud-amd64")
    ),
    "bookworm-containerd": Flavour("bookworm", (*_BASE, *_NODE, "containerd")),
    "trixie-dnf": Flavour("trixie", ("python3", "dnf", "dnf-plugins-core", "rpm", "createrepo-c")),
    "forky-dnf5": Flavour("forky", ("python3", "dnf5", "rpm", "createrepo-c")),
    "trixie-engines": Flavour("trixie", (*_BASE, *_NODE, "containerd", "docker.io", "docker-cli", "podman")),
}


def mirror(etc: Path = Path("/etc")) -> str:
    """Debian's archive: NPU_LAB_MIRROR, or the address of this machine's apt where it is a Debian."""
    named, release = os.environ.get("NPU_LAB_MIRROR"), etc / "os-release"
    if named:
        return named
    if not (release.is_file() and re.search(r"^ID=\"?debian\"?$", release.read_text(), re.M)):
        return DEBIAN
    places = (etc / "apt/sources.list.d/debian.sources", etc / "apt/sources.list")
    found = [address for path in places if path.is_file() for address in _ADDRESS.findall(path.read_text())]
    if not found:
        raise LabError(
            "no Debian mirror in %s, and the hosts are made from one. Next: NPU_LAB_MIRROR=%s"
            % (" or ".join(map(str, places)), DEBIAN)
        )
    return next((address for address in found if address.rstrip("/").endswith("/debian")), found[0])


def _mmdebstrap(flavour: Flavour, target: Path, variant: str, *hooks: str) -> None:
    argv = [
        "mmdebstrap",
        "--quiet",
        "--mode=root",
        "--variant=" + variant,
        "--keyring=" + KEYRING,
        "--include=" + ",".join(flavour.packages),
    ]
    argv += ['--aptopt=Apt::Install-Recommends "false"', '--aptopt=Acquire::Languages "none"']
    argv += ['--aptopt=Acquire::Retries "3"']
    # Where the mirror is a snapshot, the lists of a suite that is not released have expired.
    argv += ['--aptopt=Acquire::Check-Valid-Until "false"'] if flavour.suite == "forky" else []
    argv += ["--dpkgopt=path-exclude=/usr/share/%s/*" % name for name in ("doc", "man", "locale")]
    argv += ["--customize-hook=" + hook for hook in hooks]
    run(["nice", "-n", "5", *argv, flavour.suite, target, "deb %s %s main" % (mirror(), flavour.suite)], 1800)


def host_image(name: str) -> str:
    """The podman image of a flavour, made and imported when it is not there."""
    flavour = FLAVOURS[name]
    hooks = (
        'rm -f "$1/etc/machine-id"; : >"$1/etc/machine-id"',
        'for unit in %s; do ln -sf /dev/null "$1/etc/systemd/system/$unit"; done' % _MASKED,
        'rm -rf "$1"/var/cache/apt/*.bin "$1"/var/lib/apt/lists/*',
    )
    key = digest(repr(flavour), repr(hooks))
    reference = "localhost/rebellions-npu-lab/%s:%s" % (name, key)
    with lock(CACHE / "lab" / (".image-%s.lock" % name)):
        if podman("image", "exists", reference, check=False).returncode:
            home = cached(
                "rootfs-" + name, key, lambda part: _mmdebstrap(flavour, part / "rootfs.tar", "minbase", *hooks)
            )
            options = ["-c", 'CMD ["/sbin/init"]', "-c", "STOPSIGNAL SIGRTMIN+3", "-c", "ENV container=podman"]
            podman("import", "-q", *options, home / "rootfs.tar", reference, timeout=600)
    return reference


def _python_layer(part: Path) -> None:
    flavour = Flavour("bookworm", ("python3-minimal", "libpython3-stdlib", "pciutils", "kmod"))
    drop = (
        "usr/share usr/lib/python3*/test usr/lib/python3*/idlelib usr/lib/python3*/lib2to3 usr/lib/python3*/pydoc_data"
        " usr/lib/x86_64-linux-gnu/perl* usr/lib/x86_64-linux-gnu/gconv var/cache/* var/lib/apt var/log/* usr/lib/udev"
    )
    hook = (
        'cp "$1/usr/share/misc/pci.ids" "$1/pci.ids"; cd "$1" && rm -rf %s; mkdir -p usr/share/misc && '
        "mv pci.ids usr/share/misc/" % drop
    )
    _mmdebstrap(flavour, part / "rootfs.tar", "extract", 'cd "$1" && chroot . /sbin/ldconfig', hook)


def _python_key() -> str:
    return digest(inspect.getsource(_python_layer), inspect.getsource(_mmdebstrap))


def _python_image(part: Path) -> None:
    home = cached("rootfs-validator", _python_key(), _python_layer)
    write_image(
        part / "image.tar", "lab.local/npu-validator:1", (home / "rootfs.tar").read_bytes(), ("/usr/bin/python3",)
    )


def _static(reference: str, entries: t.Mapping[str, Entry], entrypoint: t.Sequence[str]) -> t.Callable[[Path], None]:
    return lambda part: write_image(part / "image.tar", reference, tar_of(entries), entrypoint)


def busybox() -> dict[str, Entry]:
    """Files of an image with a shell and small tools."""
    applets = run(["/bin/busybox", "--list"]).stdout.split()
    entries = {
        "bin/busybox": Entry(Path("/bin/busybox")),
        "tmp": Entry(mode=0o1777),
        "etc/passwd": Entry(b"root:x:0:0:root:/root:/bin/sh\n", mode=0o644),
    }
    entries.update({"bin/" + name: Entry(target="busybox") for name in applets if name != "busybox"})
    return entries


def _busybox(part: Path) -> None:
    write_image(part / "image.tar", "lab.local/busybox:1", tar_of(busybox()))


def pod_images(names: t.Sequence[str] = ("pause", "busybox", "npu-device-plugin", "npu-validator")) -> dict[str, Path]:
    """{reference: docker-archive} of what hosts load instead of from a registry."""
    found = {}
    for name in names:
        reference = "lab.local/%s:1" % name
        if name in PROGRAMS:
            binary = program(name) / name
            key, make = digest(binary), _static(reference, {"usr/bin/" + name: Entry(binary)}, ("/usr/bin/" + name,))
        elif name == "busybox":
            key, make = digest(Path("/bin/busybox")), _busybox
        else:
            key, make = _python_key(), _python_image
        writer = digest(Path(__file__).with_name("_image.py"), inspect.getsource(busybox))
        found[reference] = cached("image-" + name, digest(key, writer), make) / "image.tar"
    return found
