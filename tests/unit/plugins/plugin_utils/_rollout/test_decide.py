# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""May a node begin: each reason against it, alone."""

from __future__ import annotations

import datetime
import typing as t
from dataclasses import replace

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.decide import (
    Asks,
    Begin,
    Skip,
    abandoned,
    ask,
    begun,
    ended,
    settled,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.gates import Refuse, Wait
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.record import (
    NodeRecord,
    Record,
    from_json,
    to_json,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.resume import planned
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.settings import read_settings
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.states import (
    DONE,
    FAILED,
    HOST,
    JOBS,
    REBOOT,
    REQUIRED,
    moment,
    stamp,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.view import NodeView

NOW = moment("2026-01-05T22:00:00Z")
RUN = "run-1"


class Fleet:
    """Nodes n0, n1, ... of one pool in waves, and the record of one run."""

    def __init__(self, count: int = 8, **inputs: t.Any) -> None:
        self.settings = {"p": read_settings({"waves": [1, "50%", "100%"], **inputs})}
        self.view = {f"n{number}": NodeView(f"n{number}", "p") for number in range(count)}
        names = list(self.view)
        self.record: Record | None = planned(
            None, "goal", RUN, {"p": names}, self.settings, list(self.view.values()), names, NOW, NOW
        )
        self.now = NOW

    def see(self, name: str, **changes: t.Any) -> None:
        self.view[name] = NodeView(name, "p", **changes)

    def later(self, seconds: float) -> None:
        self.now += datetime.timedelta(seconds=seconds)

    def ask(self, node: str, run: str = RUN, **more: t.Any) -> t.Any:
        """The answer; the record is kept."""
        self.record, outcome = ask(
            self.settings, self.record, list(self.view.values()), node, self.now, Asks(run, **more)
        )
        return outcome

    def end(self, node: str, state: str = DONE, reason: str = "", run: str = RUN) -> None:
        self.record = ended(self.record, node, state, reason, self.now, run)

    def done(self, *nodes: str) -> None:
        for node in nodes:
            assert isinstance(self.ask(node), Begin), node
            self.end(node)


def test_the_first_wave_begins_and_the_second_waits_for_it() -> None:
    fleet = Fleet()
    assert fleet.ask("n0") == Begin(1)
    assert fleet.ask("n1") == Wait("wave 1 has not ended: n0", nodes=("n0",))
    fleet.end("n0")
    assert fleet.ask("n1") == Begin(2)
    assert fleet.ask("n4") == Wait("wave 2 has not ended: n1, n2, n3", nodes=("n1",))


def test_what_waits_leaves_the_record_as_it_is() -> None:
    fleet = Fleet()
    before = fleet.record
    fleet.ask("n1")
    assert fleet.record is before


def test_asked_again_a_node_still_has_its_slot() -> None:
    fleet = Fleet()
    fleet.ask("n0")
    before = fleet.record
    assert fleet.ask("n0") == Begin(1, resume=True)
    assert fleet.record is before


def test_max_unavailable_counts_cordoned_not_ready_and_granted_nodes() -> None:
    fleet = Fleet(waves=[], max_unavailable=3)
    fleet.see("n5", schedulable=False)
    fleet.see("n6", ready=False)
    assert fleet.ask("n0") == Begin(1)
    answer = fleet.ask("n1")
    assert answer == Wait(
        "rbln_rollout_max_unavailable is 3 (3 of 8 nodes): n0 is under way, n5 is cordoned, n6 is not Ready",
        nodes=("n0",),
    )
    fleet.see("n6")
    assert fleet.ask("n1") == Begin(1)


def test_a_percentage_is_of_all_nodes_of_the_pool_and_of_no_other() -> None:
    fleet = Fleet(count=9, waves=[], max_unavailable="25%")
    for number in range(20):
        fleet.view[f"other{number}"] = NodeView(f"other{number}", "q", ready=False)
    assert [type(fleet.ask(f"n{number}")) for number in range(4)] == [Begin, Begin, Begin, Wait]


def test_a_node_whose_kernel_changed_stays_in_its_pool() -> None:
    fleet = Fleet(count=4, waves=[], max_unavailable=1)
    fleet.ask("n0")
    fleet.view["n0"] = NodeView("n0", "other_kernel", schedulable=False, ours=True)
    assert "n0 is under way" in fleet.ask("n1").reason


def test_max_parallel_counts_what_is_under_way_and_no_failed_node() -> None:
    fleet = Fleet(waves=[], max_parallel=2)
    fleet.ask("n0")
    fleet.ask("n1")
    assert fleet.ask("n2") == Wait("rbln_rollout_max_parallel is 2: n0, n1", nodes=("n0", "n1"))
    fleet.end("n0", FAILED, "It broke.")
    fleet.see("n0", schedulable=False, ours=True, state=FAILED, run=RUN)
    assert fleet.ask("n2") == Begin(1)


def test_slots_that_only_failed_nodes_hold_are_refused_at_once() -> None:
    fleet = Fleet(waves=[], max_unavailable=1)
    fleet.ask("n0")
    fleet.end("n0", FAILED, "It broke.")
    answer = fleet.ask("n1")
    assert (
        isinstance(answer, Refuse)
        and "(1 of 8 nodes), and nodes that nobody works on hold all of it: n0 failed." in answer.reason
    )
    assert answer.next_step.startswith("Repair n0 and run again with it")
    # Its drain failed, and it is back in service.
    fleet.see("n0", state=FAILED, run=RUN)
    assert fleet.ask("n1") == Begin(1)


def test_failed_nodes_are_tried_again_although_they_hold_all_slots() -> None:
    """The input was lowered since: they take nothing more away."""
    fleet = Fleet(waves=[], max_unavailable=1)
    for name in ("n0", "n1"):
        fleet.see(name, schedulable=False, ours=True, state=FAILED, run="run-0")
    assert "n0 failed before, n1 failed before" in fleet.ask("n2").reason
    assert fleet.ask("n1") == Begin(1)
    assert fleet.ask("n0") == Begin(1)


def test_a_node_that_a_run_left_cordoned_and_no_run_works_on_is_not_waited_for() -> None:
    fleet = Fleet(waves=[], max_unavailable=1)
    fleet.view["x"] = NodeView("x", "p", schedulable=False, ours=True, state="reboot-required", run="run-0")
    answer = fleet.ask("n0")
    assert isinstance(answer, Refuse) and "x was left cordoned by the run run-0" in answer.reason


def test_a_failed_node_that_the_list_does_not_yet_show_counts() -> None:
    fleet = Fleet(waves=[], max_unavailable=2)
    fleet.ask("n0")
    fleet.ask("n1")
    fleet.end("n0", FAILED, "It broke.")
    assert fleet.view["n0"] == NodeView("n0", "p")
    assert isinstance(fleet.ask("n2"), Wait)
    # It failed in an earlier run, too, and was in service again.
    fleet.see("n0", state=FAILED, run="run-0")
    assert isinstance(fleet.ask("n2"), Wait)
    fleet.see("n0", state=FAILED, run=RUN)
    assert fleet.ask("n2") == Begin(1)


def test_U03_drain_failed_the_failure_budget_of_the_wave_stops_the_rollout() -> None:
    fleet = Fleet(failure_budget=2, max_unavailable="100%")
    fleet.done("n0", "n1")
    fleet.ask("n2")
    fleet.end("n2", FAILED, "The module did not load.")
    assert fleet.ask("n3") == Begin(2)
    fleet.end("n3", FAILED, "No device came.")
    answer = fleet.ask("n4")
    assert answer == Refuse(
        "The rollout has stopped: in wave 2, n2, n3 failed, as many as rbln_rollout_failure_budget (2) allows. "
        "n2: The module did not load.",
        "Repair n2 and run again: failed nodes are tried first.",
    )


@pytest.mark.parametrize("budget, goes_on", [(0, True), ("50%", True), (1, False), ("25%", False)])
def test_a_budget_may_be_a_part_of_the_wave_and_0_is_no_brake(budget: int | str, goes_on: bool) -> None:
    fleet = Fleet(waves=[4], failure_budget=budget)
    fleet.ask("n0")
    fleet.end("n0", FAILED, "It broke.")
    assert isinstance(fleet.ask("n1"), Begin) == goes_on


def test_each_wave_and_each_pool_has_a_budget_of_its_own() -> None:
    fleet = Fleet(failure_budget=2)
    fleet.done("n0")
    for node in ("n1", "n4"):
        assert isinstance(fleet.ask(node), Begin)
        fleet.end(node, FAILED, "It broke.")
        if node == "n1":
            fleet.done("n2", "n3")
    assert fleet.ask("n5") == Begin(3)


def test_a_wave_soaks() -> None:
    fleet = Fleet(soak=600)
    fleet.done("n0")
    fleet.later(60)
    until = NOW + datetime.timedelta(seconds=600)
    assert fleet.ask("n1") == Wait("wave 1 soaks until 2026-01-05T22:10:00Z", until, patient=True)
    fleet.later(540)
    assert fleet.ask("n1") == Begin(2)


def test_a_clock_that_went_back_does_not_soak_for_ever() -> None:
    fleet = Fleet(soak=600)
    fleet.done("n0")
    fleet.later(-86400 * 365)
    answer = fleet.ask("n1")
    assert answer.until == fleet.now + datetime.timedelta(seconds=600)
    fleet.later(600)
    assert fleet.ask("n1") == Begin(2)


def test_stamps_of_the_future_are_set_to_now_except_what_clocks_differ_by() -> None:
    fleet = Fleet()
    fleet.done("n0")
    assert fleet.record
    assert settled(fleet.record, NOW - datetime.timedelta(seconds=59)) is fleet.record
    back = NOW - datetime.timedelta(seconds=120)
    assert settled(fleet.record, back).nodes["n0"].since == stamp(back)
    # Another run's record is not ours to correct.
    before = fleet.record
    fleet.later(-3600)
    fleet.ask("n1", run="run-2")
    assert fleet.record is before


def test_a_wave_that_needs_an_approval_waits_for_it() -> None:
    fleet = Fleet(approval=True)
    fleet.done("n0")
    assert fleet.ask("n1") == Wait(
        "wave 2 is not approved: annotate the ConfigMap with rebellions.ai/npu-rollout.approved=2", patient=True
    )
    for other in ("3", "12 3", "1"):
        assert isinstance(fleet.ask("n1", approved=other), Wait)
    assert fleet.ask("n1", approved="1, 2") == Begin(2)
    assert fleet.ask("n2", approved="all") == Begin(2)
    for words in ("3 2", "1\n2", "All"):
        again = Fleet(approval=True)
        again.done("n0")
        assert again.ask("n1", approved=words) == Begin(2)


def test_the_query_is_asked_only_when_nothing_else_is_against_it() -> None:
    fleet = Fleet(metrics={"url": "https://prometheus.example.com", "query": "up"})
    assert fleet.ask("n0") == Begin(1)
    assert fleet.ask("n1", metrics=True).needs == ""
    fleet.end("n0")
    answer = fleet.ask("n1")
    assert answer == Wait("the query of rbln_rollout_metrics did not answer yet", needs="metrics")
    assert fleet.ask("n1", metrics=False) == Wait("the query of rbln_rollout_metrics says no", needs="metrics")
    assert fleet.ask("n1", metrics=True) == Begin(2)


def test_waves_after_the_last_one_are_left_as_they_are() -> None:
    fleet = Fleet(last_wave=1)
    fleet.done("n0")
    assert fleet.ask("n1") == Skip("It is in wave 2, and rbln_rollout_last_wave is 1.")


def test_the_window() -> None:
    fleet = Fleet(window=[{"from": "23:00", "to": "01:00"}])
    assert fleet.ask("n0") == Wait(
        "the maintenance window opens at 2026-01-05T23:00:00Z", NOW + datetime.timedelta(hours=1), patient=True
    )
    fleet.later(3600)
    assert fleet.ask("n0") == Begin(1)
    fleet.later(7200)
    # What has begun goes on.
    assert fleet.ask("n0") == Begin(1, resume=True)


def test_pause_waits_abort_refuses_and_what_has_begun_goes_on() -> None:
    fleet = Fleet(waves=[])
    fleet.ask("n0")
    assert fleet.ask("n1", held="pause") == Wait(
        "the rollout is paused: its ConfigMap has the label rebellions.ai/npu-rollout=pause", patient=True
    )
    assert isinstance(fleet.ask("n1", held="abort"), Refuse)
    for held in ("pause", "abort"):
        assert fleet.ask("n0", held=held) == Begin(1, resume=True)
    # Somebody meant to stop it.
    odd = "its ConfigMap has the label rebellions.ai/npu-rollout=paused, which is neither pause nor abort"
    assert fleet.ask("n1", held="paused") == Wait("the rollout is paused: " + odd, patient=True)
    assert fleet.ask("n1", held="") == Begin(1)


def test_a_refusal_comes_before_what_would_pass() -> None:
    fleet = Fleet(failure_budget=1, window=[{"from": "23:00", "to": "01:00"}])
    fleet.later(3600)
    fleet.ask("n0")
    fleet.end("n0", FAILED, "It broke.")
    fleet.later(-3600)
    assert isinstance(fleet.ask("n1", held="pause"), Refuse)


def test_nodes_that_somebody_keeps_are_left_alone() -> None:
    fleet = Fleet(waves=[])
    fleet.see("n0", skip=True)
    fleet.see("n1", schedulable=False)
    assert fleet.ask("n0") == Skip("The node has the label that excludes it from upgrades.")
    assert fleet.ask("n1") == Skip("The node was cordoned by someone else.")


def test_a_node_that_was_left_alone_is_no_failure_when_it_could_begin_later() -> None:
    fleet = Fleet(failure_budget=1)
    fleet.done("n0", "n1", "n2")
    fleet.see("n3", schedulable=False)
    assert isinstance(fleet.ask("n3"), Skip)
    fleet.see("n3")
    assert fleet.record
    assert fleet.ask("n4", lost=abandoned(fleet.record, "n4")) == Begin(3)
    left = "It was left out before, by a cordon or by the label rebellions.ai/npu-driver-upgrade.skip."
    assert fleet.ask("n3") == Skip(left)
    # The last wave of this run is not the node's own choice.
    fleet = Fleet(last_wave=1)
    fleet.ask("n5")
    assert fleet.record and "n5" in fleet.record.nodes


def test_a_foreign_cordon_stays_when_the_node_is_upgraded() -> None:
    fleet = Fleet(waves=[], foreign_cordon="upgrade")
    fleet.see("n1", schedulable=False)
    assert fleet.ask("n1") == Begin(1, cordon=False)


def test_a_node_that_an_autoscaler_removes_is_left_alone_and_counts_as_away() -> None:
    """kubernetes/autoscaler#1136: it taints the node, and does not cordon it."""
    fleet = Fleet(waves=[], max_unavailable=1)
    fleet.see("n1", leaves="karpenter.sh/disrupted:NoSchedule")
    assert fleet.ask("n1") == Skip("The node is about to go: it has the taint karpenter.sh/disrupted:NoSchedule.")
    assert fleet.ask("n0") == Wait("rbln_rollout_max_unavailable is 1 (1 of 8 nodes): n1 is about to go")
    fleet = Fleet(waves=[], foreign_cordon="upgrade")
    fleet.see("n1", leaves="karpenter.sh/disrupted:NoSchedule")
    assert fleet.ask("n1") == Begin(1, cordon=False)


def test_a_wave_does_not_wait_for_nodes_that_are_left_alone() -> None:
    fleet = Fleet()
    fleet.done("n0", "n1", "n2")
    fleet.see("n3", schedulable=False)
    assert fleet.ask("n4") == Begin(3)


def test_a_wave_of_which_no_node_was_tried_proves_nothing() -> None:
    fleet = Fleet()
    fleet.see("n0", skip=True)
    assert fleet.ask("n1") == Refuse(
        "Wave 1 proved nothing: all its nodes were left alone.",
        "Run again: the waves are then cut without them.",
    )


def test_nodes_that_the_run_lost_are_failures_and_are_not_waited_for() -> None:
    fleet = Fleet(failure_budget=1)
    answer = fleet.ask("n1", lost=["n0"])
    assert isinstance(answer, Refuse) and "in wave 1, n0 failed" in answer.reason
    assert "n0: the run lost it" in answer.reason
    fleet = Fleet(failure_budget=0, max_parallel=1)
    fleet.ask("n0")
    assert fleet.ask("n1", lost=["n0"]) == Begin(2)


def test_a_run_that_goes_wave_by_wave_waits_for_no_host_that_never_began() -> None:
    fleet = Fleet(failure_budget="50%")
    assert fleet.record
    assert abandoned(fleet.record, "n0") == frozenset() == abandoned(fleet.record, "x")
    assert abandoned(fleet.record, "n1") == {"n0"}
    assert isinstance(fleet.ask("n1", lost=abandoned(fleet.record, "n1")), Refuse)
    fleet.done("n0", "n1", "n2")
    assert abandoned(fleet.record, "n4") == {"n3"}
    assert fleet.ask("n4", lost=abandoned(fleet.record, "n4")) == Begin(3)


def test_another_run_took_over() -> None:
    fleet = Fleet()
    answer = fleet.ask("n0", run="run-2")
    assert answer == Refuse("The run run-1 has taken over this rollout.", "Wait for its end, then run again.")


def test_the_owner_takes_over_a_node_of_a_dead_run_and_its_run_may_not_end_it() -> None:
    fleet = Fleet(waves=[])
    fleet.ask("n0")
    names = list(fleet.view)
    fleet.record = planned(
        fleet.record, "goal", "run-2", {"p": names}, fleet.settings, list(fleet.view.values()), names, NOW, NOW
    )
    # Until it is taken over, its own run may finish it, and nothing else.
    assert fleet.ask("n0") == Begin(1, resume=True)
    assert isinstance(fleet.ask("n1"), Refuse)
    assert fleet.ask("n0", run="run-2") == Begin(1, resume=True)
    assert isinstance(fleet.ask("n0"), Refuse)
    with pytest.raises(NpuError, match="^Another run has taken over the node n0: run-2. Next: Wait"):
        fleet.end("n0")
    fleet.end("n0", run="run-2")
    assert fleet.record and fleet.record.nodes["n0"].run == "run-2"


def test_done_is_not_done_again_and_failed_is_not_tried_again_by_the_same_run() -> None:
    fleet = Fleet(waves=[])
    fleet.done("n0")
    assert fleet.ask("n0") == Skip("It was upgraded at 2026-01-05T22:00:00Z.")
    fleet.ask("n1")
    fleet.end("n1", FAILED, "It broke.")
    assert fleet.ask("n1") == Refuse("Its upgrade failed: It broke.", "Repair it and run again.")


def test_a_record_that_was_deleted_and_a_node_that_is_gone() -> None:
    fleet = Fleet()
    del fleet.view["n0"]
    assert isinstance(fleet.ask("n0"), Refuse)
    fleet.record = None
    assert isinstance(fleet.ask("n0"), Refuse)


def test_a_host_waits_no_longer_than_its_limit_while_nothing_moves() -> None:
    fleet = Fleet(waves=[], max_unavailable=1, slot_timeout=600)
    fleet.see("n7", ready=False)
    assert isinstance(fleet.ask("n0", waited=600), Wait)
    fleet.later(3600)
    assert isinstance(fleet.ask("n0", waited=599), Wait)
    assert isinstance(fleet.ask("n0", waited=600), Refuse)
    fleet.see("n7")
    fleet.done("n1")
    fleet.see("n7", ready=False)
    fleet.later(599)
    assert isinstance(fleet.ask("n0", waited=5000), Wait)
    fleet.later(1)
    answer = fleet.ask("n0", waited=5000)
    assert isinstance(answer, Refuse) and answer.reason.startswith("No node began or ended for 600 s: rbln_rollout_max")


def test_what_moves_in_another_pool_is_no_progress_of_this_one() -> None:
    fleet = Fleet(waves=[], max_unavailable=1, slot_timeout=600)
    fleet.see("n7", ready=False)
    fleet.later(3600)
    assert fleet.record is not None
    other = NodeRecord("q", 1, DONE, stamp(fleet.now), run=RUN)
    fleet.record = replace(fleet.record, nodes={**fleet.record.nodes, "m0": other})
    assert isinstance(fleet.ask("n0", waited=600), Refuse)


def test_a_foreign_cordon_is_waited_for_an_hour_unless_people_want_it_for_ever() -> None:
    fleet = Fleet(waves=[], max_unavailable=1)
    fleet.see("n7", schedulable=False)
    fleet.later(86400)
    assert fleet.ask("n0", waited=3599) == Wait("rbln_rollout_max_unavailable is 1 (1 of 8 nodes): n7 is cordoned")
    answer = fleet.ask("n0", waited=3600)
    assert isinstance(answer, Refuse) and "for 3600 s" in answer.reason and "n7 is cordoned." in answer.reason
    assert "rbln_rollout_slot_timeout" in answer.next_step
    fleet = Fleet(waves=[], max_unavailable=1, slot_timeout=0)
    fleet.see("n7", schedulable=False)
    fleet.later(86400)
    answer = fleet.ask("n0", waited=86400)
    assert isinstance(answer, Wait) and answer.reason.endswith("(for ever: rbln_rollout_slot_timeout is 0)")


def test_what_has_an_end_of_its_own_is_not_limited() -> None:
    """Soak, window, pause, approval, and a node that waits for its jobs."""
    fleet = Fleet(soak="4h")
    fleet.done("n0")
    fleet.later(7200)
    assert "soaks" in fleet.ask("n1", waited=7200).reason
    fleet.later(7200)
    assert fleet.ask("n1", waited=14400) == Begin(2)
    fleet = Fleet(waves=[], max_unavailable=1)
    assert fleet.ask("n0") == Begin(1)
    for state, expected in ((JOBS, Wait), (HOST, Refuse)):
        fleet.see("n0", schedulable=False, ours=True, state=state, run=RUN)
        fleet.later(7200)
        assert isinstance(fleet.ask("n1", waited=7200), expected), state
    for more in ({"approval": True}, {"window": [{"from": "20:00", "to": "21:00"}]}):
        fleet = Fleet(**more)
        fleet.record = begun(fleet.record, "n0", fleet.now, RUN)  # type: ignore[arg-type]
        fleet.end("n0")
        fleet.later(7200)
        assert isinstance(fleet.ask("n1", waited=7200), Wait), more
    fleet.later(7200)
    assert isinstance(Fleet().ask("n0", held="pause", waited=86400), Wait)


def test_a_node_that_waits_for_a_reboot_by_a_person_is_no_failure() -> None:
    fleet = Fleet(waves=[2, "100%"], failure_budget=1, max_unavailable=2, max_parallel=1)
    assert fleet.ask("n0") == Begin(1)
    fleet.end("n0", REBOOT, "A reboot is due.")
    fleet.see("n0", schedulable=False, ours=True, state=REBOOT, run=RUN)
    # Its wave goes on: it holds no slot of max_parallel, and spends no budget.
    assert fleet.ask("n1") == Begin(1)
    fleet.end("n1")
    assert fleet.record
    assert fleet.record == from_json(to_json(fleet.record))
    for lost in ((), abandoned(fleet.record, "n2")):
        answer = fleet.ask("n2", lost=lost)
        assert answer == Refuse(
            "Wave 1 is not proven yet: n0 has to be rebooted by a person.", "Reboot n0 and run again."
        )
    # It is out of service all the same.
    fleet = Fleet(waves=[], failure_budget=1, max_unavailable=1)
    assert fleet.ask("n0") == Begin(1)
    fleet.end("n0", REBOOT, "A reboot is due.")
    fleet.see("n0", schedulable=False, ours=True, state=REBOOT, run=RUN)
    answer = fleet.ask("n1")
    assert isinstance(answer, Refuse) and "n0 waits for a reboot by a person" in answer.reason


def test_the_next_run_takes_up_first_what_a_person_has_rebooted() -> None:
    fleet = Fleet(waves=[2, "100%"], max_parallel=1)
    fleet.done("n0")
    assert fleet.ask("n1") == Begin(1)
    fleet.end("n1", REBOOT, "A reboot is due.")
    fleet.see("n1", schedulable=False, ours=True, state=REBOOT, run=RUN)
    names = list(fleet.view)
    fleet.later(600)
    fleet.record = planned(
        fleet.record, "goal", "run-2", {"p": names[1:]}, fleet.settings, list(fleet.view.values()), names,
        fleet.now, fleet.now,
    )  # fmt: skip
    assert fleet.record.pools["p"].waves[0][0] == "n1"
    # Until it has begun, its slot is kept for it.
    assert isinstance(fleet.ask("n2", run="run-2"), Wait)
    assert fleet.ask("n1", run="run-2") == Begin(1, resume=True)
    assert isinstance(fleet.ask("n2", run="run-2"), Wait)
    fleet.later(60)
    fleet.end("n1", run="run-2")
    # The time until the reboot is no part of the estimate of the next rollout.
    assert fleet.record.nodes["n1"].seconds == 60
    fleet.see("n1")
    assert fleet.ask("n2", run="run-2").wave == 2
    # One whose plan was empty after the reboot is done.
    fleet = Fleet()
    fleet.ask("n0")
    fleet.end("n0", REBOOT, "A reboot is due.")
    fleet.later(600)
    after = planned(
        fleet.record, "goal", "run-2", {"p": names[1:]}, fleet.settings, list(fleet.view.values()), names,
        fleet.now, fleet.now,
    )  # fmt: skip
    assert after.nodes["n0"].state == DONE


def test_a_slot_is_given_back_when_nothing_was_changed() -> None:
    fleet = Fleet(waves=[])
    fleet.ask("n0")
    fleet.end("n0", REQUIRED)
    assert fleet.record and fleet.record.nodes["n0"] == NodeRecord("p", 1)
    with pytest.raises(NpuError, match="^Another run has taken over the node n0: no record has it."):
        fleet.end("n0")


def test_how_long_a_node_was_away_is_noted_unless_the_clock_went_back() -> None:
    fleet = Fleet(waves=[])
    fleet.ask("n0")
    fleet.later(90)
    fleet.end("n0")
    fleet.ask("n1")
    fleet.later(-60)
    fleet.end("n1")
    assert fleet.record
    assert [fleet.record.nodes[name].seconds for name in ("n0", "n1")] == [90.0, None]
    before = fleet.record
    fleet.end("n0", FAILED, "Too late.")
    assert fleet.record is before
    assert begun(fleet.record, "n2", NOW, RUN).nodes["n2"].since == stamp(NOW)
