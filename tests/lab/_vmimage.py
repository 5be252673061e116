# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What virtual machines are made of.

The qemu with NPUs on its bus, and a Debian disk with a real boot loader and two kernels.
"""

from __future__ import annotations

import functools
import inspect
import re
import shutil
import struct
from pathlib import Path

from ._base import LAB_DIR, LabError, cached, digest, run
from ._rootfs import KEYRING, mirror

QEMU = Path("/usr/bin/qemu-system-x86_64")
OVMF = Path("/usr/share/OVMF")
SEED = LAB_DIR / "seed" / "vm"
DISK_BYTES = 6 << 30
ESP_START, ESP_BYTES = 1 << 20, 32 << 20
ROOT_START = ESP_START + ESP_BYTES
PACKAGES = (
    "systemd systemd-sysv dbus udev python3 python3-apt sudo ca-certificates iproute2 kmod pciutils procps "
    "openssh-server openssl mokutil"
    " initramfs-tools lz4 linux-image-cloud-amd64 linux-headers-cloud-amd64 dkms gcc make libc6-dev grub-efi-amd64 "
    "grub-efi-amd64-signed shim-signed"
    " runc containernetworking-plugins iptables nftables conntrack ethtool mount util-linux"
).split()
# Signed files, under the names by which firmware and shim look for them on a disk without a boot entry.
_LOADERS = {
    "BOOTX64.EFI": "shim/shimx64.efi.signed",
    "mmx64.efi": "shim/mmx64.efi.signed",
    "grubx64.efi": "grub/x86_64-efi-signed/grubx64.efi.signed",
}
# Until the guest's own update-grub has run.
_FIRST_GRUB = """search --no-floppy --label npu-root --set=root
linux /vmlinuz root=LABEL=npu-root ro console=ttyS0 mitigations=off quiet
initrd /initrd.img
boot
"""
_ESP_GRUB = """search --no-floppy --label npu-root --set=root
set prefix=($root)/boot/grub
configfile $prefix/grub.cfg
"""


def _patched(program: bytes, device: int) -> bytes:
    """qemu whose `edu` test device has the ids and the class of an NPU.

    Only the ids are replaced where the class cannot be found.
    """
    ids = struct.pack("<HH", 0x1234, 0x11E8)
    if program.count(ids) != 1:
        raise LabError(
            "%s: the ids of its edu device are %d times in it, not once: the lab knows Debian 12's qemu 7.2"
            % (QEMU, program.count(ids))
        )
    at = program.index(ids)
    out = bytearray(program)
    out[at : at + 4] = struct.pack("<HH", 0x1EFF, device)
    # mov $PCI_CLASS_OTHERS,%edx; mov %dx,class_id(%rax), near the instruction that loads the ids from there.
    for match in re.finditer(rb"\xba\xff\0\0\0\x66\x89\x90\xd6\0\0\0", program):
        near = range(match.start() - 64, match.start())
        if any(struct.unpack_from("<i", program, place)[0] + place + 4 == at for place in near):
            out[match.start() + 1 : match.start() + 3] = struct.pack("<H", 0x1200)
    return bytes(out)


def unfit() -> str:
    """Why the installed qemu makes no machine with NPUs; empty when it does."""
    try:
        _patched(QEMU.read_bytes(), 0x1220)
    except LabError as exc:
        return str(exc)
    return ""


def qemu() -> Path:
    """A copy of qemu whose `-device edu` shows as an RBLN-CA22, 1eff:1220, processing accelerator."""

    def make(home: Path) -> None:
        target = home / "qemu-system-x86_64"
        target.write_bytes(_patched(QEMU.read_bytes(), 0x1220))
        target.chmod(0o755)

    if not QEMU.exists():
        raise LabError("%s is not there; see `python -m tests.lab needs --vm`" % QEMU)
    return cached("vm-qemu", _qemu_key(), make) / "qemu-system-x86_64"


@functools.lru_cache(maxsize=None)
def _qemu_key() -> str:
    return digest(QEMU, inspect.getsource(_patched), "1220")


def _root(home: Path) -> None:
    """disk.qcow2: GPT, an EFI partition with shim and GRUB as Debian signed them, ext4; id_ed25519: who may log in."""
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "npu-lab", "-f", home / "id_ed25519"])
    root, disk, esp = home / "root", home / "disk.img", home / "esp"
    argv = [
        "mmdebstrap",
        "--quiet",
        "--mode=root",
        "--variant=minbase",
        "--format=directory",
        "--keyring=" + KEYRING,
        "--include=" + ",".join(PACKAGES),
    ]
    argv += ['--aptopt=Apt::Install-Recommends "false"', '--aptopt=Acquire::Languages "none"']
    argv += ['--aptopt=Acquire::Retries "3"']
    argv += ["--dpkgopt=path-exclude=/usr/share/%s/*" % name for name in ("doc", "man", "locale", "info", "lintian")]
    modules = "printf 'virtio_pci\\nvirtio_blk\\next4\\n' >\"$1/etc/initramfs-tools/modules\""
    early = 'mkdir -p "$1/etc/initramfs-tools"; cp -r %s/root/etc/initramfs-tools/. "$1/etc/initramfs-tools"; %s' % (
        SEED,
        modules,
    )
    argv += ["--essential-hook=" + early]
    argv += ['--customize-hook=cp -r %s/root/. "$1"; cp %s/id_ed25519.pub "$1/root/authorized_keys"' % (SEED, home)]
    argv += ['--customize-hook=chroot "$1" sh <%s/finish.sh' % SEED]
    run(["nice", "-n", "5", *argv, "bookworm", root, "deb %s bookworm main" % mirror()], 1800)
    (root / "boot/grub/grub.cfg").write_text(_FIRST_GRUB)
    (esp / "EFI/BOOT").mkdir(parents=True)
    (esp / "EFI/debian").mkdir()
    for name, source in _LOADERS.items():
        shutil.copy(root / "usr/lib" / source, esp / "EFI/BOOT" / name)
    (esp / "EFI/debian/grub.cfg").write_text(_ESP_GRUB)
    with open(disk, "wb") as handle:
        handle.truncate(DISK_BYTES)
    sectors = "label: gpt\nstart=%d, size=%d, type=uefi\nstart=%d, type=linux\n" % (
        ESP_START // 512,
        ESP_BYTES // 512,
        ROOT_START // 512,
    )
    run(["sfdisk", "--quiet", disk], stdin=sectors)
    image = "%s@@%d" % (disk, ESP_START)
    run(["mformat", "-i", image, "-T", str(ESP_BYTES // 512), "-v", "NPU-ESP", "::"])
    run(["mcopy", "-s", "-i", image, esp / "EFI", "::"])
    # A backup of the partition table is at the end of the disk.
    blocks = (DISK_BYTES - ROOT_START - (1 << 20)) // 4096
    run(
        [
            "mke2fs",
            "-q",
            "-F",
            "-t",
            "ext4",
            "-b",
            "4096",
            "-L",
            "npu-root",
            "-d",
            root,
            "-E",
            "offset=%d" % ROOT_START,
            disk,
            str(blocks),
        ],
        600,
    )
    run(["qemu-img", "convert", "-O", "qcow2", disk, home / "disk.qcow2"], 600)
    disk.unlink()
    shutil.rmtree(root)
    shutil.rmtree(esp)


def root_disk() -> Path:
    """The cache folder with disk.qcow2 (never booted) and id_ed25519."""
    return cached(
        "vm-root", digest(SEED, repr(PACKAGES), _FIRST_GRUB, _ESP_GRUB, str((DISK_BYTES, ESP_START, ESP_BYTES))), _root
    )


def firmware(secure_boot: bool) -> tuple[Path, Path]:
    """Code and variables of the UEFI firmware; secure boot's have the keys of the vendor that signed Debian's shim."""
    return (
        (OVMF / "OVMF_CODE_4M.secboot.fd", OVMF / "OVMF_VARS_4M.ms.fd")
        if secure_boot
        else (OVMF / "OVMF_CODE_4M.fd", OVMF / "OVMF_VARS_4M.fd")
    )


def overlay(base: Path, disk: Path) -> None:
    """A disk that starts as base and keeps what is written to it."""
    run(["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", base, disk])
