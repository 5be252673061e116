# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the playbooks have in common: inputs are judged first, by one judge, and a failure is told."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.rebellions.npu.plugins.action.rbln_plan import BRIEF
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.roles import trust_as_template
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.targets import typed_input

ROOT = Path(__file__).resolve().parents[2]
SITE_PATH = ROOT / "playbooks" / "site.yml"
SITE: list[dict[str, Any]] = yaml.safe_load(SITE_PATH.read_text(encoding="utf-8"))
PLAYBOOKS = sorted((ROOT / "playbooks").glob("*.yml"))
REPORT = "rebellions.npu.rbln_report"
STOPPING = {"ansible.builtin.fail", "ansible.builtin.assert"}


def test_the_plays_before_the_last_fail_no_batch() -> None:
    """When all hosts of a batch fail, Ansible leaves out the later plays, and nothing says what had failed before."""
    batched = [play for play in SITE if "serial" in play]
    assert [play["name"] for play in batched] == ["3 Hosts"] and SITE[-1]["name"] == "5 Result"
    bare = [task for task in batched[0]["tasks"] if "rescue" not in task]
    assert (
        batched[0]["strategy"] != "linear"
        and len(bare) == 1
        and [task["name"] for task in bare if STOPPING & set(task)] == []
    )


def test_every_play_on_npu_nodes_is_kept_to_the_pool() -> None:
    """rbln_pool of a survey is a limit: one play without it would work on all hosts."""
    # upgrade is site; npu_bundle has its own hosts.
    books = {path.stem for path in PLAYBOOKS} - {"awx", "bundle", "upgrade"}
    loaded = [play for path in PLAYBOOKS if path.stem in books for play in yaml.safe_load(path.read_text())]
    # The last one of `plan` and `drift` is for the exit code.
    plays = [play for play in loaded if "npu_nodes" in play["hosts"] and "tasks" in play or "pre_tasks" in play]
    assert len(plays) >= 18 and [play["name"] for play in plays if "rbln_pool" not in play["hosts"]] == []
    groups = {"npu_nodes": ["a", "b", "c"], "one": ["a", "c", "z"], "all": ["a", "b", "c", "z"]}
    given = {"__rbln_cut": {"order": "c,npu_nodes"}}
    # That filter has a test of its own.
    plays = [play for play in plays if "group_with_hosts" not in play["hosts"]]
    of_pool = {value(play["hosts"], **given, rbln_pool="one") for play in plays}
    assert of_pool == {"npu_nodes,&one", "c,npu_nodes,&one"}
    of_all = {value(play["hosts"], **given, rbln_pool="") for play in plays}
    assert of_all == {"npu_nodes", "c,npu_nodes"} == {value(play["hosts"], **given) for play in plays}
    inventory = InventoryManager(DataLoader(), sources=None)
    for group, hosts in groups.items():
        inventory.add_group(group)
        for host in hosts:
            inventory.add_host(host, group)
    assert [host.name for host in inventory.get_hosts("c,npu_nodes,&one")] == ["c", "a"]


# Of the modules of Ansible, those that reach a host.
REACHING = {"command", "copy", "file", "reboot", "service", "shell", "stat", "systemd", "systemd_service", "template"}


def tasks_of_hosts() -> list[dict[str, Any]]:
    """Every task of the play that changes hosts: those of its roles, and of the roles that these run again."""
    found: list[dict[str, Any]] = []
    roles = (
        "rbln_driver",
        "rbln_container_toolkit",
        "rbln_validator",
        "rbln_preflight",
        "rbln_discover",
        "rbln_rollout",
    )
    for role in roles:
        for path in (ROOT / "roles" / role / "tasks").glob("*.yml"):
            if not path.stem.startswith("absent") and path.stem != "inputs":
                for task in yaml.safe_load(path.read_text(encoding="utf-8")):
                    found += [task, *task.get("block", []), *task.get("rescue", [])]
    return found


