# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CRI-O: CDI is always on since 1.23 and has no switch; only the spec directories can be wrong."""

from __future__ import annotations

import posixpath
import typing as t

from .._base.model import ERROR
from .._base.versions import release_numbers
from .._cdi.options import SPEC_DIRS
from .._formats.toml import TomlError, loads
from .base import (
    CRIO,
    ELEVATE,
    OFF,
    ON,
    ON_BY_DEFAULT,
    UNKNOWN,
    UNSUPPORTED,
    Cdi,
    Change,
    Context,
    Daemon,
    Dialect,
    EditTarget,
    Refusal,
    Runtime,
    RuntimeOptions,
    flag_values,
    has_dir,
    note_outdated,
    note_process,
    note_unit,
    version_in,
    with_dirs,
)

BINARIES = ("/usr/bin/crio", "/usr/local/bin/crio")
UNITS = ("crio.service",)
SOCKET = "/var/run/crio/crio.sock"
MAIN = "/etc/crio/crio.conf"
DIRECTORY = "/etc/crio/crio.conf.d"
NEVER_READ = "/etc/crio/conf.d"
# Environment variables of CRI-O, with the flag that each stands for.
VARIABLES = {
    "CONTAINER_CONFIG": ("--config", "-c"),
    "CONTAINER_CONFIG_DIR": ("--config-dir", "-d"),
    "CONTAINER_LISTEN": ("--listen",),
    "CONTAINER_CDI_SPEC_DIRS": ("--cdi-spec-dirs",),
}
SUPPORTED_SINCE = (1, 23)
REPAIR = "repair the file; CRI-O does not start with it"


def _table(value: t.Any) -> dict[str, t.Any]:
    return value if isinstance(value, dict) else {}


