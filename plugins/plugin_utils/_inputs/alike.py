# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts whose inputs are alike: what holds for one of them holds for all, so it is read and judged once. Pure."""

from __future__ import annotations

import re
import typing as t

Variables = t.Mapping[str, t.Any]
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# The words of a path, and of a text that is no name, name nothing: our own paths have the word of a fact.
_PATH = re.compile(r"(?<=['\"}])/[\w./-]*")
_TEXT = re.compile(r"\\?(['\"])([^'\"{}\\]*)\\?\1")
# What a template finds below these is another thing for each host.
_OF_A_HOST = frozenset({"hostvars", "vars", "ansible_facts"})
# The same for all hosts, and long.
_OF_ALL = frozenset({"groups", "omit", "playbook_dir"})


def alike(hosts: t.Mapping[str, Variables], names: t.Collection[str]) -> list[list[str]]:
    """The hosts in groups whose variables of these names, and all that templates in them name, are written alike."""
    groups: dict[str, list[str]] = {}
    for host, variables in hosts.items():
        groups.setdefault(_all_written(variables, names), []).append(host)
    return list(groups.values())


def _all_written(variables: Variables, names: t.Collection[str]) -> str:
    waiting = {name for name in variables if name in names}
    seen: dict[str, str] = {}
    while waiting:
        name = waiting.pop()
        seen[name] = text = written(variables[name])
        if "{{" in text or "{%" in text:
            words = _words(text)
            found = {word for word in words if word in variables} - _OF_A_HOST - _OF_ALL
            waiting |= (found | ({"inventory_hostname"} if words & _OF_A_HOST else set())) - set(seen)
    return "\n".join("%s=%s" % item for item in sorted(seen.items()))


def _words(text: str) -> set[str]:
    """What may be a name in a template; a text in quotes may be the name that a lookup is given."""
    named = _TEXT.sub(lambda found: found[0] if found[2].isidentifier() else " ", _PATH.sub("", text))
    return set(_WORD.findall(named))


def written(value: t.Any) -> str:
    """A value as text that differs where the value does. What Ansible Vault has encrypted stays encrypted."""
    cipher = getattr(value, "_ciphertext", None)
    if cipher is not None:
        return str(cipher)
    if isinstance(value, t.Mapping):
        return "{%s}" % ",".join("%s:%s" % (written(key), written(item)) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return "[%s]" % ",".join(map(written, value))
    return repr(value)
