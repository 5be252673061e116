# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A newcomer's first hour: README's quickstart, the project of docs/project.md, a plain checkout, as they are written.

Everything runs in a venv of its own with the tarball that `make build` makes. Commands and files are taken from the
pages; only what a reader must replace is replaced: digest, address of the repository, name of the tarball. Host
variables beside the inventory tell how the hosts of the lab are reached, and that their system is not in the vendor's
matrix.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest
import yaml

from tests.integration._hosts import Hosts
from tests.integration._play import COLLECTIONS, FOLDER, Data, play, sha256
from tests.lab._base import STATE
from tests.lab.lab import payload_dir
from tests.tools import commands
from tests.tools.build import build, working
from tests.tools.paths import CACHE, ROOT, SELF
from tests.tools.stage import sources

E, ENGINES = "it-e", "it-d"
HOST = "npu1.example.com"
RUNFILE = "rebellions-x86_64-3.2.2.run"
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = (ROOT / "docs" / "project.md").read_text(encoding="utf-8")
RECAP = re.compile(r"^(\S+)\s+: ok=(\d+)\s+changed=(\d+)\s+unreachable=0\s+failed=0", re.M)


def section(title: str) -> str:
    """README below a heading of the second level."""
    return README.partition("\n## %s\n" % title)[2].partition("\n## ")[0]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(r"^```%s\n(.*?)^```" % language, text, re.S | re.M)


INSTALL, COMMANDS = blocks(section("Quickstart"), "shell")[:2]
# {source of the driver: hosts.yml}
INVENTORIES = {
    yaml.safe_load(text)["npu_nodes"]["vars"]["rbln_driver_source"]: text
    for text in blocks(section("Quickstart"), "yaml")
}


class Newcomer:
    """A shell in an empty folder, whose PATH starts with the venv that README makes there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Ansible's own plugin for the hosts of the lab is beside, as the package ansible would have it.
        self.env = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "PYTHON"))},
            "HOME": str(folder),
            "PATH": "%s:%s" % (folder / "npu" / "bin", os.environ["PATH"]),
            "ANSIBLE_COLLECTIONS_PATH": "%s:%s" % (folder / ".ansible/collections", COLLECTIONS),
            "ANSIBLE_NOCOLOR": "1",
            "PIP_CACHE_DIR": str(CACHE / "pip"),
            # Most of what is installed is never imported here.
            "PIP_COMPILE": "0",
            "LC_ALL": "C.UTF-8",
        }

    def run(self, line: str, where: Path | None = None, **env: str) -> str:
        """What a shell line says; AssertionError with it when the line fails."""
        done = subprocess.run(
            ["sh", "-ec", line],
            cwd=where or self.folder,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=400,
            check=False,
        )
        assert done.returncode == 0, "%s: exit %d\n%s" % (line, done.returncode, done.stdout[-4000:])
        return done.stdout

    def changed(self, line: str, where: Path, **env: str) -> int:
        """How many tasks of a playbook changed the one host; it was reached and nothing failed."""
        out = self.run(line, where, **env)
        found = {name: (int(ok), int(changed)) for name, ok, changed in RECAP.findall(out)}
        assert HOST in found and found[HOST][0] > 0, out[-3000:]
        return found[HOST][1]


@pytest.fixture(scope="module", name="newcomer")
def newcomer_fixture(tmp_path_factory: pytest.TempPathFactory) -> Newcomer:
    """README's first block, with the tarball in the place of Galaxy."""
    folder = tmp_path_factory.mktemp("newcomer")
    tarball, files = build(folder / "dist", working(), int(time.time()), "0" * 40)
    assert files > 200
    one = Newcomer(folder)
    lines = INSTALL.splitlines()
    assert len(lines) == 3 and lines[0].startswith("python3 -m venv npu") and "ansible-core" in lines[1], lines
    # Another python3 of the machine may have no venv.
    one.run(lines[0].replace("python3", sys.executable, 1))
    one.run(lines[1])
    assert lines[2] == "ansible-galaxy collection install rebellions.npu"
    one.run("ansible-galaxy collection install --offline %s" % shlex.quote(str(tarball)))
    listed = one.run("ansible-galaxy collection list rebellions.npu")
    assert str(folder / ".ansible/collections") in listed and "0.1.0" in listed, listed
    return one


