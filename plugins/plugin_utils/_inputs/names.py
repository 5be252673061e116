# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of variables: which are inputs of the collection, and what is wrong with one that begins like them."""

from __future__ import annotations

import difflib
import functools
import re
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._objects.names import INPUT, SHORT
from .normalise import normalise
from .roles import COLLECTION, PREFLIGHT, role_inputs

OWN = PREFLIGHT + "_own_prefixes"
# What a host has as facts, and not as what tasks registered.
FACTS = (INPUT + "runtimes", INPUT + "observed")
_NAME = INPUT + r"[a-z0-9_]*[a-z0-9]\b"
# Not the name of a module or role (rebellions.npu.NAME), nor an item of a result.
_READ = re.compile(r"(?<![\w.])" + _NAME)
_OPTION = re.compile(r"^ {6}(%s):" % _NAME, re.M)
_MADE = re.compile(r"^\s+(?:register: )?(%s)(?::|\s*$)" % _NAME, re.M)


class Known(t.NamedTuple):
    """Names of the inputs, and of what the roles and playbooks set themselves."""

    inputs: frozenset[str]
    made: frozenset[str]


@functools.lru_cache(maxsize=None)
def known() -> Known:
    """Read once a process, from the files that read the inputs: no second list can be out of date."""
    roles = {path.name for path in (COLLECTION / "roles").iterdir()}
    playbooks = _texts("playbooks/*.yml")
    options = set(_OPTION.findall(_texts("roles/*/meta/argument_specs.yml")))
    made = {*_MADE.findall(_texts("roles/*/tasks/*.yml") + playbooks), *FACTS} - options
    read = set(_READ.findall(_texts("roles/*/defaults/main.yml") + playbooks))
    return Known(frozenset(options | (read - made - roles)), frozenset(made))


def _texts(pattern: str) -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(COLLECTION.glob(pattern)))


def set_names(variables: t.Mapping[str, t.Any]) -> set[str]:
    """The variables of a host that begin as our inputs, or nearly so, and are no facts."""
    facts = variables.get("ansible_facts") or {}
    return {name for name in variables if (name.startswith(INPUT) or _meant(name)) and name not in facts}


def _meant(name: str) -> str:
    """The input that is meant by a name with our prefix misspelt, and the rest right in any case; else empty."""
    head, _between, rest = name.partition("_")
    wanted = INPUT + rest.lower()
    return wanted if _is_nearly_ours(head) and wanted in known().inputs else ""


@functools.lru_cache(maxsize=4096)
def _is_nearly_ours(head: str) -> bool:
    """Whether what stands before the first underscore is our prefix with one edit, or its letters in another order."""
    small = head.lower()
    return small == SHORT or one_edit(small, SHORT) or sorted(small) == sorted(SHORT)


def own_prefixes(templar: t.Any, variables: t.Mapping[str, t.Any]) -> list[str]:
    """The prefixes that the user has declared. NpuError for what is no list of texts."""
    spec = {OWN: role_inputs()[OWN]}
    prefixes: list[str] = normalise({OWN: templar.template(variables.get(OWN))}, spec)[OWN]
    return prefixes


class Unknown(t.NamedTuple):
    """A variable that nothing reads, and the nearest input; `misspelt` when they are one edit apart."""

    name: str
    near: str
    misspelt: bool

    def error(self) -> NpuError:
        what = "%s is not an input of this collection." % self.name
        if self.misspelt:
            return NpuError(what, "Write %s, or give variables of your own a prefix (%s)." % (self.near, OWN))
        return NpuError(
            what, "Correct it (the nearest input is %s), remove it, or name its prefix in %s." % (self.near, OWN)
        )


def unknown(names: t.Iterable[str], own: t.Sequence[str] = ()) -> list[Unknown]:
    """The variables of these names that begin as our inputs and are none, ordered by name.

    `own` are prefixes of the user's own variables. NpuError for one with which inputs begin.
    """
    inputs, made = known()
    for prefix in own:
        taken = sorted(name for name in inputs if name.startswith(prefix))
        head, between, _rest = prefix.partition("_")
        if taken or not (between and _is_nearly_ours(head)):
            why = "the input %s begins with it" % taken[0] if taken else "it does not begin with %s" % INPUT
            raise NpuError(
                "%s has %r, which is no prefix of your own: %s." % (OWN, prefix, why),
                "Name a longer one, such as %sacme_." % INPUT,
            )
    strange = {name for name in names if name not in inputs and name not in made and not name.startswith(tuple(own))}
    return [_judged(name, inputs) for name in sorted(strange) if name.startswith(INPUT) or _meant(name)]


def _judged(name: str, inputs: t.Iterable[str]) -> Unknown:
    meant = _meant(name)
    if meant:
        return Unknown(name, meant, True)
    close = sorted(one for one in inputs if one_edit(name, one))
    if close:
        return Unknown(name, close[0], True)
    # What all of them begin with would make any two alike.
    rests = sorted(one[len(INPUT) :] for one in inputs)
    return Unknown(name, INPUT + difflib.get_close_matches(name[len(INPUT) :], rests, 1, 0.0)[0], False)


def one_edit(one: str, other: str) -> bool:
    """Whether inserting, deleting or replacing one character, or swapping two neighbours, makes one of the other."""
    at = 0
    while at < min(len(one), len(other)) and one[at] == other[at]:
        at += 1
    left, right = one[at:], other[at:]
    if left == right:
        return False
    swapped = left[:2] == right[1::-1] and len(left) > 1 and left[2:] == right[2:]
    return left[1:] == right[1:] or left[1:] == right or left == right[1:] or swapped
