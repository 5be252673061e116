# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judges data by a JSON Schema of docs/schemas, made ready once: a few function calls for each value.

It knows the keywords that these schemas use, and limits what they leave open. Text is cleaned; `format` says more:
`text` is lines of people and is cut when it is too long; `path` is absolute and without `..`; `name` (an identifier),
`version`, `unit` (of systemd), `sha256` and `base64` have their characters; without a format it is one line.
"""

from __future__ import annotations

import re
import typing as t

from .text import clean

Schema = t.Mapping[str, t.Any]
Judge = t.Callable[[t.Any], t.Any]
Resolve = t.Callable[[str], Judge]

LINE, TEXT, PATH = 4096, 64 * 1024, 4096
ITEMS = 4096
INTEGER = 2**63
# Of data that has no schema, as the evidence of a check.
FREE_DEPTH, FREE_VALUES = 12, 20000
CUT = " [cut]"
SHAPES = {
    "name": (re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~:@-]*"), 253),
    "version": (re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~:^-]*"), 128),
    "unit": (re.compile(r"[A-Za-z0-9:_.@\\-]+"), 255),
    "sha256": (re.compile(r"[0-9a-f]{64}"), 64),
    "base64": (re.compile(r"[A-Za-z0-9+/]*={0,2}"), 32 * 1024 * 1024),
}
_NOTES = {"$schema", "$id", "$defs", "title", "description"}


class Wrong(Exception):
    """A value that breaks its schema: what is wrong, and where, from the inside to the outside."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.at: list[str] = []

    def below(self, key: str | int) -> Wrong:
        self.at.append("[%d]" % key if isinstance(key, int) else "." + key)
        return self

    def where(self) -> str:
        return "".join(reversed(self.at)).lstrip(".")


def shown(value: t.Any) -> str:
    """A value for a message: short and printable."""
    if isinstance(value, str):
        text = clean(repr(value[:60]))
    elif value is None or isinstance(value, (bool, float)) or (isinstance(value, int) and abs(value) < INTEGER):
        text = repr(value)
    else:
        text = type(value).__name__
    return text if len(text) <= 60 else text[:57] + "..."


def _string(schema: Schema) -> Judge:
    kind = schema.get("format", "")
    shape, limit = SHAPES.get(kind, (None, {"text": TEXT, "path": PATH}.get(kind, LINE)))
    limit = schema.get("maxLength", limit)
    least = schema.get("minLength", 0)
    pattern = re.compile(schema["pattern"]) if "pattern" in schema else None

    def judge(given: t.Any) -> str:
        if not isinstance(given, str):
            raise Wrong("%s is not text" % shown(given))
        # Newer ansible-core may have put tags on it, which a host can choose; older marks it as unsafe.
        value: str = given if given.__class__ is str or hasattr(given, "__UNSAFE__") else str.__str__(given)
        if shape is None and kind != "path" and not value.isprintable():
            value = clean(value, kind == "text")
        if len(value) > limit:
            if kind != "text":
                raise Wrong("%d characters are too many, at most %d are valid" % (len(value), limit))
            value = value[:limit] + CUT
        if (
            len(value) < least
            or (shape is not None and not shape.fullmatch(value))
            or (pattern is not None and not pattern.search(value))
        ):
            raise Wrong("%s is not a valid %s" % (shown(value), kind or "text here"))
        if kind == "path" and not (value.startswith("/") and value.isprintable() and ".." not in value.split("/")):
            raise Wrong("%s is not an absolute path without .." % shown(value))
        return value

    return judge


def _number(schema: Schema, whole: bool) -> Judge:
    least = schema.get("minimum", -INTEGER)
    kinds = (int,) if whole else (int, float)

    def judge(value: t.Any) -> t.Any:
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise Wrong("%s is not a%s number" % (shown(value), " whole" if whole else ""))
        # Not a number compares as false; a whole number may be too large for a float.
        if not least <= value < INTEGER:
            raise Wrong("the number is out of its range")
        return value

    return judge


def _boolean(value: t.Any) -> bool:
    if not isinstance(value, bool):
        raise Wrong("%s is neither true nor false" % shown(value))
    return value


def _choice(allowed: t.Sequence[t.Any]) -> Judge:
    def judge(value: t.Any) -> t.Any:
        for one in allowed:
            if one == value and isinstance(one, bool) == isinstance(value, bool):
                return one
        raise Wrong("%s is not one of %s" % (shown(value), ", ".join(map(str, allowed))))

    return judge


