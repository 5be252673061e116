# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reader and the writer against PyYAML."""

from __future__ import annotations

import random
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.rebellions.npu.plugins.module_utils._formats.yaml import dump
from ansible_collections.rebellions.npu.plugins.module_utils._formats.yaml_read import YamlError, load
from ansible_collections.rebellions.npu.tests.unit.fixtures.random_yaml import read_one, write_one
from ansible_collections.rebellions.npu.tests.unit.fixtures.times import growth

FIXTURES = Path(__file__).resolve().parents[4] / "unit" / "fixtures" / "cdi"
FILES = sorted(
    [*(FIXTURES / "vendor").glob("*.yaml"), *(FIXTURES / "cases").glob("*.yaml"), *(FIXTURES / "vendor").glob("*.json")]
)


def test_there_are_fixtures() -> None:
    assert len(FILES) > 30


@pytest.mark.parametrize("path", FILES, ids=[path.name for path in FILES])
def test_fixtures_read_alike(path: Path) -> None:
    text = path.read_text()
    data = yaml.safe_load(text)
    assert data is not None and load(text) == data
    if "float" not in path.name:
        assert yaml.safe_load(dump(data)) == load(dump(data)) == data


def test_a_number_with_a_point_is_not_written() -> None:
    with pytest.raises(TypeError):
        dump({"cdiVersion": 0.5})


SAME = [
    "", "# only a comment\n", "---\n", "--- \n# c\n", "---\na: 1\n...\n", "--- {a: 1}\n", "a: 1", "a:\n",
    "a: ~\nb: null\nc: Null\n",
    "a: [1, two, 'three', \"four\"]\n", "a: []\nb: {}\n", "a: [\n  1,\n  2, # c\n]\n", "{a: {b: [c, {d: e}]}, f: }\n",
    "[a: 1, b]\n",
    "- 1\n- - 2\n  - 3\n-\n  - 4\n- a: 5\n  b: 6\n", "a:\n- 1\n- 2\nb: 3\n",
    "a:\n  - 1\n\n  - 2\n# c\nb:\n    c: 3\n    d: 4\n",
    "a: 'it''s'\nb: \"q\\\"q\\n\\t\\x41\\u00e9\\U0001F600\\/\"\n", "a: 'x\n  y\n\n  z'\n", "a: \"x\n  y \\\n  z\"\n",
    "a: x\n  y\n  z\nb: 1\n", "a: x\n\n  y\n",
    "a: |\n  x\n   y\n\n  z\n\nb: 1\n", "a: |-\n  x\n", "a: |+\n  x\n\nb: 1\n", "a: >\n  x\n  y\n\n  z\n   more\n  w\n",
    "a: |2\n   x\n  y\n",
    "- |\n  x\n- 2\n",
    "a: yes\nb: No\nc: on\nd: OFF\ne: true\nf: yEs\ng: y\n",
    "a: 010\nb: 0x1F\nc: 0b11\nd: 1_000\ne: 1:30\nf: -5\ng: +5\nh: 0o17\ni: 08\n",
    "a: 1.5\nb: 0.5.0\nc: 1e3\nd: 1.0e+3\ne: .5\nf: .inf\ng: -.INF\n", "a: b:c\nd: e#f\ng: h #i\nj: http://x/y\n",
    "a: -x\nb: ?x\nc: :x\n",
    "'a b': 1\n\"c\": 2\n3: 4\na b c: d\n", "a : 1\nb  :  2\n", "a:\r\n  - 1\r\nb: 2\r\n", "\ufeffa: 1\n",
    "key: value # comment\nother: 'x' # c\n",
    "a: {b: c, 'd': \"e\", f: [g]}\n", "{'a':1,\"b\":2}\n", '{"a":{"b":[1,2,null,true]}}\n',
    "a:\n  b:\n    c:\n      - d:\n          e: f\n        g: h\n",
    "- a:\n    - 1\n  b:\n  - 2\n", "a: -\n", "a: '---'\n", "a: x---\n", "plain\n", "'quoted'\n",
    "a: 12e03\nb: 0.\nc: 1_0.5\n",
]  # fmt: skip


@pytest.mark.parametrize("text", SAME, ids=range(len(SAME)))
def test_reads_as_pyyaml_does(text: str) -> None:
    try:
        wanted = yaml.safe_load(text)
    except yaml.YAMLError:
        with pytest.raises(YamlError):
            load(text)
        return
    got = load(text)
    assert got == wanted
    assert repr(got) == repr(wanted)


