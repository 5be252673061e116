# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The callback in real runs, with the ansible-core of the tests: it reports, also what was aborted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.release import __version__ as core

ROOT = Path(__file__).resolve().parents[4]
# A host as a play of ours sees it, without an NPU: this machine.
LOCAL = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
LOST = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9}
OBSERVE = {"name": "Observe", "rebellions.npu.rbln_observe": {}}
# One of ours that reaches no host.
SHOW = {"name": "Show", "rebellions.npu.rbln_show": {}, "run_once": True}
FAIL = {"name": "Build", "ansible.builtin.fail": {"msg": "No compiler. Next: Install gcc."},
        "when": "inventory_hostname == 'b'"}  # fmt: skip


def play(*tasks: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    return [{"name": "Hosts", "hosts": "all", "gather_facts": False, "tasks": list(tasks), **more}]


class Ran:
    """A run in a folder; `said` is all that it has printed so far."""

    def __init__(self, folder: Path, plays: Any, *options: str, **more: str) -> None:
        (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": {"a": LOCAL, "b": LOCAL, "lost": LOST}}}))
        (folder / "x.yml").write_text(yaml.safe_dump(plays, sort_keys=False))
        settings = {name: os.environ[name] for name in ("LANG", "LC_ALL", "PATH", "TMPDIR") if name in os.environ}
        settings.update(
            HOME=str(folder), ANSIBLE_COLLECTIONS_PATH=str(ROOT.parents[2]), ANSIBLE_NOCOLOR="true", COLUMNS="300",
            ANSIBLE_CALLBACKS_ENABLED="rebellions.npu.rbln_report", ANSIBLE_PIPELINING="true",
            RBLN_REPORT_FORMATS="html,json,markdown,junit", **{"RBLN_REPORT_PATH": str(folder / "out"), **more},
        )  # fmt: skip
        settings = {name: told for name, told in settings.items() if told}
        argv = [sys.executable, "-m", "ansible", "playbook", "-i", "hosts.json", "x.yml", *options]
        self.out, self.log = folder / "out", folder / "log"
        # As in a terminal, whose keys reach all processes of the run.
        with self.log.open("w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                argv, cwd=folder, env=settings, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def comes_to(self, text: str) -> bool:
        for _time in range(600):
            if text in self.said or self.process.poll() is not None:
                break
            time.sleep(0.1)
        return text in self.said

    def end(self) -> int:
        return self.process.wait(60)

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def report(self) -> Any:
        (path,) = self.out.glob("*.json")
        return json.loads(path.read_text(encoding="utf-8"))


def test_a_run_with_a_failed_and_a_lost_host_is_reported(tmp_path: Path) -> None:
    login = {"name": "Log in with token={{ token }}", "ansible.builtin.command": "true", "changed_when": False}
    ran = Ran(tmp_path, play(OBSERVE, login, FAIL), "-e", "token=tok-1234567890", "-l", "all")
    assert ran.end() == 4, ran.said
    found = ran.report()
    assert [(one["name"], one["state"]) for one in found["hosts"]] == [
        ("a", "failed"), ("b", "failed"), ("lost", "unreachable")
    ]  # fmt: skip
    a, b, lost = found["hosts"]
    # This machine has no NPU: that is a check's word, and no failure of the run.
    assert a["failure"] is None and "driver/npus_found" in a["reason"] and a["npus"] == 0 and a["versions"]["kernel"]
    assert b["failure"] == {"task": "Build", "cause": "No compiler.", "next_step": "Install gcc."}
    assert lost["failure"]["cause"].startswith("lost cannot be reached: ") and lost["npus"] is None
    assert lost["failure"]["next_step"].startswith("Correct its address")
    made = found["made"]
    assert (made["playbook"], made["ended"], made["limit"], made["check"]) == ("x.yml", "whole", "all", False)
    assert made["core"] == core and made["version"] and "@" in made["by"]
    assert found["timings"]["tasks"][0]["name"] in ("Observe", "Build") and found["compared"] is None
    names = sorted(path.suffix for path in ran.out.iterdir())
    assert names == [".html", ".json", ".md", ".xml"] and ran.said.count("Report: ") == 4
    assert not [path for path in ran.out.iterdir() if "tok-1234567890" in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_aborted_is_reported_and_ends_as_without_it(tmp_path: Path, number: int) -> None:
    # Nobody ends what a run that is terminated has begun on a host.
    wait = {"name": "Wait", "ansible.builtin.command": "sleep 20"}
    ran = Ran(tmp_path, play(SHOW, wait), "-l", "a,b")
    assert ran.comes_to("TASK [Wait]"), ran.said
    time.sleep(0.5)
    if number == signal.SIGINT:
        os.killpg(ran.process.pid, number)
    else:
        ran.process.send_signal(number)
    assert ran.end() == (99 if number == signal.SIGINT else -signal.SIGTERM), ran.said
    found = ran.report()
    assert found["made"]["ended"] == "aborted" and [one["name"] for one in found["hosts"]] == ["a", "b"]
    assert ran.said.count("Report: ") == 4 and "WARNING" not in ran.said, ran.said


def test_an_aborted_run_tells_failures_that_nothing_rescued(tmp_path: Path) -> None:
    fail = {"name": "Try", "ansible.builtin.fail": {"msg": "It failed."}}
    rescued = {"block": [fail], "rescue": [{"ansible.builtin.debug": {"msg": "rescued"}}]}
    wait = {"name": "Wait", "ansible.builtin.command": "sleep 20"}
    ran = Ran(tmp_path, play(SHOW, rescued, FAIL, wait), "-l", "a,b")
    assert ran.comes_to("TASK [Wait]"), ran.said
    time.sleep(0.5)
    ran.process.send_signal(signal.SIGTERM)
    assert ran.end() == -signal.SIGTERM, ran.said
    a, b = ran.report()["hosts"]
    assert (a["state"], a["failure"]) == ("not seen", None)
    assert (b["state"], b["failure"]["task"], b["failure"]["cause"]) == ("failed", "Build", "No compiler.")


def test_the_cause_of_a_loop_and_the_host_of_a_task_that_did_not_answer(tmp_path: Path) -> None:
    loop = {"name": "Loop", "ansible.builtin.command": "sh -c 'echo no {{ item }} >&2; exit {{ item }}'",
            "loop": [0, 4], "when": "inventory_hostname == 'a'"}  # fmt: skip
    other = {"name": "Ask", "ansible.builtin.command": "true", "delegate_to": "{{ where }}"}
    ran = Ran(tmp_path, play(SHOW, loop, other, vars={"where": "lost"}), "-l", "a,b")
    assert ran.end() == 4, ran.said
    a, b = ran.report()["hosts"]
    assert a["failure"]["cause"].endswith(": no 4")
    assert b["state"] == "failed" and b["reason"].startswith("Ask: On lost: ")


def test_a_file_to_include_that_is_not_there_is_the_cause(tmp_path: Path) -> None:
    ran = Ran(tmp_path, play(SHOW, {"name": "More", "ansible.builtin.include_tasks": "nowhere.yml"}), "-l", "a")
    assert ran.end() == 2, ran.said
    (a,) = ran.report()["hosts"]
    assert a["state"] == "failed" and a["failure"]["task"] == "More" and "nowhere.yml" in a["failure"]["cause"], a


def test_what_is_wrong_with_the_report_is_one_warning_and_the_run_ends_well(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file where the folder would be")
    ran = Ran(tmp_path, play(SHOW), "-l", "a", "-e", "rbln_report_formats=pdf,json rbln_report_keep=few")
    assert ran.end() == 0, ran.said
    told = " ".join(ran.said.split())
    assert told.count("[WARNING]: rebellions.npu.rbln_report: ") == 1 and "Traceback" not in told
    assert (
        "cannot be written" in told
        and "A report has no format pdf. Next: Choose from html, json" in told
        and "rbln_report_keep is 'few', which is not a whole number. Next: Set it to a number such as 30." in told
    )
    assert (tmp_path / "out").read_text() == "a file where the folder would be"


@pytest.mark.parametrize("where", ["", "{{ playbook_dir }}/there"])
def test_a_folder_is_that_of_ansible_or_what_a_play_makes_of_its_variable(tmp_path: Path, where: str) -> None:
    ran = Ran(tmp_path, play(SHOW, vars={"rbln_report_path": where}), "-l", "a", RBLN_REPORT_PATH="")
    assert ran.end() == 0, ran.said
    assert list((tmp_path / (".ansible/rbln_reports" if not where else "there")).glob("*.json")), ran.said


def test_options_come_from_the_variables_of_the_run_too(tmp_path: Path) -> None:
    where = {"rbln_report_path": str(tmp_path / "there" / "r.json"), "rbln_report_formats": ["json"]}
    # An answer of a survey that was left empty.
    ran = Ran(tmp_path, play(SHOW, vars=where), "-l", "a", "--check", "-e", '{"rbln_report_keep": ""}')
    assert ran.end() == 0, ran.said
    (path,) = (tmp_path / "there").iterdir()
    assert json.loads(path.read_text(encoding="utf-8"))["made"]["check"] is True and not ran.out.exists()


def test_a_second_run_says_what_is_new(tmp_path: Path) -> None:
    for number, tasks in enumerate(([SHOW, FAIL], [SHOW])):
        ran = Ran(tmp_path, play(*tasks), "-l", "b", RBLN_REPORT_KEEP="1")
        assert ran.end() == (0 if number else 2), ran.said
    told = ran.report()["compared"]
    assert told["new_failures"] == [] and told["run"] != ran.report()["made"]["run"]
    # The host was not seen this time: nothing is said to be repaired.
    assert told["repaired"] == []


def test_a_run_without_our_tasks_has_no_report(tmp_path: Path) -> None:
    ran = Ran(tmp_path, play({"ansible.builtin.debug": {"msg": "hello"}}), "-l", "a")
    assert ran.end() == 0 and "Report: " not in ran.said and not ran.out.exists(), ran.said


def test_programs_that_read_stdout_are_not_disturbed(tmp_path: Path) -> None:
    """Beside a callback that writes for programs, the line goes to stderr."""
    folder = tmp_path / "callback_plugins"
    folder.mkdir()
    (folder / "quiet.py").write_text(
        "from ansible.plugins.callback import CallbackBase\n"
        "class CallbackModule(CallbackBase):\n"
        "    CALLBACK_VERSION, CALLBACK_TYPE, CALLBACK_NAME = 2.0, 'stdout', 'quiet'\n"
    )
    more = {"ANSIBLE_STDOUT_CALLBACK": "quiet", "ANSIBLE_CALLBACK_PLUGINS": str(folder)}
    ran = Ran(tmp_path, play(SHOW), "-l", "a", **more)
    assert ran.end() == 0 and ran.report()["summary"]["hosts"] == 1, ran.said
