# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Surveys and -e send text. Case A04-string-bools and its neighbours."""

from __future__ import annotations

import typing as t

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs import normalise as room
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.normalise import (
    nearest,
    normalise,
    suggestion,
)

SPEC: dict[str, t.Any] = {
    "x_reboot": {"type": "bool", "default": True},
    "x_max_parallel": {"type": "int", "default": 1},
    "x_runtimes": {"type": "list", "elements": "str", "choices": ["containerd", "docker", "cri-o"], "default": []},
    "x_force": {"type": "bool", "default": False},
    "x_version": {"type": "str", "default": ""},
    "x_timeout": {"type": "float", "default": 10.0},
    "x_mode": {"type": "str", "choices": ["never", "if_required"], "default": "never"},
    "x_repo": {"type": "dict", "options": {"url": {"type": "str", "required": True}, "tag": {"type": "str"}}},
    "x_files": {
        "type": "list",
        "elements": "dict",
        "options": {"path": {"type": "path", "required": True}},
        "default": [],
    },
}


def test_a04_string_bools() -> None:
    raw = {"x_reboot": "false", "x_max_parallel": "2", "x_runtimes": "containerd,docker", "x_force": ""}
    found = normalise(raw, SPEC)
    assert found["x_reboot"] is False
    assert found["x_max_parallel"] == 2
    assert found["x_runtimes"] == ["containerd", "docker"]
    assert found["x_force"] is False


@pytest.mark.parametrize("value", [3.2, 3.10, 3])
def test_a04_a_version_that_is_a_number_is_refused_and_none_is_proposed(value: t.Any) -> None:
    with pytest.raises(NpuError, match="x_version is the number %r, not text: .* Quote it" % value) as caught:
        normalise({"x_version": value}, SPEC)
    assert str(value) not in caught.value.next_step


def test_a04_a_word_that_yaml_reads_as_a_boolean_is_no_text() -> None:
    with pytest.raises(NpuError, match="^x_version is true, not text: YAML reads yes, no, on and off so. Next: Quote"):
        normalise({"x_version": True}, SPEC)


@pytest.mark.parametrize("value", ["3.2.2\u200b", "3.\u00ad2.2", "\u202a3.2.2"])
def test_what_nobody_sees_in_a_pasted_value_is_named(value: str) -> None:
    with pytest.raises(NpuError, match=r"^x_version holds an invisible character, U\+[0-9A-F]{4}, after [0-9] others"):
        normalise({"x_version": value}, SPEC)


def test_blanks_and_a_byte_order_mark_around_a_value_are_no_part_of_it() -> None:
    assert normalise({"x_version": "\ufeff 3.2.2\u00a0\n"}, SPEC)["x_version"] == "3.2.2"
    assert normalise({"x_version": "a: \u200b\nb: 1"}, SPEC)["x_version"] == "a: \u200b\nb: 1"


def test_a04_a_list_of_versions_takes_no_numbers() -> None:
    spec = {"x_versions": {"type": "list", "elements": "str"}}
    assert normalise({"x_versions": "3.10,3.20"}, spec) == {"x_versions": ["3.10", "3.20"]}
    with pytest.raises(NpuError, match=r"x_versions\[0\] is the number 3"):
        normalise({"x_versions": [3]}, spec)


