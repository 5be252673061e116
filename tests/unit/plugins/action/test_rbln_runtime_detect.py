# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The wait for a runtime after its restart: it ends in its time, whatever one look takes, and says why."""

from __future__ import annotations

import types
import typing as t

import pytest
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible_collections.rebellions.npu.plugins.action import rbln_runtime_detect as room

Data = dict[str, t.Any]
UNIT = "containerd"
GOOD: Data = {
    "restart_unit": UNIT, "unit_state": "active", "socket": "/run/c.sock", "socket_exists": True,
    "process_stale": False, "answers": True,
}  # fmt: skip


def seen(*runtimes: Data) -> Data:
    return {"changed": False, "ansible_facts": {"rbln_runtimes": {"runtimes": list(runtimes)}}}


class Waiting:
    """The action on a host that answers so, one after the other; each look takes some seconds of a clock that is ours.

    A look of N seconds with a timeout takes no longer than that.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: list[t.Any], look: float) -> None:
        self.now, self.answers, self.looks, self.told = 0.0, answers, [], []
        self.action: t.Any = room.ActionModule.__new__(room.ActionModule)
        self.action._tell = self.told.append
        self.look = look
        clock = types.SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep)
        monkeypatch.setattr(room, "time", clock)
        self.action._execute_module = self.execute

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def execute(self, module_args: Data, task_vars: Data) -> Data:
        assert not {"wait", "wait_for"} & set(module_args)
        self.looks.append(module_args["timeout"])
        self.now += min(self.look, module_args["timeout"])
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return t.cast(Data, answer)

    def run(self, **args: t.Any) -> Data:
        self.action._task = types.SimpleNamespace(args={"ask": True, "wait_for": UNIT, **args})
        return t.cast(Data, self.action.run(None, {"inventory_hostname": "npu-a"}))


@pytest.mark.parametrize(
    ("runtimes", "why"),
    [
        ([GOOD], ""),
        ([{**GOOD, "answers": None, "process_stale": None}], ""),
        ([{**GOOD, "unit_state": "failed"}, GOOD], ""),
        ([{**GOOD, "unit_state": "activating"}], "the unit is activating"),
        ([{**GOOD, "socket_exists": False}], "the socket /run/c.sock does not exist"),
        ([{**GOOD, "process_stale": True}], "the process is older than its configuration"),
        ([{**GOOD, "answers": False}], "it does not answer over its socket"),
        ([{**GOOD, "restart_unit": "docker"}], "no runtime of this unit is found"),
        ([], "no runtime of this unit is found"),
    ],
)
def test_a_unit_is_back_when_it_runs_and_answers(runtimes: list[Data], why: str) -> None:
    # The facts name a service without its suffix; who writes the task may have it.
    assert [room.why_not_back(seen(*runtimes), name) for name in (UNIT, UNIT + ".service")] == [why, why]


def test_it_ends_with_the_first_look_that_is_good(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = seen({**GOOD, "unit_state": "activating"})
    broken = {"failed": True, "msg": "no space."}
    waiting = Waiting(monkeypatch, [bad, broken, AnsibleConnectionFailure("lost"), seen(dict(GOOD))], look=0.5)
    found = waiting.run(wait="60")
    assert (found["back"], found["why"], found.get("failed")) == (True, "", None) and len(waiting.looks) == 4
    assert waiting.now == 8.0 and waiting.told == []


@pytest.mark.parametrize("look", [0.1, 3.0, 10.0, 45.0])
def test_a_look_that_takes_long_makes_the_wait_no_longer(monkeypatch: pytest.MonkeyPatch, look: float) -> None:
    """With `until`, 30 looks of 10 s each at a socket that does not answer took 6 minutes, and not 60 s."""
    waiting = Waiting(monkeypatch, [seen({**GOOD, "answers": False})], look)
    found = waiting.run(wait=60, timeout=45)
    assert found["back"] is False and found["why"] == "it does not answer over its socket"
    assert 57 <= waiting.now <= 61 and waiting.looks[0] == 45.0 and min(waiting.looks) >= 1.0
    assert waiting.told and all(
        line.startswith("npu-a: waiting for containerd, ") and " of 60 s: it does not" in line for line in waiting.told
    )


def test_a_host_that_stays_away_is_unreachable_and_one_that_fails_is_not_back(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Waiting(monkeypatch, [{"failed": True, "msg": "no space."}], 1.0).run(wait=5)
    assert found == {"changed": False, "back": False, "why": "no space"}
    found = Waiting(monkeypatch, [AnsibleConnectionFailure("lost")], 1.0).run(wait=5)
    assert found == {"changed": False, "back": False, "why": "the host cannot be reached"}
    late = "Timeout (12s) waiting for privilege escalation prompt: "
    found = Waiting(monkeypatch, [AnsibleError(late)], 1.0).run(wait=5)
    assert (found["back"], found["why"]) == (False, late[:-1])


def test_without_a_unit_it_looks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room.Normal, "run", lambda self, tmp=None, task_vars=None: seen({"restart_unit": UNIT}))
    action: t.Any = room.ActionModule.__new__(room.ActionModule)
    action._task = types.SimpleNamespace(args={"ask": "yes"}, action="rebellions.npu.rbln_runtime_detect")
    found = action._complete(room.Normal.run(action))
    assert found["ansible_facts"]["rbln_runtimes"]["runtimes"] == [{"restart_unit": UNIT, "answers": None}]
