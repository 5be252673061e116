# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages and programs that a module build needs besides headers."""

from __future__ import annotations

import posixpath
import re
import typing as t

from .._host.host import Host

PROGRAM_DIRS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
PACKAGES = ("dkms", "gcc", "make", "kernel-headers", "mokutil", "openssl")
PROGRAMS = ("dkms", "cc", "make", "mokutil", "openssl")
# Programs that satisfy a package: a compiler of another package works too.
PROVIDED_BY = {"dkms": "dkms", "gcc": "cc", "make": "make", "mokutil": "mokutil", "openssl": "openssl"}


def _program(host: Host, name: str) -> str | None:
    for directory in PROGRAM_DIRS:
        path = posixpath.join(directory, name)
        if host.exists(path):
            return path
    return None


def _compiler(host: Host) -> str | None:
    found = _program(host, "cc") or _program(host, "gcc")
    versioned = [
        path for path in host.glob("/usr/bin", "gcc-*") if re.match(r"^gcc-[0-9.]+$", posixpath.basename(path))
    ]
    return found or (versioned[-1] if versioned else None)


def read_build(host: Host, packages: t.Sequence[t.Mapping[str, str]]) -> dict[str, t.Any]:
    """The `build` part of the facts: {packages: {name: version or None}, programs: {name: path or None}}.

    `packages` are the installed packages, at least those in PACKAGES.
    """
    versions = {item["name"]: item["version"] for item in packages if item["state"] == "installed"}
    programs = {name: _compiler(host) if name == "cc" else _program(host, name) for name in PROGRAMS}
    return {"packages": {name: versions.get(name) for name in PACKAGES}, "programs": programs}


def missing_packages(build: t.Mapping[str, t.Any], names: t.Sequence[str]) -> list[str]:
    """Those of `names` that are neither installed nor provided by a program, in their order.

    A name that the facts do not cover counts as missing: the package manager knows when there is nothing to do.
    """
    return [
        name
        for name in names
        if not build["packages"].get(name) and not build["programs"].get(PROVIDED_BY.get(name, ""))
    ]
