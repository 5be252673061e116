# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reader for Python before 3.11 gives the answers of tomllib, and both name the place of an error."""

from __future__ import annotations

import random
import sys
import typing as t
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._formats import toml
from ansible_collections.rebellions.npu.plugins.module_utils._formats.toml import TomlError, loads, read
from ansible_collections.rebellions.npu.tests.unit.fixtures.times import growth

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures" / "runtimes"
FILES = sorted(path for path in FIXTURES.rglob("*") if path.suffix in (".toml", ".conf", ".tmpl"))

# fmt: off
DOCUMENTS = [
    "", "a=1\n[a]\n", "[a]\nb=1\n[a.b]\n", "a.b=1\na.c=2\n", "a.b=1\n[a]\nc=1\n", "[a.b]\n[a]\n", "[a]\n[a]\n",
    "[[a]]\n[[a]]\nx=1\n[a.b]\n",
    "a=[]\n[[a]]\n", "a={b=1}\n[a.c]\n", "a={b=1,}\n", "a={b.c=1,b.d=2}\n", "[a]\nb.c=1\n[a.b.d]\nx=1\n",
    "[a.b]\nx=1\n[a]\nb.y=1\n",
    "a=0x_1", "a=0xdead_BEEF", "a=01", "a=1__0", "a=+1", "a=-0", "a=1.", "a=.5", "a=1e3", "a=1_0.0_1e+1_0", "a=inf",
    "a=-nan", "a=_1", "a=1_",
    "a=0b12", "a=0x", "a=00", "a=0.0.1", "a=1e", "a=--1", "a=+0x1", "a=1979-05-27", "a=1979-05-27T07:32:00Z",
    "a=1979-05-27 07:32:00.999999+07:00", "a=07:32:00", "a=1979-02-30", "a=1979-05-27T00:00:00.1234567Z",
    "a = 1979-05-27T", "b=[1979-05-27,2]",
    'a="\\u00e9\\U0001F600"', 'a="\\ud800"', 'a="\\x"', 'a="""\nx\\\n   y"""', 'a="""a""b"""""', "a='''x'''''",
    "a='x\ny'", 'a="x\ny"', 'a="x',
    "=1", "a", "a=", "a 1", "[", "[a", "[[a]", "[a]]", "[a]b", "a=1 b=2", '"a.b"=1', "'a'.b=1", 'a."".c=1', "a=[1,2,]",
    "a=[1 2]",
    "a=[\n1, # c\n2\n]", "a=[,]", "a={}", "a={ }", "a={b=1\n}", "a=tru", "a=true1", "a=1\x00", "#\x01", 'a="\x7f"',
    'a="\t"', "\ta=1\r\nb=2\r\n",
    "a=1\rb=2", "a.b.c=1\na.b=2", "a=1\na.b=1", "[a]\n[a.b.c]\n[a.b]\n", "[[a.b]]\n[a]\n", "[a]\n[[a]]", "[[a]]\n[a]",
    "[x]\na.b=1\n[x.a]\n",
    "a={x={y=1}}\n[a.x]", "a=[{x=1}]\n[a.b]", "a=[{x=1},{y=2}]", "a = 1 # c", "version = = 2", "a={b=1, b=2}",
    "fruit.apple.x=1\n[fruit]\n",
    "[fruit]\napple.x=1\n[fruit.apple.y]\n", "[fruit]\napple.x=1\n[fruit.pear]\n", "a='''\n\\'''", 'a="\\\n"',
    'a="""\\   \n x"""',
]
# fmt: on


def answer(reader: object, text: str) -> tuple[str, str]:
    try:
        return "value", repr(reader(text))  # type: ignore[operator]
    except ValueError as exc:
        assert exc.__class__.__name__ in ("TomlError", "TOMLDecodeError"), exc
        return "error", ""


def broken_at_random() -> list[str]:
    """Documents with one stretch replaced: the same ones every time."""
    chance = random.Random(20)
    pieces = ["", '"', "'", "[", "]", "{", "}", "=", ".", "\n", "#", ",", "a", "1", "\\", '"""', "'''", "_", "-", ":"]
    whole = [path.read_text(encoding="utf-8-sig") for path in FILES] + DOCUMENTS
    found = []
    for _number in range(3000):
        text = chance.choice(whole)
        start = chance.randrange(len(text) + 1)
        found.append(text[:start] + chance.choice(pieces) + text[start + chance.choice((0, 0, 1, 1, 3)) :])
    return found


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the judge, tomllib, came with Python 3.11")
def test_own_reader_is_tomllib_over_fixtures_table_and_broken_documents() -> None:
    import tomllib

    texts = [path.read_text(encoding="utf-8-sig") for path in FILES] + DOCUMENTS + broken_at_random()
    assert len(FILES) > 40
    differ = [text for text in texts if answer(read, text) != answer(tomllib.loads, text)]
    assert differ == []


@pytest.mark.parametrize(
    "text, line, column",
    [
        ("version = = 2\n", 1, 11),
        ("a = 1\nb = [1,\n", 3, 1),
        ("a = 1\na = 2\n", 2, 1),
        ('ok = true\n\nname = "x\n', 3, 10),
    ],
    ids=["value", "array-not-closed", "key-twice", "string-not-closed"],
)
def test_own_reader_names_the_place_of_an_error(text: str, line: int, column: int) -> None:
    with pytest.raises(TomlError) as caught:
        read(text)
    assert (caught.value.line, caught.value.column) == (line, column)


def test_both_readers_name_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, line in (("version = = 2\n", 1), ("a = 1\n[b\n", 2), ('a = """x', 1)):
        with pytest.raises(TomlError) as caught:
            loads(text)
        assert caught.value.line == line
    monkeypatch.setattr(toml, "tomllib", None)
    for text, line in (("version = = 2\n", 1), ("a = 1\n[b\n", 2), ('a = """x', 1)):
        with pytest.raises(TomlError) as caught:
            loads(text)
        assert caught.value.line == line


@pytest.mark.parametrize(
    "text", ["a = " + "[" * 5000 + "]" * 5000, "a = " + "{a = " * 5000 + "1" + "}" * 5000], ids=["arrays", "tables"]
)
def test_what_is_nested_too_deeply_is_an_error(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TomlError, match="nested too deeply"):
        loads(text)
    monkeypatch.setattr(toml, "tomllib", None)
    with pytest.raises(TomlError, match="nested too deeply"):
        loads(text)


def test_byte_order_mark_is_not_part_of_the_document(monkeypatch: pytest.MonkeyPatch) -> None:
    assert loads("\ufeffversion = 2\n") == {"version": 2}
    monkeypatch.setattr(toml, "tomllib", None)
    assert loads("\ufeffversion = 2\n") == {"version": 2}


LONG: dict[str, t.Callable[[int], str]] = {
    "literals": lambda number: "a = [" + "'x', " * number + "]",
    "strings": lambda number: "a = [" + '"x", ' * number + "]",
    "inline": lambda number: "a = {" + ", ".join("k%d = 1" % one for one in range(number)) + "}",
    "lines": lambda number: "".join("a%d = 1 # c\n" % one for one in range(number)),
    "tables": lambda number: "".join("[[a]]\n[a.b%d]\n" % one for one in range(number)),
}


@pytest.mark.parametrize("name", sorted(LONG))
def test_time_grows_with_the_length(name: str) -> None:
    assert growth(read, LONG[name], 4000) < 8


def test_a_number_without_end_is_refused() -> None:
    with pytest.raises(TomlError, match="digits"):
        read("a = " + "1" * 5000)
