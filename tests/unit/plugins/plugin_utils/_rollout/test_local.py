# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rollouts of hosts without Kubernetes: the record alone says which are out of service."""

from __future__ import annotations

import datetime
from pathlib import Path

from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.decide import Asks, Begin, Outcome, ask, ended
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.gates import Refuse, Wait
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.local import LocalStore
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.resume import planned
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.settings import Settings
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.states import DONE, FAILED

START = datetime.datetime(2026, 1, 5, 22, tzinfo=datetime.timezone.utc)
HOSTS = {"a": "p", "b": "p", "c": "p"}
SETTINGS = {"p": Settings(max_unavailable=1)}


class Local:
    def __init__(self, path: Path) -> None:
        self.store, self.now = LocalStore("x", HOSTS, str(path)), START

    def plan(self, run: str, *names: str, goal: str = "goal") -> None:
        self.now += datetime.timedelta(minutes=1)
        view = self.store.look().nodes
        self.store.change(
            lambda old: (planned(old, goal, run, {"p": names}, SETTINGS, view, HOSTS, self.now, self.now), None)
        )

    def ask(self, run: str, name: str) -> Outcome:
        view = self.store.look().nodes
        outcome: Outcome = self.store.change(lambda old: ask(SETTINGS, old, view, name, self.now, Asks(run)))
        return outcome

    def end(self, run: str, name: str, state: str) -> None:
        self.store.change(lambda old: (ended(old, name, state, "It broke.", self.now, run), None))


def test_a_host_that_failed_is_tried_again_by_the_next_run_and_first(tmp_path: Path) -> None:
    local = Local(tmp_path)
    local.plan("r1", "a", "b", "c")
    assert isinstance(local.ask("r1", "a"), Begin) and isinstance(local.ask("r1", "b"), Wait)
    local.end("r1", "a", DONE)
    assert isinstance(local.ask("r1", "b"), Begin)
    local.end("r1", "b", FAILED)
    assert isinstance(local.ask("r1", "c"), Refuse)
    local.plan("r2", "b", "c")
    record = local.store.change(lambda old: (None, old))
    assert record.pools["p"].waves == (("b", "a", "c"),)
    assert local.ask("r2", "b") == Begin(1) and isinstance(local.ask("r2", "c"), Wait)
    local.end("r2", "b", DONE)
    assert isinstance(local.ask("r2", "c"), Begin)


def test_a_host_that_failed_is_out_of_service_until_it_works_again(tmp_path: Path) -> None:
    local = Local(tmp_path)
    local.plan("r1", "a", "b", "c")
    assert isinstance(local.ask("r1", "a"), Begin)
    local.end("r1", "a", FAILED)
    # The next run has not come to it yet: it takes a place of max_unavailable all the same.
    local.plan("r2", "c", "b", "a")
    answer = local.ask("r2", "b")
    assert isinstance(answer, Wait) and "a failed before" in answer.reason
    # Also where another driver is wanted.
    local.plan("r3", "c", "b", "a", goal="other")
    assert isinstance(local.ask("r3", "b"), Wait)
    assert local.ask("r3", "a") == Begin(1)
    local.end("r3", "a", DONE)
    assert isinstance(local.ask("r3", "b"), Begin)
    local.end("r3", "b", FAILED)
    # Repaired by hand: nothing is to be done on it.
    local.plan("r4", "c", goal="third")
    assert isinstance(local.ask("r4", "c"), Begin)


def test_of_a_host_outside_of_a_run_nothing_new_is_known(tmp_path: Path) -> None:
    local = Local(tmp_path)
    local.plan("r1", "a", "b", "c")
    local.ask("r1", "a")
    local.end("r1", "a", FAILED)
    part = LocalStore("x", {"b": "p"}, str(tmp_path))
    view = part.look().nodes
    part.change(lambda old: (planned(old, "other", "r2", {"p": ["b"]}, SETTINGS, view, ["b"], START, START), None))
    assert {one.name: one.down for one in local.store.look().nodes} == {"a": True, "b": False, "c": False}
