# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host notes about its driver: its origin, a change in flight, a failed rollback, versions that failed.

All of it lies in the directory `VendorProfile.runfile_stamp_dir`, as JSON objects that are replaced atomically.
"""

from __future__ import annotations

import json
import posixpath
import typing as t

from .._base.vendor import VendorProfile
from .._host.files import remove_file, write_bytes
from .._host.host import ABSENT, FAILED, TOO_LARGE, Host, Limit, Probe

JOURNAL = "journal.json"
WAITS = "waits.json"
TAINTED = "tainted.json"
REFUSED = "refused.json"
KEPT = "kept"
INCOMING = "incoming"
REFUSED_LIMIT = 20

Record = t.Dict[str, t.Any]


def _is_text(found: object) -> bool:
    return found is None or isinstance(found, str)


def _is_list(found: object) -> bool:
    return isinstance(found, list) and all(isinstance(item, str) for item in found)


def _is_flag(found: object) -> bool:
    return isinstance(found, int)


def _is_record(found: object) -> bool:
    return found is None or isinstance(found, dict)


def _is_packages(found: object) -> bool:
    """{name: version}, or the names alone as older releases have them; in a stamp [{name, version}]."""
    if isinstance(found, dict):
        return all(isinstance(version, str) for version in found.values())
    return isinstance(found, list) and all(
        isinstance(item, str) or (isinstance(item, dict) and isinstance(item.get("name"), str)) for item in found
    )


def _is_cards(found: object) -> bool:
    return found is None or (
        isinstance(found, list)
        and all(
            isinstance(row, dict) and isinstance(row.get("address"), str) and isinstance(row.get("ok"), bool)
            for row in found
        )
    )


# A name has one meaning in every note. Another type under it is damage, and the whole note is not used.
_TYPES: dict[str, t.Callable[[object], bool]] = {
    **dict.fromkeys(("version", "source", "module", "step", "direction", "reason", "time", "by", "id"), _is_text),
    "started": _is_text,
    **dict.fromkeys(("held", "held_kernel", "done", "stopped", "failed", "names"), _is_list),
    **dict.fromkeys(("touched", "opaque", "reboot", "kept", "loaded"), _is_flag),
    **dict.fromkeys(("previous", "wanted", "stamp", "installed"), _is_record),
    **dict.fromkeys(("before", "packages"), _is_packages),
    "flashed": _is_cards,
}


def state_path(profile: VendorProfile, name: str) -> str:
    """Host path of one of the names above."""
    return posixpath.join(profile.runfile_stamp_dir, name)


def stamp_path(profile: VendorProfile) -> str:
    """Host path of the stamp of provenance."""
    return state_path(profile, profile.runfile_stamp)


def read_record(host: Host, path: str) -> Probe:
    """Probe of a JSON object; failed when the file holds anything else: a damaged note is not the same as none."""

    def load(text: str) -> Record:
        data = json.loads(text)
        if not isinstance(data, dict):
            raise ValueError("%s is not a JSON object" % path)
        wrong = _damage(data)
        if wrong:
            raise ValueError("%s is damaged: %s has another type" % (path, wrong))
        return data

    return host.read_text(path, Limit.NOTE).map(load)


def _damage(record: Record) -> str:
    """The first name in a note, or in a record inside it, whose value has another type; empty when there is none."""
    for key, value in record.items():
        if key in _TYPES and not _TYPES[key](value):
            return key
        inner = _damage(value) if isinstance(value, dict) and key in ("previous", "wanted", "stamp") else ""
        if inner:
            return "%s.%s" % (key, inner)
    previous = record.get("previous")
    return "previous" if previous and "version" not in previous else ""


def write_record(host: Host, path: str, record: t.Mapping[str, t.Any], mode: int = 0o600) -> None:
    """Replace the file, its bytes on the disk before the name. NpuError when that fails."""
    write_bytes(host, path, (json.dumps(record, sort_keys=True, indent=1) + "\n").encode("utf-8"), mode)


def read_refused(host: Host, profile: VendorProfile) -> list[Record]:
    """[{version, sha256, reason, time}] of drivers whose validation failed on this host, oldest first."""
    entries = read_record(host, state_path(profile, REFUSED)).get({}).get("refused")
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def refuse(host: Host, profile: VendorProfile, version: str, sha256: str, reason: str, now: str) -> None:
    """Note that this driver failed here, so that the next run does not disturb the host for the same end."""
    entries = [
        entry
        for entry in read_refused(host, profile)
        if (entry.get("version"), entry.get("sha256")) != (version, sha256)
    ]
    entries.append({"version": version, "sha256": sha256, "reason": reason, "time": now})
    write_record(host, state_path(profile, REFUSED), {"refused": entries[-REFUSED_LIMIT:]})


def _same_file(entry: Record, sha256: str) -> bool:
    noted = entry.get("sha256") or ""
    return bool(noted and noted == sha256 or not noted and not entry.get("version"))


def forgive(host: Host, profile: VendorProfile, version: str, sha256: str) -> None:
    """Forget the failures of a version, or of a file, that works now, and those that are noted with neither."""
    entries = read_refused(host, profile)
    left = [entry for entry in entries if entry.get("version") != version and not _same_file(entry, sha256)]
    if not left:
        remove_file(host, state_path(profile, REFUSED))
    elif left != entries:
        write_record(host, state_path(profile, REFUSED), {"refused": left})


def describe_state(host: Host, profile: VendorProfile) -> tuple[Record, dict[str, Probe]]:
    """The part `driver.state` of the facts, and the probes of what could not be read.

    {change: {version, previous, step, direction, started, reboot, touched}|None, tainted: {version, reason, time}|None,
    refused: [...], stamp: {...}|None}
    A journal that is there and cannot be read is a change of which nothing is known.
    """
    probes: dict[str, Probe] = {}

    def read(name: str, path: str) -> Record | None:
        probe = read_record(host, path)
        if probe.state != ABSENT:
            probes[name] = probe if not probe.ok else Probe("value")
        return probe.value if probe.ok else None

    journal = read("driver_journal", state_path(profile, JOURNAL))
    change = None
    if journal is not None:
        change = {
            "version": (journal.get("wanted") or {}).get("version"),
            "previous": (journal.get("previous") or {}).get("version"),
            "step": journal.get("step"),
            "direction": journal.get("direction"),
            "started": journal.get("started"),
            "reboot": bool(journal.get("reboot")),
            "touched": bool(journal.get("touched", True)),
        }
    elif probes.get("driver_journal") is not None and probes["driver_journal"].state in (FAILED, TOO_LARGE):
        change = {
            "version": None,
            "previous": None,
            "step": None,
            "direction": None,
            "started": None,
            "reboot": False,
            "touched": True,
        }
    return {
        "change": change,
        "tainted": read("driver_tainted", state_path(profile, TAINTED)),
        "refused": read_refused(host, profile),
    }, probes
