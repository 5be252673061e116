# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cases that are about the collection as a whole: A01, A03, G03, I04, O01."""

from __future__ import annotations

import ast
import pathlib
import re
import typing as t

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
TASK_FILES = sorted([*ROOT.glob("roles/*/tasks/*.yml"), *ROOT.glob("playbooks/*.yml")])
BLOCKS = ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks")


def tasks(path: pathlib.Path) -> t.Iterator[dict[str, t.Any]]:
    todo = list(yaml.safe_load(path.read_text(encoding="utf-8")) or [])
    while todo:
        item = todo.pop()
        yield item
        for key in BLOCKS:
            todo.extend(item.get(key) or [])


def test_there_are_tasks_to_judge() -> None:
    assert len([task for path in TASK_FILES for task in tasks(path)]) > 60


# ansible-core 2.19 refuses a condition that is a list, a number or text: each must compare, test or call.
BOOLEAN = re.compile(r"==|!=|<|>|\bin\b|\bis\b|\bnot\b|\bor\b|\band\b|\|\s*bool\b|\b(ansible_check_mode|rbln_[a-z_]+_(wait|enabled|node_labels))\b")


@pytest.mark.parametrize("path", TASK_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_A01_core_219_conditionals_are_boolean(path: pathlib.Path) -> None:
    for task in tasks(path):
        conditions = task.get("when", [])
        for condition in conditions if isinstance(conditions, list) else [conditions]:
            assert isinstance(condition, bool) or BOOLEAN.search(condition), "%s: when: %s" % (task.get("name"), condition)


def test_A03_ee_deps_the_execution_environment_is_described() -> None:
    described = yaml.safe_load((ROOT / "meta" / "execution-environment.yml").read_text(encoding="utf-8"))
    needed = {re.split(r"[<>=! ]", line)[0] for line in (ROOT / described["dependencies"]["python"]).read_text(encoding="utf-8").splitlines()}
    assert {"kubernetes", "PyYAML", "jsonpatch", "tomlkit"} <= needed
    assert (ROOT / described["dependencies"]["system"]).is_file()


def test_A03_ee_deps_modules_for_hosts_need_only_the_standard_library() -> None:
    seen = set()
    for path in [*ROOT.glob("plugins/module_utils/*.py"), *ROOT.glob("plugins/modules/*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                seen.update(alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                seen.add(node.module.split(".")[0])
    third_party = {"tomlkit", "kubernetes", "jsonschema", "requests", "jinja2", "packaging", "distro"}
    assert {"os", "json", "ansible"} <= seen
    assert not seen & third_party


@pytest.mark.parametrize(
    "family, directory, command",
    [
        ("redhat", "/etc/pki/ca-trust/source/anchors", "update-ca-trust"),
        ("debian", "/usr/local/share/ca-certificates", "update-ca-certificates"),
    ],
)
def test_G03_ca_path_a_private_authority_goes_where_the_system_looks(family: str, directory: str, command: str) -> None:
    values = yaml.safe_load((ROOT / "roles" / "rbln_driver" / "vars" / (family + ".yml")).read_text(encoding="utf-8"))
    assert (values["__rbln_driver_ca_directory"], values["__rbln_driver_ca_command"]) == (directory, command)
    place, look, build, keep = list(reversed(list(tasks(ROOT / "roles" / "rbln_driver" / "tasks" / "trust.yml"))))
    assert place["ansible.builtin.copy"]["dest"].endswith(".crt")
    # Whether to build is seen on the disk: the copy is made only after the command, so a run that was cut off is made up for.
    assert "%s.checksum != %s.stat.checksum | default('')" % (place["register"], look["register"]) in build["when"]
    assert look["ansible.builtin.stat"]["path"] == keep["ansible.builtin.copy"]["dest"] == "{{ __rbln_driver_ca_built }}"
    assert place["ansible.builtin.copy"]["src"] == keep["ansible.builtin.copy"]["src"]


@pytest.mark.parametrize("role", ["rbln_driver", "rbln_container_toolkit"])
def test_G02_proxy_every_task_with_a_package_manager_knows_the_proxies_and_the_bundle(role: str) -> None:
    every = [task for path in ROOT.glob("roles/%s/tasks/*.yml" % role) for task in tasks(path)]
    found = [task for task in every if task.get("ansible.builtin.package", {}).get("state") == "present"]
    name = "__%s_environment" % role
    assert found and all(task["environment"] == "{{ %s }}" % name for task in found)
    environment = yaml.safe_load((ROOT / "roles" / role / "vars" / "main.yml").read_text(encoding="utf-8"))[name]
    assert all("'%s': %s" % pair in environment for pair in (("http_proxy", "rbln_"), ("https_proxy", "rbln_"), ("no_proxy", "rbln_")))
    # A variable that is null is no proxy called None.
    assert "/apt.conf" in environment and "selectattr('value') |" in environment


def test_I04_local_reboot_only_one_task_reboots_and_never_over_a_local_connection() -> None:
    found = [(path.name, task) for path in TASK_FILES for task in tasks(path) if "ansible.builtin.reboot" in task]
    assert [name for name, _task in found] == ["reboot.yml"]
    first, told, block = yaml.safe_load((ROOT / "roles/rbln_driver/tasks/reboot.yml").read_text())
    assert first["ansible.builtin.set_fact"] == {"rbln_driver_reboot_required": True}
    assert first["when"] == "ansible_connection | default('') in ['local', 'ansible.builtin.local']"
    assert "has to be rebooted" in told["ansible.builtin.debug"]["msg"]
    assert block["when"] == "rbln_driver_reboot_required is not defined"
    assert found[0][1] in block["block"]


def test_O01_el8_python_the_lowest_python_is_stated_where_it_is_enforced() -> None:
    assert yaml.safe_load((ROOT / "tests" / "config.yml").read_text(encoding="utf-8"))["modules"]["python_requires"] == ">=3.8"
    assert "3.8" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "older than 3.8" in (ROOT / "plugins" / "action" / "rbln_observe.py").read_text(encoding="utf-8")