def of_the_lab(folder: Path, host: str) -> None:
    """How HOST of the inventory in folder is reached, and what the lab lacks: a supported system, a compiler."""
    (folder / "host_vars").mkdir(parents=True, exist_ok=True)
    own: dict[str, t.Any] = {
        "ansible_host": host,
        "ansible_connection": "containers.podman.podman",
        "ansible_podman_executable": str(STATE / "podman"),
        "ansible_python_interpreter": "/usr/bin/python3",
        "rbln_preflight_unlisted": "warn",
        "rbln_driver_build_packages": [],
    }
    (folder / "host_vars" / (HOST + ".json")).write_text(json.dumps(own))


def replaced(text: str) -> str:
    """What a reader replaces: the digest, and the address of the packages."""
    text = text.replace('"%s"' % ("0" * 64), '"%s"' % sha256("run/" + RUNFILE))
    return text.replace("https://packages.example.com/rbln", "file:/opt/npu-lab/payload/apt-signed")


def test_the_page_has_an_inventory_for_each_way_to_a_driver() -> None:
    assert sorted(INVENTORIES) == ["package", "preinstalled", "runfile"]
    assert [line.split("#")[0].split() for line in COMMANDS.splitlines()] == [
        ["ansible-playbook", "-i", "hosts.yml", "rebellions.npu." + name]
        for name in ("discover", "plan", "site", "site")
    ]


@pytest.mark.parametrize("source, host", [("preinstalled", E), ("package", ENGINES), ("runfile", E)])
def test_quickstart(source: str, host: str, newcomer: Newcomer, bare: Hosts) -> None:
    bare.virgin(host)
    bare.state[host] = "dirty"
    if source == "preinstalled":
        bare.lab.install_driver(host, "3.2.2")
    folder = newcomer.folder / source
    folder.mkdir()
    (folder / "hosts.yml").write_text(replaced(INVENTORIES[source]))
    of_the_lab(folder, host)
    for path in ("run/" + RUNFILE, "keys/rebellions.asc"):
        shutil.copy(payload_dir() / path, folder)
    discover, plan, site, again = COMMANDS.splitlines()
    if source == "runfile":
        assert newcomer.changed(discover, folder) == newcomer.changed(plan, folder) == 0
    assert newcomer.changed(site, folder) > 3
    assert bare.lab.exec(host, "rbln-smi --version; ls /run/rbln/validations").stdout.split() == [
        "rbln-smi", "3.2.2", "driver-ready", "toolkit-ready"
    ]  # fmt: skip
    assert newcomer.changed(again, folder) == 0


# -- after the last one, it-e has the driver of its runfile


def test_a_project_of_ones_own(newcomer: Newcomer, bare: Hosts) -> None:
    folder = newcomer.folder / "npu-site"
    files = dict(re.findall(r"^`([^`\n]+)`\n\n```\w+\n(.*?)^```", PROJECT, re.S | re.M))
    tree = blocks(PROJECT, "text")[0]
    assert len(files) == 8 and all(name.rpartition("/")[2] in tree for name in files), sorted(files)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(replaced(text))
    (folder / "files").mkdir()
    shutil.copy(payload_dir() / "run" / RUNFILE, folder / "files")
    of_the_lab(folder / "inventory", E)
    wanted = folder / "collections/requirements.yml"
    named = yaml.safe_load(wanted.read_text())["collections"]
    tarball = next((newcomer.folder / "dist").glob("rebellions-npu-*.tar.gz"))
    assert [one["name"] for one in named] == ["rebellions.npu"] and named[0]["version"] in tarball.name
    wanted.write_text(json.dumps({"collections": [{"name": str(tarball), "type": "file"}]}))
    pip, galaxy, plan, site = blocks(PROJECT, "shell")[0].splitlines()
    assert pip == "pip install -r requirements.txt"
    # It asks for nothing that the quickstart has not installed.
    newcomer.run(pip + " --no-index", folder)
    # Somebody else's home: there the collection is not installed yet. The one of the lab's connection is beside.
    newcomer.run(galaxy + " --offline", folder, HOME=str(folder), ANSIBLE_COLLECTIONS_PATH=str(COLLECTIONS))
    assert (folder / "collections/ansible_collections/rebellions/npu/MANIFEST.json").is_file()
    paths = "%s:%s" % (folder / "collections", COLLECTIONS)
    for line in (plan, site):
        assert newcomer.changed(line + " --limit standalone", folder, ANSIBLE_COLLECTIONS_PATH=paths) == 0


