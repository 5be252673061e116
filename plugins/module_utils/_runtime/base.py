# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The records of runtime detection and what every runtime class shares."""

from __future__ import annotations

import posixpath
import re
import typing as t
from dataclasses import asdict, dataclass, field

from .._base.model import Problem
from .._cdi.options import SPEC_DIRS
from .._host.host import Host, Limit
from .._host.proc import Process, ProcessTable
from .._host.systemd import Unit, read_units
from .._packages.installed import DPKG_STATUS, parse_dpkg_status
from .distros import DISTROS

CONTAINERD = "containerd"
DOCKER = "docker"
CRIO = "cri-o"
PODMAN = "podman"
NAMES = (CONTAINERD, DOCKER, CRIO, PODMAN)

SYSTEM = "system"
DOCKER_BACKEND = "docker-backend"

UNSUPPORTED = "unsupported"
OFF = "off"
ON = "on"
ON_BY_DEFAULT = "on_by_default"
UNKNOWN = "unknown"

# Marks around what is ours in a Go template; they are comments in what is rendered from it.
BLOCK_BEGIN = "# BEGIN rebellions.npu"
BLOCK_END = "# END rebellions.npu"

ELEVATE = "run this with privilege escalation"
KUBELET_UNITS = ("kubelet.service", "snap.kubelet.daemon.service")
UNITS = tuple(
    dict.fromkeys(
        ("containerd.service", "docker.service", "crio.service")
        + tuple(unit for distro in DISTROS for unit in distro.units)
        + KUBELET_UNITS
        + tuple(unit for distro in DISTROS for unit in distro.kubelet_units)
    )
)


def block_span(text: str) -> tuple[int, int]:
    """Offsets of our block in a template, or in what is rendered from it, without its last line end; else (-1, -1)."""
    start = text.find(BLOCK_BEGIN)
    stop = text.find(BLOCK_END, start) if start >= 0 else -1
    return (start, stop + len(BLOCK_END)) if stop >= 0 else (-1, -1)


def with_block(text: str, block: str) -> str:
    """Rendered text with `block` in the place of ours, or at the end."""
    start, stop = block_span(text)
    return text[:start] + block + text[stop:] if start >= 0 else "%s\n%s\n" % (text.rstrip("\n"), block)


_ACTION = re.compile(r"\{\{.*?\}\}", re.DOTALL)


def made_from(generated: str, template: str) -> bool:
    """Whether a file was made from this Go template: the template's own text, our block aside, is in it in order."""
    start, stop = block_span(template)
    parts = [template[:start], template[stop:]] if start >= 0 else [template]
    at = 0
    for text in (text.strip() for part in parts for text in _ACTION.split(part)):
        found = generated.find(text, at)
        if found < 0:
            return False
        at = found + len(text)
    return True


_NAME = re.compile(r"\$\{(\w+)\}")


def placeholders(generated: str, template: str) -> dict[str, str] | None:
    """The value of each ${NAME} with which the template becomes the generated file; None when no values do that."""
    pattern, seen = "", set()
    for number, part in enumerate(_NAME.split(template.rstrip())):
        if number % 2 == 0:
            pattern += re.escape(part)
        else:
            pattern += "(?P=%s)" % part if part in seen else "(?P<%s>[^\"'\n]*)" % part
            seen.add(part)
    found = re.fullmatch(pattern, generated.rstrip())
    return found.groupdict() if found else None


def filled(template: str, values: t.Mapping[str, str]) -> str:
    """The template with a value for each ${NAME} that has one."""
    return _NAME.sub(lambda name: values.get(name.group(1), name.group(0)), template)


@dataclass(frozen=True)
class RuntimeOptions:
    """What the caller may decide: runtimes, endpoint of the kubelet, place of the CDI spec, stem of our file names.

    `state_dir` is where the writer of configuration keeps the journal of a change that was stopped in the middle.
    """

    runtimes: tuple[str, ...] = ()
    kubelet_endpoint: str = ""
    spec_dir: str = "/var/run/cdi"
    file_stem: str = "npu"
    timeout: float = 10.0
    state_dir: str = ""


