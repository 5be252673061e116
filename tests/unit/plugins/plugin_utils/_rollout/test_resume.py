# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record at the begin of a run: what is kept of the one before."""

from __future__ import annotations

import datetime
import typing as t

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.record import NodeRecord, PoolRecord, Record
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.resume import planned
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.settings import read_settings
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.states import moment, stamp
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.view import NodeView

NOW = moment("2026-01-05T22:00:00Z")
EARLIER = stamp(NOW - datetime.timedelta(hours=1))
OBSERVED = NOW - datetime.timedelta(minutes=5)
NAMES = ["a", "b", "c", "d", "e"]
WAVES = (("a",), ("b", "c"), ("d", "e"))


def entry(wave: int, state: str = "upgrade-required", since: str = EARLIER, **more: t.Any) -> NodeRecord:
    if state == "upgrade-required":
        return NodeRecord("p", wave)
    return NodeRecord("p", wave, state, since, run="r1", **more)


def former(**changed: NodeRecord) -> Record:
    """A record of the run r1 in which the nodes are to do, except those given."""
    nodes = {name: entry(number) for number, wave in enumerate(WAVES, 1) for name in wave}
    return Record("r1", "goal", EARLIER, "r1", {"p": PoolRecord(WAVES)}, {**nodes, **changed})


def again(
    record: Record | None,
    need: str = "abcde",
    *views: NodeView,
    goal: str = "goal",
    hosts: str = "abcde",
    **inputs: t.Any,
) -> Record:
    """The record of the run r2; `views` are the nodes that are not simply there."""
    seen = {**{name: NodeView(name, "p") for name in NAMES}, **{view.name: view for view in views}}
    settings = {"p": read_settings({"waves": [1, "50%", "100%"], **inputs})}
    return planned(record, goal, "r2", {"p": list(need)}, settings, list(seen.values()), list(hosts), OBSERVED, NOW)


def waves(record: Record) -> str:
    return " ".join("".join(wave) for wave in record.pools["p"].waves)


def test_a_first_run_begins_a_record() -> None:
    record = again(None)
    assert (record.id, record.run, record.goal, record.started) == ("r2", "r2", "goal", stamp(NOW))
    assert waves(record) == "a bc de"
    assert record.nodes["c"] == NodeRecord("p", 2)


def test_U02_state_lost_a_killed_run_goes_on_where_it_was() -> None:
    record = again(former(a=entry(1, "upgrade-done"), b=entry(2, "drain-required")), "bcde")
    assert (record.id, record.started, record.run) == ("r1", EARLIER, "r2")
    # What holds a slot comes first: others would wait for it.
    assert waves(record) == "b ac de"
    assert record.nodes["b"] == NodeRecord("p", 1, "drain-required", EARLIER, run="r1")
    assert record.nodes["a"] == NodeRecord("p", 2, "upgrade-done", EARLIER, run="r1")


def test_what_is_done_stays_done_unless_its_host_needed_something_after_that() -> None:
    record = again(former(a=entry(1, "upgrade-done"), b=entry(2, "upgrade-done", stamp(OBSERVED))))
    assert record.nodes["a"] == NodeRecord("p", 1)
    assert record.nodes["b"].state == "upgrade-done"


def test_what_failed_is_tried_again_and_first_when_it_is_still_out_of_service() -> None:
    down = NodeView("c", "p", schedulable=False, ours=True, state="upgrade-failed", run="r1")
    record = again(former(a=entry(1, "upgrade-done"), c=entry(2, "upgrade-failed", reason="x")), "bcde", down)
    assert waves(record) == "c ab de"
    assert record.nodes["c"] == NodeRecord("p", 1)
    # Its drain failed, and it is back in service: its turn is that of its wave.
    record = again(former(a=entry(1, "upgrade-done"), c=entry(2, "upgrade-failed", reason="x")), "bcde")
    assert waves(record) == "a bc de" and record.nodes["c"] == NodeRecord("p", 2)


def test_a_rollout_that_has_ended_is_not_the_same_one_again() -> None:
    """An approval is of one rollout, and a runtime or kernel may change while the wanted driver stays."""
    ended = former(**{name: entry(number, "upgrade-done") for number, wave in enumerate(WAVES, 1) for name in wave})
    record = again(ended)
    assert (record.id, record.started, record.goal) == ("r2", stamp(NOW), "goal")
    assert waves(record) == "a bc de" and record.nodes["a"] == NodeRecord("p", 1)
    # The same where one of them failed, and where all that is new is a node.
    assert again(Record(**{**vars(ended), "nodes": {**ended.nodes, "c": entry(2, "upgrade-failed")}})).id == "r2"
    few = Record("r1", "goal", EARLIER, "r1", {"p": PoolRecord((("a",),))}, {"a": entry(1, "upgrade-done")})
    assert again(few, "b", hosts="ab").id == "r2"
    # A run that looked before the end of another one does nothing again.
    late = {name: entry(number, "upgrade-done", stamp(NOW)) for number, wave in enumerate(WAVES, 1) for name in wave}
    assert again(former(**late)).id == "r1"


def test_what_failed_or_was_left_is_of_the_same_rollout() -> None:
    done = {name: entry(number, "upgrade-done") for number, wave in enumerate(WAVES, 1) for name in wave}
    assert again(former(**{**done, "c": entry(2, "upgrade-failed")}), "c").id == "r1"
    assert again(former(**{**done, "d": entry(3), "e": entry(3)}), "de").id == "r1"
    assert again(former(**{**done, "d": entry(3, "drain-required")}), "d").id == "r1"
    # Nothing is to be done.
    assert again(former(**done), "").id == "r1"


