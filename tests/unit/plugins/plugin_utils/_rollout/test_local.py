# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rollouts of hosts without Kubernetes: the record alone says which are out of service."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any, Collection

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
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
        self.path, self.now = str(path), START
        self.store = self.of()

    def of(self, *hosts: str, works: Collection[str] = (), inventory: Collection[str] = tuple(HOSTS)) -> LocalStore:
        """The store of a run of these hosts; without one of all."""
        return LocalStore("x", dict.fromkeys(hosts or HOSTS, "p"), inventory, works, self.path)

    def plan(self, run: str, *names: str, goal: str = "goal", stopped: Collection[str] = (), **more: Any) -> None:
        """A run that has to do with `names`, and finds nothing to do on its others, but for those that it stops."""
        self.now += datetime.timedelta(minutes=1)
        hosts = more.pop("limit", tuple(HOSTS))
        works = set(hosts) - set(names) - set(stopped)
        self.store, seen = self.of(*hosts, works=works, **more), works | set(names)
        view = self.store.look().nodes
        self.store.change(
            lambda old: (planned(old, goal, run, {"p": names}, SETTINGS, view, seen, self.now, self.now), None)
        )

    def down(self) -> set[str]:
        return {one.name for one in self.of().look().nodes if one.down}

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


def one_failed(path: Path) -> Local:
    """After a run of a, b and c that ended with a."""
    local = Local(path)
    local.plan("r1", "a", "b", "c")
    local.ask("r1", "a")
    local.end("r1", "a", FAILED)
    return local


def test_a_host_that_failed_counts_where_a_run_leaves_it_out(tmp_path: Path) -> None:
    local = one_failed(tmp_path)
    # As another node of a cluster does, also where another driver is wanted.
    for run, goal in (("r2", "goal"), ("r3", "other")):
        local.plan(run, "b", goal=goal, limit=["b", "c"])
        answer = local.ask(run, "b")
        assert isinstance(answer, Refuse) and "1 of 3 nodes" in answer.reason and "a failed" in answer.reason
        assert local.down() == {"a"}
    # It was under way in a run that was killed.
    local.plan("r4", "a", "b")
    assert local.ask("r4", "a") == Begin(1)
    local.plan("r5", "b", limit=["b"])
    answer = local.ask("r5", "b")
    assert isinstance(answer, Refuse) and "a was left under way by the run r4" in answer.reason
    local.plan("r6", "b", "a")
    assert local.ask("r6", "a") == Begin(1, True)
    local.end("r6", "a", DONE)
    assert isinstance(local.ask("r6", "b"), Begin) and local.down() == set()


def test_a_host_that_is_stopped_stays_down(tmp_path: Path) -> None:
    local = one_failed(tmp_path)
    local.plan("r2", "b", stopped=["a"], goal="other")
    assert local.down() == {"a"} and isinstance(local.ask("r2", "b"), Refuse)
    local.plan("r3", "b", goal="other")
    assert local.down() == set() and isinstance(local.ask("r3", "b"), Begin)


def test_a_host_that_left_the_inventory_is_forgotten(tmp_path: Path) -> None:
    local = one_failed(tmp_path)
    local.plan("r2", "b", limit=["b"], inventory=["b", "c"])
    assert isinstance(local.ask("r2", "b"), Begin) and local.down() == set()


def test_a_record_of_an_earlier_release_is_read_and_a_damaged_one_named(tmp_path: Path) -> None:
    local = one_failed(tmp_path)
    data = json.loads(local.store.path.read_text())
    assert data.pop("hosts") == HOSTS
    local.store.path.write_text(json.dumps(data))
    assert local.down() == {"a"} and [one.pool for one in local.of("b").look().nodes] == ["p"] * 3
    for key, wrong in (("hosts", []), ("down", 1), ("run", None)):
        local.store.path.write_text(json.dumps({**data, key: wrong}))
        with pytest.raises(NpuError, match="is damaged. Next: Delete it, and run again."):
            local.store.look()


def test_a_record_that_cannot_be_read_or_written_is_no_damaged_one(tmp_path: Path) -> None:
    local = one_failed(tmp_path)
    path, fresh = local.store.path, local.store.path.with_suffix(".new")
    before = path.read_text()
    fresh.mkdir()
    with pytest.raises(NpuError, match="json, cannot be written: Is a directory. Next: Free space there") as wrong:
        local.plan("r2", "a", "b")
    assert str(path) in str(wrong.value) and path.read_text() == before
    path.unlink()
    path.mkdir()
    with pytest.raises(NpuError, match="json, cannot be read: Is a directory. Next: Let the user who runs Ansible"):
        local.store.look()
