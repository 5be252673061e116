# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The package manager of a host, chosen by the format of its packages."""

from __future__ import annotations

import typing as t

from .._base.model import NpuError
from .._host.host import Host
from .apt import Apt
from .base import PackageManager
from .dnf import Dnf
from .offline import dnf_options
from .offline import environment as alone

MANAGERS: t.Mapping[str, type[PackageManager]] = {Apt.format: Apt, Dnf.format: Dnf}


def manager_for(
    host: Host,
    package_format: str,
    timeout: float = 1800.0,
    environment: t.Mapping[str, str] | None = None,
    bundle: str = "",
) -> PackageManager:
    """The manager for `deb` or `rpm`. With `bundle`, a host directory, it uses only this offline bundle."""
    manager = MANAGERS.get(package_format)
    if manager is None:
        raise NpuError(
            "The package format %r is not supported." % package_format,
            "Use a host with dpkg or rpm, or the source runfile or container.",
        )
    if not bundle:
        return manager(host, timeout, environment)
    return manager(
        host,
        timeout,
        dict(environment or {}, **alone(bundle, package_format)),
        dnf_options(bundle, package_format),
        alone=True,
    )
