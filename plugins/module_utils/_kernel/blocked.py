# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What keeps a module from being loaded: lines of modprobe.d, the kernel's command line, and its switch."""

from __future__ import annotations

import posixpath
import re
import typing as t

from .._base.records import replace
from .._base.regex import regex
from .._host.host import ABSENT, VALUE, Host, Limit, Probe

# In the order in which kmod looks: a file hides those of its name in later directories (modprobe.d(5)).
DIRECTORIES = (
    "/etc/modprobe.d",
    "/run/modprobe.d",
    "/usr/local/lib/modprobe.d",
    "/usr/lib/modprobe.d",
    "/lib/modprobe.d",
)
COMMAND_LINE = "/proc/cmdline"
# The kernel parameter nomodule turns it on too. Once it is on, only a boot turns it off.
SWITCH = "/proc/sys/kernel/modules_disabled"
PLACES = {COMMAND_LINE: "the kernel command line", SWITCH: "sysctl kernel.modules_disabled"}
# modprobe runs the command of an install line in place of loading. These do nothing; any other may load the module.
IDLE = ("true", "false", ":", "exit", "nologin", "echo", "printf", "logger", "sleep")
_REDIRECTION = regex(r"[0-9&]?>{1,2}\s*(?:&[0-9]|\S+)")
_SHELL = regex(r"(?:exec\s+)?(?:/\S*/)?(?:ba|da)?sh\s+-[a-z]*c\s+([\"']?)(.*)\1\s*")
INSTALL, BLACKLIST, REFUSED, DISABLED = "install", "blacklist", "module_blacklist", "modules_disabled"


class Block(t.TypedDict):
    """One line that keeps the module out.

    kind: `install` (modprobe runs another command), `blacklist` (not loaded by itself, modprobe by name loads it),
    `module_blacklist` (the kernel refuses it), or `modules_disabled` (the kernel refuses every one until it boots
    again). `line` counts from 1.
    """

    kind: str
    path: str
    line: int
    text: str


def read_blocks(host: Host, module: str) -> tuple[list[Block], Probe]:
    """The lines about a module in reading order, and the first look that failed or a value."""
    found: list[Block] = []
    failed: Probe | None = None
    taken: set[str] = set()
    for directory in DIRECTORIES:
        names = host.listdir(directory)
        failed = failed or _failed(directory, names)
        for name in sorted(names.get([])):
            if not name.endswith(".conf") or name in taken:
                continue
            taken.add(name)
            path = posixpath.join(directory, name)
            text = host.read_text(path)
            failed = failed or _failed(path, text)
            found.extend(_of_file(path, text.get(""), _plain(module)))
    words = host.read_text(COMMAND_LINE)
    failed = failed or _failed(PLACES[COMMAND_LINE], words)
    found.extend(_of_command_line(words.get(""), _plain(module)))
    switch = host.read_text(SWITCH, Limit.ATTRIBUTE)
    failed = failed or _failed(PLACES[SWITCH], switch)
    if switch.get("").strip() == "1":
        told = "1, so no module can be loaded or unloaded until the next boot"
        found.append(Block(kind=DISABLED, path=SWITCH, line=1, text=told))
    return found, failed or Probe(VALUE)


def place_of(block: Block) -> str:
    """Where a line stands, for a message."""
    return PLACES.get(block["path"]) or "%(path)s line %(line)d" % block


def _failed(place: str, probe: Probe) -> Probe | None:
    """A look that failed, with its place."""
    return None if probe.state in (VALUE, ABSENT) else replace(probe, detail="%s: %s" % (place, probe.detail))


def _plain(name: str) -> str:
    return name.replace("-", "_")


def _of_file(path: str, text: str, module: str) -> t.Iterator[Block]:
    """A line that ends with a backslash goes on in the next one."""
    start, whole = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        start = start or number
        if line.endswith("\\"):
            whole += line[:-1] + " "
            continue
        words = (whole + line).split()
        if len(words) >= 2 and _plain(words[1]) == module:
            if words[0] == BLACKLIST or words[0] == INSTALL and _is_idle(words[2:]):
                yield Block(kind=words[0], path=path, line=start, text=" ".join(words))
        start, whole = 0, ""


def _is_idle(command: t.Sequence[str]) -> bool:
    """Whether each part of the command is an idle one, also where a shell is given it as one text."""
    text = " ".join(command)
    shell = _SHELL.fullmatch(text)
    text = _REDIRECTION.sub(" ", shell.group(2) if shell else text)
    if "$(" in text or "`" in text:
        return False
    parts = [part.split() for part in re.split(r"[;&|]+", text)]
    return all(posixpath.basename(words[0]) in IDLE for words in parts if words)


def _of_command_line(text: str, module: str) -> t.Iterator[Block]:
    for word in text.split():
        key, _sign, value = word.partition("=")
        kind = {"modprobe.blacklist": BLACKLIST, "module_blacklist": REFUSED}.get(key)
        if kind and module in [_plain(name) for name in value.split(",")]:
            yield Block(kind=kind, path=COMMAND_LINE, line=1, text=word)
