# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The records in the code have the keys and types that docs/schemas gives them, and no other."""

from __future__ import annotations

import dataclasses
import json
import types
import typing as t

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import (
    Check,
    CheckData,
    Problem,
    ProblemData,
    Step,
    StepData,
)
from ansible_collections.rebellions.npu.plugins.module_utils._observe.observe import MarkersData, ObservedData
from ansible_collections.rebellions.npu.plugins.plugin_utils._plan.plan import Plan, PlanData
from ansible_collections.rebellions.npu.tests.unit.fixtures.schemas import SCHEMAS

TYPES = {"string": str, "boolean": bool, "integer": int, "number": float, "object": dict, "array": list}
ITEMS = {"problem.schema.json": ProblemData, "check.schema.json": CheckData, "step.schema.json": StepData}
# What only the action plugin knows of a plan, and of facts.
OF_THE_ACTION = {"wanted", "options", "cdi_options", "proxies", "observation"}
OF_THE_RUN = {"run", "passed_checks"}


def schema(name: str) -> t.Any:
    return json.loads((SCHEMAS / (name + ".schema.json")).read_text(encoding="utf-8"))


def kinds(hint: t.Any) -> set[t.Any]:
    """The plain types of an annotation: Optional[List[str]] is list and None."""
    if t.is_typeddict(hint):
        return {dict}
    if t.get_origin(hint) in (t.Union, types.UnionType):
        return {kind for one in t.get_args(hint) for kind in kinds(one)}
    return {t.get_origin(hint) or hint}


def wanted_kinds(part: t.Any) -> set[t.Any]:
    """The plain types that a schema allows; empty when it says nothing of types."""
    if "const" in part or "enum" in part:
        return {type(value) for value in part.get("enum", [part.get("const")])}
    named = part.get("type", [])
    return {TYPES.get(name, type(None)) for name in ([named] if isinstance(named, str) else named)}


RECORDS: list[tuple[t.Any, t.Any]] = [
    (ProblemData, schema("problem")),
    (CheckData, schema("check")),
    (StepData, schema("step")),
    (ObservedData, schema("observed")),
    (MarkersData, schema("observed")["properties"]["markers"]),
    (PlanData, schema("plan")),
]


@pytest.mark.parametrize("record, form", RECORDS, ids=[row[0].__name__ for row in RECORDS])
def test_a_record_has_the_keys_and_types_of_its_schema(record: t.Any, form: t.Any) -> None:
    hints = t.get_type_hints(record)
    own = set(form["properties"]) - (OF_THE_ACTION if record is PlanData else OF_THE_RUN)
    assert set(hints) == own
    assert set(record.__required_keys__) == set(form["required"])
    for key, hint in hints.items():
        part = form["properties"][key]
        assert not wanted_kinds(part) or kinds(hint) == wanted_kinds(part), key
        item = part.get("items", {}).get("$ref")
        assert item is None or t.get_args(hint) == (ITEMS[item],), key


@pytest.mark.parametrize("made, record", [(Problem, ProblemData), (Check, CheckData), (Step, StepData)])
def test_a_dataclass_writes_the_record(made: t.Any, record: t.Any) -> None:
    assert {field.name for field in dataclasses.fields(made)} == set(t.get_type_hints(record))


def test_a_plan_writes_its_record() -> None:
    assert set(Plan().to_dict()) == set(t.get_type_hints(PlanData)) == set(schema("plan")["required"])
    assert set(schema("plan")["properties"]) - set(schema("plan")["required"]) == OF_THE_ACTION
