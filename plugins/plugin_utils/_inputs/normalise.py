# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Raw inputs to typed values, once.

Surveys and the command line send text; a version that became a number is refused.
"""

from __future__ import annotations

import ast
import difflib
import json
import math
import re
import typing as t
import unicodedata

import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.errors import ArgumentValueError
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError

Spec = t.Mapping[str, t.Mapping[str, t.Any]]

_TEXT_ONLY = re.compile(r"(^|[_.])(version|versions|tag|digest|sha256)(\[[0-9]+\])?$")
_WHOLE = re.compile(r"\A\s*-?[0-9]{1,100}\s*\Z")
_EXPECTED = {
    "bool": ("neither true nor false", "Set it to true or false."),
    "int": ("not a whole number", "Set it to a number such as 30."),
    "float": ("not a number", "Set it to a number such as 2.5."),
}
# Values that Ansible's validator, which is slow, gives back as they are.
_EXACT = {"str": str, "bool": bool, "int": int, "float": float}
# What templates and surveys make of a value that is not there.
_NOTHING = ("", "none", "null", "~")


def _kind(value: t.Any) -> str:
    """The type of a value without Ansible's own class for it."""
    if isinstance(value, t.Mapping):
        return "dict"
    exact: tuple[type, ...] = (bool, int, float, str, list)
    return next((kind.__name__ for kind in exact if isinstance(value, kind)), type(value).__name__)


def _checked_text(name: str, value: t.Any, option: t.Mapping[str, t.Any]) -> t.Any:
    """Text without blanks around it.

    Refused is what YAML has changed already, and a secret that is no text is not shown.
    """
    if isinstance(value, str):
        text = value.strip().lstrip("\ufeff").lstrip()
        # A text of several lines is a file, whose own reader knows what may be in it.
        hidden = next((char for char in text if unicodedata.category(char) == "Cf"), "") if "\n" not in text else ""
        if hidden and not option.get("no_log"):
            raise NpuError(
                "%s holds an invisible character, U+%04X, after %d others." % (name, ord(hidden), text.index(hidden)),
                "Type the value instead of pasting it.",
            )
        return text
    if option.get("no_log"):
        raise NpuError("%s must be text, not %s." % (name, _kind(value)), "Quote the value.")
    if isinstance(value, bool) and "yes" in (option.get("choices") or ()):
        return value
    if isinstance(value, bool):
        what = "%s is %s, not text: YAML reads yes, no, on and off so." % (name, str(value).lower())
        raise NpuError(what, "Quote it.")
    if isinstance(value, float) or (isinstance(value, int) and _TEXT_ONLY.search(name)):
        raise NpuError(
            "%s is the number %r, not text: YAML has already changed it (3.20 becomes 3.2)." % (name, value),
            # What was written is lost, so no value is proposed: 3.10 and 3.1 are one number.
            "Quote it, with every digit of the original.",
        )
    if isinstance(value, int):
        return value
    raise NpuError(
        "%s must be text, not %s." % (name, _kind(value)), "Write the text alone, without a key or brackets."
    )


def _is_odd(kind: str, value: t.Any) -> bool:
    """True for what Ansible, or some release of it, accepts by mistake: null in a list, true, nan, 2.0, 1e3, 1_000."""
    if kind == "int":
        return isinstance(value, bool) or not _WHOLE.match(str(value))
    try:
        return value is None or (kind == "float" and (isinstance(value, bool) or not math.isfinite(float(value))))
    except (TypeError, ValueError, OverflowError):
        return False


def _literal(text: str) -> t.Any:
    """A list or mapping written as JSON, as a template prints one, or as YAML. ValueError when it is none of them."""
    try:
        return json.loads(text)
    except ValueError as exc:
        try:
            found = ast.literal_eval(text)
            # A list of YAML with one number, "- 4", is a number of Python.
            if not isinstance(found, (int, float)):
                return found
            raise ValueError("a number")
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            try:
                return yaml.safe_load(text)
            except (yaml.YAMLError, ValueError, RecursionError):
                raise exc from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _list(name: str, value: t.Any, option: t.Mapping[str, t.Any]) -> list[t.Any]:
    if isinstance(value, str):
        text = value.strip()
        if text.startswith(("[", "- ")) or option.get("elements") == "dict":
            try:
                value = _literal(text)
            except ValueError as exc:
                raise NpuError("%s is not a list: %s." % (name, exc), 'Write ["a", "b"] or a,b.') from exc
        else:
            value = [part.strip() for part in re.split(r"[,\n]", text) if part.strip()]
    if not isinstance(value, (list, tuple)):
        raise NpuError("%s must be a list, not %s." % (name, _kind(value)), "Write a YAML list.")
    element = {**option, "type": option.get("elements", "raw"), "elements": "raw"}
    return [_typed("%s[%d]" % (name, number), item, element) for number, item in enumerate(value)]


