# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a *running* container runtime says of CDI, asked over its own socket.

containerd: CRI Status with verbose on (the only call that shows the configuration of the process). docker: GET /info
(CDISpecDirs since 25, DiscoveredDevices since 28.3). cri-o: GET /config. podman has no process: every call reads the
files.
"""

from __future__ import annotations

import json
import re
import typing as t

from .._base.regex import regex
from .._base.versions import release_numbers
from .._host.host import ABSENT, VALUE, Host, Probe
from . import grpc

# The API runtime.v1 of containerd.
CRI_V1_SINCE = (1, 6)
CRI_STATUS = "/runtime.v1.RuntimeService/Status"
VERBOSE = b"\x08\x01"
CONTAINERD_VERSION = "/containerd.services.version.v1.Version/Version"
VERSION_TIMEOUT = 2.0
Data = t.Mapping[str, t.Any]
_ID = regex(r"[A-Za-z0-9_.-]+\Z")


def http_get(path: str, target: str, timeout: float = 5.0) -> Probe:
    """Probe of the body text of GET `target` over the Unix socket at `path`; any status but 200 is failed."""
    # Imported here because it costs as much as the rest of the look, and most hosts have no runtime that speaks HTTP.
    from .unix_http import http_get as get

    return get(path, target, timeout)


def read_cri_status(message: bytes) -> dict[str, t.Any]:
    """enabled and spec_dirs from a verbose CRI StatusResponse.

    containerd before 1.7 knows no such keys: CDI is off there.
    """
    for number, value in grpc.fields(message):
        if number != 2 or not isinstance(value, bytes):
            continue
        entry = dict(grpc.fields(value))
        if entry.get(1) == b"config":
            config = _object(t.cast(bytes, entry.get(2, b"")).decode("utf-8", "replace"))
            dirs = _texts(config, "cdiSpecDirs")
            enabled = config.get("enableCDI")
            if not isinstance(enabled, (bool, type(None))):
                raise ValueError("enableCDI is neither true nor false")
            return {
                "enabled": bool(dirs) if enabled is None else enabled,
                "spec_dirs": dirs,
                "devices": None,
                "source": "CRI Status of the running process",
            }
    raise ValueError("the CRI status shows no configuration")


def read_docker_info(text: str) -> dict[str, t.Any]:
    """enabled, spec_dirs and devices from docker's /info.

    Before 25 the key is not there: not known is not off, so ValueError.
    """
    info = _object(text)
    if "CDISpecDirs" not in info:
        raise ValueError(
            "this docker (%s) does not show its CDI directories" % info.get("ServerVersion", "version not known")
        )
    found = info.get("DiscoveredDevices")
    devices = None if found is None else [str(item.get("ID")) for item in found if item.get("Source") == "cdi"]
    dirs = _texts(info, "CDISpecDirs")
    return {"enabled": bool(dirs), "spec_dirs": dirs, "devices": devices, "source": "GET /info of the running daemon"}


def read_crio_config(text: str) -> dict[str, t.Any]:
    """spec_dirs from the TOML that cri-o gives for GET /config. cri-o has CDI always on."""
    match = re.search(r"(?m)^\s*cdi_spec_dirs\s*=\s*\[([^\]]*)\]", text)
    if not match:
        raise ValueError("cri-o's configuration shows no cdi_spec_dirs")
    dirs = re.findall(r'"((?:[^"\\]|\\.)*)"', match.group(1))
    return {"enabled": True, "spec_dirs": dirs, "devices": None, "source": "GET /config of the running daemon"}


def is_stopped(runtime: Data) -> bool:
    """Whether systemd says that the unit of a runtime is stopped; podman has no process.

    Its socket may be there: systemd holds that of docker, and starts docker for whoever connects (docker/cli 3780).
    """
    return (
        runtime.get("name") != "podman"
        and runtime.get("process_started") is None
        and runtime.get("unit_state") in ("inactive", "failed")
    )


def ask(host: Host, runtime: Data, timeout: float = 5.0) -> Probe:
    """Probe of {enabled: bool, spec_dirs: [path], devices: [CDI name] or None, source} for one runtime.

    One that is stopped is not asked.
    """
    name = runtime.get("name")
    if name == "podman":
        return Probe(
            VALUE,
            {
                "enabled": True,
                "spec_dirs": list((runtime.get("cdi") or {}).get("spec_dirs") or []),
                "devices": None,
                "source": "podman has no process: every call reads the files",
            },
        )
    if is_stopped(runtime):
        return Probe(ABSENT, None, "%s is stopped" % name)
    if not runtime.get("socket"):
        return Probe(ABSENT, None, "no socket of %s is known" % name)
    where = host.resolve(str(runtime["socket"]))
    if not where.ok:
        return Probe(where.state, None, "%s: %s" % (runtime["socket"], where.detail))
    path = host.real(where.value)
    if name == "containerd":
        return grpc.call(path, CRI_STATUS, VERBOSE, timeout).map(read_cri_status)
    if name == "docker":
        return http_get(path, "/info", timeout).map(read_docker_info)
    if name == "cri-o":
        return http_get(path, "/config", timeout).map(read_crio_config)
    return Probe(ABSENT, None, "no way to ask %s is known" % name)


def answers(host: Host, runtime: Data, timeout: float = 5.0) -> bool | None:
    """Whether a runtime answers over its socket; of containerd its CRI plugin. None where that cannot be expected."""
    name, release = runtime.get("name"), release_numbers(runtime.get("version"))
    if name == "containerd" and (runtime.get("cri_enabled") is False or not release or release < CRI_V1_SINCE):
        return None
    where = host.resolve(str(runtime.get("socket") or ""))
    if name == "podman" or not runtime.get("socket"):
        return None
    if is_stopped(runtime):
        return False
    path = host.real(where.value) if where.ok else ""
    if name == "docker":
        return bool(path) and http_get(path, "/_ping", timeout).ok
    return bool(path) and grpc.call(path, CRI_STATUS, VERBOSE, timeout).ok


def containerd_version(path: str, pid: int) -> str | None:
    """The version that the containerd of this PID tells at the socket `path`, also without its CRI plugin.

    None where it does not answer at once, or the socket is another's.
    """
    asked = grpc.call(path, CONTAINERD_VERSION, b"", VERSION_TIMEOUT, pid)
    text = asked.map(lambda message: t.cast(bytes, dict(grpc.fields(message))[1]).decode("utf-8", "replace"))
    return str(text.value) if text.ok else None


def docker_containers(path: str, prefix: str, timeout: float = 5.0) -> Probe:
    """Probe of [{name, running, restart, devices}] of docker containers that request CDI devices with `prefix`."""
    listing = http_get(path, "/containers/json?all=1", timeout).map(_ids)
    if not listing.ok:
        return listing
    found = []
    for identity in listing.value:
        one = http_get(path, "/containers/%s/json" % identity, timeout).map(lambda text: _container(text, prefix))
        if one.get():
            found.append(one.value)
    return Probe(VALUE, sorted(found, key=lambda entry: str(entry["name"])))


def _container(text: str, prefix: str) -> dict[str, t.Any] | None:
    one = _object(text)
    settings = one.get("HostConfig") or {}
    names = [
        str(device)
        for wish in settings.get("DeviceRequests") or []
        for device in wish.get("DeviceIDs") or []
        if str(device).startswith(prefix)
    ]
    if not names:
        return None
    return {
        "name": str(one.get("Name", "")).lstrip("/"),
        "running": bool((one.get("State") or {}).get("Running")),
        "restart": str((settings.get("RestartPolicy") or {}).get("Name") or "no"),
        "devices": names,
    }


def _texts(data: Data, key: str) -> list[str]:
    """A list of texts; null and absent are an empty one. ValueError for anything else."""
    found = data.get(key)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise ValueError("%s is not a list of texts" % key)
    return list(found)


def _object(text: str) -> dict[str, t.Any]:
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError("the answer is not an object")
    return data


def _ids(text: str) -> list[str]:
    data = json.loads(text)
    if not isinstance(data, list) or not all(_ID.match(str(item["Id"])) for item in data):
        raise ValueError("the answer is not a list of containers")
    return [str(item["Id"]) for item in data]