@dataclass(frozen=True)
class Dialect:
    """Language of the file to edit.

    `schema` is None when the file says none and holds nothing that would need one; `format` is toml, json or
    template.
    """

    schema: int | None = None
    format: str = "toml"


@dataclass(frozen=True)
class EditTarget:
    """The one file to change. kind: main (edit in place), dropin (a file of ours), template, json, none."""

    path: str = ""
    kind: str = "none"


@dataclass(frozen=True)
class Cdi:
    """State (unsupported, off, on, on_by_default, unknown), effective spec directories, and what said so."""

    state: str = UNKNOWN
    spec_dirs: tuple[str, ...] = ()
    source: str = ""


@dataclass(frozen=True)
class Change:
    """One thing that has to become different, in which file, and why."""

    path: str
    what: str
    why: str


@dataclass(frozen=True)
class Refusal:
    """Why nothing may be written although something is wrong, and what a person does about it."""

    reason: str
    next_step: str


@dataclass(frozen=True)
class Owner:
    """Another program that writes a file which has to change: which file, who, and where the change belongs."""

    path: str
    name: str
    next_step: str


@dataclass
class Runtime:
    """One runtime of the host, as the facts show it; times are seconds since the epoch."""

    name: str
    flavor: str = SYSTEM
    version: str | None = None
    binary: str | None = None
    unit: str | None = None
    unit_flags: list[str] = field(default_factory=list)
    unit_state: str = "absent"
    socket: str = ""
    socket_exists: bool = False
    config_files: list[str] = field(default_factory=list)
    main_config: str | None = None
    dialect: Dialect = field(default_factory=Dialect)
    edit_target: EditTarget = field(default_factory=EditTarget)
    cdi: Cdi = field(default_factory=Cdi)
    process_started: float | None = None
    config_newest: float | None = None
    process_stale: bool | None = None
    cri_enabled: bool | None = None
    changes: list[Change] = field(default_factory=list)
    owners: list[Owner] = field(default_factory=list)
    refusal: Refusal | None = None
    restart_unit: str | None = None
    warnings: list[str] = field(default_factory=list)
    serves_kubelet: bool = False
    selected: bool = False

    def to_dict(self) -> dict[str, t.Any]:
        found = asdict(self)
        found["cdi"]["spec_dirs"] = list(self.cdi.spec_dirs)
        return found


@dataclass
class Context:
    """One look at a host, shared by the runtime classes so that nothing is asked twice."""

    host: Host
    options: RuntimeOptions
    units: dict[str, Unit]
    processes: ProcessTable
    problems: list[Problem] = field(default_factory=list)
    endpoint: str = ""

    @classmethod
    def observe(cls, host: Host, options: RuntimeOptions) -> Context:
        units = read_units(host, UNITS, options.timeout)
        return cls(host, options, units, ProcessTable(host))

    def problem(self, code: str, severity: str, detail: str, next_step: str = "") -> None:
        found = Problem(code, severity, detail, next_step)
        if found not in self.problems:
            self.problems.append(found)

    def loaded_unit(self, *names: str) -> Unit | None:
        """The first active unit of the names, else the first loaded one."""
        found = [self.units[name] for name in names if name in self.units and self.units[name].loaded]
        for unit in found:
            if unit.active:
                return unit
        return found[0] if found else None

    def find_binary(self, unit: Unit | None, *paths: str) -> str | None:
        """The program of the unit when it is there, else the first of the paths."""
        first = unit.argv[0] if unit is not None and unit.argv else ""
        wanted = {posixpath.basename(path) for path in paths}
        for path in ((first,) if posixpath.basename(first) in wanted else ()) + paths:
            if path.startswith("/") and self.host.exists(path):
                return path
        return None

    def main_process(
        self, unit: Unit | None, program: str, fits: t.Callable[[tuple[str, ...]], bool] = lambda argv: True
    ) -> Process | None:
        """The running process of a unit; by a scan of /proc only where systemd does not say what runs."""
        if unit is not None and unit.main_pid:
            found = self.processes.get(unit.main_pid)
            if found is not None and found.started is not None:
                return found
            if unit.started_monotonic is not None:
                return self.processes.since_boot(unit.main_pid, unit.argv, unit.started_monotonic)
        if unit is None or not unit.active_state:
            return self.processes.find(program, fits)
        return None

    def is_socket(self, path: str) -> bool:
        found = self.host.stat(path)
        return found.ok and found.value.kind == "socket"

    def packaged(self, *names: str) -> str | None:
        """Version of the first installed package of the names, for a tree in which no program can be run."""
        if self.host.runs_commands:
            return None
        text = self.host.read_text(DPKG_STATUS, Limit.BULK).get("")
        found = (
            {item["name"]: item["version"] for item in parse_dpkg_status(text, names) if item["state"] == "installed"}
            if text
            else {}
        )
        version = next((found[name] for name in names if found.get(name)), None)
        return version.partition(":")[2] or version if version else None

    def said(self, argv: t.Sequence[str]) -> str | None:
        """Standard output of a command that ended well, else None."""
        done = self.host.run(argv, self.options.timeout)
        return done.value.out if done.ok and done.value.rc == 0 else None


