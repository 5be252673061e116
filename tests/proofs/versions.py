# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The oldest and the newest ansible-core with every Python of managed hosts that is here.

All give the same answers, and site.yml of one leaves the other nothing to do. A combination that ansible-core itself no
longer takes (2.21 with Python 3.8) is named and left out.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import typing as t
from pathlib import Path

from ansible_collections.rebellions.npu.plugins.plugin_utils._text.splice import differences, lookup
from ansible_collections.rebellions.npu.tests.unit.fixtures.cdi.tree import Tree as Libraries
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import ca22_host

from tests.integration._hosts import Hosts
from tests.integration._play import FOLDER, STAGED, Run, play
from tests.lab import Lab
from tests.proofs._proof import SAMPLE, Part, Proof
from tests.tools.env import candidates, version_of
from tests.tools.paths import OLD_VENV, VENV, environment
from tests.tools.stage import stage

MINORS = tuple("3.%d" % minor for minor in range(8, 14))
CORES = {"oldest": OLD_VENV, "newest": VENV}
HOST, KIND = "pf-v", "containerd17"
# Same for every tree, as a host's own clock would be.
WRITTEN = 1_700_000_000
CONFIG = 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n  sandbox_image = "pause"\n'
PACKAGE = "Package: containerd\nStatus: install ok installed\nVersion: 1.7.24~ds1-6\nArchitecture: amd64\n\n"
# Figures of one run.
OWN = (
    "seconds",
    "config_newest",
    "mtime",
    "python",
    "invocation",
    "_ansible_no_log",
    "deprecations",
    "warnings",
    "tree",
    "root",
)
TASKS: list[dict[str, t.Any]] = [
    {"name": "Facts", "rebellions.npu.rbln_driver_facts": {"root": "{{ tree }}"}},
    {"name": "Runtimes", "rebellions.npu.rbln_runtime_detect": {"root": "{{ tree }}"}},
    {
        "name": "Prove",
        "rebellions.npu.rbln_validate": {
            "root": "{{ tree }}",
            "scopes": ["driver"],
            "unknown_blocks": False,
            "driver_version": "3.2.2",
        },
    },
    {
        "name": "Write",
        "rebellions.npu.rbln_cdi_spec": {"root": "{{ tree }}", "form": "kubernetes", "machine": "x86_64"},
    },
    {
        "name": "Write again",
        "rebellions.npu.rbln_cdi_spec": {"root": "{{ tree }}", "form": "kubernetes", "machine": "x86_64"},
    },
    {"name": "Look", "rebellions.npu.rbln_observe": {"options": {"root": "{{ tree }}"}}},
]
CHANGES = {"Facts": False, "Runtimes": False, "Write": True, "Write again": False, "Prove": True, "Look": False}


def core_of(venv: Path) -> tuple[str, tuple[int, ...]]:
    """(version of ansible-core, the oldest Python it takes on a managed host).

    Cores before 2.17 do not say the latter.
    """
    text = (
        "import json, ansible.release as r, ansible.module_utils.basic as b; "
        "print(json.dumps([r.__version__, b._PY_MIN]))"
    )
    version, floor = json.loads(
        subprocess.run([str(venv / "bin/python"), "-c", text], capture_output=True, text=True, check=True).stdout
    )
    return version, tuple(floor) if isinstance(floor, list) else (3, 6)


def number(minor: str) -> tuple[int, ...]:
    return tuple(map(int, minor.split(".")))


def pythons() -> dict[str, str]:
    """{minor version: interpreter} of those that are here."""
    found: dict[str, str] = {}
    for minor in MINORS:
        for path in candidates(minor):
            if (version_of(path) or "").startswith(minor + "."):
                found[minor] = path
                break
    return found


def host_tree(root: Path) -> Path:
    """A host with four NPUs, a driver, its libraries and containerd without CDI."""
    tree = ca22_host(root)
    libraries = Libraries(root)
    libraries.libc()
    libraries.driver(version="3.2.2")
    libraries.verbs()
    tree.write("/usr/bin/containerd", "").write("/etc/containerd/config.toml", CONFIG)
    status = tree.real("/var/lib/dpkg/status")
    tree.write("/var/lib/dpkg/status", (status.read_text() if status.exists() else "") + PACKAGE)
    for path in [root, *root.rglob("*")]:
        os.utime(path, (WRITTEN, WRITTEN), follow_symlinks=False)
    return root


