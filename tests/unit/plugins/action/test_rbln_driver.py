# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's part of rbln_driver.

It follows a change that runs apart from the connection to its end, and reports one that is gone.
"""

from __future__ import annotations

import json
import types
import typing as t

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.rebellions.npu.plugins.action import rbln_driver
from ansible_collections.rebellions.npu.plugins.action.rbln_driver import ActionModule

JOB = "j123.45"
RUNS = json.dumps({"started": 1, "finished": 0, "ansible_job_id": JOB})
ENDED = json.dumps({"changed": True, "outcome": "installed"})
WATCHED = "/proc/44/cmdline\n/proc/45/cmdline\n"
JOURNAL = json.dumps({"step": "install", "previous": {"version": "3.2.2"}, "wanted": {"version": "3.4.0"}}, indent=1)


class Action(ActionModule):
    """The action on a host whose looks answer in order; None is a connection that breaks."""

    def __init__(self, answers: t.Sequence[str | None]) -> None:
        self.answers, self.told, self.asked, self.resets = list(answers), [], "", 0  # type: ignore[var-annotated]
        self._display = types.SimpleNamespace(display=self.shown)  # type: ignore[assignment]
        self._connection = types.SimpleNamespace(reset=self.reset)  # type: ignore[assignment]

    def shown(self, text: str, **_more: t.Any) -> None:
        self.told.append(text)

    def reset(self) -> None:
        self.resets += 1

    def _low_level_execute_command(self, cmd: str, *args: t.Any, **keys: t.Any) -> dict[str, t.Any]:
        self.asked = cmd
        answer = self.answers.pop(0)
        if answer is None:
            raise AnsibleConnectionFailure("lost")
        # Over ssh with a terminal lines end in both characters.
        return {"rc": 1, "stdout": answer.replace("\n", "\r\n"), "stderr": ""}


def look(note: str, jobs: str = WATCHED, journal: str = "", waits: str = "") -> str:
    return "=note\n%s\n=jobs\n%s=waits\n%s\n=journal\n%s" % (note, jobs, waits, journal)


@pytest.mark.parametrize(
    ("answers", "ended"),
    [
        (
            [look(RUNS, journal=JOURNAL), look(RUNS, journal=JOURNAL), look(RUNS, journal=JOURNAL), look(ENDED, "")],
            True,
        ),
        # A terminal adds lines before the first.
        (["\n" + look(RUNS), "\n\n" + look(RUNS), "\n" + look(RUNS), "\n" + look(ENDED, "")], True),
        # The note is not written yet, or is being replaced.
        ([look(""), look(""), look("{"), look(ENDED, "")], True),
        ([None, None, None, look(RUNS), look(ENDED)], True),
        # One look without the process may be the moment of its end.
        ([look(RUNS, "", JOURNAL), look(ENDED, "", JOURNAL)], True),
        ([look(RUNS), look(RUNS, "", JOURNAL), look(RUNS, "", JOURNAL)], False),
        # A path in the journal is no process.
        ([look(RUNS, "", '{"step": "/proc/1/cmdline"}'), look(RUNS, "", '{"step": "/proc/1/cmdline"}')], False),
    ],
)
def test_follow(answers: list[str | None], ended: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rbln_driver.time, "sleep", lambda seconds: None)
    action = Action(answers)
    assert action._follow("npu-a", JOB, "/root/.ansible_async/" + JOB) is ended
    assert action.answers == [] and action.resets == answers.count(None)
    assert JOB not in action.asked and "[j]123" in action.asked
    if JOURNAL in str(answers[0]) and ended:
        assert [line.rpartition(" (")[0] for line in action.told] == ["npu-a: driver 3.2.2 -> 3.4.0, install"]


def test_a_wait_is_told_when_what_it_waits_for_changes_and_every_ten_seconds_I05_module_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(rbln_driver.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + 3.0))
    monkeypatch.setattr(rbln_driver.time, "monotonic", lambda: now[0])
    one, two = (json.dumps({"text": "waits for npu-job (pid %d)" % pid}) for pid in (1, 2))
    looks = [look(RUNS)] * 4 + [look(RUNS, waits=one)] * 5
    changes = look(RUNS, journal=JOURNAL, waits=two)
    action = Action([*looks, look(RUNS, waits=two), changes, look(ENDED)])
    assert action._follow("npu-a", JOB, "/root/.ansible_async/" + JOB) is True
    assert action.told == [
        "npu-a: driver checks before the change (12 s)",
        "npu-a: driver waits for npu-job (pid 1) (15 s)",
        "npu-a: driver waits for npu-job (pid 1) (27 s)",
        "npu-a: driver waits for npu-job (pid 2) (30 s)",
        "npu-a: driver 3.2.2 -> 3.4.0, install (33 s)",
    ]


@pytest.mark.parametrize(
    ("journal", "told"),
    [
        ({"step": "\x1b[31min\nstall\u202e", "previous": "x", "wanted": 3}, "npu-a: driver none -> none, in stall"),
        ({"step": "a" * 1000, "wanted": {"version": "\x9b2J1\x00"}}, "npu-a: driver none -> 1, " + "a" * 64),
        ({"step": ["{{ 1 }}"], "previous": {"version": []}}, "npu-a: driver none -> none, ['{{ 1 }}']"),
    ],
)
def test_a_journal_of_any_kind_is_shown_clean(journal: t.Any, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rbln_driver.time, "sleep", lambda seconds: None)
    action = Action([look(RUNS, journal=json.dumps(journal)), look("[" * 100000), look(ENDED)])
    assert action._follow("npu-a", JOB, "/root/.ansible_async/" + JOB) is True
    assert [line.rpartition(" (")[0] for line in action.told] == [told]


@pytest.mark.parametrize(
    ("args", "outcome"),
    [
        ({"plan": {"wanted": {}}}, "plan is not a plan"),
        ({"source": "runfile", "version": "3.4.0"}, {"source": "runfile", "version": "3.4.0"}),
    ],
)
def test_a_plan_is_read_on_the_controller(args: dict[str, t.Any], outcome: t.Any) -> None:
    result, sent = checked(args)
    if isinstance(outcome, str):
        assert result["failed"] is True and outcome in result["msg"] and sent == []
    else:
        assert (sent, result["changed"]) == ([outcome], True)


def test_S02_an_argument_that_the_plan_masks_is_read_from_the_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = {"arguments": ["--silent", "--license-key=********"], "uninstall": ["-u"], "version": "1"}
    inputs = {name: [name] for name in rbln_driver.WORDS.values()}
    monkeypatch.setattr(rbln_driver, "driver_options", lambda role, plan, given: dict(planned))
    monkeypatch.setattr(rbln_driver, "read_inputs", lambda templar, variables: inputs)
    _result, sent = checked({"plan": {}})
    assert sent == [
        {"arguments": ["rbln_driver_runfile_args"], "uninstall": ["rbln_driver_runfile_uninstall"], "version": "1"}
    ]


def checked(args: dict[str, t.Any]) -> tuple[dict[str, t.Any], list[dict[str, t.Any]]]:
    """The result in check mode, and what was sent to the host."""
    sent: list[dict[str, t.Any]] = []

    class Check(Action):
        def __init__(self) -> None:
            super().__init__([])
            self._task = types.SimpleNamespace(args=args, check_mode=True, async_val=0, diff=False, action="x")  # type: ignore[assignment]
            self._supports_check_mode, self._supports_async = True, True
            self._templar = None  # type: ignore[assignment]

        def _execute_module(self, module_args: t.Any = None, **keys: t.Any) -> dict[str, t.Any]:  # type: ignore[override]
            sent.append(module_args)
            return {"changed": True}

    action = Check()
    action._connection = types.SimpleNamespace(_shell=types.SimpleNamespace(tmpdir="/tmp"), has_native_async=False)  # type: ignore[assignment]
    return action.run(None, {}), sent


@pytest.mark.parametrize("said, told", [("", rbln_driver.INTERRUPTED), ("ImportError: x", "Traceback of the wrapper")])
def test_a_module_that_was_killed_is_an_interrupted_change_and_no_traceback(said: str, told: str) -> None:
    wrapper = {"failed": True, "cmd": "x.py", "data": "", "stderr": said, "msg": "Traceback of the wrapper"}

    class Killed(Action):
        def __init__(self) -> None:
            super().__init__([])
            self._task = types.SimpleNamespace(args={}, check_mode=False, async_val=0, diff=False, action="x")  # type: ignore[assignment]
            self._supports_check_mode, self._supports_async = True, True

        def _execute_module(self, **keys: t.Any) -> dict[str, t.Any]:  # type: ignore[override]
            return {"ansible_job_id": JOB, "results_file": "/x"}

        def _follow(self, host: str, job: str, results: str) -> bool:
            return True

        def _status(self, job: str, task_vars: dict[str, t.Any] | None, mode: str = "status") -> dict[str, t.Any]:
            return dict(wrapper) if mode == "status" else {}

    action = Killed()
    action._connection = types.SimpleNamespace(_shell=types.SimpleNamespace(tmpdir="/tmp"), has_native_async=False)  # type: ignore[assignment]
    result = action.run(None, {})
    assert result["failed"] is True and result["msg"] == told
