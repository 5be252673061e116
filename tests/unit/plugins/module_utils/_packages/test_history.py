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
from ansible_collections.rebellions.npu.plugins.module_utils._host import host as hosts
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._packages.history import (
    LARGEST,
    MOST,
    apt_entries,
    dpkg_entries,
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


def test_packages_of_dpkg_which_apt_does_not_know_of() -> None:
    log = (
        "2026-11-29 04:00:00 startup archives unpack\n"
        "2026-11-29 04:00:00 upgrade rebellions-driver:amd64 3.1.0 3.0.2\n"
        "2026-11-29 04:00:00 status unpacked rebellions-driver:amd64 3.0.2\n"
        "2026-11-29 04:00:00 install librbln:amd64 <none> 3.0.2\n"
        "2026-11-29 04:00:07 configure rebellions-driver:amd64 3.0.2 <none>\n"
        "9999999-11-29 04:00:07 remove x 3.0.2 <none>\n"
    )
    (entry,) = dpkg_entries(log, "/log")
    assert entry["packages"] == ["rebellions-driver", "librbln"] and entry["time"] == 1795892400.0


def folder(root: Path, *names: str) -> Path:
    """A host with these programs, and a place for logs."""
    for name in names:
        (root / "usr/bin").mkdir(parents=True, exist_ok=True)
        (root / "usr/bin" / name).write_text("")
    (root / "var/log/apt").mkdir(parents=True)
    return root


def test_only_what_is_newer_is_told_oldest_first(tmp_path: Path) -> None:
    folder(tmp_path, "apt-get", "dnf")
    (tmp_path / "var/log/apt/history.log").write_text(APT)
    (tmp_path / "var/log/dnf.rpm.log").write_text(DNF)
    host = Host(str(tmp_path))
    assert [entry["packages"][0] for entry in package_changes(host, 0)[0]] == [
        "rebellions-driver", "kernel-core", "linux-image-generic", "containerd.io"
    ]  # fmt: skip
    found, unread = package_changes(host, 1795892405.0)
    assert [entry["packages"] for entry in found] == [
        ["rebellions-driver"], ["linux-image-generic", "gcc"], ["containerd.io"]
    ]  # fmt: skip
    assert unread == []
    # All of its lines are older.
    os.utime(tmp_path / "var/log/apt/history.log", (1000, 1000))
    assert [entry["log"] for entry in package_changes(host, 1001)[0]] == ["/var/log/dnf.rpm.log"] * 2


def test_logs_that_were_rotated_are_read_packed_as_debian_packs_them(tmp_path: Path) -> None:
    packed = folder(tmp_path, "apt-get") / "var/log/apt/history.log.1.gz"
    packed.write_bytes(gzip.compress(APT.encode()))
    (tmp_path / "var/log/apt/history.log.12").write_text(APT)
    found, unread = package_changes(Host(str(tmp_path)), 0)
    assert unread == []
    assert sorted(entry["log"] for entry in found) == [
        "/var/log/apt/history.log.1.gz", "/var/log/apt/history.log.1.gz",
        "/var/log/apt/history.log.12", "/var/log/apt/history.log.12",
    ]  # fmt: skip


def test_logs_that_were_rotated_by_date_or_packed_by_another_program_are_not_passed_over(tmp_path: Path) -> None:
    logs = folder(tmp_path, "apt-get", "dnf") / "var/log"
    (logs / "apt/history.log-20261129.gz").write_bytes(gzip.compress(APT.encode()))
    (logs / "dnf.rpm.log-20261129").write_text(DNF)
    (logs / "dpkg.log.2.xz").write_bytes(b"")
    (logs / "dpkg.log.old").write_text("2026-11-29 04:00:00 upgrade librbln:amd64 3.1.0 3.0.2\n")
    found, unread = package_changes(Host(str(tmp_path)), 0)
    assert {entry["log"] for entry in found} == {
        "/var/log/apt/history.log-20261129.gz",
        "/var/log/dnf.rpm.log-20261129",
    }
    assert unread == [{"path": "/var/log/dpkg.log.2.xz", "reason": "it is packed in a way that is not read"}]
    os.utime(logs / "dpkg.log.2.xz", (1000, 1000))
    assert package_changes(Host(str(tmp_path)), 1001.0)[1] == []


def seconds_of(number: int, apart: int = 1, first: float = 1795892400.0) -> str:
    """So many packages of dnf, after the runtime: one every `apart` seconds."""
    moments = [time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(first + at * apart)) for at in range(number + 1)]
    lines = [f"{at} SUBDEBUG Upgraded: extra{which}-1.0-1.el9.noarch\n" for which, at in enumerate(moments[1:])]
    return f"{moments[0]} SUBDEBUG Upgraded: containerd.io-1.7.22-3.1.el9.x86_64\n" + "".join(lines)


def test_a_long_transaction_keeps_its_first_package(tmp_path: Path) -> None:
    log = folder(tmp_path, "dnf") / "var/log/dnf.rpm.log"
    log.write_text(seconds_of(300))
    (entry,), unread = package_changes(Host(str(tmp_path)), 0)
    assert entry["packages"][0] == "containerd.io" and len(entry["packages"]) == 301 and unread == []
    assert entry["time"] == 1795892700.0
    # A transaction of others is another one, and what was before the moment is no part of it.
    log.write_text(seconds_of(2, 61))
    assert [one["packages"] for one in package_changes(Host(str(tmp_path)), 1795892401.0)[0]] == [
        ["extra0"],
        ["extra1"],
    ]


