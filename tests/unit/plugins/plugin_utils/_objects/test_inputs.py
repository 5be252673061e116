# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The types of the inputs are those that the role's argument specs give."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.render import manifests
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.roles import role_inputs
from ansible_collections.rebellions.npu.plugins.plugin_utils._objects.inputs import Inputs
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs, objects

POOL = {"os_id": "ubuntu", "os_version": "22.04", "kernel": "6.8"}
DRIVER = {"image": {"tag": "1"}, "manager": {"image": {"tag": "1"}}, "pools": [POOL]}
FILLED: dict[str, t.Any] = {
    "driver": DRIVER,
    "driver_instances": [{"name": "a", **DRIVER}],
    "device_plugin": {"host_paths": [{"name": "a", "path": "/a"}]},
}


def wrong(value: t.Any, wanted: t.Any, path: str) -> list[str]:
    """Where a value is not of its type."""
    if t.is_typeddict(wanted):
        hints = t.get_type_hints(wanted)
        keys = [f"{path}.{key}" for key in sorted(set(hints) ^ set(value))]
        return keys + [
            one for key in hints.keys() & value.keys() for one in wrong(value[key], hints[key], f"{path}.{key}")
        ]
    if t.get_origin(wanted) is list:
        (inner,) = t.get_args(wanted)
        return [one for number, item in enumerate(value) for one in wrong(item, inner, f"{path}[{number}]")]
    kind = t.get_origin(wanted) or wanted
    fits = wanted is t.Any or (isinstance(value, kind) and not (kind is int and isinstance(value, bool)))
    return [] if fits else [path]


@pytest.mark.parametrize("given", [{}, FILLED], ids=["defaults", "filled"])
def test_inputs_have_their_types(given: dict[str, t.Any]) -> None:
    assert wrong(inputs(**given), Inputs, "inputs") == []


def test_every_input_of_the_role_has_a_type() -> None:
    names = {name[len("rbln_operands_") :] for name in role_inputs(("rbln_operands",))}
    assert set(t.get_type_hints(Inputs)) == names | {"notes"}


class Whole(int):
    """As the number of a variable is with ansible-core 2.19 and newer."""


class Part(float):
    """As Whole."""


def test_k24_tagged_numbers_are_written_as_numbers() -> None:
    resources = {"requests": {"cpu": Part(0.5)}, "limits": {"cpu": Whole(2)}}
    made = objects(
        update_strategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": Whole(1)}},
        tolerations=[{"key": "team", "operator": "Exists", "tolerationSeconds": Whole(300), "effect": "NoExecute"}],
        device_plugin={"health_port": Whole(51600), "resources": resources},
    )
    text = manifests(made)
    for words in ("maxUnavailable: 1", "tolerationSeconds: 300", "port: 51600", "cpu: 0.5", "cpu: 2"):
        assert words + "\n" in text, words
