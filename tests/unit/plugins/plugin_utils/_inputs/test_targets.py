# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inputs of the playbooks in every form, and a group without hosts."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.targets import require_hosts, typed_input


@pytest.mark.parametrize(
    "given, expected",
    [
        ("1,25%", [1, "25%"]),
        (" 1 , 25 % ", [1, "25%"]),
        ('[1, "25%"]', [1, "25%"]),
        ("[1, 25%]", [1, "25%"]),
        ("- 1\n- 25%", [1, "25%"]),
        ("1\n25%", [1, "25%"]),
        ([1, "25%"], [1, "25%"]),
        (["1", "25%"], [1, "25%"]),
        (2, [2]),
        ("2", [2]),
        ("100%", ["100%"]),
        ("", None),
        (None, None),
        ("null", None),
    ],
)
def test_serial(given: t.Any, expected: t.Any) -> None:
    assert typed_input("rbln_serial", given) == expected


@pytest.mark.parametrize(
    "given",
    ["one", "1;2", 0, "0", -1, "101%", "0%", True, 1.5, "1.5", [1, None], [[1]], {"a": 1}, "1e3", "\u0661", "%"],
)
def test_a_wrong_serial_is_one_clear_error(given: t.Any) -> None:
    with pytest.raises(NpuError, match="^rbln_serial ") as caught:
        typed_input("rbln_serial", given)
    assert " Next: Write " in str(caught.value) and "\n" not in str(caught.value)


def test_an_empty_serial_is_not_all_hosts_at_a_time() -> None:
    with pytest.raises(NpuError, match="^rbln_serial is an empty list. Next: Write"):
        typed_input("rbln_serial", "[]")


@pytest.mark.parametrize(
    "name, given, expected",
    [
        ("rbln_failure_budget", "1", 1),
        ("rbln_failure_budget", 3, 3),
        ("rbln_failure_budget", " ", None),
        ("rbln_airgap", "yes", True),
        ("rbln_drift_exit", "yes", True),
        ("rbln_report_keep", "0", 0),
        ("rbln_report_formats", "json, junit", ["json", "junit"]),
        ("rbln_bundle_kernels", '["a", "b"]', ["a", "b"]),
        ("rbln_bundle_kernels", "", ["observed"]),
        ("rbln_bundle_operands", "false", False),
        ("rbln_pull_variables", "a: 1", {"a": 1}),
    ],
)
def test_any_input_has_its_type(name: str, given: t.Any, expected: t.Any) -> None:
    assert typed_input(name, given) == expected


def test_what_is_no_number_or_no_input_is_refused() -> None:
    with pytest.raises(NpuError, match="rbln_failure_budget is 'few', which is not a whole number"):
        typed_input("rbln_failure_budget", "few")
    with pytest.raises(NpuError, match="rbln_airgap is 'ture', which is neither true nor false"):
        typed_input("rbln_airgap", "ture")
    # It would be the exit code of a run without drift.
    with pytest.raises(NpuError, match="rbln_drift_exit is 'ture', which is neither true nor false"):
        typed_input("rbln_drift_exit", "ture")
    with pytest.raises(NpuError, match="^rbln_serail is not an input of this collection. Next: Did you mean rbln_ser"):
        typed_input("rbln_serail", "1")


@pytest.mark.parametrize("given", [0, "0", -1])
def test_a_budget_that_is_spent_before_a_host_fails_is_refused(given: t.Any) -> None:
    with pytest.raises(NpuError, match="^rbln_failure_budget is -?[01], so no host .* Next: Write 1 to stop at the fi"):
        typed_input("rbln_failure_budget", given)


ALL = ["a", "b", "c"]


def test_a_group_with_a_host_in_the_run_is_good() -> None:
    require_hosts("npu_nodes", {"npu_nodes": ["a", "b"], "all": ALL}, ALL, "")
    require_hosts("npu_nodes", {"npu_nodes": ["a", "b"], "all": ALL}, ["b"], "b")


@pytest.mark.parametrize(
    "groups, words",
    [
        ({"all": [], "ungrouped": []}, ["The inventory has no group npu_nodes. Next: Write an inventory such as this"]),
        ({"all": ALL, "npu_node": ALL}, ["no group npu_nodes.", "Next: Rename the group npu_node, or write"]),
        ({"all": ALL, "npu_nodes": []}, ["The group npu_nodes of the inventory has no host. Next: Write an inventory"]),
        ({"all": ALL, "npu_nodes": [], "NPU-Nodes": ALL}, ["has no host.", "Rename the group NPU-Nodes"]),
    ],
)
def test_no_host_in_the_group_is_an_error_with_an_inventory(groups: dict[str, list[str]], words: list[str]) -> None:
    with pytest.raises(NpuError) as caught:
        require_hosts("npu_nodes", groups, ALL, "")
    text = str(caught.value)
    assert all(word in text for word in words), text
    assert text.endswith(":\nnpu_nodes:\n  hosts:\n    npu1.example.com:\n    npu2.example.com:\n")


@pytest.mark.parametrize("group", ["npu_bundle", "npu_nodes"])
def test_no_group_of_ours_is_to_be_renamed(group: str) -> None:
    groups = dict.fromkeys({"npu_bundle", "npu_nodes", "npu_bundle_server", "npu_pool_x", "npu_pools"} - {group}, ALL)
    with pytest.raises(NpuError, match=f"^The inventory has no group {group}. Next: Write an inventory such as this"):
        require_hosts(group, groups, ALL, "")


def test_a_limit_without_a_host_of_the_group_names_its_hosts() -> None:
    with pytest.raises(NpuError) as caught:
        require_hosts("npu_nodes", {"npu_nodes": ["a", "b"], "all": ALL}, ["c"], "c")
    told = "No host of the group npu_nodes is within --limit c. Next: Name hosts of npu_nodes: a, b."
    assert str(caught.value) == told
