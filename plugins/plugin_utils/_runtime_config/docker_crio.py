# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CDI in docker and CRI-O.

Docker has features.cdi from 25.0 on, on by default from 28.2 on. CRI-O always has CDI on; only the spec directories
are set.
"""

from __future__ import annotations

import posixpath
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.versions import release_numbers
from ansible_collections.rebellions.npu.plugins.module_utils._cdi.options import SPEC_DIRS
from ansible_collections.rebellions.npu.plugins.module_utils._runtime.base import with_dirs
from ansible_collections.rebellions.npu.plugins.module_utils._runtime.crio import reads_after

from .._objects.names import SHORT
from .._text.json import JsonEdit
from .._text.splice import lookup
from .._text.toml import TomlEdit, load
from .edit import MANAGED, FileEdit, Files, RuntimeEdit, covers, source

DAEMON_JSON = "/etc/docker/daemon.json"
CRIO_DROPIN = f"/etc/crio/crio.conf.d/99-{SHORT}.conf"
CRIO_DIRS = ("crio", "runtime", "cdi_spec_dirs")
CRIO_ENABLE = ("crio", "runtime", "enable_cdi")


def _flags(argv: t.Sequence[str], name: str) -> list[str]:
    found = []
    for number, word in enumerate(argv):
        head, equal, tail = word.partition("=")
        if head == name:
            found.append(tail if equal else argv[number + 1] if number + 1 < len(argv) else "")
    return found


def plan_docker(runtime: t.Mapping[str, t.Any], files: Files, spec_dirs: t.Sequence[str]) -> RuntimeEdit:
    """features.cdi in daemon.json, unless it is on already. NpuError is a refusal that names the file or the unit."""
    edit = RuntimeEdit(runtime["name"])
    version = release_numbers(runtime.get("version"))
    if not version:
        raise NpuError(
            "docker: its version is unknown, so its configuration is not changed.",
            "See why dockerd --version does not answer.",
        )
    if version < (25,):
        raise NpuError(
            "docker %s has no CDI; it came with 25.0." % runtime["version"],
            "Upgrade docker to 25.0 or later, best 28.2 or later.",
        )
    flags = list(runtime.get("unit_flags") or [])
    path = runtime.get("main_config") or (_flags(flags, "--config-file") or [""])[-1] or DAEMON_JSON
    found = source(files, path)
    text = JsonEdit(found.text, path)
    if text.bom:
        edit.warnings.append("%s begins with a byte order mark; it is kept" % path)
    # docker takes null for a key that is not there.
    features = text.before.get("features") or {}
    if not isinstance(text.before.get("features", features), (dict, type(None))):
        raise text.refuse("features must be an object")
    for key, value in features.items():
        if not isinstance(value, bool):
            raise text.refuse("features.%s must be true or false" % key)
    if "cdi-devices" in features:
        edit.warnings.append("%s: features.cdi-devices is a key docker does not know; it is left there" % path)
    given = dict(item.partition("=")[::2] for item in _flags(flags, "--feature"))
    unit = runtime.get("unit") or "docker.service"
    need = features.get("cdi") is False if version >= (28, 2) else features.get("cdi") is not True
    if given:
        need = given["cdi"].lower() not in ("", "1", "t", "true") if "cdi" in given else version < (28, 2)
        if need:
            raise NpuError(
                "%s starts dockerd with --feature, and docker does not start when features are also in %s."
                % (unit, path),
                "Set --feature cdi=true in %s, or move its --feature flags into the file." % unit,
            )
    dirs = text.before.get("cdi-spec-dirs")
    if dirs is not None and not (isinstance(dirs, list) and all(isinstance(item, str) for item in dirs)):
        raise text.refuse("cdi-spec-dirs must be a list of strings")
    flagged = _flags(flags, "--cdi-spec-dir")
    have = flagged or (SPEC_DIRS if dirs is None else [item for item in dirs if item])
    need_dirs = not covers(have, spec_dirs)
    if need_dirs and flagged:
        raise NpuError(
            "%s starts dockerd with --cdi-spec-dir, and docker does not start when cdi-spec-dirs is also in %s."
            % (unit, path),
            "Add --cdi-spec-dir %s in %s, or move the flags into the file."
            % (" --cdi-spec-dir ".join(spec_dirs), unit),
        )
    if need:
        text.set(["features", "cdi"], True)
    if need_dirs:
        wanted = with_dirs(have, *spec_dirs)
        text.set(["cdi-spec-dirs"], wanted, wanted[len(have) :] if dirs and "" not in dirs else ())
    if text.text == found.text:
        return edit
    text.prove([("features", "cdi"), ("cdi-spec-dirs",)])
    edit.files.append(FileEdit(found, text.text.encode("utf-8"), "json", text.buffer.splices, text.changes))
    binary = runtime.get("binary")
    if binary and posixpath.basename(binary) == "dockerd":
        others = _other_flags(flags)
        edit.judge = {
            "program": "docker",
            "before": [binary, "--validate", "--config-file", path] + others if found.data else [],
            "after": [binary, "--validate", "--config-file", "{staged:%s}" % path] + others,
            "dumps": False,
        }
    else:
        edit.warnings.append("the result is not checked by docker: dockerd cannot run here")
    return edit


def _other_flags(flags: t.Sequence[str]) -> list[str]:
    """The unit's flags but its configuration file and variables that only systemd can fill in."""
    kept: list[str] = []
    skip = False
    for word in flags:
        if skip:
            skip = False
        elif word == "--config-file":
            skip = True
        elif not word.startswith("--config-file=") and not word.startswith("$"):
            kept.append(word)
    return kept