def test_every_failure_of_a_host_is_kept_for_the_last_play() -> None:
    """One that Ansible itself fails is red where it fails, too; and of a host that is lost it runs no rescue."""
    kept = SITE[2]["vars"]["__rbln_kept"]
    tasks = tasks_of_hosts()
    # That one is of the controller, for all hosts, and is not made again.
    own = [one for one in tasks if any(key.startswith("rebellions.npu.") for key in one) and not one.get("run_once")]
    told = [one["name"] for one in own if one.get("failed_when") is False and one.get("ignore_unreachable") is True]
    # The next message says it beside its cause.
    assert told == ["Former | Roll back to the former configuration"]
    left = [one["name"] for one in own if one.get("register") not in kept]
    assert len(own) >= 18 and left == told
    plans = [one for one in tasks if "rebellions.npu.rbln_plan" in one]
    stops = [one for one in tasks if one.get("when") == "rbln_preflight_plan.failure is defined"]
    assert len(plans) == len(stops) == 2
    # These two say theirs by a task of their own. After a reboot the network of a host may fail once more.
    large = ["rbln_discover_observation", "rbln_preflight_plan"]
    assert kept[:2] == large and "*__rbln_kept[2:]" in SITE[2]["vars"]["__rbln_failures"]
    reboot = [one["name"] for one in tasks if one["name"].startswith("Reboot | ")]
    at = reboot.index("Reboot | Observe again")
    assert reboot[at : at + 3] == [
        "Reboot | Observe again",
        "Reboot | Stop where nothing was observed",
        "Reboot | Plan for the kernel that runs now",
    ]
    core = [one for one in tasks if any(key.rpartition(".")[2] in REACHING for key in one if "." in key)]
    assert len(core) >= 8
    soft = [one for one in core if one.get("failed_when") is False and one.get("ignore_unreachable") is True]
    assert [one["name"] for one in core if one not in soft] == []
    failing = [one for one in tasks if {"ansible.builtin.fail", "ansible.builtin.assert"} & set(one)]
    assert failing and [one["name"] for one in failing if "_fail | default(true) | bool" not in str(one["when"])] == []
    set_here = {name for one in tasks for name in one.get("ansible.builtin.set_fact", {})}
    assert {name for name in kept if name.endswith("_failed")} <= set_here
    assert set(kept) <= set_here | {one.get("register") for one in tasks}
    includes = [one for one in SITE[2]["tasks"][1]["block"] if "ansible.builtin.include_role" in one]
    assert [one["name"] for one in includes] == ["Driver", "Container toolkit", "Validation"]
    for one in includes:
        assert one["ansible.builtin.include_role"]["apply"]["when"] == "__rbln_failures | length == 0"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, []),
        ({"rbln_driver_change": {"error": ""}, "rbln_driver_proof": {"passed": True, "msg": "x"}}, []),
        # Of the ready files; what had failed is the cause.
        ({"rbln_driver_change": {"error": "no build"}, "__rbln_failures": [{"task": "y", "msg": "lost"}]},
         ["no build", "lost"]),
        ({"__rbln_failures": [{"task": "y", "msg": "lost"}], "rbln_driver_change": {"skipped": True}}, ["lost"]),
        ({"rbln_validator_proof": {"passed": False, "msg": "no NPU"}}, ["no NPU"]),
    ],
)  # fmt: skip
def test_the_cause_is_the_first_of_what_has_failed_on_a_host(given: dict[str, Any], told: list[str]) -> None:
    errors = value(SITE[2]["vars"]["__rbln_errors"], **{"__rbln_failures": [], **given})
    assert [one["msg"] for one in errors] == told
    # The screen of the plan has foretold it.
    assert [one["msg"] for one in errors if one.get("proof")] == [text for text in told if text == "no NPU"]


CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"
# What a host of the real play would have been planned to get.
PLANNED = {"wanted": {"rbln_driver_ca_cert": "CA"}, "roles": ["driver", "container_toolkit"], "acts": {"driver": []}}


