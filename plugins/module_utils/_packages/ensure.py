# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages that a host shall have, or not have: nothing is done for those that are as wanted."""

from __future__ import annotations

import typing as t

from .._base.model import NpuError
from .._host.host import Host
from .changes import Transaction
from .installed import read_packages
from .manager import manager_for
from .proxies import PROXIES, proxies

# For AnsibleModule; the documentation of the module explains them.
ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "name": {"type": "list", "elements": "str", "required": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "bundle": {"type": "path", "default": ""},
    "timeout": {"type": "float", "default": 1800},
    **PROXIES,
}


def ensure(
    host: Host, params: t.Mapping[str, t.Any], check: bool, warn: t.Callable[[str], t.Any] = lambda _text: None
) -> list[str]:
    """What was changed, or with `check` would be; NpuError when the host has no package manager or it fails.

    `warn` is told what was seen and left alone.
    """
    present = params["state"] == "present"
    names = [word.partition("=")[0] for word in params["name"]]
    _packages, form, _probe = read_packages(host, names, 60.0)
    if not form:
        raise NpuError("This host has neither a dpkg nor an rpm database.", "Use a host with apt or dnf.")
    bundle = params["bundle"] if present or host.exists(params["bundle"] or "/nowhere") else ""
    manager = manager_for(host, form, params["timeout"], proxies(params), bundle)
    there = set(manager.installed(names))
    if present:
        sign = "=" if form == "deb" else "-"
        # A word with a version is left to the package manager, which knows whether this version is installed.
        wanted = [word.replace("=", sign, 1) for word in params["name"] if word not in there]
        transaction = Transaction(install=wanted)
    else:
        wanted = [name for name in names if name in there]
        transaction = Transaction(remove=wanted, purge=False)
    changes = [str(change) for change in manager.simulate(transaction)] if wanted else []
    if changes and not check:
        manager.apply(transaction)
    for text in manager.warnings:
        warn(text)
    return changes
