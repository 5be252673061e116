# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernels, their flavours and headers, and which one boots next."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.versions import natural_key
from ansible_collections.rebellions.npu.plugins.module_utils._kernel import boot
from ansible_collections.rebellions.npu.plugins.module_utils._kernel import kernels as kernel
from ansible_collections.rebellions.npu.plugins.module_utils._kernel.package_names import header_metas
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import KERNEL, Tree, case, parse_dpkg_list

OLD, NEW = KERNEL, "6.8.0-138-generic"
EL_OLD, EL_NEW = "5.14.0-570.16.1.el9_6.x86_64", "5.14.0-570.116.1.el9_6.x86_64"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([NEW, OLD, "6.8.0-9-generic"], ["6.8.0-9-generic", OLD, NEW]),
        (
            ["6.12.0-55.75.1.el10_0.x86_64", "6.12.0-55.9.1.el10_0.x86_64"],
            ["6.12.0-55.9.1.el10_0.x86_64", "6.12.0-55.75.1.el10_0.x86_64"],
        ),
        ([EL_NEW, EL_OLD], [EL_OLD, EL_NEW]),
        (["6.17.0-23-generic", "6.8.0-117-generic"], ["6.8.0-117-generic", "6.17.0-23-generic"]),
    ],
)
def test_I01_releases_sort_by_number(names: list[str], expected: list[str]) -> None:
    assert sorted(names, key=natural_key) == expected


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        (OLD, "generic"),
        ("6.8.0-1024-aws", "aws"),
        ("6.8.0-1024-nvidia-lowlatency", "nvidia-lowlatency"),
        ("6.1.0-37-amd64", "amd64"),
        ("6.1.0-37-cloud-amd64", "cloud-amd64"),
        (EL_OLD, "el"),
        ("6.12.0-55.75.1.el10_0.x86_64", "el"),
        ("5.14.0-570.16.1.el9_6.x86_64+rt", "el+rt"),
        ("6.15.3-200.fc42.x86_64", "fc"),
        ("6.12.9", ""),
    ],
)
def test_flavour(release: str, expected: str) -> None:
    assert boot.flavour(release) == expected


def test_K01_installed_by_packages(tmp_path: Path) -> None:
    rows = parse_dpkg_list(case("K01-headers-metapackage", "dpkg-l.txt"))
    facts, _probes = kernel.read_kernel(
        Tree(tmp_path).write("/proc/sys/kernel/osrelease", OLD + "\n").host(), rows, False
    )
    assert facts["installed"] == [OLD, NEW]
    assert (facts["running"], facts["next_boot"], facts["headers"]) == (OLD, NEW, {OLD: True, NEW: False})


@pytest.mark.parametrize(
    "suffix",
    [
        ".dpkg-new",
        ".dpkg-tmp",
        ".old",
        ".bak",
        ".hmac",
        ".efi.signed",
        ".signed",
        ".rpmsave",
        ".tmp",
        "~",
        ";5f3c21aa",
        ".old.bak",
    ],
)
def test_K01_headers_metapackage_what_lies_beside_a_kernel_is_none(tmp_path: Path, suffix: str) -> None:
    tree = (
        Tree(tmp_path)
        .kernel(OLD)
        .write("/boot/vmlinuz-%s%s" % (NEW, suffix), "x")
        .write("/lib/modules/%s%s/vmlinuz" % (NEW, suffix), "x")
    )
    assert kernel.installed_kernels(tree.host(), []) == [OLD]


def test_K01_headers_metapackage_a_signed_image_that_boots_next_is_its_kernel(tmp_path: Path) -> None:
    menu = "menuentry 'Ubuntu' --id a {\n linuxefi /boot/vmlinuz-%s.efi.signed root=/dev/sda1\n}\n" % NEW
    tree = (
        Tree(tmp_path)
        .kernel(OLD)
        .kernel(NEW)
        .write("/boot/vmlinuz-%s.efi.signed" % NEW, "x")
        .write("/boot/grub/grub.cfg", 'set default="0"\n' + menu)
    )
    facts = kernel.read_kernel(tree.write("/proc/sys/kernel/osrelease", OLD + "\n").host(), [], False)[0]
    assert (facts["next_boot"], facts["headers"]) == (NEW, {OLD: True, NEW: True})


