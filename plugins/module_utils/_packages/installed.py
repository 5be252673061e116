# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Installed packages: the dpkg database read as a file, the rpm database by one query."""

from __future__ import annotations

import fnmatch
import re
import typing as t

from .._host.host import ABSENT, Host, Limit, Probe

DPKG_STATUS = "/var/lib/dpkg/status"
RPM_DIRS = ("/var/lib/rpm", "/usr/lib/sysimage/rpm", "/usr/share/rpm")


def _matcher(patterns: t.Sequence[str]) -> t.Callable[[str], t.Any]:
    return re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns)).match


def parse_dpkg_status(text: str, patterns: t.Sequence[str]) -> list[dict[str, str]]:
    """Packages of /var/lib/dpkg/status whose name fits a shell pattern: [{name, version, state, architecture}].

    `state` is dpkg's own third status word: installed, config-files (removed, its configuration left), half-configured,
    ...
    """
    matches = _matcher(patterns)
    found = []
    start = 0
    while True:
        if text.startswith("Package: ", start):
            at = start
        else:
            at = text.find("\nPackage: ", start)
            if at < 0:
                break
            at += 1
        end = text.find("\n\n", at)
        end = len(text) if end < 0 else end
        line_end = text.find("\n", at)
        name = text[at + 9 : line_end if line_end >= 0 else end].strip()
        if matches(name):
            fields = dict(re.findall(r"^(Status|Version|Architecture): *(.*)$", text[at:end], re.M))
            found.append(
                {
                    "name": name,
                    "version": fields.get("Version", "").strip(),
                    "state": (fields.get("Status", "").split() or ["unknown"])[-1],
                    "architecture": fields.get("Architecture", "").strip(),
                }
            )
        start = end + 1
    return found


def parse_rpm_query(text: str, patterns: t.Sequence[str]) -> list[dict[str, str]]:
    """Lines `name TAB version-release TAB arch`: the same shape as parse_dpkg_status, state always installed."""
    matches = _matcher(patterns)
    found = []
    for line in text.splitlines():
        parts = line.split("\t")
        if len(parts) == 3 and matches(parts[0]):
            found.append({"name": parts[0], "version": parts[1], "state": "installed", "architecture": parts[2]})
    return found


def read_packages(
    host: Host, patterns: t.Sequence[str], timeout: float = 15.0
) -> tuple[list[dict[str, str]], str, Probe]:
    """Packages, their format (deb, rpm or empty) and the probe. rpm runs only without a dpkg database."""
    status = host.read_text(DPKG_STATUS, Limit.BULK)
    if status.ok and status.value.strip():
        return parse_dpkg_status(status.value, patterns), "deb", status
    if not status.ok and status.state != ABSENT:
        return [], "deb", status
    if not any(host.listdir(path).get([]) for path in RPM_DIRS):
        return [], "", Probe(ABSENT, None, "neither a dpkg nor an rpm database")
    query = ["rpm", "-qa", "--qf", "%{NAME}\\t%{VERSION}-%{RELEASE}\\t%{ARCH}\\n"] + list(patterns)
    asked = host.run(query, timeout)
    if asked.ok and asked.value.rc != 0:
        asked = Probe("failed", None, "rpm -qa ended with %d: %s" % (asked.value.rc, asked.value.err.strip()[:200]))
    return (parse_rpm_query(asked.value.out, patterns) if asked.ok else []), "rpm", asked
