# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of observing and proving, one set for the modules and for the host tool's configuration file."""

from __future__ import annotations

import posixpath
import typing as t

from .._base.model import NpuError
from .._base.records import dataclass
from .._base.vendor import VendorProfile
from .._cdi.options import CdiOptions, default_path
from .._checks.prove import Rules
from .._checks.run import SCOPES
from .._runtime.base import NAMES, RuntimeOptions

TIMEOUT = 10.0

# As AnsibleModule wants it. The host tool checks its file against the same table.
ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "scopes": {"type": "list", "elements": "str", "choices": list(SCOPES), "default": ["driver", "toolkit"]},
    "driver_version": {"type": "str"},
    "firmware_version": {"type": "str"},
    "library_version": {"type": "str"},
    "expected_addresses": {"type": "list", "elements": "str", "default": []},
    "expected_devices": {"type": "int"},
    "node_allocatable": {"type": "raw"},
    "expected_allocatable": {"type": "int"},
    "resource_name": {"type": "str"},
    "containers_before": {"type": "list", "elements": "dict", "default": []},
    "blocking": {"type": "list", "elements": "str", "default": ["error"]},
    "unknown_blocks": {"type": "bool", "default": True},
    "no_runtime": {"type": "str", "choices": ["fail", "warn", "ignore"], "default": "fail"},
    "runtimes": {"type": "list", "elements": "str", "choices": list(NAMES), "default": []},
    "kubelet_endpoint": {"type": "str", "default": ""},
    "runtime_config_file": {"type": "str", "default": ""},
    "runtime_dropin_dir": {"type": "str", "default": ""},
    "runtime_socket": {"type": "str", "default": ""},
    "runtime_unit": {"type": "str", "default": ""},
    "cdi": {"type": "dict", "default": {}},
    "cdi_path": {"type": "str"},
    "ready_host_root": {"type": "str", "default": "/host"},
    "timeout": {"type": "float", "default": TIMEOUT},
    "root": {"type": "str", "default": "/"},
}

WANTED = (
    "driver_version",
    "firmware_version",
    "library_version",
    "expected_addresses",
    "expected_devices",
    "node_allocatable",
    "expected_allocatable",
    "resource_name",
    "containers_before",
    "no_runtime",
)

_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,), "int": (int,), "bool": (bool,), "float": (int, float), "list": (list,), "dict": (dict,),
    "raw": (object,),
}  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """Options sorted by who reads them."""

    facts: t.Mapping[str, t.Any]
    runtimes: RuntimeOptions
    cdi: CdiOptions
    cdi_path: str
    wanted: t.Mapping[str, t.Any]
    rules: Rules


def merge(params: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """A module's parameters that are in ARGUMENTS, with those in its `options` winning."""
    return dict({key: value for key, value in params.items() if key in ARGUMENTS}, **(params.get("options") or {}))


def complete(given: t.Mapping[str, t.Any], where: str) -> dict[str, t.Any]:
    """`given` with the defaults of ARGUMENTS. NpuError names `where` and the key that is unknown or wrong."""
    for key, value in given.items():
        if key not in ARGUMENTS:
            raise NpuError("%s: %r is not an option." % (where, key), "Use one of: %s." % ", ".join(sorted(ARGUMENTS)))
        wanted = ARGUMENTS[key]["type"]
        fits = isinstance(value, _TYPES[wanted]) and (wanted in ("bool", "raw") or not isinstance(value, bool))
        if value is not None and not fits:
            raise NpuError(
                "%s: %s is %r, which is not of the type %s." % (where, key, value, wanted),
                "Correct the value; quote a version.",
            )
        for item in value if isinstance(value, list) else [value]:
            if value is not None and "choices" in ARGUMENTS[key] and item not in ARGUMENTS[key]["choices"]:
                raise NpuError(
                    "%s: %s has the value %r, which is not allowed." % (where, key, item),
                    "Use: %s." % ", ".join(ARGUMENTS[key]["choices"]),
                )
    return {
        key: given.get(key) if given.get(key) is not None else entry.get("default") for key, entry in ARGUMENTS.items()
    }


def read_settings(
    profile: VendorProfile, params: t.Mapping[str, t.Any], markers: str = "keep", dry: bool = False
) -> Settings:
    """Settings from complete parameters. NpuError when the options of CDI or of a runtime are wrong."""
    cdi = dict(params["cdi"] or {})
    path = cdi.pop("path", None) or params["cdi_path"] or default_path(profile)
    options = CdiOptions.read(cdi)
    return Settings(
        facts={
            "smi_timeout": params["timeout"],
            "command_timeout": params["timeout"],
            "expected_addresses": params["expected_addresses"],
        },
        runtimes=RuntimeOptions.read(
            params,
            spec_dir=posixpath.dirname(path),
            file_stem=profile.cdi_file_stem,
            state_dir=profile.state_dir,
            timeout=params["timeout"],
        ),
        cdi=options,
        cdi_path=path,
        wanted={key: params[key] for key in WANTED},
        rules=Rules(
            scopes=params["scopes"],
            blocking=params["blocking"],
            unknown_blocks=params["unknown_blocks"],
            markers=markers,
            host_root=params["ready_host_root"],
            library_path=options.container_library_path,
            dry=dry,
        ),
    )