@pytest.mark.parametrize("name", ["vmlinuz-linux", "vmlinuz-0-rescue-5f3c21aa"])
def test_an_image_without_a_release_is_no_kernel(tmp_path: Path, name: str) -> None:
    assert kernel.installed_kernels(Tree(tmp_path).kernel(OLD).write("/boot/" + name, "x").host(), []) == [OLD]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("linux-image-6.12.38+deb13-amd64", ["6.12.38+deb13-amd64"]),
        ("linux-image-6.12.38+deb13-amd64-unsigned", ["6.12.38+deb13-amd64"]),
        ("linux-image-unsigned-6.8.0-138-generic", [NEW]),
        ("linux-image-6.12.38+deb13-amd64-dbg", []),
        ("linux-image-unsigned-6.8.0-138-generic-dbgsym", []),
        ("linux-image-amd64-signed-template", []),
    ],
)
def test_K01_headers_metapackage_packages_that_bring_a_kernel(tmp_path: Path, name: str, expected: list[str]) -> None:
    rows = [{"name": name, "version": "1", "state": "installed"}]
    assert kernel.installed_kernels(Tree(tmp_path).host(), rows) == expected
    assert bool(kernel.kernel_packages(rows)) is bool(expected)


@pytest.mark.parametrize(
    ("image", "headers"),
    [
        ("linux-image-amd64", ["linux-headers-amd64"]),
        ("linux-image-generic-hwe-24.04", ["linux-headers-generic-hwe-24.04"]),
        ("linux-image-amd64-signed-template", []),
        ("linux-image-amd64-dbg", []),
        ("linux-image-extra-virtual", []),
    ],
)
def test_K01_headers_metapackage_headers_that_arrive_with_the_next_kernel(image: str, headers: list[str]) -> None:
    assert header_metas({"kernel": {"packages": [{"name": image, "version": "1"}]}}) == headers


def test_left_over_module_tree_is_no_kernel(tmp_path: Path) -> None:
    tree = (
        Tree(tmp_path)
        .kernel(NEW)
        .write("/lib/modules/%s/updates/dkms/rebellions.ko" % OLD, "x")
        .write("/boot/vmlinuz-0-rescue-abc", "x")
    )
    assert kernel.installed_kernels(tree.host(), []) == [NEW]


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (
            lambda tree: tree.write("/usr/src/kernels/%s/Makefile" % EL_OLD).link(
                "/lib/modules/%s/build" % EL_OLD, "/usr/src/kernels/" + EL_OLD
            ),
            True,
        ),
        (lambda tree: tree.link("/lib/modules/%s/build" % EL_OLD, "/usr/src/kernels/" + EL_OLD), False),
        (lambda tree: tree.folder("/lib/modules/%s/build" % EL_OLD), False),
        (lambda tree: tree.write("/usr/src/linux-headers-%s/Makefile" % EL_OLD), True),
        (lambda tree: tree, False),
    ],
    ids=["kernel-devel", "dangling link", "empty folder", "headers without link", "nothing"],
)
def test_headers(tmp_path: Path, build: Callable[[Tree], Any], expected: bool) -> None:
    tree = Tree(tmp_path)
    build(tree)
    assert kernel.has_headers(tree.host(), EL_OLD, []) is expected


GRUB_CFG = """
set default="${next_entry}"
function savedefault {
  if [ -z "${boot_once}" ]; then
    saved_entry="${chosen}"
  fi
}
menuentry 'Ubuntu' --class ubuntu $menuentry_id_option 'gnulinux-simple-1111' {
        recordfail
        if [ x$grub_platform = xxen ]; then insmod xzio; fi
        if [ "${x}" = y ]; then
          echo z
        fi
        linux   /boot/vmlinuz-6.8.0-138-generic root=UUID=1111 ro
        initrd  /boot/initrd.img-6.8.0-138-generic
}
submenu 'Advanced options for Ubuntu' $menuentry_id_option 'gnulinux-advanced-1111' {
        menuentry 'Ubuntu, with Linux 6.8.0-138-generic' --class ubuntu $menuentry_id_option 'gnulinux-6.8.0-138-generic-advanced-1111' {
                linux   /boot/vmlinuz-6.8.0-138-generic root=UUID=1111 ro
        }
        menuentry 'Ubuntu, with Linux 6.8.0-138-generic (recovery mode)' --class ubuntu $menuentry_id_option 'gnulinux-6.8.0-138-generic-recovery-1111' {
                linux   /boot/vmlinuz-6.8.0-138-generic root=UUID=1111 ro recovery
        }
        menuentry 'Ubuntu, with Linux 6.8.0-117-generic' --class ubuntu $menuentry_id_option 'gnulinux-6.8.0-117-generic-advanced-1111' {
                linux   /boot/vmlinuz-6.8.0-117-generic root=UUID=1111 ro
        }
}
menuentry 'UEFI Firmware Settings' $menuentry_id_option 'uefi-firmware' {
        fwsetup
}
"""  # noqa: E501


