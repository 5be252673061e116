# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of the packages that kernels, their headers and what pulls in the newest of them have. Pure."""

from __future__ import annotations

import re
import typing as t

Facts = t.Mapping[str, t.Any]

IMAGE = "linux-image-"
HEADERS = "linux-headers-"
# Kernels of other repositories, whose packages have other names.
FOREIGN = re.compile(r"-pve$|\.elrepo\.")
# Pulls in an image under another name; no headers are called like it.
NO_HEADERS = ("linux-image-extra-virtual",)


def _names(facts: Facts) -> t.List[str]:
    return list(dict.fromkeys(item["name"] for item in facts["kernel"]["packages"]))


def is_meta(name: str) -> bool:
    """True for a package that only pulls in the newest of its kind: linux-image-generic, linux-headers-amd64, linux-aws."""
    return name.startswith("linux-") and not re.search(r"[0-9]+\.[0-9]+\.[0-9]", name)


def header_packages(facts: Facts, kernels: t.Sequence[str]) -> t.List[str]:
    """What to install so that modules can be built for `kernels`; empty where the names of this system's packages are not known.

    The user-space headers of EL exist once on a host whatever the number of kernels, so they are named only when there are none.
    """
    family = facts["os"]["family"]
    kernels = [kernel for kernel in kernels if not FOREIGN.search(kernel)]
    if family == "debian":
        return [HEADERS + kernel for kernel in kernels]
    if family != "redhat":
        return []
    found = []
    for kernel in kernels:
        release, plus, variant = kernel.partition("+")
        # The 64k and realtime kernels carry their variant behind a plus, Oracle's own kernel in its distribution tag.
        kind = "-" + variant if plus else "-uek" if re.search(r"\.el[0-9]+uek\.", release) else ""
        found.append("kernel%s-devel-%s" % (kind, release))
    if kernels and not facts["build"]["packages"].get("kernel-headers"):
        # Oracle's own kernel has none of its own.
        found.append("kernel-headers" + ("" if re.search(r"\.el[0-9]+uek\.", kernels[0]) else "-" + kernels[0].partition("+")[0]))
    return found


def header_metas(facts: Facts) -> t.List[str]:
    """Packages missing for the next kernel to arrive with its headers: one for each package that pulls in the newest image."""
    there = _names(facts)
    wanted = [HEADERS + name[len(IMAGE) :] for name in there if is_meta(name) and name.startswith(IMAGE) and name not in NO_HEADERS]
    return [name for name in wanted if name not in there]


def kernel_family(facts: Facts) -> t.List[str]:
    """Names to hold so that no other kernel arrives: what pulls in the newest, and the packages of the running kernel."""
    running = facts["kernel"]["running"] or ""
    there = _names(facts)
    if facts["os"]["family"] == "debian":
        base = re.sub(r"-[a-z][a-z0-9-]*$", "", running)
        own = re.compile(r"^linux-(?:image|headers|modules|modules-extra)(?:-unsigned)?-(?:%s|%s)$" % (re.escape(running), re.escape(base)))
        return [name for name in there if is_meta(name) or running and own.match(name)]
    return [name for name in there if re.match(r"^kernel(-|$)", name)]


def install_command(facts: Facts, names: t.Sequence[str]) -> str:
    """The command line that installs packages by hand."""
    return "%s install %s" % ("apt-get" if facts["os"]["family"] == "debian" else "dnf", " ".join(names))
