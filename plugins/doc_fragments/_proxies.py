# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of modules whose programs use a proxy. Private to this collection."""

from __future__ import annotations


class ModuleDocFragment:
    """The options of module_utils/_packages/proxies.py."""

    DOCUMENTATION = r"""
options:
  http_proxy:
    description:
      - HTTP proxy of the package manager and the installer. It may hold a password, which reaches their environment
        alone.
      - Use it in place of C(environment), which is part of the command line that becomes root.
    type: str
  https_proxy:
    description: HTTPS proxy of the package manager and the installer.
    type: str
  no_proxy:
    description: Hosts that they reach without a proxy, comma separated.
    type: str
"""