def test_the_commands_of_the_pages(newcomer: Newcomer, bare: Hosts) -> None:
    """As they stand, on a host that is as wanted; the next release is this one."""
    folder = newcomer.folder / "runfile"
    tarball = next((newcomer.folder / "dist").glob("rebellions-npu-*.tar.gz"))
    newcomer.run("ansible-galaxy collection install --offline --force -p ./next %s" % shlex.quote(str(tarball)), folder)
    wanted = commands.table(ROOT)["host"]
    assert len(wanted) > 10
    for line, code in wanted.items():
        if "ansible-playbook " not in line:
            bare.lab.exec(E, line)
            continue
        # The connection of the lab's hosts is no part of either release; a case file is not for this machine's /srv.
        here = line.replace("./next", "./next:%s" % COLLECTIONS).replace("=/srv/", "=%s/" % folder)
        done = newcomer.run("set +e; %s; echo ended: $?" % here, folder)
        assert done.endswith("ended: %d\n" % code), "%s\n%s" % (line, done[-3000:])
        assert code or "--list-tags" in line or re.search(r"^%s +: ok=[1-9]" % re.escape(HOST), done, re.M), done[
            -3000:
        ]
        assert "changed=1" not in done, "%s changed something:\n%s" % (line, done[-3000:])


# Programs of the tree that this host does not have, and how its shell says so.
NOT_HERE = {"ausearch", "crictl", "curl", "dkms", "dnf", "docker", "fuser", "mokutil", "rpm", "ssh-keygen"}
NO_PROGRAM = re.compile(r"^sh: \d+: (\S+): not found$", re.M)
# What programs say of words that they do not know.
NOT_UNDERSTOOD = re.compile(
    r"invalid (?:option|choice)|unrecogni[sz]ed|unknown (?:option|command|flag)|^usage:", re.I | re.M
)


def test_the_commands_that_prove_a_cause(newcomer: Newcomer, bare: Hosts) -> None:
    """Each is understood where the troubleshooting page says that it runs."""
    proving = [line for line in commands.of_tree(ROOT) if not line.startswith("kubectl ")]
    here = [line for line in proving if line.startswith("ansible")]
    assert len(here) >= 5 and len(proving) > 50
    for line in here:
        newcomer.run(commands.filled(line, HOST=HOST), newcomer.folder / "runfile")
    tool = "PATH=$PATH:/usr/local/libexec/rebellions-npu; "
    there = [line for line in proving if line not in here]
    wrong = {}
    for line in there:
        words = commands.filled(line, HOST="localhost", IMAGE="localhost/x", ADDRESS="http://127.0.0.1:9")
        said = bare.lab.exec(E, ["timeout", "20", "sh", "-c", tool + words], check=False)
        if set(NO_PROGRAM.findall(said.stderr)) - NOT_HERE or NOT_UNDERSTOOD.search(said.stderr):
            wrong[line] = said.stderr
    assert wrong == {}


# What an example names and a reader has.
GIVEN: Data = {
    "vault_mok_password": "one-time-1",
    "vault_proxy_password": "p",
    "rbln_preflight_unlisted": "warn",
    "seen": {"files": {"/etc/example/daemon.json": {"sha256": ""}}},
    "node": {"resources": [{"status": {"allocatable": {"rebellions.ai/npu": "2"}}}]},
}
# Examples that cannot work on this host, and what is said: it has no bundle, image, cluster, network or key, and what
# check mode has not made is not there.
REFUSED = {
    "Collect on a connected host": "No repository of this host has linux-headers-6.1.0-28-amd64. Next:",
    "Configure the repository of the driver": "cannot be downloaded",
    "Do what the plan of this host says": "'rbln_preflight_plan' is undefined",
    "Install only from the bundle": "no attribute 'environment'",
    "Install what the enrolment of a key needs": "proxy.example.com",
    "List everything that is missing, before anything is sent": "There is no bundle in",
    "Look into an image that is mounted on the host": "root /mnt/image: No such file or directory. Next:",
    "Look into an image": "root /mnt/image: No such file or directory. Next:",
    "Place the bundle": "There is no bundle in",
    "Prepare the enrolment of a key": "Next: Run as root on a machine started by UEFI",
    "Replace a file that must still be what was seen": "nothing was written. Next: Run again",
    "Say what would change in the cluster": "Next: Check rbln_kubeconfig",
    "Show the steps at the console": "no attribute 'state'",
    "Take the node out of service": "This host has no turn in the rollout",
    "Use what was observed before, for docker": "docker is not on this host (found: containerd). Next:",
    "Write the specification for a Kubernetes node whose driver is in a container": "Next: Install and load the driver",
}


