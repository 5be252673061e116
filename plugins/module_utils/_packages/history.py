# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What package managers have logged since a moment, and which files are newer. Reads files alone."""

from __future__ import annotations

import datetime
import posixpath
import pwd
import re
import time
import typing as t
import zlib

from .._base.mask import mask
from .._host.host import Host
from .._host.probe import ABSENT, FAILED, VALUE, Probe

# The programs of a package manager, and its logs; apt comes after dpkg, of which it tells the command.
APT = (("/usr/bin/apt-get",), ("/var/log/dpkg.log", "/var/log/apt/history.log"))
DNF = (("/usr/bin/dnf", "/usr/bin/dnf5"), ("/var/log/dnf.rpm.log", "/var/log/dnf5.log"))
# Where rpm writes whatever asks it. dnf logs only what it has done itself.
RPM = ("/var/lib/rpm/rpmdb.sqlite", "/usr/lib/sysimage/rpm/rpmdb.sqlite", "/var/lib/rpm/Packages")
# Logs that were rotated: by number or by date, packed or not.
_ROTATED = re.compile(r"[.-]\d[\d._-]*(?:\.(?:gz|xz|bz2|zst|lz4|Z))?")
PACKED = (".xz", ".bz2", ".zst", ".lz4", ".Z")
# Seconds for which rpm writes after dnf's last line, and between two packages of one transaction.
LATE, PAUSE = 900, 60
# Bytes of a log, and transactions and names that are told.
LARGEST, MOST, NAMES = 8 * 1024 * 1024, 50, 4000
APT_ACTS = ("Install", "Upgrade", "Downgrade", "Reinstall", "Remove", "Purge")
_DPKG = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:install|upgrade|remove|purge) ([a-z0-9][a-z0-9+.-]*)[: ]")
_NAME = re.compile(r"([a-z0-9][a-z0-9+.-]*)(?::[a-z0-9-]+)? \(")
_RPM = re.compile(
    r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(Z|[+-]\d\d:?\d\d) .*?"
    r"\b(?:Installed|Upgraded?|Downgraded?|Reinstalled?|Removed?|Erased?|Obsoleted?): "
    r"([A-Za-z0-9][A-Za-z0-9+._-]*?)-(?:\d+:)?[^-\s]+-[^-\s]+\s*$"
)

Entry = t.Dict[str, t.Any]


def package_changes(host: Host, since: float) -> tuple[list[Entry], list[Entry]]:
    """(all transactions that ended after `since`, oldest first; what could not be read of them).

    The first are [{time, log, command, by, packages}], the others [{path, reason}]. Without an unread log no other
    package was changed.
    """
    found: list[Entry] = []
    unread: list[Entry] = []
    there = [one for one in (APT, DNF) if any(host.stat(program).ok for program in one[0])]
    for one in there or (APT, DNF):
        entries, states = [], []
        for log in one[1]:
            listed = host.listdir(posixpath.dirname(log))
            unread += _unread(posixpath.dirname(log), listed)
            for path in _files_of(log, listed.get([])):
                read = _log(host, path, since)
                states.append(read.state)
                entries += _entries(read.get(""), log, path)
                unread += _unread(path, read)
        if set(states) == {ABSENT}:
            unread.append({"path": one[1][0], "reason": "no log of this package manager is there"})
        if one is DNF:
            unread += _past_logs(host, since, max((entry["time"] for entry in entries), default=0.0))
        found += _together([entry for entry in entries if entry["time"] > since])
    newer = sorted(found, key=_time)
    return newer[-MOST:], unread + _left_out(newer)


def _time(entry: Entry) -> float:
    return t.cast("float", entry["time"])


def _is_whole(entry: Entry) -> bool:
    return bool(entry["command"] or entry["by"])


def _together(entries: t.Iterable[Entry]) -> list[Entry]:
    """The entries with those that are one transaction as one: dpkg and rpm log each package by its second."""
    found: list[Entry] = []
    last: dict[str, Entry] = {}
    for one in sorted(entries, key=_time):
        whole = last.get(one["log"])
        # Those of apt have a command, or who has asked for them, and are whole.
        if whole is None or _is_whole(whole) or _is_whole(one) or one["time"] - whole["time"] > PAUSE:
            last[one["log"]] = whole = {**one, "packages": []}
            found.append(whole)
        names = dict.fromkeys([*whole["packages"], *one["packages"]])
        whole.update(time=one["time"], packages=list(names)[:NAMES])
    return found


def _files_of(log: str, names: t.Iterable[str]) -> list[str]:
    """A log after those that were rotated, out of the names in its directory."""
    folder, own = posixpath.split(log)
    rotated = [name for name in names if name.startswith(own) and _ROTATED.fullmatch(name[len(own) :])]
    return [*(posixpath.join(folder, name) for name in rotated), log]


