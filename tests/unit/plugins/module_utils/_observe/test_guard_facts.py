# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts that a driver change rests on: build tools, room, holds, hotplug ports, packages of kernels. Case K01."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._host.disk import mount_point, read_disk, read_initramfs
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import DENIED, FileStat, Host, Probe
from ansible_collections.rebellions.npu.plugins.module_utils._host.os import read_image
from ansible_collections.rebellions.npu.plugins.module_utils._kernel import kernels as kernel
from ansible_collections.rebellions.npu.plugins.module_utils._kernel.build_tools import (
    kernel_compiler,
    missing_compiler,
    missing_packages,
    read_build,
)
from ansible_collections.rebellions.npu.plugins.module_utils._npu.pci import read_functions, read_pciehp
from ansible_collections.rebellions.npu.plugins.module_utils._observe.facts import collect_facts
from ansible_collections.rebellions.npu.plugins.module_utils._packages.pins import holds, read_pins
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import KERNEL, Tree, case, parse_dpkg_list

NEXT = "6.8.0-138-generic"


def package(name: str, state: str = "installed", version: str = "1") -> dict[str, str]:
    return {"name": name, "version": version, "state": state, "architecture": "amd64"}


def test_build_tools(tmp_path: Path) -> None:
    tree = Tree(tmp_path).program("/usr/sbin/dkms", "").program("/usr/bin/gcc-12", "").link("/usr/bin/make", "nowhere")
    found = read_build(tree.host(), [package("dkms", version="3.0.11"), package("make", "config-files")])
    assert found["packages"] == {
        "dkms": "3.0.11",
        "gcc": None,
        "make": None,
        "kernel-headers": None,
        "mokutil": None,
        "openssl": None,
    }
    assert found["programs"] == {
        "dkms": "/usr/sbin/dkms",
        "cc": "/usr/bin/gcc-12",
        "make": None,
        "mokutil": None,
        "openssl": None,
    }
    assert missing_packages(found, ["dkms", "gcc", "make", "libelf-dev"]) == ["make", "libelf-dev"]


def test_cc_goes_before_other_compilers(tmp_path: Path) -> None:
    tree = Tree(tmp_path).program("/usr/bin/cc", "").program("/usr/bin/gcc", "").program("/usr/bin/gcc-ar", "")
    assert read_build(tree.host(), [])["programs"]["cc"] == "/usr/bin/cc"
    tree.real("/usr/bin/cc").unlink()
    tree.real("/usr/bin/gcc").unlink()
    assert read_build(tree.host(), [])["programs"]["cc"] is None


class Mounted(Host):
    """Directories named here begin file systems of their own."""

    mounts = ("/boot", "/var")

    def stat(self, path: str, follow: bool = True) -> Probe:
        found = super().stat(path, follow)
        device = next(
            (at for at, mount in enumerate(self.mounts, 1) if path == mount or path.startswith(mount + "/")), 0
        )
        return Probe(found.state, FileStat(**{**found.value.__dict__, "device": device})) if found.ok else found


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"initrd.img-6.8.0-117-generic": 5, "initrd.img-6.8.0-90-generic": 7, "vmlinuz-6.8.0-117-generic": 99}, 7),
        (
            {
                "initramfs-5.14.0-570.el9.x86_64.img": 6,
                "initramfs-0-rescue-0123.img": 90,
                "initramfs-5.14.0-570.el9.x86_64kdump.img": 80,
            },
            6,
        ),
        ({"vmlinuz-6.8.0-117-generic": 99}, None),
    ],
)
def test_the_largest_initial_ram_disk(tmp_path: Path, files: dict[str, int], expected: int | None) -> None:
    tree = Tree(tmp_path)
    for name, size in files.items():
        tree.write("/boot/" + name, b"x" * size)
    assert read_initramfs(tree.link("/boot/initrd.img", "initrd.img-6.8.0-117-generic").host()) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", "/"),
        ("/boot", "/boot"),
        ("/boot/grub", "/boot"),
        ("/usr", "/"),
        ("/var", "/var"),
        ("/var/lib/rbln/kept", "/var"),
        ("/lib/modules", "/"),
    ],
)
def test_where_a_file_system_begins(tmp_path: Path, path: str, expected: str) -> None:
    Tree(tmp_path).folder("/boot/grub").folder("/var/lib").folder("/usr/lib/modules").link("/lib", "usr/lib")
    assert mount_point(Mounted(str(tmp_path)), path) == expected


