# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Observe, install the host tool, observe again: through Ansible itself, below a root."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import ca22_host

CONFIG = {"form": "kubernetes"}


def play(tmp_path: Path, *extra: str) -> dict[str, dict[str, Any]]:
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
    return run(tmp_path, tasks, "{{ ansible_playbook_python }}", *extra)


def run(
    tmp_path: Path, tasks: list[dict[str, Any]], python: str, *extra: str, around: tuple[str, ...] = ()
) -> dict[str, dict[str, Any]]:
    """Results of tasks on this machine, by their names; `around` is a command that runs the playbook."""
    local = {"ansible_python_interpreter": python}
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
    argv = [*around, "ansible-playbook", "-i", "localhost,", str(tmp_path / "play.yml"), *extra]
    done = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=180, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    data = json.loads(done.stdout[done.stdout.index("{") :])
    return {task["task"]["name"]: task["hosts"]["localhost"] for task in data["plays"][0]["tasks"]}


# Folders of its own for what is installed: nothing outside of the process sees them.
APART = """\
set -e
cp -a /etc "$1"
mount --bind "$1" /etc
mount -t tmpfs -o mode=755 none /usr/local
shift
exec "$@"
"""


def untimed(found: Any) -> Any:
    """Facts without what changes by itself."""
    if isinstance(found, dict):
        return {key: 0 if key in ("seconds", "disk") else untimed(value) for key, value in found.items()}
    return [untimed(value) for value in found] if isinstance(found, list) else found


def test_the_installed_tool_looks_by_ansible_and_the_module_where_it_must_not(tmp_path: Path) -> None:
    """A shell that prints, and a directory that everybody can write: the module, and a warning says why."""
    looks = dict.fromkeys(("first", "tool", "checked", "opened"), 'exec /bin/sh "$@"')
    looks["noisy"] = 'echo Welcome\nexec /bin/sh "$@"'
    for name, text in looks.items():
        (tmp_path / name).write_text('#!/bin/sh\nprintf "%%s\\n" "$2" >>"$0.log"\n%s\n' % text)
        (tmp_path / name).chmod(0o755)
    tool = {"units": False, "config": "{{ first.ansible_facts.rbln_observed.host_tool.config }}"}
    open_it = {"path": "/usr/local/libexec", "mode": "0777"}

    def look(name: str, **more: Any) -> dict[str, Any]:
        shell = {"ansible_shell_executable": str(tmp_path / name)}
        return {"name": name, "rebellions.npu.rbln_observe": {"options": {}}, "vars": shell, **more}

    tasks: list[dict[str, Any]] = [
        look("first", register="first"),
        {"name": "install", "rebellions.npu.rbln_host_tool": tool},
        look("tool"),
        look("checked", check_mode=True, diff=True, environment={"A": "b"}),
        look("noisy"),
        {"name": "open", "ansible.builtin.file": open_it},
        look("opened"),
        {"name": "gone", "rebellions.npu.rbln_host_tool": {"state": "absent"}},
        {"name": "left", "ansible.builtin.command": {"argv": ["find", "/usr/local", "/etc/rebellions-npu"]},
         "failed_when": False},
    ]  # fmt: skip
    around = ("unshare", "-m", "sh", "-c", APART, "sh", str(tmp_path / "etc"))
    done = run(tmp_path, tasks, "/usr/bin/python3", around=around)
    assert done["install"]["changed"] and "/usr/local/libexec/rebellions-npu/lib" in done["install"]["changed_paths"]
    ran = {name: (tmp_path / (name + ".log")).read_text().splitlines() for name in looks}
    assert sorted(name for name, lines in ran.items() if len(lines) == 1) == ["checked", "tool"], ran
    by_module = sorted(name for name, lines in ran.items() if "AnsiballZ" in "".join(lines))
    assert by_module == ["first", "noisy", "opened"], ran
    assert untimed(done["tool"]["ansible_facts"]) == untimed(done["noisy"]["ansible_facts"])
    assert untimed(done["tool"]["ansible_facts"]) == untimed(done["checked"]["ansible_facts"])
    why = {name: data["warnings"] for name, data in done.items() if data.get("warnings")}
    assert sorted(why) == ["noisy", "opened"], why
    assert "prints 'Welcome' before the answer. Next: Let the start-up files" in why["noisy"][0]
    assert "everybody can write /usr/local/libexec (mode 0777). Next: " in why["opened"][0]
    assert done["gone"]["changed"] and done["left"]["stdout"].split() == ["/usr/local", "/usr/local/libexec"]


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