REFUSED = [
    ("a: &x 1\nb: *x\n", "line 1: anchors"), ("a: !!str 1\n", "line 1: anchors"), ("? a\n: b\n", "line 1: complex"),
    ("a: 1\n---\nb: 2\n", "line 2: a second document"), ("%YAML 1.1\n---\na: 1\n", "directives"),
    ("a: 1\n<<: {b: 2}\n", "line 2: merge"),
    ("a: 1\na: 2\n", "line 2: the key 'a' stands twice"), ("{a: 1, a: 2}\n", "stands twice"),
    ("a: [1, 2\n", "not closed"),
    ("a: 'x\n", "line 1: a quote is not closed"),
    ("a: \"\\q\"\n", "escape"), ("a: \"\\u12\"\n", "escape"), ("a:\n\t- 1\n", "line 2: a tab"),
    ("a:\n  b: 1\n c: 2\n", "line 3"), ("a: b: c\n", "line 1"),
    ("a: 'x' y\n", "text after"), ("a: [1 2, [3]] x\n", "text after"), ("a: @x\n", "may not begin"),
    ("a: 1\nb\n", "line 2: a key"), ("a: - 1\n", "line 1"),
    ("a: \x01\n", "control"), ("{[a]: 1}\n", "collection as a key"), ("- 1\na: 2\n", "line 2"),
    ("a: ]\n", "may not begin"),
    ("a: |x\n  y\n", "block scalar"), ("[" * 100 + "]" * 100, "too deeply"),
]  # fmt: skip


@pytest.mark.parametrize("text, message", REFUSED, ids=[message for _text, message in REFUSED])
def test_refuses_by_line(text: str, message: str) -> None:
    with pytest.raises(YamlError, match="line [0-9]+: ") as caught:
        load(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "0",
        "1.0",
        "yes",
        "null",
        "a: b",
        "- a",
        "#",
        "é",
        "\u2028",
        "\x85",
        "\x7f",
        "\ufeff",
        "\U0001f600",
        "a\nb",
        "\t",
        "\\",
        '"',
        "'",
        "{",
        "\x00",
        "\ud7ff",
    ],
)
def test_strings_survive_in_yaml_and_json(text: str) -> None:
    written = dump({"a": [text, {text: text}]})
    wanted = {"a": [text, {text: text}]}
    assert yaml.safe_load(written) == wanted
    assert load(written) == wanted


def test_written_text() -> None:
    data = {"a": "x", "b": [1, True, None, [], {}], "yes": {"c-d": [[1, 2], {"e": "f", "g": []}]}}
    assert dump(data) == (
        'a: "x"\nb:\n  - 1\n  - true\n  - null\n  - []\n  - {}\n'
        '"yes":\n  "c-d":\n    - - 1\n      - 2\n    - e: "f"\n      g: []\n'
    )


@pytest.mark.parametrize(
    "text", ["a: ~ :1{~'-%\n", "a: :&l! :!}e*\n", "a:\n  0[u[] :l{.: 0\n", "[a :b, c]\n", "{a :b: c}\n"]
)
def test_a_colon_within_words(text: str) -> None:
    assert load(text) == yaml.safe_load(text)


def test_a_key_that_ends_its_line() -> None:
    assert yaml.safe_load(dump({"b\n": 1})) == load(dump({"b\n": 1})) == {"b\n": 1}


def test_random_data_survives_every_style() -> None:
    source = random.Random(20260101)
    for _round in range(150):
        write_one(source)


def test_random_text_is_never_read_otherwise_than_pyyaml_reads_it() -> None:
    source = random.Random(7)
    assert sum(read_one(source) for _round in range(6000)) > 1000


# Each is one line, or a text of short lines, that grows with the number.
LONG: dict[str, t.Callable[[int], str]] = {
    "sequence": lambda number: "[" + "a, " * number + "]",
    "mapping": lambda number: "{" + ", ".join("k%d: v" % one for one in range(number)) + "}",
    "nested": lambda number: "a: [" + "{b: [c]}, " * number + "]",
    "quoted": lambda number: "[" + "'a', " * number + "]",
    "escapes": lambda number: '"' + "\\ud83d\\ude00" * number + '"',
    "plain": lambda number: "a " * (4 * number) + ": b",
    "continued": lambda number: "a: b\n" + "  c\n" * number,
    "folded": lambda number: "a: >\n" + "  c\n\n" * number,
    "not closed": lambda number: "[" + "a, " * number,
}


@pytest.mark.parametrize("name", sorted(LONG))
def test_time_grows_with_the_length(name: str) -> None:
    assert growth(load, LONG[name], 4000) < 8


@pytest.mark.parametrize("text", ["1" * 5000, "-" + "0b" + "1" * 5000, "1:" + "00:" * 3000 + "1", "1." + "0" * 5000])
def test_a_number_without_end_is_refused(text: str) -> None:
    with pytest.raises(YamlError, match="digits"):
        load("a: " + text)


def test_a_long_text_that_is_no_number_is_read() -> None:
    assert load("a: " + "1a" * 5000) == {"a": "1a" * 5000}
