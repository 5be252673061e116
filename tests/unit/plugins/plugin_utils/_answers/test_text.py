# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text of a host: what a terminal obeys is removed, all else stays."""

from __future__ import annotations

import json
import sys
import unicodedata

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.text import clean, clean_output


@pytest.mark.parametrize(
    ("text", "line", "lines"),
    [
        ("plain", "plain", "plain"),
        ("Gerät 日本 🙂", "Gerät 日本 🙂", "Gerät 日本 🙂"),
        ("\x1b[1;31mred\x1b[0m", "red", "red"),
        ("\x9b2Jred", "red", "red"),
        ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b", "ab", "ab"),
        ("\x1bPq#0\x1b\\a\x1bcb", "ab", "ab"),
        ("\x1b]0;without an end", "", ""),
        ("a\nb\tc\r\nd", "a b c d", "a\nb\tc\nd"),
        ("shown\rhidden", "shown hidden", "shown hidden"),
        ("a\x00\x08\x7f\x85b", "a b", "a b"),
        ("\u202egpj.exe\u2066x\u200e\u061c", "gpj.exex", "gpj.exex"),
        ("a\u2028b\u2029c", "a b c", "a b c"),
        ("\ud800a\udc00", "a", "a"),
        ("{{ 1 }}{% raw %}%s{0}", "{{ 1 }}{% raw %}%s{0}", "{{ 1 }}{% raw %}%s{0}"),
    ],
)
def test_clean(text: str, line: str, lines: str) -> None:
    assert clean(text) == line and clean(text, lines=True) == lines


def test_every_character_is_printable_or_goes() -> None:
    """Each of Unicode's code points in the middle of a text: what is left can be shown and encoded."""
    kept: list[str] = []
    for number in range(sys.maxunicode + 1):
        char = chr(number)
        if char.isprintable() or char in "\n\t":
            kept.append(char)
            continue
        left = clean("a%sb" % char, lines=True)
        # Some begin a command of a terminal, which ends with its text.
        assert left in ("ab", "a b", "a"), hex(number)
    assert clean("".join(kept), lines=True) == "".join(kept)
    assert {"Cc"} == {unicodedata.category(char) for char in kept} & {"Cc", "Cf", "Zl", "Zp", "Cs"}


@pytest.mark.parametrize("ascii_only", [True, False])
def test_output_with_json_loses_the_same_and_stays_json(ascii_only: bool) -> None:
    hidden = "\x00\x07\x08\x0b\x0c\r\x1b\x7f\x80\x9b\u061c\u200b\u200e\u200f\u2028\u2029\u202e\u2066\ufeff\ud800\udc00"
    data = {"a" + char + "b": ["\\u001b", "\\\\" + char, char + '"', "🙂" + char] for char in hidden}
    told = json.loads(clean_output(json.dumps(data, ensure_ascii=ascii_only)))
    assert told == {"ab": ["\\u001b", "\\\\", '"', "🙂"]}
    kept = {"lines": "a\n\tb", "text": "Gerät 日本 🙂 \\x1b C:\\new"}
    assert json.loads(clean_output(json.dumps(kept, ensure_ascii=ascii_only))) == kept


def test_output_that_is_no_json_is_clean_too() -> None:
    assert clean_output("\x1b[31mno\x1b[0m\r\njson\udcff") == "no\njson"
    assert clean_output('{"a": "\\u001b[31m", "b": "\\u001B["}') == '{"a": "", "b": "["}'


def test_cleaning_takes_linear_time() -> None:
    """As many calls of the engine as there are escapes, whatever follows them: seconds would show it at once."""
    for piece in ("\x1b[", "\x1b]", "\x9b0;", "\\", "\\u001b[0;", "\x1b[0"):
        text = piece * 200_000
        assert len(clean(text)) <= len(text) and len(clean_output(text)) <= len(text)
