# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every containerd that is configured like a host's own: its effective CDI state, and what would have to change."""

from __future__ import annotations

import posixpath
import typing as t

from .._base.versions import release_numbers
from .._host.proc import Process
from .base import (
    CONTAINERD,
    DOCKER_BACKEND,
    DOCKER_UNITS,
    SYSTEM,
    Change,
    Context,
    Daemon,
    Dialect,
    EditTarget,
    Runtime,
    flag_values,
    has_dir,
    note_outdated,
    note_process,
    note_unit,
    same_dir,
)
from .containerd_config import ID_V2, ID_V3, MERGING_SINCE, SHORT_NAMES, ConfigFile, ConfigSet, Release
from .containerd_state import Missing, Reader, missing_keys, read_state, refuse_unreadable, schema_of, schema_one
from .crio import SOCKET as CRIO_SOCKET
from .distros import DISTROS, Distro, arguments_of
from .docker import CRI_DOCKERD_SOCKETS

CONFIG = "/etc/containerd/config.toml"
SOCKET = "/run/containerd/containerd.sock"
BINARIES = ("/usr/bin/containerd", "/usr/local/bin/containerd")
UNIT = "containerd.service"
PRIVATE_PATHS = (
    "/var/run/docker/",
    "/run/docker/",
    "/run/snap.docker/",
    "/var/lib/rancher/",
    "/run/k3s/",
    "/etc/k0s/",
    "/var/lib/k0s/",
    "/run/k0s/",
    "/var/snap/",
    "/snap/",
)


