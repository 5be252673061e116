# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What package managers have logged since a moment, and which files are newer. Reads files alone."""

from __future__ import annotations

import datetime
import pwd
import re
import time
import typing as t
import zlib

from .._base.mask import mask
from .._host.host import Host

# The ends of the logs: the last one and the one that was rotated before it, which Debian packs.
APT = ("/var/log/apt/history.log.1.gz", "/var/log/apt/history.log.1", "/var/log/apt/history.log")
DNF = ("/var/log/dnf.rpm.log.1", "/var/log/dnf.rpm.log", "/var/log/dnf5.log.1", "/var/log/dnf5.log")
# Bytes of a log, and transactions and names that are told.
LARGEST, MOST, NAMES = 8 * 1024 * 1024, 50, 200
APT_ACTS = ("Install", "Upgrade", "Downgrade", "Reinstall", "Remove", "Purge")
_NAME = re.compile(r"([a-z0-9][a-z0-9+.-]*)(?::[a-z0-9-]+)? \(")
_RPM = re.compile(
    r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(Z|[+-]\d\d:?\d\d) .*?"
    r"\b(?:Installed|Upgraded?|Downgraded?|Reinstalled?|Removed?|Erased?|Obsoleted?): "
    r"([A-Za-z0-9][A-Za-z0-9+._-]*?)-(?:\d+:)?[^-\s]+-[^-\s]+\s*$"
)

Entry = t.Dict[str, t.Any]


def package_changes(host: Host, since: float) -> list[Entry]:
    """[{time, log, command, by, packages}] of all transactions that ended after `since`, oldest first."""
    found = [entry for path in APT for entry in apt_entries(_log(host, path), path)]
    found += [entry for path in DNF for entry in rpm_entries(_log(host, path), path)]
    newer = sorted((entry for entry in found if entry["time"] > since), key=lambda entry: entry["time"])
    return newer[-MOST:]


def _log(host: Host, path: str) -> str:
    data = bytes(host.read_bytes(path, LARGEST).get(b""))
    if path.endswith(".gz"):
        try:
            data = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(data, LARGEST)
        except zlib.error:
            return ""
    return data.decode("utf-8", "replace")


def apt_entries(text: str, path: str) -> list[Entry]:
    """The transactions of apt's history. Its times are those of the host's clock, without their zone."""
    found = []
    for part in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in part.splitlines() if ": " in line)
        try:
            ended = time.mktime(time.strptime(fields.get("End-Date", ""), "%Y-%m-%d %H:%M:%S"))
        except (ValueError, OverflowError):
            continue
        packages = [name for act in APT_ACTS for name in _NAME.findall(fields.get(act, ""))]
        found.append(
            {
                "time": ended,
                "log": path,
                "command": mask(fields.get("Commandline", ""))[:300],
                "by": fields.get("Requested-By", "").partition(" (")[0][:64],
                "packages": packages[:NAMES],
            }
        )
    return found


def rpm_entries(text: str, path: str) -> list[Entry]:
    """The packages of dnf's log, those of one second together."""
    found: dict[float, Entry] = {}
    for line in text.splitlines():
        match = _RPM.match(line)
        if match is None:
            continue
        zone = "+0000" if match.group(2) == "Z" else match.group(2).replace(":", "")
        at = datetime.datetime.strptime(match.group(1) + zone, "%Y-%m-%dT%H:%M:%S%z").timestamp()
        entry = found.setdefault(at, {"time": at, "log": path, "command": "", "by": "", "packages": []})
        if match.group(3) not in entry["packages"] and len(entry["packages"]) < NAMES:
            entry["packages"].append(match.group(3))
    return list(found.values())


def newer_files(host: Host, paths: t.Sequence[str], since: float) -> list[Entry]:
    """[{path, time, owner}] of the files among `paths` that were written after `since`, oldest first."""
    found = []
    for path in paths:
        stat = host.stat(path)
        if stat.ok and stat.value.kind == "file" and stat.value.mtime > since:
            found.append({"path": path, "time": stat.value.mtime, "owner": _user(stat.value.uid)})
    return sorted(found, key=lambda entry: t.cast("float", entry["time"]))


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
