# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What follows for a host from the inputs of its cluster: the vendor's DRA driver reads one key of a hook alone."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs import roles
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.host import read_inputs

POLICY = """apiVersion: rebellions.ai/v1beta1
kind: RBLNClusterPolicy
metadata: {name: one}
spec: {draKubeletPlugin: {enabled: %s}}
"""


class Templar:
    """Templates a variable that names another one, and no default."""

    def __init__(self, **variables: t.Any) -> None:
        self.variables = variables

    def template(self, value: t.Any) -> t.Any:
        return self.variables.get(value.strip("{ }"), "") if isinstance(value, str) and "{{" in value else value


def key(**given: t.Any) -> t.Any:
    wanted = read_inputs(Templar(shared={"enabled": "yes"}), given)
    return roles.observe_options(wanted)["cdi"]["legacy_hookname"]


@pytest.mark.parametrize(
    "given, legacy",
    [
        ({}, False),
        ({"rbln_operands_dra_driver": {}}, False),
        ({"rbln_operands_dra_driver": {"enabled": False, "image": {"tag": "1"}}}, False),
        ({"rbln_operands_dra_driver": {"enabled": True}}, True),
        ({"rbln_operands_dra_driver": '{"enabled": true, "image": {"tag": "0.1.4"}}'}, True),
        ({"rbln_operands_dra_driver": "{{ shared }}"}, True),
        ({"rbln_operands_device_plugin": {"enabled": True}}, False),
    ],
    ids=str,
)
def test_the_dra_driver_of_the_cluster_decides(given: dict[str, t.Any], legacy: bool) -> None:
    assert key(**given) is legacy
    for own in (True, False):
        assert key(**given, rbln_container_toolkit_legacy_hookname=own) is own
    assert key(**given, rbln_container_toolkit_legacy_hookname=None) is legacy


@pytest.mark.parametrize("said, legacy", [("true", True), ("false", False)])
def test_a_policy_file_decides_as_well(said: str, legacy: bool, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY % said)
    assert key(rbln_operands_policy_files=[str(path)]) is legacy
    over = {"rbln_operands_dra_driver": {"enabled": not legacy}}
    assert key(rbln_operands_policy_files=str(path), **over) is not legacy


def test_a_wrong_input_is_named() -> None:
    with pytest.raises(NpuError, match="rbln_operands_dra_driver has the unknown key enable"):
        key(rbln_operands_dra_driver={"enable": True})
