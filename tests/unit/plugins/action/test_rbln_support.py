# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook support where no host answers: it ends well, and its archive says why each is not in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import typing as t
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
GONE = {"ansible_connection": "ansible.builtin.ssh", "ansible_host": "127.0.0.1", "ansible_port": 9}
MUTE = {"ansible_connection": "ansible.builtin.local", "ansible_python_interpreter": "/nowhere/python"}


def played(folder: Path, *args: str, hosts: t.Any = None, **variables: t.Any) -> tuple[int, str]:
    hosts = hosts or {"gone": GONE, "../mute": {**MUTE, "rbln_kubeconfig": str(folder / "none")}}
    (folder / "hosts.json").write_text(json.dumps({"npu_nodes": {"hosts": hosts, "vars": variables}}))
    settings = {name: os.environ[name] for name in ("LANG", "LC_ALL", "PATH") if name in os.environ}
    settings.update(ANSIBLE_COLLECTIONS_PATH=str(ROOT.parents[2]), ANSIBLE_NOCOLOR="true", HOME=str(folder))
    argv = [sys.executable, "-m", "ansible", "playbook", "-i", "hosts.json", str(ROOT / "playbooks" / "support.yml")]
    done = subprocess.run([*argv, *args], cwd=folder, env=settings, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_hosts_and_a_cluster_that_do_not_answer_are_lines_of_the_manifest(tmp_path: Path) -> None:
    code, out = played(tmp_path, ansible_become=False)
    assert code == 0 and "FAILED" not in out and "UNREACHABLE" not in out, out
    (path,) = tmp_path.glob("rbln-support-*.tar.gz")
    assert f"Written: {path}" in out and path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as tar:
        names = tar.getnames()
        manifest = json.load(t.cast("t.IO[bytes]", tar.extractfile(names[1])))
    assert [name.partition("/")[2] for name in names] == ["README.md", "manifest.json"]
    told = {name: (one["state"], one["detail"]) for name, one in manifest["hosts"].items()}
    assert told["gone"][0] == "unreachable" and "gone cannot be reached" in told["gone"][1]
    assert told["../mute"][0] == "failed" and "/nowhere/python" in told["../mute"][1]
    ((cluster, one),) = manifest["clusters"].items()
    assert str(tmp_path / "none") in cluster and one["state"] == "failed" and "does not exist" in one["detail"]
    assert list((tmp_path / ".ansible" / "tmp").glob("*")) == []


def test_a_place_where_nothing_can_be_written_is_told_before_a_host_is_asked(tmp_path: Path) -> None:
    code, out = played(tmp_path, "-e", "rbln_support_path=no/such/x.tgz")
    assert code == 2 and "is no directory. Next: Make it" in " ".join(out.split()) and "Collect from" not in out


def test_a_password_of_digits_alone_is_hidden(tmp_path: Path) -> None:
    """YAML makes a number of it; here a reason repeats it without its name."""
    mute = {**MUTE, "ansible_python_interpreter": "/31415926535/python", "ansible_password": 31415926535}
    code, out = played(tmp_path, hosts={"mute": mute}, ansible_become=False)
    assert code == 0, out
    (path,) = tmp_path.glob("rbln-support-*.tar.gz")
    with tarfile.open(path) as tar:
        told = b"".join(t.cast("t.IO[bytes]", tar.extractfile(one)).read() for one in tar.getmembers())
    assert b"/********/python" in told and b"31415926535" not in told


def test_room_that_is_too_small_for_the_hosts_is_told_before_one_is_asked(tmp_path: Path) -> None:
    hosts = {"h%d" % number: GONE for number in range(13)}
    code, out = played(tmp_path, "-e", "rbln_support_bytes=1048576", hosts=hosts)
    assert code == 2 and "which leaves 61680 for each of 13 hosts" in " ".join(out.split())
    assert "Collect from" not in out
