# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter plan_exit by the real ansible-playbook: its exit code, and that nothing else of a run differs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
from ansible.executor.task_queue_manager import TaskQueueManager
from ansible_collections.rebellions.npu.plugins.filter.plan_exit import plan_exit
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.roles import COLLECTION

BOOK = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.group_by: {key: npu_plan_pending}
      when: pending | bool
      run_once: true
    - ansible.builtin.ping:
      when: reach is defined
    - ansible.builtin.fail: {msg: stopped}
      when: stop is defined
- hosts: "{{ 'all' | rebellions.npu.plan_exit('npu_plan_pending' in groups) }}"
  gather_facts: false
"""
# A connection to a port without a listener.
AWAY = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1, "reach": True}


@pytest.mark.parametrize(
    ("pending", "hosts", "code"),
    [
        (False, {"a": {}, "b": {}}, 0),
        (True, {"a": {}, "b": {}}, 3),
        (True, {"a": {}, "b": {"stop": True}}, 2),
        (True, {"a": {}, "b": AWAY}, 4),
    ],
    ids=["nothing", "pending", "stopped", "unreachable"],
)
def test_the_exit_code_of_a_run(pending: bool, hosts: dict[str, t.Any], code: int, tmp_path: Path) -> None:
    (tmp_path / "book.yml").write_text(BOOK)
    given = {"ansible_connection": "local", "pending": pending}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts, "vars": given}}))
    program = [sys.executable, "-m", "ansible", "playbook", "-i", "hosts.json", "book.yml"]
    # Only what a program needs: a test runner may point Ansible at modules of its own.
    settings = {name: os.environ[name] for name in ("HOME", "LANG", "LC_ALL", "PATH", "TMPDIR") if name in os.environ}
    settings.update(ANSIBLE_COLLECTIONS_PATH=str(COLLECTION.parents[2]), ANSIBLE_NOCOLOR="true")
    done = subprocess.run(program, cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stdout.count("PLAY RECAP") == 1 and all(name in done.stdout for name in hosts)


def test_without_changes_the_code_is_that_of_ansible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskQueueManager, "RUN_OK", TaskQueueManager.RUN_OK)
    assert plan_exit("npu_nodes", False) == "npu_nodes" and TaskQueueManager.RUN_OK == 0
    assert plan_exit("npu_nodes", True) == "npu_nodes" and TaskQueueManager.RUN_OK == 3
