# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ready files that other programs wait for, and the CDI file they are compared with.

A ready file whose contents are right is not touched: its time says since when the host has been ready.
"""

from __future__ import annotations

import posixpath
import re
import shlex
import typing as t

from .._base.model import NpuError
from .._base.regex import regex
from .._base.vendor import VendorProfile
from .._cdi.options import SPEC_SUFFIXES
from .._host.files import remove_file
from .._host.host import ABSENT, FAILED, VALUE, Host, Probe
from .._npu.driver_notes import JOURNAL, state_path

INSTALLED = ".driver-ctr-ready"
READY = "driver-ready"
TOOLKIT = "toolkit-ready"
MARKERS = (INSTALLED, READY, TOOLKIT)
# Says that the container of a driver is being replaced; one that has gone for good leaves it behind.
STOPPED = ".driver-ctr-stopped"

_LINE = regex(r"^([A-Za-z_][A-Za-z0-9_]*)=(.*)$")
_PLAIN = regex(r"^[A-Za-z0-9_@%+=:,./-]*$")
_DOUBLE = regex(r'^"((?:[^"\\$`]|\\["\\$`])*)"$')
_SINGLE = regex(r"^'([^']*)'$")


def marker_path(profile: VendorProfile, name: str) -> str:
    return posixpath.join(profile.validation_dir, name)


def change_mark(host: Host, profile: VendorProfile) -> float | None:
    """A number that every change of the driver alters; None while one is under way, or was interrupted.

    A change notes itself in the journal before it removes the ready files, and each note alters the directory's time.
    """
    if host.stat(state_path(profile, JOURNAL)).state != ABSENT:
        return None
    found = host.stat(profile.runfile_stamp_dir)
    return float(found.value.mtime) if found.ok else 0.0


def remove_markers(host: Host, profile: VendorProfile) -> None:
    """Remove the ready files: from here on nothing may count on the host."""
    for name in MARKERS:
        remove_file(host, marker_path(profile, name))


def parse_ready(text: str, name: str) -> dict[str, str]:
    """KEY=VALUE lines to a dict, without a shell: nothing is ever evaluated.

    Blank lines and comments are skipped; a value may be quoted. NpuError names file and line of anything else, such as
    a value that a shell would expand, or a key that is given twice.
    """
    values: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        match = _LINE.match(stripped)
        value = _unquote(match.group(2)) if match else None
        if match is None or value is None:
            raise NpuError(
                "%s, line %d: not a plain KEY=VALUE line." % (name, number),
                "Remove the file and prove the driver again.",
            )
        if match.group(1) in values:
            raise NpuError(
                "%s, line %d: %s is given twice." % (name, number, match.group(1)),
                "Remove the file and prove the driver again.",
            )
        values[match.group(1)] = value
    return values


def _unquote(text: str) -> str | None:
    if _PLAIN.match(text):
        return text
    single = _SINGLE.match(text)
    if single:
        return single.group(1)
    double = _DOUBLE.match(text)
    return re.sub(r'\\(["\\$`])', r"\1", double.group(1)) if double else None


def render_ready(values: t.Mapping[str, str]) -> str:
    """The dict as KEY=VALUE lines in its order. NpuError for a value with a line break or a quote."""
    lines = []
    for key, value in values.items():
        if "\n" in value or "'" in value:
            raise NpuError("the value of %s cannot be written to a ready file: %r." % (key, value), "Use a plain path.")
        lines.append("%s=%s\n" % (key, value if _PLAIN.match(value) else shlex.quote(value)))
    return "".join(lines)


def ready_values(
    profile: VendorProfile, driver: t.Mapping[str, t.Any], host_root: str, library_path: str
) -> dict[str, str]:
    """Contents of the driver's ready file: whether the driver is the host's, and where a toolkit container finds it."""
    root = str(driver.get("root") or "/")
    return {
        "IS_HOST_DRIVER": "false" if driver.get("installed_via") == "container" else "true",
        profile.ready_prefix + "HOST_ROOT": host_root,
        profile.ready_prefix + "DRIVER_ROOT": root,
        profile.ready_prefix + "CONTAINER_LIBRARY_PATH": library_path,
    }


def read_ready(host: Host, path: str) -> Probe:
    """Probe of the parsed ready file; failed with file and line when it is malformed."""
    found = host.read_text(path)
    if not found.ok:
        return found
    try:
        return Probe(VALUE, parse_ready(found.value, path))
    except NpuError as exc:
        return Probe(FAILED, None, exc.message)


def read_markers(profile: VendorProfile, host: Host) -> dict[str, dict[str, t.Any]]:
    """Per ready file {state: value|absent|denied|..., mtime, values (driver-ready only), detail}."""
    found: dict[str, dict[str, t.Any]] = {}
    for name in MARKERS:
        info = host.stat(marker_path(profile, name))
        entry: dict[str, t.Any] = {
            "state": info.state,
            "mtime": info.value.mtime if info.ok else None,
            "detail": info.detail,
        }
        if name == READY and info.ok:
            parsed = read_ready(host, marker_path(profile, name))
            entry.update({"values": parsed.get({}), "state": parsed.state, "detail": parsed.detail})
        found[name] = entry
    return found


def find_spec(profile: VendorProfile, host: Host, path: str | None) -> str | None:
    """The CDI specification: `path` when it exists, else the first file beside it with the vendor's stem."""
    if not path:
        return None
    if host.exists(path):
        return path
    directory = posixpath.dirname(path)
    for name in host.listdir(directory).get([]):
        if profile.cdi_file_stem in name.lower() and name.endswith(SPEC_SUFFIXES) and not name.startswith("."):
            return posixpath.join(directory, name)
    return None
