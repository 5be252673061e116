# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Vendor tools and the management daemon: where they are and which version they have."""

from __future__ import annotations

import posixpath
import typing as t

from .._base.vendor import VendorProfile
from .._host.host import ABSENT, FAILED, VALUE, Host, Probe
from .._host.systemd import UNIT_DIRS, ask_units
from .smi import find_program, parse_version


def read_tools(host: Host, profile: VendorProfile, smi_path: str | None, timeout: float) -> dict[str, dict[str, t.Any]]:
    """Shape `tools`: {name: {path, version, state}}.

    `state` says how the question for the version ended: value, timeout, failed, or absent (no tool, or not asked).
    Only the program at `smi_path` is asked, once, also when several names lead to it.
    """
    real = host.resolve(smi_path).get(smi_path) if smi_path else None
    answer: tuple[str | None, str] = _ask_version(host, smi_path, timeout) if smi_path else (None, ABSENT)
    found: dict[str, dict[str, t.Any]] = {}
    for name in profile.tools:
        path = find_program(host, name, tuple(profile.smi_dirs) + ("/usr/sbin", "/usr/local/sbin"))
        same = path is not None and host.resolve(path).get(path) == real
        version, state = answer if same else (None, ABSENT)
        found[name] = {"path": path, "version": version, "state": state}
    return found


def _ask_version(host: Host, path: str, timeout: float) -> tuple[str | None, str]:
    answer = host.run([path, "--version"], timeout)
    if not answer.ok:
        return None, answer.state
    version = parse_version(answer.value.out) if answer.value.rc == 0 else None
    return version, VALUE if version else FAILED


def read_daemon(
    host: Host, profile: VendorProfile, timeout: float, asked: Probe | None = None
) -> tuple[dict[str, t.Any], Probe]:
    """Shape `daemon`: {unit, state, enabled}. `unit` is None when none is installed; then systemd is not asked.

    `state` is systemd's ActiveState or unknown; `enabled` is None when it is unknown. `asked` is what systemd has said
    of the units already, as ask_units() has it.
    """
    present = [
        unit for unit in profile.daemon_units if any(host.exists(posixpath.join(path, unit)) for path in UNIT_DIRS)
    ]
    if not present:
        return {"unit": None, "state": ABSENT, "enabled": None}, Probe(
            ABSENT, None, "none of the units %s" % ", ".join(profile.daemon_units)
        )
    asked = ask_units(host, present, timeout) if asked is None else asked
    loaded = (
        [asked.value[name] for name in present if name in asked.value and asked.value[name].loaded] if asked.ok else []
    )
    loaded.sort(key=lambda unit: unit.active_state != "active")
    if loaded:
        state = loaded[0].file_state
        enabled = state in ("enabled", "enabled-runtime", "static", "alias", "linked") if state else None
        return {
            "unit": loaded[0].identity or present[0],
            "state": loaded[0].active_state or "unknown",
            "enabled": enabled,
        }, asked
    if asked.ok:
        asked = Probe(FAILED, None, "systemd has not loaded %s" % ", ".join(present))
    wanted = [path for path in host.listdir("/etc/systemd/system").get([]) if path.endswith((".wants", ".requires"))]
    enabled = any(present[0] in host.listdir("/etc/systemd/system/" + name).get([]) for name in wanted)
    return {"unit": present[0], "state": "unknown", "enabled": enabled}, asked