def answer(value: t.Any, tree: str) -> t.Any:
    """A result without what belongs to one run."""
    if isinstance(value, dict):
        # The machine's free bytes are another number at each look.
        return {
            key: sorted(item) if key == "disk" else answer(item, tree) for key, item in value.items() if key not in OWN
        }
    if isinstance(value, list):
        return [answer(item, tree) for item in value]
    return value.replace(tree, "") if isinstance(value, str) else value


def ask(folder: Path, venv: Path, found: t.Mapping[str, str]) -> Run:
    """Every task on every Python by one core."""
    hosts = {
        "python" + minor: {
            "ansible_connection": "local",
            "ansible_python_interpreter": path,
            "tree": str(host_tree(folder / minor)),
        }
        for minor, path in found.items()
    }
    where, book = folder / "hosts.json", folder / "modules.json"
    where.write_text(json.dumps({"npu_nodes": {"hosts": hosts}}))
    book.write_text(json.dumps([{"name": "Modules", "hosts": "npu_nodes", "gather_facts": False, "tasks": TASKS}]))
    return play(book, where, env={"PATH": environment(venv)["PATH"]})


def modules(part: Part, folder: Path, found: t.Mapping[str, str]) -> None:
    told: list[str] = []
    first: dict[str, t.Any] = {}
    for name, venv in CORES.items():
        version, floor = core_of(venv)
        taken = {minor: path for minor, path in found.items() if number(minor) >= floor}
        if SAMPLE:
            taken = {minor: taken[minor] for minor in (min(taken, key=number), max(taken, key=number))}
        told.append("ansible-core %s with Python %s" % (version, ", ".join(taken)))
        (folder / name).mkdir()
        run = ask(folder / name, venv, taken)
        for minor in taken:
            for task, changes in CHANGES.items():
                with part.case("%s, ansible-core %s, Python %s" % (task, version, minor)):
                    one = run.one(task, "python" + minor)
                    assert one.state == ("changed" if changes else "ok"), "%s: %s" % (one.state, one.msg)
                    said = answer(one.data, str(folder / name / minor))
                    differ = differences(first.setdefault(task, said), said)
                    assert differ == [], "another answer than the first at %s: %s" % (
                        differ,
                        [lookup(said, path) for path in differ],
                    )
    part.note = "; ".join(told)


def site(part: Part) -> None:
    """On a host of the lab: one core from nothing, the other finds nothing to do."""
    hosts = Hosts(Lab(), {HOST: KIND}, kube=False)
    try:
        for one, other in (("oldest", "newest"),) if SAMPLE else (("oldest", "newest"), ("newest", "oldest")):
            with part.case("site.yml by the %s, then by the %s" % (one, other)):
                hosts.virgin(HOST)
                hosts.state[HOST] = "dirty"
                run = play("site", hosts.inventory(HOST), env={"PATH": environment(CORES[one])["PATH"]}).good([HOST])
                assert run.changed(HOST)
                play("site", hosts.inventory(HOST), env={"PATH": environment(CORES[other])["PATH"]}).unchanged([HOST])
    finally:
        hosts.leave()


def main() -> int:
    proof = Proof("versions")
    FOLDER.mkdir(parents=True, exist_ok=True)
    stage(target=STAGED)
    found = pythons()
    missing = [minor for minor in MINORS if minor not in found]
    if missing:
        proof.say("not here: Python %s" % ", ".join(missing))
    try:
        with tempfile.TemporaryDirectory(prefix="npu-versions-") as name, proof.part("modules on every Python") as part:
            modules(part, Path(name), found)
        if os.geteuid() == 0:
            with proof.part("site.yml by both cores") as part:
                site(part)
        else:
            proof.say("site.yml by both cores needs root: left out")
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)
    return proof.close()


if __name__ == "__main__":
    sys.exit(main())
