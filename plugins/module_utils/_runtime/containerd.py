# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host's own containerd: its effective CDI state, and what would have to change."""

from __future__ import annotations

import posixpath
import re
import typing as t

from .._base.versions import release_numbers
from .base import (
    CONTAINERD,
    DOCKER_BACKEND,
    SYSTEM,
    Change,
    Context,
    Dialect,
    EditTarget,
    Refusal,
    Runtime,
    flag_values,
    note_process,
    note_unit,
)
from .containerd_config import ID_V2, ID_V3, MERGING_SINCE, SHORT_NAMES, ConfigFile, ConfigSet, Release
from .containerd_state import Missing, Reader, missing_keys, read_state, refuse_unreadable, schema_of, schema_one

CONFIG = "/etc/containerd/config.toml"
SOCKET = "/run/containerd/containerd.sock"
DROPIN_DIR = "/etc/containerd/conf.d"
BINARIES = ("/usr/bin/containerd", "/usr/local/bin/containerd")
UNIT = "containerd.service"
PRIVATE_PATHS = (
    "/var/run/docker/",
    "/run/docker/",
    "/var/lib/rancher/",
    "/run/k3s/",
    "/etc/k0s/",
    "/var/lib/k0s/",
    "/run/k0s/",
    "/var/snap/",
    "/snap/",
)

# Who writes config.toml again at every run of its own, how that shows, and where the switch is there.
OWNERS = (
    (
        "kubespray",
        re.compile(
            r"kubespray|^\s*max_container_log_line_size\s*="
            r"|base_runtime_spec\s*=\s*[\"']/etc/containerd/cri-base\.json[\"']",
            re.IGNORECASE | re.MULTILINE,
        ),
        "set enable_cdi: true in the kubespray inventory and run kubespray, which rewrites this file",
    ),
)


class ContainerdRuntime(Reader):
    """detect() finds and reads, propose() says what would have to change."""

    def detect(self) -> list[Runtime]:
        context = self.context
        unit = context.loaded_unit(UNIT)
        binary = context.find_binary(unit, *BINARIES)
        process = context.main_process(unit, "containerd", _is_system)
        argv = unit.argv if unit is not None and unit.argv else (process.argv if process is not None else ())
        if unit is None and binary is None and process is None and not context.is_socket(SOCKET):
            return []
        found = Runtime(CONTAINERD, SYSTEM, binary=binary)
        note_unit(found, unit)
        if unit is None and argv:
            found.unit_flags = list(argv[1:])
        if binary is None and argv and argv[0].startswith("/"):
            found.binary = argv[0]
        config = _last(flag_values(argv, "--config", "-c"))
        found.main_config = posixpath.join("/", config or CONFIG)
        read_state(context, self, found, named=bool(config))
        files = self.sets[found.flavor]
        found.socket = _last(flag_values(argv, "--address", "-a")) or _address(files) or SOCKET
        found.socket_exists = context.is_socket(found.socket)
        note_process(context, found, process)
        return [found]

    def propose(self, runtime: Runtime) -> None:
        if runtime.flavor == DOCKER_BACKEND:
            return
        files, state = self.sets[SYSTEM], self.states[SYSTEM]
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
        self._mind_owner(runtime)

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
        if release < MERGING_SINCE:
            owner = files.last_with(ConfigFile.has_cri_table)
            path = owner.path if owner is not None else root
            schema = runtime.dialect.schema
            why_here = "containerd 1.x replaces a whole plugin table by that of the file it loads last"
        else:
            path, kind, adds_import = dropin_target(self.context, files, root, [key for key, value, why in missing])
            schema = min(files.root_file.schema or 3, 3) if files.root_file is not None else 3
            why_here = "containerd 2.x merges drop-ins" if kind == "dropin" else "this file sets the key"
            if kind == "main" and not any(
                item.path == path and item.sets(key) for item in files.files for key, value, why in missing
            ):
                why_here = "importing %s would bring its other files into effect" % DROPIN_DIR
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

    def _mind_owner(self, runtime: Runtime) -> None:
        for path in sorted({change.path for change in runtime.changes}):
            if runtime.edit_target.kind == "dropin" and path == runtime.edit_target.path:
                continue
            text = self.context.host.read_text(path).get("")
            for name, mark, remedy in OWNERS:
                if mark.search(text):
                    runtime.refusal = Refusal(
                        "%s is written by %s, whose next run would undo the change" % (path, name), remedy
                    )
                    runtime.changes = []
                    return


def _is_system(argv: tuple[str, ...]) -> bool:
    """False for the containerd of a distribution or one that dockerd started for itself."""
    return not any(part.startswith(PRIVATE_PATHS) for word in argv for part in (word, word.partition("=")[2]))


def _last(values: t.Sequence[str]) -> str:
    return values[-1] if values else ""


def _address(files: ConfigSet) -> str:
    found = ""
    for item in files.files:
        for table in (item.data.get("grpc"), item.plugins.get("io.containerd.server.v1.grpc")):
            if isinstance(table, dict) and isinstance(table.get("address"), str):
                found = table["address"] or found
    return found


def dropin_target(context: Context, files: ConfigSet, root: str, keys: t.Sequence[str]) -> tuple[str, str, bool]:
    """(path, kind, whether the root file needs an import) for containerd 2.x.

    A directory of imports beside the root file is used, with a name that is loaded after every file that sets our
    keys; one elsewhere is the site's own. Without one, a root file that sets the key itself is edited in place, and
    so is one beside a drop-in directory whose files nothing imports, for an import would wake them; else a drop-in
    directory is added.
    """
    directory = ""
    for item in files.files[:1]:
        for pattern in item.imports:
            whole = (
                pattern
                if pattern.startswith("/")
                else posixpath.normpath(posixpath.join(posixpath.dirname(item.path), pattern))
            )
            head, tail = posixpath.split(whole)
            beside = posixpath.dirname(head) == posixpath.dirname(item.path)
            if tail == "*.toml" and "*" not in head and beside and (not directory or head == DROPIN_DIR):
                directory = head
    name = "%s.toml" % context.options.file_stem
    owner = files.last_with(lambda item: not item.path.endswith("-" + name) and any(item.sets(key) for key in keys))
    if not directory:
        if owner is not None:
            return owner.path, "main", False
        if sleeping(context, name):
            return root, "main", False
        return posixpath.join(DROPIN_DIR, "99-" + name), "dropin", True
    if owner is not None and owner.path != root and posixpath.dirname(owner.path) != directory:
        order = [item.path for item in files.files]
        if any(posixpath.dirname(path) == directory and order.index(path) < order.index(owner.path) for path in order):
            return owner.path, "main", False
    return posixpath.join(directory, late_name(owner, directory, name)), "dropin", False


def sleeping(context: Context, own: str) -> bool:
    """Whether files that are not ours lie in the drop-in directory."""
    return any(
        name.endswith(".toml") and not name.endswith("-" + own) for name in context.host.listdir(DROPIN_DIR).get([])
    )


def late_name(owner: ConfigFile | None, directory: str, name: str) -> str:
    """99-NAME, or a name that sorts after the file that would win otherwise."""
    last = posixpath.basename(owner.path) if owner is not None and posixpath.dirname(owner.path) == directory else ""
    for candidate in ("99-" + name, "zz-" + name, "zzz-" + name):
        if candidate > last:
            return candidate
    return last[: -len(".toml")] + "z-" + name
