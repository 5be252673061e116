# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the playbook awx makes: every object by the argument spec of its module, and what each job template needs.

The modules themselves run in `make proof-awx`.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible.utils.unsafe_proxy import wrap_var
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.roles import trust_as_template
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.targets import PLAYBOOKS, typed_input

BOOKS = Path(__file__).resolve().parents[2] / "playbooks"
PROJECT = BOOKS / "awx_project"
# Beside the staged copy, as make env has unpacked them.
COLLECTIONS = Path(__file__).resolve().parents[6] / "collections"
OMIT = "__omit_place_holder__of_this_test"
INPUTS = {
    "rbln_awx_image": "registry.example.com/npu-ee:1",
    "rbln_awx_project_url": "https://git.example.com/npu.git",
    "rbln_awx_credentials": "NPU hosts, vault",
    "rbln_awx_slices": "4",
    "rbln_awx_kubeconfig": "clusters: []\n",
}


class Loader(yaml.SafeLoader):
    """YAML with the tag of text that is no template."""


class Unsafe(str):
    """Text that is no template."""


Loader.add_constructor("!unsafe", lambda loader, node: Unsafe(loader.construct_scalar(node)))  # type: ignore[arg-type]


def load(path: Path) -> Any:
    return yaml.load(path.read_text(encoding="utf-8"), Loader=Loader)  # a loader of plain data: noqa: S506


def trusted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: trusted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [trusted(item) for item in value]
    if isinstance(value, Unsafe):
        return wrap_var(str(value))
    return trust_as_template(value) if isinstance(value, str) else value


TASKS: list[dict[str, Any]] = load(BOOKS / "awx.yml")[0]["tasks"]
VARS: dict[str, Any] = load(BOOKS / "vars" / "awx.yml")


def plain(value: Any) -> Any:
    """Without the types of templates, and without what is omitted."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items() if item != OMIT}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, str) else value


def rendered(value: Any, **more: Any) -> Any:
    variables = {**{key: trusted(item) for key, item in VARS.items()}, **INPUTS, "omit": OMIT, **more}
    return plain(Templar(loader=DataLoader(), variables=variables).template(trusted(value)))


def objects(**more: Any) -> list[tuple[str, dict[str, Any]]]:
    """(module, arguments) of every object, in order."""
    found = []
    for task in TASKS:
        module = next((key for key in task if key.startswith("awx.awx.")), "")
        if module:
            for item in rendered(task["loop"], **more) if "loop" in task else [None]:
                # None of what was rendered is a template for a second time.
                found.append((module.rpartition(".")[2], rendered(task[module], **more, item=wrap_var(item))))
    return found


OBJECTS = objects()
TEMPLATES = {args["name"]: args for module, args in OBJECTS if module == "job_template"}


class Stopped(Exception):
    """(argument spec, keywords) of a module that has got so far"""


def spec_of(module: str, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], dict[str, Any]]:
    """The real argument spec of a module of awx.awx, as it gives it to its base class."""
    monkeypatch.syspath_prepend(str(COLLECTIONS))
    code = importlib.import_module("ansible_collections.awx.awx.plugins.modules." + module)

    def stop(argument_spec: dict[str, Any], **keywords: Any) -> None:
        raise Stopped(argument_spec, keywords)

    monkeypatch.setattr(code, "ControllerAPIModule", stop)
    with pytest.raises(Stopped) as caught:
        code.main()
    spec, keywords = caught.value.args
    return spec, keywords


def test_every_object_is_taken_by_the_argument_spec_of_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {module for module, _args in OBJECTS}
    assert kinds == {
        "organization", "execution_environment", "credential_type", "credential", "project", "inventory",
        "inventory_source", "job_template", "workflow_job_template", "workflow_job_template_node", "schedule",
    }  # fmt: skip
    wrong = {}
    for module, args in OBJECTS:
        spec, keywords = spec_of(module, monkeypatch)
        known = {name for key, option in spec.items() for name in (key, *option.get("aliases", []))}
        rules = {key: value for key, value in keywords.items() if key in ("mutually_exclusive", "required_if")}
        result = ArgumentSpecValidator(spec, **rules).validate(args)
        if result.error_messages or set(args) - known:
            wrong[module, args.get("name")] = (result.error_messages, set(args) - known)
    assert len(OBJECTS) >= 22 and wrong == {}


def test_what_is_missing_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The validator of the test above sees a fault."""
    spec, _keywords = spec_of("job_template", monkeypatch)
    assert ArgumentSpecValidator(spec).validate({"name": "x", "job_type": "plan"}).error_messages
    assert ArgumentSpecValidator(spec).validate({"name": "x", "ask_limit": "perhaps"}).error_messages