def _dict(name: str, value: t.Any, option: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    if isinstance(value, str):
        try:
            value = _literal(value.strip()) if value.strip() else {}
        except ValueError as exc:
            raise NpuError(
                "%s is not a mapping: %s." % (name, exc), "Write a YAML mapping, or JSON where only text can be given."
            ) from exc
    if not isinstance(value, t.Mapping):
        raise NpuError("%s must be a mapping, not %s." % (name, _kind(value)), "Write a YAML mapping.")
    options = option.get("options")
    if not options:
        return dict(value)
    unknown = sorted(set(value) - set(options), key=str)
    if unknown:
        raise NpuError("%s has the unknown key %s." % (name, unknown[0]), suggestion(str(unknown[0]), options))
    return normalise(value, options, name + ".")


def nearest(name: str, known: t.Iterable[str]) -> str:
    """The known name that looks most like `name`, whatever its case and separators; empty when none does."""
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


def _typed(name: str, value: t.Any, option: t.Mapping[str, t.Any]) -> t.Any:
    """One value with its type, as Ansible's validator sees it.

    Paths belong to the host, so they stay as they are written.
    """
    kind = option.get("type", "str")
    if kind == "list":
        return _list(name, value, option)
    if kind == "dict":
        return _dict(name, value, option)
    if kind in ("str", "path"):
        kind, value = "str", _checked_text(name, value, option)
    choices = option.get("choices")
    if kind in _EXPECTED and _is_odd(kind, value):
        raise _wrong(name, value, kind)
    if kind in _EXACT and isinstance(value, _EXACT[kind]) and (choices is None or value in choices):
        return value
    result = ArgumentSpecValidator({name: {"type": kind, "choices": choices}}).validate({name: value})
    errors = list(result.errors)
    if errors and isinstance(errors[0], ArgumentValueError):
        told = ", ".join(str(choice) or "nothing ('')" for choice in choices or ())
        raise NpuError("%s is %r." % (name, value), "Choose one of: %s." % told)
    if errors:
        raise _wrong(name, value, kind)
    return result.validated_parameters[name]


def _wrong(name: str, value: t.Any, kind: str) -> NpuError:
    what, next_step = _EXPECTED.get(kind, ("not of type %s" % kind, "Correct it."))
    return NpuError("%s is %r, which is %s." % (name, value, what), next_step)


def is_nothing(value: t.Any, option: t.Mapping[str, t.Any]) -> bool:
    """True for None, and for words such as `null` where they can be no text that is wanted."""
    text = value.strip().lower() if isinstance(value, str) else None
    choices = option.get("choices") or ()
    plain = option.get("type", "str") in ("str", "path", "raw") and not choices
    return value is None or (text in _NOTHING and not plain and text not in choices)


def normalise(raw: t.Mapping[str, t.Any], spec: Spec, above: str = "") -> dict[str, t.Any]:
    """Typed values of every input in `spec` (the options of an argument_specs entry), taken from `raw` or the default.

    Ansible's validator does the typing. Text becomes a list (comma separated, JSON or YAML) or a dict (JSON or YAML)
    where the type asks for one; empty text for anything but text means not set. NpuError names the variable and says
    what to write.
    """
    found: dict[str, t.Any] = {}
    for name, option in sorted(spec.items()):
        value = raw.get(name)
        value = option.get("default") if is_nothing(value, option) else value
        if value is None and option.get("required"):
            raise NpuError("%s%s is required and not set." % (above, name), "Set it in the inventory or with -e.")
        found[name] = None if value is None else _typed(above + name, value, option)
    return found