@pytest.mark.parametrize(
    "name, value, expected",
    [
        ("x_reboot", "Yes", True),
        ("x_reboot", 0, False),
        ("x_runtimes", '["docker"]', ["docker"]),
        ("x_runtimes", "", []),
        ("x_runtimes", "containerd\ndocker\n", ["containerd", "docker"]),
        ("x_timeout", "2.5", 2.5),
        ("x_timeout", 3, 3.0),
        ("x_version", " 3.20 ", "3.20"),
        ("x_repo", '{"url": "https://a"}', {"url": "https://a", "tag": None}),
        ("x_files", [{"path": "/a"}], [{"path": "/a"}]),
        ("x_runtimes", "['containerd', 'docker']", ["containerd", "docker"]),
        ("x_runtimes", " [] ", []),
        ("x_runtimes", "[containerd, docker]", ["containerd", "docker"]),
        ("x_runtimes", "- containerd\n- docker\n", ["containerd", "docker"]),
        ("x_repo", "url: https://a\ntag: '3.10'\n", {"url": "https://a", "tag": "3.10"}),
        ("x_repo", "{url: https://a}", {"url": "https://a", "tag": None}),
        ("x_files", "[{path: /a}, {path: /b}]", [{"path": "/a"}, {"path": "/b"}]),
        ("x_files", "- path: /a\n", [{"path": "/a"}]),
        ("x_runtimes", "None", []),
        ("x_reboot", " null ", True),
        ("x_reboot", " true ", True),
        ("x_max_parallel", "None", 1),
        ("x_mode", "", "never"),
        ("x_mode", " never ", "never"),
        ("x_repo", "{'url': 'https://a'}", {"url": "https://a", "tag": None}),
        ("x_repo", "null", None),
        ("x_version", "3.2.2 \n", "3.2.2"),
    ],
)
def test_a04_values_get_their_type(name: str, value: t.Any, expected: t.Any) -> None:
    assert normalise({name: value}, SPEC)[name] == expected


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("x_reboot", "perhaps", "x_reboot is 'perhaps'"),
        ("x_max_parallel", "2.5", "x_max_parallel is '2.5'"),
        ("x_max_parallel", True, "not a whole number"),
        ("x_timeout", "soon", "x_timeout is 'soon'"),
        ("x_timeout", "nan", "x_timeout is 'nan'"),
        ("x_timeout", "inf", "x_timeout is 'inf'"),
        ("x_reboot", "[]", "neither true nor false"),
        ("x_runtimes", "{}", r"x_runtimes\[0\] is '{}'"),
        ("x_runtimes", "[" * 100000, "not a list"),
        ("x_repo", "[]", "x_repo must be a mapping, not list"),
        ("x_mode", "always", "Choose one of: never, if_required"),
        ("x_runtimes", ["lxc"], r"x_runtimes\[0\] is 'lxc'"),
        ("x_runtimes", "[docker", "not a list"),
        ("x_runtimes", {"a": 1}, "must be a list"),
        ("x_repo", {"uri": "a"}, "x_repo has the unknown key uri"),
        ("x_repo", {"tag": "1"}, "x_repo.url is required"),
        ("x_repo", {"url": "a", "tag": 1.10}, "x_repo.tag is the number"),
        ("x_repo", "{", "not a mapping"),
        ("x_repo", "url=a", "x_repo must be a mapping, not str"),
        ("x_repo", "url: https://a\ntag: 3.10", "x_repo.tag is the number"),
        ("x_runtimes", "[docker, cri-o", "not a list"),
        ("x_files", "/a,/b", "x_files must be a list, not str"),
        ("x_files", [{}], r"x_files\[0\].path is required"),
    ],
)
def test_a04_bad_input_names_the_variable(name: str, value: t.Any, message: str) -> None:
    with pytest.raises(NpuError, match=message):
        normalise({name: value}, SPEC)


# What some releases of ansible-core take for a whole number, and others do not.
@pytest.mark.parametrize(
    "value", [2.0, "2.0", "1e3", "1_000", "+1", "inf", "\u0661", "9" * 5000, [1], [None], {"a": 1}]
)
@pytest.mark.parametrize("choices", [None, [1, 2]])
def test_a04_only_digits_are_a_whole_number(value: t.Any, choices: t.Any) -> None:
    with pytest.raises(NpuError, match="which is not a whole number. Next: Set it to a number such as 30"):
        normalise({"x": value}, {"x": {"type": "int", "choices": choices}})


@pytest.mark.parametrize("kind", ["int", "float", "bool"])
def test_a04_null_is_no_item_of_a_list(kind: str) -> None:
    with pytest.raises(NpuError, match=r"x\[1\] is None, which is "):
        normalise({"x": [1, None]}, {"x": {"type": "list", "elements": kind}})


