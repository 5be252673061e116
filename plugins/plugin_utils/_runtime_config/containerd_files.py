# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration files of a containerd in reading order, and what they say together."""

from __future__ import annotations

import fnmatch
import posixpath
import typing as t
from dataclasses import dataclass, field

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.options import SPEC_DIRS

from .._text.splice import lookup
from .._text.toml import load
from .edit import Files, Source, covers, source

_RUNTIME = ("plugins", "io.containerd.cri.v1.runtime")
TABLES = {2: ("plugins", "io.containerd.grpc.v1.cri"), 3: _RUNTIME, 4: _RUNTIME}
ALWAYS_ON = (2, 4)
CRI_IDS = ("cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime", "io.containerd.cri.v1.images")
MAIN = "/etc/containerd/config.toml"


@dataclass
class State:
    """The files in reading order with their values, and what they say together."""

    root: Source
    documents: list[tuple[Source, dict[str, t.Any]]]
    schema: int | None
    merged: bool
    files: Files
    owners: list[Source] = field(default_factory=list)
    enable: t.Any = None
    enable_in: Source | None = None
    dirs: t.Any = None
    dirs_in: Source | None = None

    def table(self, document: dict[str, t.Any]) -> tuple[str, ...]:
        version = document.get("version", self.schema)
        return TABLES.get(version if isinstance(version, int) else 2, TABLES[2])

    def read(self) -> None:
        for found, document in self.documents:
            table = lookup(document, self.table(document))
            if not isinstance(table, dict):
                continue
            self.owners.append(found)
            if not self.merged:
                self.enable = self.enable_in = self.dirs = self.dirs_in = None
            if "enable_cdi" in table:
                self.enable, self.enable_in = table["enable_cdi"], found
            if "cdi_spec_dirs" in table:
                self.dirs, self.dirs_in = table["cdi_spec_dirs"], found


def root_path_of(runtime: t.Mapping[str, t.Any]) -> str:
    """The file that imports the others; for microk8s the template its file is made from."""
    target = runtime.get("edit_target") or {}
    if runtime.get("flavor") == "microk8s" and target.get("path"):
        return str(target["path"])
    return str(runtime.get("main_config") or MAIN)


def observe(root_path: str, runtime: t.Mapping[str, t.Any], files: Files, version: tuple[int, ...]) -> State:
    root = source(files, root_path)
    others = [] if runtime.get("flavor") == "microk8s" else runtime.get("config_files") or []
    order = [root] + [source(files, path) for path in others if path != root_path]
    documents = [(found, load(found.text, found.path)) for found in order if found.data is not None]
    state = State(root, documents, None, version >= (2,), files)
    if root.data is not None:
        document = documents[0][1]
        declared = document.get("version")
        if isinstance(declared, int) and declared in TABLES:
            state.schema = declared
        elif declared is not None and declared != 1:
            raise NpuError(
                "%s: config schema %s is not known." % (root_path, declared),
                "Use a release of this collection that knows it.",
            )
        elif declared == 1 or _is_schema_1(document):
            state.schema = 1
        if not state.merged and (state.schema or 0) > 2:
            raise NpuError(
                "%s: containerd %s does not read config schema %d."
                % (root_path, runtime["version"], state.schema or 0),
                "Write the file in schema 2, or upgrade containerd to 2.x.",
            )
    state.read()
    return state


def _is_schema_1(document: dict[str, t.Any]) -> bool:
    """A file without a version is schema 1; only short plugin names make that matter."""
    plugins = document.get("plugins")
    return isinstance(plugins, dict) and any(not name.startswith("io.containerd.") for name in plugins)


def disables_cri(document: dict[str, t.Any]) -> bool:
    names = document.get("disabled_plugins")
    return isinstance(names, list) and any(name in CRI_IDS for name in names)


def needs(state: State, version: tuple[int, ...], spec_dirs: t.Sequence[str]) -> tuple[bool, bool]:
    if state.enable is not None and not isinstance(state.enable, bool):
        raise NpuError(
            "%s: enable_cdi is not true or false." % (state.enable_in or state.root).path,
            "Repair the file; it was not changed.",
        )
    if state.dirs is not None and not (
        isinstance(state.dirs, list) and all(isinstance(item, str) for item in state.dirs)
    ):
        raise NpuError(
            "%s: cdi_spec_dirs is not a list of strings." % (state.dirs_in or state.root).path,
            "Repair the file; it was not changed.",
        )
    on = version >= ALWAYS_ON or (state.enable if state.enable is not None else version >= (2,))
    have = SPEC_DIRS if state.dirs is None else tuple(state.dirs)
    return not on, not covers(have, spec_dirs)


def covered(state: State, path: str) -> bool:
    """True when an import of any file reads `path`."""
    for found, document in state.documents:
        imports = document.get("imports")
        for pattern in imports if isinstance(imports, list) else []:
            if not isinstance(pattern, str):
                continue
            full = posixpath.normpath(posixpath.join(posixpath.dirname(found.path), pattern))
            if posixpath.dirname(full) == posixpath.dirname(path) and fnmatch.fnmatchcase(
                posixpath.basename(path), posixpath.basename(full)
            ):
                return True
    return False


def order_of(state: State, added: str) -> list[str]:
    """Paths after the root file in reading order, with `added` where its directory's glob would put it."""
    order = [found.path for found, _document in state.documents if found is not state.root]
    if added in order or added == state.root.path:
        return order
    near = [path for path in order if posixpath.dirname(path) == posixpath.dirname(added)]
    before = [path for path in near if path < added]
    if before:
        order.insert(order.index(before[-1]) + 1, added)
    elif near:
        order.insert(order.index(near[0]), added)
    else:
        order.append(added)
    return order
