# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of a removal, and that everything that the role driver places is taken away again."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import typing as t
from pathlib import Path

import jinja2
import pytest
import yaml
from ansible_collections.rebellions.npu.plugins.filter.typed_input import to_typed_input
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host, Probe
from ansible_collections.rebellions.npu.plugins.module_utils._host.owned_files import install
from ansible_collections.rebellions.npu.plugins.module_utils._packages.apt import Apt
from ansible_collections.rebellions.npu.plugins.module_utils._packages.dnf import Dnf
from ansible_collections.rebellions.npu.plugins.modules import rbln_host_tool
from ansible_collections.rebellions.npu.plugins.plugin_utils._components.discovery import FILE
from ansible_collections.rebellions.npu.plugins.plugin_utils._deliver_host.host_tool import (
    PROGRAM,
    entries,
    fingerprints,
)

ROOT = Path(__file__).resolve().parents[2]
DRIVER = ROOT / "roles" / "rbln_driver"
BUILTIN = "ansible.builtin."


def load(path: Path) -> t.Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def absent() -> list[dict[str, t.Any]]:
    return list(load(DRIVER / "tasks" / "absent.yml"))


def place_of(tasks: t.Sequence[t.Mapping[str, t.Any]], module: str, **keys: t.Any) -> int:
    found = [
        number
        for number, task in enumerate(tasks)
        if module in task and all(task[module].get(key) == value for key, value in keys.items())
    ]
    assert len(found) == 1, (module, found)
    return found[0]


def test_the_playbook_refuses_first_and_takes_the_bundle_last() -> None:
    hosts = next(play for play in load(ROOT / "playbooks" / "remove.yml") if play["name"].endswith("Hosts"))
    order = [
        (task[BUILTIN + "import_role"]["name"].split(".")[-1], task[BUILTIN + "import_role"]["tasks_from"])
        for task in hosts["tasks"]
        if BUILTIN + "import_role" in task
    ]
    assert order == [
        ("rbln_driver", "absent_look.yml"), ("rbln_container_toolkit", "absent.yml"), ("rbln_driver", "absent.yml"),
        ("rbln_bundle", "absent.yml"),
    ]  # fmt: skip


def test_what_feature_discovery_wrote_goes_with_it() -> None:
    """intel-device-plugins-for-kubernetes 1181: nobody else takes away the labels of a file that stays."""
    hosts = next(play for play in load(ROOT / "playbooks" / "remove.yml") if play["name"].endswith("Hosts"))
    task = next(task for task in hosts["tasks"] if "feature discovery" in task["name"])
    specs = load(ROOT / "roles" / "rbln_operands" / "meta" / "argument_specs.yml")["argument_specs"]["main"]["options"]
    usual = specs["rbln_operands_feature_discovery"]["options"]["features_dir"]["default"]
    environment = jinja2.Environment()
    environment.filters["rebellions.npu.typed_input"] = to_typed_input
    directory = environment.from_string(task["vars"]["__rbln_features_dir"].strip())
    path = task[BUILTIN + "file"]["path"].replace("{{ __rbln_features_dir }}", "%s")
    assert task[BUILTIN + "file"]["state"] == "absent" and path == "%s/" + FILE
    own = {"features_dir": "/opt/features.d"}
    for given, found in (
        ({}, usual),
        (own, own["features_dir"]),
        (None, usual),
        (json.dumps(own), own["features_dir"]),
    ):
        assert directory.render(rbln_operands_feature_discovery=given) == found
    assert directory.render() == usual


def test_the_role_refuses_first_and_takes_keys_and_files_after_the_driver() -> None:
    tasks = absent()
    assert tasks[0][BUILTIN + "include_tasks"] == "absent_look.yml"
    markers = place_of(tasks, "rebellions.npu.rbln_validate", markers="remove")
    removal = place_of(tasks, "rebellions.npu.rbln_driver", state="absent")
    back = place_of(tasks, "rebellions.npu.rbln_validate", fail_on_blocking=False)
    failure, key = place_of(tasks, BUILTIN + "fail"), place_of(tasks, "rebellions.npu.rbln_mok")
    placed = [
        number for number, task in enumerate(tasks) if task.get(BUILTIN + "include_tasks") == "absent_placed.yml"
    ][0]
    assert markers < removal < back < failure < key < placed
    assert tasks[removal]["rebellions.npu.rbln_driver"]["fail"] is False
    assert "__rbln_driver_absent.outcome in ['restored', 'unchanged']" in tasks[back]["when"]
    assert tasks[key]["when"] == "__rbln_driver_ours | bool" == tasks[markers]["when"][0]
    look = load(DRIVER / "tasks" / "absent_look.yml")[-1]
    assert look["rebellions.npu.rbln_driver"]["look"] is True and look["when"] == "__rbln_driver_ours | bool"


def test_the_specification_goes_before_the_hook_that_it_names() -> None:
    tasks = load(ROOT / "roles" / "rbln_container_toolkit" / "tasks" / "absent.yml")
    tool = "rebellions.npu.rbln_host_tool"
    stopped, gone = place_of(tasks, tool, state="stopped"), place_of(tasks, tool, state="absent")
    assert stopped < place_of(tasks, "rebellions.npu.rbln_cdi_spec", state="absent") < gone


def test_the_units_of_the_host_tool_stop_before_they_are_removed(tmp_path: Path) -> None:
    asked: list[list[str]] = []

    def runner(argv: t.Sequence[str], timeout: float, env: t.Any = None) -> Probe:
        asked.append(list(argv))
        return Probe("failed", None, "no systemd")

    host = Host(str(tmp_path), runner=runner)
    paths = list(fingerprints({}))
    assert set(PROGRAM) < set(paths)
    rbln_host_tool.stop(host, paths)
    assert asked == []
    install(host, entries({}), "/usr/bin/python3")
    rbln_host_tool.stop(host, paths)
    assert asked == [["systemctl", "stop", "rbln-host-cdi.service", "rbln-host-ready.service"]]