def test_grub_menu() -> None:
    menu = boot.parse_grub_menu(GRUB_CFG)
    assert [(entry["title"], entry["id"], entry["kernel"]) for entry in menu] == [
        ("Ubuntu", "gnulinux-simple-1111", NEW),
        ("Advanced options for Ubuntu", "gnulinux-advanced-1111", None),
        ("UEFI Firmware Settings", "uefi-firmware", None),
    ]
    assert [entry["kernel"] for entry in menu[1]["entries"]] == [NEW, NEW, OLD]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("0", NEW),
        ("1", NEW),
        ("1>2", OLD),
        ("1>9", None),
        ("7", None),
        ("Ubuntu", NEW),
        ("Advanced options for Ubuntu>Ubuntu, with Linux 6.8.0-117-generic", OLD),
        ("gnulinux-advanced-1111>gnulinux-6.8.0-117-generic-advanced-1111", OLD),
        ("uefi-firmware", None),
        ("", None),
    ],
)
def test_grub_entry(wanted: str, expected: str | None) -> None:
    assert boot.choose_entry(boot.parse_grub_menu(GRUB_CFG), wanted) == expected


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["GRUB_DEFAULT=0\n"], "0"),
        (["#GRUB_DEFAULT=0\n"], None),
        (["GRUB_DEFAULT=0\n", 'GRUB_DEFAULT="1>2"\n'], "1>2"),
        (["GRUB_DEFAULT='saved' # keep\n"], "saved"),
        (["GRUB_DEFAULT=\n"], ""),
        (["GRUB_DEFAULT='open\n"], None),
        ([], None),
    ],
)
def test_grub_default(texts: list[str], expected: str | None) -> None:
    assert boot.parse_grub_default(texts) == expected


def grub(tree: Tree, default: str = "0", env: str = "", cfg: str = GRUB_CFG) -> Tree:
    return (
        tree.write("/boot/grub/grub.cfg", cfg)
        .write("/etc/default/grub", "GRUB_DEFAULT=%s\n" % default)
        .write("/boot/grub/grubenv", "# GRUB\n" + env + "####")
    )


def bls(tree: Tree, env: str, default: str = "saved") -> Tree:
    for release in (EL_OLD, EL_NEW):
        tree.write(
            "/boot/loader/entries/abc-%s.conf" % release,
            (
                "title Rocky Linux (%s) 9.6\nversion %s\nlinux /vmlinuz-%s\ninitrd /initramfs-%s.img $tuned_initrd\n"
                "options $kernelopts\n"
            )
            % ((release,) * 4),
        )
    tree.write(
        "/boot/loader/entries/abc-0-rescue.conf",
        "title Rocky Linux (0-rescue-abc)\nversion 0-rescue-abc\nlinux /vmlinuz-0-rescue-abc\n",
    )
    return tree.write("/etc/default/grub", "GRUB_DEFAULT=%s\n" % default).write(
        "/boot/grub2/grubenv", "# GRUB\n%s####" % env
    )


def generated(default: str, text: str) -> str:
    """A grub.cfg as grub-mkconfig makes it: the entry for one boot comes first, one for a failed boot last."""
    head = 'if [ "${next_entry}" ] ; then\n   set default="${next_entry}"\n   set next_entry=\nelse\n'
    late = 'if [ "${boot_counter}" = "0" ]; then\n    set default=1\nfi\n'
    return '%s   set default="%s"\nfi\n%s%s' % (head, default, late, text)


def sd_boot(tree: Tree, default: str) -> Tree:
    for release in (OLD, NEW):
        tree.write(
            "/boot/loader/entries/abc-%s.conf" % release,
            "title Debian\nversion %s\nlinux /abc/%s/linux\n" % (release, release),
        )
    return tree.write("/boot/loader/loader.conf", default)


