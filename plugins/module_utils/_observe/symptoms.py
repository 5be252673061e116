# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host shows besides its NPUs when something is wrong: clock, space, names, proxies, units, locks.

Reads only.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import socket
import time
import typing as t
from urllib.parse import urlsplit

from .._base.mask import mask
from .._base.rebellions import PROFILE
from .._host.apart import Keep, Outcome, apart
from .._host.handles import find_open
from .._host.host import Host, Probe
from .._host.probe import ABSENT, FAILED, TIMEOUT, VALUE
from .._host.proc import ProcessTable
from .._host.systemd import ask_units

# Where an installation, a runtime or a kubelet writes.
PATHS = ("/", "/tmp", "/var", "/usr", "/boot", "/run", "/var/lib/kubelet", "/var/lib/containerd", "/var/lib/docker")
# Held by apt and dpkg, by dnf and rpm, while they work.
LOCKS = (
    "/var/lib/dpkg/lock-frontend",
    "/var/lib/dpkg/lock",
    "/var/lib/apt/lists/lock",
    "/var/lib/rpm/.rpm.lock",
    "/usr/lib/sysimage/rpm/.rpm.lock",
)
PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy")
# Exit code of getent for a name that nothing knows.
NOT_FOUND = 2

Data = t.Dict[str, t.Any]


def symptoms(
    host: Host, names: t.Sequence[str], units: t.Sequence[str], devices: t.Sequence[str], timeout: float
) -> Data:
    """One look.

    `names` are resolved by the host, `units` asked of systemd with the proxies of their processes, `devices` are files
    whose users are named. The keys are those of the module's answer; `clock` is in seconds of the epoch.
    """
    asked = ask_units(host, list(units), timeout)
    found = asked.get({})
    disk, hung = _spaces(host, timeout)
    holders = find_open(host, (*LOCKS, *devices))
    return {
        "clock": time.time(),
        "disk": disk,
        "hung": hung,
        "names": {name: _resolved(host, name, timeout).to_dict() for name in names},
        "units": {name: unit.active_state for name, unit in found.items() if unit.loaded},
        "proxies": _proxies(host, {name: unit.main_pid for name, unit in found.items()}, timeout),
        "locked_by": _named(holders, LOCKS),
        # The driver's own daemon ends with the driver.
        "used_by": _named((one for one in holders if one.unit not in PROFILE.daemon_units), devices),
    }


def _spaces(host: Host, timeout: float) -> tuple[list[Data], list[str]]:
    """(PATHS, each file system once; those that do not answer): one of a server that is away hangs whoever asks."""
    found: dict[int, Data] = {}
    hung: list[str] = []
    left = list(PATHS)
    while left:
        outcome = apart(functools.partial(_space, host, left), timeout, Keep(64 * 1024))
        lines = outcome.data.splitlines()
        for one in filter(None, map(json.loads, lines)):
            found.setdefault(one.pop("device"), one)
        left = left[len(lines) :]
        if left and outcome.state == TIMEOUT:
            hung.append(left[0])
        left = left[1:]
    return list(found.values()), hung


def _space(host: Host, paths: t.Sequence[str], write: t.Callable[[bytes], t.Any]) -> Outcome:
    """A line for each of the paths, as soon as it has answered; null where there is none."""
    for path in paths:
        seen = host.stat(path)
        told: Data | None = None
        if seen.ok:
            with contextlib.suppress(OSError):
                info = os.statvfs(host.real(path))
                told = {
                    "device": seen.value.device,
                    "path": path,
                    "size": info.f_blocks * info.f_frsize,
                    "free": info.f_bavail * info.f_frsize,
                    # Some file systems count no inodes.
                    "inodes": info.f_files,
                    "inodes_free": info.f_favail,
                    "read_only": bool(info.f_flag & os.ST_RDONLY),
                }
        write(json.dumps(told).encode() + b"\n")
    return Outcome(VALUE)


def _resolved(host: Host, name: str, timeout: float) -> Probe:
    """Whether the host knows an address of a name, by all that its resolver asks."""
    done = host.run(["getent", "ahosts", name], timeout)
    if done.state == ABSENT:
        # It is getent that is not there: of the name nothing is known.
        return Probe(FAILED, None, done.detail)
    if not done.ok or not done.value.rc:
        return done
    if done.value.rc == NOT_FOUND:
        return Probe("absent", None, "the resolver knows no address of %s" % name)
    return Probe("failed", None, "getent ended with %d: %s" % (done.value.rc, done.value.err.strip()[:200]))


def _proxies(host: Host, pids: t.Mapping[str, int], timeout: float) -> list[Data]:
    """The proxies that running services were started with, each with whether something answers there."""
    processes, found = ProcessTable(host), []
    for unit, pid in pids.items():
        given = processes.variables(pid, PROXIES) if pid else {}
        for address in sorted({_address(value) for value in given.values()} - {""}):
            found.append({"unit": unit, "address": address, **_reached(address, timeout).to_dict()})
    return found


def _address(proxy: str) -> str:
    """host:port of a proxy, without a user and a password; empty for what is none."""
    scheme, _mark, rest = (proxy if "//" in proxy else "//" + proxy).partition("//")
    try:
        # A password may have any sign.
        parts = urlsplit("%s//%s" % (scheme, rest.rpartition("@")[2]))
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return ""
    return "%s:%d" % (parts.hostname, port) if parts.hostname else ""


def _reached(address: str, timeout: float) -> Probe:
    name, _colon, port = address.rpartition(":")
    try:
        socket.create_connection((name, int(port)), timeout).close()
    except socket.timeout:
        return Probe("timeout", None, "no answer in %g s" % timeout)
    except OSError as exc:
        return Probe("failed", None, mask(exc.strerror or str(exc)))
    return Probe("value", True)


def _named(holders: t.Iterable[t.Any], paths: t.Sequence[str]) -> list[str]:
    """`program (pid N)` of those who have one of the files open."""
    wanted = set(paths)
    found = {
        "%s (pid %d)" % (re.sub(r"[^\w.:+-]", "", holder.name)[:40], holder.pid or 0)
        for holder in holders
        if wanted.intersection(holder.nodes)
    }
    return sorted(found)
