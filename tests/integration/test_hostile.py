# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host answers what it wants: it fails alone, with one clear error, and nothing of it reaches the controller."""

from __future__ import annotations

import copy
import hashlib
import json
import re
import typing as t
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._host.unpacked import MARK

from tests.integration._hostile import Data, Hostile
from tests.integration._play import STAGED
from tests.tools.paths import OLD_VENV, VENV

pytestmark = pytest.mark.usefixtures("staged")

CORES = [pytest.param(VENV, id="newest"), pytest.param(OLD_VENV, id="oldest")]
# What a terminal obeys or a reader does not see, as it may stand in the output of a program.
HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
ESCAPES = "\x1b[31mred\x1b]0;title\x07 \x9b2J\x7f\u202egpj\u2028\r\x08\x00"


def at(data: Data, path: str, value: t.Any) -> Data:
    """A copy of an answer with one value replaced; numbers in the path are places in lists."""
    found = copy.deepcopy(data)
    *way, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    inner: t.Any = found
    for part in way:
        inner = inner[part]
    inner[last] = value
    return found


def trap(control: Hostile) -> str:
    """A template that leaves a file beside the home directory when it is rendered."""
    return "{{ lookup('ansible.builtin.pipe', 'touch %s') }}" % (control.folder / "rendered")


WRONG: dict[str, tuple[str, t.Any, str]] = {
    "path": ("ansible_facts/rbln/os/id", "../../../../tmp/evil", "ansible_facts.rbln.os.id"),
    "template": ("ansible_facts/rbln/os/version_id", "{{ 7 * 7 }}", "ansible_facts.rbln.os.version_id"),
    "pool": ("ansible_facts/rbln/pool_key", "x\ny", "ansible_facts.rbln.pool_key"),
    "long": ("ansible_facts/rbln/pool_key", "x" * 201, "ansible_facts.rbln.pool_key"),
    "type": ("ansible_facts/rbln/npus", "none", "ansible_facts.rbln.npus"),
    "many": ("ansible_facts/rbln/npus", [{}] * 5000, "ansible_facts.rbln.npus"),
    "fact": ("ansible_facts/rbln_driver_runfile", "/etc/shadow", "ansible_facts.rbln_driver_runfile"),
    "connection": ("ansible_facts/ansible_connection", "local", "ansible_facts.ansible_connection"),
    "facts": ("ansible_facts", ["rbln"], ""),
    "missing": ("ansible_facts", {}, "ansible_facts.rbln"),
    "stats": ("ansible_stats", {"data": {"x": 1}, "per_host": False, "aggregate": True}, ""),
    "number": ("ansible_facts/rbln/counts/usable", 10**400, "ansible_facts.rbln.counts.usable"),
    "infinity": ("ansible_facts/rbln/npus/0/link/speed_gts", float("inf"), "speed_gts"),
    "deep": ("ansible_facts/rbln_observed/checks/0/evidence", {"a": [[[[[[[[[[[[[[1]]]]]]]]]]]]]]}, "evidence"),
}


@pytest.mark.parametrize("venv", CORES)
def test_a_wrong_answer_fails_its_host_alone(tmp_path: Path, venv: Path) -> None:
    control = Hostile(tmp_path, ["good", *WRONG], venv)
    for host, (path, value, _where) in WRONG.items():
        control.answer(host, "rbln_observe", at(control.good, path, value))
    before = control.files()
    run = control.play("discover", "-vvv", callback="ansible.builtin.default")
    told = run.out + run.err
    assert "Traceback" not in told and control.files() == before
    run = control.play("discover")
    assert run.one("Show the hosts", "good").state == "ok" and sorted(run.stats) == sorted(["good", *WRONG])
    assert {one.host for one in run.failed()} == set(WRONG)
    for host, (_path, _value, where) in WRONG.items():
        (failed,) = run.failed(host)
        assert failed.task.endswith("Observe the host"), host
        assert "%s answered rbln_observe with a wrong value: " % host in failed.msg and where in failed.msg, failed.msg
        assert failed.msg.count("Next: ") == 1 and len(failed.msg) < 600, failed.msg
    assert control.files() == before


