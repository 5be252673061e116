# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What all package managers share.

Changes within a plan, the choice of a version, words without passwords, and time limits.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._packages.changes import Change, Transaction, fits, planned
from ansible_collections.rebellions.npu.plugins.module_utils._packages.manager import manager_for
from ansible_collections.rebellions.npu.plugins.module_utils._packages.words import last_lines, lock_holder
from ansible_collections.rebellions.npu.tests.unit.fixtures.packages.replay import dpkg, host

OURS = ["rebellions*", "librbln*"]


@pytest.mark.parametrize(
    "change, dependencies, beyond",
    [
        (Change("install", "rebellions-kmd", None, "3.4.0"), False, False),
        (Change("remove", "librbln-ml", "3.4.0"), False, False),
        (Change("install", "librbln:i386", None, "3.4.0"), False, False),
        (Change("install", "dkms", None, "3.0"), False, True),
        (Change("install", "dkms", None, "3.0"), True, False),
        (Change("upgrade", "gcc", "12", "13"), True, True),
        (Change("downgrade", "gcc", "13", "12"), True, True),
        (Change("remove", "gcc", "13"), True, True),
        (Change("reinstall", "gcc", "13", "13"), True, True),
        (Change("install", "linux-image-6.8.0-139-generic", None, "1"), True, True),
        (Change("install", "linux-generic-hwe-22.04", None, "1"), True, True),
        (Change("install", "linux-modules-6.8.0-139-generic", None, "1"), True, True),
        (Change("install", "kernel-core", None, "1"), True, True),
        (Change("install", "kernel", None, "1"), True, True),
        (Change("install", "kernel-rt-core", None, "1"), True, True),
        (Change("install", "linux-headers-6.8.0-117-generic", None, "1"), True, False),
        (Change("install", "kernel-devel", None, "1"), True, False),
        (Change("install", "kernel-headers", None, "1"), True, False),
    ],
)
def test_what_is_beyond_the_plan(change: Change, dependencies: bool, beyond: bool) -> None:
    assert planned([change], OURS, dependencies) == ([change] if beyond else [])


@pytest.mark.parametrize("name", ["kernel-devel", "kmod-site"])
def test_H11_an_older_version_that_makes_room_for_a_newer_one_is_no_removal(name: str) -> None:
    """dnf keeps some versions of what is install-only, and removes the oldest."""
    new, old = Change("install", name, None, "3-1"), Change("remove", name, "1-1")
    assert planned([new, old], OURS, True) == []
    assert planned([old], OURS, True) == [old]
    assert planned([new, old], OURS, False) == [new]


def test_the_architecture_is_no_part_of_a_name() -> None:
    assert fits("librbln:i386", ["librbln"]) and not fits("librbln2", ["librbln"])


def test_a_change_for_people() -> None:
    assert str(Change("upgrade", "kmd", "1", "2")) == "upgrade kmd (1 -> 2)"
    assert str(Change("remove", "kmd", "1")) == "remove kmd (1)"
    assert str(Change("remove", "kmd")) == "remove kmd"


def test_last_lines_say_something() -> None:
    text = (
        "Reading package lists...\n(Reading database ... 5%\r(Reading database ... 10%\r\nGet:1 http://a:b@c/ x\n\n"
        "Setting up a (1) ...\nE: http://u:p@h/ x\n"
    )
    assert last_lines(text) == "Setting up a (1) ...\nE: http://********@h/ x"
    assert last_lines(text, 1) == "E: http://********@h/ x"


@pytest.mark.parametrize(
    "text, holder",
    [
        (
            "Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 816 (unattended-upgr)...",
            ("816", "unattended-upgr"),
        ),
        ("dpkg: error: dpkg frontend lock was locked by another process with pid 816", ("816", "")),
        ("dpkg: error: dpkg frontend lock was locked by /usr/bin/python3.13 process with pid 2970", ("2970", "")),
        ("Waiting for process with pid 4711 to finish.", ("4711", "")),
        ("all is well", ("", "")),
    ],
)
def test_who_holds_the_lock(text: str, holder: tuple[str, str]) -> None:
    assert lock_holder(text) == holder


