# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings that restrict a package manager to an offline bundle; nothing in /etc is written."""

from __future__ import annotations

import posixpath

APT_CONFIG = "apt.conf"
DNF_DIRECTORY = "dnf"
DNF_CONFIG = DNF_DIRECTORY + "/dnf.conf"


def environment(directory: str, package_format: str) -> dict[str, str]:
    """Environment that restricts apt to the bundle."""
    return {"APT_CONFIG": posixpath.join(directory, APT_CONFIG)} if package_format == "deb" else {}


def dnf_options(directory: str, package_format: str) -> list[str]:
    """Options that restrict dnf to the bundle."""
    return ["--setopt=reposdir=" + posixpath.join(directory, DNF_DIRECTORY)] if package_format == "rpm" else []


def dnf_config(directory: str, package_format: str) -> str:
    """Configuration file that restricts dnf to the bundle, for callers that cannot set options; empty for apt."""
    return posixpath.join(directory, DNF_CONFIG) if package_format == "rpm" else ""
