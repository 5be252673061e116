# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a host gave no answer: it cannot be reached, or its user may not become root. Pure."""

from __future__ import annotations

import re

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

# What sudo, su, doas and the connection plugins say of a user who does not become root. Not what a module prints.
_REFUSED = re.compile(
    r"^.*(?:^(?:\S+: \d+: )?(?:sudo|su|doas|dzdo|pfexec|pbrun)\b: |"
    r"[Mm]issing \w+ password|[Ii]ncorrect \w+ password|not in the sudoers file|"
    r"waiting for privilege escalation|exec: \"?(?:sudo|su|doas)\b).*$",
    re.M,
)
LENGTH = 300


def _one_line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")[:LENGTH]


def unreachable(host: str, said: str) -> NpuError:
    return NpuError(
        "%s cannot be reached: %s." % (host, _one_line(said)),
        "Correct its address, user or key until `ansible -m ping %s` answers, and run again." % host,
    )


def no_root(host: str, said: str) -> NpuError | None:
    """The error of a host whose user may not become root, by what its connection or its become program said."""
    found = _REFUSED.search(said)
    if not found:
        return None
    return NpuError(
        "On %s the user of the connection cannot become root: %s." % (host, _one_line(found[0])),
        "Give its password with --ask-become-pass, or let the user become root, until "
        "`ansible -b -m command -a id %s` says root; then run again." % host,
    )
