# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's part of rbln_driver_files: a refused file touches no host, and only what a host lacks is sent."""

from __future__ import annotations

import hashlib
import types
import typing as t
from pathlib import Path

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.rebellions.npu.plugins.action.rbln_driver_files import MODULE, ActionModule

DATA = b"#!/bin/sh\n"
SHA = hashlib.sha256(DATA).hexdigest()


class Action(ActionModule):
    """The action with a host that answers in order; `did` is what it was made to do."""

    def __init__(self, args: dict[str, t.Any], answers: t.Sequence[dict[str, t.Any]], check: bool = False) -> None:
        task = types.SimpleNamespace(
            args=args,
            action="rebellions.npu.rbln_driver_files",
            async_val=0,
            check_mode=check,
            diff=False,
            delegate_to=None,
        )
        shell = types.SimpleNamespace(tmpdir=None, join_path=lambda *parts: "/".join(parts))
        super().__init__(task, types.SimpleNamespace(_shell=shell), None, None, None, None)  # type: ignore[arg-type]
        self._load_name = MODULE
        self.answers = list(answers)
        self.did: list[tuple[t.Any, ...]] = []
        self._display = types.SimpleNamespace(display=lambda text, **_more: self.did.append(("display", text)))  # type: ignore[assignment]

    def _execute_module(
        self, module_name: t.Any = None, module_args: t.Any = None, task_vars: t.Any = None, **keys: t.Any
    ) -> dict[str, t.Any]:
        assert module_name == MODULE
        self.did.append(
            ("module", [(item["name"], item["sha256"]) for item in module_args["files"]], module_args.get("staged"))
        )
        return self.answers.pop(0)

    def _make_tmp_path(self, remote_user: t.Any = None) -> str:
        self.did.append(("make",))
        return "/tmp/ansible"

    def _transfer_file(self, local_path: t.Any, remote_path: t.Any) -> str:
        self.did.append(("send", local_path, remote_path))
        return str(remote_path)

    def _remove_tmp_path(self, tmp_path: t.Any, force: bool = False) -> None:
        self.did.append(("remove", tmp_path))


@pytest.fixture(name="files")
def files_fixture(tmp_path: Path) -> list[dict[str, str]]:
    for name in ("a.run", "b.run"):
        (tmp_path / name).write_bytes(DATA)
    return [{"src": str(tmp_path / "a.run"), "sha256": SHA}, {"src": str(tmp_path), "name": "b.run", "sha256": SHA}]


def act(
    args: dict[str, t.Any], *answers: dict[str, t.Any], check: bool = False
) -> tuple[dict[str, t.Any], list[tuple[t.Any, ...]]]:
    action = Action(args, answers, check)
    result = action.run(task_vars={"inventory_hostname": "npu-a"})
    assert action.answers == []
    return result, action.did


ASKED = ("module", [("a.run", SHA), ("b.run", SHA)], None)


def test_a_host_that_has_all_is_asked_once(files: list[dict[str, str]]) -> None:
    result, did = act({"files": files}, {"changed": False, "files": ["x"], "missing": []})
    assert (result["changed"], result["files"], did) == (False, ["x"], [ASKED])


def test_only_what_is_missing_is_sent_and_shown(files: list[dict[str, str]]) -> None:
    result, did = act(
        {"files": files}, {"changed": True, "missing": ["b.run"]}, {"changed": True, "files": ["x"], "missing": []}
    )
    assert (result["changed"], result["files"], result["missing"]) == (True, ["x"], [])
    assert did == [
        ASKED,
        ("make",),
        ("display", "npu-a: sending b.run"),
        ("send", files[1]["src"] + "/b.run", "/tmp/ansible/b.run"),
        ("module", ASKED[1], {"b.run": "/tmp/ansible/b.run"}),
        ("remove", "/tmp/ansible"),
    ]


@pytest.mark.parametrize("missing", [["../../.ssh/id_rsa"], ["b.run", "../../.ssh/id_rsa"]])
def test_a_host_that_asks_for_another_file_gets_none(files: list[dict[str, str]], missing: t.Any) -> None:
    result, did = act({"files": files}, {"changed": True, "missing": missing})
    assert result["failed"] is True and "../../.ssh/id_rsa is missing" in result["msg"]
    assert [step for step in did if step[0] == "send"] == []


def test_check_mode_sends_nothing(files: list[dict[str, str]]) -> None:
    result, did = act({"files": files}, {"changed": True, "missing": ["a.run"]}, check=True)
    assert (result["changed"], result["missing"], did) == (True, ["a.run"], [ASKED])


def test_a_host_that_refuses_gets_nothing(files: list[dict[str, str]]) -> None:
    result, did = act({"files": files}, {"failed": True, "msg": "no", "missing": ["a.run"]})
    assert (result["failed"], result["msg"], did) == (True, "no", [ASKED])


@pytest.mark.parametrize("check", [True, False])
def test_a_file_that_differs_is_refused_before_the_host_is_touched(files: list[dict[str, str]], check: bool) -> None:
    files[1]["sha256"] = "0" * 64
    result, did = act({"files": files}, check=check)
    assert (result["failed"], did) == (True, []) and result["msg"].startswith(
        "The SHA-256 of %s/b.run is" % files[1]["src"]
    )


def test_a_signature_without_keys_is_refused_before_the_host_is_touched(files: list[dict[str, str]]) -> None:
    files[0]["signature"] = "/srv/a.sig"
    result, did = act({"files": files})
    assert (result["failed"], did) == (True, []) and "no keyring" in result["msg"]


def test_two_files_of_one_name_are_refused(tmp_path: Path, files: list[dict[str, str]]) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "a.run").write_bytes(b"other")
    files.append({"src": str(tmp_path / "c" / "a.run"), "sha256": hashlib.sha256(b"other").hexdigest()})
    result, did = act({"files": files})
    assert (result["failed"], did) == (True, []) and result["msg"].startswith("Two files have the name a.run.")


@pytest.mark.parametrize(
    "args", [{}, {"files": [{"src": "/a"}]}, {"files": [], "sha": 1}, {"files": [], "staged": {"a": "/etc/shadow"}}]
)
def test_bad_input_is_an_error(args: dict[str, t.Any]) -> None:
    with pytest.raises(AnsibleActionFail):
        act(args)
