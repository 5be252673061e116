# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of variables: what is an input, what is one edit away from one, and what is the user's own."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.names import (
    OWN,
    known,
    one_edit,
    own_prefixes,
    set_names,
    unknown,
)


def test_inputs_of_roles_and_playbooks_are_known_and_what_the_roles_set_is_no_input() -> None:
    inputs, made = known()
    assert len(inputs) > 150 and len(made) > 10 and not inputs & made
    assert {
        "rbln_kubeconfig", "rbln_registry", "rbln_serial", "rbln_failure_budget", "rbln_driver_instances",
        "rbln_airgap", "rbln_operands_device_plugin", "rbln_bundle_kernels", "rbln_pull_url", "rbln_validator_blocking",
    } <= inputs  # fmt: skip
    assert {
        "rbln_failure", "rbln_preflight_plan", "rbln_preflight_inputs", "rbln_preflight_opened", "rbln_operands_result",
        "rbln_bundle_collected", "rbln_driver_pools_left", "rbln_driver_reboot_required", "rbln_runtimes",
    } <= made  # fmt: skip
    # Names of roles and modules.
    assert not (inputs | made) & {"rbln_driver", "rbln_plan", "rbln_operands", "rbln_observe"}
    assert unknown([*inputs, *made, "other", "rblnx"]) == []


@pytest.mark.parametrize(
    "name, near",
    [
        ("rbln_kubeconfg", "rbln_kubeconfig"),
        ("rbln_kubeconfiig", "rbln_kubeconfig"),
        ("rbln_kubecomfig", "rbln_kubeconfig"),
        ("rbln_kubeocnfig", "rbln_kubeconfig"),
        ("rbln_registy", "rbln_registry"),
        ("rbln_failure_budgets", "rbln_failure_budget"),
        ("rbln_driver_vesion", "rbln_driver_version"),
        ("rbln_operands_nod_selector", "rbln_operands_node_selector"),
        ("rbln_driverversion", "rbln_driver_version"),
        ("rbln_driver_Version", "rbln_driver_version"),
        ("rbln_DRIVER_VERSION", "rbln_driver_version"),
        ("rlbn_driver_version", "rbln_driver_version"),
        ("rbnl_serial", "rbln_serial"),
        ("nlbr_kubeconfig", "rbln_kubeconfig"),
        ("rbl_registry", "rbln_registry"),
        ("rblnn_registry", "rbln_registry"),
        ("rbin_driver_source", "rbln_driver_source"),
        ("RBLN_driver_source", "rbln_driver_source"),
        ("RBLN_KUBECONFIG", "rbln_kubeconfig"),
        ("Rbln_operands_node_selector", "rbln_operands_node_selector"),
    ],
)
def test_one_edit_is_an_error_that_names_the_input(name: str, near: str) -> None:
    (found,) = unknown([name])
    assert found == (name, near, True)
    assert str(found.error()) == (
        f"{name} is not an input of this collection. "
        f"Next: Write {near}, or give variables of your own a prefix ({OWN})."
    )


@pytest.mark.parametrize(
    "name",
    [
        "rlbn_rack",
        "RBLN_DEVICES",
        "rln",
        "registry",
        "kubeconfig",
        "my_registry",
        "rb_registry",
        "rblnx",
        "rlbn_failure",
    ],
)
def test_a_name_that_is_nearly_ours_in_its_prefix_alone_is_of_others(name: str) -> None:
    assert set_names({name: 1}) == set() and unknown([name]) == []


def test_a_prefix_that_looks_like_ours_can_be_the_users_own() -> None:
    assert unknown(["rbl_registry", "rlbn_serial"], ["rbl_", "rlbn_"]) == []
    assert set_names({"rlbn_serial": 1, "RBLN_SERIAL": 1, "ansible_facts": {"RBLN_SERIAL": 1}}) == {"rlbn_serial"}


def test_more_edits_are_a_warning_with_the_nearest_input() -> None:
    found = unknown(["rbln_kube_config_file", "rbln_zzzzzzzzzzz", "rbln_kubeconfig"])
    assert [(item.name, item.misspelt) for item in found] == [
        ("rbln_kube_config_file", False),
        ("rbln_zzzzzzzzzzz", False),
    ]
    assert str(found[0].error()) == (
        "rbln_kube_config_file is not an input of this collection. "
        f"Next: Correct it (the nearest input is rbln_kubeconfig), remove it, or name its prefix in {OWN}."
    )
    assert found[1].near in known().inputs


def test_a_declared_prefix_is_the_users_own() -> None:
    names = ["rbln_acme_rack", "rbln_kubeconfg", "rbln_kubecon_x"]
    assert [item.name for item in unknown(names, ["rbln_acme_", "rbln_kubecon_"])] == ["rbln_kubeconfg"]


@pytest.mark.parametrize("prefix", ["rbln_", "rbln_driver_", "rbln", "acme_", ""])
def test_a_prefix_of_inputs_is_refused(prefix: str) -> None:
    with pytest.raises(NpuError, match="%s has '%s', which is no prefix of your own" % (OWN, prefix)):
        unknown([], [prefix])


@pytest.mark.parametrize(
    "one, other, expected",
    [
        ("abc", "abc", False),
        ("abc", "abcd", True),
        ("abc", "xabc", True),
        ("abc", "ab", True),
        ("abc", "axc", True),
        ("abc", "acb", True),
        ("abc", "bac", True),
        ("ab", "ba", True),
        ("abcd", "badc", False),
        ("abc", "cba", False),
        ("abc", "abcde", False),
        ("abc", "a", False),
        ("a", "b", True),
        ("", "a", True),
        ("aab", "aba", True),
        ("abab", "baba", False),
    ],
)
def test_one_edit(one: str, other: str, expected: bool) -> None:
    assert [one_edit(*pair) for pair in ((one, other), (other, one))] == [expected, expected]


class Templar:
    def template(self, value: t.Any) -> t.Any:
        return value


def test_prefixes_may_come_from_a_survey_and_facts_are_no_inputs() -> None:
    assert own_prefixes(Templar(), {OWN: "rbln_a_,rbln_b_"}) == ["rbln_a_", "rbln_b_"]
    assert own_prefixes(Templar(), {}) == []
    variables = {"rbln_x": 1, "rbln_y": 1, "other": 1, "ansible_facts": {"rbln_y": 1}}
    assert set_names(variables) == {"rbln_x"}
