# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The turns of all hosts as text, of which a process reads one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout import turns

# Names that are part of others, and that JSON or lines would break.
HOSTS = ("a", "aa", "b.a", "b", 'q"', "back\\slash", "line\nbreak", "n\u00e4me", "[x", "")


def test_each_host_finds_its_own_turn_and_no_other() -> None:
    given = {host: {"node": "node of %r" % host, "left": 'a, "b"]\n["b", {}]'} for host in HOSTS}
    text = turns.written(given)
    assert turns.all_of(text) == given and list(turns.all_of(text)) == list(HOSTS)
    assert {host: turns.turn_of(text, host) for host in HOSTS} == given
    for stranger in ("c", "A", "a, ", "node of 'a'"):
        assert turns.turn_of(text, stranger) == {} == turns.turn_of("", stranger)
    assert turns.all_of("") == {}


def test_a_process_parses_the_turn_of_its_host_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    text = turns.written({"host-%d" % number: {"pool": "p" * 200} for number in range(1000)})
    parsed: list[int] = []

    def loads(one: str) -> Any:
        parsed.append(len(one))
        return json.JSONDecoder().decode(one)

    monkeypatch.setattr(turns.json, "loads", loads)
    assert turns.turn_of(text, "host-999") and len(parsed) == 1 and parsed[0] < 250 < len(text)