def _left_out(newer: t.Sequence[Entry]) -> list[Entry]:
    """Which logs have told more than is told on: what is left out may be what is asked for."""
    cut = [*newer[:-MOST], *(entry for entry in newer[-MOST:] if len(entry["packages"]) >= NAMES)]
    return [{"path": path, "reason": "it has too many changes"} for path in dict.fromkeys(one["log"] for one in cut)]


def _log(host: Host, path: str, since: float) -> Probe:
    """The text of a log; empty where its last line is older than `since`."""
    stat = host.stat(path)
    if not stat.ok:
        return stat
    if stat.value.mtime <= since:
        return Probe(VALUE, "")
    if path.endswith(PACKED):
        return Probe(FAILED, None, "it is packed in a way that is not read")
    data = host.read_bytes(path, LARGEST)
    if path.endswith(".gz"):
        data = data.map(_unpacked)
    return data.map(lambda told: bytes(told).decode("utf-8", "replace"))


def _unpacked(data: bytes) -> bytes:
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        told = unpacker.decompress(data, LARGEST)
    except zlib.error as exc:
        raise ValueError("it is damaged: %s" % exc) from None
    if not unpacker.eof:
        raise ValueError("it is cut off, or unpacks to more than %d bytes" % LARGEST)
    return told


def _entries(text: str, log: str, path: str) -> list[Entry]:
    read = apt_entries if log == APT[1][-1] else dpkg_entries if log in APT[1] else rpm_entries
    return read(text, path)


def _unread(path: str, read: Probe) -> list[Entry]:
    if read.ok or read.state == ABSENT:
        return []
    word = "" if read.state == FAILED else read.state.replace("_", " ") + ": "
    return [{"path": path, "reason": mask(word + (read.detail or "it cannot be read"))[:300]}]


def _past_logs(host: Host, since: float, last: float) -> list[Entry]:
    """The database of rpm where it was written after `since` and after the last line of the logs."""
    for path in RPM:
        stat = host.stat(path)
        if stat.ok and stat.value.mtime > max(since, last + LATE):
            return [{"path": path, "reason": "rpm has written it, and no log of dnf tells of that"}]
    return []


def dpkg_entries(text: str, path: str) -> list[Entry]:
    """The packages of dpkg's log, those of one second together. Its times are those of the host's clock."""
    found: dict[str, Entry] = {}
    for line in text.splitlines():
        match = _DPKG.match(line)
        at = _local(match.group(1)) if match else None
        if match is None or at is None:
            continue
        entry = found.setdefault(match.group(1), {"time": at, "log": path, "command": "", "by": "", "packages": []})
        if match.group(2) not in entry["packages"] and len(entry["packages"]) < NAMES:
            entry["packages"].append(match.group(2))
    return list(found.values())


def _local(stamp: str) -> float | None:
    """A time of the host's clock without its zone; None for no time."""
    try:
        return time.mktime(time.strptime(stamp, "%Y-%m-%d %H:%M:%S"))
    except (ValueError, OverflowError):
        return None


def apt_entries(text: str, path: str) -> list[Entry]:
    """The transactions of apt's history. Its times are those of the host's clock, without their zone."""
    found = []
    for part in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in part.splitlines() if ": " in line)
        ended = _local(fields.get("End-Date", ""))
        if ended is None:
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
        at = _zoned(match.group(1), match.group(2)) if match else None
        if match is None or at is None:
            continue
        entry = found.setdefault(at, {"time": at, "log": path, "command": "", "by": "", "packages": []})
        if match.group(3) not in entry["packages"] and len(entry["packages"]) < NAMES:
            entry["packages"].append(match.group(3))
    return list(found.values())


def _zoned(stamp: str, zone: str) -> float | None:
    """A time with its zone; None for no time."""
    zone = "+0000" if zone == "Z" else zone.replace(":", "")
    try:
        return datetime.datetime.strptime(stamp + zone, "%Y-%m-%dT%H:%M:%S%z").timestamp()
    except (ValueError, OverflowError):
        return None


def newer_files(host: Host, paths: t.Sequence[str], since: float) -> tuple[list[Entry], list[Entry]]:
    """([{path, time, owner}] of the files among `paths` that were written after `since`, oldest first; unread)."""
    found: list[Entry] = []
    unread: list[Entry] = []
    for path in paths:
        stat = host.stat(path)
        unread += _unread(path, stat)
        if stat.ok and stat.value.kind == "file" and stat.value.mtime > since:
            found.append({"path": path, "time": stat.value.mtime, "owner": _user(stat.value.uid)})
    return sorted(found, key=lambda entry: t.cast("float", entry["time"])), unread


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
