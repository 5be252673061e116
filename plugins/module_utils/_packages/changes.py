# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Package transactions: request, simulated changes, and changes beyond a plan. Pure."""

from __future__ import annotations

import fnmatch
import re
import typing as t

from .._base.records import dataclass

INSTALL = "install"
UPGRADE = "upgrade"
DOWNGRADE = "downgrade"
REMOVE = "remove"
REINSTALL = "reinstall"

_KERNEL_IMAGE = re.compile(
    r"^(linux-(image|modules|generic|virtual|lowlatency|signed)|kernel(-rt|-64k|-uek)?(-core|-modules.*|-debug.*)?$)"
)


@dataclass(frozen=True)
class Change:
    """One package in a transaction.

    `act` is install, upgrade, downgrade, remove or reinstall; `old` and `new` are versions.
    """

    act: str
    name: str
    old: str | None = None
    new: str | None = None

    def __str__(self) -> str:
        versions = " -> ".join(version for version in (self.old, self.new) if version)
        return "%s %s%s" % (self.act, self.name, " (%s)" % versions if versions else "")


@dataclass(frozen=True)
class Transaction:
    """What a package manager shall do in one go: packages by name, package files, removals.

    `allow_downgrade` and `allow_held` permit older versions and changes of held packages. `purge` removes configuration
    files too.
    """

    install: t.Sequence[str] = ()
    files: t.Sequence[str] = ()
    remove: t.Sequence[str] = ()
    allow_downgrade: bool = False
    allow_held: bool = False
    purge: bool = True

    @property
    def arriving(self) -> list[str]:
        """What is to be installed; a removal alone needs no fresh package lists."""
        return [*self.install, *self.files]


def bare_name(name: str) -> str:
    """`libc6:i386` is `libc6`."""
    return name.partition(":")[0]


def fits(name: str, patterns: t.Sequence[str]) -> bool:
    """True when the name, without its architecture, fits one of the shell patterns."""
    return any(fnmatch.fnmatchcase(bare_name(name), pattern) for pattern in patterns)


def planned(changes: t.Sequence[Change], patterns: t.Sequence[str], dependencies: bool) -> list[Change]:
    """The changes beyond the plan: packages that match no pattern.

    With `dependencies` new packages except kernel images are allowed, but no upgrade, downgrade or removal. A removal
    of another version of what is installed is none: the package manager keeps only some versions of it.
    """
    beyond = []
    arriving = {change.name for change in changes if change.act == INSTALL}
    for change in changes:
        if fits(change.name, patterns) or change.act == REMOVE and change.name in arriving:
            continue
        if dependencies and change.act == INSTALL and not _KERNEL_IMAGE.match(bare_name(change.name)):
            continue
        beyond.append(change)
    return beyond
