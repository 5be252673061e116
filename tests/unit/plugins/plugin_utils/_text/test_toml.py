# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import random
import typing as t
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._formats import toml
from ansible_collections.rebellions.npu.plugins.plugin_utils._text.splice import lookup, reverse
from ansible_collections.rebellions.npu.plugins.plugin_utils._text.toml import TomlEdit, load
from ansible_collections.rebellions.npu.tests.unit.fixtures.random_toml import array, edit_one, inline_one

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
TABLE = ("plugins", "a.b")
SETS = [
    ("replace", '[plugins."a.b"]\n  on = false # why\n', '[plugins."a.b"]\n  on = true # why\n'),
    ("after-last", "[plugins.'a.b']\n\tx = 1\n\n[other]\n", "[plugins.'a.b']\n\tx = 1\n\ton = true\n\n[other]\n"),
    ("empty-table", '[plugins."a.b"]\n\n[other]\n  y = 2\n', '[plugins."a.b"]\n  on = true\n\n[other]\n  y = 2\n'),
    (
        "step-of-the-file",
        '[plugins."a.b"]\n[other]\n    y = 2\n',
        '[plugins."a.b"]\n    on = true\n[other]\n    y = 2\n',
    ),
    ("no-indent", '[plugins."a.b"]\n[other]\ny = 2\n', '[plugins."a.b"]\non = true\n[other]\ny = 2\n'),
    ("dotted", '[plugins]\n"a.b".x = 1\nz = 2\n', '[plugins]\n"a.b".x = 1\n"a.b".on = true\nz = 2\n'),
    ("dotted-top", "plugins.'a.b'.x = 1\n", "plugins.'a.b'.x = 1\nplugins.'a.b'.on = true\n"),
    ("inline", 'plugins = { "a.b" = { x = 1 } }\n', 'plugins = { "a.b" = { x = 1, on = true } }\n'),
    ("inline-empty", 'plugins = { "a.b" = {} }\n', 'plugins = { "a.b" = { on = true } }\n'),
    ("inline-replace", 'plugins = { "a.b" = { on = false, x = 1 } }\n', 'plugins = { "a.b" = { on = true, x = 1 } }\n'),
    (
        "only-subtable",
        '# c\n[plugins."a.b".c]\n  y = 1\n',
        '# c\n[plugins."a.b".c]\n  y = 1\n\n[plugins."a.b"]\n  on = true\n',
    ),
    ("absent", "version = 2\n[x]\n  y = 1\n", 'version = 2\n[x]\n  y = 1\n\n[plugins."a.b"]\n  on = true\n'),
    ("absent-no-newline", "version = 2", 'version = 2\n\n[plugins."a.b"]\n  on = true'),
    (
        "literal-quotes",
        "v = 'x'\n[plugins.'c.d']\n  y = 1\n",
        "v = 'x'\n[plugins.'c.d']\n  y = 1\n\n[plugins.'a.b']\n  on = true\n",
    ),
    ("crlf", '[plugins."a.b"]\r\n  x = 1\r\n', '[plugins."a.b"]\r\n  x = 1\r\n  on = true\r\n'),
    ("bom", '\ufeff[plugins."a.b"]\n', '\ufeff[plugins."a.b"]\n  on = true\n'),
    (
        "multi-line",
        '[plugins."a.b"]\n  x = """\n[plugins]\non = false"""\n',
        '[plugins."a.b"]\n  x = """\n[plugins]\non = false"""\n  on = true\n',
    ),
    (
        "comment-looks-like-it",
        '#[plugins."a.b"]\n# on = true\n',
        '#[plugins."a.b"]\n# on = true\n\n[plugins."a.b"]\n  on = true\n',
    ),
    ("spaced-header", '[ plugins . "a.b" ]\nx = 1\n', '[ plugins . "a.b" ]\nx = 1\non = true\n'),
    (
        "array-value-with-bracket-lines",
        '[plugins."a.b"]\n  x = [\n[1],\n]\n[z]\n',
        '[plugins."a.b"]\n  x = [\n[1],\n]\n  on = true\n[z]\n',
    ),
]


# What is cut: plugins."a.b".on, or the pair that implies it.
CUTS = [
    ('plugins = { "a.b" = { x = 1, on = true } } # c\n', 'plugins = { "a.b" = { x = 1 } } # c\n'),
    ("plugins = {'a.b' = {on=true,x=[ # d, }\n1]}}\n", "plugins = {'a.b' = {x=[ # d, }\n1]}}\n"),
    ('plugins = { "a.b".on = true, z = {} }', "plugins = { z = {} }"),
    ('plugins = { "a.b" = { on = true } }\n', 'plugins = { "a.b" = {} }\n'),
    ('[plugins]\n"a.b" = { on = "}, x", y = 1 }\n[u]\n', '[plugins]\n"a.b" = { y = 1 }\n[u]\n'),
    ('plugins."a.b" = { y = 1, "on" = 1, z = 2 }\r\n', 'plugins."a.b" = { y = 1, z = 2 }\r\n'),
]