def test_a_host_tool_that_answers_wrong_is_judged_like_a_module(tmp_path: Path) -> None:
    """The module looks in its place, a warning says why, and what the host says there is no template and clean."""
    control = Hostile(tmp_path, ["wrong", "spoken", "strange", "cut", "noisy"])
    bad = at(control.good, "ansible_facts/rbln/npus", trap(control))
    why = "\x1b[2J%s\nsecond" % trap(control)
    said = {
        "wrong": MARK + json.dumps({"answer": bad}),
        "spoken": MARK + json.dumps({"unfit": "changeable", "why": why}),
        "strange": MARK + json.dumps({"unfit": "../x", "why": ["y"]}),
        "cut": (MARK + json.dumps({"answer": bad}))[:60],
        "noisy": "\x1b]0;title\x07Welcome\n" + MARK + "{}\n",
    }
    for host, text in said.items():
        control.answer(host, "look", text)
    before = control.files()
    run = control.play("discover")
    assert run.code == 0 and control.files() == before, run.out[-2000:] + run.err[-1000:]
    told = {host: " ".join(run.one("Observe the host", host).data["warnings"]) for host in said}
    assert all(text.startswith("The host tool of %s was not used" % host) for host, text in told.items()), told
    assert "answered rbln_observe with a wrong value: " in told["wrong"], told
    assert "observation: %s second. Next: Make it root's" % trap(control) in told["spoken"], told
    assert (
        "['y']" in told["strange"] and "cut short" in told["cut"] and "Welcome' before the answer" in told["noisy"]
    ), told
    assert all(control.asked(host) == ["rbln_observe"] for host in said)
    assert not HIDDEN.search(run.out + run.err) and not (control.folder / "rendered").exists()


MEMBER = """
- hosts: npu_nodes
  gather_facts: false
  tasks:
    - name: Observe
      ansible.builtin.include_role: {name: rebellions.npu.rbln_discover}
      when: observe
    - name: Plan with what was registered in another run
      rebellions.npu.rbln_plan:
        observation: {ansible_facts: "{{ ansible_facts }}"}
        support_matrix: []
        fail_on_stops: false
      ignore_errors: true
    - name: Operands
      ansible.builtin.include_role: {name: rebellions.npu.rbln_operands}
    - name: Facts of the host
      ansible.builtin.debug: {msg: "{{ ansible_facts.rbln.npu_count }}"}
"""