def _array(schema: Schema, resolve: Resolve) -> Judge:
    item, limit = compiled(schema.get("items", {}), resolve), schema.get("maxItems", ITEMS)

    def judge(value: t.Any) -> list[t.Any]:
        if not isinstance(value, list):
            raise Wrong("%s is not a list" % shown(value))
        if len(value) > limit:
            raise Wrong("%d items are too many, at most %d are valid" % (len(value), limit))
        found: list[t.Any] = []
        try:
            for one in value:
                found.append(item(one))
        except Wrong as exc:
            exc.below(len(found))
            raise
        return found

    return judge


def _object(schema: Schema, resolve: Resolve) -> Judge:
    parts = {key: compiled(part, resolve) for key, part in schema.get("properties", {}).items()}
    required = tuple(schema.get("required", ()))
    extra = schema.get("additionalProperties", True)
    others = None if extra is False else compiled({} if extra is True else extra, resolve)
    name = _string(schema.get("propertyNames", {"maxLength": 255}))

    def judge(value: t.Any) -> dict[str, t.Any]:
        if not isinstance(value, dict):
            raise Wrong("%s is not a mapping" % shown(value))
        if len(value) > ITEMS:
            raise Wrong("%d keys are too many, at most %d are valid" % (len(value), ITEMS))
        found: dict[str, t.Any] = {}
        key: t.Any = ""
        try:
            for key, one in value.items():
                part = parts.get(key)
                if part is not None:
                    found[key] = part(one)
                elif others is not None and isinstance(key, str):
                    if name(key) != key:
                        raise Wrong("the key has characters that are not printable")
                    found[key] = others(one)
                else:
                    raise Wrong("the key is not known")
        except Wrong as exc:
            exc.below(shown(key)[1:-1] if isinstance(key, str) else shown(key))
            raise
        for key in required:
            if key not in found:
                raise Wrong("is missing").below(key)
        return found

    return judge


_FREE_TEXT, _FREE_NUMBER, _FREE_KEY = _string({"format": "text"}), _number({}, False), _string({"maxLength": 255})


def free(value: t.Any) -> t.Any:
    """Data without a schema, as it may come from JSON: clean, of limited depth and number."""
    left = FREE_VALUES

    def judge(one: t.Any, depth: int) -> t.Any:
        nonlocal left
        left -= 1
        if depth > FREE_DEPTH or left < 0:
            raise Wrong("it is too %s" % ("deep" if depth > FREE_DEPTH else "large"))
        if one is None or isinstance(one, bool):
            return one
        if isinstance(one, str):
            return _FREE_TEXT(one)
        if isinstance(one, dict):
            return {_FREE_KEY(key): judge(inner, depth + 1) for key, inner in one.items()}
        if isinstance(one, list):
            return [judge(inner, depth + 1) for inner in one]
        return _FREE_NUMBER(one)

    return judge(value, 0)


def _or_null(judge: Judge) -> Judge:
    return lambda value: None if value is None else judge(value)


_SCALARS: dict[str, t.Callable[[Schema], Judge]] = {
    "string": _string,
    "boolean": lambda schema: _boolean,
    "integer": lambda schema: _number(schema, True),
    "number": lambda schema: _number(schema, False),
}
_NESTED: dict[str, t.Callable[[Schema, Resolve], Judge]] = {"array": _array, "object": _object}
_KEYWORDS = {
    "string": {"format", "pattern", "minLength", "maxLength"},
    "integer": {"minimum"},
    "number": {"minimum"},
    "array": {"items", "maxItems", "uniqueItems"},
    "object": {"properties", "required", "additionalProperties", "propertyNames"},
}


def compiled(schema: Schema, resolve: Resolve) -> Judge:
    """A function that returns a value as it may be used, or raises Wrong. ValueError for a keyword that is not known.

    `resolve` gives the function of what a `$ref` names.
    """
    if "$ref" in schema:
        return resolve(schema["$ref"])
    for word in ("oneOf", "anyOf"):
        if word in schema:
            (other,) = [part for part in schema[word] if part != {"type": "null"}]
            return _or_null(compiled(other, resolve))
    if "enum" in schema or "const" in schema:
        return _choice(schema.get("enum", [schema.get("const")]))
    named = schema.get("type", [])
    types = [named] if isinstance(named, str) else list(named)
    kinds = [kind for kind in types if kind != "null"]
    unknown = set(schema) - _NOTES - {"type"} - (_KEYWORDS.get(kinds[0], set()) if kinds else set())
    if unknown or len(kinds) > 1:
        raise ValueError("not understood in a schema: %s" % ", ".join(sorted(unknown) or kinds))
    if not kinds:
        return free
    judge = _SCALARS[kinds[0]](schema) if kinds[0] in _SCALARS else _NESTED[kinds[0]](schema, resolve)
    return _or_null(judge) if "null" in types else judge