def test_an_installer_is_sent_only_when_it_is_known_which_and_is_of_use() -> None:
    tasks = absent()
    send = tasks[place_of(tasks, "rebellions.npu.rbln_driver_files")]
    removal = tasks[place_of(tasks, "rebellions.npu.rbln_driver", state="absent")]["rebellions.npu.rbln_driver"]
    assert removal["files"] == "{{ %s.files | default([]) }}" % send["register"]
    environment = jinja2.Environment(undefined=jinja2.ChainableUndefined)
    environment.filters["bool"] = bool

    def sent(installer: t.Any, source: str, digests: t.Sequence[str]) -> bool:
        names = {
            "__rbln_driver_absent_look": {"installer": installer} if installer is not None else {"skipped": True},
            "__rbln_driver_wanted": {"rbln_driver_source": source},
            "__rbln_driver_files": [{"sha256": digest} for digest in digests],
        }
        return all(environment.compile_expression(text)(**names) for text in send["when"])

    assert sent(True, "runfile", ["a"])
    assert not [
        row
        for row in (
            (False, "runfile", ["a"]),
            (None, "runfile", ["a"]),
            (True, "package", ["a"]),
            (True, "runfile", [""]),
        )
        if sent(*row)
    ]
    assert not sent(True, "runfile", [])


OWN, PLAIN = {"source": "runfile"}, {"source": None}


@pytest.mark.parametrize(
    "source, stamp, expected",
    [("runfile", None, True), ("package", None, True), ("preinstalled", None, False), ("container", None, False),
     ("preinstalled", OWN, True),
     ("container", {"source": "package"}, True), ("preinstalled", PLAIN, True),
     ("preinstalled", {"source": "preinstalled"}, False)],
)  # fmt: skip
def test_a_driver_is_ours_by_the_inputs_or_by_our_stamp(source: str, stamp: t.Any, expected: bool) -> None:
    values = load(DRIVER / "vars" / "main.yml")
    prove = next(play for play in load(ROOT / "playbooks" / "remove.yml") if play["name"].endswith("Prove"))["tasks"][
        -1
    ]["vars"]
    plan = {
        "wanted": {"rbln_driver_source": source},
        "observation": {"ansible_facts": {"rbln": {"driver": {"stamp": stamp}}}},
    }
    for where, prefix in ((values, "__rbln_driver_"), (prove, "__rbln_")):
        kept = jinja2.Environment().compile_expression(where[prefix + "stamp"][2:-2])(rbln_preflight_plan=plan)
        names = {"rbln_preflight_plan": plan, "__rbln_driver_wanted": plan["wanted"], prefix + "stamp": kept}
        assert jinja2.Template(where[prefix + "ours"].strip()).render(names) == str(expected)


def test_everything_that_is_placed_is_taken_away() -> None:
    placed = set(load(DRIVER / "vars" / "main.yml")["__rbln_driver_placed_files"])
    written = {path for manager in (Apt, Dnf) for path in (manager.own_file, manager.own_key)}
    assert len(written) == 4 and placed == written


def test_the_certificate_goes_before_the_bundle_is_built_and_the_note_of_it_last() -> None:
    tasks = load(DRIVER / "tasks" / "absent_placed.yml")
    cert, look, foretold, build, note = tasks[1:]
    assert (
        cert[BUILTIN + "file"]["path"].endswith("/rebellions-npu.crt")
        and note[BUILTIN + "file"]["path"] == look[BUILTIN + "stat"]["path"]
    )
    assert "%s is changed or %s.stat.exists | bool" % (cert["register"], look["register"]) in build["when"]
    assert foretold["when"] == ["ansible_check_mode", build["when"][0]]
    for family in ("debian", "redhat"):
        values = load(DRIVER / "vars" / (family + ".yml"))
        assert (
            build[BUILTIN + "command"] == "{{ __rbln_driver_ca_command_fresh }}"
            and values["__rbln_driver_ca_command_fresh"]
        )
        # A file there is trusted too, or is read as a certificate because of its name.
        assert not re.search(r"/anchors/|\.crt$", values["__rbln_driver_ca_built"])


@pytest.mark.parametrize("book", ["remove.yml", "awx_project/remove.yml"])
def test_an_empty_pool_removes_nothing_from_any_host(book: str, tmp_path: Path) -> None:
    """Nobody answered the survey of AWX, or a variable of a shell was not set."""
    host = {"ansible_connection": "ansible.builtin.local", "ansible_python_interpreter": "/nowhere/python"}
    (tmp_path / "hosts.json").write_text(json.dumps({"npu_nodes": {"hosts": {"a": host}}}))
    settings = {name: os.environ[name] for name in ("LANG", "LC_ALL", "PATH") if name in os.environ}
    settings.update(ANSIBLE_COLLECTIONS_PATH=str(ROOT.parents[2]), ANSIBLE_NOCOLOR="true", HOME=str(tmp_path))
    argv = [sys.executable, "-m", "ansible", "playbook", "-i", "hosts.json", str(ROOT / "playbooks" / book)]
    done = subprocess.run(
        [*argv, "-e", "rbln_pool="], cwd=tmp_path, env=settings, capture_output=True, text=True, check=False
    )
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode != 0 and "rbln_pool is empty, which names no host. Next: Name a group" in said
    assert "TASK" not in said, said
