# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts with the same inputs are one kind, and a template counts as what it names."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.alike import alike

NAMES = ("in_a", "in_b")
BUNDLE = "{{ '/var/lib/rbln/bundle' if airgap else \"\" }}"


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
        # A path is not the fact of a host that has a word of it as its name.
        ({"in_a": BUNDLE, "rbln": 1, "airgap": 1}, {"in_a": BUNDLE, "rbln": 2, "airgap": 1}, 1),
        ({"in_a": BUNDLE, "rbln": 1, "airgap": 1}, {"in_a": BUNDLE, "rbln": 1, "airgap": 2}, 2),
        ({"in_a": "{{ x }}/rbln/y", "rbln": 1}, {"in_a": "{{ x }}/rbln/y", "rbln": 2}, 1),
        (
            {"in_a": "{{ x | default('rbln-system') }}", "rbln": 1},
            {"in_a": "{{ x | default('rbln-system') }}", "rbln": 2},
            1,
        ),
        *(
            ({"in_a": text, "rbln": 1}, {"in_a": text, "rbln": 2}, 2)
            for text in (
                "{{ x == 'a' or rbln == 'b c' }}",
                "{{ x == 'a b' or rbln == 'c' }}",
                "{{ lookup('vars', 'rbln') }}",
                "{{ 'it\\'s' if rbln else 'b' }}",
                "{{ \"it's\" if rbln else 'b' }}",
                "don't {{ 'a' if rbln else 'b' }}",
            )
        ),
        ({"in_a": "{{ rbln.os.id }}", "rbln": 1}, {"in_a": "{{ rbln.os.id }}", "rbln": 2}, 2),
        ({"in_a": Vaulted("c1")}, {"in_a": Vaulted("c1")}, 1),
        ({"in_a": Vaulted("c1")}, {"in_a": Vaulted("c2")}, 2),
    ],
)
def test_alike(one: dict[str, t.Any], two: dict[str, t.Any], expected: int) -> None:
    assert kinds(one, two) == expected
