# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The records of runtime detection and what every runtime class shares."""

from __future__ import annotations

import posixpath
import re
import typing as t

from .._base.model import NpuError, Problem
from .._base.records import asdict, dataclass, field, replace
from .._base.regex import regex
from .._cdi.options import SPEC_DIRS
from .._host.host import Host, Limit, Probe
from .._host.proc import Process, ProcessTable
from .._host.systemd import Unit, ask_units, read_units, unit_from_files, units_there
from .._packages.installed import DPKG_STATUS, parse_dpkg_status
from .distros import DISTROS, GENERATED, K3S, RKE2, Distro, distro_settings, variable_names

CONTAINERD = "containerd"
DOCKER = "docker"
CRIO = "cri-o"
PODMAN = "podman"
NAMES = (CONTAINERD, DOCKER, CRIO, PODMAN)

SYSTEM = "system"
DOCKER_BACKEND = "docker-backend"
SNAP = "snap"

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
DOCKER_UNITS = ("docker.service", "snap.docker.dockerd.service")
# Where an administrator's units are: those of packages have the names that are known.
SITE_UNITS = ("/etc/systemd/system", "/usr/local/lib/systemd/system")
SITE_PROGRAMS = regex(r"^\s*ExecStart\s*=.*(?:k3s|rke2|k0s|containerd|dockerd|crio)", re.MULTILINE)
UNITS = tuple(
    dict.fromkeys(
        ("containerd.service", *DOCKER_UNITS, "crio.service")
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


@dataclass(frozen=True)
class RuntimeOptions:
    """What the caller may decide: runtimes, endpoint of the kubelet, place of the CDI spec, stem of our file names.

    `state_dir` is where the writer of configuration keeps the journal of a change that was stopped in the middle.
    `config_file`, `dropin_dir`, `socket` and `unit` describe the one runtime of `runtimes` where the host does not.
    """

    runtimes: tuple[str, ...] = ()
    kubelet_endpoint: str = ""
    spec_dir: str = "/var/run/cdi"
    file_stem: str = "npu"
    timeout: float = 10.0
    state_dir: str = ""
    config_file: str = ""
    dropin_dir: str = ""
    socket: str = ""
    unit: str = ""

    @classmethod
    def read(cls, given: t.Mapping[str, t.Any], **more: t.Any) -> RuntimeOptions:
        """From the options of a module. NpuError names the option that is wrong."""
        described: dict[str, t.Any] = described_by_hand(given)
        runtimes = tuple(given["runtimes"])
        return cls(runtimes=runtimes, kubelet_endpoint=given["kubelet_endpoint"], **described, **more)

    def by_hand(self, name: str) -> bool:
        """True when the caller describes the runtime of this name."""
        return self.runtimes == (name,) and any(getattr(self, key) for key in BY_HAND)


BY_HAND = ("config_file", "dropin_dir", "socket", "unit")


def described_by_hand(given: t.Mapping[str, t.Any], prefix: str = "") -> dict[str, str]:
    """What the inputs with this prefix say of the one runtime that they name. NpuError names a wrong input."""
    found = {name: str(given.get(prefix + "runtime_" + name) or "") for name in BY_HAND}
    names = [prefix + "runtime_" + name for name in BY_HAND if found[name]]
    count = len(given[prefix + "runtimes"])
    if names and count != 1:
        raise NpuError(
            "A runtime is described by %s, and %d runtimes are named." % (", ".join(names), count),
            "Name the one runtime that is meant%s." % (" in %sruntimes" % prefix if prefix else ""),
        )
    for name, value in found.items():
        if value and name != "unit" and not value.startswith("/"):
            raise NpuError("%sruntime_%s is %r." % (prefix, name, value), "Give an absolute path.")
    if found["unit"] and not re.match(r"^[A-Za-z0-9_][A-Za-z0-9:_.@\\-]*\Z", found["unit"]):
        raise NpuError("%sruntime_unit is %r." % (prefix, found["unit"]), "Give the name of a systemd service.")
    if found["unit"] and not found["unit"].endswith(".service"):
        found["unit"] += ".service"
    return found


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
    """Another program that writes a file which has to change: which file, who, and where the change belongs.

    `refuse` is true when its next run surely writes the whole file again, and it has the switch itself.
    """

    path: str
    name: str
    next_step: str
    refuse: bool = False


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


@dataclass(frozen=True)
class Daemon:
    """A program of the host: its unit, its process, and the arguments with which it runs or will run.

    `outdated` is true when the unit has got other arguments of READ_FLAGS since the process started.
    """

    unit: Unit | None = None
    process: Process | None = None
    argv: tuple[str, ...] = ()
    outdated: bool = False


# Flags of each daemon that decide which files and sockets count here, and the default where that is a file.
# Others, such as the level of its log, may wait for the next restart.
READ_FLAGS: dict[str, tuple[tuple[tuple[str, ...], str], ...]] = {
    "containerd": ((("--config", "-c"), "/etc/containerd/config.toml"), (("--address", "-a"), "")),
    "dockerd": (
        (("--config-file",), "/etc/docker/daemon.json"),
        (("--feature", "--features"), ""),
        (("--cdi-spec-dir", "--cdi-spec-dirs"), ""),
        (("--host", "-H"), ""),
    ),
    "crio": (
        (("--config", "-c"), "/etc/crio/crio.conf"),
        (("--config-dir", "-d"), "/etc/crio/crio.conf.d"),
        (("--listen",), ""),
        (("--cdi-spec-dirs",), ""),
    ),
}


def read_from(program: str, argv: t.Sequence[str]) -> list[list[str]]:
    """What a command line gives of READ_FLAGS, in their order."""
    return [flag_values(argv, *names) or [default] for names, default in READ_FLAGS[program]]


def ask_systemd(host: Host, options: RuntimeOptions, more: t.Sequence[str] = ()) -> Probe:
    """ask_units() of the units of known names and of `more`, as far as they are there, and of the one by hand."""
    names = [name for name in units_there(host, (*UNITS, *more)) if name != options.unit]
    return ask_units(host, [*names, options.unit] if options.unit else names, options.timeout)


@dataclass
class Context:
    """One look at a host, shared by the runtime classes so that nothing is asked twice."""

    host: Host
    options: RuntimeOptions
    units: dict[str, Unit]
    processes: ProcessTable
    problems: list[Problem] = field(default_factory=list)
    endpoint: str = ""
    site: list[Unit] | None = None
    distros: dict[int, Distro | None] = field(default_factory=dict)

    @classmethod
    def observe(cls, host: Host, options: RuntimeOptions, asked: Probe | None = None) -> Context:
        asked = ask_systemd(host, options) if asked is None else asked
        names = dict.fromkeys((*UNITS, options.unit) if options.unit else UNITS)
        return cls(host, options, read_units(host, names, options.timeout, asked), ProcessTable(host))

    @property
    def settled(self) -> bool:
        """True when the host's kubelet is an active unit of a known name: then no distribution has to be looked for."""
        return any(self.units[name].active_state == "active" for name in KUBELET_UNITS if name in self.units)

    def unit(self, name: str, active: str = "active") -> Unit:
        """A unit of any name that is known to be there: by its files, and by systemd where it has none.

        `active` is its state as its processes tell it.
        """
        if name not in self.units:
            found = unit_from_files(self.host, name)
            if not found.loaded:
                found = read_units(self.host, (name,), self.options.timeout)[name]
            if not found.active_state or not found.loaded:
                found = replace(found, loaded=True, active_state=active)
            self.units[name] = found
        return self.units[name]

    def unit_of(self, process: Process) -> Unit | None:
        """The unit that a process belongs to, by its control group, else by the main process of the known units.

        Where the kernel does not say it, a snap's program belongs to the unit of that snap.
        """
        name = self.processes.unit(process.pid)
        if name:
            return self.unit(name)
        found = next((unit for unit in self.units.values() if unit.main_pid == process.pid), None)
        snap = next((distro for distro in DISTROS if distro.plain and process.argv[0].startswith(distro.mark)), None)
        if found is None and snap is not None and not self.processes.has_group(process.pid):
            return self.loaded_unit(*(snap.units if process.program == CONTAINERD else snap.kubelet_units))
        return found

    def unit_with(self, starts: t.Callable[[tuple[str, ...]], bool]) -> Unit | None:
        """A stopped unit of the administrator, of any name, whose command fits."""
        if self.site is None:
            self.site = []
            for path in [path for folder in SITE_UNITS for path in self.host.glob(folder, "*.service")]:
                name = posixpath.basename(path)
                if name not in self.units and SITE_PROGRAMS.search(self.host.read_text(path).get("")):
                    self.site.append(unit_from_files(self.host, name))
        found = next((unit for unit in self.site if unit.loaded and starts(unit.argv)), None)
        return self.unit(found.name, "inactive") if found is not None else None

    def distro_unit(self, distro: Distro, names: t.Sequence[str]) -> Unit | None:
        """The unit of a distribution: what runs comes first, then the known `names`, then what would start it."""
        known = self.loaded_unit(*names)
        if (known is not None and known.active) or self.settled or not distro.program:
            return known
        process = self.distro_process(distro)
        own = self.unit_of(process) if process is not None else None
        if own is not None or (process is not None and self.processes.has_group(process.pid)):
            return own
        return known or self.unit_with(distro.runs)

    def distro_process(self, distro: Distro) -> Process | None:
        """The running process of a distribution that has one program for everything."""
        if not distro.program or self.settled:
            return None
        return self.processes.find(distro.program, distro.runs)

    def distro_settings(self, distro: Distro) -> dict[str, str]:
        """What the unit, the environment and the configuration of a distribution set."""
        unit, process = self.distro_unit(distro, distro.units), self.distro_process(distro)
        argv = unit.argv if unit is not None and unit.argv else process.argv if process is not None else ()
        environment = dict(unit.environment) if unit is not None else {}
        if process is not None:
            environment.update(self.processes.variables(process.pid, variable_names(distro)))
        return distro_settings(self.host, distro, argv, environment)

    def distro_of(self, process: Process) -> Distro | None:
        """The distribution that a containerd belongs to: by its arguments, its file, its unit, or what shares that."""
        if process.pid not in self.distros:
            self.distros[process.pid] = self._distro_of(process)
        return self.distros[process.pid]

    def _distro_of(self, process: Process) -> Distro | None:
        words = process.argv + (self.processes.file(process.pid),)
        for distro in DISTROS:
            if any(word.startswith(posixpath.normpath(distro.mark) + "/") for word in (words[0], words[-1])) or (
                not distro.plain and any(distro.config in word for word in words)
            ):
                return distro
        unit = self.unit_of(process)
        if unit is None:
            generated = any(word.endswith(GENERATED) for word in words)
            return (RKE2 if any("/rke2/" in word for word in words) else K3S) if generated else None
        for distro in DISTROS:
            if unit.name in distro.units or distro.runs(unit.argv):
                return distro
            main = self.distro_process(distro)
            if main is not None and self.processes.unit(main.pid) == unit.name:
                return distro
        return None

    def may_run(self, paths: t.Sequence[str], names: t.Sequence[str]) -> bool:
        """False when nothing of a runtime is at its known places, and no search among the processes is called for."""
        return (
            not self.settled
            or self.processes.scanned
            or self.loaded_unit(*names) is not None
            or any(self.host.exists(path) for path in paths)
        )

    def daemon(
        self, program: str, names: t.Sequence[str], fits: t.Callable[[tuple[str, ...]], bool] = lambda argv: True
    ) -> Daemon:
        """A program of the host as it runs, under a unit of any name; else as a unit of these names would start it."""
        unit = self.loaded_unit(*names)
        process = self.main_process(unit, program, fits)
        if unit is not None and unit.active and process is not None and process.program != program:
            # A wrapper, whose child is the program.
            own = self.processes.named(program, fits)
            process = next((item for item in own if self.processes.unit(item.pid) == unit.name), process)
        elif process is not None and (unit is None or not unit.active):
            # What runs belongs to another unit than the stopped one, or to none.
            unit = self.unit_of(process) or (unit if unit is not None and not unit.active_state else None)
        return self.started_by(unit, process, program)

    def started_by(self, unit: Unit | None, process: Process | None, program: str) -> Daemon:
        """The arguments of a process; those of its unit when it does not run, or when that has changed since."""
        planned = unit.argv if unit is not None else ()
        running = process.argv if process is not None and process.program == program else ()
        if not running or unit is None or not planned or posixpath.basename(planned[0]) != program:
            return Daemon(unit, process, running or planned)
        differ = read_from(program, running) != read_from(program, planned)
        if process is not None and process.started is not None and differ:
            for path in unit.files + unit.environment_files:
                found = self.host.stat(path)
                if found.ok and max(found.value.mtime, found.value.ctime) > process.started + process.within:
                    return Daemon(unit, process, planned, True)
        return Daemon(unit, process, running)

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

    def find_binary(self, daemon: Daemon, *paths: str) -> str | None:
        """The file of the running program, else that of its command, else the first of the paths that is there."""
        wanted = {posixpath.basename(path) for path in paths}
        running = self.processes.file(daemon.process.pid) if daemon.process is not None else ""
        planned = daemon.unit.argv[:1] if daemon.unit is not None else ()
        first = [path for path in (running, *daemon.argv[:1], *planned) if posixpath.basename(path) in wanted]
        for path in (*first, *paths):
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
        return self.processes.find(program, fits) if unit is None or not unit.active else None

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


def note_unit(runtime: Runtime, unit: Unit | None, argv: t.Sequence[str] = ()) -> None:
    """The unit and its arguments: `argv` as they are in effect, else those of the unit."""
    runtime.unit_flags = list(argv[1:]) or (list(unit.argv[1:]) if unit is not None else [])
    if unit is not None:
        runtime.unit = unit.name
        runtime.unit_state = unit.active_state or "unknown"
        runtime.restart_unit = unit.name[: -len(".service")] if unit.name.endswith(".service") else unit.name


def note_outdated(runtime: Runtime, daemon: Daemon) -> None:
    if daemon.outdated and daemon.unit is not None:
        runtime.process_stale = True
        runtime.warnings.append("%s has changed since its process started: other arguments wait" % daemon.unit.name)