def test_room_is_that_of_the_file_system(tmp_path: Path) -> None:
    free, mounts, options = read_disk(Mounted(str(Tree(tmp_path).folder("/boot").root)))
    assert mounts == {"/": "/", "/boot": "/boot", "/usr": "/", "/usr/local": "/", "/var": "/", "/lib/modules": "/"}
    assert set(free) == set(mounts) == set(options)
    assert all(isinstance(size, int) and size > 0 for size in free.values())


def test_H16_options_are_those_of_the_place_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H16: noexec of /var, and of a bind mount that has the device number of what is around it."""
    tree = Tree(tmp_path).folder("/var/lib").folder("/usr/local")
    flags = {"/var": os.ST_NOEXEC | os.ST_NOSUID, "/usr": os.ST_RDONLY}
    real = os.statvfs

    def statvfs(path: str) -> Any:
        found = real(path)
        values = {name: getattr(found, name) for name in ("f_bavail", "f_frsize", "f_bfree")}
        return SimpleNamespace(f_flag=flags.get(path[len(str(tmp_path)) :], 0), **values)

    monkeypatch.setattr(os, "statvfs", statvfs)
    options = read_disk(tree.host())[2]
    assert (options["/var"], options["/usr"], options["/usr/local"]) == (["noexec", "nosuid"], ["ro"], [])


@pytest.mark.parametrize(
    ("path", "os_id", "options", "image"),
    [
        ("/run/ostree-booted", "rhel", {}, "ostree"),
        ("/run/ostree-booted", "fedora", {"/usr": ["ro"], "/var": []}, "ostree"),
        ("", "nixos", {}, "nixos"),
        ("", "flatcar", {"/usr": ["ro"]}, "flatcar"),
        ("", "sl-micro", {"/usr": ["ro"], "/var": []}, "sl-micro"),
        ("", "ubuntu", {"/usr": ["ro"], "/var": []}, "read-only"),
        # A disk that has failed is read-only everywhere.
        ("", "ubuntu", {"/usr": ["ro"], "/var": ["ro"]}, None),
        ("", "ubuntu", {"/usr": ["nosuid"], "/var": []}, None),
        ("", "ubuntu", {}, None),
        ("", None, {"/usr": None, "/var": None}, None),
    ],
)
def test_H14_a_system_that_comes_as_an_image(
    tmp_path: Path, path: str, os_id: str | None, options: dict[str, Any], image: str | None
) -> None:
    tree = Tree(tmp_path).write(path) if path else Tree(tmp_path)
    assert read_image(tree.host(), os_id, {"/usr": [], "/var": [], **options}) == image


@pytest.mark.parametrize(
    ("mounts", "image"),
    [
        ("composefs / overlay ro,relatime 0 0\n/dev/sda4 /var xfs rw 0 0\n", "composefs"),
        ("/dev/sda2 / ext4 rw 0 0\n/dev/mapper/usr /usr erofs ro 0 0\n", "erofs"),
        ("/dev/sda2 / btrfs ro 0 0\n/dev/loop0 /snap/x squashfs ro 0 0\n", "read-only"),
    ],
)
def test_H14_an_image_without_a_mark_is_named_by_its_file_system(tmp_path: Path, mounts: str, image: str) -> None:
    host = Tree(tmp_path).write("/proc/mounts", mounts).host()
    assert read_image(host, "centos", {"/usr": ["ro"], "/var": []}) == image


DPKG = """\
Package: linux-image-generic
Status: hold ok installed
Version: 6.8.0-117.117

Package: rebellions
Essential: no
Status: install ok installed
Version: 2.0.1

Package: dkms
Status: hold ok config-files

