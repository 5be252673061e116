# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts of a run cut into waves, and the table that shows them."""

from __future__ import annotations

import datetime
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.decide import begun, ended
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.fleet import (
    Fleet,
    Going,
    batches,
    goal_of,
    seconds_of,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.local import LocalStore, Seen
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.record import from_json, to_json
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.settings import Settings, read_settings
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.states import ABORT, DONE
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.table import (
    Pods,
    document,
    duration,
    lines,
    row,
    summary,
    table,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.view import NodeView

NOW = datetime.datetime(2026, 11, 29, 12, tzinfo=datetime.timezone.utc)
STEP = {
    "id": "driver.install", "role": "driver", "component": "driver", "now": "3.2.2", "wanted": "3.4.0",
    "disruption": "evict", "reason": "", "after": "", "vendor": "rebellions",
}  # fmt: skip


def fleet(tmp_path: Path, write: bool = True, goal: str = "goal", **pools: int) -> tuple[Fleet, LocalStore]:
    """`pools` are numbers of hosts."""
    going = [
        Going("%s%d" % (pool, at), "%s%d" % (pool, at), pool, [STEP])
        for pool, size in pools.items()
        for at in range(size)
    ]
    settings = {pool: Settings(waves=(1, "50%"), max_unavailable="50%") for pool in pools}
    made = Fleet(going, settings, {one.node for one in going}, goal)
    store = LocalStore("x", {one.node: one.pool for one in going}, (), where=str(tmp_path))
    made.cut(store, "run" if goal == "goal" else "run-2", NOW, NOW, write)
    return made, store


def test_waves_of_all_pools_go_side_by_side(tmp_path: Path) -> None:
    made, _store = fleet(tmp_path, a=4, b=1)
    assert batches([made]) == [["a0", "b0"], ["a1"], ["a2", "a3"]]
    assert made.limited and made.wave_of("a3") == 3
    other, _store = fleet(tmp_path / "other", c=2)
    assert batches([made, other]) == [["a0", "b0", "c0"], ["a1", "c1"], ["a2", "a3"]]


def test_within_a_wave_pools_take_turns(tmp_path: Path) -> None:
    made, _store = fleet(tmp_path, a=6, b=4)
    assert batches([made]) == [["a0", "b0"], ["a1", "b1", "a2"], ["a3", "b2", "a4", "b3", "a5"]]


def with_pace(tmp_path: Path, sizes: dict[str, int], **paces: Settings) -> list[list[str]]:
    """The batches of pools of these sizes, NOW."""
    going = [
        Going("%s%d" % (pool, at), "%s%d" % (pool, at), pool, [STEP]) for pool in sizes for at in range(sizes[pool])
    ]
    made = Fleet(going, paces, {one.node for one in going}, "goal")
    made.cut(LocalStore("x", {one.node: one.pool for one in going}, (), where=str(tmp_path)), "run", NOW, NOW, True)
    return batches([made])


def test_of_a_pool_no_more_hosts_are_in_a_row_than_may_be_away_at_once(tmp_path: Path) -> None:
    # Five forks: with one host of each pool in turn, four of them would soon wait for the place of the slow pool.
    (wave,) = with_pace(
        tmp_path, {"slow": 8, "fast": 8}, slow=Settings(max_unavailable=1), fast=Settings(max_unavailable="50%")
    )
    assert [name[0] for name in wave] == [*"sffff", *"sffff", *"ssssss"] and len(set(wave)) == 16
    (wave,) = with_pace(tmp_path / "b", {"a": 4, "b": 4}, a=Settings(), b=Settings(max_parallel=2))
    assert [name[0] for name in wave] == [*"abab", *"aa", *"bb"]


def test_a_pool_outside_its_window_keeps_no_other_one_waiting(tmp_path: Path) -> None:
    def window(begin: str, end: str) -> Settings:
        given = {"waves": [1, "100%"], "window": [{"from": begin, "to": end}]}
        return read_settings(given)

    # It is 12:00.
    paces = {"night": window("22:00", "23:00"), "now": window("11:00", "13:00"), "soon": window("13:00", "14:00")}
    found = with_pace(tmp_path, {"night": 2, "now": 2, "soon": 2}, **paces)
    assert found == [["now0", "soon0"], ["now1", "soon1"], ["night0"], ["night1"]]
    assert with_pace(tmp_path / "b", {"night": 2}, night=paces["night"]) == [["night0"], ["night1"]]


def test_a_host_under_way_waits_for_no_window(tmp_path: Path) -> None:
    going = [Going("%s%d" % (pool, at), "%s%d" % (pool, at), pool, [STEP]) for pool in ("a", "b") for at in range(2)]
    night = read_settings({"waves": [1, "100%"], "window": [{"from": "22:00", "to": "23:00"}]})
    paces = {"a": Settings(waves=(1,)), "b": night}
    made = Fleet(going, paces, {one.node for one in going}, "goal")
    store = LocalStore("x", {one.node: one.pool for one in going}, (), where=str(tmp_path))
    made.cut(store, "run", NOW, NOW, True)
    store.change(lambda record: (record and begun(record, "b0", NOW, "run"), None))
    made.cut(store, "run-2", NOW, NOW, True)
    assert batches([made]) == [["b0", "a0"], ["a1"], ["b1"]]


def test_who_waits_for_a_soak_comes_last_in_a_later_wave(tmp_path: Path) -> None:
    paces = {"a": Settings(waves=(1, "100%"), soak=600), "b": Settings(waves=(1, "100%"))}
    assert with_pace(tmp_path, {"a": 3, "b": 3}, **paces) == [["a0", "b0"], ["b1", "b2", "a1", "a2"]]


def test_check_mode_cuts_and_writes_nothing(tmp_path: Path) -> None:
    made, store = fleet(tmp_path, False, a=3)
    assert batches([made]) == [["a0"], ["a1"], ["a2"]] and not store.path.exists()


def test_a_goal_is_what_is_wanted_of_all_hosts() -> None:
    one, other = {"rbln_driver_version": "1"}, {"rbln_driver_version": "2"}
    assert goal_of([one, other, one], "rbln_") == goal_of([other, one], "rbln_") != goal_of([one], "rbln_")
    assert goal_of([{**one, "rbln_driver_reboot": "never"}], "rbln_") == goal_of([one], "rbln_")


def test_the_time_is_known_when_an_earlier_run_tells(tmp_path: Path) -> None:
    made, store = fleet(tmp_path, a=4)
    assert seconds_of(made, 5) is None
    record = json.loads(to_json(made.record))  # type: ignore[arg-type]
    record["pools"]["a"]["seconds"] = 600.0
    made.record = from_json(json.dumps(record))
    # One, one, and two at a time, of which the pool spares two.
    assert seconds_of(made, 5) == 1800.0 and seconds_of(made, 1) == 2400.0
    made.settings = {"a": replace(made.settings["a"], last_wave=1)}
    assert seconds_of(made, 5) == 600.0
    assert (duration(30), duration(1800), duration(12000)) == ("1 min", "30 min", "3 h 20 min")


def test_the_table_names_pods_budgets_and_what_refuses(tmp_path: Path) -> None:
    made, _store = fleet(tmp_path, False, a=3)
    pods = {
        "a0": Pods("evicts team/job", ("team/least",), ()),
        "a1": Pods("refuses team/x (bare)", (), ("team/x bare",)),
    }
    found = table([made], pods, 5)
    shown = "\n".join(text for text, _tone in lines(found))
    assert shown.startswith(
        "Rollout of 3 hosts in 3 waves, as the playbook site goes\n  pool a: at most 50% of its nodes out of service\n"
    )
    for text in (
        "  Wave 1: 1 host\n    a0\n      driver 3.2.2 -> 3.4.0\n      [driver reloads, pods with NPUs must leave]",
        "      pods: evicts team/job\n      budget in the way: team/least",
        "      STOP  team/x bare",
    ):
        assert text in shown, shown
    data = document(found)
    assert [one["host"] for wave in data["waves"] for one in wave] == ["a0", "a1", "a2"] and json.dumps(data)
    assert data["waves"][0][0]["budgets"] == ("team/least",)


def test_a_node_that_is_left_alone_is_in_no_wave_of_the_table(tmp_path: Path) -> None:
    made, _store = fleet(tmp_path, False, a=4)

    class Cordoned(LocalStore):
        def look(self) -> Seen:
            return Seen([NodeView(one.node, "a", schedulable=one.node != "a1") for one in made.going])

    made.cut(Cordoned("x", {}, str(tmp_path / "other")), "run", NOW, NOW, False)
    found = table([made], {}, 5)
    shown = [text for text, _tone in lines(found)]
    assert shown[0] == "Rollout of 3 hosts in 3 waves, as the playbook site goes"
    assert shown[-1] == "  Left as they are: a1, whose node was cordoned by someone else"
    assert [one["host"] for wave in document(found)["waves"] for one in wave] == ["a0", "a2", "a3"]
    assert document(found)["left"] == {"a1": "was cordoned by someone else"}


def test_hosts_after_the_last_wave_of_this_run_are_left_and_in_their_wave(tmp_path: Path) -> None:
    made, _store = fleet(tmp_path, False, a=3)
    made.settings = {"a": replace(made.settings["a"], last_wave=1)}
    found = table([made], {}, 5, "upgrade", "Show more.")
    data = document(found)
    assert data["left"] == dict.fromkeys(("a1", "a2"), "is of a wave after rbln_rollout_last_wave")
    assert [one["host"] for wave in data["waves"] for one in wave] == ["a0", "a1", "a2"]
    shown = [text for text, _tone in lines(found)]
    assert shown[:2] == ["Rollout of 3 hosts in 3 waves, as the playbook upgrade goes", "  Show more."]
    assert data["playbook"] == "upgrade" and not [text for text in shown if "Left as they are" in text]


def test_a_wave_of_the_table_has_the_number_by_which_it_is_approved(tmp_path: Path) -> None:
    _made, store = fleet(tmp_path, a=4)
    store.change(lambda record: (record and ended(begun(record, "a0", NOW, "run"), "a0", DONE, "", NOW, "run"), None))
    going = [Going("a%d" % at, "a%d" % at, "a", [STEP]) for at in (1, 2, 3)]
    made = Fleet(going, {"a": Settings(waves=(1, "50%"))}, {"a0", "a1", "a2", "a3"}, "goal")
    made.cut(store, "run-2", NOW, NOW, False)
    assert [text for text, _tone in lines(table([made], {}, 5)) if "Wave" in text] == [
        "  Wave 2: 1 host",
        "  Wave 3: 2 hosts",
    ]


def test_the_pace_of_a_pool_has_all_that_holds_it_up(tmp_path: Path) -> None:
    made, _store = fleet(tmp_path, False, a=2)
    window = [{"from": "01:00", "to": "05:00"}]
    given = {"max_parallel": 2, "failure_budget": 1, "soak": 600, "approval": True, "window": window, "last_wave": 1}
    given["slot_timeout"] = 0
    made.settings = {"a": read_settings(given)}
    assert table([made], {}, 5).pace == [
        "a: at most 100% of its nodes out of service, 2 at a time, failure budget 1, 10 min between waves, each"
        " wave after the first waits for an approval, nodes begin only in its maintenance windows, nodes wait for"
        " others for ever, this run ends after wave 1"
    ]


def test_services_stop_only_for_a_change_of_the_driver() -> None:
    restart = {**STEP, "role": "container_toolkit", "component": "containerd", "disruption": "restart"}
    files = {**STEP, "disruption": "none"}
    for steps, told in (([STEP], ("vllm.service",)), ([restart], ()), ([restart, files], ())):
        assert row(Going("h", "h", "a", steps, services=["vllm.service"]), 1, Pods()).services == told


def test_equal_hosts_of_a_wave_are_one_group(tmp_path: Path) -> None:
    made, _store = fleet(tmp_path, False, a=8)
    assert "    a4 to a7" in [text for text, _tone in lines(table([made], {}, 5))]


@pytest.mark.parametrize(
    ("left", "failures", "told"),
    [
        ({"n1": {"goes": True}}, {}, ["Rollout: 1 done, 0 failed, 0 left as they are"]),
        (
            {
                "n1": {"goes": True},
                "n2": {"refused": True},
                "n3": {"goes": False, "msg": "n3 was left as it is. It waits."},
            },
            {"n1": {"msg": "Broke."}, "n2": {"msg": "n2 was left as it is. The rollout has stopped."}},
            [
                "Rollout: 0 done, 1 failed, 2 left as they are",
                "  failed  n1: Broke.",
                "  left    n2: The rollout has stopped.",
                "  left    n3: It waits.",
            ],
        ),
        (
            {"n1": {"goes": True, "reboot": True}, "n2": {"goes": True, "reboot": False}, "n3": {"reboot": False}},
            {},
            [
                "Rollout: 1 done, 0 failed, 1 left as they are",
                "  left    n3: The run ended before its turn. Next: Run again.",
                "  reboot  n1: out of service until then. Next: Reboot, and run again.",
            ],
        ),
    ],
)
def test_the_end_counts_each_host_once(left: Any, failures: Any, told: list[str]) -> None:
    assert [text for text, _tone in summary(left, failures)] == told


def test_a_person_holds_hosts_without_a_cluster_by_the_file(tmp_path: Path) -> None:
    _made, store = fleet(tmp_path, a=1)
    data = json.loads(store.path.read_text(encoding="utf-8"))
    assert (data["held"], data["approved"]) == ("", "") and store.path.stat().st_mode & 0o777 == 0o600
    store.path.write_text(json.dumps({**data, "held": ABORT, "approved": "2"}), encoding="utf-8")
    assert [one.name for one in store.look().nodes] == ["a0"]
    assert (store.held, store.approved) == (ABORT, "2")
    # A change keeps what the person wrote.
    store.change(
        lambda record: (
            None if record is None else from_json(to_json(record).replace('"goal":"goal"', '"goal":"x"')),
            None,
        )
    )
    kept = json.loads(store.path.read_text(encoding="utf-8"))
    assert (kept["held"], kept["approved"]) == (ABORT, "2")
    # Another rollout keeps the hold, and not what was approved of this one.
    made, _store = fleet(tmp_path, goal="other", a=1)
    kept = json.loads(store.path.read_text(encoding="utf-8"))
    assert (kept["held"], kept["approved"]) == (ABORT, "")
    store.path.write_text("{}", encoding="utf-8")
    with pytest.raises(NpuError, match="is damaged. Next: Delete it, and run again|is damaged"):
        store.look()