def test_every_job_template_has_a_playbook_in_the_project_and_in_the_collection() -> None:
    assert len(TEMPLATES) >= 6
    for args in TEMPLATES.values():
        plays = load(PROJECT / args["playbook"])
        name = args["playbook"].partition(".")[0]
        assert [one["ansible.builtin.import_playbook"] for one in plays] == ["rebellions.npu." + name]
        assert (BOOKS / args["playbook"]).is_file()
    assert {path.name for path in PROJECT.glob("*.yml")} == {args["playbook"] for args in TEMPLATES.values()}


def test_people_choose_limit_and_verbosity_and_facts_are_kept() -> None:
    for args in TEMPLATES.values():
        assert args["ask_limit_on_launch"] and args["ask_verbosity_on_launch"] and args["use_fact_cache"]
        assert args["credentials"] == ["NPU hosts", "vault", "NPU kubeconfig"]
        assert args["inventory"] == "NPU pools" and args["execution_environment"] == "NPU execution environment"
    changing = {args["playbook"] for args in TEMPLATES.values() if args["diff_mode"]}
    asked = {args["playbook"] for args in TEMPLATES.values() if args["ask_job_type_on_launch"]}
    fixed = {name: args["extra_vars"] for name, args in TEMPLATES.items() if args.get("extra_vars")}
    assert fixed == {"NPU Upgrade": {"rbln_driver_replace": True}, "NPU Drift": {"rbln_drift_exit": True}}
    assert changing == {"site.yml", "upgrade.yml", "remove.yml"} and changing < asked


def test_nothing_that_changes_hosts_or_makes_the_pools_is_sliced() -> None:
    sliced = {args["playbook"] for args in TEMPLATES.values() if int(args["job_slice_count"]) != 1}
    assert sliced == {"validate.yml"}
    asked = {args["playbook"] for args in TEMPLATES.values() if args["ask_job_slice_count_on_launch"]}
    assert asked == sliced


def surveys() -> dict[str, dict[str, Any]]:
    return {args["name"]: args["survey_spec"] for _module, args in OBJECTS if "survey_spec" in args}


def test_every_answer_of_a_survey_is_an_input_and_has_a_good_default() -> None:
    for name, survey in surveys().items():
        assert [question["variable"] for question in survey["spec"]][0] == "rbln_pool", name
        for question in survey["spec"]:
            variable, given = question["variable"], question["default"]
            # NpuError if there is no such input, or its default is no value of it. An empty answer would hide the
            # inventory's: only that of the pool means the same as none.
            typed_input(variable, given)
            assert question["required"] or variable == "rbln_pool"
            for choice in question["choices"] or []:
                assert typed_input(variable, choice) == choice
    # No empty answer removes everything from all hosts.
    assert [name for name, survey in surveys().items() if survey["spec"][0]["required"]] == ["NPU Remove"]
    waves = [q for q in surveys()["NPU Upgrade"]["spec"] if q["variable"] == "rbln_rollout_waves"]
    assert typed_input("rbln_rollout_waves", waves[0]["default"]) == ["1", "10%", "50%", "100%"]
    assert "rbln_pool" in PLAYBOOKS


