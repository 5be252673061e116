# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts with the same inputs are one kind, and a template counts as what it names."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.alike import alike

NAMES = ("in_a", "in_b")


class Vaulted(str):
    """As Ansible Vault has it: reading it costs, and comparing it does not."""

    def __init__(self, cipher: str) -> None:
        self._ciphertext = cipher

    def __repr__(self) -> str:
        raise AssertionError("it was read")


def kinds(one: dict[str, t.Any], two: dict[str, t.Any]) -> int:
    return len(alike({"one": {**one, "inventory_hostname": "one"}, "two": {**two, "inventory_hostname": "two"}}, NAMES))


@pytest.mark.parametrize(
    "one, two, expected",
    [
        ({"in_a": 1, "else": 1}, {"in_a": 1, "else": 2}, 1),
        ({"in_a": 1}, {"in_a": "1"}, 2),
        ({"in_a": 1}, {}, 2),
        ({"in_a": {"x": [1, 2]}}, {"in_a": {"x": [1, 2]}}, 1),
        ({"in_a": {"x": [1, 2]}}, {"in_a": {"x": [2, 1]}}, 2),
        # The variable that a template names, also by another variable, is one of the inputs.
        ({"in_a": "{{ own }}", "own": 1}, {"in_a": "{{ own }}", "own": 1}, 1),
        ({"in_a": "{{ own }}", "own": 1}, {"in_a": "{{ own }}", "own": 2}, 2),
        ({"in_a": ["{{ a }}"], "a": "{{ b }}", "b": 1}, {"in_a": ["{{ a }}"], "a": "{{ b }}", "b": 2}, 2),
        ({"in_a": "{{ inventory_hostname }}"}, {"in_a": "{{ inventory_hostname }}"}, 2),
        ({"in_a": "{{ hostvars[groups.x[0]].y }}"}, {"in_a": "{{ hostvars[groups.x[0]].y }}"}, 2),
        ({"in_a": "{{ in_b }}", "in_b": "{{ in_a }}"}, {"in_a": "{{ in_b }}", "in_b": "{{ in_a }}"}, 1),
        ({"in_a": Vaulted("c1")}, {"in_a": Vaulted("c1")}, 1),
        ({"in_a": Vaulted("c1")}, {"in_a": Vaulted("c2")}, 2),
    ],
)
def test_alike(one: dict[str, t.Any], two: dict[str, t.Any], expected: int) -> None:
    assert kinds(one, two) == expected
