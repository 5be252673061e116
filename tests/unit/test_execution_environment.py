# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ansible-builder makes of execution-environment.yml, what our code needs of it, and its runner's screen.

`make proof-ee` builds an image from it.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from bindep.depends import Depends

ROOT = Path(__file__).resolve().parents[2]
# The tools of every layer; that of the oldest ansible-core has none of them.
BIN = ROOT.parents[3] / "venv" / "bin"
DEFINITION = yaml.safe_load((ROOT / "execution-environment.yml").read_text(encoding="utf-8"))
ESCAPES = re.compile(r"\x1b\[K|[A-Za-z0-9+/=]*\x1b\[\d+D")


def lines(name: str) -> list[str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def create(definition: Path, folder: Path) -> Path:
    """The build context of an execution environment."""
    argv = [BIN / "ansible-builder", "create", "-f", definition, "-c", folder]
    done = subprocess.run(list(map(str, argv)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module", name="context")
def context_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return create(ROOT / "execution-environment.yml", tmp_path_factory.mktemp("ee") / "context")


def test_the_context_has_each_file_that_the_build_copies(context: Path) -> None:
    text = (context / "Containerfile").read_text(encoding="utf-8")
    copied = re.findall(r"^COPY (?!--from)(\S+) ", text, re.M)
    assert len(copied) >= 4 and [name for name in copied if not (context / name).exists()] == []
    assert 'ARG EE_BASE_IMAGE="%s"' % DEFINITION["images"]["base_image"]["name"] in text
    assert 'ARG ANSIBLE_INSTALL_REFS="ansible-core>=2.16,<2.19 ansible-runner"' in text
    assert re.search(r"^RUN .*ansible-galaxy collection install .*-r requirements.yml", text, re.M)


def test_the_context_has_the_collection_and_what_it_needs(context: Path) -> None:
    galaxy = yaml.safe_load((context / "_build" / "requirements.yml").read_text(encoding="utf-8"))
    assert [one["name"] for one in galaxy["collections"]] == ["rebellions.npu", "kubernetes.core"]
    for name in ("requirements.txt", "bindep.txt"):
        assert (context / "_build" / name).read_text(encoding="utf-8") == (ROOT / name).read_text(encoding="utf-8")


def test_without_galaxy_the_tarball_is_where_the_build_looks_for_it(tmp_path: Path) -> None:
    """The galaxy stage copies _build to its working directory; names of files begin there."""
    page = (ROOT / "docs" / "execution_environment.md").read_text(encoding="utf-8")
    told = yaml.safe_load(re.findall(r"^```yaml\n(additional_build_files:.*?)```", page, re.S | re.M)[0])
    tarball = tmp_path / told["additional_build_files"][0]["src"]
    tarball.parent.mkdir(parents=True)
    tarball.write_bytes(b"")
    file = {**DEFINITION, "additional_build_files": told["additional_build_files"]}
    file["dependencies"] = {**DEFINITION["dependencies"], **told["dependencies"]}
    for name in ("requirements.txt", "bindep.txt"):
        (tmp_path / name).write_text("")
    (tmp_path / "ee.yml").write_text(yaml.safe_dump(file))
    context = create(tmp_path / "ee.yml", tmp_path / "context")
    text = (context / "Containerfile").read_text(encoding="utf-8")
    assert "COPY _build /build\nWORKDIR /build\n" in text
    galaxy = yaml.safe_load((context / "_build" / "requirements.yml").read_text(encoding="utf-8"))
    assert [(context / "_build" / one["name"]).is_file() for one in galaxy["collections"]] == [True]


def test_every_other_image_learns_the_same_from_the_collection(tmp_path: Path) -> None:
    """A03-ee-deps: an execution environment that only names the collection gets its packages too."""
    folder = tmp_path / "ansible_collections" / "rebellions"
    folder.mkdir(parents=True)
    (folder / "npu").symlink_to(ROOT)
    argv = [str(BIN / "ansible-builder"), "introspect", str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = yaml.safe_load(done.stdout)
    told = {kind: [line.partition("#")[0].strip() for line in found[kind]] for kind in ("python", "system")}
    # It leaves out what comes with ansible-core.
    assert sorted(told["python"]) == [line for line in lines("requirements.txt") if not line.startswith("PyYAML")]
    assert sorted(told["system"]) == sorted(lines("bindep.txt"))


@pytest.mark.parametrize("profiles, packages", [
    (["platform:dpkg", "platform:debian"], ["openssh-client", "gpg", "sshpass"]),
    (["platform:rpm", "platform:fedora"], ["openssh-clients", "gnupg2", "sshpass", "dpkg"]),
    # Its free repositories have no more of them.
    (["platform:rpm", "platform:rhel"], ["openssh-clients", "gnupg2"]),
])  # fmt: skip
def test_each_system_gets_packages_that_it_has(profiles: list[str], packages: list[str]) -> None:
    rules = Depends((ROOT / "bindep.txt").read_text(encoding="utf-8"))
    assert [rule[0] for rule in rules.active_rules(profiles)] == packages


def controller_files() -> list[Path]:
    folders = ("plugin_utils", "module_utils", "action", "filter", "callback", "inventory", "lookup")
    return [path for name in folders for path in (ROOT / "plugins" / name).rglob("*.py")]


def test_every_library_of_the_controller_is_in_the_requirements() -> None:
    names = {"kubernetes": "kubernetes", "yaml": "PyYAML", "tomlkit": "tomlkit"}
    found = set()
    for path in controller_files():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add(str(node.module).partition(".")[0])
    # What comes with ansible-core, or with the requirement that stands for it.
    found -= {*sys.stdlib_module_names, "ansible", "ansible_collections", "jinja2", "urllib3", "packaging"}
    # Looked for on hosts of other systems alone, and then without an error.
    found -= {"apt", "apt_pkg", "dnf", "rpm", "libdnf5"}
    assert found == set(names)
    assert {re.split(r"[<>=]", line)[0] for line in lines("requirements.txt")} == set(names.values())


def test_every_program_that_the_controller_starts_is_in_an_image() -> None:
    """Those of plugin_utils; module_utils runs on hosts."""
    started = set()
    for path in (ROOT / "plugins" / "plugin_utils").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "subprocess.run(" in text:
            started |= set(re.findall(r"\[\"([a-z][a-z-]+)\", \"-", text))
    assert started == {"gpg", "dpkg-deb"}


def test_the_screens_are_shown_by_ansible_navigator(tmp_path: Path) -> None:
    """Without an image, in its mode for terminals and pipes, by the settings of the page."""
    page = (ROOT / "docs" / "execution_environment.md").read_text(encoding="utf-8")
    settings = re.findall(r"`ansible-navigator.yml`\n\n```yaml\n(.*?)```", page, re.S)
    assert len(settings) == 1
    told = yaml.safe_load(settings[0])
    assert told["ansible-navigator"]["mode"] == "stdout"
    told["ansible-navigator"]["execution-environment"] = {"enabled": False}
    (tmp_path / "ansible-navigator.yml").write_text(yaml.safe_dump(told))
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    inventory = {"npu_nodes": {"hosts": {"here": here}, "vars": {"rbln_driver_source": "preinstalled"}}}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(inventory))
    settings_of_ansible = {"ANSIBLE_COLLECTIONS_PATH": str(ROOT.parents[2]), "ANSIBLE_NOCOLOR": "true"}
    env = {**os.environ, **settings_of_ansible, "PATH": "%s:%s" % (BIN, os.environ["PATH"]), "COLUMNS": "120"}
    argv = ["ansible-navigator", "run", "rebellions.npu.plan", "-i", "hosts.yml"]
    done = subprocess.run(
        argv, cwd=tmp_path, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    out = ESCAPES.sub("", done.stdout)
    assert done.returncode == 0, out + done.stderr
    assert "\nPlan for 1 host\n" in out and "\n1 host: here\n" in out and "\nHosts: 0 to change, " in out, out
