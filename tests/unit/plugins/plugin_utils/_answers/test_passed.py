# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is kept of the checks that have passed: their names."""

from __future__ import annotations

from typing import Any

from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.passed import passed_as_names, passed_names
from ansible_collections.rebellions.npu.tests.unit.fixtures.schemas import validator


def check(name: str, ok: bool | None, scope: str = "driver") -> dict[str, Any]:
    words = {"severity": "error", "detail": "seen", "evidence": {}, "next_step": "", "seconds": 0.0, "vendor": "x"}
    return {"name": name, "scope": scope, "ok": ok, **words}


def test_what_has_passed_is_named_and_the_rest_is_whole() -> None:
    checks = [check("one", True), check("two", False), check("three", None, "toolkit"), check("four", True, "toolkit")]
    given = {"schema": 1, "checks": checks}
    kept, left_out = passed_as_names(given)
    assert kept == {"schema": 1, "checks": checks[1:3], "passed_checks": {"driver": ["one"], "toolkit": ["four"]}}
    assert left_out == [checks[0], checks[3]] and given == {"schema": 1, "checks": checks}
    form = validator("observed.schema.json").schema["properties"]
    assert form["passed_checks"]["additionalProperties"]["items"]["format"] == "name"
    # Both forms say the same, and what is named stays named.
    assert passed_names(given) == passed_names(kept) == passed_names(passed_as_names(kept)[0])


def test_a_record_may_have_no_checks() -> None:
    """Of somebody who has set a part of a fact, nothing is known to have passed."""
    assert passed_names({}) == passed_names({"checks": None}) == passed_names({"checks": [{"name": "one"}]}) == {}