Package: last
Status: hold ok installed"""


@pytest.mark.parametrize(
    ("files", "package_format", "expected"),
    [
        ({"/var/lib/dpkg/status": DPKG}, "deb", ["dkms", "last", "linux-image-generic"]),
        ({"/var/lib/dpkg/status": DPKG.replace("hold", "install")}, "deb", []),
        ({}, "deb", None),
        (
            {
                "/etc/dnf/plugins/versionlock.list": "# Added lock\nkernel-core-0:5.14.0-570.116.1.el9_6.*\n"
                "kernel-0:5.14.0-570.el9.*\n\n!dkms-0:3.1-1.*\n"
            },
            "rpm",
            ["kernel", "kernel-core"],
        ),
        ({"/etc/yum/pluginconf.d/versionlock.list": "0:rebellions-driver-3.2.2-1.*\n"}, "rpm", ["rebellions-driver"]),
        (
            {
                "/etc/dnf/versionlock.toml": (
                    'version = "1.0"\n[[packages]]\nname = "kernel-core"\ncomment = "name = x"\n'
                )
            },
            "rpm",
            ["kernel-core"],
        ),
        ({}, "rpm", []),
        ({}, "", []),
    ],
)
def test_what_the_package_manager_holds(
    tmp_path: Path, files: dict[str, str], package_format: str, expected: list[str] | None
) -> None:
    tree = Tree(tmp_path)
    for path, text in files.items():
        tree.write(path, text)
    pins, _probe = read_pins(tree.host(), package_format)
    assert (None if pins is None else holds(pins)) == expected


def test_a_directory_among_the_preferences_is_passed_over_and_other_failures_are_not(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.write("/var/lib/dpkg/status", DPKG)
    (tmp_path / "etc/apt/preferences.d/old").mkdir(parents=True)
    assert read_pins(tree.host(), "deb")[0]
    (tmp_path / "etc/apt/preferences").mkdir()
    pins, probe = read_pins(tree.host(), "deb")
    assert pins is None and not probe.ok


UBUNTU = (
    "Linux version 6.8.0-117-generic (buildd@lcy02-amd64-026) (x86_64-linux-gnu-gcc-12 (Ubuntu 12.3.0-1ubuntu1~22.04) "
    "12.3.0, GNU ld (GNU Binutils for Ubuntu) 2.38) #1 SMP\n"
)


@pytest.mark.parametrize(
    "text, expected",
    [
        (UBUNTU, "gcc-12"),
        (
            "Linux version 6.1.0-1-amd64 (x@y) (gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0, GNU ld (GNU) 2.40) #1",
            "gcc-12",
        ),
        (
            "Linux version 5.14.0-570.el9_6.x86_64 (mockbuild@x) (gcc (GCC) 11.5.0 20240719 (Red Hat 11.5.0-5), GNU ld "
            "version 2.35.2-63.el9) #1",
            "gcc-11",
        ),
        ("Linux version 5.4.0 (x@y) (gcc version 9.4.0 (Ubuntu 9.4.0-1ubuntu1)) #1 SMP", "gcc-9"),
        ("Linux version 6.12.1 (x@y) (Ubuntu clang version 17.0.6 (9), Ubuntu LLD 17.0.6) #1", "clang-17"),
        ("Linux version 5.10 (x@y) (aarch64-linux-gcc.br_real (Buildroot 2021.02) 10.2.0, GNU ld 2.35) #1", "gcc-10"),
        ("", None),
    ],
)
def test_the_compiler_of_a_kernel(text: str, expected: str | None) -> None:
    assert kernel_compiler(text) == expected


@pytest.mark.parametrize(
    "programs, gcc, missing",
    [
        (["gcc-11", "gcc-ar-12", "x86_64-linux-gnu-gcc-12"], "4:11.2.0-1ubuntu1", "gcc-12"),
        (["gcc-11", "gcc-12"], "4:11.2.0-1ubuntu1", ""),
        (["gcc-13"], None, ""),
        ([], "12.3.0-1.el9", ""),
        ([], None, "gcc-12"),
        (["clang-18"], None, "gcc-12"),
    ],
)
def test_a_compiler_that_is_too_old_for_the_kernel(
    tmp_path: Path, programs: list[str], gcc: str | None, missing: str
) -> None:
    tree = Tree(tmp_path).write("/proc/version", UBUNTU)
    for name in programs:
        tree.write("/usr/bin/" + name)
    found = read_build(tree.host(), [package("gcc", version=gcc)] if gcc else [])
    assert (found["kernel_compiler"], missing_compiler(found)) == ("gcc-12", missing)
    assert missing_compiler({**found, "kernel_compiler": None}) == ""


def port(tree: Tree, address: str, bound: bool = True) -> Tree:
    tree.folder("/sys/bus/pci_express/drivers/pciehp")
    return tree.link("/sys/bus/pci_express/drivers/pciehp/%s:pcie004" % address, "/sys/devices/x") if bound else tree


def ports(tree: Tree) -> Any:
    host = tree.host()
    functions, _probe = read_functions(host, PROFILE.pci_vendor, PROFILE.pci_class, PROFILE.products)
    return read_pciehp(host, functions)[0]["ports"]


def test_ports_above_npus(tmp_path: Path) -> None:
    tree = (
        Tree(tmp_path)
        .function("0000:03:00.0", "2130", bridges="0000:00:01.0 0000:01:00.0")
        .function("0000:04:00.0", "2130", bridges="0000:00:02.0")
    )
    tree.function("0000:03:00.1", "2131", bridges="0000:00:01.0 0000:01:00.0", physfn="0000:03:00.0")
    tree.function("0000:09:00.0", "2130", vendor="0x10de", bridges="0000:00:09.0")
    port(port(port(tree, "0000:01:00.0"), "0000:00:09.0"), "0000:00:01.0").write(
        "/sys/bus/pci_express/drivers/pciehp/bind", ""
    )
    assert ports(tree) == [
        {"port": "0000:00:01.0", "npus": ["0000:03:00.0"]},
        {"port": "0000:01:00.0", "npus": ["0000:03:00.0"]},
    ]


def test_no_port_is_bound(tmp_path: Path) -> None:
    tree = Tree(tmp_path).function("0000:03:00.0", "2130", bridges="0000:00:01.0")
    assert ports(tree) == []
    assert ports(port(tree, "0000:00:01.0", bound=False)) == []


def test_ports_are_not_known_without_sysfs(tmp_path: Path) -> None:
    assert ports(Tree(tmp_path)) is None


class Refusing(Host):
    def listdir(self, path: str) -> Probe:
        return Probe(DENIED, None, "Permission denied") if path.endswith("pciehp") else super().listdir(path)


def test_ports_that_may_not_be_seen_are_not_known(tmp_path: Path) -> None:
    Tree(tmp_path).folder("/sys/bus/pci")
    facts, probe = read_pciehp(Refusing(str(tmp_path)), [])
    assert (facts["ports"], probe.state) == (None, "denied")


def test_packages_of_kernels() -> None:
    rows = [
        package("linux-image-generic"),
        package("linux-image-" + KERNEL),
        package("linux-headers-6.8.0-117"),
        package("linux-modules-extra-" + KERNEL),
        package("linux-image-6.8.0-90-generic", "config-files"),
        package("linux-generic-hwe-24.04"),
        package("linux-libc-dev"),
        package("linux-base"),
        package("linux-headers-6.1.0-50-common"),
        package("linux-image-6.1.0-50-amd64-dbg"),
        package("rebellions"),
        package("linux-aws"),
        package("kernel"),
        package("kernel-core", version="5.14.0-570.el9"),
        package("kernel-core", version="5.14.0-70.el9"),
        package("kernel-headers"),
        package("kernel-tools-libs"),
        package("kernel-devel"),
        package("kernel-rt-core"),
    ]
    found = [(item["name"], item["version"]) for item in kernel.kernel_packages(rows)]
    assert found == [
        ("kernel", "1"),
        ("kernel-core", "5.14.0-70.el9"),
        ("kernel-core", "5.14.0-570.el9"),
        ("kernel-devel", "1"),
        ("kernel-rt-core", "1"),
        ("linux-aws", "1"),
        ("linux-generic-hwe-24.04", "1"),
        ("linux-headers-6.8.0-117", "1"),
        ("linux-image-6.8.0-117-generic", "1"),
        ("linux-image-generic", "1"),
        ("linux-modules-extra-6.8.0-117-generic", "1"),
    ]


def test_K01_headers_metapackage_guard(tmp_path: Path) -> None:
    rows = parse_dpkg_list(case("K01-headers-metapackage", "dpkg-l.txt"))
    tree = (
        Tree(tmp_path)
        .system()
        .write("/var/run/reboot-required.pkgs", case("K01-headers-metapackage", "reboot-required.pkgs"))
    )
    tree.dpkg([(row["name"], "6.8.0", "install ok installed") for row in rows])
    tree.write("/lib/modules/%s/updates/dkms/rebellions.ko" % KERNEL, "x").folder(
        "/lib/modules/%s/kernel" % NEXT
    ).write("/boot/vmlinuz-" + NEXT)
    facts = collect_facts(PROFILE, tree.host(), {})
    assert facts["kernel"]["guard"] == [
        {"kernel": KERNEL, "headers": True, "module": True, "running": True, "next_boot": False},
        {"kernel": NEXT, "headers": False, "module": False, "running": False, "next_boot": True},
    ]
    assert facts["kernel"]["next_boot_ok"] is False
    assert [item["name"] for item in facts["kernel"]["packages"]] == sorted(row["name"] for row in rows)
