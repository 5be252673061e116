# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The proxies of a runtime: a drop-in of its unit that names a file of variables.

A file, because systemd shows Environment= to every user of the host. A variable in it wins over each Environment=, so
what others say there is read first: their proxies stay, and their exceptions become part of ours.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._host.systemd import (
    UNIT_DIRS,
    service_settings,
    specifiers_of,
    with_specifiers,
)
from ansible_collections.rebellions.npu.plugins.module_utils._runtime.detect import proxy_files

from .._objects.names import SHORT
from .._plan.toolkit import ONE_UNIT
from .edit import MARK, FileEdit, Files, RuntimeEdit, source

HEAD = MARK + "proxies of this unit. Removed by state=absent.\n"
# Beside the file of variables: what it held before, until the runtime has started with the new values.
FORMER = ".former"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
# A word of Environment=, in quotes or not, with what a backslash protects.
_WORD = re.compile(r"\"((?:\\.|[^\"\\])*)\"|'((?:\\.|[^'\\])*)'|((?:\\.|[^\s\"'\\])+)")
_ASSIGNED = re.compile(r"^\s*(?:export\s+)?(\w+)=(.*)$", re.MULTILINE)
# What takes its proxies from elsewhere, and from where.
ELSEWHERE = {"microk8s": "/var/snap/microk8s/current/args/containerd-env"}
# Where one unit runs the agent and the kubelet too, containerd alone gets what has this prefix, without it, so the way
# to the API server stays as it is.
PREFIX = "CONTAINERD_"


def unit_of(runtime: t.Mapping[str, t.Any]) -> str:
    """The unit whose environment the runtime has; empty where it pulls no images of its own or has no unit."""
    served = runtime["name"] in ("containerd", "docker", "cri-o") and runtime.get("flavor") != "docker-backend"
    return str(runtime.get("unit") or "") if served else ""


def directories_of(unit: str) -> list[str]:
    """Where the drop-ins of a unit are, the first wins: its own, those of each dash in its name, those of its kind."""
    stem, _dot, kind = unit.rpartition(".")
    prefix, at, _instance = stem.partition("@")
    names = [stem, prefix + "@"] if at else [stem]
    names += [stem[: place + 1] for place in range(len(stem) - 2, 0, -1) if stem[place] == "-"]
    own = ["%s/%s.%s.d" % (place, name, kind) for place in UNIT_DIRS for name in names]
    return own + ["%s/%s.d" % (place, kind) for place in UNIT_DIRS]


def unit_files(unit: str, found: t.Iterable[str]) -> list[str]:
    """The places of the unit itself, then its drop-ins in the order of systemd: by name, and the first place wins."""
    by_name: dict[str, str] = {}
    listed = list(found)
    for directory in directories_of(unit):
        for path in listed:
            if posixpath.dirname(path) == directory and path not in own_files(unit):
                by_name.setdefault(posixpath.basename(path), path)
    return ["%s/%s" % (place, unit) for place in UNIT_DIRS] + [by_name[name] for name in sorted(by_name)]


def own_files(unit: str) -> tuple[str, str]:
    """(the drop-in, the file of variables), of which systemd reads only the first by itself."""
    return proxy_files(unit, SHORT)


def in_effect(files: Files, paths: t.Sequence[str]) -> list[str]:
    """Those of unit_files() that systemd reads: of the unit itself only the first that is there."""
    places = [path for path in paths[: len(UNIT_DIRS)] if source(files, path).data is not None]
    return places[:1] + list(paths[len(UNIT_DIRS) :])


def settings_of(files: Files, unit: str, paths: t.Sequence[str], key: str) -> list[str]:
    """Values of a key of [Service] in these files in order, specifiers expanded; an empty one resets the list."""
    found: list[str] = []
    specifiers = specifiers_of(unit)
    for path in paths:
        for name, value in service_settings(source(files, path).text):
            if name == key:
                found = [*found, with_specifiers(value, specifiers)] if value else []
    return found


