# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What containerd makes of its configuration files, release by release.

Read in the sources of 1.7.27, 2.1.4, 2.2.0, 2.3.4 and 2.4.2 (services/server/config and
cmd/containerd/server/config): files are loaded breadth first; 1.x lets a later file replace a whole plugin table, 2.x
merges tables and replaces values; lists at the top level grow in both. Up to 2.2 the last version number of all files
decides which table names count; from 2.3 on each file is migrated by itself, and 2.3 alone refuses an import of a
higher version than the root file. 2.4 has no enable_cdi: CDI is always on.
"""

from __future__ import annotations

import fnmatch
import posixpath
import typing as t

from .._base.records import dataclass, field
from .._cdi.options import SPEC_DIRS
from .._formats.toml import TomlError, loads
from .._host.host import Host

Release = t.Tuple[int, ...]

ID_V1 = "cri"
ID_V2 = "io.containerd.grpc.v1.cri"
ID_V3 = "io.containerd.cri.v1.runtime"
# Names of schema 1 for what version 2 calls in full (cmd/containerd/server/config, v1MigratePluginName).
SHORT_NAMES = {
    "aufs": "io.containerd.snapshotter.v1.aufs",
    "btrfs": "io.containerd.snapshotter.v1.btrfs",
    "devmapper": "io.containerd.snapshotter.v1.devmapper",
    "native": "io.containerd.snapshotter.v1.native",
    "overlayfs": "io.containerd.snapshotter.v1.overlayfs",
    "zfs": "io.containerd.snapshotter.v1.zfs",
    "cgroups": "io.containerd.monitor.v1.cgroups",
    "linux": "io.containerd.runtime.v1.linux",
    "opt": "io.containerd.internal.v1.opt",
    "restart": "io.containerd.internal.v1.restart",
    "tracing": "io.containerd.internal.v1.tracing",
    "otlp": "io.containerd.tracing.processor.v1.otlp",
}
CDI_SINCE = (1, 7)
MERGING_SINCE = (2, 0)
MIGRATING_FILES_SINCE = (2, 3)
ALWAYS_ON_SINCE = (2, 4)
RELATIVE_GLOBS_SINCE = (1, 7)


@dataclass(frozen=True)
class ConfigFile:
    """One file as read: path, table, its version (0 when it says none)."""

    path: str
    data: t.Mapping[str, t.Any]
    version: int

    @property
    def plugins(self) -> t.Mapping[str, t.Any]:
        found = self.data.get("plugins")
        return found if isinstance(found, dict) else {}

    @property
    def disabled(self) -> list[str]:
        found = self.data.get("disabled_plugins")
        return [str(item) for item in found] if isinstance(found, list) else []

    @property
    def imports(self) -> list[str]:
        found = self.data.get("imports")
        return [str(item) for item in found] if isinstance(found, list) else []

    @property
    def schema(self) -> int | None:
        """The version; 1 when it declares none and has plugin tables, None when nothing in it belongs to a version."""
        return self.version or (1 if self.plugins else None)

    def sets(self, key: str) -> bool:
        """True when a CRI table of this file sets the key, under any of the names of that table."""
        return any(
            isinstance(self.plugins.get(name), dict) and key in self.plugins[name] for name in (ID_V1, ID_V2, ID_V3)
        )

    def has_cri_table(self) -> bool:
        return any(isinstance(self.plugins.get(name), dict) for name in (ID_V1, ID_V2, ID_V3))


@dataclass
class ConfigSet:
    """A root file and all it imports, in the order containerd loads them.

    `error` is set when containerd would not start with them.
    """

    root: str
    files: list[ConfigFile] = field(default_factory=list)
    error: str = ""
    error_code: str = ""
    denied: bool = False

    @property
    def root_file(self) -> ConfigFile | None:
        return self.files[0] if self.files and self.files[0].path == self.root else None

    def last_with(self, test: t.Callable[[ConfigFile], bool]) -> ConfigFile | None:
        found = [item for item in self.files if test(item)]
        return found[-1] if found else None


@dataclass(frozen=True)
class Effective:
    """What the set comes to. `enabled` is None when there is no CRI plugin to ask or the set does not load."""

    enabled: bool | None
    explicit: bool
    spec_dirs: tuple[str, ...]
    cri_enabled: bool | None
    error: str = ""


def load_set(host: Host, root: str, release: Release, named: bool = False) -> ConfigSet:
    """Read the root file and its imports. An absent root file is an empty set unless it was `named` by a flag."""
    result = ConfigSet(root)
    pending = [root]
    done = set()
    while pending:
        path = pending.pop(0)
        if path in done:
            continue
        done.add(path)
        found = host.read_bytes(path)
        if not found.ok:
            if path == root and found.state == "absent" and not named:
                return result
            result.error = "%s cannot be read: %s" % (path, found.detail)
            result.error_code = "containerd_config_unreadable"
            result.denied = found.state == "denied"
            return result
        try:
            data = loads(found.value.decode("utf-8"))
            version = data.get("version", 0)
            if isinstance(version, bool) or not isinstance(version, int):
                raise ValueError("version is not an integer")
            for key, kind, name in (
                ("imports", list, "a list"),
                ("disabled_plugins", list, "a list"),
                ("plugins", dict, "a table"),
            ):
                if not isinstance(data.get(key, kind()), kind):
                    raise ValueError("%s is not %s" % (key, name))
        except TomlError as exc:
            result.error = "%s, line %d, column %d: %s" % (path, exc.line, exc.column, exc.message)
        except ValueError as exc:
            result.error = "%s: %s" % (path, exc)
        if result.error:
            result.error_code = "containerd_config_invalid"
            return result
        item = ConfigFile(path, data, version)
        result.files.append(item)
        for pattern in item.imports:
            pending.extend(resolve_import(host, path, pattern, release))
    return result


def resolve_import(host: Host, parent: str, pattern: str, release: Release) -> list[str]:
    """Paths of one entry of `imports`, relative to the importing file; a pattern before 1.7 is relative to /."""
    if not pattern.startswith("/"):
        old = release and release[:2] < RELATIVE_GLOBS_SINCE and "*" in pattern
        pattern = posixpath.join("/" if old else posixpath.dirname(parent), pattern)
    pattern = posixpath.normpath(pattern)
    if "*" not in pattern:
        return [pattern]
    found = ["/"]
    for part in pattern.strip("/").split("/"):
        below: list[str] = []
        for directory in found:
            if any(char in part for char in "*?["):
                below.extend(
                    posixpath.join(directory, name)
                    for name in host.listdir(directory).get([])
                    if fnmatch.fnmatchcase(name, part.replace("[^", "[!"))
                )
            else:
                below.append(posixpath.join(directory, part))
        found = below
    return [path for path in found if host.exists(path)]


def effective(files: ConfigSet, release: Release) -> Effective:
    """Our own answer to what `containerd config dump` says, for a known release of 1.7 or newer."""
    if files.error:
        return Effective(None, False, (), None, files.error)
    return _effective_2(files, release) if release >= MERGING_SINCE else _effective_1(files)


def _effective_1(files: ConfigSet) -> Effective:
    version = 0
    plugins: dict[str, t.Any] = {}
    disabled: list[str] = []
    for item in files.files:
        version = item.version or version
        plugins.update(item.plugins)
        disabled.extend(item.disabled)
    version = version or 1
    if version > 2:
        return _broken(files, "containerd 1.x does not read version %d files" % version)
    if version == 2:
        # containerd itself refuses tables with other prefixes: its plugins may come from elsewhere.
        for name in disabled + [name for name in plugins if "." not in name]:
            if not name.startswith("io.containerd.") or name.count(".") < 3:
                return _broken(files, "%r is not a plugin name of version 2 (io.containerd.TYPE.vN.NAME)" % name)
    table_id = ID_V2 if version == 2 else ID_V1
    if table_id in disabled:
        return Effective(None, False, (), False)
    return _from_table(files, plugins.get(table_id), False, True)


def _effective_2(files: ConfigSet, release: Release) -> Effective:
    each_by_itself = release >= MIGRATING_FILES_SINCE
    newest = 4 if each_by_itself else 3
    version = newest
    root_version = 0
    plugins: dict[str, t.Any] = {}
    disabled: list[str] = []
    for item in files.files:
        own = item.version
        tables = dict(item.plugins)
        names = item.disabled
        root_version = root_version or own
        if own > newest:
            return _broken(
                files, "containerd %d.%d does not read version %d files: %s" % (release[0], release[1], own, item.path)
            )
        if MIGRATING_FILES_SINCE <= release < ALWAYS_ON_SINCE and own > root_version:
            return _broken(files, "%s has version %d, higher than the root file's %d" % (item.path, own, root_version))
        if own < 2:
            tables = {_renamed(name): value for name, value in tables.items()}
            names = [SHORT_NAMES.get(name, _renamed(name)) for name in names]
            own = version
        if each_by_itself and item.version < newest:
            tables = _migrated(tables)
            own = newest
        version = own
        plugins = merged(plugins, tables)
        disabled.extend(names)
    for name in disabled:
        if "." not in name:
            return _broken(
                files, "disabled_plugins has %r, which is not a plugin name (io.containerd.TYPE.vN.NAME)" % name
            )
    if not each_by_itself and version < 3:
        plugins = _migrated(plugins)
    if ID_V3 in disabled:
        return Effective(None, False, (), False)
    return _from_table(files, plugins.get(ID_V3), True, ID_V2 not in disabled, release >= ALWAYS_ON_SINCE)


def _renamed(name: str) -> str:
    return ID_V2 if name == ID_V1 else name


def _migrated(plugins: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Settings of the old CRI table move to the new one where that does not set them itself."""
    old, new = plugins.get(ID_V2), plugins.get(ID_V3)
    if not isinstance(old, dict):
        return dict(plugins)
    moved = dict(old)
    moved.update(new if isinstance(new, dict) else {})
    result = dict(plugins)
    result[ID_V3] = moved
    return result


