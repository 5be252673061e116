# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A row of the troubleshooting tree, and what several rows say."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE

from .._objects.names import SHORT
from .signs import Sign

TOOL, MODULE, PCI = PROFILE.smi_names[0], PROFILE.module, PROFILE.pci_vendor
HOST_TOOL = f"{SHORT}-host"
SITE = "`ansible-playbook rebellions.npu.site --limit HOST`"
TOOLKIT = "`ansible-playbook rebellions.npu.site --tags toolkit --limit HOST`"
# The chapters of the page, in the order of a search.
MACHINE, DRIVER, CONTAINERS, KUBERNETES = CHAPTERS = ("machine", "driver", "containers", "kubernetes")


class Cause(t.NamedTuple):
    """`seen` is what people see, `what` the cause as one sentence, `prove` commands, `remedy` what to do.

    `signs` are forms CODE or CODE~WORDS (a code may end in *), `explains` the ids of causes that follow from this one.
    """

    id: str
    chapter: str
    seen: str
    what: str
    prove: str
    remedy: str
    signs: tuple[str, ...]
    explains: tuple[str, ...] = ()


def fits(form: str, one: Sign) -> bool:
    """Whether a sign has the form CODE or CODE~WORDS."""
    code, _mark, words = form.partition("~")
    same = one.code.startswith(code[:-1]) if code.endswith("*") else one.code == code
    return same and (not words or re.search(words, one.said, re.I) is not None)


def checks(*names: str) -> tuple[str, ...]:
    return tuple("check:" + name for name in names)


# What is not known, or wrong, while no driver is loaded.
WITHOUT_DRIVER = (
    "driver_in_other_version",
    "cards_not_bound",
    "devices_unhealthy",
    "tool_fails",
    "library_mismatch",
    "daemon_stopped",
    "dkms_incomplete",
    "looks_failed",
    "reboot_pending",
    "module_not_at_boot",
    "cdi_spec_stale",
    "runtime_without_cdi_spec",
    "ready_files_missing",
    "plugin_not_registered",
    "npus_not_allocatable",
)
WITHOUT_RUNTIME = ("runtime_without_cdi_spec", "ready_files_missing", "node_not_ready", "plugin_not_registered")
WITHOUT_PLUGIN = ("plugin_not_registered", "npus_not_allocatable", "pods_wait_for_npus", "pods_refused")