@pytest.mark.parametrize("before, after", CUTS)
def test_a_pair_is_cut_out_of_an_inline_table(before: str, after: str) -> None:
    edit = TomlEdit(before, "x")
    edit.delete(TABLE + ("on",))
    assert edit.text == after and reverse(edit.text, edit.buffer.splices) == before
    assert edit.changes[-1]["new"] is None
    edit.prove([TABLE])
    edit.delete(TABLE + ("on",))
    assert edit.text == after


def test_random_inline_tables() -> None:
    for number in range(150):
        inline_one(random.Random(number))


@pytest.mark.parametrize("before, after", [row[1:] for row in SETS], ids=[row[0] for row in SETS])
def test_set(before: str, after: str) -> None:
    edit = TomlEdit(before, "x")
    edit.set(TABLE + ("on",), "true")
    assert edit.text == after
    assert lookup(toml.loads(edit.text), TABLE + ("on",)) is True
    edit.prove([TABLE + ("on",)])
    assert reverse(edit.text, edit.buffer.splices) == before
    again = TomlEdit(edit.text, "x")
    again.set(TABLE + ("on",), "true")
    assert again.buffer.splices == []


EXTENDS = [
    ('d = ["/o"]', 'd = ["/o", "/n", "/m"]'),
    ("d = ['/o'] # c", "d = ['/o', '/n', '/m'] # c"),
    ('d = [ "/o", ]', 'd = [ "/o", "/n", "/m" ]'),
    ("d = []", 'd = ["/n", "/m"]'),
    ('d = [\n  "/o"\n]', 'd = [\n  "/o",\n  "/n",\n  "/m"\n]'),
    ('d = [\n  "/o", # first\n]', 'd = [\n  "/o", # first\n  "/n",\n  "/m",\n]'),
    ('d = [\n  "/o" # first, and only\n]', 'd = [\n  "/o", # first, and only\n  "/n",\n  "/m"\n]'),
    ('d = ["/m"]', 'd = ["/m", "/n"]'),
    ('d = ["/n", "/m"]', 'd = ["/n", "/m"]'),
    ('d = [\r\n  "/o"\r\n]', 'd = [\r\n  "/o",\r\n  "/n",\r\n  "/m"\r\n]'),
    ('t = { d = ["/o"] }', 't = { d = ["/o", "/n", "/m"] }'),
    ('d = ["/o" # c, d\n  ]', 'd = ["/o", "/n", "/m" # c, d\n  ]'),
    ('d = [\n  "/o" # o\n  # end, "x" ]\n]', 'd = [\n  "/o", # o\n  "/n",\n  "/m"\n  # end, "x" ]\n]'),
    ('d = [ "/a" # a\n, "/o" # o\n, ]', 'd = [ "/a" # a\n, "/o" # o\n, "/n", "/m" ]'),
    ("d = [\n\t# none\n\t]", 'd = [\n\t# none\n\t\t"/n",\n\t\t"/m"\n\t]'),
    ("d = [\r\n]", 'd = [\r\n  "/n",\r\n  "/m"\r\n]'),
]


@pytest.mark.parametrize("before, after", EXTENDS)
def test_extend(before: str, after: str) -> None:
    edit = TomlEdit(before, "x")
    path = ("t", "d") if before.startswith("t") else ("d",)
    edit.extend(path, ["/n", "/m"])
    assert edit.text == after
    toml.loads(after)
    edit.remove_items(path, lambda item: item in edit.changes[0]["added"] if edit.changes else False)
    assert lookup(edit.data, path) == lookup(toml.loads(before), path)


REMOVES = [
    ('["b", "x", "c"]', '["b", "c"]'),
    ('["x"]', "[]"),
    ('[ "b", "x" ]', '[ "b" ]'),
    ('[\n  # of b\n  "b",\n  "x", # of x\n  "c" # of c\n]', '[\n  # of b\n  "b",\n  "c" # of c\n]'),
    ('[\n  # of x\n  "x"\n]', "[\n  # of x\n]"),
    ('[ # all\n"x"]', "[ # all\n]"),
    ('["b" # of b\n  , "x" # of x\n  , "c"]', '["b" # of b\n  ,  # of x\n   "c"]'),
    ('[1, "x", { a = [2] }, [ "y" ], true]', '[1, { a = [2] }, [ "y" ], true]'),
]


@pytest.mark.parametrize("before, after", REMOVES)
def test_remove_items_keeps_the_text_of_the_others(before: str, after: str) -> None:
    edit = TomlEdit("d = %s # end\n" % before, "x")
    assert edit.remove_items(("d",), lambda item: item == "x") == ["x"]
    assert edit.text == "d = %s # end\n" % after
    assert reverse(edit.text, edit.buffer.splices) == edit.original


REFUSALS = [
    ("version = = 2", 1, 11),
    ("a = 1\n[x\n", 2, 3),
    ('a = 1\n\n[t]\nb = "unclosed\n', 4, 14),
    ("[a]\nx = 1\n[b]\n[a]\n", 4, 1),
    ("a = 1\na = 2\n", 2, 1),
    ("\ufeffa = = 1", 1, 5),
]