def test_a_failure_that_nobody_has_looked_at_since_stays_one() -> None:
    late = entry(1, "upgrade-failed", stamp(NOW), reason="x")
    assert again(former(a=late)).nodes["a"] == late
    other = entry(1, "upgrade-failed", reason="x")
    assert again(former(a=other), "bcde", hosts="bcde").nodes["a"] == other
    repaired = again(former(a=other), "bcde").nodes["a"]
    assert (repaired.state, repaired.since, repaired.reason) == ("upgrade-done", stamp(NOW), "")


def test_a_failed_node_with_the_label_that_excludes_it_stops_nobody() -> None:
    record = again(former(a=entry(1, "upgrade-failed")), "bcde", NodeView("a", "p", skip=True), hosts="bcde")
    assert "a" not in record.nodes and waves(record) == "b c de"


def test_a_node_under_way_that_is_not_in_this_run_keeps_its_slot_in_no_wave() -> None:
    record = again(former(b=entry(2, "drain-required")), "acde", hosts="acde")
    assert record.nodes["b"] == NodeRecord("p", 0, "drain-required", EARLIER, run="r1")
    assert waves(record) == "a c de"
    # With its host again, it comes first.
    assert waves(again(record)) == "b ac de"
    # Its host is in the run and needs nothing.
    assert "b" not in again(record, "acde").nodes


def test_another_goal_keeps_only_what_is_under_way() -> None:
    old = former(a=entry(1, "upgrade-done"), b=entry(2, "drain-required"), c=entry(2, "upgrade-failed"))
    record = again(old, goal="other")
    assert (record.id, record.goal, record.started) == ("r2", "other", stamp(NOW))
    assert waves(record) == "b ac de"
    assert record.nodes["b"] == NodeRecord("p", 1, "drain-required", EARLIER, run="r1")
    assert record.nodes["a"] == record.nodes["c"] == NodeRecord("p", 2)
    assert "b" in again(old, "a", goal="other", hosts="a").nodes


@pytest.mark.parametrize(
    "state, expected", [("upgrade-done", "upgrade-done"), ("upgrade-failed", "upgrade-failed"), ("", "drain-required")]
)
def test_what_a_killed_run_did_not_note_is_read_from_the_node(state: str, expected: str) -> None:
    seen = NodeView("b", "p", state=state, run="r1")
    assert again(former(b=entry(2, "drain-required")), "bcde", seen).nodes["b"].state == expected
    # Of another run, it is an old label.
    old = NodeView("b", "p", state=state, run="r0")
    assert again(former(b=entry(2, "drain-required")), "bcde", old).nodes["b"].state == "drain-required"


def test_U02_state_lost_without_a_record_the_nodes_tell_what_is_under_way() -> None:
    seen = NodeView("c", "p", schedulable=False, ours=True, state="host-change-required", run="r1")
    record = again(None, "abcde", seen)
    assert waves(record) == "c ab de"
    assert record.nodes["c"] == NodeRecord("p", 1, "host-change-required", stamp(NOW), run="r1")
    stranded = again(None, "ab", seen, hosts="ab")
    assert stranded.nodes["c"].wave == 0
    # The same label of another program is none of ours.
    other = again(None, "ab", NodeView("c", "p", state="host-change-required"), hosts="ab")
    assert "c" not in other.nodes


def test_a_record_is_newer_than_what_the_list_still_shows() -> None:
    seen = NodeView("b", "p", schedulable=False, ours=True, state="uncordon-required", run="r1")
    assert again(former(b=entry(2, "upgrade-done", stamp(NOW))), "abcde", seen).nodes["b"].state == "upgrade-done"


def test_nodes_that_somebody_keeps_are_in_no_wave() -> None:
    record = again(None, "abcde", NodeView("a", "p", skip=True), NodeView("b", "p", schedulable=False))
    assert waves(record) == "c d e" and set(record.nodes) == set("cde")
    record = again(None, "abcde", NodeView("b", "p", schedulable=False), foreign_cordon="upgrade")
    assert waves(record) == "a bc de"
    # What was begun is brought to its end.
    record = again(former(b=entry(2, "drain-required")), "abcde", NodeView("b", "p", schedulable=False, skip=True))
    assert record.nodes["b"].state == "drain-required"


def test_a_node_that_is_gone_holds_nothing() -> None:
    old = former(x=entry(0, "drain-required"), y=entry(0, "upgrade-done"))
    assert set(again(old).nodes) == set("abcde")


def test_new_nodes_come_last_and_those_without_need_fall_out() -> None:
    old = Record(
        "r1",
        "goal",
        EARLIER,
        "r1",
        {"p": PoolRecord((("d",), ("b", "a")))},
        {"d": entry(1), "b": entry(2), "a": entry(2)},
    )
    assert waves(again(old, "abde")) == "d b ae"


def test_a_pool_whose_kernel_changed_on_all_hosts_goes_on_as_the_new_one() -> None:
    old = former(b=NodeRecord("old_kernel", 2, "reboot-required", EARLIER, run="r1"))
    assert again(old, "bc").nodes["b"].pool == "p"


def test_how_long_a_node_was_away_is_kept_for_the_next_estimate() -> None:
    old = former(
        **{name: entry(1, "upgrade-done", seconds=seconds) for name, seconds in zip("abc", (60.0, 90.0, 600.0))}
    )
    record = again(old, goal="other")
    assert record.pools["p"].seconds == 90.0
    assert again(record, goal="third").pools["p"].seconds == 90.0
    assert again(None).pools["p"].seconds is None