def merged(first: t.Mapping[str, t.Any], second: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Tables are merged, values and lists of the second replace those of the first."""
    result = dict(first)
    for key, value in second.items():
        before = result.get(key)
        result[key] = merged(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return result


def _from_table(files: ConfigSet, table: t.Any, default: bool, cri_enabled: bool, always: bool = False) -> Effective:
    table = table if isinstance(table, dict) else {}
    enabled = True if always else table.get("enable_cdi", default)
    directories = table.get("cdi_spec_dirs", list(SPEC_DIRS))
    if not isinstance(enabled, bool):
        return _broken(files, "enable_cdi is not a boolean")
    if not isinstance(directories, list) or not all(isinstance(item, str) for item in directories):
        return _broken(files, "cdi_spec_dirs is not a list of strings")
    return Effective(enabled, "enable_cdi" in table and not always, tuple(directories), cri_enabled)


def _broken(files: ConfigSet, what: str) -> Effective:
    return Effective(None, False, (), None, "%s: %s" % (files.root, what))


def from_dump(text: str, release: Release, own: Effective) -> Effective:
    """Read the answer of `containerd config dump`. TomlError when it is not TOML, or has values of other types.

    The dump shows neither whether a value was written or is the default, nor by which names plugins are disabled:
    both are taken from our `own` reading where that succeeded.
    """
    data = loads(text)
    plugins = data.get("plugins")
    name = ID_V3 if release >= MERGING_SINCE else ID_V2
    table = plugins.get(name) if isinstance(plugins, dict) else None
    cri_enabled = own.cri_enabled
    if own.error:
        disabled = data.get("disabled_plugins", [])
        if not isinstance(disabled, list):
            raise TomlError("disabled_plugins is not a list", 1, 1)
        cri_enabled = not any(item in disabled for item in (ID_V1, ID_V2, ID_V3))
    if not isinstance(table, dict) or (not own.error and own.enabled is None):
        return Effective(None, False, (), False)
    enabled, directories = table.get("enable_cdi", release >= ALWAYS_ON_SINCE), table.get("cdi_spec_dirs", [])
    if not isinstance(enabled, bool):
        raise TomlError("enable_cdi is not a boolean", 1, 1)
    if not isinstance(directories, list) or not all(isinstance(item, str) for item in directories):
        raise TomlError("cdi_spec_dirs is not a list of strings", 1, 1)
    return Effective(enabled, own.explicit, tuple(directories), cri_enabled)
