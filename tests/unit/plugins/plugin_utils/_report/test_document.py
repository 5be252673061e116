# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The document of a report: its schema, its types, its counts."""

from __future__ import annotations

import typing
from types import NoneType
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._report.document import Document, judged
from ansible_collections.rebellions.npu.tests.unit.fixtures.reports import example
from ansible_collections.rebellions.npu.tests.unit.fixtures.schemas import validator


def types_of(schema: dict[str, Any], kind: Any, at: str = "") -> list[str]:
    """Where a type and its part of the schema have other keys."""
    args = [one for one in typing.get_args(kind) if one is not NoneType]
    if typing.get_origin(kind) is list:
        return types_of(schema["items"], args[0], at + "[]")
    if not typing.is_typeddict(kind) and args and typing.get_origin(kind) is not dict:
        return types_of(schema, args[0], at)
    if not typing.is_typeddict(kind):
        return []
    hints = typing.get_type_hints(kind)
    wrong = [] if set(hints) == set(schema["properties"]) == set(schema["required"]) else [at or "document"]
    return wrong + [one for key in hints for one in types_of(schema["properties"][key], hints[key], f"{at}.{key}")]


def test_the_types_have_the_keys_of_the_schema() -> None:
    schema = validator("report.schema.json").schema
    assert types_of(schema, Document) == []
    schema["properties"]["hosts"]["items"]["properties"]["failure"]["required"].remove("cause")
    assert types_of(schema, Document) == [".hosts[].failure"]


@pytest.mark.parametrize("hosts", [0, 3, 64])
def test_an_example_is_valid_for_everybody(hosts: int) -> None:
    found = example(hosts)
    validator("report.schema.json").validate(found)
    assert judged(found) == found


def test_the_counts_are_those_of_the_hosts() -> None:
    found = example(12)
    assert found["summary"]["states"] == {
        "ok": 6, "changed": 2, "not seen": 0, "unknown": 1, "not reached": 1, "unreachable": 1, "failed": 1
    }  # fmt: skip
    assert found["summary"]["checks"] == {"ok": 11 * 64 - 6, "failed": 2, "unknown": 2, "warning": 2, "note": 0}
    assert sum(pool["hosts"] for pool in found["pools"]) == 12
    # The one that was not seen is in no pool, and its NPUs are not zero.
    assert found["pools"][-1]["name"] == "" and found["pools"][-1]["npus"] is None
    assert [pool["drift"] for pool in found["pools"]] == [0, 1, 0, 0]
    assert found["pools"][0]["drivers"] == {"3.0.2, not loaded": 1, "3.1.0": 3}


@pytest.mark.parametrize("broken", [None, [], {}, {"schema": 2}, {**example(1), "more": 1}])
def test_what_is_no_report_is_refused(broken: Any) -> None:
    with pytest.raises(NpuError, match="This is no report: "):
        judged(broken)


def test_text_of_hosts_is_clean() -> None:
    found = example(3)
    found["hosts"][2]["reason"] = "bad \x1b[31mred\u202e news\x07"
    assert judged(found)["hosts"][2]["reason"] == "bad red news"