@pytest.mark.parametrize("value", [342391, 12345.5, True])
def test_s02_secrets_in_output_a_password_that_yaml_has_changed_is_refused_and_not_shown(value: t.Any) -> None:
    with pytest.raises(NpuError) as caught:
        normalise({"x_password": value}, {"x_password": {"type": "str", "no_log": True}})
    assert "x_password must be text" in str(caught.value) and str(value) not in str(caught.value)


def test_defaults_fill_what_is_not_set() -> None:
    found = normalise({}, SPEC)
    assert sorted(found) == sorted(SPEC)
    assert (found["x_reboot"], found["x_mode"], found["x_repo"]) == (True, "never", None)


@pytest.mark.parametrize(
    "name, expected", [("nodeSelector", "node_selector"), ("node_selektor", "node_selector"), ("zzz", "")]
)
def test_the_nearest_name_is_found_in_any_spelling(name: str, expected: str) -> None:
    assert nearest(name, ["args", "node_selector"]) == expected


def test_an_unknown_key_is_answered_with_the_nearest_and_all() -> None:
    assert suggestion("tga", ["tag", "url"]) == "Did you mean tag? Use only: tag, url."
    assert suggestion("zzz", ["tag", "url"]) == "Use only: tag, url."


@pytest.mark.parametrize(
    ("value", "spec", "told"),
    [
        (
            [{"name": "pull"}],
            {"type": "list", "elements": "str"},
            r"x\[0\] must be text, not dict. Next: Write the text alone, without a key or brackets.",
        ),
        ("b", {"type": "str", "choices": ["", "a"]}, r"x is 'b'. Next: Choose one of: nothing \(''\), a."),
    ],
)
def test_what_to_write_is_said(value: t.Any, spec: dict[str, t.Any], told: str) -> None:
    with pytest.raises(NpuError, match=told):
        normalise({"x": value}, {"x": spec})


@pytest.mark.parametrize(("value", "word"), [(True, "yes"), (False, "no"), ("auto", "auto")])
def test_yes_and_no_without_quotes_are_words_where_they_are_choices(value: t.Any, word: str) -> None:
    assert normalise({"x": value}, {"x": {"type": "str", "choices": ["auto", "yes", "no"]}}) == {"x": word}


def test_types_have_their_plain_names() -> None:
    """From 2.19 on values are of classes of Ansible such as _AnsibleTaggedDict."""
    number = type("_AnsibleTaggedInt", (int,), {})(1)
    mapping = type("_AnsibleTaggedDict", (dict,), {})(a=1)
    with pytest.raises(NpuError, match="^x must be a list, not dict. "):
        normalise({"x": mapping}, {"x": {"type": "list"}})
    with pytest.raises(NpuError, match="^x must be text, not int. "):
        normalise({"x": number}, {"x": {"no_log": True}})


def test_values_of_their_type_go_past_the_validator_and_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[t.Any] = []

    class Noted(ArgumentSpecValidator):  # type: ignore[misc]
        def validate(self, parameters: t.Any, *more: t.Any, **given: t.Any) -> t.Any:
            seen.extend(parameters.values())
            return super().validate(parameters, *more, **given)

    monkeypatch.setattr(room, "ArgumentSpecValidator", Noted)
    spec: dict[str, t.Any] = {
        "text": {"type": "str", "choices": ["a", "b"]},
        "on": {"type": "bool"},
        "count": {"type": "int"},
        "part": {"type": "float"},
        "any": {"type": "raw"},
    }
    right = {"text": "a", "on": False, "count": 0, "part": 0.5, "any": {"x": [1]}}
    assert normalise(right, spec) == right and seen == [{"x": [1]}]
    assert normalise({"on": "no", "count": "7", "part": 1}, spec) == {
        "text": None, "on": False, "count": 7, "part": 1.0, "any": None
    }  # fmt: skip
    assert seen[1:] == ["7", "no", 1]
    with pytest.raises(NpuError, match="text is 'c'"):
        normalise({"text": "c"}, spec)