MADISON = """ kmd | 1:3.4.0-2 | http://m/ ./ Packages
 kmd | 1:3.4.0-1 | http://m/ ./ Packages
 kmd | 3.4.0~rc1-1 | http://m/ ./ Packages
 kmd |   3.2.2+rebel1 | http://m/ ./ Packages
"""


@pytest.mark.parametrize(
    "version, found",
    [
        ("3.4.0", "1:3.4.0-2"),
        ("3.4.0-1", "1:3.4.0-1"),
        ("1:3.4.0-1", "1:3.4.0-1"),
        ("3.4", "1:3.4.0-2"),
        ("3.2.2", "3.2.2+rebel1"),
        ("3.2.2-rebel1", "3.2.2+rebel1"),
        ("1.3.4", None),
        ("3.4.1", None),
    ],
)
def test_the_version_of_a_release(tmp_path: Path, version: str, found: str | None) -> None:
    machine, runner = host(tmp_path, [{"out": MADISON}, *([{}, {"out": MADISON}] if found is None else [])])
    assert manager_for(machine, "deb").resolve("kmd", version) == found
    assert runner.answers == []


def test_only_two_formats() -> None:
    assert [manager_for(Host("/nowhere"), name).format for name in ("deb", "rpm")] == ["deb", "rpm"]
    with pytest.raises(NpuError, match="format 'apk' is not supported"):
        manager_for(Host("/nowhere"), "apk")


def test_past_the_limit_it_is_told_what_was_said_last(tmp_path: Path) -> None:
    dpkg(tmp_path)
    sure = {"out": "Inst kmd (1 ./ [amd64])\n"}
    machine, runner = host(tmp_path, [sure, {"rc": 124, "out": "Get:1 x\nSetting up kmd (1) ...\n"}])
    with pytest.raises(NpuError) as caught:
        manager_for(machine, "deb", 90).apply(Transaction(install=["kmd"]))
    assert caught.value.message == "apt-get did not end within 90 s. Last output: Setting up kmd (1) ..."
    assert runner.calls[1][:4] == ["timeout", "--kill-after=15", "90", "apt-get"]


def test_past_the_limit_the_holder_of_the_lock_is_named(tmp_path: Path) -> None:
    dpkg(tmp_path)
    process = tmp_path / "proc" / "812"
    (process / "fd").mkdir(parents=True)
    (process / "fd" / "4").symlink_to("/var/lib/dpkg/lock-frontend")
    (process / "comm").write_text("unattended-upgr\n")
    machine, _runner = host(tmp_path, [{"out": "Inst kmd (1 ./ [amd64])\n"}, {"state": "timeout"}])
    with pytest.raises(NpuError) as caught:
        manager_for(machine, "deb", 90).apply(Transaction(install=["kmd"]))
    assert caught.value.message == "apt-get did not end within 90 s: the lock is held by unattended-upgr (pid 812)."
    assert caught.value.next_step == "Wait until it ends, or stop it, and run again."


def test_a_manager_that_is_missing_is_named(tmp_path: Path) -> None:
    machine, _runner = host(tmp_path, [{"state": "absent"}])
    with pytest.raises(NpuError, match="apt-cache cannot be run: no answer. Next: Check that apt-cache is installed"):
        manager_for(machine, "deb").available("kmd")


def test_the_environment_reaches_every_command(tmp_path: Path) -> None:
    machine, runner = host(tmp_path, [{"out": MADISON}])
    manager_for(machine, "deb", 60, {"https_proxy": "http://proxy:3128"}).available("kmd")
    assert runner.environments[0]["https_proxy"] == "http://proxy:3128"
    assert runner.environments[0]["DEBIAN_FRONTEND"] == "noninteractive"
    assert runner.environments[0]["NEEDRESTART_SUSPEND"] == "1"
