# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages and programs that a module build needs besides headers."""

from __future__ import annotations

import posixpath
import re
import typing as t

from .._base.regex import regex
from .._host.host import Host, Limit

PROGRAM_DIRS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
PACKAGES = ("dkms", "gcc", "make", "kernel-headers", "mokutil", "openssl")
PROGRAMS = ("dkms", "cc", "make", "mokutil", "openssl")
COMPILER = regex(r"^(?:gcc|clang)-[0-9]+(?:\.[0-9.]+)?$")
# Programs that satisfy a package: a compiler of another package works too.
PROVIDED_BY = {"dkms": "dkms", "gcc": "cc", "make": "make", "mokutil": "mokutil", "openssl": "openssl"}


def _program(host: Host, name: str) -> str | None:
    for directory in PROGRAM_DIRS:
        path = posixpath.join(directory, name)
        if host.exists(path):
            return path
    return None


def kernel_compiler(version: str) -> str | None:
    """`gcc-12` or `clang-17`: what the kernel says in /proc/version to be built with."""
    found = re.search(r"(clang) version ([0-9]+)", version) or re.search(
        r"(gcc)(?: version|[^\s()]* \((?:[^()]|\([^()]*\))*\)) ([0-9]+)\.", version
    )
    return "%s-%s" % found.groups() if found else None


def missing_compiler(build: t.Mapping[str, t.Any]) -> str:
    """The compiler of the kernel, such as gcc-12, when every one of its kind here is older or none is known.

    An older compiler does not know the options of the kernel; a newer one knows them.
    """
    wanted = build["kernel_compiler"] or ""
    kind, _dash, number = wanted.partition("-")
    there = [int(name.partition("-")[2]) for name in build["compilers"] if name.startswith(kind + "-")]
    return wanted if number and all(one < int(number) for one in there) else ""


def read_build(host: Host, packages: t.Sequence[t.Mapping[str, str]]) -> dict[str, t.Any]:
    """The `build` part of the facts: {packages: {name: version or None}, programs: {name: path or None}, compilers,
    kernel_compiler}.

    `packages` are the installed packages, at least those in PACKAGES.
    """
    versions = {item["name"]: item["version"] for item in packages if item["state"] == "installed"}
    programs = {name: _program(host, name) for name in PROGRAMS}
    versioned = [path for path in host.glob("/usr/bin", "*-*") if COMPILER.match(posixpath.basename(path))]
    gcc = re.match(r"(?:[0-9]+:)?([0-9]+)\.", versions.get("gcc") or "")
    compilers = {re.sub(r"\..*", "", posixpath.basename(path)) for path in versioned}
    compilers |= {"gcc-" + gcc.group(1)} if gcc else set()
    gccs = [path for path in versioned if posixpath.basename(path).startswith("gcc-")]
    programs["cc"] = programs["cc"] or _program(host, "gcc") or (gccs[-1] if gccs else None)
    return {
        "packages": {name: versions.get(name) for name in PACKAGES},
        "programs": programs,
        "compilers": sorted(compilers),
        "kernel_compiler": kernel_compiler(host.read_text("/proc/version", Limit.ATTRIBUTE).get("")),
    }


def missing_packages(build: t.Mapping[str, t.Any], names: t.Sequence[str]) -> list[str]:
    """Those of `names` that are neither installed nor provided by a program, in their order.

    A name that the facts do not cover counts as missing: the package manager knows when there is nothing to do.
    """
    return [
        name
        for name in names
        if not build["packages"].get(name) and not build["programs"].get(PROVIDED_BY.get(name, ""))
    ]