def played(folder: Path, hosts: dict[str, Any], **more: str) -> str:
    """What ansible-playbook says of the file site.yml in the folder, which fails; `more` is of its environment."""
    (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))
    names = ("HOME", "LANG", "LC_ALL", "PATH", "TMPDIR")
    settings = {name: os.environ[name] for name in names if name in os.environ}
    settings.update(ANSIBLE_COLLECTIONS_PATH=str(ROOT.parents[2]), ANSIBLE_NOCOLOR="true", COLUMNS="120", **more)
    argv = [sys.executable, "-m", "ansible", "playbook", "-i", "hosts.json", "site.yml"]
    done = subprocess.run(argv, cwd=folder, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_restart_that_sudo_fails_is_rolled_back_and_both_causes_are_said(tmp_path: Path) -> None:
    """Where Ansible itself fails, ansible-core 2.16 does not ask failed_when, so that the rollback was left out.

    Beside it a host that is lost while it is given a certificate: no command on it helps.
    """
    sudo = tmp_path / "sudo"
    sudo.write_text("#!/bin/sh\nexit 1\n")
    sudo.chmod(0o755)
    play, result = copy.deepcopy(SITE[2]), SITE[-1]
    block = play["tasks"][1]["block"][1:]
    block[0]["ansible.builtin.include_role"]["tasks_from"] = "trust"
    block[1]["ansible.builtin.include_role"]["tasks_from"] = "restart"
    plays = [{**play, "hosts": "all"}, {**result, "hosts": "all"}]
    plays[0]["tasks"] = [{**play["tasks"][1], "block": [block[0], block[1], block[-1]]}]
    (tmp_path / "site.yml").write_text(yaml.safe_dump(plays, sort_keys=False))
    runtimes = {"runtimes": [{"name": "docker", "restart_unit": "no-unit"}], "selected": ["docker"]}
    observed = {"ansible_facts": {"rbln_runtimes": runtimes, "rbln_observed": {}}}
    plan = {"roles": ["container_toolkit"], "acts": {"container_toolkit": ["runtime"]}, "observation": observed}
    host = {
        "ansible_connection": "local", "ansible_python_interpreter": sys.executable,
        "ansible_become_exe": str(sudo), "ansible_become_password": "x", "__rbln_container_toolkit_unit": "no-unit",
        "rbln_preflight_plan": {**plan, "wanted": {"rbln_container_toolkit_restart_timeout": 5}},
    }  # fmt: skip
    wrote = {**host, "__rbln_container_toolkit_config": {"files": ["/etc/docker/daemon.json"]}}
    nothing = {**host, "__rbln_container_toolkit_config": {"files": []}}
    (tmp_path / "ca.pem").write_text(CERTIFICATE)
    lost = {
        "ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9, "__rbln_driver_ca_directory": "/x",
        "__rbln_driver_ca_built": "/x", "__rbln_driver_ca_command": "update-ca-trust",
        "rbln_preflight_plan": {"roles": ["driver"], "wanted": {"rbln_driver_ca_cert": str(tmp_path / "ca.pem")}},
    }  # fmt: skip
    hosts = {"wrote": wrote, "nothing": nothing, "lost": lost}
    out = played(tmp_path, hosts, ANSIBLE_BECOME_ALLOW_SAME_USER="true")
    last = dict(re.findall(r"^fatal: \[([^\]]+)\]: (.*)$", out[out.index("5 Result") :], re.M))
    assert sorted(last) == ["lost", "nothing", "wrote"], out
    assert "Next: correct its address" in last["lost"] and "update-ca-trust" not in last["lost"], last
    for said in (last["wrote"], last["nothing"]):
        assert "no-unit did not start with the new configuration. " in said and said.count("Next: ") == 1, said
    assert "This run wrote none of it" in last["nothing"], last
    assert "What this run wrote could not be rolled back: " in last["wrote"], out


def test_ansible_says_what_failed_on_a_host_and_which_is_lost_once_at_the_end(tmp_path: Path) -> None:
    """The plays of site.yml as they are, but for the roles: a module of Ansible fails, and then a batch is lost."""
    (tmp_path / "ca.pem").write_text(CERTIFICATE)
    hosts, result = copy.deepcopy(SITE[2]), SITE[-1]
    # The first of them leaves the cluster: these hosts have none.
    block = hosts["tasks"][1]["block"][1:]
    for one, tasks in ((block[0], "trust"), (block[1], "act")):
        one["ansible.builtin.include_role"]["tasks_from"] = tasks
    # Never reached: its template is wrong.
    after = {"name": "After it", "ansible.builtin.debug": {"msg": "{{ nowhere.at.all }}"}, "when": block[1]["when"]}
    plays = [{**hosts, "hosts": "all", "serial": 1}, {**result, "hosts": "all"}]
    plays[0]["tasks"] = [hosts["tasks"][0], {**hosts["tasks"][1], "block": [block[0], block[1], after, block[-1]]}]
    (tmp_path / "site.yml").write_text(yaml.safe_dump(plays, sort_keys=False))
    planned = {**PLANNED, "wanted": {"rbln_driver_ca_cert": str(tmp_path / "ca.pem")}}
    local = {
        "ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False,
        "__rbln_driver_ca_directory": str(tmp_path), "__rbln_driver_ca_built": str(tmp_path / "built.crt"),
        "__rbln_driver_ca_command": "ls %s" % (tmp_path / "nowhere"), "rbln_preflight_plan": planned,
    }  # fmt: skip
    away = {
        "ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9,
        "rbln_preflight_plan": {
            **planned, "roles": ["container_toolkit"], "acts": {"container_toolkit": []},
            "observation": {"ansible_facts": {"rbln_observed": {"containers": []}}},
        },
    }  # fmt: skip
    # One part left out: what all parts need stays, or the failures would be lost.
    out = played(tmp_path, {"broken": local, "lost-1": away, "lost-2": away}, ANSIBLE_SKIP_TAGS="validate")
    red = dict(re.findall(r"^fatal: \[([^\]]+)\]: (.*)$", out, re.M))
    assert out.count("fatal: [") == len(red) == 3, out
    assert "broken does not trust" in red["broken"] and "No such file" in red["broken"], red["broken"]
    assert "Next: run `ls " in red["broken"]
    for name in ("lost-1", "lost-2"):
        assert "%s cannot be reached: " % name in red[name] and "port 9" in red[name], red[name]
    assert out.index("5 Result") < out.index("fatal: [") and "nowhere.at" not in out, out
    # What the failure had been about was not done.
    assert not (tmp_path / "built.crt").exists() and (tmp_path / "rebellions-npu.crt").read_text() == CERTIFICATE


def test_a_host_that_the_budget_leaves_alone_is_in_no_later_part_and_fails() -> None:
    hosts, cluster, result = SITE[-3:]
    group = hosts["tasks"][0]["ansible.builtin.group_by"]["key"]
    acting = [*hosts["tasks"][1:], *(task for task in cluster["tasks"] if "ansible.builtin.include_role" in task)]
    assert len(acting) == 3 and [task["name"] for task in acting if group not in str(task["when"])] == []
    (told,) = result["tasks"]
    assert "ansible.builtin.fail" in told and group in told["vars"]["__rbln_why"]
    text = told["vars"]["__rbln_left_alone"]
    assert "rbln_failure_budget is" in text and " Next: " in text


@pytest.mark.parametrize(
    ("budget", "failed", "stops"),
    [(None, 0, False), ("", 0, False), ("", 3, False), (2, 1, False), ("2", 2, True), (1, 1, True)],
)
def test_an_empty_budget_stops_no_rollout(budget: Any, failed: int, stops: bool) -> None:
    """The empty answer of a survey is nothing, which ansible-core 2.16 makes empty text of: it stopped every run."""
    conditions = SITE[2]["tasks"][0]["when"]
    given = {"rbln_failure_budget": budget, "__rbln_budget": budget, "__rbln_failed": [{}] * failed}
    assert len(conditions) == 3 and all(value("{{ %s }}" % one, **given) for one in conditions) is stops


def test_a_host_on_which_nothing_is_to_be_done_costs_no_process_after_its_plan() -> None:
    """A skipped task forks one; a budget is counted by a task of every host."""
    ended = {play["name"]: play["pre_tasks"] for play in SITE if "pre_tasks" in play}
    assert sorted(ended) == ["3 Hosts", "5 Result"]
    assert all([task["ansible.builtin.meta"] for task in tasks] == ["end_host"] for tasks in ended.values())
    assert ended["3 Hosts"][0]["when"] == [
        "rbln_failure_budget is not defined",
        "(rbln_preflight_plan | default({})).roles | default(['not planned']) | length == 0",
        # Its node may still be out of service.
        "not __rbln_goes | bool",
    ]
    (meta,), (told,) = ended["5 Result"], SITE[-1]["tasks"]
    assert meta["when"] == "__rbln_why | length == 0" and meta["vars"] == told["vars"]


def test_an_unchanged_host_has_three_tasks_and_two_metas() -> None:
    """A task costs a process for each host. What one host does for all of them, and what is imported, is left out."""
    roles = {"rbln_discover": ["observe.yml"], "rbln_preflight": ["main.yml"], "rbln_operands": ["check.yml"]}
    texts = [(ROOT / "roles" / role / "tasks" / name).read_text() for role, names in roles.items() for name in names]
    assert [role["name"] for role in roles_of(SITE_PATH)[1:4]] == ["rebellions.npu.%s" % role for role in roles]
    assert len([task for text in texts for task in yaml.safe_load(text) if not task.get("run_once")]) == 3
    parts = [task for play in SITE for task in (*play.get("pre_tasks", ()), *play["tasks"])]
    assert len([task for task in parts if "ansible.builtin.meta" in task]) == 2


def test_a_part_that_is_skipped_takes_nothing_with_it_that_all_parts_need() -> None:
    """Ansible skips a task that has any of the tags: a node would not be drained, a failure not be told."""
    (pre,), (budget, change) = SITE[2]["pre_tasks"], SITE[2]["tasks"]
    back, record = change["always"]
    parts = [*change["block"], *change["rescue"], back, *back["block"], *back["rescue"], record]
    tags = {one["name"]: one["tags"] for one in (pre, budget, *parts)}
    roles = {"Driver": "driver", "Container toolkit": "toolkit", "Validation": "validate"}
    assert len(tags) == 12 and tags == {name: [roles.get(name, "always")] for name in tags}
    applied = {one["name"]: one["ansible.builtin.include_role"]["apply"]["tags"] for one in parts if len(one) > 3
               and "ansible.builtin.include_role" in one}  # fmt: skip
    assert len(applied) == 3 and applied == {name: tags[name] for name in applied}


def test_what_the_hosts_of_a_rollout_share_is_read_once() -> None:
    """Ansible reads a role that is included for each host, keeps all of them in the play, and gives them to each task:
    with the hosts grew what the next one costs."""
    change = SITE[2]["tasks"][1]
    ours = [one for one in (*change["block"], *change["always"][0]["block"]) if "rbln_rollout" in str(one)]
    assert [one["ansible.builtin.import_role"]["tasks_from"] for one in ours] == ["leave", "return"]


def test_what_fails_after_a_node_is_back_is_told_once_at_the_end() -> None:
    """A host that fails in `always` has left the play, and the last play says nothing of it."""
    change = SITE[2]["tasks"][1]
    back = change["always"][0]
    (returned,), (kept,), (first,) = back["block"], back["rescue"], change["rescue"]
    assert returned["ansible.builtin.import_role"]["tasks_from"] == "return"
    assert kept["ansible.builtin.set_fact"] == first["ansible.builtin.set_fact"] and kept["vars"] == first["vars"]


def test_only_where_no_role_follows_does_a_plan_without_steps_leave_out_its_observation() -> None:
    """The removal reads it after it has observed again; the roles of site run on hosts with steps alone."""
    assert SITE[1]["vars"] == {"__rbln_preflight_brief": True} and BRIEF in SITE[1]["vars"]
    assert [path.stem for path in PLAYBOOKS if BRIEF in path.read_text(encoding="utf-8")] == ["site"]
    includes = [one for one in SITE[2]["tasks"][1]["block"] if "ansible.builtin.include_role" in one]
    # The one that only leaves the cluster reads what was observed.
    assert [" in rbln_preflight_plan.roles" in str(one["when"]) for one in includes] == [True] * 3


def test_a_host_is_planned_after_it_is_in_its_pool() -> None:
    """Before that, the variables of its pool do not apply: a plan in the play that observes would be wrong."""
    observing, planning = SITE[:2]
    assert [role["name"].rpartition(".")[2] for role in roles_of(SITE_PATH)[:3]] == [
        "rbln_preflight",
        "rbln_discover",
        "rbln_preflight",
    ]
    folder = ROOT / "roles" / "rbln_discover" / "tasks"
    files = [task["ansible.builtin.import_tasks"] for task in yaml.safe_load((folder / "main.yml").read_text())]
    discover = [task for file in files for task in yaml.safe_load((folder / file).read_text(encoding="utf-8"))]
    # The observation puts the host into its pool: a task of its own would cost a process for each host.
    assert [key for task in discover for key in task if "." in key] == ["rebellions.npu.rbln_observe"]
    assert discover[0]["rebellions.npu.rbln_observe"]["into_pool"] is True and discover[0]["changed_when"] is False
    assert "rbln_plan" not in str(observing) + str(discover) and planning["name"] == "2 Preflight"


def test_check_mode_shows_the_plan_where_a_cluster_refuses_it_and_fails_after_that() -> None:
    cluster, result = SITE[-2:]
    (shown,) = [task for task in cluster["tasks"] if task["name"] == "Show the plan"]
    assert "rebellions.npu.rbln_plan_show" in shown and shown["when"] == "ansible_check_mode"
    assert cluster["vars"]["__rbln_operands_fail"] == "{{ not ansible_check_mode }}"
    assert "rbln_operands_result.msg" in result["tasks"][0]["vars"]["__rbln_why"]


def value(expression: str, **given: Any) -> Any:
    return Templar(loader=DataLoader(), variables=given).template(trust_as_template(expression))


@pytest.mark.parametrize("book", ["report", "drift"])
def test_a_report_keeps_all_earlier_ones_when_it_is_told_to(book: str) -> None:
    (play, *_more) = yaml.safe_load((ROOT / "playbooks" / f"{book}.yml").read_text())
    (one,) = [one for one in play["tasks"] if "keep" in one.get(REPORT, {})]

    assert one["vars"] == {
        "__rbln_keep": "{{ rbln_report_keep | default('') | rebellions.npu.typed_input('rbln_report_keep') }}"
    }

    def kept(given: Any) -> str:
        # The filter itself: nothing loads filters of collections here.
        return str(value(one[REPORT]["keep"], __rbln_keep=typed_input("rbln_report_keep", given), omit="left out"))

    assert [kept(given) for given in (0, "0", 7)] == ["0", "0", "7"]
    # A survey of AWX gives an empty text where nothing was answered.
    assert not {kept(given) for given in ("", None)} & {"", "None", "0"}


def test_the_cluster_part_passes_over_a_host_that_the_rollout_left_as_it_is() -> None:
    """Its plan is still to be done, so it is not proven, and the gates of a node that works would be closed."""
    cluster = SITE[-2]
    planned = cluster["vars"]["__rbln_as_planned"]
    left = "__rbln_rollout_left"
    assert value(planned) is True and value(planned, **{left: {"goes": True}}) is True
    assert value(planned, **{left: {"goes": False}}) is False
    includes = [one for one in cluster["tasks"] if "ansible.builtin.include_role" in one]
    assert ["__rbln_as_planned | bool" in one["when"] for one in includes] == [True, True]


def test_a_node_that_a_workload_has_proven_before_its_uncordon_is_not_asked_for_an_npu_again() -> None:
    """Pods that came back to it since may hold all of them."""
    (smoke,) = [one for one in SITE[-2]["tasks"] if one["name"] == "Prove that a workload runs on each node"]
    (once,) = [text for text in smoke["when"] if "rbln_operands_smoke_result" in text]
    found = [{}, {"skipped": True}, {"ok": False}, {"ok": True}]
    assert [value("{{ %s }}" % once, rbln_operands_smoke_result=one) for one in found] == [True, True, True, False]
    assert value("{{ %s }}" % once) is True


def task(role: str, file: str, name: str) -> dict[str, Any]:
    path = ROOT / "roles" / role / "tasks" / (file + ".yml")
    (found,) = [one for one in yaml.safe_load(path.read_text(encoding="utf-8")) if one["name"].endswith(name)]
    return dict(found)


@pytest.mark.parametrize(
    ("dry", "roles", "unrepaired", "file"),
    [
        (False, ["driver", "validator"], [], "prove"),
        (True, ["driver", "validator"], [], "pending"),
        # What no step repairs is known now: the proof fails for it in check mode too.
        (True, ["driver", "validator"], ["device_status"], "prove"),
        (True, ["validator"], [], "prove"),
        # Tags leave the driver out: what the proof says is known.
        (True, ["driver", "validator", "left out"], [], "prove"),
    ],
)
def test_check_mode_fails_a_host_whose_proof_no_step_can_help(
    dry: bool, roles: list[str], unrepaired: list[str], file: str
) -> None:
    proof = task("rbln_validator", "main", "where the observation is no proof")
    plan = {"roles": roles, "unrepaired": unrepaired, "options": {"blocking": ["error"], "timeout": 5.0}}
    given: dict[str, Any] = {"ansible_check_mode": dry, "rbln_preflight_plan": plan}
    given.update({name: trust_as_template(text) for name, text in proof["vars"].items()})
    given.update({} if "left out" in roles else {"rbln_driver_change": {}})
    assert value(proof["ansible.builtin.include_tasks"], **given) == file + ".yml"
    blocking = given["__rbln_validator_blocking"] = value(given["__rbln_validator_blocking"], **given)
    assert blocking == (unrepaired if dry and "left out" not in roles else ["error"])
    asked = task("rbln_validator", "prove", "Prove the host and write the ready files")
    options = asked["rebellions.npu.rbln_validate"]["options"]
    assert value(options, **given)["blocking"] == blocking
    # The playbook validate does no step, so every check counts there.
    del given["__rbln_validator_blocking"]
    assert value(options, **given) == {"blocking": ["error"], "timeout": 5.0}
    for role, file_of, name in (
        ("rbln_driver", "change", "Look at the result"),
        ("rbln_container_toolkit", "act", "Prove the toolkit"),
    ):
        (condition,) = [one for one in task(role, file_of, name)["when"] if "ansible_check_mode" in one]
        assert value("{{ %s }}" % condition, **given) is (not dry or bool(unrepaired))


@pytest.mark.parametrize(
    ("dry", "driver", "acts", "removes"),
    [
        (True, {}, ["hold"], True),
        # The change of the driver has removed the file before, which check mode only foretells.
        (True, {}, ["install", "hold"], False),
        (True, None, ["install"], True),
        (False, {}, ["install"], True),
    ],
)
def test_check_mode_foretells_the_end_of_a_ready_file_once(
    dry: bool, driver: Any, acts: list[str], removes: bool
) -> None:
    given = {"ansible_check_mode": dry, "rbln_preflight_plan": {"acts": {"driver": acts}}}
    given.update({} if driver is None else {"rbln_driver_change": driver})
    condition = task("rbln_container_toolkit", "act", "Take the toolkit's ready file away")["when"]
    assert value("{{ %s }}" % condition, **given) is removes


def roles_of(path: Path) -> list[dict[str, Any]]:
    """The imports and includes of roles in the plays, in their order."""
    plays = yaml.safe_load(path.read_text(encoding="utf-8"))
    inner = [play["ansible.builtin.import_playbook"] for play in plays if "ansible.builtin.import_playbook" in play]
    if inner:
        return [role for name in inner for role in roles_of(path.parent / name)]
    tasks = [task for play in plays for task in play.get("tasks") or []]
    flat = [inner for task in tasks for inner in task.get("block") or [task]]
    return [task[key] for task in flat for key in task if key.endswith(("import_role", "include_role"))]


@pytest.mark.parametrize("path", PLAYBOOKS, ids=lambda path: path.stem)
def test_names_are_judged_in_every_playbook_and_values_by_our_own_judge(path: Path) -> None:
    """Ansible's judge of a role's arguments refuses the empty text of a survey."""
    if path.stem == "awx":
        # It reads no input of a role, and works on no host of the inventory.
        assert {play["hosts"] for play in yaml.safe_load(path.read_text())} == {"localhost"}
        return
    roles = roles_of(path)
    if path.stem == "report":
        # It reads no input of a role either, and reports also what a run with wrong inputs has left.
        assert roles == []
        return
    assert [role for role in roles if role.get("tasks_from") == "inputs"] != []
    # Only tasks/main.yml has a spec that Ansible would judge by.
    judged = [role for role in roles if "tasks_from" not in role]
    assert judged and [role for role in judged if role.get("rolespec_validate") is not False] == []


def test_a_role_in_a_role_is_not_judged_by_ansible_either() -> None:
    """After a reboot the plan is made again, and the inputs are those of the survey."""
    found = []
    for path in (ROOT / "roles").glob("*/tasks/*.yml"):
        for task in yaml.safe_load(path.read_text(encoding="utf-8")):
            inner = [*task.get("block", []), *task.get("rescue", []), task]
            found += [one[key] for one in inner for key in one if key.endswith(("import_role", "include_role"))]
    assert len(found) >= 8 and [role for role in found if role.get("rolespec_validate") is not False] == []
