# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter group_with_hosts: the group's name, an error, and nothing where Ansible only looks."""

from __future__ import annotations

from typing import Any

import pytest
from ansible import context
from ansible.errors import AnsibleFilterError
from ansible_collections.rebellions.npu.plugins.filter.group_with_hosts import LOOKS, FilterModule

FILTER = FilterModule().filters()["group_with_hosts"]


def test_a_group_with_hosts_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "CLIARGS", {})
    assert FILTER("npu_nodes", {"npu_nodes": ["a"]}, ["a"], "") == "npu_nodes"
    with pytest.raises(AnsibleFilterError, match="The inventory has no group npu_nodes"):
        FILTER("npu_nodes", {}, ["a"], "")
    with pytest.raises(AnsibleFilterError, match="within --limit b"):
        FILTER("npu_nodes", {"npu_nodes": ["a"]}, ["b"], "b")


def test_a_pool_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "CLIARGS", {})
    groups = {"npu_nodes": ["a", "b"], "one": ["a", "z"], "other": ["z"]}
    assert FILTER("npu_nodes", groups, ["a", "b"], "", "one") == "npu_nodes,&one"
    # Surveys give no answer so.
    assert FILTER("npu_nodes", groups, ["a", "b"], "", "") == "npu_nodes"
    with pytest.raises(AnsibleFilterError, match="rbln_pool is 'onee', and .*no such group. Next: Name .* these: one."):
        FILTER("npu_nodes", groups, ["a", "b"], "", "onee")
    with pytest.raises(AnsibleFilterError, match="rbln_pool is '!one'"):
        FILTER("npu_nodes", groups, ["a", "b"], "", "!one")
    with pytest.raises(AnsibleFilterError, match="rbln_pool is other, and that group has no host of npu_nodes"):
        FILTER("npu_nodes", groups, ["a", "b"], "", "other")
    with pytest.raises(AnsibleFilterError, match="No host of the group npu_nodes in one is within --limit b"):
        FILTER("npu_nodes", groups, ["b"], "b", "one")


def test_what_removes_takes_no_empty_pool_for_all_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "CLIARGS", {})
    groups = {"npu_nodes": ["a", "b"], "one": ["a"]}
    assert FILTER("npu_nodes", groups, ["a", "b"], "", "one", named=True) == "npu_nodes,&one"
    for empty in ("", None):
        with pytest.raises(AnsibleFilterError, match="rbln_pool is empty, .* Next: Name a group, such as npu_nodes"):
            FILTER("npu_nodes", groups, ["a", "b"], "", empty, named=True)


@pytest.mark.parametrize("option", LOOKS)
def test_what_runs_nothing_needs_no_inventory(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments: dict[str, Any] = {option: True}
    monkeypatch.setattr(context, "CLIARGS", arguments)
    assert FILTER("npu_nodes", {}, [], "") == "npu_nodes"
    assert FILTER("npu_nodes", {}, [], "", "one") == "npu_nodes,&one"