NEXT: list[tuple[str, Callable[[Tree], Any], str | None, str]] = [
    ("grub first entry", grub, NEW, "grub entry 0"),
    ("grub pinned by number", lambda tree: grub(tree, '"1>2"'), OLD, "grub entry 1>2"),
    (
        "grub pinned by title",
        lambda tree: grub(tree, '"Advanced options for Ubuntu>Ubuntu, with Linux %s"' % OLD),
        OLD,
        "grub entry Advanced",
    ),
    (
        "grub saved",
        lambda tree: grub(tree, "saved", "saved_entry=gnulinux-advanced-1111>gnulinux-%s-advanced-1111\n" % OLD),
        OLD,
        "grub entry gnulinux",
    ),
    ("grub saved, nothing saved", lambda tree: grub(tree, "saved"), NEW, "grub entry 0"),
    ("grub-reboot", lambda tree: grub(tree, "0", "next_entry=1>2\n"), OLD, "grub entry 1>2"),
    ("grub entry that is gone", lambda tree: grub(tree, '"1>7"'), None, "grub entry 1>7 is not in the menu"),
    (
        "grub menu not readable, entry names its kernel",
        lambda tree: grub(tree, "gnulinux-advanced-1>gnulinux-%s-advanced-1" % OLD, cfg=""),
        OLD,
        "grub entry gnulinux-advanced",
    ),
    (
        "grub menu not readable",
        lambda tree: grub(tree, cfg="").link("/boot/vmlinuz", "vmlinuz-" + NEW),
        NEW,
        "link /boot/vmlinuz",
    ),
    (
        "drop-in of grub",
        lambda tree: grub(tree).write("/etc/default/grub.d/50-pin.cfg", 'GRUB_DEFAULT="1>2"\n'),
        OLD,
        "grub entry 1>2",
    ),
    ("EL saved entry", lambda tree: bls(tree, "saved_entry=abc-%s\n" % EL_OLD), EL_OLD, "boot loader entry abc-"),
    ("EL without saved entry", lambda tree: bls(tree, ""), EL_NEW, "boot loader entry 0"),
    ("EL saved by number", lambda tree: bls(tree, "saved_entry=1\n"), EL_OLD, "boot loader entry 1"),
    (
        "EL next entry",
        lambda tree: bls(tree, "saved_entry=abc-%s\nnext_entry=abc-%s\n" % (EL_NEW, EL_OLD)),
        EL_OLD,
        "boot loader entry abc-",
    ),
    (
        "EL newest whatever is saved",
        lambda tree: bls(tree, "saved_entry=abc-%s\n" % EL_OLD, "0"),
        EL_NEW,
        "boot loader entry 0",
    ),
    ("EL pinned by number, once another", lambda tree: bls(tree, "next_entry=0\n", "1"), EL_NEW, "boot loader entry 0"),
    (
        "EL saved entry that is gone",
        lambda tree: bls(tree, "saved_entry=abc-9.9\n"),
        None,
        "no boot loader entry abc-9.9",
    ),
    (
        "teuthology 2231: without GRUB_DEFAULT=saved the first entry boots, whatever was saved",
        lambda tree: bls(tree, "saved_entry=abc-%s\n" % EL_OLD, "").write(
            "/boot/grub2/grub.cfg", generated("0", "insmod blscfg\nblscfg\n")
        ),
        EL_NEW,
        "boot loader entry 0",
    ),
    (
        "what grub.cfg was made with counts, not what was edited since",
        lambda tree: grub(tree, "0", cfg=generated("1>2", GRUB_CFG)),
        OLD,
        "grub entry 1>2",
    ),
    (
        "grub.cfg takes the saved entry",
        lambda tree: grub(tree, "0", "saved_entry=1>2\n", generated("${saved_entry}", GRUB_CFG)),
        OLD,
        "grub entry 1>2",
    ),
    (
        "kexec-reboot 13: with GRUB_ENABLE_BLSCFG=false the entries are left from before",
        lambda tree: bls(tree, "saved_entry=abc-%s\n" % EL_OLD, "0").write(
            "/boot/grub2/grub.cfg", generated("0", GRUB_CFG)
        ),
        NEW,
        "grub entry 0",
    ),
    (
        "the whole menu of a UEFI machine of EL 8",
        lambda tree: bls(tree, "saved_entry=abc-%s\n" % EL_OLD, "0").write(
            "/boot/efi/EFI/rocky/grub.cfg", generated("${saved_entry}", "blscfg\n")
        ),
        EL_OLD,
        "boot loader entry abc-",
    ),
    (
        "stackhpc-kayobe-config 878: entries of the image's machine-id sort first",
        lambda tree: [
            tree.write("/boot/loader/entries/%s-%s.conf" % (machine, release), "linux /vmlinuz-%s\n" % release)
            for machine, release in (
                ("104a42359fae41b687caac066397aec2", EL_OLD),
                ("104a42359fae41b687caac066397aec2", "0-rescue"),
                ("cd3361a338fe47348de9937e51a7a4aa", EL_NEW),
                ("cd3361a338fe47348de9937e51a7a4aa", "0-rescue"),
            )
        ],
        EL_OLD,
        "boot loader entry 0",
    ),
    (
        "systemd-boot runs, and GRUB has left its files",
        lambda tree: grub(sd_boot(tree, "default abc-%s*\n" % OLD), "0").write(
            boot.LOADER_INFO, b"\6\0\0\0" + "systemd-boot 255".encode("utf-16-le")
        ),
        OLD,
        "loader.conf",
    ),
    (
        "GRUB says its name too",
        lambda tree: grub(sd_boot(tree, "default abc-%s*\n" % OLD), "0").write(
            boot.LOADER_INFO, b"\6\0\0\0" + "GRUB 2.12".encode("utf-16-le")
        ),
        NEW,
        "grub entry 0",
    ),
    ("systemd-boot", lambda tree: sd_boot(tree, "timeout 3\ndefault abc-%s*\n" % OLD), OLD, "loader.conf"),
    (
        "systemd-boot without default",
        lambda tree: sd_boot(tree, "timeout 3\n"),
        None,
        "the default of systemd-boot is not in loader.conf",
    ),
    ("links only", lambda tree: tree.link("/vmlinuz", "boot/vmlinuz-" + NEW), NEW, "link /vmlinuz"),
    ("newest installed", lambda tree: tree.kernel(OLD).kernel(NEW), NEW, "newest installed"),
    (
        "several flavours",
        lambda tree: tree.kernel(OLD).kernel("6.8.0-1024-aws"),
        None,
        "no boot loader configuration, and kernels of several flavours",
    ),
    ("nothing", lambda tree: tree, None, "no boot loader configuration and no installed kernel found"),
]