def version_in(text: str | None) -> str | None:
    """The first word of a program's version answer that looks like a version, without a leading v.

    `containerd github.com/containerd/containerd/v2 v2.1.5 REV`, `containerd ... 1.6.20~ds1 REV`, `Docker version
    28.2.2, build X`, `crio version 1.30.4`, `podman version 5.4.2`.
    """
    match = re.search(r"(?:^|\s)v?([0-9]+\.[0-9]+[^\s,]*)", text or "")
    return match.group(1) if match else None


def same_dir(first: str, second: str) -> bool:
    """True when two spec directories are one: /var/run is /run on every system with systemd."""

    def plain(path: str) -> str:
        path = posixpath.normpath(path)
        return path[4:] if path.startswith("/var/run/") or path == "/var/run" else path

    return plain(first) == plain(second)


def has_dir(directories: t.Iterable[str], wanted: str) -> bool:
    return any(same_dir(directory, wanted) for directory in directories)


def with_dirs(directories: t.Iterable[str], *wanted: str) -> list[str]:
    """The list to write: the present directories in their order, then missing default and wanted ones."""
    result = list(directories)
    for directory in SPEC_DIRS + wanted:
        if directory and not has_dir(result, directory):
            result.append(directory)
    return result


def flag_values(argv: t.Sequence[str], *names: str) -> list[str]:
    """Values of a flag in any of its spellings: --name value, --name=value, -n value. In order, repeated flags kept."""
    found = []
    for number, word in enumerate(argv):
        head, equal, tail = word.partition("=")
        if head in names:
            if equal:
                found.append(tail)
            elif number + 1 < len(argv):
                found.append(argv[number + 1])
    return found


def note_process(
    context: Context, runtime: Runtime, process: Process | None, sources: t.Sequence[str] | None = None
) -> None:
    """Fill process_started, config_newest and process_stale from the configuration files, or from their `sources`.

    A file from the future proves nothing: unknown.
    """
    newest = None
    for path in runtime.config_files if sources is None else sources:
        found = context.host.stat(path)
        if found.ok:
            stamp = max(found.value.mtime, found.value.ctime)
            newest = stamp if newest is None else max(newest, stamp)
    runtime.config_newest = newest
    if process is None or process.started is None:
        return
    runtime.process_started = process.started
    if newest is None:
        runtime.process_stale = False
    elif newest > context.host.clock() + 1:
        runtime.warnings.append(
            "a configuration file is dated in the future; whether the running process has read it is unknown"
        )
    else:
        runtime.process_stale = newest > process.started + process.within


def note_unit(runtime: Runtime, unit: Unit | None) -> None:
    if unit is not None:
        runtime.unit = unit.name
        runtime.unit_state = unit.active_state or "unknown"
        runtime.unit_flags = list(unit.argv[1:])
        runtime.restart_unit = unit.name[: -len(".service")] if unit.name.endswith(".service") else unit.name
