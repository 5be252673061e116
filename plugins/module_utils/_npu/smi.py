# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The vendor's management tool: found, run with a time limit, its JSON read with standard error kept apart."""

from __future__ import annotations

import posixpath
import re
import typing as t

from .._base.vendor import VendorProfile
from .._host.host import ABSENT, FAILED, TIMEOUT, VALUE, Host, Probe

EXIT_CODE = "exit_code"
UNREADABLE = "unreadable"


def find_program(host: Host, name: str, directories: t.Sequence[str]) -> str | None:
    """First non-empty executable file of that name, or None."""
    for directory in directories:
        path = posixpath.join(directory, name)
        info = host.stat(path).get()
        if info and info.kind == "file" and info.size and info.mode & 0o111:
            return path
    return None


def find_smi(host: Host, profile: VendorProfile) -> str | None:
    """Path of the management tool: the current name in every directory, then the older names."""
    for name in profile.smi_names:
        path = find_program(host, name, profile.smi_dirs)
        if path:
            return path
    return None


def ask_smi(host: Host, profile: VendorProfile, path: str, args: t.Sequence[str], timeout: float) -> Probe:
    """Probe of what the tool reports for `args`, as the profile's parse_smi has it; failed: exit_code or unreadable.

    A list of devices counts whatever the exit code, which may be a warning about one of them: the detail tells it.
    """
    asked = host.run([path] + list(args), timeout)
    if not asked.ok:
        return asked
    command = " ".join([path] + list(args))
    try:
        found, why = profile.parse_smi(asked.value.out), ""
    except ValueError as exc:
        found, why = None, str(exc)
    if asked.value.rc == 0:
        return Probe(FAILED, UNREADABLE, "%s: %s" % (command, why)) if found is None else Probe(VALUE, found)
    listed = bool(found and found["devices"])
    said = (asked.value.err.strip() or ("" if listed else asked.value.out.strip())).splitlines()
    told = "%s ended with %d%s" % (command, asked.value.rc, ": " + said[0][:200] if said else "")
    return Probe(VALUE, found, told) if listed else Probe(FAILED, EXIT_CODE, told)


def read_smi(host: Host, profile: VendorProfile, timeout: float) -> tuple[str | None, Probe]:
    """Path of the tool and the Probe of what it reports (the shape of the profile's parse_smi).

    One call when it knows groups, a second one without them when the first fails. A call that hung is not repeated.
    An empty list of devices is a value; output that cannot be read is none. A failed Probe: exit_code or unreadable.
    """
    path = find_smi(host, profile)
    if not path:
        return None, Probe(
            ABSENT, None, "none of %s in %s" % (", ".join(profile.smi_names), ", ".join(profile.smi_dirs))
        )
    found = ask_smi(host, profile, path, profile.smi_group_args, timeout)
    if found.ok or found.state in (TIMEOUT, ABSENT):
        return path, found
    second = ask_smi(host, profile, path, profile.smi_json_args, timeout)
    return path, second


def parse_version(text: str) -> str | None:
    """First dotted number in the text of `--version`, with its suffix."""
    match = re.search(r"(?<![0-9.])([0-9]+(?:\.[0-9]+)+(?:[-+~][0-9A-Za-z.+~-]+)?)", text)
    return match.group(1) if match else None
