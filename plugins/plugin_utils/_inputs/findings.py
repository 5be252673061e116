# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong before a host is changed, each said once with the hosts that it stops. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

from .._text.screen import some


class Finding(t.TypedDict):
    """One problem and the hosts that it stops, in play order."""

    detail: str
    next_step: str
    hosts: list[str]


class Findings:
    """The problems of a run on `hosts`."""

    def __init__(self, hosts: t.Sequence[str]) -> None:
        self._hosts = list(hosts)
        self._found: dict[tuple[str, str], set[str]] = {}

    def add(self, error: NpuError, hosts: t.Iterable[str]) -> None:
        self._found.setdefault((error.message, error.next_step), set()).update(hosts)

    def items(self) -> list[Finding]:
        return [
            {"detail": detail, "next_step": next_step, "hosts": [host for host in self._hosts if host in hosts]}
            for (detail, next_step), hosts in self._found.items()
        ]

    @property
    def stop_all(self) -> bool:
        """Whether one of them stops every host of the run."""
        return any(len(item["hosts"]) == len(self._hosts) for item in self.items())

    def text(self) -> str:
        """All of them in one message; what is not of every host names its hosts."""
        told = []
        for item in self.items():
            names = item["hosts"]
            step = " Next: %s" % item["next_step"] if item["next_step"] else ""
            told.append("%s%s%s" % ("" if len(names) == len(self._hosts) else some(names) + ": ", item["detail"], step))
        if len(told) == 1:
            return "Nothing was changed. " + told[0]
        lines = ["(%d) %s" % (number, text) for number, text in enumerate(told, 1)]
        return "\n".join(["Nothing was changed. %d things are wrong:" % len(told), *lines])


def of_host(host: str, results: t.Iterable[t.Any], running: t.Collection[str]) -> list[tuple[Finding, str]]:
    """(finding, the first host of this run that it stops) for each that stops `host`, from registered results.

    Two looks may have found the same.
    """
    found: dict[tuple[str, str], tuple[Finding, str]] = {}
    for result in results:
        for item in (result or {}).get("problems") or []:
            if host in item["hosts"]:
                first = next(one for one in item["hosts"] if one in running or one == host)
                found.setdefault((item["detail"], item["next_step"]), (item, first))
    return list(found.values())
