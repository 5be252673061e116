# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts whose modules answer what a test has written, and a controller whose home directory is watched.

No host is needed: the connection is local, and the interpreter of each host is a script that prints the answer for the
module that it is given. A module without an answer runs with the real Python, on a root directory of the test's.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
import typing as t
from pathlib import Path

from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._observe.observe import observe
from ansible_collections.rebellions.npu.plugins.module_utils._observe.settings import complete, read_settings
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import ca22_host

from tests.integration._play import STAGE, STAGED, Run, parse
from tests.tools.paths import COLLECTIONS, VENV, environment

Data = dict[str, t.Any]

INTERPRETER = """#!/bin/sh
[ "$1" != -ISE ] || [ ! -f %(answers)s/look ] || exec cat %(answers)s/look
for word in "$@"; do
    case $word in */AnsiballZ_*|*/async_wrapper.py) name=${word##*/}; break;; esac
done
name=${name#AnsiballZ_}
name=${name%%.py}
echo "$name" >>%(asked)s
[ -n "$name" ] && [ -f %(answers)s/"$name" ] && exec cat %(answers)s/"$name"
exec %(python)s "$@"
"""


def observation(folder: Path) -> Data:
    """What rbln_observe answers on a healthy host with four NPUs, made by its own code."""
    tree = ca22_host(folder).program("/usr/bin/podman", "echo podman version 5.4.2\n")
    seen = observe(PROFILE, tree.host(), read_settings(PROFILE, complete({}, "test"), "keep"))
    found = {"rbln": seen["facts"], "rbln_runtimes": seen["runtimes"], "rbln_observed": seen["observed"]}
    return t.cast(Data, json.loads(json.dumps({"changed": False, "ansible_facts": found})))


class Hostile:
    """A controller below a folder and its hosts; `hosts` get the variables of the group npu_nodes."""

    def __init__(self, folder: Path, hosts: t.Sequence[str], venv: Path = VENV) -> None:
        self.folder, self.hosts, self.venv = folder, hosts, venv
        self.home = folder / "home"
        (self.home / ".ssh").mkdir(parents=True)
        (self.home / ".ssh" / "authorized_keys").write_text("ssh-ed25519 AAAA of the administrator\n")
        self.variables: Data = {"ansible_connection": "local", "ansible_become": False}
        # Of Ansible, by the names of environment variables.
        self.settings: dict[str, str] = {}
        self.good = observation(folder / "tree")
        for host in hosts:
            answers = folder / host / "answers"
            answers.mkdir(parents=True)
            script = folder / host / "python"
            words = {"answers": answers, "asked": folder / host / "asked", "python": sys.executable}
            script.write_text(INTERPRETER % words)
            script.chmod(0o755)
            self.answer(host, "rbln_observe", self.good)

    def answer(self, host: str, module: str, said: Data | str | bytes) -> None:
        """From now on this module says so on this host: data, or the bytes of its standard output."""
        text = json.dumps(said) if isinstance(said, dict) else said
        (self.folder / host / "answers" / module).write_bytes(text.encode() if isinstance(text, str) else text)

    def asked(self, host: str) -> list[str]:
        """The modules that the controller has run on this host, in order."""
        found = self.folder / host / "asked"
        return found.read_text().split() if found.exists() else []

    def files(self) -> dict[str, str]:
        """{path: content as SHA-256, target of a link} of the home directory and of all beside it that nobody owns."""
        skip = {self.folder / name for name in ("tmp", "tree", "work", *self.hosts)}
        found: dict[str, str] = {}
        for root, folders, names in os.walk(self.folder):
            folders[:] = [name for name in folders if Path(root, name) not in skip]
            for path in (Path(root, name) for name in [*folders, *names]):
                told = "folder" if path.is_dir() else ""
                told = told or (
                    os.readlink(path) if path.is_symlink() else hashlib.sha256(path.read_bytes()).hexdigest()
                )
                found[path.relative_to(self.folder).as_posix()] = told
        return found

    def play(self, book: str | Path, *args: str, callback: str = "ansible.posix.jsonl", **variables: t.Any) -> Run:
        """Run a playbook of the collection (by name) or a file on all hosts."""
        tree = {
            "npu_nodes": {
                "hosts": {
                    host: {"ansible_python_interpreter": str(self.folder / host / "python")} for host in self.hosts
                },
                "vars": {**self.variables, **variables},
            }
        }
        work = self.folder / "work"
        work.mkdir(exist_ok=True)
        (work / "hosts.json").write_text(json.dumps(tree))
        settings = environment(
            self.venv,
            HOME=str(self.home),
            ANSIBLE_HOME=str(work / "ansible"),
            ANSIBLE_LOCAL_TEMP=str(self.folder / "tmp"),
            ANSIBLE_REMOTE_TEMP=str(self.folder / "tmp"),
            ANSIBLE_ASYNC_DIR=str(self.folder / "tmp" / "jobs"),
            ANSIBLE_COLLECTIONS_PATH="%s:%s" % (STAGE, COLLECTIONS),
            ANSIBLE_STDOUT_CALLBACK=callback,
            ANSIBLE_LOCALHOST_WARNING="false",
            **self.settings,
        )
        name = "playbooks/%s.yml" % book if isinstance(book, str) else str(book)
        start = time.monotonic()
        done = subprocess.run(
            ["ansible-playbook", "-i", str(work / "hosts.json"), name, *args],
            cwd=STAGED,
            env=settings,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=300,
            check=False,
        )
        # Lines end with LF alone: a host's CR must stay visible to the test.
        out, err = (stream.decode("utf-8", "surrogateescape") for stream in (done.stdout, done.stderr))
        seconds = time.monotonic() - start
        return (
            parse(done.returncode, out, err, seconds)
            if callback.endswith("jsonl")
            else Run(done.returncode, [], {}, out, err, seconds)
        )
