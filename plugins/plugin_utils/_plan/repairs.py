# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which steps of a plan may repair a check that keeps a proof from passing. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._checks.run import TABLES

from .driver import DRIVER_STEP, REBOOT_STEP, RECOVER_STEP, RELOAD_STEP
from .secure_boot import FIRMWARE_STEP
from .situation import Data
from .support import BUILD_STEP
from .words import CDI_STEP, MARKERS_STEP

# A step by its id, several by the beginning of their ids.
_DRIVER = (DRIVER_STEP, RELOAD_STEP, RECOVER_STEP, REBOOT_STEP)
_RUNTIME = ("toolkit.runtime.", "toolkit.restart.", "toolkit.proxies.")
_TOOLS = ("toolkit.host_tool", "toolkit.package")
_SCOPES = {"driver": _DRIVER, "toolkit": (CDI_STEP, *_RUNTIME, *_TOOLS)}
# Checks for which not every step of their scope counts. None: the card, its slot, a file or a choice of somebody else.
_ONLY: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("npus_found", "npus_reachable", "one_family", "module_not_blocked"), ()),
    **dict.fromkeys(("cdi_no_conflict", "cdi_dirs_trusted", "cdi_files_trusted", "runtime_known"), ()),
    "containers_are_back": (),
    **dict.fromkeys(("dkms_builds", "dkms_module_in_place", "module_file_intact"), (*_DRIVER, BUILD_STEP)),
    **dict.fromkeys(("kernels_have_module", "reboot_not_pending"), (*_DRIVER, BUILD_STEP)),
    "firmware_is_driver": (*_DRIVER, FIRMWARE_STEP),
    # The proof writes this file anew, and renews the time of a specification that is right.
    "driver_ready_readable": (MARKERS_STEP,),
    "cdi_spec_fresh": (CDI_STEP, MARKERS_STEP),
    **dict.fromkeys(("cdi_spec_present", "cdi_spec_valid", "cdi_spec_current"), (CDI_STEP,)),
    **dict.fromkeys(("cdi_host_paths", "cdi_hooks_known"), (CDI_STEP, *_TOOLS)),
    **dict.fromkeys(("runtime_cdi_on", "runtime_reads_dir", "runtime_is_fresh"), _RUNTIME),
}
_BY = {entry.name: _ONLY.get(entry.name, _SCOPES.get(table.name, ())) for table in TABLES for entry in table.entries}


def unrepaired(observed: Data, steps: t.Sequence[str]) -> list[str]:
    """The blocking checks of an observation that have not passed and that none of the steps can repair, by name."""
    names = dict.fromkeys([*(observed.get("failed") or ()), *(observed.get("unknown") or ())])
    return [name for name in names if not any(step.startswith(_BY.get(name, ())) for step in steps)]