def plan_crio(runtime: t.Mapping[str, t.Any], files: Files, spec_dirs: t.Sequence[str]) -> RuntimeEdit:
    """cdi_spec_dirs in our drop-in when the effective ones lack a directory.

    NpuError when a later file would override it.
    """
    edit = RuntimeEdit(runtime["name"])
    target = dict(runtime.get("edit_target") or {})
    dropin = str(target["path"]) if target.get("kind") == "dropin" and target.get("path") else CRIO_DROPIN
    found = source(files, dropin)
    have: t.Sequence[str] = SPEC_DIRS
    holder = ""
    for path in runtime.get("config_files") or []:
        other = source(files, path)
        if other.data is None:
            continue
        value = lookup(load(other.text, path), CRIO_DIRS)
        if value is None:
            continue
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise NpuError("%s: cdi_spec_dirs is not a list of strings." % path, "Repair the file; it was not changed.")
        have, holder = value, path
    text = TomlEdit(found.text, dropin)
    if not covers(have, spec_dirs):
        if reads_after(holder, dropin):
            raise NpuError(
                "%s sets cdi_spec_dirs and is read after %s, so a change there would have no effect."
                % (holder, dropin),
                "Add %s to cdi_spec_dirs in %s." % (", ".join(with_dirs(have, *spec_dirs)[len(have) :]), holder),
            )
        if found.data is None:
            text.buffer.splice(0, 0, MANAGED + "\n")
        own = lookup(text.data, CRIO_DIRS)
        if isinstance(own, list):
            text.extend(CRIO_DIRS, with_dirs(own, *spec_dirs)[len(own) :])
        else:
            text.set(CRIO_DIRS, text.list_text(with_dirs(have if holder else [], *spec_dirs)))
    if found.data is not None:
        text.delete(CRIO_ENABLE)
    if text.text != found.text:
        text.prove([CRIO_DIRS, CRIO_ENABLE])
        aside = posixpath.dirname(posixpath.dirname(dropin))
        edit.files.append(FileEdit(found, text.text.encode("utf-8"), "toml", text.buffer.splices, text.changes, aside))
    return edit
