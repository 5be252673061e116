# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host that configures itself: the timer's service, Debian's ansible-pull, and a repository with the collection."""

from __future__ import annotations

import json
import tempfile
import typing as t
from pathlib import Path

from tests.integration._play import FOLDER, RESOURCE, SITE, STAGED, play, runfile
from tests.lab._base import podman
from tests.lab.standins.payload import VERSIONS
from tests.proofs._proof import Part
from tests.proofs._walk import BARE, Walk

OLD, NEW = VERSIONS
REPOSITORY = "/srv/fleet"
NEEDED = "ansible-core git python3-tomlkit"
# What a repository of hosts has of the collection.
SHARED = ("plugins", "roles", "playbooks", "meta", "docs", "galaxy.yml", "requirements.txt")
GIT = "git -C %s -c user.name=fleet -c user.email=fleet@example.com " % REPOSITORY


def commit(walk: Walk, version: str) -> None:
    """What the repository wants of the host."""
    inputs: dict[str, t.Any] = {
        **SITE,
        **runfile(version),
        "rbln_driver_runfile": "/opt/npu-lab/payload/run/rebellions-x86_64-%s.run" % version,
        "rbln_driver_replace": True,
    }
    tree = {"npu_nodes": {"hosts": {BARE: {}}, "vars": inputs}}
    files = {
        "inventory": json.dumps(tree, indent=1) + "\n",
        "site.yml": "---\n- name: Site\n  import_playbook: rebellions.npu.site\n",
    }
    for name, text in files.items():
        walk.lab.exec(BARE, ["tee", "%s/%s" % (REPOSITORY, name)], stdin=text)
    walk.lab.exec(BARE, GIT + "add -A && " + GIT + "commit -q -m " + version)


def pull(part: Part, walk: Walk) -> None:
    lab = walk.lab
    walk.hosts.virgin(BARE)
    walk.hosts.state[BARE] = "dirty"
    install = "apt-get -qq update && apt-get -qq install --no-install-recommends -y %s >/dev/null" % NEEDED
    with part.case("the host installs Debian's ansible-core and git, and the repository has the collection"):
        lab.exec(BARE, install, timeout=300)
        home = REPOSITORY + "/collections/ansible_collections/rebellions/npu"
        lab.exec(BARE, ["mkdir", "-p", home])
        for name in SHARED:
            podman("cp", STAGED / name, "%s:%s/%s" % (BARE, home, name))
        lab.exec(BARE, "git init -q -b production " + REPOSITORY)
        commit(walk, OLD)
        part.note = lab.exec(BARE, "ansible-pull --version").stdout.split("\n")[0]
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        book = Path(folder) / "pull.yml"
        inputs = {"rbln_pull_url": "file://" + REPOSITORY, "rbln_pull_version": "production"}
        task = {"name": "Pull", "ansible.builtin.import_role": {"name": "rebellions.npu.rbln_pull"}, "vars": inputs}
        # Far away, so that the timer does not fire meanwhile.
        task["vars"]["rbln_pull_schedule"] = "*-12-31 23:59:00"
        book.write_text(json.dumps([{"name": "Pull", "hosts": "npu_nodes", "gather_facts": False, "tasks": [task]}]))
        where = walk.hosts.inventory(BARE)
        with part.case("the role sets the timer up, and a second run changes nothing"):
            play(book, where).good([BARE])
            play(book, where).unchanged([BARE])
    for text, version in (("from nothing", OLD), ("a pushed commit brings another driver", NEW)):
        with part.case("the service makes the host ready: " + text):
            if version != OLD:
                commit(walk, version)
            told = serve(walk)
            assert walk.loaded(BARE) == version, told
            assert walk.ready_files(BARE) == {".driver-ctr-ready", "driver-ready", "toolkit-ready"}, told
            assert walk.hosts.labels(BARE) == {}, walk.hosts.labels(BARE)
    with part.case("the next start changes nothing"):
        told = serve(walk)
        assert "changed=0 " in told and "failed=0 " in told, told
    with part.case("a run from the controller leaves the host as it is and does the cluster part"):
        where = walk.hosts.inventory(BARE, **runfile(NEW), rbln_driver_replace=True)
        run = play("site", where).good([BARE])
        assert [name.split(" : ")[-1] for name in run.changed()] == ["Work for the cluster"], run.changed()
        assert walk.lab.nodes()[BARE]["allocatable"].get(RESOURCE) == "2"


def serve(walk: Walk) -> str:
    """Run the service to its end; the last line of its log that counts the tasks of the host."""
    done = walk.lab.exec(BARE, ["systemctl", "start", "rbln-pull.service"], timeout=400, check=False)
    log = walk.lab.exec(BARE, ["journalctl", "-u", "rbln-pull.service", "-o", "cat", "--no-pager"]).stdout
    counts = [line for line in log.splitlines() if line.startswith(BARE + " ") and "changed=" in line]
    assert done.returncode == 0 and counts, log[-1500:]
    return counts[-1]
