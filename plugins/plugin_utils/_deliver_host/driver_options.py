# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of the driver module, derived from the plan of a host in one place."""

from __future__ import annotations

import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._driver.request import ABSENT, PACKAGE, RUNFILE
from ansible_collections.rebellions.npu.plugins.plugin_utils._plan.support import (
    BUILD_STEP,
    HOLD_STEP,
    PREREQUISITES_STEP,
)

Data = t.Mapping[str, t.Any]

# {option of the module: input of the role, without the role's name}
COMMON = {
    "uninstall": "runfile_uninstall",
    "log": "runfile_log",
    "temporary_directory": "temporary_directory",
    "in_use": "in_use",
    "in_use_timeout": "in_use_timeout",
    "services": "services",
    "load_timeout": "load_timeout",
    "timeout": "timeout",
    "bundle": "bundle",
    "repair": "package_repair",
}
CHANGE = {
    "version": "version",
    "arguments": "runfile_args",
    "extract": "runfile_extract",
    "packages": "runfile_packages",
    "allowed": "package_allowed",
    "hold": "hold",
    "rollback": "rollback",
    "keep": "keep",
}
REMOVAL = {"absent": "package_absent"}
# {option of the module: step of the plan whose `wanted` it gets}
STEPS = {"prerequisites": PREREQUISITES_STEP, "kernels": BUILD_STEP, "hold_kernel": HOLD_STEP}


def driver_options(role: str, plan: Data, given: Data) -> dict[str, t.Any]:
    """Options that carry out the plan; those in `given` win. NpuError when `plan` is not a plan."""
    try:
        found = _from_plan(role, plan, given)
    except (KeyError, TypeError, AttributeError) as exc:
        raise NpuError(
            "plan is not a plan of this collection: %s is missing or has another type." % exc,
            "Pass the registered result of the plan module.",
        ) from exc
    found.update(given)
    if found.get("state") != ABSENT and not found["install"]:
        # Files of an earlier pass may still be registered; they are not for this one.
        found["files"] = []
    return found


def _from_plan(role: str, plan: Data, given: Data) -> dict[str, t.Any]:
    wanted, acts = plan["wanted"], plan["acts"]["driver"]

    def value(name: str) -> t.Any:
        return wanted["%s_%s" % (role, name)]

    source = value("source")
    removal = given.get("state") == ABSENT
    found = {option: value(name) for option, name in {**COMMON, **(REMOVAL if removal else CHANGE)}.items()}
    found.update(source=RUNFILE if source == RUNFILE else PACKAGE, options=plan["options"])
    if removal:
        return dict(found, install=False)
    found.update({option: _wanted(plan, step) for option, step in STEPS.items()})
    return dict(
        found,
        install="install" in acts,
        reload="reload" in acts,
        names=value("package_names") if source == PACKAGE else [],
        reboot_allowed=value("reboot") != "never",
        firmware=value("firmware_dir") if "firmware" in acts else "",
    )


def _wanted(plan: Data, step: str) -> list[str]:
    return [item for row in plan["steps"] if row["id"] == step for item in row["wanted"]]
