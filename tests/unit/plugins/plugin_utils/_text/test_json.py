# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import random

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._text.json import JsonEdit
from ansible_collections.rebellions.npu.tests.unit.fixtures.random_json import edit_one

KUBERNETES = """{
  "exec-opts": ["native.cgroupdriver=systemd"],
  "log-opts": {
    "max-size": "100m"
  },
  "storage-driver": "overlay2"
}
"""


def test_the_other_members_keep_their_layout() -> None:
    edit = JsonEdit(KUBERNETES, "f")
    edit.set(["features", "cdi"], True)
    edit.set(["cdi-spec-dirs"], ["/etc/cdi"])
    added = ',\n  "features": {\n    "cdi": true\n  },\n  "cdi-spec-dirs": [\n    "/etc/cdi"\n  ]\n}\n'
    assert edit.text == KUBERNETES[:-3] + added


@pytest.mark.parametrize(
    "text, after",
    [
        ('{"a": 1, "b": 2}', '{"a": 1}'),
        ('{"b": 2, "a": 1}', '{"a": 1}'),
        ('{ "b": 2 }', "{}"),
        ('{\n  "b": 2,\n  "a": 1\n}\n', '{\n  "a": 1\n}\n'),
    ],
)
def test_delete(text: str, after: str) -> None:
    edit = JsonEdit(text, "f")
    edit.delete(["b"])
    edit.delete(["b"])
    assert edit.text == after


def test_only_what_is_allowed_may_differ() -> None:
    edit = JsonEdit('{"a": 1, "b": 2}', "f")
    edit.set(["a"], 2)
    edit.prove([("a",)])
    with pytest.raises(NpuError, match="f: the edit would also change a"):
        edit.prove([("b",)])


def test_one_is_not_true() -> None:
    edit = JsonEdit('{"features": {"cdi": 1}}', "f")
    edit.set(["features", "cdi"], True)
    assert edit.text == '{"features": {"cdi": true}}'


def test_a_value_in_the_way_is_refused() -> None:
    with pytest.raises(NpuError, match="f: features must be an object"):
        JsonEdit('{"features": 3}', "f").set(["features", "cdi"], True)


@pytest.mark.parametrize("seed", range(300))
def test_fuzz_only_our_members_differ(seed: int) -> None:
    edit_one(random.Random(seed))
