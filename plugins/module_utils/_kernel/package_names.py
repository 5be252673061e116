# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of kernel packages, header packages and meta packages. Pure."""

from __future__ import annotations

import re
import typing as t

Facts = t.Mapping[str, t.Any]

IMAGE = "linux-image-"
HEADERS = "linux-headers-"
# Kernels of other repositories have other package names.
FOREIGN = re.compile(r"-pve$|\.elrepo\.")
# Meta, signing and symbol packages: no headers package has the same name.
NO_HEADERS = re.compile(r"^linux-image-(?:extra-virtual|.*-(?:signed-template|dbg|dbgsym))$")


def _names(facts: Facts) -> list[str]:
    return list(dict.fromkeys(item["name"] for item in facts["kernel"]["packages"]))


def is_meta(name: str) -> bool:
    """True for a meta package of the newest kernel: linux-image-generic, linux-headers-amd64, linux-aws."""
    return name.startswith("linux-") and not re.search(r"[0-9]+\.[0-9]+\.[0-9]", name)


def rpm_headers(kernel: str, system: str | None = None) -> tuple[str, str]:
    """(headers package for modules, package of user-space headers) of a kernel of EL; `system` is the OS id.

    The 64k, realtime and debug kernels carry their variant behind a plus. Realtime kernels before EL 9.3 have a version
    of their own, Oracle's own kernel its distribution tag. Neither has user-space headers of its version, and on
    Oracle's system the two kernels share one package of them, whose version is that of neither.
    """
    release, plus, variant = kernel.partition("+")
    uek, realtime = re.search(r"\.el[0-9]+uek\.", release), re.search(r"\.rt[0-9]+\.[0-9]+\.el[0-9]", release)
    kind = "-" + variant if plus else "-uek" if uek else "-rt" if realtime else ""
    shared = uek or realtime or system == "ol"
    return "kernel%s-devel-%s" % (kind, release), "kernel-headers" + ("" if shared else "-" + release)


def header_packages(facts: Facts, kernels: t.Sequence[str]) -> list[str]:
    """Packages to install to build modules for `kernels`; empty when the names for this system are unknown.

    The user-space headers of EL exist once on a host, so they are listed only when there are none.
    """
    family = facts["os"]["family"]
    kernels = [kernel for kernel in kernels if not FOREIGN.search(kernel)]
    if family == "debian":
        return [HEADERS + kernel for kernel in kernels]
    if family != "redhat":
        return []
    pairs = [rpm_headers(kernel, facts["os"]["id"]) for kernel in kernels]
    return [build for build, _user in pairs] + (
        [pairs[0][1]] if pairs and not facts["build"]["packages"].get("kernel-headers") else []
    )


def header_metas(facts: Facts) -> list[str]:
    """Missing meta packages that install headers along with the next kernel."""
    there = _names(facts)
    wanted = [
        HEADERS + name[len(IMAGE) :]
        for name in there
        if is_meta(name) and name.startswith(IMAGE) and not NO_HEADERS.match(name)
    ]
    return [name for name in wanted if name not in there]


def kernel_family(facts: Facts) -> list[str]:
    """Packages to hold to keep the running kernel: meta packages and the packages of the running kernel."""
    running = facts["kernel"]["running"] or ""
    there = _names(facts)
    if facts["os"]["family"] == "debian":
        base = re.sub(r"-[a-z][a-z0-9-]*$", "", running)
        own = re.compile(
            r"^linux-(?:image|headers|modules|modules-extra)(?:-unsigned)?-(?:%s|%s)$"
            % (re.escape(running), re.escape(base))
        )
        return [name for name in there if is_meta(name) or running and own.match(name)]
    return [name for name in there if re.match(r"^kernel(-|$)", name)]


def install_command(facts: Facts, names: t.Sequence[str]) -> str:
    """The command line that installs packages by hand."""
    return "%s install %s" % ("apt-get" if facts["os"]["family"] == "debian" else "dnf", " ".join(names))
