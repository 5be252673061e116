# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run that dies in the middle of a configuration change, and one that dies before the restart.

The next run makes it right.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration._hosts import Hosts, started
from tests.integration._killer import make_killer
from tests.integration._kills import Case, killed_at_steps
from tests.integration._play import COLLECTIONS, play
from tests.integration._red import TERMINAL, one_message

B = "it-b"
CONFIG = "/etc/containerd/config.toml"


@pytest.fixture(scope="module")
def killer(staged: None) -> Path:
    return make_killer()


def test_containerd_killed_at_steps(nodes: Hosts, killer: Path, tmp_path: Path) -> None:
    case = Case(B, "containerd", [CONFIG], "containerd config dump", "containerd")
    killed_at_steps(nodes, case, killer, tmp_path)


def test_site_repairs_a_killed_change(nodes: Hosts, killer: Path, tmp_path: Path) -> None:
    """Killed when the new file is in place and the journal is still there."""
    nodes.mended(B)
    nodes.state[B] = "dirty"
    tasks = [
        {"name": "Take out", "rebellions.npu.rbln_runtime_config": {"state": "absent", "runtime": ["containerd"]}},
        {"name": "Restart", "ansible.builtin.systemd_service": {"name": "containerd", "state": "restarted"}},
        {
            "name": "Arm",
            "ansible.builtin.shell": "rm -rf /run/npu-it; mkdir /run/npu-it; echo renamed >/run/npu-it/kill",
        },
        {"name": "Write", "rebellions.npu.rbln_runtime_config": {"runtime": ["containerd"]}, "ignore_errors": True},
        {"name": "Steps", "ansible.builtin.command": "tail -n 1 /run/npu-it/steps"},
    ]
    (tmp_path / "kill.yml").write_text(
        json.dumps([{"name": "Kill", "hosts": "npu_nodes", "gather_facts": False, "tasks": tasks}])
    )
    where = nodes.inventory(B)
    run = play(tmp_path / "kill.yml", where, env={"ANSIBLE_COLLECTIONS_PATH": "%s:%s" % (killer, COLLECTIONS)})
    assert run.one("Write", B).state == "failed" and run.one("Steps", B).data["stdout"] == "renamed"
    repaired_once(nodes)


def repaired_once(nodes: Hosts) -> None:
    """The next site.yml restarts containerd once and the pod sees its NPU; the one after changes nothing."""
    nodes.lab.exec(B, "rm -rf /run/npu-it")
    before = started(nodes.lab, B)
    run = nodes.site(B)
    assert [one.state for one in run.of("Restart | Restart the unit", B)] == ["changed"]
    between = started(nodes.lab, B)
    assert between != before
    play("site", nodes.inventory(B)).unchanged([B])
    assert started(nodes.lab, B) == between
    assert any("librbln-ml.so" in word for word in nodes.look(B))
    helpers = nodes.lab.exec(
        B, "find /etc /var/lib/rebellions-npu -name '*.rbln-new' -o -name '*.rbln-old' -o -name transaction.json"
    ).stdout
    assert helpers == ""


def test_lost_restart_is_found_again(nodes: Hosts, tmp_path: Path) -> None:
    nodes.done(B)
    nodes.state[B] = "dirty"
    tasks = [
        {"name": "Take out", "rebellions.npu.rbln_runtime_config": {"state": "absent", "runtime": ["containerd"]}},
        {"name": "Restart", "ansible.builtin.systemd_service": {"name": "containerd", "state": "restarted"}},
        {"name": "Write", "rebellions.npu.rbln_runtime_config": {"runtime": ["containerd"]}},
    ]
    (tmp_path / "lost.yml").write_text(
        json.dumps([{"name": "Lost", "hosts": "npu_nodes", "gather_facts": False, "tasks": tasks}])
    )
    run = play(tmp_path / "lost.yml", nodes.inventory(B)).good([B])
    assert run.one("Write", B).state == "changed" and run.one("Write", B).data["restart_units"] == ["containerd"]
    repaired_once(nodes)


def test_a_stale_library_fails_the_check_and_never_reaches_a_container(nodes: Hosts) -> None:
    """Links and the loader's cache prefer the stale one; a container gets that of the driver, by its real loader."""
    nodes.done(B)
    nodes.state[B] = "dirty"
    tool, ml = "/usr/local/libexec/rebellions-npu/rbln-host", "librbln-ml.so.3"
    found = nodes.lab.exec(B, ["find", "/usr/lib", "/usr/lib64", "-name", ml + ".2.2"], check=False).stdout
    go = "cd %s; " % found.split()[0].rpartition("/")[0]
    nodes.lab.exec(B, go + "cp {0}.2.2 {0}.0.0; ln -sfn {0}.0.0 {0}; ldconfig".format(ml))
    try:
        checked = nodes.lab.exec(B, [tool, "validate", "--scope", "driver", "--json"], check=False)
        (record,) = [one for one in json.loads(checked.stdout)["checks"] if one["name"] == "library_is_driver"]
        assert checked.returncode == 1 and record["ok"] is False, checked.stdout
        assert record["detail"].endswith(" is 3.0.0; the driver is 3.2.2") and "several releases" in record["detail"]
        nodes.lab.exec(B, [tool, "cdi"])
        words = nodes.look(B)
        mounted = [word for word in words if "librbln-ml" in word and word.startswith("/")]
        assert mounted and not [word for word in mounted if "3.0.0" in word] and words[-2] == ml, words
    finally:
        nodes.lab.exec(B, go + "rm {0}.0.0; ln -sfn {0}.2.2 {0}; ldconfig".format(ml))
    nodes.lab.exec(B, [tool, "cdi"])
    assert nodes.lab.exec(B, [tool, "validate", "--scope", "driver", "--scope", "toolkit"], check=False).returncode == 0
    nodes.state[B] = "done"


def test_a_stopped_containerd_is_one_message_and_started_again(nodes: Hosts) -> None:
    nodes.done(B)
    nodes.lab.exec(B, "systemctl stop containerd")
    try:
        run = play("validate", nodes.inventory(B), env=TERMINAL)
        assert run.code == 2
        one_message(run, B, "containerd", "stopped", "systemctl start")
    finally:
        nodes.lab.exec(B, "systemctl start containerd")
    play("validate", nodes.inventory(B)).unchanged([B])
