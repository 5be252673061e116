# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a second look asks of a host, by what the first has found and by the inputs. Pure."""

from __future__ import annotations

import ipaddress
import typing as t
from urllib.parse import urlsplit

from .._objects.names import INPUT, SHORT

Data = t.Mapping[str, t.Any]


def asked_of(facts: Data) -> dict[str, t.Any]:
    """The services and the device nodes of an observation; nothing of a host that was not observed."""
    runtimes = facts.get(INPUT + "runtimes") or {}
    units = [(runtimes.get("kubelet") or {}).get("unit")]
    units += [one.get("unit") for one in runtimes.get("runtimes") or () if one.get("selected")]
    nodes = [node["path"] for node in (facts.get(SHORT) or {}).get("device_nodes") or () if node.get("kind") == "char"]
    return {"units": list(dict.fromkeys(filter(None, units))), "devices": nodes}


def asked_names(repository: t.Any, registry: t.Any) -> list[str]:
    """The names in the address of the driver's repository and in the prefix of images; an address is no name."""
    address = str(repository.get("url") or "") if isinstance(repository, t.Mapping) else ""
    found = [_host_in(address), _host_in("//" + str(registry or "").partition("/")[0])]
    return list(dict.fromkeys(name for name in found if name and not _is_address(name)))


def _host_in(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        # The run that uses it says what is wrong with it.
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def skew(clock: float, before: float, after: float) -> float:
    """Seconds by which a clock that was read between two times is surely ahead of ours; negative where it is behind."""
    if clock > after:
        return round(clock - after, 3)
    return round(clock - before, 3) if clock < before else 0.0