@pytest.mark.parametrize("venv", CORES)
def test_facts_of_an_earlier_run_decide_nothing(tmp_path: Path, venv: Path) -> None:
    """A fact cache brings the facts of the run before: they plan nothing, and no cluster hears of them."""
    control = Hostile(tmp_path, ["npu"], venv)
    control.settings = {"ANSIBLE_CACHE_PLUGIN": "jsonfile", "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(tmp_path / "cache")}
    (tmp_path / "member.yml").write_text(MEMBER)
    seen = []
    for observe in (True, False):
        run = control.play(tmp_path / "member.yml", observe=observe, rbln_kubeconfig="")
        member = run.one("Read the inputs of this host", "npu").data["member"]
        # Ansible itself has them in both runs.
        assert run.one("Facts of the host", "npu").msg == "4", run.out + run.err
        plan = run.one("Plan with what was registered in another run", "npu")
        seen.append((member["expected"], member["machine_id"] is None, plan.state, plan.msg))
    assert seen[0][:3] == (4, False, "ok"), seen
    assert seen[1][:3] == (None, True, "failed") and "The observation of npu lacks rbln" in seen[1][3], seen


@pytest.mark.parametrize("venv", CORES)
def test_what_is_registered_of_a_host_and_the_variables_of_its_pool(tmp_path: Path, venv: Path) -> None:
    """They apply to the plan of the run that finds the pool. What has passed is named, and not said again."""
    control = Hostile(tmp_path, ["npu"], venv)
    checks = control.good["ansible_facts"]["rbln_observed"]["checks"]
    pool = "npu_pool_" + control.good["ansible_facts"]["rbln"]["pool_key"]
    variables = tmp_path / "work" / "group_vars"
    variables.mkdir(parents=True)
    (variables / (pool + ".yml")).write_text("rbln_driver_timeout: 77\n")
    run = control.play("plan", rbln_operands_enabled=False)
    seen, planned = run.one("Observe the host", "npu"), run.one("Plan", "npu").data
    assert (seen.state, seen.data["add_group"], seen.data["parent_groups"]) == ("ok", pool, ["npu_pools"])
    assert planned["wanted"]["rbln_driver_timeout"] == 77, run.out
    told = seen.data["ansible_facts"]["rbln_observed"]
    names = [name for found in told["passed_checks"].values() for name in found]
    assert names == [one["name"] for one in checks if one["ok"] is True] and len(names) > 10
    assert [one["name"] for one in told["checks"]] == [one["name"] for one in checks if one["ok"] is not True]
    assert planned["observation"]["ansible_facts"]["rbln_observed"] == told


# Everything that a playbook may do with a fact, in one play that observes and plans.
BOOK = """
- hosts: npu_nodes
  gather_facts: false
  tasks:
    - name: Observe
      ansible.builtin.import_role: {name: rebellions.npu.rbln_discover}
    - name: Plan
      ansible.builtin.import_role: {name: rebellions.npu.rbln_preflight}
      vars: {rbln_preflight_stop: false}
    - name: Keep
      ansible.builtin.set_fact:
        whole: "{{ ansible_facts.rbln }}"
        joined: "{{ 'serial ' ~ ansible_facts.rbln.npus[0].serial ~ ' of ' ~ ansible_facts.rbln.os.pretty }}"
    - name: Include
      ansible.builtin.include_vars: "{{ own }}"
    - name: Show
      ansible.builtin.debug:
        msg: ["{{ whole.npus[0].serial }}", "{{ joined }}", "{{ given }}", "{{ included }}", "{{ groups.all | join }}"]
      vars:
        given: >-
          {{ rbln_discover_observation.ansible_facts.rbln_observed.checks | map(attribute='detail') | first
          | default('every check has passed') }}
    - name: Prove
      rebellions.npu.rbln_validate:
      become: true
    - name: Never
      ansible.builtin.debug: {msg: reached}
"""


@pytest.mark.parametrize("venv", CORES)
def test_text_of_a_host_is_shown_and_never_obeyed(tmp_path: Path, venv: Path) -> None:
    control = Hostile(tmp_path, ["good", "text", "failing", "garbage", "nested", "late"], venv)
    text = ESCAPES + trap(control) + "{% if x %}" + "{{ 7 * 7 }}"
    said = control.good
    for place in (
        "npus/0/serial", "npus/0/uuid", "os/pretty", "hostname", "kernel/cmdline", "probes/pci/detail", "smi/detail",
    ):  # fmt: skip
        said = at(said, "ansible_facts/rbln/" + place, text)
    # Of a check that has passed only its name is kept.
    said = at(said, "ansible_facts/rbln_observed/checks/0/ok", False)
    said = at(said, "ansible_facts/rbln_observed/checks/0/detail", text)
    said = at(said, "ansible_facts/rbln_observed/checks/0/evidence", {"seen": [text]})
    more = {"add_host": {"host_name": "evil", "groups": ["npu_nodes"], "host_vars": {}}} if venv == OLD_VENV else {}
    note = {"msg": text, "version": "9.9.9", "collection_name": "rebellions.npu"}
    control.answer("text", "rbln_observe", {**said, "warnings": [text], "deprecations": [note], **more})
    control.answer("failing", "rbln_observe", {"failed": True, "msg": text, "warnings": [text], "exception": text})
    control.answer("garbage", "rbln_observe", text.encode("utf-8", "surrogatepass") + b"\xff\xfe Traceback (most")
    control.answer("nested", "rbln_observe", '{"ansible_facts": ' + "[" * 50000 + "]" * 50000 + "}")
    for host in ("good", "text", "late"):
        proof = {"checks": [], "passed": True, "state": "passed", "failed_checks": [], "unknown_checks": []}
        control.answer(host, "rbln_validate", {**proof, "changed": False, "changes": [], "ansible_facts": {}})
    control.answer("late", "rbln_validate", {"failed": True, "msg": text, "checks": text})
    book = tmp_path / "work" / "book.yml"
    book.parent.mkdir()
    book.write_text(BOOK)
    before = control.files()
    own = tmp_path / "work" / "own.yml"
    own.write_text('included: "{{ whole.npus[0].serial }}"\n')
    run = control.play(book, "-vvv", callback="ansible.builtin.default", own=str(own))
    assert not HIDDEN.findall(run.out + run.err) and control.files() == before
    run = control.play(book, own=str(own))
    assert not HIDDEN.findall(run.out + run.err) and control.files() == before
    assert {one.host for one in run.of("Never")} == {"good", "text"}
    shown = run.one("Show", "text").data["msg"]
    literal = "{{ lookup('ansible.builtin.pipe'"
    assert all(literal in line and "{{ 7 * 7 }}" in line and "{% if x %}" in line for line in shown[:4]), shown
    assert "red" in shown[0] and "\n" not in shown[0] and "[31m" not in shown[0]
    assert shown[4] == "goodtextfailinggarbagenestedlate"
    assert literal in run.failed("failing")[0].msg
    assert "late answered rbln_validate with a wrong value: checks: " in run.failed("late")[0].msg
    assert all(len(run.failed(host)) == 1 for host in ("failing", "garbage", "nested", "late"))


# {module: its options}: each host runs the one that bears its name.
MODULES: dict[str, Data] = {
    "rbln_driver_facts": {},
    "rbln_runtime_detect": {},
    "rbln_cdi_spec": {},
    "rbln_mok": {},
    "rbln_config_write": {"read": ["/etc/containerd/config.toml"]},
    "rbln_host_tool": {"state": "absent"},
    "rbln_driver_files": {"files": [{"src": "{{ own }}/a.run", "sha256": hashlib.sha256(b"installer").hexdigest()}]},
    "rbln_bundle": {"state": "collected", "folder": "{{ own }}/bundle", "packages": ["gcc"]},
    "rbln_runtime_config": {"state": "absent", "runtimes": {"runtimes": [], "selected": []}},
    "rbln_driver": {"source": "package", "version": "3.2.2", "packages": ["rebellions"]},
}
# An answer with a fault where a controller would have taken it for granted, and what is said of it.
FAULTS: dict[str, tuple[Data, str]] = {
    "rbln_driver_facts": ({"ansible_facts": {"rbln": "x"}}, "ansible_facts.rbln: 'x' is not a mapping"),
    "rbln_runtime_detect": ({"ansible_facts": {"rbln_runtimes": []}}, "ansible_facts.rbln_runtimes: list is not a"),
    "rbln_cdi_spec": ({"path": "/a/../../etc", "problems": []}, "path: '/a/../../etc' is not an absolute path"),
    "rbln_mok": ({"state": "enrolled", "msg": {"a": 1}}, "msg: dict is not text"),
    "rbln_config_write": ({"restored": [], "files": {"../x": {}}}, "files.../x: '../x' is not an absolute path"),
    "rbln_host_tool": ({"changed_paths": "/"}, "changed_paths: '/' is not a list"),
    "rbln_driver_files": ({"files": [], "missing": ["id_rsa"]}, "missing: id_rsa is missing"),
    "rbln_bundle": (
        {"files": [{"path": "../../.ssh/authorized_keys", "size": 1, "sha256": "0" * 64}]},
        "files[0].path: '../../.ssh/authorized_keys' is not a valid text",
    ),
    "rbln_runtime_config": ({"restored": [], "files": {}}, "is missing"),
    "rbln_driver": ({"ansible_job_id": "1; touch x", "results_file": "/x"}, "ansible_job_id: '1; touch x' is not a"),
}


@pytest.mark.parametrize("venv", CORES)
def test_each_module_of_hosts_is_judged(tmp_path: Path, venv: Path) -> None:
    control = Hostile(tmp_path, sorted(FAULTS), venv)
    own = tmp_path / "work"
    own.mkdir()
    (own / "a.run").write_bytes(b"installer")
    for host, (said, _what) in FAULTS.items():
        name = "rbln_config_write" if host == "rbln_runtime_config" else host
        # A change of the driver runs as a job: the first answer is that of the program which starts it.
        control.answer(host, "async_wrapper" if host == "rbln_driver" else name, {"changed": False, **said})
    tasks = [
        {"name": name, "rebellions.npu." + name: options, "when": "inventory_hostname == '%s'" % name}
        for name, options in MODULES.items()
    ]
    book = own / "book.yml"
    book.write_text(json.dumps([{"hosts": "npu_nodes", "gather_facts": False, "tasks": tasks}]))
    before = control.files()
    run = control.play(book, own=str(own))
    assert control.files() == before and not list(own.glob("bundle*")), run.out
    for host, (_said, what) in FAULTS.items():
        (failed,) = run.failed(host)
        assert failed.task == host and what in failed.msg and "%s answered rbln_" % host in failed.msg, failed.msg
        assert failed.msg.count("Next: ") == 1, failed.msg


@pytest.mark.parametrize("venv", CORES)
def test_a_job_that_changes_the_driver_is_judged_at_its_end(tmp_path: Path, venv: Path) -> None:
    """Of a change that runs apart, the start, the journal and the result come from the host."""
    control = Hostile(tmp_path, ["good", "wrong", "text"], venv)
    own = tmp_path / "work"
    own.mkdir()
    text = ESCAPES + trap(control)
    ended = {"changed": True, "outcome": "upgraded", "error": "", "reboot_required": False, "finished": 1}
    said = {"good": {}, "wrong": {"outcome": "../../etc"}, "text": {"failed": True, "error": text, "warnings": [text]}}
    for host, more in said.items():
        job = {"ansible_job_id": "j12.34", "results_file": str(own / host), "started": 1, "finished": 0, "failed": 0}
        control.answer(host, "async_wrapper", job)
        control.answer(host, "async_status", {**ended, **more})
        (own / host).write_text(json.dumps({**ended, "finished": 1}))
    book = own / "book.yml"
    options = MODULES["rbln_driver"]
    tasks = [{"name": "Change", "rebellions.npu.rbln_driver": options, "register": "done"}]
    book.write_text(json.dumps([{"hosts": "npu_nodes", "gather_facts": False, "tasks": tasks}]))
    before = control.files()
    run = control.play(book, own=str(own))
    assert not HIDDEN.findall(run.out + run.err) and control.files() == before
    assert run.one("Change", "good").state == "changed" and run.one("Change", "good").data["outcome"] == "upgraded"
    assert "wrong answered rbln_driver with a wrong value: outcome: " in run.one("Change", "wrong").msg
    assert run.one("Change", "text").state == "failed" and "{{ lookup(" in run.one("Change", "text").data["error"]


@pytest.mark.parametrize("venv", CORES)
def test_facts_that_another_module_returned_are_judged_too(tmp_path: Path, venv: Path) -> None:
    """Ansible takes facts from every module, and makes variables of them that win over the inventory."""
    control = Hostile(tmp_path, ["good", "input", "forged"], venv)
    facts: dict[str, Data] = {
        "good": {"distribution": "x"},
        "input": {"rbln_driver_runfile": "/etc/shadow"},
        "forged": {"rbln": {"identity": {"node_name": "../../secrets"}}},
    }
    for host, found in facts.items():
        control.answer(host, "ping", {"ping": "pong", "ansible_facts": found})
    book = tmp_path / "work" / "book.yml"
    book.parent.mkdir()
    tasks = [
        {"name": "Observe", "ansible.builtin.import_role": {"name": "rebellions.npu.rbln_discover"}},
        {"name": "Other", "ansible.builtin.ping": {}},
        {"name": "Member", "rebellions.npu.rbln_operands": {"act": "member"}},
    ]
    defaults = [str(STAGED / "roles" / "rbln_operands" / "defaults" / "main.yml")]
    play = {"hosts": "npu_nodes", "gather_facts": False, "vars_files": defaults, "tasks": tasks}
    book.write_text(json.dumps([play]))
    before = control.files()
    run = control.play(book)
    assert control.files() == before and run.one("Member", "good").state == "ok", run.one("Member", "good").msg
    assert "input has the fact rbln_driver_runfile, which would set a variable" in run.one("Member", "input").msg
    wrong = "forged answered ansible_facts.rbln with a wrong value: identity.node_name: "
    assert wrong in run.one("Member", "forged").msg
