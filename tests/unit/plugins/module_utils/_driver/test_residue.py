# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell what a driver has left from what others have put there: by name, by place, and by owner."""

from __future__ import annotations

import typing as t
from pathlib import Path

from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._driver.residue import notes, owners, residue
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import ABSENT, VALUE, Completed, Host, Probe
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import KERNEL, Tree


def asked(dpkg: str = "", rpm: t.Mapping[str, str] | None = None) -> t.Callable[..., Probe]:
    """Programs of a host; without `rpm` ({path: package}) that program is not there."""

    def run(argv: t.Sequence[str], timeout: float, env: t.Any) -> Probe:
        if argv[0] == "dpkg":
            return Probe(VALUE, Completed(1 if not dpkg else 0, dpkg, "dpkg-query: no path found matching pattern /x"))
        if rpm is None:
            return Probe(ABSENT, None, "No such file or directory")
        owner = rpm.get(argv[-1])
        return Probe(
            VALUE,
            Completed(0, owner + "\n", "")
            if owner
            else Completed(1, "file %s is not owned by any package\n" % argv[-1], ""),
        )

    return run


def test_residue_is_found_by_name_only(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    ours = [
        "/etc/udev/rules.d/70-rbln.rules", "/etc/udev/rules.d/71-rbln-smd.rules",
        "/usr/lib/udev/rules.d/60-rebellions.rules", "/etc/modprobe.d/rbln.conf",
        "/etc/modprobe.d/50-rebellions.conf", "/usr/lib/modprobe.d/rbln-kmd.conf",
        "/etc/modules-load.d/rebellions.conf",
        "/usr/lib/systemd/system/rbln-smd.service", "/usr/local/bin/rbln-stat",
        "/usr/lib/x86_64-linux-gnu/librbln-ccl.so.3.4.0",
        "/usr/lib64/librbln-ml.so", "/usr/local/lib/librbln-thunk.so", "/usr/lib64/libibverbs/librbln-rdmav34.so",
        "/lib/modules/%s/updates/dkms/rebellions.ko.zst" % KERNEL, "/lib/modules/5.15/extra/rebellions.ko",
        "/lib/modules/5.15/extra/rbln/x/rebellions.ko.xz",
        "/lib/modules/5.15/weak-updates/rebellions/rebellions.ko", "/usr/src/rebellions-3.4.0/Makefile",
        "/var/lib/dkms/rebellions/3.4.0/x",
    ]  # fmt: skip
    others = [
        "/etc/udev/rules.d/70-rbln-host.rules", "/etc/udev/rules.d/99-other.rules", "/etc/modprobe.d/nouveau.conf",
        "/etc/modprobe.d/acme-rbln-tuning.conf",
        "/etc/modprobe.d/rbln-acme.conf", "/etc/modules-load.d/acme-rbln.conf", "/usr/lib/modprobe.d/acme-rbln.conf",
        "/usr/bin/rbln-ctk",
        "/usr/lib64/libibverbs/libmlx5-rdmav34.so", "/usr/lib64/libother.so", "/opt/librbln-ccl.so",
        "/lib/modules/%s/updates/dkms/nvidia.ko" % KERNEL, "/lib/modules/%s/build/rebellions.ko" % KERNEL,
        "/usr/src/rebellions-tools/x",
        "/var/lib/dkms/nvidia/x", "/usr/src/linux-headers-6.8/x",
    ]  # fmt: skip
    for path in ours + others:
        tree.write(path, "x")
    expected = [path for path in ours if not path.startswith(("/usr/src", "/var/lib/dkms"))] + [
        "/usr/src/rebellions-3.4.0",
        "/var/lib/dkms/rebellions",
    ]
    assert residue(tree.host(), PROFILE) == sorted(expected)


def test_a_link_to_a_directory_of_modules_is_not_followed(tmp_path: Path) -> None:
    tree = (
        Tree(tmp_path)
        .write("/srv/rebellions.ko", "x")
        .folder("/lib/modules/6.8/extra")
        .link("/lib/modules/6.8/extra/site", "/srv")
    )
    assert residue(tree.host(), PROFILE) == []


def test_a_file_below_lib_is_found_once_where_lib_is_a_link(tmp_path: Path) -> None:
    tree = Tree(tmp_path).write("/usr/lib/udev/rules.d/70-rbln.rules", "x").link("/lib", "usr/lib")
    assert residue(tree.host(), PROFILE) == ["/usr/lib/udev/rules.d/70-rbln.rules"]


def test_files_of_other_packages_do_not_count_and_those_of_the_vendor_do(tmp_path: Path) -> None:
    tree = Tree(tmp_path).link("/lib", "usr/lib")
    for path in (
        "/usr/bin/rbln-smi",
        "/usr/bin/rbln-stat",
        "/usr/lib/udev/rules.d/70-rbln.rules",
        "/usr/local/bin/rbln-vs",
    ):
        tree.write(path, "x")
    # dpkg knows a file of an older package by the name below /lib.
    said = (
        "acme-tools:amd64: /usr/bin/rbln-smi\nrbln-tools: /usr/bin/rbln-stat\n"
        "udev-extras: /lib/udev/rules.d/70-rbln.rules\n"
    )
    assert residue(Host(str(tmp_path), asked(said)), PROFILE) == ["/usr/bin/rbln-stat", "/usr/local/bin/rbln-vs"]
    assert residue(Host(str(tmp_path), asked(rpm={"/usr/bin/rbln-smi": "acme-tools"})), PROFILE) == [
        "/usr/bin/rbln-stat", "/usr/lib/udev/rules.d/70-rbln.rules", "/usr/local/bin/rbln-vs"]  # fmt: skip


def test_owners_are_read_from_what_the_package_managers_say() -> None:
    said = "a, b:amd64: /usr/bin/x\ndiversion by c from: /usr/bin/y\ndiversion by c to: /usr/bin/y.real\n"
    assert owners(Host("/nowhere", asked(said)), ["/usr/bin/x", "/usr/bin/y"]) == {"/usr/bin/x": ["a", "b"]}
    assert owners(Host("/nowhere", asked(rpm={"/usr/bin/y": "c"})), ["/usr/bin/x", "/usr/bin/y"]) == {
        "/usr/bin/y": ["c"]
    }
    assert owners(Host("/nowhere", asked(said)), []) == {}


def test_notes_are_ours_alone(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    assert notes(tree.host(), PROFILE) == []
    tree.folder("/var/lib/rbln")
    assert notes(tree.host(), PROFILE) == ["/var/lib/rbln"]
    for name in (
        "driver.json",
        "journal.json",
        "kept/x",
        "incoming/x",
        "refused.json",
        "tainted.json",
        "waits.json",
        ".kept.old",
        "bundle/x",
        "secure-boot/x",
        "other",
    ):
        tree.write("/var/lib/rbln/" + name, "x")
    names = [
        ".kept.old",
        "driver.json",
        "incoming",
        "journal.json",
        "kept",
        "refused.json",
        "tainted.json",
        "waits.json",
    ]
    assert notes(tree.host(), PROFILE) == ["/var/lib/rbln/" + name for name in names]
