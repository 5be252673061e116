# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judges made from JSON Schemas: they accept no more than the schema does, and limit what it leaves open."""

from __future__ import annotations

import json
import typing as t

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.answer import SCHEMAS, judge_of
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.shape import (
    CUT,
    FREE_VALUES,
    LINE,
    TEXT,
    Schema,
    Wrong,
    compiled,
)


def judge(schema: Schema, value: t.Any) -> t.Any:
    def resolve(name: str) -> t.Any:
        raise KeyError(name)

    return compiled(schema, resolve)(value)


def text(kind: str = "", **more: t.Any) -> Schema:
    return {"type": "string", **({"format": kind} if kind else {}), **more}


ANY: Schema = {}
ITEM: Schema = {"type": "object", "required": ["a"], "additionalProperties": False, "properties": {"a": text()}}
GOOD: list[tuple[Schema, t.Any, t.Any]] = [
    (text(), "a \x1b[1mline\nof it", "a line of it"),
    (text(), "x" * LINE, "x" * LINE),
    (text("text"), "two\n\tlines\x07", "two\n\tlines"),
    (text("text"), "x" * (TEXT + 1), "x" * TEXT + CUT),
    (text("path"), "/a b/ü..x/...", "/a b/ü..x/..."),
    (text("path"), "/", "/"),
    (text("name"), "x86_64", "x86_64"),
    (text("version"), "1:2.4~rc1+git^x-3.el9", "1:2.4~rc1+git^x-3.el9"),
    (text("unit"), r"dev-disk\x2dby.device", r"dev-disk\x2dby.device"),
    (text("sha256"), "0" * 64, "0" * 64),
    (text("base64"), "", ""),
    (text("base64"), "QQ==", "QQ=="),
    ({"type": ["string", "null"], "format": "path"}, None, None),
    ({"enum": [1, "a", None]}, None, None),
    ({"enum": [1, "a", None]}, 1, 1),
    ({"type": "integer", "minimum": 0}, 0, 0),
    ({"type": "integer"}, -(2**62), -(2**62)),
    ({"type": "number"}, 1.5, 1.5),
    ({"oneOf": [ITEM, {"type": "null"}]}, None, None),
    ({"type": "array", "items": ITEM}, [{"a": "x"}], [{"a": "x"}]),
    ({"type": "object", "additionalProperties": text("path")}, {"k": "/"}, {"k": "/"}),
    (ANY, {"a": [1, None, True, "\x1b[1mx"]}, {"a": [1, None, True, "x"]}),
]
BAD: list[tuple[Schema, t.Any, str, str]] = [
    (text(), 1, "", "1 is not text"),
    (text(), b"x", "", "bytes is not text"),
    (text(), "x" * (LINE + 1), "", "4097 characters"),
    (text(minLength=1), "\x07", "", "not a valid text"),
    (text(pattern="^[a-z]+$"), "a\n", "", "not a valid text"),
    *[
        (text("path"), value, "", "not an absolute path")
        for value in ("", "a", "../a", "/..", "/a/../b", "/a/..", "/a\0b", "/a\nb", "/\u202ea", "/\ud800", "~/a")
    ],
    (text("path"), "/" + "x" * 4096, "", "4097 characters"),
    *[
        (text("name"), value, "", "not a valid name")
        for value in ("", ".", "..", "../x", "a/b", "a b", "a\n", "-a", "{{a}}", "a{% x %}", "a'b", "ä", "a\0", "$(a)")
    ],
    *[(text("version"), value, "", "not a valid version") for value in ("", "1 2", "1/2", "{{1}}", "1\n", "-1")],
    *[(text("unit"), value, "", "not a valid unit") for value in ("", "a b", "a/b", "a;b", "a\n")],
    *[(text("sha256"), value, "", "not a valid sha256") for value in ("", "0" * 63, "0" * 63 + "\n", "G" * 64)],
    (text("base64"), "Q Q=", "", "not a valid base64"),
    *[({"type": "integer"}, value, "", "not a whole number") for value in (True, 1.0, "1", None, [], {})],
    *[
        ({"type": kind}, value, "", "out of its range")
        for kind, value in (
            ("integer", 2**63),
            ("integer", -(10**400)),
            ("number", 10**5000),
            ("number", float("nan")),
            ("number", float("inf")),
            ("number", float("-inf")),
        )
    ],
    ({"type": "integer", "minimum": 0}, -1, "", "out of its range"),
    ({"type": "boolean"}, 1, "", "neither true nor false"),
    ({"enum": [1, "a"]}, True, "", "True is not one of 1, a"),
    ({"enum": ["a"]}, ["a"], "", "list is not one of a"),
    ({"type": "array", "items": ITEM}, "x", "", "is not a list"),
    ({"type": "array", "items": ITEM}, {}, "", "is not a list"),
    ({"type": "array", "items": {"type": "boolean"}, "maxItems": 2}, [True] * 3, "", "3 items are too many"),
    ({"type": "array", "items": {"type": "boolean"}}, [True] * 4097, "", "4097 items are too many"),
    ({"type": "array", "items": ITEM}, [{"a": "x"}, {"a": 1}], "[1].a", "1 is not text"),
    (ITEM, {}, "a", "is missing"),
    (ITEM, {"a": "x", "b": 1}, "b", "the key is not known"),
    (ITEM, {"a": "x", "\x1b[31m\nb": 1}, "\\x1b[31m\\nb", "the key is not known"),
    (ITEM, {"a": "x", 1: 1}, "1", "the key is not known"),
    (ITEM, [], "", "list is not a mapping"),
    ({"type": "object", "additionalProperties": ANY}, {"\x07": 1}, "\\x07", "not printable"),
    ({"type": "object", "additionalProperties": ANY}, {str(n): 1 for n in range(4097)}, "", "4097 keys"),
    ({"type": "object", "propertyNames": text("path")}, {"/..": 1}, "/..", "not an absolute path"),
    (ANY, [[[[[[[[[[[[[1]]]]]]]]]]]]], "", "too deep"),
    (ANY, [list(range(1000))] * (FREE_VALUES // 1000 + 1), "", "too large"),
    (ANY, {"a": float("nan")}, "", "out of its range"),
    (ANY, {"a": object()}, "", "not a number"),
    (ANY, {1: 1}, "", "not text"),
]


@pytest.mark.parametrize(("schema", "value", "wanted"), GOOD, ids=range(len(GOOD)))
def test_what_is_right_comes_back_clean(schema: Schema, value: t.Any, wanted: t.Any) -> None:
    assert judge(schema, value) == wanted


@pytest.mark.parametrize(("schema", "value", "where", "what"), BAD, ids=range(len(BAD)))
def test_what_is_wrong_names_place_and_fault(schema: Schema, value: t.Any, where: str, what: str) -> None:
    with pytest.raises(Wrong) as caught:
        judge(schema, value)
    assert caught.value.where() == where and what in caught.value.what
    assert caught.value.what.isprintable() and len(caught.value.what) < 200


@pytest.mark.parametrize("word", [{"multipleOf": 2}, {"not": {}}, {"type": ["string", "integer"]}, {"type": "tuple"}])
def test_a_schema_that_is_not_understood_is_refused(word: Schema) -> None:
    with pytest.raises((ValueError, KeyError)):
        judge({"type": "integer", **word}, 1)


def test_every_schema_of_the_product_is_understood() -> None:
    names = sorted(path.name for path in SCHEMAS.glob("*.json"))
    assert len(names) == 14
    for name in names:
        assert callable(judge_of(name))
        assert json.loads((SCHEMAS / name).read_text(encoding="utf-8"))["$id"] == name


def test_no_tag_of_a_host_survives_and_no_mark_of_ansible_is_lost() -> None:
    class Tagged(str):
        __slots__ = ("tags",)

    class Unsafe(str):
        __UNSAFE__ = True

    assert judge(text(), Tagged("x")).__class__ is str and judge(ANY, [Tagged("x")])[0].__class__ is str
    assert judge(text(), Unsafe("x")).__class__ is Unsafe
