# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CDI specifications: build, load, judge, compare with what is on the host, write, remove."""

from __future__ import annotations

import json
import posixpath
import typing as t

from .._base.model import ERROR, WARNING, NpuError, Problem
from .._base.vendor import VendorProfile
from .._formats.yaml import dump
from .._formats.yaml_read import YamlError, load
from .._host.host import Host
from .build import build_spec
from .options import JSON, YAML, CdiOptions, CdiResult, default_path, format_of
from .validate import device_names, host_paths, same_meaning, validate_spec
from .write import place_of

CURRENT = "current"
STALE = "stale"
MISSING = "missing"
INVALID = "invalid"


def load_spec(text: str, name: str) -> t.Any:
    """The data of a specification in YAML or JSON; NpuError with the file's name and the line when it is neither."""
    try:
        return _load(text, name)
    except (ValueError, RecursionError) as exc:
        raise NpuError("%s cannot be read: %s." % (name, exc), "Correct the file or write it again.") from exc


def _load(text: str, name: str) -> t.Any:
    # What Host.read_text puts in the place of bytes that are no UTF-8, which no CDI reader takes.
    if "\ufffd" in text:
        raise ValueError("line %d: it is not UTF-8" % (text.count("\n", 0, text.index("\ufffd")) + 1))
    if name.endswith(".json"):
        return json.loads(text, object_pairs_hook=_no_twins)
    try:
        return load(text)
    except YamlError:
        try:
            import yaml
        except ImportError:
            yaml = None  # type: ignore[assignment]
        if yaml is None:
            raise
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as exc:
        raise ValueError(" ".join(str(exc).split())) from exc