def test_the_workflow_asks_what_its_templates_ask() -> None:
    """AWX passes an answer on to a node only where the template of the node asks for it."""
    asked = surveys()
    assert asked["NPU Upgrade with approval"] == asked["NPU Upgrade"]
    assert {q["variable"] for q in asked["NPU Upgrade"]["spec"]} == {
        "rbln_pool", "rbln_driver_version", "rbln_rollout_waves", "rbln_driver_in_use", "rbln_driver_reboot"
    }  # fmt: skip


def test_the_workflow_is_plan_approval_upgrade_report() -> None:
    nodes: dict[str, dict[str, Any]] = {}
    for module, args in OBJECTS:
        if module == "workflow_job_template_node":
            targets = args.get("success_nodes", []) + args.get("always_nodes", [])
            assert set(targets) <= set(nodes), "a node names one that comes after it"
            nodes.setdefault(args["identifier"], {}).update(args)
    assert nodes["plan"]["job_type"] == "check" and nodes["upgrade"]["job_type"] == "run"
    assert nodes["plan"]["unified_job_template"] == nodes["upgrade"]["unified_job_template"] == "NPU Upgrade"
    assert nodes["plan"]["success_nodes"] == ["approval"] and nodes["approval"]["success_nodes"] == ["upgrade"]
    assert nodes["upgrade"]["always_nodes"] == ["report"] and "success_nodes" not in nodes["upgrade"]
    assert nodes["report"]["unified_job_template"] == "NPU Report"
    assert "approval_node" in nodes["approval"] and TEMPLATES["NPU Upgrade"]["ask_job_type_on_launch"]


def schedules(**more: Any) -> dict[str, Any]:
    return {args["unified_job_template"]: args["enabled"] for module, args in objects(**more) if module == "schedule"}


def test_drift_is_scheduled_where_reports_are_kept() -> None:
    """Each job has a new container: without a report of last week all is new each time."""
    assert {name: str(on) for name, on in schedules().items()} == {"NPU Validate": "True", "NPU Drift": "False"}
    found = schedules(rbln_awx_output="/npu")
    assert {name: str(on) for name, on in found.items()} == {"NPU Validate": "True", "NPU Drift": "True"}
    kept = {
        args["name"]: args["extra_vars"] for module, args in objects(rbln_awx_output="/npu") if "extra_vars" in args
    }
    assert kept["NPU Report"] == {"rbln_report_path": "/npu/reports"}
    assert kept["NPU Drift"] == {"rbln_drift_exit": True, "rbln_report_path": "/npu/reports"}
    for said in ("false", False, "no"):
        off = schedules(rbln_awx_output="/npu", rbln_awx_schedules_enabled=said)
        assert {str(on) for on in off.values()} == {"False"}, said
    assert schedules(rbln_awx_output="/npu", rbln_awx_schedules_enabled="") == found


def test_templates_of_awx_reach_it_as_they_are() -> None:
    types = [args for module, args in OBJECTS if module == "credential_type"]
    assert types[0]["injectors"] == {
        "file": {"template": "{{ kubeconfig }}"}, "extra_vars": {"rbln_kubeconfig": "{{ tower.filename }}"}
    }  # fmt: skip
    assert types[1]["injectors"] == {"extra_vars": {"rbln_image_pull_secret": "{{ dockerconfigjson }}"}}
    for one in types:
        assert [field["secret"] for field in one["inputs"]["fields"]] == [True]


