# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check of a staged set by the program that reads it: only the intended keys may change."""

from __future__ import annotations

import re
import typing as t

from .._base.model import NpuError
from .._base.records import dataclass
from .._formats.toml import TomlError, loads
from .host import Host

TIMEOUT = 30.0


@dataclass(frozen=True)
class FileJudge:
    """Commands that judge the files: `before` loads the present ones, `after` the staged ones.

    In `after`, {staged:PATH} is the staged file of PATH, and {root} a file of `root_content` in `root_directory`.
    Without `before` only the exit code of `after` counts. Otherwise both print TOML; keys are paths joined by /.
    `allowed` keys and keys below `prefixes` may differ. `expect` are {keys, equals} or {keys, contains}: the first
    present key must match.
    """

    program: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    allowed: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    expect: tuple[t.Mapping[str, t.Any], ...] = ()
    dumps: bool = True
    root_directory: str = ""
    root_content: bytes = b""


def judge_set(host: Host, judge: FileJudge, staged: t.Mapping[str, str], root: str) -> bool:
    """True when the program accepts the set. `staged` is {path: staged path}, `root` the staged main file.

    NpuError has the output of the program, or the other key that would change.
    """
    before = _ask(host, judge, judge.before, "does not load its configuration as it is") if judge.before else None
    words = []
    for word in judge.after:
        for path, name in staged.items():
            word = word.replace("{staged:%s}" % path, name)
        words.append(word.replace("{root}", root))
    after = _ask(host, judge, tuple(words), "does not load the new configuration")
    if not judge.dumps or before is None:
        return True
    old, new = flatten(_parse(judge, before)), flatten(_parse(judge, after))
    for key in sorted(set(old) | set(new)):
        if key in judge.allowed or any(
            key == prefix or key.startswith((prefix + "/", prefix + ".")) for prefix in judge.prefixes
        ):
            continue
        if old.get(key) != new.get(key):
            what = "%s would load a different value of %s; nothing was written." % (judge.program, key)
            raise NpuError(what, "Report this with the file, without its secrets.")
    for wanted in judge.expect:
        _expect(judge, wanted, new)
    return True


def _ask(host: Host, judge: FileJudge, argv: t.Sequence[str], failure: str) -> str:
    done = host.run(argv, TIMEOUT)
    if not done.ok:
        raise NpuError(
            "%s cannot check its configuration: %s (%s)." % (judge.program, done.detail, done.state),
            "Repair %s." % argv[0],
        )
    if done.value.rc != 0:
        lines = [line for line in done.value.err.splitlines() if line.strip()]
        said = (
            re.sub(r"[\w./-]*-(?:judge|new)\b", "the file", lines[-1])[:300]
            if lines
            else "exit code %d" % done.value.rc
        )
        raise NpuError(
            "%s %s: %s." % (judge.program, failure, said.rstrip(".")), "Repair its configuration; nothing was written."
        )
    return str(done.value.out)


def _parse(judge: FileJudge, text: str) -> dict[str, t.Any]:
    try:
        return loads(text)
    except TomlError as exc:
        raise NpuError(
            "The configuration that %s prints is not TOML: %s." % (judge.program, exc), "Report this with its version."
        ) from exc


def flatten(data: t.Mapping[str, t.Any], above: str = "") -> dict[str, t.Any]:
    """{path joined by /: value} of all leaves."""
    found: dict[str, t.Any] = {}
    for key, value in data.items():
        path = above + "/" + key if above else key
        if isinstance(value, dict) and value:
            found.update(flatten(value, path))
        else:
            found[path] = value
    return found


def _plain(path: t.Any) -> t.Any:
    return path[4:] if isinstance(path, str) and path.startswith("/var/run/") else path


def _expect(judge: FileJudge, wanted: t.Mapping[str, t.Any], found: t.Mapping[str, t.Any]) -> None:
    key = next((key for key in wanted["keys"] if key in found), None)
    value = found.get(key) if key is not None else None
    if wanted.get("contains") is not None:
        good = isinstance(value, list) and _plain(wanted["contains"]) in [_plain(item) for item in value]
        want = wanted["contains"]
    else:
        good = value is wanted["equals"]
        want = str(wanted["equals"]).lower()
    if not good:
        raise NpuError(
            "With the edit %s would still not load %s in %s; nothing was written."
            % (judge.program, want, wanted["keys"][0]),
            "Find the file that is read later and sets this key.",
        )