def _texts(value: t.Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def reads_after(path: str, dropin: str) -> bool:
    """True when CRI-O reads `path` later than `dropin`, in whose directory or below it stands."""
    inside = path.startswith(posixpath.dirname(dropin) + "/")
    return inside and path.split("/") > dropin.split("/")


class CrioRuntime:
    """detect() finds and reads, propose() says what would have to change."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.broken = ""
        self.remedy = REPAIR
        self.owner = ""
        self.flag = False
        self.directory = DIRECTORY

    def detect(self) -> list[Runtime]:
        context = self.context
        if not context.may_run((*BINARIES, SOCKET), UNITS):
            return []
        daemon = context.daemon("crio", UNITS)
        binary = context.find_binary(daemon, *BINARIES)
        if daemon.unit is None and daemon.process is None and binary is None and not context.is_socket(SOCKET):
            return []
        found = Runtime(CRIO, binary=binary, cri_enabled=True)
        note_unit(found, daemon.unit, daemon.argv)
        argv = daemon.argv + self._from_environment(daemon)
        if binary:
            found.version = version_in(context.said([binary, "--version"])) or context.packaged("cri-o")
        given = context.options if context.options.by_hand(CRIO) else RuntimeOptions()
        found.main_config = given.config_file or (flag_values(argv, "--config", "-c") or [MAIN])[-1]
        self.directory = given.dropin_dir or (flag_values(argv, "--config-dir", "-d") or [DIRECTORY])[-1]
        self._read(found, argv)
        listen = flag_values(argv, "--listen")
        if listen:
            found.socket = listen[-1]
            found.socket_exists = context.is_socket(found.socket)
        note_process(context, found, daemon.process)
        note_outdated(found, daemon)
        for path in context.host.glob(NEVER_READ, "*"):
            found.warnings.append("%s is never read: CRI-O reads %s only" % (path, self.directory or found.main_config))
        return [found]

    def _from_environment(self, daemon: Daemon) -> tuple[str, ...]:
        """The flags that CRI-O takes from its environment where its command line does not have them."""
        given = dict(daemon.unit.environment) if daemon.unit is not None else {}
        if daemon.process is not None and not daemon.outdated:
            given.update(self.context.processes.variables(daemon.process.pid, VARIABLES))
        return tuple(
            "%s=%s" % (flags[0], given[name])
            for name, flags in VARIABLES.items()
            if given.get(name) and not flag_values(daemon.argv, *flags)
        )

    def _read(self, found: Runtime, argv: t.Sequence[str]) -> None:
        context = self.context
        directories: tuple[str, ...] = SPEC_DIRS
        found.socket = SOCKET
        # An empty --config-dir turns drop-ins off.
        listed = context.host.listdir(self.directory) if self.directory else None
        if listed is not None and listed.state not in ("value", "absent"):
            self._break(self.directory, listed.detail, ELEVATE if listed.state == "denied" else REPAIR)
        main = [found.main_config] if found.main_config and context.host.exists(found.main_config) else []
        for path in main + (self._drop_ins(self.directory) if self.directory else []):
            found.config_files.append(path)
            text = context.host.read_bytes(path)
            if not text.ok:
                self._break(path, text.detail, ELEVATE if text.state == "denied" else REPAIR)
                continue
            try:
                crio = loads(text.value.decode("utf-8")).get("crio")
            except UnicodeDecodeError as exc:
                self._break(path, str(exc))
                continue
            except TomlError as exc:
                self._break("%s, line %d, column %d" % (path, exc.line, exc.column), exc.message)
                continue
            tables = crio if isinstance(crio, dict) else {}
            runtime, api = (_table(tables.get(name)) for name in ("runtime", "api"))
            if "enable_cdi" in runtime:
                found.warnings.append("%s sets enable_cdi, which CRI-O does not know" % path)
            if "cdi_spec_dirs" in runtime and not _texts(runtime["cdi_spec_dirs"]):
                self._break(path, "cdi_spec_dirs is not a list of strings")
            elif "cdi_spec_dirs" in runtime:
                directories, self.owner = tuple(str(item) for item in runtime["cdi_spec_dirs"]), path
            if isinstance(api.get("listen"), str) and api["listen"]:
                found.socket = api["listen"]
        found.socket_exists = context.is_socket(found.socket)
        flags = [item for value in flag_values(argv, "--cdi-spec-dirs") for item in value.split(",") if item]
        if flags:
            directories, self.flag = tuple(flags), True
        release = release_numbers(found.version)
        source = "the --cdi-spec-dirs flag of the unit" if flags else self.owner or "defaults of CRI-O"
        if self.broken:
            found.cdi = Cdi(UNKNOWN, (), self.broken)
        elif not release:
            found.cdi = Cdi(UNKNOWN, directories, "the version of CRI-O is not known")
        elif release < SUPPORTED_SINCE:
            found.cdi = Cdi(UNSUPPORTED, (), "CRI-O %s" % found.version)
        elif not directories:
            found.cdi = Cdi(OFF, (), source)
        else:
            found.cdi = Cdi(ON if flags or self.owner else ON_BY_DEFAULT, directories, source)

    def _drop_ins(self, directory: str) -> list[str]:
        """Files in the order that CRI-O reads them: it walks the directory with everything below, links aside."""
        found: list[str] = []
        for path in self.context.host.glob(directory, "*"):
            if getattr(self.context.host.stat(path, follow=False).get(), "kind", "") == "dir":
                found += self._drop_ins(path)
            elif getattr(self.context.host.stat(path).get(), "kind", "") == "file":
                found.append(path)
        return found

    def _break(self, place: str, what: str, remedy: str = REPAIR) -> None:
        self.broken, self.remedy = "%s: %s" % (place, what), remedy
        self.context.problem("crio_config_invalid", ERROR, self.broken, remedy)

    def propose(self, runtime: Runtime) -> None:
        spec_dir = self.context.options.spec_dir
        target = posixpath.join(self.directory or DIRECTORY, "99-%s.conf" % self.context.options.file_stem)
        runtime.edit_target = EditTarget(target, "dropin") if self.directory else EditTarget()
        runtime.dialect = Dialect(None, "toml")
        if self.broken:
            runtime.refusal = Refusal(self.broken, self.remedy)
        elif runtime.cdi.state == UNSUPPORTED:
            runtime.refusal = Refusal("CRI-O %s has no CDI" % runtime.version, "upgrade CRI-O to 1.23 or newer")
        elif has_dir(runtime.cdi.spec_dirs, spec_dir):
            self._clean(runtime, target)
        elif runtime.cdi.state == UNKNOWN:
            runtime.refusal = Refusal(
                "the version of this CRI-O could not be detected",
                "make %s answer --version" % (runtime.binary or "crio"),
            )
        elif self.flag:
            runtime.refusal = Refusal(
                "the unit %s has --cdi-spec-dirs without %s, and a flag wins over every file"
                % (runtime.unit, spec_dir),
                "add %s to that flag" % spec_dir,
            )
        elif not self.directory:
            runtime.refusal = Refusal(
                "the unit %s has an empty --config-dir, so CRI-O reads no drop-in" % runtime.unit,
                "add %s to cdi_spec_dirs in %s, or remove that flag" % (spec_dir, runtime.main_config or MAIN),
            )
        elif reads_after(self.owner, target):
            runtime.refusal = Refusal(
                "%s sets cdi_spec_dirs without %s and is read after %s, which would not be effective"
                % (self.owner, spec_dir, target),
                "add %s to cdi_spec_dirs in %s, or give it or its directory a name that sorts before 99-"
                % (spec_dir, self.owner),
            )
        else:
            value = ", ".join('"%s"' % item for item in with_dirs(runtime.cdi.spec_dirs, spec_dir))
            runtime.changes.append(
                Change(
                    target,
                    "[crio.runtime] cdi_spec_dirs = [%s]" % value,
                    "%s is not among the directories that are read" % spec_dir,
                )
            )

    def _clean(self, runtime: Runtime, target: str) -> None:
        """A file of ours with a key that CRI-O does not know, as older tools wrote it, is corrected."""
        if any(warning.startswith(target + " sets enable_cdi") for warning in runtime.warnings):
            runtime.changes.append(Change(target, "[crio.runtime] without enable_cdi", "CRI-O has no such option"))
