# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of the host tool: program, options, and the units and udev rule that start it."""

from __future__ import annotations

import functools
import json
import posixpath
import re
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._host.owned_files import (
    combined,
    file_entry,
    fingerprint,
    link_entry,
    link_fingerprint,
    unpacked_entry,
    unpacked_fingerprint,
)
from ansible_collections.rebellions.npu.plugins.module_utils._observe.settings import ARGUMENTS, complete
from ansible_collections.rebellions.npu.plugins.module_utils._runtime.base import UNITS

from .zipapp import CONFIG_DIR, CONFIG_PATH, LIBRARY, NAME, program

TOOL_PATH = PROFILE.host_tool
TOOL_DIR = posixpath.dirname(TOOL_PATH)
LIB_DIR = posixpath.join(TOOL_DIR, LIBRARY)
PROGRAM_MODE = 0o755
UNIT_DIR = "/etc/systemd/system"
WANTS_DIR = UNIT_DIR + "/multi-user.target.wants"
CDI_UNIT = NAME + "-cdi.service"
READY_UNIT = NAME + "-ready.service"
RULE_PATH = "/etc/udev/rules.d/90-%s.rules" % NAME
# What stays while the units are stopped.
PROGRAM = (TOOL_PATH, LIB_DIR, CONFIG_PATH)
# Removed when empty.
DIRECTORIES = (TOOL_DIR, CONFIG_DIR, PROFILE.validation_dir, posixpath.dirname(PROFILE.validation_dir))
UNIT_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9:_.@\\-]*\.service")

# Options of a single call, not of the host.
NOT_KEPT = ("scopes", "root", "node_allocatable", "expected_allocatable", "containers_before")

# /run is empty after a boot, and containers with an NPU need the specification, so it is written before the runtimes
# start. A time limit keeps a broken driver from blocking the boot. Devices may appear later, so exit code 1 is no
# failure.
# systemd passes over the names that a host does not have.
CDI_TEXT = f"""\
[Unit]
Description=CDI specification of the {PROFILE.title} NPUs
After=local-fs.target systemd-modules-load.service systemd-udev-trigger.service
Before=%(runtimes)s

[Service]
Type=oneshot
ExecStartPre=-/usr/bin/udevadm settle --timeout=10
ExecStart={TOOL_PATH} cdi
SuccessExitStatus=1
TimeoutStartSec=30

[Install]
WantedBy=multi-user.target
"""

# Type=simple: no unit waits for the proof; its users wait for the ready files. The proof asks the runtimes, so it is
# last.
READY_TEXT = f"""\
[Unit]
Description=Proof that the {PROFILE.title} NPUs are ready
After={CDI_UNIT} %(runtimes)s
StartLimitIntervalSec=0

[Service]
Type=simple
ExecStart={TOOL_PATH} ready --wait 120
RuntimeMaxSec=300

[Install]
WantedBy=multi-user.target
"""

_SUBSYSTEM = PROFILE.class_dir.rsplit("/", 1)[-1]
_KERNEL = f"{PROFILE.device_prefix}[0-9]*|{PROFILE.group_prefix}[0-9]*"
_MATCH = f'SUBSYSTEM=="{_SUBSYSTEM}", KERNEL=="{_KERNEL}"'
RULE_TEXT = f"""\
ACTION=="add|bind", {_MATCH}, TAG+="systemd", ENV{{SYSTEMD_WANTS}}+="{READY_UNIT}"
ACTION=="remove", {_MATCH}, RUN+="/usr/bin/systemctl --no-block start {READY_UNIT}"
"""

HEADER = "# Written by the Ansible collection rebellions.npu; a change made here is lost.\n"


def kept_options(options: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Options of an observation for the file of the host tool: set, not the default, not of a single call."""
    return {
        key: value
        for key, value in options.items()
        if key in ARGUMENTS and key not in NOT_KEPT and value is not None and value != ARGUMENTS[key].get("default")
    }


def runtime_units(observation: t.Mapping[str, t.Any]) -> list[str]:
    """Units of the selected runtimes, as the detection found them, that have none of the known names."""
    found = observation.get("runtimes") or []
    units = [str(item.get("restart_unit") or "") for item in found if item.get("selected")]
    names = [unit if unit.endswith(".service") else f"{unit}.service" for unit in units if unit]
    return sorted({name for name in names if UNIT_NAME.fullmatch(name) and name not in UNITS})


@functools.lru_cache(maxsize=None)
def _program_fingerprint() -> str:
    return fingerprint(program()[0], PROGRAM_MODE)


# Path, fingerprint, and what makes the entry that is sent to the host.
_Part = tuple[str, str, t.Callable[[], dict[str, t.Any]]]


def _file(path: str, text: str) -> _Part:
    content = text.encode("utf-8")
    return path, fingerprint(content, 0o644), functools.partial(file_entry, path, content, 0o644)


def _parts(config: t.Mapping[str, t.Any], units: bool, runtimes: t.Sequence[str]) -> list[_Part]:
    """In the order in which to write them."""
    complete(config, "config")
    by_hand = runtime_units({"runtimes": [{"restart_unit": config.get("runtime_unit"), "selected": True}]})
    names = {"runtimes": " ".join(dict.fromkeys([*UNITS, *by_hand, *filter(UNIT_NAME.fullmatch, runtimes)]))}
    content, digest = program()
    found: list[_Part] = [
        (TOOL_PATH, _program_fingerprint(), functools.partial(file_entry, TOOL_PATH, content, PROGRAM_MODE)),
        (LIB_DIR, unpacked_fingerprint(digest), functools.partial(unpacked_entry, LIB_DIR, digest, TOOL_PATH)),
        _file(CONFIG_PATH, json.dumps(config, indent=2, sort_keys=True) + "\n"),
    ]
    if units:
        for name, unit in ((CDI_UNIT, CDI_TEXT), (READY_UNIT, READY_TEXT)):
            path, link = f"{UNIT_DIR}/{name}", f"{WANTS_DIR}/{name}"
            found.append(_file(path, HEADER + unit % names))
            found.append((link, link_fingerprint(path), functools.partial(link_entry, link, path)))
        found.append(_file(RULE_PATH, HEADER + RULE_TEXT))
    return found


def entries(
    config: t.Mapping[str, t.Any], units: bool = True, runtimes: t.Sequence[str] = ()
) -> list[dict[str, t.Any]]:
    """Files, links and the folder as sent to the host. NpuError when `config` has values that the tool refuses.

    `runtimes` are units of the host's runtimes that have no usual name, as runtime_units() gives them.
    """
    return [entry() for _path, _fingerprint, entry in _parts(config, units, runtimes)]


def fingerprints(config: t.Mapping[str, t.Any], units: bool = True, runtimes: t.Sequence[str] = ()) -> dict[str, str]:
    """Fingerprints by path, for the observation of a host. Arguments and NpuError like those of entries()."""
    return {path: found for path, found, _entry in _parts(config, units, runtimes)}


def judge_again(
    found: t.Mapping[str, t.Any], config: t.Mapping[str, t.Any], runtimes: t.Sequence[str]
) -> dict[str, t.Any]:
    """`found`, the comparison of a host with fingerprints(config), as one with the units of its runtimes as well.

    Which runtimes a host has is known only after the look that compares its files.
    """
    plain, wanted = fingerprints(config), fingerprints(config, runtimes=runtimes)
    current = found["sha256"] == combined(wanted)
    other = {path for path in wanted if wanted[path] != plain[path]}
    differing = [] if current else sorted(other.union(found["differing"]))
    return {**found, "current": current, "wanted": combined(wanted), "differing": differing, "runtimes": list(runtimes)}
