# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""systemd units: from one `systemctl show` when it can run, else from the unit files and their drop-ins."""

from __future__ import annotations

import posixpath
import re
import shlex
import typing as t

from .._base.records import dataclass, field
from .host import ABSENT, FAILED, VALUE, Host, Limit, Probe

PROPERTIES = (
    "Id",
    "LoadState",
    "ActiveState",
    "UnitFileState",
    "MainPID",
    "ExecMainStartTimestampMonotonic",
    "FragmentPath",
    "DropInPaths",
    "Environment",
    "EnvironmentFiles",
    "ExecStart",
)
UNIT_DIRS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
# Where units also come from: generators, programs that make them, settings by systemctl.
MADE_DIRS = (
    "/etc/systemd/system.control",
    "/etc/systemd/system.attached",
    "/run/systemd/system.control",
    "/run/systemd/system.attached",
    "/run/systemd/transient",
    "/run/systemd/generator",
    "/run/systemd/generator.early",
    "/run/systemd/generator.late",
)


@dataclass(frozen=True)
class Unit:
    """A unit.

    `argv` is ExecStart with its environment expanded; `active_state` is empty when systemd could not be asked. Under an
    alias, `identity` is the unit's own name. `file_state` is systemd's UnitFileState.
    """

    name: str
    loaded: bool = False
    active_state: str = ""
    main_pid: int = 0
    argv: tuple[str, ...] = ()
    fragment: str = ""
    dropins: tuple[str, ...] = ()
    started_monotonic: float | None = None
    environment: t.Mapping[str, str] = field(default_factory=dict)
    environment_files: tuple[str, ...] = ()
    identity: str = ""
    file_state: str = ""

    @property
    def active(self) -> bool:
        return self.active_state in ("active", "reloading", "activating")

    @property
    def files(self) -> tuple[str, ...]:
        return ((self.fragment,) if self.fragment else ()) + self.dropins


def units_there(host: Host, names: t.Iterable[str]) -> list[str]:
    """Those of the names that systemd may know; all of them where a directory of units cannot be read.

    For each name, also of a unit that does not exist, systemd and systemctl work for a third of a millisecond.
    """
    there: set[str] = set()
    for directory in UNIT_DIRS + MADE_DIRS:
        listed = host.listdir(directory)
        if not listed.ok and listed.state != ABSENT:
            return list(names)
        there.update(listed.get([]))
    return [name for name in names if name in there or name + ".d" in there or "@" in name]


def ask_units(host: Host, names: t.Sequence[str], timeout: float) -> Probe:
    """Probe of the named units {name: Unit}, from one `systemctl show`; without names, nothing is asked."""
    if not names:
        return Probe(VALUE, {})
    argv = ["systemctl", "show", "--no-pager", "-p", ",".join(PROPERTIES)] + list(names)
    done = host.run(argv, timeout)
    if not done.ok:
        return done
    if done.value.rc:
        return Probe(FAILED, None, "systemctl show ended with %d: %s" % (done.value.rc, done.value.err.strip()[:200]))
    shown = parse_show(host, done.value.out, names)
    return Probe(VALUE, shown) if shown else Probe(FAILED, None, "systemctl show tells other units than asked")


def read_units(host: Host, names: t.Iterable[str], timeout: float, asked: Probe | None = None) -> dict[str, Unit]:
    """The named units by one command, or by what ask_units() has `asked`; what that leaves out is not there.

    Without systemctl their state is empty.
    """
    asked = ask_units(host, list(names), timeout) if asked is None else asked
    if asked.ok:
        return {name: asked.value.get(name) or Unit(name) for name in names}
    return {name: unit_from_files(host, name) for name in names}


def parse_show(host: Host, text: str, names: t.Sequence[str]) -> dict[str, Unit]:
    """Read `systemctl show`: one block of Name=value lines per unit, in the order asked."""
    blocks = [block for block in re.split(r"\n\s*\n", text.strip()) if block.strip()]
    if len(blocks) != len(names):
        return {}
    found = {}
    for name, block in zip(names, blocks):
        values: dict[str, list[str]] = {}
        for line in block.splitlines():
            key, equal, value = line.partition("=")
            if equal:
                values.setdefault(key, []).append(value)
        last = {key: items[-1] for key, items in values.items()}
        environment = dict(_assignments(last.get("Environment", "")))
        environment_files = tuple(item.partition(" (")[0] for item in values.get("EnvironmentFiles", []))
        for path in environment_files:
            environment.update(_environment_file(host, path))
        command = re.search(r"argv\[\]=(.*?) ; ignore_errors=", last.get("ExecStart", ""))
        stamp = last.get("ExecMainStartTimestampMonotonic", "")
        found[name] = Unit(
            name=name,
            loaded=last.get("LoadState") == "loaded",
            active_state=last.get("ActiveState", ""),
            main_pid=int(last["MainPID"]) if last.get("MainPID", "").isdigit() else 0,
            argv=_expand(command.group(1), environment) if command else (),
            fragment=last.get("FragmentPath", ""),
            dropins=tuple(last.get("DropInPaths", "").split()),
            started_monotonic=int(stamp) / 1e6 if stamp.isdigit() and stamp != "0" else None,
            environment=environment,
            environment_files=environment_files,
            identity=last.get("Id", ""),
            file_state=last.get("UnitFileState", ""),
        )
    return found