class ContainerdRuntime(Reader):
    """detect() finds and reads, propose() says what would have to change."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        # Root file of the containerd that the caller describes.
        self.described = ""

    def detect(self) -> list[Runtime]:
        found = self._daemons()
        meant = self._meant(found)
        return [self._read(daemon, meant) for daemon in found]

    def _daemons(self) -> list[Daemon]:
        """What runs, then what would run as a known unit, else what is only installed."""
        context = self.context
        found = self._running()
        known = [(UNIT, "")] + [(name, distro.name) for distro in DISTROS if distro.plain for name in distro.units]
        for name, flavor in known:
            unit = context.loaded_unit(name)
            if unit is not None and not any(item.unit is not None and item.unit.name == name for item in found):
                plain = next((distro for distro in DISTROS if distro.name == flavor), None)
                argv = arguments_of(context.host, plain, "containerd") if plain is not None else ()
                found.append(Daemon(unit, None, (unit.argv[:1] + argv) if argv else unit.argv))
        wanted = context.endpoint
        if self._is_unanswered(found):
            other = context.unit_with(lambda argv: _is_containerd(argv) and same_dir(wanted, socket_in(argv)))
            found += [Daemon(other, None, other.argv)] if other is not None else []
        if not found and (context.find_binary(Daemon(), *BINARIES) or context.is_socket(SOCKET)):
            found.append(Daemon())
        return found

    def _running(self) -> list[Daemon]:
        """The containerd of the known unit, and all others unless it is the one that the kubelet uses."""
        context = self.context
        first = context.daemon("containerd", (UNIT,), _is_system)
        found = [first] if first.process is not None or (first.unit is not None and first.unit.active) else []
        if first.process is not None and (first.unit is None or first.unit.name != UNIT):
            # With its data elsewhere, only its unit or its generated file tells that it is a distribution's.
            owner = context.distro_of(first.process)
            found = found if owner is None or owner.plain else []
        if context.settled and found and not self._is_unanswered(found):
            return found
        for process in context.processes.named("containerd"):
            distro = context.distro_of(process)
            mine = distro.plain if distro is not None else _is_system(process.argv) and not self._is_dockers(process)
            # Of two that name one socket, one has it: that of the known unit.
            if mine and not any(same_dir(socket_in(item.argv), socket_in(process.argv)) for item in found):
                found.append(context.started_by(context.unit_of(process), process, "containerd"))
        return found

    def _is_unanswered(self, found: t.Sequence[Daemon]) -> bool:
        """True when the kubelet uses a socket that belongs to nothing that is known."""
        crio = self.context.loaded_unit("crio.service")
        known = [socket_in(item.argv) for item in found] + [item.socket for item in DISTROS if not item.plain]
        known += [CRIO_SOCKET, *CRI_DOCKERD_SOCKETS]
        return bool(self.context.endpoint) and not (crio and crio.active) and not has_dir(known, self.context.endpoint)

    def _is_dockers(self, process: Process) -> bool:
        """True for a containerd that dockerd has started for itself: both are in one unit."""
        unit = self.context.processes.unit(process.pid)
        own = (self.context.processes.unit(item.pid) for item in self.context.processes.named("dockerd"))
        return bool(unit) and (unit in DOCKER_UNITS or unit in own)

    def _meant(self, found: list[Daemon]) -> Daemon | None:
        """The one that the caller describes; one that is not among them is added when the description is enough."""
        options = self.context.options
        if not options.by_hand(CONTAINERD):
            return None
        for item in found:
            named = item.unit is not None and item.unit.name == options.unit
            if named or (options.socket and same_dir(options.socket, socket_in(item.argv))):
                return item
        if options.unit or options.socket or not found:
            unit = self.context.loaded_unit(options.unit)
            enough = options.config_file or (unit is not None and _is_containerd(unit.argv))
            if not enough and (found or self._has_distro()):
                return None
            if unit is not None and unit.active:
                found.append(self.context.daemon("containerd", (unit.name,)))
            else:
                found.append(self.context.started_by(unit, None, "containerd"))
            return found[-1]
        serving = [item for item in found if same_dir(self.context.endpoint, socket_in(item.argv))]
        return (serving or found)[0]

    def _has_distro(self) -> bool:
        """True when the containerd of a distribution is here, which the description may be about."""
        context = self.context
        return any(
            context.distro_unit(item, item.units) is not None or context.is_socket(item.socket)
            for item in DISTROS
            if not item.plain
        )

    def _read(self, daemon: Daemon, meant: Daemon | None) -> Runtime:
        context = self.context
        distro = self._distro(daemon)
        found = Runtime(CONTAINERD, distro.name if distro is not None else SYSTEM)
        found.binary = context.find_binary(daemon, *(distro.binaries if distro is not None else BINARIES))
        note_unit(found, daemon.unit, daemon.argv)
        config = _last(flag_values(daemon.argv, "--config", "-c"))
        if daemon is meant:
            config = context.options.config_file or config
        found.main_config = posixpath.join("/", config or CONFIG)
        if daemon is meant:
            self.described = found.main_config
        address = _last(flag_values(daemon.argv, "--address", "-a"))
        read_state(context, self, found, bool(config), daemon.process, address or SOCKET)
        found.socket = address or _address(self.read_of(found)[0]) or SOCKET
        found.socket_exists = context.is_socket(found.socket)
        note_process(context, found, daemon.process)
        note_outdated(found, daemon)
        return found

    def _distro(self, daemon: Daemon) -> Distro | None:
        """The distribution, of those whose containerd is configured like a host's own."""
        name = daemon.unit.name if daemon.unit is not None else ""
        own = self.context.processes.file(daemon.process.pid) if daemon.process is not None else ""
        words = (own, *daemon.argv[:1])
        plain = (item for item in DISTROS if item.plain)
        return next((item for item in plain if name in item.units or any(w.startswith(item.mark) for w in words)), None)

    def propose(self, runtime: Runtime) -> None:
        if runtime.flavor == DOCKER_BACKEND:
            return
        files, state = self.read_of(runtime)
        release = release_numbers(runtime.version)
        if refuse_unreadable(self.context, runtime, files, state):
            return
        runtime.dialect = Dialect(schema_of(files, release))
        missing = missing_keys(state, self.context.options.spec_dir)
        if not missing and state.cri_enabled is not False:
            runtime.edit_target = EditTarget(runtime.main_config or CONFIG, "main")
            if release >= MERGING_SINCE and runtime.dialect.schema == 1:
                runtime.warnings.append(
                    "%s is in schema 1, which containerd 2.x converts at every start: run containerd config migrate"
                    % files.root
                )
            return
        if runtime.dialect.schema == 1:
            schema_one(runtime, files, release)
            return
        if state.cri_enabled is False and not self._enable_cri(runtime, files):
            return
        if missing:
            self._aim(runtime, files, release, missing)
        elif runtime.changes:
            runtime.edit_target = EditTarget(runtime.changes[0].path, "main")

    def _enable_cri(self, runtime: Runtime, files: ConfigSet) -> bool:
        """A containerd that is to serve Kubernetes must have its CRI plugin; one that serves none is not changed."""
        if not (runtime.serves_kubelet or runtime.selected):
            return False
        for item in files.files:
            named = [name for name in item.disabled if name in ("cri", ID_V2, ID_V3)]
            for name in named:
                runtime.changes.append(
                    Change(
                        item.path,
                        'disabled_plugins without "%s"' % name,
                        "the CRI plugin is switched off, so the kubelet cannot use this containerd",
                    )
                )
            if named:
                runtime.warnings.append("%s switches the CRI plugin off" % item.path)
                if not item.version:
                    self._declare_version(runtime, item)
        return True

    def _declare_version(self, runtime: Runtime, item: ConfigFile) -> None:
        runtime.changes.append(
            Change(item.path, "version = 2", "without a version the file is schema 1, whose CRI table has another name")
        )
        for name in item.disabled:
            if name in SHORT_NAMES:
                what = 'disabled_plugins with "%s" in place of "%s"' % (SHORT_NAMES[name], name)
                runtime.changes.append(Change(item.path, what, "version 2 files name plugins in full"))

    def _aim(self, runtime: Runtime, files: ConfigSet, release: Release, missing: t.Sequence[Missing]) -> None:
        """Choose the file, then say what each missing key becomes in it."""
        root = runtime.main_config or CONFIG
        kind = "main"
        given = self.context.options.dropin_dir if root == self.described else ""
        if release < MERGING_SINCE:
            if given:
                runtime.warnings.append("%s is not used: a drop-in of containerd 1.x replaces whole tables" % given)
            owner = files.last_with(ConfigFile.has_cri_table)
            path = owner.path if owner is not None else root
            schema = runtime.dialect.schema
            why_here = "containerd 1.x replaces a whole plugin table by that of the file it loads last"
        else:
            keys = [key for key, value, why in missing]
            # The file of a distribution is written again by the distribution: what it imports is all there is.
            generated = runtime.flavor != SYSTEM
            path, kind, adds_import = dropin_target(self.context, files, root, keys, given, generated)
            schema = min(files.root_file.schema or 3, 3) if files.root_file is not None else 3
            why_here = "containerd 2.x merges drop-ins" if kind == "dropin" else "this file sets the key"
            if kind == "main" and not any(
                item.path == path and item.sets(key) for item in files.files for key, value, why in missing
            ):
                why_here = "importing %s would bring its other files into effect" % dropins_of(root)
            if adds_import:
                runtime.changes.append(
                    Change(
                        root,
                        'imports with "%s/*.toml"' % posixpath.dirname(path),
                        "no import of this file leads to a directory of drop-ins",
                    )
                )
        runtime.edit_target = EditTarget(path, kind)
        runtime.dialect = Dialect(schema)
        table = ID_V3 if schema == 3 else ID_V2
        for key, value, why in missing:
            runtime.changes.append(
                Change(path, '[plugins."%s"] %s = %s' % (table, key, value), "%s; %s" % (why, why_here))
            )


