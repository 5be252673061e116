# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Proxies of package managers and installers. They may hold a password, so they reach a host as hidden parameters.

The environment of a task would put them on the command line that becomes root.
"""

from __future__ import annotations

import typing as t

# For AnsibleModule.
PROXIES: dict[str, dict[str, t.Any]] = {
    "http_proxy": {"type": "str", "no_log": True},
    "https_proxy": {"type": "str", "no_log": True},
    "no_proxy": {"type": "str"},
}


def proxies(params: t.Mapping[str, t.Any]) -> dict[str, str]:
    """Variables for the environment of child processes, from the parameters of a module.

    In both spellings: some programs read only one of them.
    """
    return {form: params[name] for name in PROXIES if params.get(name) for form in (name, name.upper())}