def _no_twins(pairs: list[tuple[str, t.Any]]) -> dict[str, t.Any]:
    result: dict[str, t.Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError("the key %r stands twice" % key)
        result[key] = value
    return result


def dump_spec(spec: t.Mapping[str, t.Any], form: str) -> str:
    """The text of a specification; `form` is yaml or json. NpuError when a CDI reader would refuse it."""
    errors = [problem for problem in validate_spec(spec) if problem.severity == ERROR]
    if errors:
        raise NpuError(
            "The specification would be refused by CDI readers: %s." % errors[0].detail, "Report this as a defect."
        )
    if form == JSON:
        return json.dumps(spec, indent=2, ensure_ascii=False) + "\n"
    if form == YAML:
        return dump(spec)
    raise NpuError("The format %r is not known." % form, "Use yaml or json.")


def missing_host_paths(host: Host, spec: t.Any) -> list[str]:
    """Paths the specification expects and the host has not, sorted."""
    return [path for path in host_paths(spec) if not host.exists(path)]


def find_conflicts(
    profile: VendorProfile, host: Host, names: t.Sequence[str], path: str, spec_dirs: t.Sequence[str]
) -> tuple[list[dict[str, t.Any]], list[Problem]]:
    """Other specifications in the directories the runtimes read that name one of `names` (kind=name).

    In one directory both then count as broken; of two directories the later one wins. Returns conflicts [{kind:
    device, name, paths, chosen}] (chosen is None when the runtime refuses both) and problems, unreadable files among
    them.
    """
    conflicts: list[dict[str, t.Any]] = []
    problems: list[Problem] = []
    own_file = place_of(host, path)
    own_dir = place_of(host, posixpath.dirname(path))
    order: list[str] = []
    for directory in spec_dirs:
        real = place_of(host, directory)
        if real in order:
            order.remove(real)
        order.append(real)
    if own_dir not in order:
        problems.append(
            Problem(
                "cdi_dir_not_read",
                WARNING,
                "%s is not in a directory the runtimes read (%s)." % (path, ", ".join(spec_dirs)),
                "Write it to one of them, or add its directory to the runtime's spec directories.",
                profile.name,
            )
        )
    for directory in order:
        for name in host.listdir(directory).get([]):
            other = posixpath.join(directory, name)
            if not name.endswith((".json", ".yaml")) or other == posixpath.join(own_dir, posixpath.basename(path)):
                continue
            if host.resolve(other).get(other) == own_file:
                continue
            text = host.read_text(other)
            try:
                if not text.ok:
                    raise NpuError("%s cannot be read: %s." % (other, text.detail))
                shared = sorted(set(names) & set(device_names(load_spec(text.value, other))))
            except NpuError as exc:
                problems.append(
                    Problem("cdi_spec_unreadable", WARNING, exc.message, "Correct or remove the file.", profile.name)
                )
                continue
            if not shared:
                continue
            chosen: str | None = None
            if directory != own_dir:
                later = own_dir in order and order.index(own_dir) > order.index(directory)
                chosen = path if later else other
            conflicts.extend(
                {"kind": "device", "name": one, "paths": [path, other], "chosen": chosen} for one in shared
            )
            effect = (
                "is used instead of"
                if chosen == other
                else "is hidden by"
                if chosen
                else "makes the runtimes refuse the devices of"
            )
            problems.append(
                Problem(
                    "cdi_conflict",
                    WARNING if chosen == path else ERROR,
                    "%s names %s too and %s %s." % (other, ", ".join(shared), effect, path),
                    "Remove %s." % other,
                    profile.name,
                )
            )
    return conflicts, problems


def compare(profile: VendorProfile, host: Host, options: CdiOptions, path: str | None = None) -> dict[str, t.Any]:
    """What is at `path` against what should be; writes nothing.

    {path, format, state: current|stale|missing|invalid, changed, action: write|skip|remove|fail, before: text or None,
    after: text or None (None: no file), missing_host_paths of what is there, missing libraries [{name, needed_by}],
    conflicts, devices, libraries, tools, problems: [Problem]}. `changed` says that writing would change the host.
    """
    return examine(profile, host, options, path)[0]


def examine(
    profile: VendorProfile, host: Host, options: CdiOptions, path: str | None = None
) -> tuple[dict[str, t.Any], list[Problem]]:
    """As compare, and those of its problems that go away by writing."""
    path = path or default_path(profile, options.form)
    form = format_of(path)
    problems: list[Problem] = []
    old: list[Problem] = []
    try:
        result = build_spec(profile, host, options) if options.owner == "host" else CdiResult(None, "skip")
    except NpuError as exc:
        problems.append(Problem("cdi_cannot_build", ERROR, exc.message, exc.next_step, profile.name))
        result = CdiResult(None, "fail")
    problems.extend(result.warnings)
    text = host.read_text(path)
    if not text.ok and text.state != "absent":
        raise NpuError("%s cannot be read: %s." % (path, text.detail), "Run as root and see what is at that path.")
    before = text.get()
    loaded: t.Any = None
    state = MISSING
    lost: list[str] = []
    if before is not None:
        state = INVALID
        try:
            loaded = load_spec(before, path)
            found = validate_spec(loaded)
            old.extend(
                Problem(one.code, one.severity, "%s: %s" % (path, one.detail), one.next_step, profile.name)
                for one in found
            )
            if not any(one.severity == ERROR for one in found):
                state = CURRENT if same_meaning(loaded, result.spec) else STALE
            lost = missing_host_paths(host, loaded)
        except NpuError as exc:
            old.append(Problem("cdi_spec_unreadable", ERROR, exc.message, exc.next_step, profile.name))
    if lost:
        old.append(
            Problem(
                "cdi_host_paths_missing",
                ERROR,
                "%s refers to missing paths: %s." % (path, ", ".join(lost)),
                "Write the specification again.",
                profile.name,
            )
        )
    after = before
    if result.action == "write" and state != CURRENT:
        after = dump_spec(t.cast(t.Dict[str, t.Any], result.spec), form)
    elif result.action == "remove":
        after = None
        state = CURRENT if before is None else STALE
    if state == STALE and result.action == "skip":
        state = CURRENT if not lost else STALE
    names = device_names(result.spec if result.spec is not None else loaded)
    device_conflicts, told = find_conflicts(profile, host, names, path, options.spec_dirs)
    problems.extend(told)
    seen = {
        "path": path,
        "format": form,
        "state": state,
        "changed": after != before,
        "action": result.action,
        "before": before,
        "after": after,
        "missing_host_paths": lost,
        "missing": result.missing,
        "conflicts": result.conflicts + device_conflicts,
        "devices": result.devices,
        "libraries": result.libraries,
        "tools": result.tools,
        "problems": problems + old,
    }
    return seen, old