def _is_system(argv: tuple[str, ...]) -> bool:
    """False for the containerd of a distribution or one that dockerd started for itself."""
    return not any(part.startswith(PRIVATE_PATHS) for word in argv for part in (word, word.partition("=")[2]))


def _is_containerd(argv: t.Sequence[str]) -> bool:
    return bool(argv) and posixpath.basename(argv[0]) == "containerd"


def socket_in(argv: t.Sequence[str]) -> str:
    """The socket that a command line names, else the default."""
    return _last(flag_values(argv, "--address", "-a")) or SOCKET


def dropins_of(root: str) -> str:
    """Where our drop-in goes when the root file imports none: beside it, for another containerd may have its own."""
    return posixpath.join(posixpath.dirname(root), "conf.d")


def _last(values: t.Sequence[str]) -> str:
    return values[-1] if values else ""


def _address(files: ConfigSet) -> str:
    found = ""
    for item in files.files:
        for table in (item.data.get("grpc"), item.plugins.get("io.containerd.server.v1.grpc")):
            if isinstance(table, dict) and isinstance(table.get("address"), str):
                found = table["address"] or found
    return found


def dropin_target(
    context: Context, files: ConfigSet, root: str, keys: t.Sequence[str], given: str = "", anywhere: bool = False
) -> tuple[str, str, bool]:
    """(path, kind, whether the root file needs an import) for containerd 2.x.

    A directory of imports beside the root file is used, with a name that is loaded after every file that sets our
    keys; one elsewhere is the site's own, and is used with `anywhere` only. Without one, a root file that sets the key
    itself is edited in place, and so is one beside a drop-in directory whose files nothing imports, for an import would
    wake them; else a drop-in directory is added. One that is `given` is used in any case.
    """
    directory = ""
    imported = False
    for item in files.files[:1]:
        for pattern in item.imports:
            whole = (
                pattern
                if pattern.startswith("/")
                else posixpath.normpath(posixpath.join(posixpath.dirname(item.path), pattern))
            )
            head, tail = posixpath.split(whole)
            beside = anywhere or posixpath.dirname(head) == posixpath.dirname(item.path)
            if tail == "*.toml" and "*" not in head and beside and (not directory or head == dropins_of(root)):
                directory = head
            imported = imported or (tail == "*.toml" and same_dir(head, given))
    name = "%s.toml" % context.options.file_stem
    owner = files.last_with(lambda item: not item.path.endswith("-" + name) and any(item.sets(key) for key in keys))
    if given:
        return posixpath.join(given, late_name(owner, given, name)), "dropin", not imported
    if not directory:
        if owner is not None:
            return owner.path, "main", False
        if sleeping(context, root, name):
            return root, "main", False
        return posixpath.join(dropins_of(root), "99-" + name), "dropin", True
    if owner is not None and owner.path != root and posixpath.dirname(owner.path) != directory:
        order = [item.path for item in files.files]
        if any(posixpath.dirname(path) == directory and order.index(path) < order.index(owner.path) for path in order):
            return owner.path, "main", False
    return posixpath.join(directory, late_name(owner, directory, name)), "dropin", False


def sleeping(context: Context, root: str, own: str) -> bool:
    """Whether files that are not ours lie in the drop-in directory."""
    return any(
        name.endswith(".toml") and not name.endswith("-" + own)
        for name in context.host.listdir(dropins_of(root)).get([])
    )


def late_name(owner: ConfigFile | None, directory: str, name: str) -> str:
    """99-NAME, or a name that sorts after the file that would win otherwise."""
    last = posixpath.basename(owner.path) if owner is not None and posixpath.dirname(owner.path) == directory else ""
    for candidate in ("99-" + name, "zz-" + name, "zzz-" + name):
        if candidate > last:
            return candidate
    return last[: -len(".toml")] + "z-" + name
