# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CDI in containerd: which file, which table, which keys.

Facts, seen with the programs: schema 2 has the table io.containerd.grpc.v1.cri, schemas 3 and 4
io.containerd.cri.v1.runtime. Before 1.7 there is no CDI; 1.7 has it off, 2.0 on by default, and 2.4 has it always on
and no longer knows the switch. In 1.x an imported file replaces whole plugin sections, from 2.0 on it is merged key
by key.
"""

from __future__ import annotations

import base64
import posixpath
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.versions import release_numbers
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.options import SPEC_DIRS
from ansible_collections.rebellions.npu.plugins.module_utils._runtime.base import block_span, with_dirs
from ansible_collections.rebellions.npu.plugins.module_utils._runtime.distro_containerd import K0S_DROPINS

from .._objects.names import SHORT
from .._text.splice import lookup
from .._text.toml import TomlEdit
from . import generated
from .containerd_files import (
    ALWAYS_ON,
    CRI_IDS,
    TABLES,
    State,
    covered,
    disables_cri,
    needs,
    observe,
    order_of,
    root_path_of,
)
from .edit import MANAGED, FileEdit, Files, RuntimeEdit, Source, block_edit, covers, source

DROPIN = f"/etc/containerd/conf.d/99-{SHORT}.toml"
# Short names that schema 1 files disable, with the names schema 2 wants for them.
_URIS = {
    name: "io.containerd.snapshotter.v1." + name
    for name in ("aufs", "blockfile", "btrfs", "devmapper", "native", "overlayfs", "zfs")
}
_URIS.update({"opt": "io.containerd.internal.v1.opt", "restart": "io.containerd.internal.v1.restart"})
_ENABLE = ["plugins/%s/enable_cdi" % TABLES[schema][1] for schema in (2, 3)]
_DIRS = ["plugins/%s/cdi_spec_dirs" % TABLES[schema][1] for schema in (2, 3)]


def plan(runtime: t.Mapping[str, t.Any], files: Files, spec_dirs: t.Sequence[str]) -> RuntimeEdit:
    """The files to change so that CDI is on and `spec_dirs` are read; none when it is so already.

    NpuError is a refusal.
    """
    edit = RuntimeEdit(runtime["name"])
    if runtime.get("flavor") == "docker-backend":
        edit.warnings.append("this containerd only backs docker: its configuration is not changed")
        return edit
    version = release_numbers(runtime.get("version"))
    if not version:
        raise NpuError(
            "containerd: its version is unknown, so its configuration is not changed.",
            "See why containerd --version does not answer.",
        )
    if version < (1, 7):
        raise NpuError(
            "containerd %s has no CDI; it came with 1.7." % runtime["version"],
            "Upgrade containerd to 1.7 or later, best 2.x.",
        )
    target = dict(runtime.get("edit_target") or {})
    if target.get("kind") == "template" and str(target.get("path", "")).endswith(".tmpl"):
        return _plan_template(runtime, files, spec_dirs, target["path"], version, edit)
    root_path = root_path_of(runtime)
    state = observe(root_path, runtime, files, version)
    if state.schema == 1:
        if version >= (2,):
            what = "%s is in config schema 1, which containerd %s migrates at every start: migrate the file"
            edit.warnings.append(what % (root_path, runtime["version"]))
            return edit
        raise NpuError(
            "%s: config schema 1; migrate first." % root_path,
            "Run `containerd config migrate`, check its output and replace the file with it.",
        )
    served = bool(runtime.get("serves_kubelet", True) or runtime.get("selected"))
    disabled = [found for found, document in state.documents if disables_cri(document)]
    if disabled and not served:
        edit.warnings.append(
            "%s disables the CRI plugin and no kubelet uses this containerd: not changed" % disabled[0].path
        )
        return edit
    if not state.merged and len(state.owners) > 1:
        edit.warnings.append(
            "%s: on containerd %s its CRI section replaces the one of %s as a whole"
            % (state.owners[-1].path, runtime["version"], state.owners[0].path)
        )
    need_enable, need_dirs = needs(state, version, spec_dirs)
    if not need_enable and not need_dirs and not disabled:
        return edit
    _make(edit, state, runtime, target, need_enable, list(spec_dirs) if need_dirs else [], disabled)
    expect: list[dict[str, t.Any]] = [{"keys": _DIRS, "contains": directory} for directory in spec_dirs]
    if version < ALWAYS_ON:
        expect.append({"keys": _ENABLE, "equals": True})
    if edit.files:
        become = _becomes(edit, state, runtime, files)
        edit.judge = _judge(edit, state, runtime, expect, bool(disabled) or _declared(edit), become)
    return edit


def _declared(edit: RuntimeEdit) -> bool:
    return any(
        change["path"] == ["version"]
        for found in edit.files
        if found.source.data is not None
        for change in found.changes
    )


def _make(
    edit: RuntimeEdit,
    state: State,
    runtime: t.Mapping[str, t.Any],
    target: t.Mapping[str, t.Any],
    need_enable: bool,
    dirs: list[str],
    disabled: list[Source],
) -> None:
    edits: dict[str, tuple[Source, TomlEdit]] = {}

    def opened(found: Source) -> TomlEdit:
        if found.path not in edits:
            edits[found.path] = (found, TomlEdit(found.text, found.path))
        return edits[found.path][1]

    for found in disabled:
        text = opened(found)
        _declare(text, found, state)
        gone = text.remove_items(("disabled_plugins",), lambda name: name in CRI_IDS)
        edit.warnings.append(
            "%s: %s removed from disabled_plugins, because the kubelet uses this containerd"
            % (found.path, ", ".join(gone))
        )
    if need_enable or dirs:
        where = _where(state, runtime, target, need_enable, bool(dirs))
        if where is None:
            dropin = _dropin(state, target)
            # k0s reads its directory itself.
            if not covered(state, dropin.path) and not dropin.path.startswith(K0S_DROPINS + "/"):
                root = opened(state.root)
                _declare(root, state.root, state)
                pattern = posixpath.dirname(dropin.path) + "/*.toml"
                if root.raw(("imports",)) is None:
                    root.set(("imports",), root.list_text([pattern]))
                else:
                    root.extend(("imports",), [pattern])
            where = dropin
        text = opened(where)
        _declare(text, where, state)
        table = state.table(text.data)
        if need_enable:
            text.set(table + ("enable_cdi",), "true")
        if dirs:
            path = table + ("cdi_spec_dirs",)
            if text.raw(path) is not None:
                have = lookup(text.data, path)
                text.extend(path, with_dirs(have, *dirs)[len(have) :])
            else:
                text.set(path, text.list_text(with_dirs(state.dirs if isinstance(state.dirs, list) else [], *dirs)))
    for found, text in edits.values():
        if text.text == found.text:
            continue
        tables = [table + (key,) for table in TABLES.values() for key in ("enable_cdi", "cdi_spec_dirs")]
        text.prove(tables + [("imports",), ("disabled_plugins",), ("version",)])
        edit.files.append(FileEdit(found, text.text.encode("utf-8"), "toml", text.buffer.splices, text.changes))


def _declare(text: TomlEdit, found: Source, state: State) -> None:
    """Declare the schema in a file that does not: that of the root file, or 2 where plugins have schema 1 names."""
    if "version" in text.data:
        return
    if found.data is None:
        schema = state.schema or (3 if state.merged else 2)
        text.buffer.splice(0, 0, MANAGED + text.newline)
        text.set(("version",), str(schema))
        return
    if found is not state.root and state.schema:
        return
    for key in ("disabled_plugins", "required_plugins"):
        names = text.data.get(key, [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise text.refuse("%s is not a list of strings" % key)
        for name in names:
            if name not in CRI_IDS and not name.startswith("io.containerd.") and name not in _URIS:
                raise text.refuse("%s names %s, whose schema 2 name is not known" % (key, name))
        text.replace_items((key,), _URIS)
    text.set(("version",), "2")


def _where(
    state: State, runtime: t.Mapping[str, t.Any], target: t.Mapping[str, t.Any], enable: bool, dirs: bool
) -> Source | None:
    """The file to edit in place, or None for a drop-in of ours."""
    if runtime.get("flavor") == "microk8s" or (state.root.data is None and target.get("kind") != "dropin"):
        return state.root
    if not state.merged:
        if target.get("kind") == "dropin" and runtime.get("flavor") == "k0s":
            return None
        return state.owners[-1] if state.owners else state.root
    if target.get("kind") == "dropin" and runtime.get("flavor") in ("k3s", "rke2", "k0s"):
        return None
    holder = (state.enable_in if enable else None) or (state.dirs_in if dirs else None)
    dropin = _dropin(state, target).path
    if holder is None:
        return state.root if target.get("kind") == "main" and not covered(state, dropin) else None
    if not covered(state, dropin):
        return holder
    order = order_of(state, dropin)
    if holder.path != dropin and holder.path in order and order.index(holder.path) > order.index(dropin):
        return holder
    return None


def _dropin(state: State, target: t.Mapping[str, t.Any]) -> Source:
    """The drop-in of ours, as it is."""
    path = target.get("path") if target.get("kind") == "dropin" and target.get("path") else DROPIN
    return next((found for found, _document in state.documents if found.path == path), None) or source(
        state.files, str(path)
    )


def judge_removal(runtime: t.Mapping[str, t.Any], files: Files, edit: RuntimeEdit) -> dict[str, t.Any] | None:
    """As for an edit: containerd's own reading may differ in our keys only.

    None for a template, or when the version is not known.
    """
    version = release_numbers(runtime.get("version"))
    if not version or any(item.format == "template" for item in edit.files):
        return None
    state = observe(root_path_of(runtime), runtime, files, version)
    return _judge(edit, state, runtime, [], True)


def _judge(
    edit: RuntimeEdit,
    state: State,
    runtime: t.Mapping[str, t.Any],
    expect: list[dict[str, t.Any]],
    versions: bool,
    rendered: str | None = None,
) -> dict[str, t.Any] | None:
    """How containerd reads the set: its dump may differ in our keys only and must say what we want.

    `rendered` is the generated file as it will be, where the edit is one of what it is made from.
    """
    binary = runtime.get("binary")
    if not binary:
        edit.warnings.append("the result is not checked by containerd: it cannot run here")
        return None
    main = state.root.path if rendered is None else str(runtime.get("main_config") or state.root.path)
    if rendered is not None:
        return _request(binary, main, True, rendered, versions, expect)
    staged = {found.path: "{staged:%s}" % found.path for found in edit.files if found.format != "template"}
    root = next((found for found in edit.files if found.path == state.root.path), None)
    gone = [found.path for found in edit.files if found.new is None]
    text = TomlEdit((root.new or b"").decode("utf-8") if root else state.root.text, state.root.path)
    order = [
        path
        for path in order_of(state, next((path for path in staged if path != state.root.path), state.root.path))
        if path not in gone
    ]
    if order or text.raw(("imports",)) is not None:
        text.set(("imports",), "[%s]" % ", ".join('"%s"' % staged.get(path, path) for path in order))
    return _request(binary, main, state.root.data is not None, text.text, versions, expect)


def _request(
    binary: str, main: str, exists: bool, text: str, versions: bool, expect: list[dict[str, t.Any]]
) -> dict[str, t.Any]:
    """The judge for the writer. `main` is the file as it is, `text` what it becomes."""
    return {
        "program": "containerd",
        "before": [binary, "--config", main if exists else "/dev/null", "config", "dump"],
        "after": [binary, "--config", "{root}", "config", "dump"],
        "root_directory": posixpath.dirname(main),
        "root_content": base64.b64encode(text.encode("utf-8")).decode("ascii"),
        "allowed": ["imports"] + _ENABLE + _DIRS + (["disabled_plugins", "version"] if versions else []),
        "prefixes": ["plugins/io.containerd.grpc.v1.cri", "plugins/io.containerd.cri.v1"] if versions else [],
        "expect": expect,
    }


def _becomes(edit: RuntimeEdit, state: State, runtime: t.Mapping[str, t.Any], files: Files) -> str | None:
    """What a distribution makes of the edit; None where containerd reads the edited files themselves."""
    flavor = runtime.get("flavor")
    if flavor == "microk8s":
        return generated.of_placeholders(source(files, runtime.get("main_config") or ""), edit.files[0], runtime)
    made = edit.files[0]
    if flavor == "k0s" and made.path.startswith(K0S_DROPINS + "/") and not covered(state, made.path):
        return generated.of_dropin(state, made, runtime)
    return None


def _plan_template(
    runtime: t.Mapping[str, t.Any],
    files: Files,
    spec_dirs: t.Sequence[str],
    path: str,
    version: tuple[int, ...],
    edit: RuntimeEdit,
) -> RuntimeEdit:
    rendered = source(files, runtime.get("main_config") or "")
    generated.must_exist(rendered, path, runtime)
    state = observe(rendered.path, runtime, files, version)
    if not any(needs(state, version, spec_dirs)):
        return edit
    table = TABLES[3 if version >= (2,) else 2]
    lines = ['[%s."%s"]' % table, "  enable_cdi = true"]
    if not covers(SPEC_DIRS, spec_dirs):
        lines.append("  cdi_spec_dirs = [%s]" % ", ".join('"%s"' % item for item in with_dirs([], *spec_dirs)))
    found = source(files, path)
    made = block_edit(found, lines, edit.warnings)
    edit.effective = made is not None or block_span(found.text)[0] >= 0
    if made is not None:
        become = generated.of_go_template(rendered, found, made.changes[0]["new"], runtime)
        expect: list[dict[str, t.Any]] = [{"keys": _DIRS, "contains": directory} for directory in spec_dirs]
        expect.append({"keys": _ENABLE, "equals": True})
        edit.files.append(made)
        edit.judge = _judge(edit, state, runtime, expect, False, become)
    return edit
