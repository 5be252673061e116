# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps of a plan in words: what is, what is wanted, what that disturbs, and why. Pure."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import EVICT, REBOOT, RESTART

from .driver import DRIVER_STEP, RECOVER_STEP, RELOAD_STEP
from .secure_boot import FIRMWARE_STEP
from .support import BUILD_STEP, HOLD_STEP, SECURE_BOOT_STEP
from .toolkit import ONE_UNIT

Data = t.Mapping[str, t.Any]
CDI_STEP, MARKERS_STEP = "toolkit.cdi", "validator.markers"
# The reason of a proof that needs none beside the other steps.
CHANGING = "The host changes in this run."
WILL_FAIL = "not written, the proof will fail"
# What an empty present state is, by step.
NOTHING = {
    RELOAD_STEP: "not loaded",
    BUILD_STEP: "not built",
    HOLD_STEP: "not held",
    MARKERS_STEP: "not written",
}
# What has to end first, in words.
AFTER = {
    DRIVER_STEP: "the driver is installed",
    RELOAD_STEP: "the driver is loaded",
    RECOVER_STEP: "the driver is recovered",
}
# Steps whose two states do not say why.
UNTOLD = (RECOVER_STEP, SECURE_BOOT_STEP, FIRMWARE_STEP)
MOST = 6
_NUMBERED = re.compile(r"\A(.*?)([0-9]+)([^0-9]*)\Z", re.S)


def count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def hosts(names: t.Iterable[str], most: int = MOST) -> str:
    """Names of hosts in short: three or more that count up are `npu01 to npu64`."""
    runs: list[tuple[list[str], int, tuple[str, ...]]] = []
    for name in sorted(set(names), key=natural):
        # The last number of the first label counts; of an address the last one.
        head, dot, domain = name.partition(".")
        head, rest = (name, "") if head.isdecimal() else (head, dot + domain)
        found = _NUMBERED.match(head)
        kind = (found[1], found[3] + rest, str(len(found[2])) if found[2].startswith("0") else "") if found else (name,)
        number = int(found[2]) if found else 0
        if runs and found and runs[-1][1] + 1 == number and _fits(runs[-1][2], kind):
            runs[-1] = ([*runs[-1][0], name], number, runs[-1][2])
        else:
            runs.append(([name], number, kind))
    shown = [text for run, _last, _kind in runs for text in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else run)]
    sizes = [size for run, _last, _kind in runs for size in ([len(run)] if len(run) > 2 else [1] * len(run))]
    left = sum(sizes[most:])
    return ", ".join(shown[:most]) + (f" and {left} more" if left else "")


def _fits(first: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether two names differ in their number alone. 09 and 10 do, 09 and 010 do not."""
    return first[:2] == other[:2] and (first == other or not other[-1])


def natural(name: str) -> list[tuple[bool, int, str]]:
    """A key to sort names by, with numbers in them by their value."""
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in re.split("([0-9]+)", name)]


def _value(value: t.Any, nothing: str) -> str:
    """A state as a person says it."""
    if isinstance(value, t.Mapping):
        # {card: version}
        versions = sorted({str(item) for item in value.values()})
        return f"{', '.join(versions)} on {count(len(value), 'card')}" if versions else nothing
    if isinstance(value, (list, tuple)):
        return ", ".join(str(item) for item in value) or nothing
    return nothing if value is None or value == "" else str(value).replace("_", " ")


def change(step: Data) -> str:
    """`not installed -> 3.2.2`."""
    wanted = _value(step["wanted"], "none")
    if step["after"] and wanted.startswith("known after"):
        wanted = f"known when {AFTER.get(step['after'], step['after'] + ' has ended')}"
    if step["id"] == HOLD_STEP:
        wanted = f"held: {wanted}"
    now = _value(step["now"], NOTHING.get(step["id"], "not installed"))
    if step["id"] == MARKERS_STEP and step["now"]:
        now = "present"
    return f"{now} -> {wanted}"


def why(step: Data, alone: bool) -> str:
    """The reason, where the two states do not tell it. `alone`: the plan has no other step."""
    if step["id"] == MARKERS_STEP:
        return str(step["reason"]) if alone or step["reason"] != CHANGING else ""
    now, wanted = _value(step["now"], ""), _value(step["wanted"], "none")
    untold = step["id"] in UNTOLD or now == wanted or "unknown" in now
    repaired = step["id"] == CDI_STEP and not step["after"] and step["reason"] != f"The spec is {now}."
    return str(step["reason"]) if untold or repaired else ""


def disruption(step: Data, reboot: str = "never") -> str:
    """What a step disturbs; empty for nothing. `reboot` is the input: if_required may end a driver change with one."""
    kind, name = step["disruption"], str(step["component"]).partition(" (")[0]
    text = ""
    if kind == RESTART:
        distribution = name.rpartition(" of ")[2]
        if distribution in ONE_UNIT:
            text = f"{distribution} restarts with its kubelet, pods keep running"
        elif name == "docker":
            text = "docker restarts, its containers stop unless live-restore is on"
        else:
            text = f"{name} restarts, pods keep running"
    elif kind == EVICT:
        text = (
            "driver unloads while the firmware is flashed, pods with NPUs must leave"
            if step["id"] == FIRMWARE_STEP
            else "driver reloads, pods with NPUs must leave"
        )
    elif kind == REBOOT:
        text = "the host reboots, all its pods stop"
    if reboot == "if_required" and step["id"] in (DRIVER_STEP, RECOVER_STEP) and kind != REBOOT:
        text = f"{text}{'; ' if text else ''}the host reboots if the driver asks for it"
    return text
