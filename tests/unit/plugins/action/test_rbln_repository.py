# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's part of rbln_repository: the host gets the key itself, and a refused key reaches no host."""

from __future__ import annotations

import types
import typing as t
from pathlib import Path

import pytest
from ansible.errors import AnsibleError
from ansible_collections.rebellions.npu.plugins.action.rbln_repository import MODULE, ActionModule
from ansible_collections.rebellions.npu.plugins.module_utils._packages.keys import certificates
from ansible_collections.rebellions.npu.tests.unit.plugins.signing import Keys, made_keys

ANSWER = {"changed": True, "source": "/etc/x", "adopted": False, "changes": []}


class Action(ActionModule):
    """The action with a host that answers, and one file beside the playbook."""

    def __init__(self, args: dict[str, t.Any], beside: Path) -> None:
        task = types.SimpleNamespace(
            args=args, action=MODULE, async_val=0, check_mode=False, diff=False, delegate_to=None
        )
        shell = types.SimpleNamespace(tmpdir=None)
        super().__init__(task, types.SimpleNamespace(_shell=shell), None, None, None, None)  # type: ignore[arg-type]
        self._load_name = MODULE
        self.beside = beside
        self.sent: list[dict[str, t.Any]] = []

    def _find_needle(self, dirname: str, needle: str) -> str:
        path = self.beside / needle
        if not path.exists():
            raise AnsibleError("not found")
        return str(path)

    def _execute_module(
        self, module_name: t.Any = None, module_args: t.Any = None, task_vars: t.Any = None, **keys: t.Any
    ) -> dict[str, t.Any]:
        assert module_name == MODULE
        self.sent.append(dict(module_args))
        return dict(ANSWER)


@pytest.fixture(name="keys", scope="module")
def keys_fixture() -> t.Iterator[Keys]:
    with made_keys() as keys:
        yield keys


@pytest.mark.parametrize("key", ["vendor.asc", "%(home)s/vendor.asc", "%(text)s"])
def test_the_host_gets_the_key_itself(keys: Keys, key: str) -> None:
    text = (keys.home / "vendor.asc").read_text(encoding="utf-8")
    wanted = certificates(text.encode(), "key")
    given = key % {"home": keys.home, "text": text}
    action = Action({"url": "https://a", "key": given, "fingerprint": wanted[0].fingerprints[0]}, keys.home)
    assert action.run(task_vars={}) == ANSWER
    assert [certificates(sent["key"].encode(), "key") for sent in action.sent] == [wanted]
    assert (action.sent[0]["suite"], action.sent[0]["components"]) == ("stable", ["main"])


@pytest.mark.parametrize(
    "more, told",
    [
        ({"key": "nothere.asc"}, "nothere.asc cannot be read on the controller"),
        ({"key": "vendor.asc", "fingerprint": ["0" * 40]}, "vendor.asc has the fingerprint"),
        ({"key": "http://127.0.0.1:1/key.asc"}, "would be read without https"),
    ],
)
def test_a_refused_key_reaches_no_host(keys: Keys, more: dict[str, t.Any], told: str) -> None:
    action = Action({"url": "https://a", **more}, keys.home)
    found = action.run(task_vars={})
    assert found["failed"] is True and told in found["msg"] and action.sent == []