def variable_files(files: Files, unit: str, paths: t.Sequence[str]) -> list[str]:
    """What the unit files of `paths` name as files of variables, ours left out; a pattern stays one."""
    named = [value.lstrip("-") for value in settings_of(files, unit, paths, "EnvironmentFile")]
    return [name for name in dict.fromkeys(named) if name.startswith("/") and name != own_files(unit)[1]]


def is_pattern(path: str) -> bool:
    return bool(re.search(r"[*?\[]", path))


def matched(patterns: t.Iterable[str], listed: t.Sequence[str]) -> list[str]:
    """Files of variables in their order: of each pattern what is there, by name."""
    found: list[str] = []
    for name in patterns:
        found += sorted(fnmatch.filter(listed, name)) if is_pattern(name) else [name]
    return list(dict.fromkeys(found))


def present_variables(files: Files, unit: str, paths: t.Sequence[str], more: t.Sequence[str]) -> dict[str, str]:
    """Variables that others set for a unit: its files in order, then files of variables, which win."""
    found: dict[str, str] = {}
    for value in settings_of(files, unit, paths, "Environment"):
        for word in ("".join(groups) for groups in _WORD.findall(value)):
            name, equal, text = re.sub(r"\\(.)", r"\1", word).partition("=")
            if equal:
                found[name] = text
    for path in more:
        for name, text in _ASSIGNED.findall(source(files, path).text.replace("\\\n", "")):
            found[name] = text.strip().strip("\"'")
    return found


def plan_proxies(
    runtime: t.Mapping[str, t.Any], files: Files, theirs: t.Mapping[str, str], wanted: t.Mapping[str, t.Any]
) -> RuntimeEdit:
    """The two files of ours. `wanted`: http_proxy, https_proxy (empty for none), no_proxy (a list of names)."""
    edit = RuntimeEdit(runtime["name"], flavor=runtime.get("flavor", ""))
    place = ELSEWHERE.get(edit.flavor)
    if place:
        raise NpuError(
            "%s does not take its proxies from systemd." % edit.flavor, "Set them in %s, and run without." % place
        )
    prefix = PREFIX if edit.flavor in ONE_UNIT else ""

    def others(name: str) -> list[str]:
        """Their values of a variable, the one that wins first."""
        forms = (prefix + name, prefix + name.lower(), name, name.lower())
        return [theirs[form] for form in dict.fromkeys(forms) if theirs.get(form)]

    variables: dict[str, str] = {}
    for name in ("HTTP_PROXY", "HTTPS_PROXY"):
        value, other = wanted[name.lower()], others(name)
        if value and other and value != other[0]:
            edit.warnings.append("%s is set to another value by the unit's own files, which is kept" % name)
        if value and not other:
            variables[name] = value
    listed = [name for value in others("NO_PROXY") for name in value.split(",")]
    names = [name.strip() for name in [*listed, *wanted["no_proxy"], *LOOPBACK]]
    variables["NO_PROXY"] = ",".join(dict.fromkeys(name for name in names if name))
    conf, variables_file = own_files(unit_of(runtime))
    pairs = [
        (prefix + form, _escaped(name, value)) for name, value in variables.items() for form in (name, name.lower())
    ]
    text = HEAD + "".join('%s="%s"\n' % pair for pair in pairs)
    for path, new in ((variables_file, text), (conf, "%s[Service]\nEnvironmentFile=%s\n" % (HEAD, variables_file))):
        found = source(files, path)
        if found.text != new:
            edit.files.append(FileEdit(found, new.encode("utf-8"), "unit"))
    present, former = source(files, variables_file), source(files, variables_file + FORMER)
    if present.data is not None and present.text != text and former.data != present.data:
        edit.files.append(FileEdit(former, present.data, "unit"))
    return edit


def _escaped(name: str, value: str) -> str:
    if re.search(r"[\x00-\x1f\x7f]", value):
        raise NpuError("%s has a control character." % name, "Correct the input.")
    return re.sub(r"([\\\"`$])", r"\\\1", value)
