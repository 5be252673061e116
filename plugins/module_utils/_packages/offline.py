# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a package manager is told to use an offline bundle alone; nothing below /etc is written for it."""

from __future__ import annotations

import posixpath

APT_CONFIG = "apt.conf"
DNF_DIRECTORY = "dnf"
DNF_CONFIG = DNF_DIRECTORY + "/dnf.conf"


def environment(directory: str, package_format: str) -> dict[str, str]:
    """What a package manager's environment needs so that it uses the bundle alone."""
    return {"APT_CONFIG": posixpath.join(directory, APT_CONFIG)} if package_format == "deb" else {}


def dnf_options(directory: str, package_format: str) -> list[str]:
    """What dnf's command line needs so that it uses the bundle alone."""
    return ["--setopt=reposdir=" + posixpath.join(directory, DNF_DIRECTORY)] if package_format == "rpm" else []


def dnf_config(directory: str, package_format: str) -> str:
    """A configuration of dnf that knows the bundle alone, for whoever cannot give dnf options; empty where apt is used."""
    return posixpath.join(directory, DNF_CONFIG) if package_format == "rpm" else ""
