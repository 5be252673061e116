# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What apt would do, simulated by apt itself before it does it: what is installed is neither upgraded nor removed."""

from __future__ import annotations

import re
import shutil
import typing as t
from pathlib import Path

from ..tools.ticking import ticking
from ._base import STATE, LabError, run

# Lists, downloads and the rule below are the lab's alone: a look changes nothing on the machine.
FOLDER = STATE / "apt"
# Versions that are installed are preferred to all others, so apt fails where it would have to replace one.
_KEEP = "Package: *\nPin: release a=now\nPin-Priority: 1001\n"
_ACT = re.compile(r"^(Inst|Remv|Purg) (\S+)(?: \[([^\]]+)\])?(?: \((\S+))?", re.M)
_QUIET = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}


class Act(t.NamedTuple):
    """A package that apt would touch; `old` is empty where it is new, `new` where it would go."""

    name: str
    old: str
    new: str

    def __str__(self) -> str:
        if not self.old:
            return "%s %s" % (self.name, self.new)
        return "%s %s becomes %s" % self if self.new else "%s %s goes" % (self.name, self.old)


def acts(said: str) -> list[Act]:
    """What `apt-get -s` says that it would do."""
    return [Act(name, old, new if word == "Inst" else "") for word, name, old, new in _ACT.findall(said)]


def options(folder: Path) -> list[str]:
    """apt with lists, downloads and one rule of its own beside those of the machine."""
    parts = folder / "preferences.d"
    shutil.rmtree(parts, ignore_errors=True)
    for path in (folder / "lists" / "partial", folder / "cache" / "archives" / "partial", parts):
        path.mkdir(parents=True, exist_ok=True)
    for path in Path("/etc/apt/preferences.d").glob("*"):
        shutil.copy(path, parts)
    (parts / "zz-keep").write_text(_KEEP)
    settings = {
        "Dir::State::lists": folder / "lists",
        "Dir::Cache": folder / "cache",
        "Dir::Etc::preferencesparts": parts,
        "APT::Sandbox::User": "root",
    }
    return [word for key, value in settings.items() for word in ("-o", "%s=%s" % (key, value))]


def _get(*argv: str, check: bool = True, settings: t.Sequence[str] = (), timeout: float = 900) -> str:
    words = ["apt-get", "-q", "-y", *settings, *argv]
    done = run(words, timeout, check=False, env=_QUIET)
    if check and done.returncode:
        raise LabError("apt-get %s: %s" % (argv[0], (done.stderr or done.stdout).strip()[-1500:]))
    return done.stdout if not done.returncode else ""


def plan(names: t.Sequence[str], folder: Path = FOLDER, more: t.Sequence[str] = ()) -> list[Act]:
    """Every package that comes with these, all of them new; an empty list for no names.

    LabError where apt knows none of a name, or cannot install it without an upgrade or a removal: it names those.
    """
    if not names:
        return []
    settings = [*options(folder), *more]
    with ticking("apt's lists", 10):
        _get("update", settings=settings)
    install = ("-s", "install", "--no-install-recommends", *names)
    found = acts(_get(*install, check=False, settings=settings))
    if found and not any(act.old for act in found):
        return found
    # The same without the rule says why.
    free = [*settings, "-o", "Dir::Etc::preferencesparts=/etc/apt/preferences.d"]
    wanted = [act for act in acts(_get(*install, settings=free)) if act.old]
    told, those = " ".join(names), ", ".join(map(str, wanted)) or "it does not say which"
    raise LabError(
        "apt installs %s only if it changes other packages: %s. Next: where that is right, apt-get install "
        "--no-install-recommends %s, and run again" % (told, those, told)
    )


def install(
    names: t.Sequence[str], planned: t.Sequence[Act], folder: Path = FOLDER, more: t.Sequence[str] = ()
) -> None:
    """Do what was planned for these packages: the lists are those of the plan, and so is the rule."""
    with ticking("the installation of %d packages" % len(planned), 2 * len(planned) + 10):
        _get("install", "--no-install-recommends", "--no-remove", *names, settings=[*options(folder), *more])
    shutil.rmtree(folder / "cache")


def purge(names: t.Sequence[str]) -> str:
    """Remove these packages and no other; why not, or empty."""
    going = {act.name.partition(":")[0] for act in acts(_get("-s", "purge", *names))}
    others = sorted(going - {name.partition(":")[0] for name in names})
    if others:
        return "%s stay, because %s would go with them" % (", ".join(names), ", ".join(others))
    with ticking("the removal of %d packages" % len(names), len(names) + 5):
        _get("purge", *names)
    return ""