@pytest.mark.parametrize("text, line, column", REFUSALS)
def test_faults_are_placed(text: str, line: int, column: int) -> None:
    with pytest.raises(NpuError) as caught:
        load(text, "/etc/x.toml")
    assert caught.value.message.startswith("/etc/x.toml: line %d, column " % line)
    if not text.startswith("a = 1\n\n") and "[x" not in text:
        assert "line %d, column %d:" % (line, column) in caught.value.message
    assert "was not changed" in caught.value.next_step


def test_a_scalar_in_the_way_is_refused() -> None:
    with pytest.raises(NpuError, match=r"^f: plugins is not a table\. Next: Change it by hand"):
        edit = TomlEdit("x = 1\nplugins = 3\n", "f")
        edit.set(TABLE + ("on",), "true")


def test_only_what_is_allowed_may_differ() -> None:
    edit = TomlEdit("a = 1\nb = 2\n", "f")
    edit.set(("a",), "2")
    edit.prove([("a",)])
    with pytest.raises(NpuError, match="would also change a"):
        edit.prove([("b",)])
    edit = TomlEdit("a = 1\nb = 2\n", "f")
    with pytest.raises(NpuError, match="would also change b"):
        edit.compare({"a": 1}, {"a": 1, "b": 2}, [("a",)])


FILES = sorted(path for path in FIXTURES.rglob("*") if path.suffix in (".toml", ".conf"))


def test_every_fixture_goes_through_tomlkit_byte_for_byte() -> None:
    kept = 0
    for path in FILES:
        text = path.read_bytes().decode()
        try:
            edit = TomlEdit(text, str(path))
        except NpuError:
            continue
        edit.set(TABLE + ("on",), "true")
        edit.prove([TABLE + ("on",)])
        assert text in (edit.text, edit.text[: len(text)]), path
        kept += 1
    assert kept > 80


def test_text_that_tomlkit_does_not_give_back_is_refused() -> None:
    text = "a = 1\n[[list]]\nx = 1\n[between]\n[[list]]\nx = 2\n"
    edit = TomlEdit(text, "/etc/x.toml")
    with pytest.raises(NpuError, match=r"^/etc/x\.toml: tomlkit does not give this text back.*Next: Change it by hand"):
        edit.set(("a",), "2")
    assert edit.text == text


def test_an_edit_that_loses_other_text_is_refused() -> None:
    edit = TomlEdit("# keep\na = 1\n", "/etc/x.toml")
    document = edit._parse()
    document.body[0][1].trivia.comment = "# lost"
    with pytest.raises(NpuError, match="tomlkit would also change other text"):
        edit._render(document, "1", "2")


def test_what_the_reader_of_hosts_does_not_take_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(text: str) -> t.NoReturn:
        raise toml.TomlError("no", 1, 1)

    edit = TomlEdit("a = 1\n", "/etc/x.toml")
    monkeypatch.setattr(toml, "loads", fault)
    with pytest.raises(NpuError, match=r"^/etc/x\.toml: not every reader takes this file: no \(line 1"):
        edit.prove([("a",)])


OUT_OF_ORDER = [
    '[plugins."c.d"]\nx = 1\n[z]\n[plugins."a.b"]\ny = 1\n',
    '[plugins."a.b".s]\nx = 1\n[z]\n[plugins]\ny = 1\n',
    '[[list]]\nx = 1\n[[list]]\nx = 2\n[plugins."a.b".s]\n',
    '[plugins."a.b"]\nx.y = 1\nz = 1\nx.w = 2\n\n# end\n',
    '[plugins."a.b".s]\n[[plugins."a.b".t]]\n[plugins."c.d"]\n',
]


@pytest.mark.parametrize("text", OUT_OF_ORDER)
def test_tables_out_of_order(text: str) -> None:
    edit = TomlEdit(text, "f")
    edit.set(TABLE + ("on",), "true")
    edit.prove([TABLE + ("on",)])
    assert reverse(edit.text, edit.buffer.splices) == text
    edit.delete(TABLE + ("on",))
    edit.drop_empty_table(TABLE)
    assert edit.text.rstrip("\n") == text.rstrip("\n")


@pytest.mark.parametrize("seed", range(400))
def test_fuzz_only_our_keys_differ(seed: int) -> None:
    edit_one(random.Random(seed))


def test_fuzz_arrays_keep_items_and_comments() -> None:
    source = random.Random(7)
    for _round in range(300):
        text, values = array(source)
        edit = TomlEdit("k = %s # end\n" % text, "f")
        edit.extend(("k",), ["/new", "/two"])
        edit.prove([("k",)])
        assert lookup(toml.loads(edit.text), ("k",)) == [*values, "/new", "/two"], text
        assert edit.text.count("#") == edit.original.count("#")
        gone = source.sample(values, source.randint(0, len(values)))
        edit.remove_items(("k",), gone.__contains__)
        assert lookup(toml.loads(edit.text), ("k",)) == [*(v for v in values if v not in gone), "/new", "/two"], text
        assert edit.text.count("# own") == edit.original.count("# own")
        assert reverse(edit.text, edit.buffer.splices) == edit.original
