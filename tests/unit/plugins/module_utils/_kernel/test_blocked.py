# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What keeps a module from being loaded. Case H13-modprobe-blocked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import DENIED, Host, Probe
from ansible_collections.rebellions.npu.plugins.module_utils._kernel.blocked import place_of, read_blocks


def read(tmp_path: Path, files: dict[str, str], module: str = "rebellions") -> list[tuple[str, str, str]]:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    blocks, probe = read_blocks(Host(root=str(tmp_path)), module)
    assert probe.ok
    return [(block["kind"], place_of(block), block["text"]) for block in blocks]


@pytest.mark.parametrize(
    "files, found",
    [
        ({}, []),
        (
            {"etc/modprobe.d/60-site.conf": "install rebellions /bin/true\n"},
            [("install", "/etc/modprobe.d/60-site.conf line 1", "install rebellions /bin/true")],
        ),
        (
            {"etc/modprobe.d/61-false.conf": "\n# no\n install\trebellions  /bin/false"},
            [("install", "/etc/modprobe.d/61-false.conf line 3", "install rebellions /bin/false")],
        ),
        (
            {"etc/modprobe.d/70.conf": "# the cards went to virtual machines\nblacklist rebellions\n"},
            [("blacklist", "/etc/modprobe.d/70.conf line 2", "blacklist rebellions")],
        ),
        (
            {"etc/modprobe.d/a.conf": "options x y\ninstall \\\n rebellions \\\n /bin/true\nblacklist nouveau\n"},
            [("install", "/etc/modprobe.d/a.conf line 2", "install rebellions /bin/true")],
        ),
        # A command that loads the module itself blocks nothing.
        (
            {"etc/modprobe.d/a.conf": "install rebellions /sbin/modprobe -i rebellions && /usr/bin/x\n"},
            [],
        ),
        ({"etc/modprobe.d/a.conf": "install rebellions /usr/lib/x/load\n"}, []),
        ({"etc/modprobe.d/a.conf": "install rebellions echo no; /sbin/insmod /x.ko\n"}, []),
        ({"etc/modprobe.d/a.conf": "install rebellions /bin/sh -c 'true && modprobe -i rebellions'\n"}, []),
        ({"etc/modprobe.d/a.conf": "install rebellions echo $(modprobe -i rebellions)\n"}, []),
        ({"etc/modprobe.d/a.conf": "install rebellions /bin/sh /usr/lib/x/load\n"}, []),
        # A file of /etc hides the one of that name; other names and other suffixes do not count.
        (
            {
                "etc/modprobe.d/x.conf": "",
                "usr/lib/modprobe.d/x.conf": "blacklist rebellions\n",
                "lib/modprobe.d/y.conf": "blacklist rebellions_net\n",
                "etc/modprobe.d/z.bak": "blacklist rebellions\n",
            },
            [],
        ),
        (
            {"proc/cmdline": "root=/dev/sda1 ro modprobe.blacklist=nouveau,rebellions quiet\n"},
            [("blacklist", "the kernel command line", "modprobe.blacklist=nouveau,rebellions")],
        ),
        (
            {"proc/cmdline": "module_blacklist=rebellions"},
            [("module_blacklist", "the kernel command line", "module_blacklist=rebellions")],
        ),
        ({"proc/cmdline": "modprobe.blacklist=rebellions2 rebellions.debug=1"}, []),
        # security-misc 148, kernel-hardening-checker 223: modprobe is not permitted, and a boot alone helps.
        (
            {"proc/sys/kernel/modules_disabled": "1\n"},
            [
                (
                    "modules_disabled",
                    "sysctl kernel.modules_disabled",
                    "1, so no module can be loaded or unloaded until the next boot",
                )
            ],
        ),
        ({"proc/sys/kernel/modules_disabled": "0\n"}, []),
    ],
)
def test_lines_that_keep_the_module_out(
    files: dict[str, str], found: list[tuple[str, str, str]], tmp_path: Path
) -> None:
    assert read(tmp_path, files) == found


@pytest.mark.parametrize(
    "command",
    [
        "echo off",
        "echo no; exit 1",
        '/bin/sh -c "exit 0"',
        "/usr/bin/bash -ec 'echo off >&2; exit 1'",
        "sh -c true",
        "/bin/false # no",
        "logger off && /bin/true",
        "",
    ],
)
def test_a_command_that_loads_nothing_keeps_the_module_out(command: str, tmp_path: Path) -> None:
    files = {"etc/modprobe.d/a.conf": "install rebellions %s\n" % command}
    assert [kind for kind, _place, _text in read(tmp_path, files)] == ["install"]


def test_dash_and_underscore_are_one_name(tmp_path: Path) -> None:
    files = {"etc/modprobe.d/a.conf": "blacklist vfio-pci\n", "proc/cmdline": "modprobe.blacklist=vfio_pci\n"}
    assert [kind for kind, _place, _text in read(tmp_path, files, "vfio_pci")] == ["blacklist", "blacklist"]


def test_a_file_that_cannot_be_read_is_not_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "etc/modprobe.d").mkdir(parents=True)
    (tmp_path / "etc/modprobe.d/a.conf").mkdir()
    blocks, probe = read_blocks(Host(root=str(tmp_path)), "rebellions")
    assert (blocks, probe.ok) == ([], False)


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/proc/sys/kernel/modules_disabled", "sysctl kernel.modules_disabled"),
        ("/proc/cmdline", "the kernel command line"),
        ("/etc/modprobe.d/a.conf", "/etc/modprobe.d/a.conf"),
        ("/etc/modprobe.d", "/etc/modprobe.d"),
    ],
)
def test_a_look_that_was_denied_names_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, place: str
) -> None:
    for name in ("etc/modprobe.d/a.conf", "proc/cmdline", "proc/sys/kernel/modules_disabled"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    for method in ("read_text", "listdir"):
        real = getattr(Host, method)

        def look(self: Host, at: str, *more: object, real: Any = real) -> Probe:
            return Probe(DENIED, None, "Permission denied") if at == path else real(self, at, *more)

        monkeypatch.setattr(Host, method, look)
    _blocks, probe = read_blocks(Host(root=str(tmp_path)), "rebellions")
    assert (probe.state, probe.detail) == (DENIED, place + ": Permission denied")
