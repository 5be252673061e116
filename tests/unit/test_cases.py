# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cases that are about the collection as a whole: A01, A03, A06, G01, G02, G03, I04, K23, O01."""

from __future__ import annotations

import ast
import inspect
import pathlib
import re
import typing as t

import jinja2
import pytest
import yaml
from ansible.plugins.action import reboot as reboot_action

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
BOOLEAN = re.compile(
    r"==|!=|<|>|\bin\b|\bis\b|\bnot\b|\bor\b|\band\b|\|\s*bool\b|\b(ansible_check_mode|rbln_[a-z_]+_(wait|enabled|node_labels))\b"
)


@pytest.mark.parametrize("path", TASK_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_A01_core_219_conditionals_are_boolean(path: pathlib.Path) -> None:
    for task in tasks(path):
        conditions = task.get("when", [])
        for condition in conditions if isinstance(conditions, list) else [conditions]:
            assert isinstance(condition, bool) or BOOLEAN.search(condition), "%s: when: %s" % (
                task.get("name"),
                condition,
            )


def test_A03_ee_deps_the_execution_environment_is_described() -> None:
    described = yaml.safe_load((ROOT / "meta" / "execution-environment.yml").read_text(encoding="utf-8"))
    needed = {
        re.split(r"[<>=! ]", line)[0]
        for line in (ROOT / described["dependencies"]["python"]).read_text(encoding="utf-8").splitlines()
    }
    assert {"kubernetes", "PyYAML", "tomlkit"} <= needed
    assert (ROOT / described["dependencies"]["system"]).is_file()


def test_A03_ee_deps_modules_for_hosts_need_only_the_standard_library() -> None:
    seen = set()
    for path in [*ROOT.glob("plugins/module_utils/*/*.py"), *ROOT.glob("plugins/modules/*.py")]:
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
    _refuse, place, look, foretell, build, keep, _failed = list(
        reversed(list(tasks(ROOT / "roles" / "rbln_driver" / "tasks" / "trust.yml")))
    )
    assert place["ansible.builtin.copy"]["dest"].endswith(".crt")
    # The disk tells whether to build: the copy is made only after the command, so the next run completes one that was
    # cut off.
    assert "%s.checksum != %s.stat.checksum | default('')" % (place["register"], look["register"]) in build["when"]
    assert foretell["when"][2] == "__rbln_driver_ca_coming != %s.stat.checksum | default('')" % look["register"]
    assert (
        look["ansible.builtin.stat"]["path"] == keep["ansible.builtin.copy"]["dest"] == "{{ __rbln_driver_ca_built }}"
    )
    assert place["ansible.builtin.copy"]["src"] == keep["ansible.builtin.copy"]["src"]


@pytest.mark.parametrize(
    "text, accepted",
    [
        ("-----BEGIN CERTIFICATE-----\nAA\n-----END CERTIFICATE-----\n", True),
        ("# Site CA\n-----BEGIN TRUSTED CERTIFICATE-----\nAA\n", True),
        ("\x30\x82\x03", False),
        ("-----BEGIN CERTIFICATE REQUEST-----\nAA\n", False),
        ("-----BEGIN CERTIFICATE-----\nAA\n-----BEGIN EC PRIVATE KEY-----\nAA\n-----END EC PRIVATE KEY-----\n", False),
    ],
)
def test_G03_ca_path_only_certificates_come_to_where_everybody_reads(text: str, accepted: bool) -> None:
    (refuse,) = [
        task
        for task in tasks(ROOT / "roles" / "rbln_driver" / "tasks" / "trust.yml")
        if task["name"].endswith("Refuse what is no certificate in PEM")
    ]
    environment = jinja2.Environment(autoescape=False)
    environment.tests["search"] = lambda value, pattern: re.search(pattern, value) is not None
    refused = environment.compile_expression(refuse["when"])(__rbln_driver_ca_text=text)
    assert refused is not accepted


@pytest.mark.parametrize("path", TASK_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_A06_check_mode_what_a_task_has_not_done_is_not_asked_for(path: pathlib.Path) -> None:
    """Conditions are read in their order, and in check mode a result lacks what only the act itself can say."""
    for task in tasks(path):
        conditions = task.get("when", [])
        told = isinstance(conditions, list) and "not ansible_check_mode" in conditions
        for before in conditions[: conditions.index("not ansible_check_mode")] if told else []:
            assert not re.search(r"\w\.(checksum|rc|stdout|stderr|status|backup_file)\b", str(before)), (
                "%s: when: %s" % (task.get("name"), before)
            )


# They wait, look, say, or let systemd read what other tasks have written and told of.
NO_CHANGE = (
    "wait_for", "include_tasks", "include_role", "import_role", "assert", "debug", "rbln_runtime_detect", "block",
)  # fmt: skip


def test_A06_check_mode_what_it_leaves_out_is_said() -> None:
    """A task that check mode cannot try is foretold by the task before it, else check mode hides a change."""
    left_out = 0
    for path in TASK_FILES:
        order = list(reversed(list(tasks(path))))
        for before, task in zip([{}, *order], order):
            conditions = task.get("when", [])
            conditions = conditions if isinstance(conditions, list) else [conditions]
            left = [re.match(r"not ansible_check_mode\Z|not \(ansible_check_mode and", str(one)) for one in conditions]
            if not any(left):
                continue
            act = next(key for key in task if key.rpartition(".")[2] in NO_CHANGE or "." in key).rpartition(".")[2]
            reload = set(task.get("ansible.builtin.systemd_service") or {}) == {"daemon_reload"}
            if act in NO_CHANGE or reload or task.get("changed_when") is False:
                continue
            left_out += 1
            told = before.get("changed_when") is True and "ansible_check_mode" in before["when"]
            assert told, "%s: %s" % (path.relative_to(ROOT), task["name"])
    assert left_out >= 5


PROXY_USERS = ("rebellions.npu.rbln_package", "rebellions.npu.rbln_driver")


@pytest.mark.parametrize("role", ["rbln_driver", "rbln_container_toolkit"])
def test_G02_proxy_every_task_with_a_package_manager_knows_the_proxies_and_the_bundle(role: str) -> None:
    every = [task for path in ROOT.glob("roles/%s/tasks/*.yml" % role) for task in tasks(path)]
    asked = [task[name] for task in every for name in PROXY_USERS if name in task]
    # A look and a removal of a package download nothing.
    found = [
        given for given in asked if not given.get("look") and (given.get("state") != "absent" or "notes_only" in given)
    ]
    assert found
    for given in found:
        for name in ("http_proxy", "https_proxy", "no_proxy"):
            # A variable that is null is no proxy called None.
            assert given[name].startswith("{{ ") and given[name].endswith(" | default(omit, true) }}"), given
        assert "plan" in given or given["bundle"].endswith("_wanted.rbln_driver_bundle }}")


def test_S02_no_task_has_an_environment_and_no_other_package_manager_is_called() -> None:
    """The environment of a task is on the command line that becomes root, for every user of the host to read."""
    every = [task for path in sorted(ROOT.glob("roles/*/tasks/*.yml")) for task in tasks(path)]
    assert len(every) > 50
    managers = {"ansible.builtin." + name for name in ("apt", "dnf", "package", "yum", "pip", "get_url", "uri")}
    assert [task["name"] for task in every if "environment" in task or managers & set(task)] == []
    for path in ROOT.glob("playbooks/*.yml"):
        assert not re.search(r"^ *(- )?environment:", path.read_text(encoding="utf-8"), re.M), path.name


def test_S02_no_environment_of_a_unit_that_is_not_ours_is_shown() -> None:
    """systemd_service returns every property of its unit."""
    found = [
        task
        for path in sorted(ROOT.glob("roles/*/tasks/*.yml"))
        for task in tasks(path)
        if not task.get("ansible.builtin.systemd_service", {}).get("name", "rbln-").startswith("rbln-")
    ]
    assert len(found) == 3 and all(task.get("no_log") is True for task in found)


def test_G01_airgap_no_internet_the_bundle_has_what_the_enrolment_of_a_key_needs() -> None:
    said = yaml.safe_load((ROOT / "roles" / "rbln_bundle" / "vars" / "main.yml").read_text(encoding="utf-8"))[
        "__rbln_bundle_packages"
    ]
    given = {
        "__rbln_bundle_given_packages": ["dkms"],
        "__rbln_bundle_given_toolkit_packages": ["toolkit"],
        "__rbln_bundle_given_driver_names": ["driver"],
    }
    environment = jinja2.Environment(autoescape=False)
    environment.filters["unique"] = lambda values: list(dict.fromkeys(values))
    for secure_boot, more in (("enrol", ["mokutil", "openssl"]), ("check", []), (None, [])):
        rendered = environment.from_string(said).render({**given, "rbln_driver_secure_boot": secure_boot})
        assert ast.literal_eval(rendered) == ["dkms", "toolkit", "driver", *more]
    for name in ("check.yml", "collect.yml"):
        (task,) = [
            task["rebellions.npu.rbln_bundle"]
            for task in tasks(ROOT / "roles/rbln_bundle/tasks" / name)
            if "rebellions.npu.rbln_bundle" in task
        ]
        assert task["packages"] == "{{ __rbln_bundle_packages }}"


def test_I04_local_reboot_only_one_task_reboots_and_never_over_a_local_connection() -> None:
    found = [(path.name, task) for path in TASK_FILES for task in tasks(path) if "ansible.builtin.reboot" in task]
    assert [name for name, _task in found] == ["reboot.yml"]
    first, told, block = yaml.safe_load((ROOT / "roles/rbln_driver/tasks/reboot.yml").read_text())
    assert first["ansible.builtin.set_fact"] == {"rbln_driver_reboot_required": True}
    assert (
        first["when"]
        == "ansible_connection | default('') in ['local', 'ansible.builtin.local', 'ansible.legacy.local']"
    )
    assert "needs a reboot" in told["ansible.builtin.debug"]["msg"]
    assert block["when"] == "rbln_driver_reboot_required is not defined"
    assert found[0][1] in block["block"]


def test_ansible_51190_molly_guard_does_not_hold_up_the_reboot() -> None:
    """It asks for the host's name where the command usually is, and has moved the real one."""
    (reboot,) = [
        task for task in tasks(ROOT / "roles/rbln_driver/tasks/reboot.yml") if "ansible.builtin.reboot" in task
    ]
    paths = reboot["ansible.builtin.reboot"]["search_paths"]
    (told,) = re.findall(r"default_search_paths = (\[.*\])", inspect.getsource(reboot_action))
    usual = ast.literal_eval(told)
    assert sorted(paths[:2]) == ["/lib/molly-guard", "/usr/lib/molly-guard"] and paths[2:] == usual


def test_O01_el8_python_the_lowest_python_is_stated_where_it_is_enforced() -> None:
    assert (
        yaml.safe_load((ROOT / "tests" / "config.yml").read_text(encoding="utf-8"))["modules"]["python_requires"]
        == ">=3.8"
    )
    assert "3.8" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "older than 3.8" in (ROOT / "plugins" / "action" / "rbln_observe.py").read_text(encoding="utf-8")


def test_K23_strategy_free_the_plays_for_a_cluster_are_linear_whatever_ansible_cfg_says() -> None:
    """One host acts for its cluster: with another strategy each would choose by itself."""
    seen = {}
    for path in sorted(ROOT.glob("playbooks/*.yml")):
        for play in yaml.safe_load(path.read_text(encoding="utf-8")):
            used = [task.get("ansible.builtin.include_role", {}).get("name") for task in play.get("tasks") or []]
            if "rebellions.npu.rbln_operands" in used:
                seen["%s: %s" % (path.stem, play["name"])] = play.get("strategy")
    assert set(seen.values()) == {"linear"} and {name.partition(":")[0] for name in seen} == {
        "remove",
        "site",
        "validate",
    }