@pytest.mark.parametrize(("build", "expected", "source"), [row[1:] for row in NEXT], ids=[row[0] for row in NEXT])
def test_next_boot(tmp_path: Path, build: Callable[[Tree], Any], expected: str | None, source: str) -> None:
    tree = Tree(tmp_path)
    build(tree)
    found, where = boot.read_next_boot(tree.host(), kernel.installed_kernels(tree.host(), []), OLD)
    assert found == expected
    assert where.startswith(source)


def test_whether_the_running_kernel_has_a_module_tree(tmp_path: Path) -> None:
    # A tree of add-on modules alone counts: a host of containers may be given nothing else.
    seen = [
        kernel.read_kernel(Tree(tmp_path / name).host(), [], True, release)[0]["module_tree"]
        for name, release in (("a", NEW), ("b", None))
    ]
    bare = Tree(tmp_path / "c").write("/lib/modules/%s/modules.order" % NEW, "").host()
    assert [*seen, kernel.read_kernel(bare, [], True, NEW)[0]["module_tree"]] == [False, None, True]


def test_running_kernel_of_an_image_is_given(tmp_path: Path) -> None:
    facts, probes = kernel.read_kernel(Tree(tmp_path).kernel(NEW).host(), [], False, NEW)
    assert (facts["running"], facts["next_boot"], facts["cmdline"]) == (NEW, NEW, None)
    assert probes["kernel"].state == "absent"


@pytest.mark.parametrize(
    "given, shown",
    [
        ("ro luks.password=abc quiet", "ro luks.password=******** quiet"),
        ("inst.ks=http://u:p@files/ks ro", "inst.ks=http://********@files/ks ro"),
        ("netroot=iscsi:u:p@192.0.2.1::3260:1:iqn", "netroot=iscsi:********@192.0.2.1::3260:1:iqn"),
        ("systemd.set_credential=root:abc ip=dhcp", "systemd.set_credential=******** ip=dhcp"),
        (
            "root=UUID=1 rd.lvm.lv=rl/root intel_iommu=on x=http://files/a",
            "root=UUID=1 rd.lvm.lv=rl/root intel_iommu=on x=http://files/a",
        ),
    ],
)
def test_s02_secrets_in_output_the_command_line_of_the_kernel_holds_none(
    tmp_path: Path, given: str, shown: str
) -> None:
    tree = Tree(tmp_path).write("/proc/cmdline", given + "\n")
    assert kernel.read_kernel(tree.host(), [], False)[0]["cmdline"] == shown