def test_no_secret_is_made_where_none_is_given_and_none_is_in_a_name() -> None:
    made = [args for module, args in OBJECTS if module == "credential"]
    assert [args["inputs"] for args in made] == [{"kubeconfig": "clusters: []\n"}]
    assert str(made[0]["update_secrets"]) == "False"
    # Text that looks like a mapping stays text, and a mapping becomes text.
    for given in ('{"clusters": [], "a": true}', {"clusters": [], "a": True}):
        secret = [args["inputs"] for module, args in objects(rbln_awx_pull_secret=given) if module == "credential"]
        assert secret[1] == {"dockerconfigjson": '{"clusters": [], "a": true}'}, secret
    # Ansible shows the item of a loop that fails, whatever its label is.
    planted = {"rbln_awx_kubeconfig": "clusters: [PLANTED]", "rbln_awx_pull_secret": "PLANTED"}
    for task in TASKS:
        assert "PLANTED" not in str(rendered(task.get("loop", ""), **planted)), task["name"]
    credentials = [task for task in TASKS if "awx.awx.credential" in task]
    assert [task["no_log"] for task in credentials] == [True]
    assert [module for module, _args in objects(rbln_awx_kubeconfig="") if module == "credential"] == []


def test_the_page_has_every_input_and_names_no_other() -> None:
    page = (BOOKS.parent / "docs" / "awx.md").read_text(encoding="utf-8")
    documented = re.findall(r"`(rbln_awx_\w+)`", "\n".join(re.findall(r"^\| (`rbln_awx_[^|]+)\|", page, re.M)))
    text = (BOOKS / "vars" / "awx.yml").read_text(encoding="utf-8") + (BOOKS / "awx.yml").read_text(encoding="utf-8")
    read = set(re.findall(r"(?<!_)rbln_awx_\w+", text))
    assert sorted(documented) == sorted(read) and len(read) >= 18
    assert set(re.findall(r"\brbln_awx_\w+", page)) == read
    templates = {name.rpartition(" ")[2].lower() for name in TEMPLATES}
    assert set(re.findall(r"^\| NPU \w+ \| `(\w+)` \|", page, re.M)) == templates


@pytest.mark.parametrize("given, told", [
    ({"rbln_awx_image": ""}, "rbln_awx_image is not set. Next: name the image"),
    ({"rbln_awx_project_url": ""}, "Neither rbln_awx_project_url nor rbln_awx_project_path is set. Next: name"),
    ({"rbln_awx_slices": "-1"}, "rbln_awx_slices is not a number of jobs: -1. Next: write 1 or more."),
    ({"rbln_awx_slices": "two"}, "rbln_awx_slices is not a number of jobs: two. Next: write 1 or more."),
    ({"rbln_awx_forks": "many"}, "rbln_awx_forks is not a number of hosts: many. Next: write 1 or more."),
    ({"rbln_awx_kubeconfig": "/root/.kube/config"}, "rbln_awx_kubeconfig is not the content of a kubeconfig. Next: "),
])  # fmt: skip
def test_a_wrong_input_is_told_before_awx_is_asked(given: dict[str, str], told: str) -> None:
    assert list(TASKS[0])[1] == "ansible.builtin.assert"
    wrong = [one["told"] for one in rendered(TASKS[0]["loop"], **given) if str(one["good"]) != "True"]
    assert len(wrong) == 1 and wrong[0].startswith(told), wrong
    assert [one for one in rendered(TASKS[0]["loop"]) if str(one["good"]) != "True"] == []


@pytest.mark.parametrize(
    "given", ["NPU hosts\nvault\n", "NPU hosts,\nvault", " NPU hosts , vault", ["NPU hosts", "vault"]]
)
def test_credentials_are_a_list_or_the_lines_or_words_of_an_answer(given: Any) -> None:
    templates = [args for module, args in objects(rbln_awx_credentials=given) if module == "job_template"]
    assert {tuple(args["credentials"][:2]) for args in templates} == {("NPU hosts", "vault")}


def test_the_project_of_a_manual_folder_has_no_repository() -> None:
    args = next(a for m, a in objects(rbln_awx_project_url="", rbln_awx_project_path="npu") if m == "project")
    assert args["scm_type"] == "manual" and args["local_path"] == "npu"
    assert not {"scm_url", "scm_update_on_launch"} & set(args)