def unit_from_files(host: Host, name: str) -> Unit:
    """Read a unit from disk: the first fragment in the search path, then its drop-ins sorted by file name."""
    fragment = ""
    for directory in UNIT_DIRS:
        path = posixpath.join(directory, name)
        if host.exists(path) or host.readlink(path).value == "/dev/null":
            fragment = path
            break
    dropins: dict[str, str] = {}
    for directory in UNIT_DIRS:
        for path in host.glob(posixpath.join(directory, name + ".d"), "*.conf"):
            dropins.setdefault(posixpath.basename(path), path)
    ordered = tuple(dropins[key] for key in sorted(dropins))
    # Masked: a link to /dev/null, or an empty file.
    if not fragment or host.readlink(fragment).value == "/dev/null" or not host.read_text(fragment).get(""):
        return Unit(name, dropins=ordered)
    specifiers = read_specifiers(host, name)
    commands: list[str] = []
    assignments: list[str] = []
    files: list[str] = []
    for path in (fragment,) + ordered:
        for key, value in service_settings(host.read_text(path).get("")):
            value = with_specifiers(value, specifiers)
            target = {"ExecStart": commands, "Environment": assignments, "EnvironmentFile": files}[key]
            if value:
                target.append(value)
            else:
                del target[:]
    environment: dict[str, str] = {}
    for value in assignments:
        environment.update(_assignments(value))
    named: list[str] = []
    for pattern in files:
        directory, base = posixpath.split(pattern.lstrip("-"))
        named += host.glob(directory, base) if re.search(r"[*?[]", base) else [pattern.lstrip("-")]
    for path in named:
        environment.update(_environment_file(host, path))
    return Unit(
        name=name,
        loaded=True,
        argv=_command(commands[-1], environment) if commands else (),
        fragment=fragment,
        dropins=ordered,
        environment=environment,
        environment_files=tuple(named),
    )


def read_specifiers(host: Host, name: str) -> dict[str, str]:
    """Values of % specifiers in a system unit, as far as known."""
    hostname = ""
    for path in ("/proc/sys/kernel/hostname", "/etc/hostname"):
        hostname = hostname or host.read_text(path, Limit.ATTRIBUTE).get("").strip()
    return specifiers_of(name, hostname)


def with_specifiers(text: str, specifiers: t.Mapping[str, str]) -> str:
    """A value of a unit file with its % specifiers expanded; one that is not known stays."""
    return re.sub("%(.)", lambda match: specifiers.get(match.group(1), match.group(0)), text)


def specifiers_of(name: str, hostname: str = "") -> dict[str, str]:
    """Values of % specifiers that the name of a system unit and its host give."""
    stem = name.rpartition(".")[0]
    prefix, at, instance = stem.partition("@")
    found = {"%": "%", "n": name, "N": stem, "p": prefix, "i": instance, "I": instance}
    if hostname:
        found.update({"H": hostname, "l": hostname.split(".")[0]})
    found.update(
        {"t": "/run", "S": "/var/lib", "C": "/var/cache", "L": "/var/log", "E": "/etc", "T": "/tmp", "V": "/var/tmp"}
    )
    return found


def _command(text: str, environment: t.Mapping[str, str]) -> tuple[str, ...]:
    """Words of an ExecStart line without its prefixes; with @ the second word is only the name the process shows."""
    bare = text.lstrip("@-:+!|")
    words = _expand(bare, environment)
    return words[:1] + words[2:] if "@" in text[: len(text) - len(bare)] else words


def service_settings(text: str) -> list[tuple[str, str]]:
    """ExecStart, Environment and EnvironmentFile lines of [Service], with continuation lines joined."""
    lines: list[str] = []
    pending = ""
    for raw in text.splitlines():
        if raw.lstrip().startswith(("#", ";")):
            continue
        if raw.endswith("\\"):
            pending += raw[:-1] + " "
            continue
        lines.append((pending + raw).strip())
        pending = ""
    if pending:
        lines.append(pending.strip())
    section = ""
    found = []
    for line in lines:
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
            continue
        key, equal, value = line.partition("=")
        if section == "Service" and equal and key.strip() in ("ExecStart", "Environment", "EnvironmentFile"):
            found.append((key.strip(), value.strip()))
    return found


def split_words(text: str) -> list[str]:
    """Words without quotes; text with an unclosed quote is split at spaces."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _assignments(text: str) -> t.Iterator[tuple[str, str]]:
    for word in split_words(text):
        key, equal, value = word.partition("=")
        if equal:
            yield key, value


def _environment_file(host: Host, path: str) -> dict[str, str]:
    found = {}
    for line in host.read_text(path).get("").replace("\\\n", "").splitlines():
        key, equal, value = line.strip().partition("=")
        if equal and not key.startswith(("#", ";")):
            value = value.strip()
            if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
                value = value[1:-1]
            found[key.strip()] = value
    return found


def _expand(command: str, environment: t.Mapping[str, str]) -> tuple[str, ...]:
    """Expand like systemd: $NAME alone is split into words, ${NAME} is not; unset is empty; $$ is a dollar sign."""
    result: list[str] = []
    # A space written as \x20 is part of its word.
    for word in split_words(re.sub(r"\\x([0-9A-Fa-f]{2})", r"\\\\x\1", command)):
        word = re.sub(r"\\x([0-9A-Fa-f]{2})", lambda match: chr(int(match.group(1), 16)), word)
        if re.match(r"^\$[A-Za-z_][A-Za-z0-9_]*$", word):
            result.extend(split_words(environment.get(word[1:], "")))
            continue
        whole = re.match(r"^\$\{([A-Za-z_][A-Za-z0-9_]*)\}$", word)
        expanded = re.sub(
            r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$\$",
            lambda match: environment.get(match.group(1), "") if match.group(1) else "$",
            word,
        )
        if expanded or not whole:
            result.append(expanded)
    return tuple(result)
