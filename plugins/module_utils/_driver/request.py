# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a change of the driver is asked for, and how the new driver is validated before the change ends."""

from __future__ import annotations

import typing as t

from .._base.model import NpuError
from .._base.records import dataclass, fields


class Unfit(NpuError):
    """The driver is installed, and its validation failed."""


class DriverValidation:
    """Validates the loaded driver. failed() names the blocking checks that do not pass; prove() raises Unfit."""

    def failed(self) -> list[str]:
        raise NotImplementedError

    def prove(self, version: str | None, accepted: t.Collection[str] = ()) -> None:
        raise NotImplementedError


PRESENT = "present"
ABSENT = "absent"
RUNFILE = "runfile"
PACKAGE = "package"
REFUSE = "refuse"
WAIT = "wait"
STOP = "stop"

# For AnsibleModule. `source` has no default: the caller sets it, or the action plugin takes it from the plan.
ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "state": {"type": "str", "choices": [PRESENT, ABSENT], "default": PRESENT},
    "source": {"type": "str", "choices": [RUNFILE, PACKAGE]},
    "version": {"type": "str", "default": ""},
    "files": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {"path": {"type": "path", "required": True}, "sha256": {"type": "str", "required": True}},
    },
    "names": {"type": "list", "elements": "str", "default": []},
    "absent": {"type": "list", "elements": "str", "default": []},
    # These may hold a licence key. The module shows them again, without secrets.
    "arguments": {"type": "list", "elements": "str", "default": [], "no_log": True},
    "uninstall": {"type": "list", "elements": "str", "default": [], "no_log": True},
    "extract": {"type": "list", "elements": "str", "default": [], "no_log": True},
    "log": {"type": "path", "default": ""},
    "temporary_directory": {"type": "path", "default": ""},
    "packages": {"type": "list", "elements": "str", "default": []},
    "allowed": {"type": "list", "elements": "str", "default": []},
    "repair": {"type": "bool", "default": False},
    "prerequisites": {"type": "list", "elements": "str", "default": []},
    "kernels": {"type": "list", "elements": "str", "default": []},
    "install": {"type": "bool", "default": True},
    "reload": {"type": "bool", "default": False},
    "hold": {"type": "bool", "default": True},
    "hold_kernel": {"type": "list", "elements": "str", "default": []},
    "in_use": {"type": "str", "choices": [REFUSE, WAIT, STOP], "default": REFUSE},
    "in_use_timeout": {"type": "float", "default": 600.0},
    "drained": {"type": "list", "elements": "str", "default": []},
    "services": {"type": "list", "elements": "str", "default": []},
    "load_timeout": {"type": "float", "default": 120.0},
    "timeout": {"type": "float", "default": 1800.0},
    "reboot_allowed": {"type": "bool", "default": False},
    "rollback": {"type": "bool", "default": True},
    "keep": {"type": "int", "default": 2},
    "firmware": {"type": "path", "default": ""},
    "bundle": {"type": "path", "default": ""},
    "by": {"type": "str", "default": ""},
    "look": {"type": "bool", "default": False},
    "notes_only": {"type": "bool", "default": False},
}


@dataclass(frozen=True)
class Request:
    """The parameters of the module with the defaults above; its documentation explains them."""

    state: str = PRESENT
    source: str = RUNFILE
    version: str = ""
    files: t.Sequence[t.Mapping[str, str]] = ()
    names: t.Sequence[str] = ()
    absent: t.Sequence[str] = ()
    arguments: t.Sequence[str] = ()
    uninstall: t.Sequence[str] = ()
    extract: t.Sequence[str] = ()
    log: str = ""
    temporary_directory: str = ""
    packages: t.Sequence[str] = ()
    allowed: t.Sequence[str] = ()
    repair: bool = False
    prerequisites: t.Sequence[str] = ()
    kernels: t.Sequence[str] = ()
    install: bool = True
    reload: bool = False
    hold: bool = True
    hold_kernel: t.Sequence[str] = ()
    in_use: str = REFUSE
    in_use_timeout: float = 600.0
    drained: t.Sequence[str] = ()
    services: t.Sequence[str] = ()
    load_timeout: float = 120.0
    timeout: float = 1800.0
    reboot_allowed: bool = False
    rollback: bool = True
    keep: int = 2
    firmware: str = ""
    bundle: str = ""
    by: str = ""
    look: bool = False
    notes_only: bool = False

    @classmethod
    def read(cls, params: t.Mapping[str, t.Any]) -> Request:
        """Build it from the parameters of the module; unknown ones are ignored."""
        return cls(**{item.name: params[item.name] for item in fields(cls) if params.get(item.name) is not None})

    @property
    def sha256(self) -> str:
        """Digest of the only file, else empty; a refused file is noted by it."""
        return str(self.files[0]["sha256"]).lower() if len(self.files) == 1 else ""
