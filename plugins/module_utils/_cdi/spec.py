# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CDI specifications: build, load, judge, compare with what is on the host, write, remove."""

from __future__ import annotations

import json
import posixpath
import re
import typing as t

from .._base.model import ERROR, WARNING, NpuError, Problem
from .._base.regex import regex
from .._base.vendor import VendorProfile
from .._formats.yaml import dump
from .._formats.yaml_read import YamlError, load
from .._host.host import Host
from .build import build_spec
from .options import JSON, YAML, CdiOptions, CdiResult, default_path, format_of
from .trust import Guard, SpecFile, place_of, refuse_planted, survey
from .validate import device_names, host_paths, same_meaning, validate_spec

CURRENT = "current"
STALE = "stale"
MISSING = "missing"
INVALID = "invalid"


_DOCUMENT = regex(r"^(---|\.\.\.)(?=\s|$)", re.M)


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
    text = _first_document(text)
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


def _first_document(text: str) -> str:
    """What a CDI reader takes of a file with several YAML documents."""
    for number, mark in enumerate(_DOCUMENT.finditer(text)):
        before = text[: mark.start()].splitlines()
        begins = not number and mark.group(1) == "---"
        if not (begins and all(not line.strip() or line.startswith(("#", "%")) for line in before)):
            return text[: mark.start()]
    return text


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


def read_spec(host: Host, path: str) -> t.Any:
    """The data of the specification at a path; NpuError when it cannot be read."""
    text = host.read_text(path)
    if not text.ok:
        raise NpuError("%s cannot be read: %s." % (path, text.detail))
    return load_spec(text.value, path)


def find_conflicts(
    profile: VendorProfile,
    host: Host,
    names: t.Sequence[str],
    path: str,
    spec_dirs: t.Sequence[str],
    specs: t.Mapping[str, t.Sequence[SpecFile]],
) -> tuple[list[dict[str, t.Any]], list[Problem]]:
    """Other specifications in the directories the runtimes read that name one of `names` (kind=name).

    In one directory both then count as broken; of two directories the later one wins. `specs` are those of survey().
    Returns conflicts [{kind: device, name, paths, chosen}] (chosen is None when the runtime refuses both) and problems.
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
        for one in specs.get(directory, ()):
            other = one.path
            if other == posixpath.join(own_dir, posixpath.basename(path)) or one.way.real == own_file:
                continue
            shared = sorted(set(names) & set(one.names))
            if not shared:
                continue
            chosen: str | None = None
            if directory != own_dir:
                later = own_dir in order and order.index(own_dir) > order.index(directory)
                chosen = path if later else other
            conflicts.extend(
                {"kind": "device", "name": name, "paths": [path, other], "chosen": chosen} for name in shared
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


def compare(
    profile: VendorProfile,
    host: Host,
    options: CdiOptions,
    path: str | None = None,
    engine_dirs: t.Sequence[str] = (),
) -> dict[str, t.Any]:
    """What is at `path` against what should be; writes nothing. `engine_dirs` are read by the runtimes of the host.

    {path, format, state: current|stale|missing|invalid, changed, action: write|skip|remove|fail, before: text or None,
    after: text or None (None: no file), missing_host_paths of what is there, missing libraries [{name, needed_by}],
    conflicts, devices, libraries, tools, directories and files and repairs as survey() has them, problems: [Problem]}.
    `changed` says that writing or repairing would change the host.
    """
    return examine(profile, host, options, path, engine_dirs)[0]


def examine(
    profile: VendorProfile,
    host: Host,
    options: CdiOptions,
    path: str | None = None,
    engine_dirs: t.Sequence[str] = (),
) -> tuple[dict[str, t.Any], list[Problem]]:
    """As compare, and those of its problems that go away by writing."""
    path = path or default_path(profile, options.form)
    form = format_of(path)
    refuse_planted(Guard(host), path)
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
    own = place_of(host, path)

    def read(other: str) -> t.Any:
        return loaded if host.resolve(other).get() == own else read_spec(host, other)

    found_there = survey(profile, host, options, path, read, engine_dirs)
    device_conflicts, told = find_conflicts(profile, host, names, path, options.spec_dirs, found_there.specs)
    problems.extend(told + found_there.problems)
    old.extend(found_there.repaired)
    repairs = found_there.repairs if after is not None else []
    seen = {
        "path": path,
        "format": form,
        "state": state,
        "changed": after != before or bool(repairs),
        "action": result.action,
        "before": before,
        "after": after,
        "missing_host_paths": lost,
        "missing": result.missing,
        "conflicts": result.conflicts + device_conflicts,
        "devices": result.devices,
        "libraries": result.libraries,
        "tools": result.tools,
        "directories": found_there.directories,
        "files": found_there.files,
        "repairs": repairs,
        "problems": problems + old,
    }
    return seen, old
