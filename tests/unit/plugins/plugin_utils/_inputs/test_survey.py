# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every input of every role and of the playbooks takes the text of a survey; nothing reads one in another way."""

from __future__ import annotations

import json
import re
import typing as t

import pytest
import yaml
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.normalise import normalise
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.roles import COLLECTION, raw_inputs, role_inputs
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.targets import (
    BUDGET,
    PLAYBOOKS,
    SERIAL,
    typed_input,
)

Option = t.Mapping[str, t.Any]
ROLES = tuple(sorted(path.name for path in (COLLECTION / "roles").iterdir()))
INPUTS: dict[str, Option] = {**role_inputs(ROLES), **PLAYBOOKS}
TEMPLATED = {name for name, option in INPUTS.items() if "{{" in str(option.get("default"))}


def is_text(option: Option) -> bool:
    """Whether empty text is a value of it."""
    choices = option.get("choices") or [""]
    return option.get("type", "str") in ("str", "path", "raw") and "" in choices


def sample(option: Option, name: str = "") -> t.Any:
    """A value of an option, that of a survey as data."""
    kind, choices = option.get("type", "str"), option.get("choices")
    if kind == "list":
        return [sample({**option, "type": option.get("elements", "str"), "elements": None})] if name != SERIAL else [4]
    if kind == "dict":
        options = option.get("options") or {"a": {}}
        return {key: sample(inner) for key, inner in options.items()}
    if choices:
        return choices[-1]
    return {"bool": True, "int": 4, "float": 2.5}.get(kind, "/a")


def as_texts(value: t.Any) -> t.Any:
    """The same with every value in it as text."""
    if isinstance(value, dict):
        return {key: as_texts(item) for key, item in value.items()}
    return [as_texts(item) for item in value] if isinstance(value, list) else str(value)


@pytest.mark.parametrize("name", INPUTS)
def test_every_input_takes_text(name: str) -> None:
    option = INPUTS[name]
    value = sample(option, name)
    wanted = typed_input(name, value)
    assert wanted == value or isinstance(wanted, dict)
    forms = [value if isinstance(value, str) else json.dumps(value), str(value), yaml.safe_dump(value), as_texts(value)]
    forms += [text + "\n" for text in forms if isinstance(text, str)]
    if isinstance(value, str):
        forms = [value] if option.get("type") == "raw" else [value, " %s\n" % value]
    for form in forms:
        if option.get("type") in ("bool", "int", "float") and "..." in str(form):
            # YAML ends a document that is one plain value so.
            continue
        assert typed_input(name, form) == wanted, form
    if option.get("type") == "list" and option.get("elements") == "str":
        assert typed_input(name, "%s, %s" % (value[0], value[0])) == value * 2
    if option.get("type") == "bool":
        assert [typed_input(name, text) for text in ("yes", "no", "True", "false", "1", "0")] == [True, False] * 3


@pytest.mark.parametrize("name", sorted(name for name, option in INPUTS.items() if not is_text(option)))
def test_nothing_is_the_default_where_it_is_no_text(name: str) -> None:
    class Templar:
        def template(self, value: t.Any) -> t.Any:
            return "of a template" if "{{" in str(value) else value

    option = INPUTS[name]
    default = sample(option, name) if name in TEMPLATED else None
    for nothing in ("", " ", "\n", "null", "~", None):
        assert typed_input(name, nothing, default) == typed_input(name, None, default)
        assert "{{" not in str(typed_input(name, nothing, default))
        raw = raw_inputs(Templar(), {name: nothing}, {name: option})
        assert raw[name] == ("of a template" if name in TEMPLATED else option.get("default"))
        for key, inner in (option.get("options") or {}).items():
            if not is_text(inner) and not inner.get("required"):
                assert normalise({key: nothing}, {key: inner}) == normalise({}, {key: inner}), key


# How files of roles and playbooks may read an input that is not plain text.
READ = r"(?<![\w.'])(rbln_\w+)\b(?!['(:])"
TYPED = re.compile(r"\s*(\|\s*default\((''|omit|false)(,\s*true)?\)\s*)?\|\s*rebellions\.npu\.typed_input\('(\w+)'")
BESIDE = re.compile(r"\s*is (not )?(defined|mapping)|\s*\|\s*(default\('', true\) == |default\(false\) \| bool)")
# What the playbooks read with its fallback, of another host, as a word alone, or to say it.
OTHERWISE = {("playbooks/site.yml", SERIAL), ("playbooks/remove.yml", SERIAL), ("playbooks/site.yml", BUDGET),
             ("playbooks/plan.yml", "rbln_plan_format"), ("playbooks/doctor.yml", "rbln_doctor_format")}  # fmt: skip


def test_no_role_or_playbook_reads_an_input_without_its_type() -> None:
    strict = {name for name, option in INPUTS.items() if not is_text(option)}
    assert len(strict) > 80
    seen, wrong = 0, []
    for pattern in ("roles/*/tasks/*.yml", "roles/*/vars/**/*.yml", "roles/*/templates/*.j2", "playbooks/*.yml"):
        for path in COLLECTION.glob(pattern):
            text = "\n".join("" if line.lstrip().startswith("#") else line for line in path.read_text().split("\n"))
            for place in re.finditer(r"\{[{%].*?[}%]\}|^\s*(?:- )?(?:when|that|until): [^\n]*$", text, re.S | re.M):
                for found in re.finditer(READ, place[0]):
                    rest = place[0][found.end() :]
                    if found[1] not in strict or BESIDE.match(rest):
                        continue
                    seen += 1
                    typed, where = TYPED.match(rest), (str(path.relative_to(COLLECTION)), found[1])
                    if (not typed or typed[4] != found[1]) and where not in OTHERWISE:
                        wrong.append((*where, rest[:60]))
    assert seen >= 20 and wrong == []
