# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Observe, install the host tool, observe again: through Ansible itself, below a root."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import yaml
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import ca22_host

CONFIG = {"form": "kubernetes"}


def play(tmp_path: Path, *extra: str) -> dict[str, dict[str, object]]:
    """Results by task name."""
    root = str(tmp_path / "root")
    observe = {"root": root, "cdi": CONFIG}
    tool = {"root": root, "config": "{{ first.ansible_facts.rbln_observed.host_tool.config }}"}
    tasks = [
        {"name": "first", "rebellions.npu.rbln_observe": observe, "register": "first"},
        {"name": "install", "rebellions.npu.rbln_host_tool": tool},
        {"name": "second", "rebellions.npu.rbln_observe": observe, "register": "second"},
        {
            "name": "known",
            "rebellions.npu.rbln_host_tool": dict(tool, observed="{{ second.ansible_facts.rbln_observed.host_tool }}"),
        },
        {"name": "again", "rebellions.npu.rbln_host_tool": tool},
        *(
            {
                "name": name,
                "rebellions.npu.rbln_host_tool": {"root": root, "state": state},
                "when": "removal | default(false) | bool",
            }
            for name, state in (("stopped", "stopped"), ("gone", "absent"), ("stopped again", "stopped"))
        ),
    ]
    local = {"ansible_python_interpreter": "{{ ansible_playbook_python }}"}
    book = [
        {
            "name": "Play",
            "hosts": "localhost",
            "connection": "local",
            "gather_facts": False,
            "vars": local,
            "tasks": tasks,
        }
    ]
    (tmp_path / "play.yml").write_text(yaml.safe_dump(book, sort_keys=False))
    env = dict(os.environ, ANSIBLE_STDOUT_CALLBACK="ansible.posix.json", ANSIBLE_LOCALHOST_WARNING="false")
    argv = ["ansible-playbook", "-i", "localhost,", str(tmp_path / "play.yml"), *extra]
    done = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=180, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    data = json.loads(done.stdout[done.stdout.index("{") :])
    return {task["task"]["name"]: task["hosts"]["localhost"] for task in data["plays"][0]["tasks"]}


def test_host_tool_by_ansible(tmp_path: Path) -> None:
    ca22_host(tmp_path / "root")
    dry = play(tmp_path, "--check")
    assert dry["install"]["changed"] is True and not (tmp_path / "root/usr/local").exists()
    done = play(tmp_path)
    first, second = (done[name]["ansible_facts"]["rbln_observed"]["host_tool"] for name in ("first", "second"))
    assert (first["current"], first["sha256"]) == (False, None) and len(first["differing"]) == 8
    assert first["config"] == {"cdi": CONFIG}
    assert done["install"]["changed"] is True and sorted(done["install"]["changed_paths"]) == first["differing"]
    assert second["current"] is True and second["sha256"] == second["wanted"] == first["wanted"]
    assert done["known"]["changed"] is False and done["again"]["changed"] is False
    assert json.loads((tmp_path / "root/etc/rebellions-npu/rbln-host.json").read_text()) == {"cdi": CONFIG}
    program = tmp_path / "root/usr/local/libexec/rebellions-npu/rbln-host"
    found = subprocess.run(
        [str(program), "cdi", "--root", str(tmp_path / "root"), "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert json.loads(found.stdout)["state"] == "missing" and found.stderr == ""
    assert program.read_bytes().startswith(b"#!/usr/bin/python3\n")
    done = play(tmp_path, "-e", "removal=true")
    assert sorted(done["stopped"]["changed_paths"]) == [
        path for path in first["differing"] if path.startswith(("/etc/systemd/", "/etc/udev/"))
    ]
    assert sorted(done["gone"]["changed_paths"][:3]) == [
        "/etc/rebellions-npu/rbln-host.json",
        "/usr/local/libexec/rebellions-npu/lib",
        "/usr/local/libexec/rebellions-npu/rbln-host",
    ]
    assert done["stopped again"]["changed"] is False and not program.parent.exists()
