# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages that a host shall have or not: what is asked of apt and dnf, and with which proxies."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._host.probe import VALUE, Completed, Probe
from ansible_collections.rebellions.npu.plugins.module_utils._packages.ensure import ensure
from ansible_collections.rebellions.npu.plugins.module_utils._packages.proxies import PROXIES, proxies

PROXY = "http://svc:n0t-a-Real-one@proxy:3128"
STATUS = "Package: openssl\nStatus: install ok installed\nArchitecture: amd64\nVersion: 3.0\n\n"
Calls = t.List[t.Tuple[t.List[str], t.Dict[str, str]]]


def deb_host(root: Path) -> tuple[Host, Calls]:
    """A host with openssl, whose apt would install or remove what it is asked for; the commands and environments."""
    (root / "var/lib/dpkg").mkdir(parents=True)
    (root / "var/lib/dpkg/status").write_text(STATUS)
    calls: Calls = []

    def run(argv: t.Sequence[str], timeout: float, env: t.Mapping[str, str] | None = None, **more: t.Any) -> Probe:
        words = list(argv)
        calls.append((words, dict(env or {})))
        out = ""
        if "-s" in words:
            last = words[-1]
            out = "Remv %s [3.0]\n" % last[:-1] if last.endswith("-") else "Inst %s (2.0 Debian [amd64])\n" % last
        return Probe(VALUE, Completed(0, out, ""))

    return Host(root=str(root), runner=run), calls


def asked(**more: t.Any) -> dict[str, t.Any]:
    return {"name": ["mokutil", "openssl"], "state": "present", "bundle": "", "timeout": 60.0, **more}


def acts(calls: Calls) -> list[tuple[list[str], dict[str, str]]]:
    return [(argv, env) for argv, env in calls if "apt-get" in argv and "-s" not in argv]


def test_only_what_is_missing_is_installed_with_the_proxies_in_the_environment(tmp_path: Path) -> None:
    host, calls = deb_host(tmp_path)
    assert ensure(host, asked(http_proxy=PROXY, https_proxy=None, no_proxy="a,b"), False) == ["install mokutil (2.0)"]
    ((argv, env),) = acts(calls)
    assert argv[-2:] == ["install", "mokutil"]
    assert (env["http_proxy"], env["no_proxy"]) == (PROXY, "a,b") and "https_proxy" not in env
    assert not any("n0t-a-Real-one" in word for words, _env in calls for word in words)


def test_check_mode_and_what_is_there_already_change_nothing(tmp_path: Path) -> None:
    host, calls = deb_host(tmp_path)
    assert ensure(host, asked(), True) == ["install mokutil (2.0)"]
    assert acts(calls) == []
    calls.clear()
    assert ensure(host, asked(name=["openssl"]), False) == [] and calls == []


@pytest.mark.parametrize("check", [True, False])
def test_a_repository_that_is_left_out_is_told_once(check: bool, tmp_path: Path) -> None:
    (tmp_path / "usr/lib/sysimage/rpm").mkdir(parents=True)
    (tmp_path / "usr/lib/sysimage/rpm/rpmdb.sqlite").touch()
    table = "Ignoring repositories: epel\nInstalling:\n mokutil  x86_64  2.0-1  base  80 k\n\nTransaction Summary\n"

    def run(argv: t.Sequence[str], timeout: float, env: t.Mapping[str, str] | None = None, **more: t.Any) -> Probe:
        if "install" in argv and "--assumeno" in argv:
            return Probe(VALUE, Completed(1, table, "Operation aborted.\n"))
        return Probe(VALUE, Completed(0, "", ""))

    told: list[str] = []
    changes = ensure(Host(root=str(tmp_path), runner=run), asked(name=["mokutil"]), check, told.append)
    assert changes == ["install mokutil (2.0-1)"]
    assert told == ["Left out, as without an answer: the repository epel."]


def test_a_version_is_left_to_the_package_manager(tmp_path: Path) -> None:
    host, calls = deb_host(tmp_path)
    ensure(host, asked(name=["openssl=2.0"]), False)
    assert acts(calls)[0][0][-1] == "openssl=2.0"


def test_a_removal_takes_what_is_there_and_needs_no_bundle(tmp_path: Path) -> None:
    host, calls = deb_host(tmp_path)
    gone = asked(name=["mokutil", "openssl=1.0"], state="absent", bundle="/gone")
    assert ensure(host, gone, False) == ["remove openssl (3.0)"]
    ((argv, env),) = acts(calls)
    assert argv[-1] == "openssl-" and "--purge" not in argv and "APT_CONFIG" not in env


def test_a_bundle_is_the_only_source(tmp_path: Path) -> None:
    host, calls = deb_host(tmp_path)
    ensure(host, asked(bundle="/var/lib/rbln/bundle"), False)
    assert all(env["APT_CONFIG"] == "/var/lib/rbln/bundle/apt.conf" for argv, env in calls if "apt-get" in argv)


def test_a_host_without_a_package_manager_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NpuError, match="neither a dpkg nor an rpm database"):
        ensure(Host(root=str(tmp_path)), asked(), False)


def test_proxies_are_hidden_parameters() -> None:
    assert PROXIES["http_proxy"]["no_log"] is PROXIES["https_proxy"]["no_log"] is True
    assert proxies({"http_proxy": "", "https_proxy": None, "no_proxy": "a", "x": "y"}) == {
        "no_proxy": "a",
        "NO_PROXY": "a",
    }