def examples() -> list[Data]:
    """A play for each plugin that has examples, or those of its examples that are plays."""
    found: list[Data] = []
    paths = [*sorted((ROOT / "plugins/modules").glob("*.py")), *sorted((ROOT / "plugins/filter").glob("*.yml"))]
    for path in paths:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            text = re.search(r'^EXAMPLES = r"""\n(.*?)^"""', text, re.S | re.M)[1]  # type: ignore[index]
        else:
            text = yaml.safe_load(text)["EXAMPLES"]
        items = yaml.safe_load(replaced_in_examples(text))
        if "hosts" in items[0]:
            found += items
        else:
            tasks = [{**item, "ignore_errors": True} for item in items]
            found.append({"name": path.stem, "hosts": "npu_nodes", "gather_facts": False, "tasks": tasks})
    return found


def replaced_in_examples(text: str) -> str:
    for version in ("3.2.2", "3.4.0"):
        name = "rebellions-x86_64-%s.run" % version
        known = r'(%s\n +sha256: )"{{ rbln_driver_runfile_sha256 }}"' % re.escape(name)
        text = re.sub(known, r'\1"%s"' % sha256("run/" + name), text)
        text = text.replace("/srv/rbln/" + name, str(payload_dir() / "run" / name))
    text = text.replace("https://files.example.com/rbln/", str(payload_dir() / "run") + "/")
    return text.replace("/srv/reports/", str(FOLDER) + "/")


def test_every_example_of_a_plugin_runs(bare: Hosts, tmp_path: Path) -> None:
    """In check mode, on a host that has its driver."""
    book = tmp_path / "examples.yml"
    plays = examples()
    assert len(plays) > 20
    book.write_text(yaml.safe_dump(plays, sort_keys=False))
    run = play(book, bare.inventory(E), "--check", extra=GIVEN)
    tasks = [task for one in plays for task in one.get("tasks", [])]
    wanted = {task["name"] for task in tasks if "ansible.builtin.import_role" not in task}
    ran = {one.task for one in run.results}
    assert run.code == 0 and len(wanted) > 45 and wanted - ran == set(), (run.code, wanted - ran, run.err[-2000:])
    refused = {one.task.rpartition(" : ")[2]: one.msg for one in run.failed()}
    assert {name: told for name, told in refused.items() if REFUSED.get(name, "\0") not in told} == {}
    assert set(REFUSED) <= set(refused), set(REFUSED) - set(refused)
    back = run.one("Wait until a runtime that was restarted answers", E)
    assert back.data["back"] is True and back.data["why"] == ""


def test_a_plain_checkout(newcomer: Newcomer, bare: Hosts) -> None:
    """Roles and plugins are found wherever the checkout is, and from whatever folder the playbook is started."""
    checkout = newcomer.folder / "any-name"
    for name in [*sources(), SELF]:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, checkout / name, follow_symlinks=False)
    only = {"ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS)}
    inventory = newcomer.folder / "runfile" / "hosts.yml"
    assert newcomer.changed("ansible-playbook -i %s playbooks/site.yml" % inventory, checkout, **only) == 0
    book = os.path.relpath(checkout / "playbooks/plan.yml", newcomer.folder / "runfile")
    assert newcomer.changed("ansible-playbook -i hosts.yml " + book, newcomer.folder / "runfile", **only) == 0
    needed = yaml.safe_load((checkout / "collections/requirements.yml").read_text())
    assert [one["name"] for one in needed["collections"]] == ["kubernetes.core"]
