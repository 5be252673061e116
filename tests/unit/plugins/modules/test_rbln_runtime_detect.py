# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module: one JSON answer, nothing changed, bad input named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.modules import rbln_runtime_detect
from ansible_collections.rebellions.npu.tests.unit.fixtures.module_run import as_process, in_process


def call(**params: Any) -> tuple[int, dict[str, Any]]:
    return in_process("rbln_runtime_detect", params)


def test_a_process_of_its_own_says_the_same(tmp_path: Path) -> None:
    assert as_process("rbln_runtime_detect", {"root": str(tmp_path)}) == call(root=str(tmp_path))


def test_a_tree_is_looked_at_and_left_as_it_is(tmp_path: Path) -> None:
    config = tmp_path / "etc/docker/daemon.json"
    config.parent.mkdir(parents=True)
    config.write_text('{"features": {"cdi": true}}', encoding="utf-8")
    for path, text in (
        ("usr/bin/dockerd", ""),
        ("var/lib/dpkg/status", "Package: docker.io\nStatus: install ok installed\nVersion: 26.1.5+dfsg1-9\n"),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    before = sorted((str(path), path.lstat().st_mtime_ns) for path in tmp_path.rglob("*"))
    code, answer = call(root=str(tmp_path), _ansible_check_mode=True)
    assert code == 0 and answer["changed"] is False
    assert set(answer["ansible_facts"]) == {"rbln_runtimes"}
    runtimes = answer["ansible_facts"]["rbln_runtimes"]["runtimes"]
    assert [(item["name"], item["version"], item["cdi"]["state"]) for item in runtimes] == [
        ("docker", "26.1.5+dfsg1-9", "on")
    ]
    assert sorted((str(path), path.lstat().st_mtime_ns) for path in tmp_path.rglob("*")) == before


def test_each_runtime_says_whether_it_answers(tmp_path: Path) -> None:
    """A condition of a playbook over all of them stops at one without the key."""
    for name in ("dockerd", "podman"):
        (tmp_path / "usr/bin").mkdir(parents=True, exist_ok=True)
        (tmp_path / "usr/bin" / name).write_text("", encoding="utf-8")
    runtimes = call(root=str(tmp_path), runtime=["docker"], ask=True)[1]["ansible_facts"]["rbln_runtimes"]["runtimes"]
    assert {item["name"]: (item["selected"], item["answers"]) for item in runtimes} == {
        "docker": (True, False),
        "podman": (False, None),
    }
    assert all(
        "answers" not in item for item in call(root=str(tmp_path))[1]["ansible_facts"]["rbln_runtimes"]["runtimes"]
    )


@pytest.mark.parametrize(
    "params, message",
    [
        ({"spec_dir": "cdi"}, "spec_dir is 'cdi'. Next: give the absolute path"),
        ({"timeout": 0}, "timeout is 0. Next: give a number of seconds above zero"),
        ({"runtime": ["containerd", "lxc"]}, "value of runtime must be one or more of"),
        (
            {"runtime_socket": "/run/x.sock"},
            "A runtime is described by runtime_socket, and 0 runtimes are named. Next: Name the one runtime",
        ),
        (
            {"runtime": ["docker", "containerd"], "runtime_unit": "x", "runtime_config_file": "/x"},
            "described by runtime_config_file, runtime_unit, and 2 runtimes are named",
        ),
        ({"runtime": ["containerd"], "runtime_socket": "run/x"}, "runtime_socket is 'run/x'. Next: Give an absolute"),
        ({"runtime": ["containerd"], "runtime_unit": "-x"}, "runtime_unit is '-x'. Next: Give the name of a systemd"),
    ],
)
def test_bad_input_is_named(params: dict[str, Any], message: str, tmp_path: Path) -> None:
    code, answer = call(root=str(tmp_path), **params)
    assert code != 0 and answer["failed"] is True
    assert message in answer["msg"]


def test_a_root_that_is_not_there_is_no_host_without_runtimes(tmp_path: Path) -> None:
    code, answer = call(root=str(tmp_path / "image"))
    assert code == 1 and answer["msg"].startswith("root %s: " % (tmp_path / "image")), answer
    assert answer["msg"].endswith(" Next: Give the directory that holds the system's files.")


def test_documented_options_are_the_real_ones() -> None:
    yaml = pytest.importorskip("yaml")
    documented = yaml.safe_load(rbln_runtime_detect.DOCUMENTATION)["options"]
    by_hand = {"runtime_config_file", "runtime_dropin_dir", "runtime_socket", "runtime_unit"}
    own = {"root", "runtime", "kubelet_endpoint", "spec_dir", "ask", "timeout", "wait", "wait_for"}
    assert set(documented) == own | by_hand
    assert all(option["description"] and "default" in option for option in documented.values())
