# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way of an action plugin to a host: every fault of an answer ends as the failure of a task, in one sentence."""

from __future__ import annotations

import gc
import os
import types
import typing as t

import pytest
from ansible.errors import AnsibleActionFail, AnsibleActionSkip, AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers import action as room
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.action import Answering, lost
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.answer import checked_facts

Data = dict[str, t.Any]
VARS = {"inventory_hostname": "npu-a"}


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> t.Callable[..., Answering]:
    """An action on a host that answers so; an exception is what ansible raises while it reads."""

    def made(said: t.Any = None, output: str = "") -> Answering:
        def execute(self: t.Any, **keys: t.Any) -> t.Any:
            if isinstance(said, Exception):
                raise said
            return said

        monkeypatch.setattr(ActionBase, "_execute_module", execute)
        monkeypatch.setattr(
            ActionBase,
            "_low_level_execute_command",
            lambda self, *args, **keys: {"rc": 0, "stdout": output, "stdout_lines": ["x"], "stderr": output},
        )
        action: Answering = Answering.__new__(Answering)
        action._task = types.SimpleNamespace(action="rebellions.npu.rbln_mok")
        return action

    return made


@pytest.mark.parametrize(
    ("said", "msg"),
    [
        (
            {"state": "enrolled", "subject": 1},
            "npu-a answered rbln_mok with a wrong value: subject: 1 is not text. Next: ",
        ),
        ({}, "npu-a answered rbln_mok with a wrong value: state: is missing. Next: "),
        ({"failed": True, "msg": "\x1b[1mno"}, "no"),
        *[
            (fault, "npu-a answered rbln_mok with a wrong value: all: Ansible cannot read it (%s). " % name)
            for fault, name in (
                (AttributeError("'list' object has no attribute 'keys'"), "AttributeError"),
                (TypeError("unhashable"), "TypeError"),
                (RecursionError(), "RecursionError"),
            )
        ],
    ],
)
def test_a_fault_is_a_failure(plugin: t.Callable[..., Answering], said: t.Any, msg: str) -> None:
    found = plugin(said)._execute_module(task_vars=VARS)
    assert found["failed"] is True and found["msg"].startswith(msg) and found["msg"].count("Next: ") == (msg != "no")


def test_a_lost_connection_stays_one_and_modules_of_ansible_pass(plugin: t.Callable[..., Answering]) -> None:
    with pytest.raises(AnsibleConnectionFailure):
        plugin(AnsibleConnectionFailure("lost"))._execute_module(task_vars=VARS)
    said = {"anything": object()}
    assert plugin(said)._execute_module(module_name="ansible.legacy.async_status", task_vars=VARS) is said


def test_a_lost_connection_names_its_host_and_what_to_do(plugin: t.Callable[..., Answering]) -> None:
    said = "Failed to connect to the host via ssh: ssh: connect to host 192.0.2.1 port 22:\r\nConnection refused"
    with pytest.raises(AnsibleConnectionFailure) as caught:
        plugin(AnsibleConnectionFailure(said))._execute_module(task_vars=VARS)
    told = str(caught.value)
    assert told.startswith("npu-a cannot be reached: Failed to connect") and told.count(" Next: ") == 1
    assert "port 22: Connection refused. Next: " in told and "`ansible -m ping npu-a`" in told
    with pytest.raises(AnsibleConnectionFailure, match="^Premature end of stream waiting for become success$"):
        plugin(AnsibleConnectionFailure("Premature end of stream waiting for become success"))._execute_module(
            task_vars=VARS
        )


class Failing(Answering):
    """Ends as it is told."""

    end: t.Any = None

    def run(self, tmp: str | None = None, task_vars: Data | None = None) -> Data:
        if isinstance(self.end, Exception):
            raise self.end
        return dict(self.end)


LOST = "npu-a cannot be reached: timed out. Next: Correct its address, user or key until `ansible -m ping npu-a`"
ENDS: list[tuple[t.Any, str]] = [
    ({"failed": True, "msg": "No room. Next: Make some.", "rc": 3, "exception": "x"}, "No room. Next: Make some."),
    ({"failed": True}, "It failed without a message."),
    (AnsibleActionFail("no file"), "no file"),
    (AnsibleError("no become"), "no become"),
    (AnsibleConnectionFailure("timed out"), LOST),
    (lost("npu-a", AnsibleConnectionFailure("timed out")), LOST),
]


@pytest.mark.parametrize(("end", "msg"), ENDS)
@pytest.mark.parametrize("register", ["mine", {"mine": "result"}])
def test_a_play_that_keeps_failures_gets_them_as_results(end: t.Any, msg: str, register: t.Any) -> None:
    action: t.Any = Failing.__new__(Failing)
    action.end, action._task = end, types.SimpleNamespace(register=register, name="Write it", action="x")
    found = action.run(None, {**VARS, "__rbln_kept": ["other", "mine"]})
    assert found["failure"]["task"] == "Write it" and found["failure"]["msg"].startswith(msg)
    assert found["failure"]["msg"].count("cannot be reached") == (msg is LOST)
    assert not {"msg", "exception", "unreachable"} & set(found) and found["changed"] is found["failed"] is False
    assert found.get("rc") == (3 if isinstance(end, dict) and "rc" in end else None)
    # What the play does not know by name would be lost, so it fails as ever.
    for kept in ({}, {"__rbln_kept": ["other"]}):
        if isinstance(end, Exception):
            with pytest.raises(type(end)):
                action.run(None, {**VARS, **kept})
        else:
            assert action.run(None, {**VARS, **kept}) == end


