# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The proxies of a runtime: a drop-in of its unit that names a file of variables.

A file, because systemd shows Environment= to every user of the host. A variable in it wins over each Environment=, so
what others say there is read first: their proxies stay, and their exceptions become part of ours.
"""

from __future__ import annotations

import posixpath
import re
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._objects.names import SHORT
from .edit import MARK, FileEdit, Files, RuntimeEdit, source

DIRECTORY = "/etc/systemd/system"
# Where systemd looks for units, the first wins.
PLACES = (
    DIRECTORY,
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
NAME = f"zz-{SHORT}-proxy"
HEAD = MARK + "proxies of this unit. Removed by state=absent.\n"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
# A word of Environment=, in quotes or not, with what a backslash protects.
_WORD = re.compile(r"\"((?:\\.|[^\"\\])*)\"|'((?:\\.|[^'\\])*)'|((?:\\.|[^\s\"'\\])+)")
_ASSIGNED = re.compile(r"^\s*(?:export\s+)?(\w+)=(.*)$", re.MULTILINE)
# What takes its proxies from elsewhere, and from where.
ELSEWHERE = {"microk8s": "/var/snap/microk8s/current/args/containerd-env"}


def unit_of(runtime: t.Mapping[str, t.Any]) -> str:
    """The unit whose environment the runtime has; empty where it pulls no images of its own or has no unit."""
    served = runtime["name"] in ("containerd", "docker", "cri-o") and runtime.get("flavor") != "docker-backend"
    return str(runtime.get("unit") or "") if served else ""


def directories_of(unit: str) -> list[str]:
    """Where the drop-ins of a unit are."""
    return ["%s/%s.d" % (place, unit) for place in PLACES]


def unit_files(unit: str, found: t.Iterable[str]) -> list[str]:
    """The places of the unit itself, then its drop-ins in the order of systemd: by name, and the first place wins."""
    by_name: dict[str, str] = {}
    for directory in directories_of(unit):
        for path in found:
            if posixpath.dirname(path) == directory and path not in own_files(unit):
                by_name.setdefault(posixpath.basename(path), path)
    return ["%s/%s" % (place, unit) for place in PLACES] + [by_name[name] for name in sorted(by_name)]


def own_files(unit: str) -> tuple[str, str]:
    """(the drop-in, the file of variables), of which systemd reads only the first by itself."""
    path = "%s/%s.d/%s" % (DIRECTORY, unit, NAME)
    return path + ".conf", path + ".env"


def in_effect(files: Files, paths: t.Sequence[str]) -> list[str]:
    """Those of unit_files() that systemd reads: of the unit itself only the first that is there."""
    places = [path for path in paths[: len(PLACES)] if source(files, path).data is not None]
    return places[:1] + list(paths[len(PLACES) :])


def variable_files(files: Files, paths: t.Sequence[str]) -> list[str]:
    """What the unit files of `paths` name as files of variables, ours left out."""
    found: list[str] = []
    for path in paths:
        for line in re.findall(r"^\s*EnvironmentFile\s*=(.*)$", source(files, path).text, re.MULTILINE):
            name = line.strip().lstrip("-")
            found = [*found, name] if name else []
    return [name for name in dict.fromkeys(found) if name.startswith("/") and not name.endswith(NAME + ".env")]


def present_variables(files: Files, units: t.Sequence[str], more: t.Sequence[str]) -> dict[str, str]:
    """Variables that others set for a unit: its files in order, then files of variables, which win."""
    found: dict[str, str] = {}
    for path in units:
        for line in re.findall(r"^\s*Environment\s*=(.*)$", source(files, path).text, re.MULTILINE):
            words = ["".join(groups) for groups in _WORD.findall(line)]
            if not words:
                found.clear()
            for word in words:
                name, equal, value = re.sub(r"\\(.)", r"\1", word).replace("%%", "%").partition("=")
                if equal:
                    found[name] = value
    for path in more:
        for name, value in _ASSIGNED.findall(source(files, path).text):
            found[name] = value.strip().strip("\"'")
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
    variables: dict[str, str] = {}
    for name in ("HTTP_PROXY", "HTTPS_PROXY"):
        value, other = wanted[name.lower()], theirs.get(name) or theirs.get(name.lower())
        if value and other and value != other:
            edit.warnings.append("%s is set to another value by the unit's own files, which is kept" % name)
        if value and not other:
            variables[name] = value
    listed = (theirs.get("NO_PROXY") or theirs.get("no_proxy") or "").split(",")
    names = [name.strip() for name in [*listed, *wanted["no_proxy"], *LOOPBACK]]
    variables["NO_PROXY"] = ",".join(dict.fromkeys(name for name in names if name))
    conf, variables_file = own_files(unit_of(runtime))
    pairs = [(form, _escaped(name, value)) for name, value in variables.items() for form in (name, name.lower())]
    text = HEAD + "".join('%s="%s"\n' % pair for pair in pairs)
    for path, new in ((variables_file, text), (conf, "%s[Service]\nEnvironmentFile=%s\n" % (HEAD, variables_file))):
        found = source(files, path)
        if found.text != new:
            edit.files.append(FileEdit(found, new.encode("utf-8"), "unit"))
    return edit


def _escaped(name: str, value: str) -> str:
    if re.search(r"[\x00-\x1f\x7f]", value):
        raise NpuError("%s has a control character." % name, "Correct the input.")
    return re.sub(r"([\\\"`$])", r"\\\1", value)