def test_a_release_upgrade_keeps_all_its_packages(tmp_path: Path) -> None:
    names = ", ".join(f"lib{number}:amd64 (1, 2)" for number in range(900))
    log = folder(tmp_path, "apt-get") / "var/log/apt/history.log"
    log.write_text(
        f"Commandline: apt-get full-upgrade\nUpgrade: {names}, containerd.io:amd64 (1.6, 1.7)\n"
        "End-Date: 2026-11-29  04:01:00\n"
    )
    (entry,), _unread = package_changes(Host(str(tmp_path)), 0)
    assert "containerd.io" in entry["packages"] and len(entry["packages"]) == 901


def test_changes_that_are_left_out_are_told_as_not_read(tmp_path: Path) -> None:
    log = folder(tmp_path, "dnf") / "var/log/dnf.rpm.log"
    log.write_text(seconds_of(MOST, 3600))
    found, unread = package_changes(Host(str(tmp_path)), 0)
    assert len(found) == MOST and unread == [{"path": "/var/log/dnf.rpm.log", "reason": "it has too many changes"}]


def test_a_time_that_is_none_is_passed_over() -> None:
    assert rpm_entries("2026-13-45T04:00:00+0900 SUBDEBUG Upgraded: containerd.io-1-2.x86_64\n", "/log") == []


DAMAGED = {
    "empty": b"",
    "other": b"no gzip",
    "cut": gzip.compress(APT.encode())[:40],
    "bomb": gzip.compress(bytes(LARGEST * 2)),
}


@pytest.mark.parametrize("damaged", DAMAGED.values(), ids=DAMAGED)
def test_a_packed_log_that_is_not_whole_is_unread_and_not_empty(tmp_path: Path, damaged: bytes) -> None:
    packed = folder(tmp_path, "apt-get") / "var/log/apt/history.log.1.gz"
    (tmp_path / "var/log/apt/history.log").write_text(APT)
    packed.write_bytes(damaged)
    found, unread = package_changes(Host(str(tmp_path)), 0)
    assert len(found) == 2 and [one["path"] for one in unread] == ["/var/log/apt/history.log.1.gz"]
    assert unread[0]["reason"].startswith(("it is damaged: ", "it is cut off"))
    os.utime(packed, (1000, 1000))
    assert package_changes(Host(str(tmp_path)), 1001.0)[1] == []


def test_a_log_that_is_missing_too_large_or_denied_is_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(str(folder(tmp_path, "apt-get")))
    missing = "no log of this package manager is there"
    assert package_changes(host, 0) == ([], [{"path": "/var/log/dpkg.log", "reason": missing}])
    # Nobody knows which package manager it has.
    assert [one["path"] for one in package_changes(Host(str(tmp_path / "none")), 0)[1]] == [
        "/var/log/dpkg.log", "/var/log/dnf.rpm.log"
    ]  # fmt: skip
    log = tmp_path / "var/log/apt/history.log"
    with log.open("wb") as stream:
        stream.truncate(LARGEST + 1)
    (unread,) = package_changes(host, 0)[1]
    assert unread == {"path": str(log)[len(str(tmp_path)) :], "reason": f"too large: it has more than {LARGEST} bytes"}
    log.write_text(APT)

    def denied(*_words: object, **_more: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(hosts, "open", denied, raising=False)
    assert package_changes(host, 0) == (
        [],
        [{"path": "/var/log/apt/history.log", "reason": "denied: Permission denied"}],
    )


@pytest.mark.parametrize(("after", "unread"), [(0, 0), (60, 0), (3600, 1)])
def test_rpm_that_was_called_without_dnf_is_told(tmp_path: Path, after: float, unread: int) -> None:
    folder(tmp_path, "dnf")
    (tmp_path / "var/log/dnf.rpm.log").write_text(DNF)
    database = tmp_path / "usr/lib/sysimage/rpm/rpmdb.sqlite"
    database.parent.mkdir(parents=True)
    database.write_text("")
    # The last line of the log.
    last = 1795928401.0
    os.utime(database, (last + after, last + after))
    found, left = package_changes(Host(str(tmp_path)), 1795892405.0)
    assert len(found) == 2 and [one["path"] for one in left] == ["/usr/lib/sysimage/rpm/rpmdb.sqlite"] * unread
    assert package_changes(Host(str(tmp_path)), last + 2 * 3600)[1] == []


@pytest.mark.parametrize("text", ["", "\0\xff", "End-Date: never\n", "End-Date: 9999999-01-01  00:00:00", "a: b\n" * 9])
def test_a_damaged_log_tells_nothing(text: str) -> None:
    assert apt_entries(text, "/log") == rpm_entries(text, "/log") == dpkg_entries(text, "/log") == []


def test_files_that_were_written_since(tmp_path: Path) -> None:
    for name, at in (("new", 2000), ("newest", 3000), ("old", 500)):
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (at, at))
    paths = ["/newest", "/new", "/old", "/missing", "/"]
    found, unread = newer_files(Host(str(tmp_path)), paths, 1000.0)
    assert unread == []
    assert [(entry["path"], entry["time"]) for entry in found] == [("/new", 2000.0), ("/newest", 3000.0)]
    assert found[0]["owner"] in ("root", os.environ.get("USER", "root")) or found[0]["owner"].isalnum()
    (tmp_path / "loop").symlink_to("loop")
    found, unread = newer_files(Host(str(tmp_path)), ["/loop"], 1000.0)
    assert found == [] and unread == [{"path": "/loop", "reason": "too many levels of symbolic links: /loop"}]