def test_a_kept_result_that_is_good_or_a_skip_is_as_it_is() -> None:
    action: t.Any = Failing.__new__(Failing)
    action.end, action._task = {"changed": True, "msg": "done"}, types.SimpleNamespace(register="mine", name="x")
    assert action.run(None, {**VARS, "__rbln_kept": ["mine"]}) == action.end
    action.end = AnsibleActionSkip("no check mode")
    with pytest.raises(AnsibleActionSkip):
        action.run(None, {**VARS, "__rbln_kept": ["mine"]})


def test_only_the_start_of_a_job_may_lack_the_result(plugin: t.Callable[..., Answering]) -> None:
    started = {"ansible_job_id": "j1.2", "results_file": "/root/.ansible_async/j1.2", "started": 1, "finished": 0}
    assert plugin(started)._execute_module(task_vars=VARS, wrap_async=True) == {"changed": False, **started}
    assert "state: is missing" in plugin(started)._execute_module(task_vars=VARS)["msg"]


def test_output_is_clean_and_bounded(plugin: t.Callable[..., Answering], monkeypatch: pytest.MonkeyPatch) -> None:
    found = plugin(output='\x1b[31m{"a":\r\n"\\u001b[2J"}')._low_level_execute_command("true")
    assert found["stdout"] == found["stderr"] == '{"a":\n""}' and found["stdout_lines"] == ['{"a":', '""}']
    monkeypatch.setattr(room, "OUTPUT", 10)
    assert plugin(output="x" * 10)._low_level_execute_command("true")["stdout"] == "x" * 10
    with pytest.raises(AnsibleActionFail, match="more than 10 characters. Next: "):
        plugin(output="x" * 11)._low_level_execute_command("true")


def test_a_fact_that_sets_an_input_ends_every_action(plugin: t.Callable[..., Answering]) -> None:
    with pytest.raises(AnsibleActionFail, match="npu-a has the fact rbln_driver_runfile"):
        plugin().run(task_vars={**VARS, "ansible_facts": {"rbln_driver_runfile": "/etc/shadow"}})


@pytest.mark.parametrize(("cache", "kept"), [("memory", False), ("ansible.builtin.memory", False), ("jsonfile", True)])
def test_facts_that_outlive_a_run_carry_it(
    plugin: t.Callable[..., Answering], monkeypatch: pytest.MonkeyPatch, cache: str, kept: bool
) -> None:
    monkeypatch.setattr(room.constants, "CACHE_PLUGIN", cache)
    proof: Data = {"state": "passed", "passed": True, "checks": [], "failed": [], "unknown": [], "changes": []}
    told = {key: value for key, value in proof.items() if key not in ("failed", "unknown")}
    said = {**told, "failed_checks": [], "unknown_checks": [], "changed": False, "ansible_facts": {"rbln_proof": proof}}
    action = plugin(said)
    action._task.action = "rebellions.npu.rbln_validate"
    action._task._uuid = "0242ac11-0002-1a2b-3c4d-000000000007"
    found = action._execute_module(task_vars=VARS)["ansible_facts"]
    run = "0242ac11-0002-1a2b-3c4d"
    assert found == {"rbln_proof": {**proof, **({"run": run} if kept else {})}}
    assert checked_facts("npu-a", found, run=action._run_id()) == found
    if kept:
        # Of an earlier run, and of a release that did not say.
        assert checked_facts("npu-a", found, run="0242ac11-0002-ffff-3c4d") == {}
        assert checked_facts("npu-a", {"rbln_proof": proof}, run=run) == {}


def test_a_failure_is_what_a_person_reads_and_the_rest_is_for_vvv(plugin: t.Callable[..., Answering]) -> None:
    action, told = plugin(), []
    action._display = types.SimpleNamespace(vvv=told.append)  # type: ignore[assignment]
    failed = {"failed": True, "msg": "no", "passed": False, "checks": [{"evidence": "x" * 18000}], "ansible_facts": {}}
    assert action._brief(dict(failed), "checks", "ansible_facts") == {"failed": True, "msg": "no", "passed": False}
    assert len(told) == 1 and "x" * 18000 in told[0]
    good = {"changed": False, "checks": [1], "ansible_facts": {"rbln_proof": {}}}
    assert action._brief(dict(good), "checks", "ansible_facts") == good and len(told) == 1


def test_a_process_of_a_task_looks_for_no_garbage_in_what_it_has_inherited() -> None:
    # What is frozen is none of the objects that are looked at.
    made = [[] for _number in range(20_000)]  # type: ignore[var-annotated]
    before = len(gc.get_objects())
    assert before > len(made)
    child = os.fork()
    if child == 0:
        os._exit(0 if len(gc.get_objects()) < 5_000 else 1)
    assert os.waitpid(child, 0)[1] == 0 and len(gc.get_objects()) > len(made)
