# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parameters of rbln_driver as one value: the table and the record say the same."""

from __future__ import annotations

import typing as t
from dataclasses import fields

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.rebellions.npu.plugins.module_utils._driver.request import ARGUMENTS, Request

SHA = "A" * 64
FILE = {"path": "/var/lib/rbln/incoming/a.run", "sha256": SHA}


def read(**given: t.Any) -> Request:
    done = ArgumentSpecValidator(ARGUMENTS).validate(given)
    assert not done.error_messages, done.error_messages
    return Request.read(done.validated_parameters)


def test_every_argument_is_a_field_with_the_same_default() -> None:
    assert {item.name for item in fields(Request)} == set(ARGUMENTS)
    plain = read(source="runfile")
    for item in fields(Request):
        found = getattr(plain, item.name)
        assert (list(found) if isinstance(found, (list, tuple)) else found) == ARGUMENTS[item.name].get(
            "default", "runfile"
        ), item.name
        own = getattr(Request(), item.name)
        assert (list(own) if isinstance(own, tuple) else own) == (
            list(found) if isinstance(found, (list, tuple)) else found
        ), item.name


def test_values_arrive_and_foreign_ones_stay_out() -> None:
    request = Request.read(
        {"source": "package", "names": ["a"], "files": [FILE], "keep": 3, "fail": False, "options": {}, "version": None}
    )
    assert (request.source, request.names, request.files, request.keep, request.version) == (
        "package",
        ["a"],
        [FILE],
        3,
        "",
    )


@pytest.mark.parametrize(
    "files, digest", [([], ""), ([FILE], "a" * 64), ([FILE, {"path": "/b", "sha256": "b" * 64}], "")]
)
def test_a_refusal_is_noted_with_the_digest_of_the_one_file(files: list[dict[str, str]], digest: str) -> None:
    assert Request(files=files).sha256 == digest


@pytest.mark.parametrize(
    "given, words",
    [
        ({}, "source"),
        ({"source": "container"}, "source"),
        ({"source": "runfile", "state": "latest"}, "state"),
        ({"source": "runfile", "in_use": "kill"}, "in_use"),
        ({"source": "runfile", "files": [{"path": "/a"}]}, "sha256"),
        ({"source": "runfile", "keep": "many"}, "keep"),
    ],
)
def test_what_is_no_request(given: dict[str, t.Any], words: str) -> None:
    assert words in " ".join(
        ArgumentSpecValidator(ARGUMENTS, required_one_of=[["source", "plan"]]).validate(given).error_messages
    )
