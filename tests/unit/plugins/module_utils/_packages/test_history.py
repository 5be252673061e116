# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What apt and dnf have logged since a moment, and which files are newer."""

from __future__ import annotations

import gzip
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._packages.history import (
    LARGEST,
    apt_entries,
    newer_files,
    package_changes,
    rpm_entries,
)

APT = """
Start-Date: 2026-11-28  23:28:01
Commandline: apt-get install -o Acquire::http::Proxy=http://kim:hunter22@proxy:3128 rebellions-driver=3.0.2
Requested-By: kim (1000)
Downgrade: rebellions-driver:amd64 (3.1.0, 3.0.2), librbln:amd64 (3.1.0, 3.0.2)
End-Date: 2026-11-28  23:28:11

Start-Date: 2026-11-29  04:00:00
Commandline: /usr/bin/unattended-upgrade
Upgrade: linux-image-generic:amd64 (6.8.0-45.45, 6.8.0-47.47)
Remove: gcc:amd64 (4:13)
End-Date: 2026-11-29  04:01:00

Start-Date: 2026-11-29  05:00:00
Commandline: apt-get upgrade
"""
DNF = """2026-11-29T04:00:00+0900 SUBDEBUG Upgrade: kernel-core-5.14.0-570.1.1.el9_6.x86_64
2026-11-29T04:00:00+0900 SUBDEBUG Upgraded: kernel-core-5.14.0-503.1.1.el9_5.x86_64
2026-11-29T04:00:00+0900 INFO --- logging initialized ---
2026-11-29T04:00:09+0900 SUBDEBUG Installed: rebellions-driver-1:3.0.2-1.x86_64
2026-11-29T05:00:00Z SUBDEBUG Erase: nothing
2026-11-29T05:00:01Z [9] INFO Removed: containerd.io-1.7.22-3.1.el9.x86_64
"""


@pytest.fixture(autouse=True)
def seoul(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The zone of the host, in which apt writes."""
    monkeypatch.setenv("TZ", "Asia/Seoul")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_transactions_of_apt() -> None:
    first, second = apt_entries(APT, "/log")
    # 23:28:11 in Seoul.
    assert first["time"] == 1795876091.0 and first["by"] == "kim" and first["log"] == "/log"
    assert first["packages"] == ["rebellions-driver", "librbln"]
    assert "hunter22" not in first["command"] and first["command"].endswith("rebellions-driver=3.0.2")
    assert (second["by"], second["packages"]) == ("", ["linux-image-generic", "gcc"])


def test_packages_of_dnf() -> None:
    kernel, driver, runtime = rpm_entries(DNF, "/log")
    assert kernel["packages"] == ["kernel-core"] and kernel["time"] == 1795892400.0
    assert driver["packages"] == ["rebellions-driver"] and driver["time"] - kernel["time"] == 9
    assert runtime["packages"] == ["containerd.io"]


def test_only_what_is_newer_is_told_oldest_first(tmp_path: Path) -> None:
    (tmp_path / "var/log/apt").mkdir(parents=True)
    (tmp_path / "var/log/apt/history.log").write_text(APT)
    (tmp_path / "var/log/dnf.rpm.log").write_text(DNF)
    host = Host(str(tmp_path))
    assert [entry["packages"][0] for entry in package_changes(host, 0)] == [
        "rebellions-driver", "kernel-core", "rebellions-driver", "linux-image-generic", "containerd.io"
    ]  # fmt: skip
    assert [entry["packages"] for entry in package_changes(host, 1795892405.0)] == [
        ["rebellions-driver"], ["linux-image-generic", "gcc"], ["containerd.io"]
    ]  # fmt: skip
    assert package_changes(Host(str(tmp_path / "none")), 0) == []


def test_the_log_that_was_rotated_is_read_packed_as_debian_packs_it(tmp_path: Path) -> None:
    (tmp_path / "var/log/apt").mkdir(parents=True)
    packed = tmp_path / "var/log/apt/history.log.1.gz"
    packed.write_bytes(gzip.compress(APT.encode()))
    found = package_changes(Host(str(tmp_path)), 0)
    assert [entry["log"] for entry in found] == ["/var/log/apt/history.log.1.gz"] * 2
    for damaged in (b"", b"no gzip", gzip.compress(APT.encode())[:40], gzip.compress(bytes(LARGEST * 2))):
        packed.write_bytes(damaged)
        assert package_changes(Host(str(tmp_path)), 0) == []


@pytest.mark.parametrize("text", ["", "\0\xff", "End-Date: never\n", "End-Date: 9999999-01-01  00:00:00", "a: b\n" * 9])
def test_a_damaged_log_tells_nothing(text: str) -> None:
    assert apt_entries(text, "/log") == [] and rpm_entries(text, "/log") == []


def test_files_that_were_written_since(tmp_path: Path) -> None:
    for name, at in (("new", 2000), ("newest", 3000), ("old", 500)):
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (at, at))
    paths = ["/newest", "/new", "/old", "/missing", "/"]
    found = newer_files(Host(str(tmp_path)), paths, 1000.0)
    assert [(entry["path"], entry["time"]) for entry in found] == [("/new", 2000.0), ("/newest", 3000.0)]
    assert found[0]["owner"] in ("root", os.environ.get("USER", "root")) or found[0]["owner"].isalnum()
