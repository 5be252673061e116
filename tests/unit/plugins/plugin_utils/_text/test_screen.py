# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines and tables for people."""

from __future__ import annotations

from ansible_collections.rebellions.npu.plugins.plugin_utils._text.screen import BAD, GOOD, PLAIN, Line, some, table


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    found = table(("host", "driver", "state"), [("npu1", "3.2.2", "ok"), ("a-long-name", "none", "")], (GOOD, BAD))
    assert found == [
        Line("host         driver  state", PLAIN),
        Line("npu1         3.2.2   ok", GOOD),
        Line("a-long-name  none", BAD),
    ]


def test_a_table_without_rows_is_its_head() -> None:
    assert table(("host", "state"), []) == [Line("host  state")]


def test_rows_without_a_tone_are_plain() -> None:
    assert [one.tone for one in table(("a",), [("1",), ("2",)], (BAD,))] == [PLAIN, BAD, PLAIN]


def test_many_names_are_counted() -> None:
    assert some(["a", "b"]) == "a, b"
    assert some(["a", "b", "c"], 3) == "a, b, c"
    assert some(["a", "b", "c", "d"], 3) == "a, b, c and 1 more"
