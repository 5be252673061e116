# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the screen of the plan is written, by the real ansible-playbook; and what is taken from which record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.rebellions.npu.plugins.action.rbln_plan_show import _clusters, _host_plan, _registered
from ansible_collections.rebellions.npu.plugins.plugin_utils._inputs.roles import COLLECTION

BOOK = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.set_fact:
        rbln_preflight_plan: {steps: [], stops: [], cautions: []}
    - name: Show the plan
      rebellions.npu.rbln_plan_show: {format: "{{ form | default('text') }}"}
      run_once: true
"""
TITLE = "Plan for 2 hosts"
STEP = {"id": "driver.load", "role": "driver", "component": "driver", "now": "not loaded", "wanted": "3.2.2",
        "disruption": "none", "reason": "", "after": "", "vendor": "rebellions"}  # fmt: skip


def show(tmp_path: Path, *argv: str, book: str = BOOK, **settings: str) -> str:
    """What ansible-playbook writes to stdout."""
    (tmp_path / "book.yml").write_text(book)
    program = [sys.executable, "-m", "ansible", "playbook", "-i", "n1,n2,", "book.yml", *argv]
    # Only what a program needs: a test runner may point Ansible at modules of its own.
    env = {name: os.environ[name] for name in ("HOME", "LANG", "LC_ALL", "PATH", "TMPDIR") if name in os.environ}
    env.update(ANSIBLE_COLLECTIONS_PATH=str(COLLECTION.parents[2]), **settings)
    done = subprocess.run(program, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_people_see_the_screen_without_colours_where_there_is_no_terminal(tmp_path: Path) -> None:
    lines = show(tmp_path).splitlines()
    assert lines.count(TITLE) == 1 and "2 hosts: n1, n2" in lines and "Hosts: 0 to change, 2 as wanted." in lines


def test_colours_are_those_of_ansible(tmp_path: Path) -> None:
    out = show(tmp_path, ANSIBLE_FORCE_COLOR="true", ANSIBLE_COLOR_OK="bright green")
    assert "\x1b[1;32m  nothing to do\x1b[0m" in out


def test_a_callback_for_programs_writes_alone(tmp_path: Path) -> None:
    out = show(tmp_path, ANSIBLE_STDOUT_CALLBACK="ansible.builtin.minimal")
    assert TITLE not in out.splitlines() and '"%s"' % TITLE in out
    first, _change, rest = out.partition("n1 | SUCCESS => ")
    assert TITLE not in first and rest


def test_json_when_it_is_asked_for_is_a_result_and_no_screen(tmp_path: Path) -> None:
    out = show(tmp_path, "-e", "form=json")
    assert TITLE not in out
    told = json.loads(out.partition("ok: [n1] => ")[2].partition("\n\n")[0])
    assert sorted(told["plan"]["hosts"]) == ["n1", "n2"] and told["plan"]["totals"]["unchanged"] == 2


def test_the_waves_are_shown_below_the_plan(tmp_path: Path) -> None:
    told = {
        "waves": [[{"host": "n1"}]],
        "seconds": None,
        "pace": [],
        "lines": [["Rollout of 1 host in 1 wave", "title"]],
    }
    cut = {"rbln_rollout_plan": {"table": json.dumps(told)}}
    book = yaml.safe_load(BOOK)
    book[0]["tasks"].insert(0, {"ansible.builtin.set_fact": cut})
    text = yaml.safe_dump(book)
    lines = show(tmp_path, book=text).splitlines()
    assert lines.index("Rollout of 1 host in 1 wave") > lines.index("Hosts: 0 to change, 2 as wanted.")
    found = json.loads(show(tmp_path, "-e", "form=json", book=text).partition("ok: [n1] => ")[2].partition("\n\n")[0])
    assert found["plan"]["rollout"] == {"waves": [[{"host": "n1"}]], "seconds": None, "pace": []}
    # A host that it leaves alone is not to change.
    told["left"] = {"n1": "was cordoned by someone else"}
    step = {**cut, "rbln_preflight_plan": {"steps": [STEP], "stops": [], "cautions": []}}
    step["rbln_rollout_plan"] = {"table": json.dumps(told)}
    book[0]["tasks"][:2] = [{"ansible.builtin.set_fact": step}]
    lines = show(tmp_path, book=yaml.safe_dump(book)).splitlines()
    assert "  LEFT  Its node was cordoned by someone else." in lines
    assert "Hosts: 1 to change, 0 as wanted, 1 left as they are." in lines
    # What stops it is shown too, and fails nothing here.
    book[0]["tasks"][0] = {"ansible.builtin.set_fact": {"rbln_rollout_plan": {"msg": "No. Next: Do."}}}
    assert "STOP  No. Next: Do." in show(tmp_path, book=yaml.safe_dump(book)).splitlines()


def test_facts_are_no_records() -> None:
    forged = {"steps": [], "stops": [], "cautions": []}
    seen = {"rbln_preflight_plan": forged, "ansible_facts": {"rbln_preflight_plan": forged}}
    assert _registered(seen) == {}
    assert _registered({"rbln_preflight_plan": forged}) == {"rbln_preflight_plan": forged}


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({}, "The host was not planned. Next: read its error above."),
        ({"rbln_preflight_plan": {"failed": True, "msg": "Wrong. Next: Correct it."}}, "Wrong. Next: Correct it."),
    ],
)
def test_a_host_without_a_plan(said: dict[str, t.Any], error: str) -> None:
    assert _host_plan("n1", said, {}).error == error


def test_what_failed_in_check_mode_after_the_plan_is_a_stop() -> None:
    plan = {"steps": [], "stops": [], "cautions": [], "wanted": {"rbln_driver_reboot": "if_required"}}
    told = _host_plan("n1", {"rbln_preflight_plan": plan, "rbln_failure": {"task": "Driver", "msg": "It broke."}}, {})
    assert [(item["code"], item["detail"]) for item in told.stops] == [("Driver", "It broke.")]
    assert told.reboot == "if_required"
    # The plan has said already that the proof fails, and what is done before that.
    plan["unrepaired"] = ["device_status"]
    failure: dict[str, t.Any] = {"task": "Container toolkit", "proof": True, "msg": "1 check failed."}
    assert _host_plan("n1", {"rbln_preflight_plan": plan, "rbln_failure": failure}, {}).stops == []
    # Not that the change before it will be refused.
    failure = {"task": "Driver", "msg": "The NPUs are in use."}
    told = _host_plan("n1", {"rbln_preflight_plan": plan, "rbln_failure": failure}, {})
    assert [item["detail"] for item in told.stops] == ["The NPUs are in use."]


def test_a_run_of_some_tags_shows_their_steps_alone() -> None:
    steps = [{"id": "driver.install", "role": "driver"}, {"id": "validator.markers", "role": "validator"}]
    plan = {"steps": steps, "stops": [], "cautions": []}
    for run, skip, roles in (
        (["all"], [], ["driver", "validator"]),
        (["operands"], [], []),
        (["driver", "operands"], [], ["driver"]),
        (["all"], ["validate"], ["driver"]),
        (["tagged"], [], ["driver", "validator"]),
    ):
        told = _host_plan("n1", {"rbln_preflight_plan": plan}, {"ansible_run_tags": run, "ansible_skip_tags": skip})
        assert [step["role"] for step in told.steps] == roles, run


def member(cluster: str, mark: str = "") -> dict[str, t.Any]:
    return {"__rbln_operands_member": {"member": {"cluster": cluster, "mark": mark}}}


def test_clusters_are_those_of_the_members_and_errors_those_of_the_hosts() -> None:
    record = {"node": "n1", "changed": True, "before": {}, "after": {"a": "b"}}
    work = {"objects": {"DaemonSet x/y": "created"}, "nodes": {"n1": record}, "warnings": ["w"]}
    judged = {"rbln_operands_result": {"ok": False, "msg": "n2: no node.", "result": {"ok": False}}}
    found = _clusters(
        {
            "n1": {**member("c"), "__rbln_operands_applied": work},
            "n2": {**member("c"), **judged, "__rbln_operands_applied": {"skipped": True}},
            "n3": member("c", "another login"),
            "n4": member(""),
            "n5": {"__rbln_operands_member": {"failed": True, "msg": "No kubeconfig."}},
        }
    )
    assert [cluster.name for cluster in found] == ["c", "c (2)", "that is not known"]
    assert (found[0].objects, found[0].errors, found[0].warnings) == (work["objects"], {"n2": "n2: no node."}, ["w"])
    assert found[0].relabelled == [record] and found[2].errors == {"n5": "No kubeconfig."}
