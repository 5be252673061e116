# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Raw inputs to typed values, once. Surveys and the command line send text; a version that became a number is refused."""

from __future__ import annotations

import ast
import json
import math
import re
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

Spec = t.Mapping[str, t.Mapping[str, t.Any]]

_TRUE = ("true", "yes", "on", "1", "y", "t")
_FALSE = ("false", "no", "off", "0", "n", "f")
_TEXT_ONLY = re.compile(r"(^|[_.])(version|versions|tag|digest|sha256)(\[[0-9]+\])?$")
# What templates and surveys make of a value that is not there.
_NOTHING = ("", "none", "null", "~")
_MISSING = object()


def _as_bool(name: str, value: t.Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise NpuError("%s is %r, which is neither true nor false." % (name, value), "Set it to true or false.")


def _as_int(name: str, value: t.Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.match(r"^\s*-?[0-9]+\s*$", value):
        return int(value)
    raise NpuError("%s is %r, which is not a whole number." % (name, value), "Set it to a number such as 30.")


def _as_float(name: str, value: t.Any) -> float:
    try:
        if isinstance(value, bool):
            raise ValueError
        number = float(value)
        if not math.isfinite(number):
            raise ValueError
        return number
    except (TypeError, ValueError):
        raise NpuError("%s is %r, which is not a number." % (name, value), "Set it to a number such as 2.5.") from None


def _as_text(name: str, value: t.Any) -> str:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, (bool, int, float)):
        if _TEXT_ONLY.search(name) or isinstance(value, (bool, float)):
            raise NpuError(
                "%s is the number %r, not text: YAML has already changed it (3.20 becomes 3.2)." % (name, value),
                "Quote it: %s: '%s'." % (name, value),
            )
        return str(value)
    raise NpuError(
        "%s must be text, not %s." % (name, type(value).__name__), "Write the text alone, without a key or brackets."
    )


def _literal(text: str) -> t.Any:
    """A list or mapping written as JSON, or as a template prints one. ValueError when it is neither."""
    try:
        return json.loads(text)
    except ValueError as exc:
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            raise exc from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _as_list(name: str, value: t.Any, spec: t.Mapping[str, t.Any]) -> list[t.Any]:
    if isinstance(value, str):
        text = value.strip()
        if text.startswith("["):
            try:
                value = _literal(text)
            except ValueError as exc:
                raise NpuError("%s is not a list: %s." % (name, exc), 'Write ["a", "b"] or a,b.') from exc
        else:
            value = [part.strip() for part in re.split(r"[,\n]", text) if part.strip()]
    if not isinstance(value, (list, tuple)):
        raise NpuError("%s must be a list, not %s." % (name, type(value).__name__), "Write a YAML list.")
    element = {"type": spec.get("elements", "raw"), "options": spec.get("options"), "choices": spec.get("choices")}
    return [_coerce("%s[%d]" % (name, number), item, element) for number, item in enumerate(value)]


def _as_dict(name: str, value: t.Any, spec: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    if isinstance(value, str):
        try:
            value = _literal(value.strip()) if value.strip() else {}
        except ValueError as exc:
            raise NpuError(
                "%s is not a mapping: %s." % (name, exc), "Write a YAML mapping, or JSON where only text can be given."
            ) from exc
    if not isinstance(value, t.Mapping):
        raise NpuError("%s must be a mapping, not %s." % (name, type(value).__name__), "Write a YAML mapping.")
    options = spec.get("options")
    if not options:
        return dict(value)
    unknown = sorted(set(value) - set(options), key=str)
    if unknown:
        raise NpuError("%s has the unknown key %s." % (name, unknown[0]), suggestion(str(unknown[0]), options))
    return {key: _one("%s.%s" % (name, key), value.get(key, _MISSING), options[key]) for key in options}


def nearest(name: str, known: t.Iterable[str]) -> str:
    """The known name that looks most like `name`, whatever its case and separators; empty when none does."""
    import difflib

    plain: dict[str, str] = {}
    for item in sorted(known):
        plain.setdefault(re.sub(r"[^a-z0-9]", "", item.lower()), item)
    near = difflib.get_close_matches(re.sub(r"[^a-z0-9]", "", name.lower()), list(plain), 1)
    return plain[near[0]] if near else ""


def suggestion(name: str, known: t.Iterable[str]) -> str:
    """What to do about an unknown name: the nearest of the known ones, and all of them."""
    names = sorted(known)
    near = nearest(name, names)
    return "%sUse only: %s." % ("Did you mean %s? " % near if near else "", ", ".join(names))


def _coerce(name: str, value: t.Any, spec: t.Mapping[str, t.Any]) -> t.Any:
    kind = spec.get("type", "str")
    if kind == "bool":
        result: t.Any = _as_bool(name, value)
    elif kind == "int":
        result = _as_int(name, value)
    elif kind == "float":
        result = _as_float(name, value)
    elif kind in ("str", "path"):
        if spec.get("no_log") and not isinstance(value, str):
            # 0123 has become another number already, and what it is must not be shown.
            raise NpuError("%s must be text, not %s." % (name, type(value).__name__), "Quote the value.")
        words = isinstance(value, bool) and "yes" in (spec.get("choices") or ())
        # YAML reads yes and no without quotes as booleans.
        result = ("yes" if value else "no") if words else _as_text(name, value)
    elif kind == "list":
        return _as_list(name, value, spec)
    elif kind == "dict":
        result = _as_dict(name, value, spec)
    else:
        result = value
    choices = spec.get("choices")
    if choices and result not in choices:
        raise NpuError(
            "%s is %r." % (name, result),
            "Choose one of: %s." % ", ".join(str(choice) or "nothing ('')" for choice in choices),
        )
    return result


def _one(name: str, value: t.Any, spec: t.Mapping[str, t.Any]) -> t.Any:
    kind = spec.get("type", "str")
    text = value.strip().lower() if isinstance(value, str) else None
    choices = spec.get("choices")
    plain = kind in ("str", "path", "raw") and not choices
    empty = value is _MISSING or value is None or (text in _NOTHING and not plain and text not in (choices or ()))
    if empty:
        value = spec.get("default")
        if value is None:
            if spec.get("required"):
                raise NpuError("%s is required and not set." % name, "Set it in the inventory or with -e.")
            return None
    return _coerce(name, value, spec)


def normalise(raw: t.Mapping[str, t.Any], spec: Spec) -> dict[str, t.Any]:
    """Typed values of every input in `spec` (the options of an argument_specs entry), taken from `raw` or the default.

    Text is turned into bool, int, float, list (comma separated or JSON) and dict (JSON) as the type asks; empty text for
    anything but text means not set. NpuError names the variable and says what to write.
    """
    return {name: _one(name, raw.get(name, _MISSING), spec[name]) for name in sorted(spec)}


def misspelt(names: t.Iterable[str], spec: Spec, prefixes: t.Iterable[str]) -> list[tuple[str, str]]:
    """(name, nearest known name) for set variables that carry a role's prefix and are no input of it."""
    import difflib

    known = sorted(spec)
    found = []
    for name in sorted(names):
        if name not in spec and any(name.startswith(prefix) for prefix in prefixes):
            near = difflib.get_close_matches(name, known, 1)
            if near:
                found.append((name, near[0]))
    return found
