# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text of nodes and pods in one of our messages: one line, short, without secrets."""

from __future__ import annotations

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._text.line import both_ends, line

S = "n0t-a-Real-one-7"
KEY = f"-----BEGIN PRIVATE KEY-----\n{S}\n-----END PRIVATE KEY-----"


@pytest.mark.parametrize("one", [line, both_ends])
def test_it_is_one_short_line_that_moves_no_cursor(one: object) -> None:
    assert callable(one)
    assert one("a\n\x1b[31m b\tc") == "a b c"
    assert len(one("x " * 5000)) <= 900 and one("x " * 5000).startswith("x x")
    assert one("password", 60) == "password" == one("password")


@pytest.mark.parametrize(
    "text",
    [
        f"ended with code 1: DB_PASSWORD={S}",
        f"proxyconnect tcp: http://joe:{S}@proxy:3128",
        # Only the whole lines say that it is one, and a terminal's commands hide none.
        f"cannot use\n{KEY}",
        f"password: |\n  {S}\nnext: 1",
        f"pass\x1b[0mword={S}",
        "x" * 4000 + f" token={S}",
    ],
)
@pytest.mark.parametrize("one", [line, both_ends])
def test_it_tells_no_secret(one: object, text: str) -> None:
    assert callable(one)
    assert S not in one(text)
