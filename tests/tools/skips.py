# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a layer may leave out, and why. Any other skip fails it: else the machine that proves least passes best."""

from __future__ import annotations

import re
import typing as t

from .count import ANSI, skipped

LINE = re.compile(r"^SKIPPED \[(\d+)\] ([^\s:]+)(?::\d+)?: (.*)$", re.M)


class Allowed(t.NamedTuple):
    """Layers and reasons as patterns that match from the start; why it proves nothing less."""

    layers: str
    reason: str
    why: str


ALLOWED = (
    Allowed(
        "test-unit|units",
        "not recorded with this version",
        "what dnf said is kept for each of its versions, and not each said everything",
    ),
    Allowed(
        "test-unit|units",
        "could not import 'ansible.module_utils._internal",
        "the oldest ansible-core has no such objects; its errors are plain text",
    ),
    Allowed("test-unit|units", "no Python 3.8 here", "the floor holds host code to its grammar all the same"),
)


def forbidden(layer: str, output: str) -> list[str]:
    """`N of PATH: reason` of each skip in a layer's output that is not in the table, and how many have no reason."""
    output = ANSI.sub("", output)
    found, told = [], 0
    for number, path, reason in LINE.findall(output):
        told += int(number)
        if not any(re.fullmatch(one.layers, layer) and re.match(one.reason, reason) for one in ALLOWED):
            found.append("%s of %s: %s" % (number, path, reason))
    silent = skipped(output) - told
    return found + (["%d without a reason" % silent] if silent > 0 else [])
