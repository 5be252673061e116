# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The writer of a node: one request for each change, judged on the node as it is."""

from __future__ import annotations

import datetime
import json
from typing import Any, Callable

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.labels import owned_labels
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.marks import FORMER, is_ours
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout import states
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.node import (
    ALONE,
    NodeWriter,
    gates_to_close,
)
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.rollout_api import NODE, Api, node

GATE = "rebellions.ai/npu.deploy."
NOW = datetime.datetime(2026, 11, 29, 12, 0, tzinfo=datetime.timezone.utc)


def writer(api: Api, run: str = "run-1") -> NodeWriter:
    return NodeWriter(api, NODE, run, lambda: NOW, api.clock, api.sleep)  # type: ignore[arg-type]


def shown(api: Api) -> dict[str, Any]:
    """What people see of the node."""
    live = api.node()
    meta, spec = live["metadata"], live.get("spec") or {}
    ours = {key.rpartition(".")[2]: value for key, value in meta["annotations"].items() if "npu-rollout." in key}
    return {
        **ours,
        "state": meta["labels"].get(states.LABEL),
        "cordoned": bool(spec.get("unschedulable")),
        "taints": [one["key"] + "=" + one["value"] for one in spec.get("taints") or [] if one["key"] != "team"],
    }


def test_cordon_is_one_patch_and_done_undoes_it() -> None:
    api = Api(node(spec={"taints": [{"key": "team", "value": "ml", "effect": "NoSchedule"}]}))
    before = json.loads(json.dumps(api.node()["spec"]))
    one = writer(api)
    assert one.cordon(states.PODS, 2) is True
    assert api.asked == ["get Node", "PATCH nodes"]
    told = shown(api)
    assert (told["state"], told["cordoned"]) == (states.PODS, True)
    assert api.node()["metadata"]["annotations"][states.CORDONED] == "true"
    assert (told["run"], told["wave"], told["since"]) == ("run-1", "2", "2026-11-29T12:00:00Z")
    assert [api.node()["metadata"]["annotations"][key] for key in ALONE] == ["true", "true"]
    assert one.done() is True
    assert api.node()["spec"] == before and not set(ALONE) & set(api.node()["metadata"]["annotations"])
    assert shown(api)["state"] == states.DONE and not {"cordoned", "former", "gates"} & {
        key.rpartition(".")[2] for key in api.node()["metadata"]["annotations"]
    }
    asked = api.requests
    assert one.done() is False and api.requests == asked


def test_a_second_time_changes_nothing_and_a_killed_run_is_taken_up() -> None:
    api = Api(node())
    writer(api).cordon(states.PODS, 1)
    again = writer(api)
    assert again.cordon(states.PODS, 1) is False
    other = writer(api, "run-2")
    assert other.cordon(states.PODS, 1) is True and shown(api)["run"] == "run-2"
    other.done()
    assert shown(api)["cordoned"] is False


def test_a_node_that_another_run_has_taken_over_is_left_to_it() -> None:
    api = Api(node())
    former = writer(api)
    former.cordon(states.PODS, 1)
    late = writer(api, "run-3")
    late.read()
    writer(api, "run-2").cordon(states.HOST, 1)
    acts: list[Callable[[], Any]] = [
        lambda: former.state(states.HOST),
        former.done,
        lambda: former.fail("It broke."),
        lambda: former.give_back("It broke."),
        # It has read the node before the other run had it: that one was faster.
        lambda: late.cordon(states.HOST, 1),
    ]
    for act in acts:
        with pytest.raises(NpuError, match="^Another run of the rollout has taken over the node node-a: run-2"):
            act()
    assert shown(api)["run"] == "run-2" and shown(api)["state"] == states.HOST and shown(api)["cordoned"] is True


def test_U02_the_cordon_is_read_back_from_the_node_by_another_process() -> None:
    api = Api(node())
    writer(api).cordon(states.HOST, 1)
    writer(api).done()
    assert shown(api)["cordoned"] is False and shown(api)["state"] == states.DONE


def test_a_cordon_of_others_is_refused_or_stays() -> None:
    api = Api(node(spec={"unschedulable": True}))
    with pytest.raises(NpuError, match="is cordoned, and not by this collection.*rbln_rollout_foreign_cordon"):
        writer(api).cordon(states.PODS, 1)
    assert states.LABEL not in api.node()["metadata"]["labels"]
    one = writer(api)
    one.cordon(states.PODS, 1, upgrade_foreign=True)
    assert states.CORDONED not in api.node()["metadata"]["annotations"]
    one.done()
    assert shown(api)["cordoned"] is True and shown(api)["state"] == states.DONE


def test_who_cordons_again_what_others_uncordoned_keeps_it() -> None:
    api = Api(node())
    writer(api).cordon(states.HOST, 1)
    api.kubectl_cordon(False)
    assert not is_ours(api.node())
    api.kubectl_cordon()
    assert not is_ours(api.node())
    writer(api).done()
    assert shown(api)["cordoned"] is True


def test_U03_a_failure_that_changed_nothing_gives_the_node_back() -> None:
    api = Api(node(labels={GATE + "device-plugin": "true"}))
    one = writer(api)
    one.cordon(states.PODS, 1)
    one.close_gates(["device-plugin"])
    one.give_back("pod team/a did not leave")
    told = shown(api)
    assert (told["state"], told["cordoned"], told["taints"]) == (states.FAILED, False, [])
    assert told["reason"] == "pod team/a did not leave"
    assert api.node()["metadata"]["labels"][GATE + "device-plugin"] == "true"


def test_U03_a_failure_of_the_host_keeps_the_node_out_until_it_is_done() -> None:
    api = Api(node(spec={"taints": [{"key": "team", "value": "ml", "effect": "NoSchedule"}]}))
    one = writer(api)
    one.cordon(states.VALIDATE, 1)
    one.fail("driver_loaded failed\x1b[2J")
    told = shown(api)
    assert (told["state"], told["cordoned"]) == (states.FAILED, True)
    assert told["taints"] == [states.FAILED_TAINT + "=" + states.VALIDATE]
    assert told["reason"].isprintable() and len(api.node()["spec"]["taints"]) == 2
    assert writer(api).fail("driver_loaded failed\x1b[2J") is False
    again = writer(api, "run-2")
    again.cordon(states.HOST, 1)
    again.done()
    told = shown(api)
    assert (told["state"], told["cordoned"], told["taints"], told.get("reason")) == (states.DONE, False, [], None)
    assert len(api.node()["spec"]["taints"]) == 1


def test_U03_a_failed_node_that_cannot_be_drained_again_is_not_given_back() -> None:
    api = Api(node())
    one = writer(api)
    one.cordon(states.VALIDATE, 1)
    one.fail("driver_loaded failed")
    again = writer(api, "run-2")
    again.cordon(states.PODS, 1)
    again.give_back("pod team/a did not leave")
    told = shown(api)
    assert (told["cordoned"], told["taints"]) == (True, [states.FAILED_TAINT + "=" + states.VALIDATE])
    assert (told["state"], told["reason"]) == (states.FAILED, "pod team/a did not leave")
    # Our components, which do not tolerate the taint, come back before the node does.
    again.cordon(states.RESTART, 1)
    assert again.open_gates() is True and shown(api)["taints"] == [] and shown(api)["cordoned"] is True
    again.fail("no NPU is allocatable")
    assert shown(api)["taints"] == [states.FAILED_TAINT + "=" + states.RESTART]


def test_a_failed_node_that_nobody_had_cordoned_is_cordoned() -> None:
    api = Api(node())
    writer(api).fail("no")
    assert shown(api)["cordoned"] is True and is_ours(api.node())


def test_gates_are_closed_and_opened_without_taking_labels_from_their_owner() -> None:
    labels = {GATE + "device-plugin": "true", GATE + "validator": "true", "rebellions.ai/npu.count": "2"}
    api = Api(node(labels=labels, theirs={GATE + "dra-driver": "true"}))
    one = writer(api)
    one.cordon(states.PODS, 1)
    assert one.close_gates(["device-plugin", "dra-driver", "smd"]) is True
    live = api.node()["metadata"]["labels"]
    assert [live[GATE + name] for name in ("device-plugin", "dra-driver", "smd", "validator")] == ["false"] * 3 + [
        "true"
    ]
    again = writer(api)
    asked = api.requests
    assert again.close_gates(["device-plugin", "dra-driver", "smd"]) is False and api.requests == asked + 1
    assert writer(api).open_gates() is True
    after = api.node()
    assert after["metadata"]["labels"] == {**labels, GATE + "dra-driver": "true", states.LABEL: states.PODS}
    assert owned_labels(after) == set(labels)
    assert writer(api).open_gates() is False
    # A run that was killed here and begins again does not take closed gates for what they were.
    writer(api).close_gates(["device-plugin", "dra-driver", "smd"])
    writer(api).done()
    after = api.node()
    assert after["metadata"]["labels"] == {**labels, GATE + "dra-driver": "true", states.LABEL: states.DONE}
    assert owned_labels(after) == set(labels) and states.GATES not in after["metadata"]["annotations"]


def test_open_gates_are_noted_with_the_cordon() -> None:
    api = Api(node(labels={GATE + "device-plugin": "true", GATE + "smd": "false"}))
    one = writer(api)
    one.cordon(states.PODS, 1, components=["device-plugin", "smd", "dra-driver"])
    assert json.loads(api.node()["metadata"]["annotations"][states.GATES]) == {GATE + "device-plugin": "true"}
    asked = api.requests
    one.close_gates(["device-plugin"])
    assert api.requests == asked + 1 and api.node()["metadata"]["labels"][GATE + "device-plugin"] == "false"


def test_a_gate_that_was_closed_before_stays_closed() -> None:
    api = Api(node(labels={GATE + "device-plugin": "false"}))
    one = writer(api)
    assert one.close_gates(["device-plugin"]) is False
    one.open_gates()
    assert api.node()["metadata"]["labels"][GATE + "device-plugin"] == "false"


def test_gates_to_close_are_open_or_have_pods() -> None:
    live = node(labels={GATE + "a": "true", GATE + "b": "false"})
    assert gates_to_close(live, ["a", "b", "c", "d"], {"c"}) == ["a", "c"]


def test_what_others_annotated_meanwhile_stays() -> None:
    api = Api(node(annotations={ALONE[1]: "true"}))
    one = writer(api)
    one.cordon(states.PODS, 1)
    assert json.loads(api.node()["metadata"]["annotations"][FORMER]) == {ALONE[0]: None}
    api.node()["metadata"]["annotations"][ALONE[0]] = "false"
    api.put(api.node())
    writer(api).done()
    annotations = api.node()["metadata"]["annotations"]
    assert (annotations[ALONE[0]], annotations[ALONE[1]]) == ("false", "true")


def test_a_conflict_is_judged_again_on_the_node_as_it_is_then() -> None:
    api = Api(node())
    one = writer(api)
    one.read()
    api.kubectl_cordon()
    with pytest.raises(NpuError, match="is cordoned, and not by this collection"):
        one.cordon(states.PODS, 1)
    assert api.asked == ["get Node", "PATCH nodes", "get Node"]


def test_a_node_that_others_write_all_the_time_or_delete_is_an_error() -> None:
    api = Api(node())
    api.before_write = lambda: api.put(api.node()) and None
    with pytest.raises(NpuError, match="written by others all the time.*show-managed-fields"):
        writer(api).cordon(states.PODS, 1)
    api.before_write = lambda: None
    one = writer(api)
    one.read()
    api.pop("Node", "", NODE)
    with pytest.raises(NpuError, match="node-a was deleted while the rollout worked on it"):
        one.state(states.HOST)


def test_an_api_server_that_is_away_for_a_while_is_waited_for() -> None:
    api = Api(node())
    one = writer(api)
    one.read()
    api.away = (api.now, api.now + 60)
    assert one.cordon(states.PODS, 1) is True
    assert 60 <= api.now - 100 < 70 and "cannot be reached" in api.waited[-1]
    api.away = (api.now, api.now + 1e6)
    with pytest.raises(NpuError, match="cannot be reached"):
        one.done()


@pytest.mark.parametrize("kept", ["no json", "[]", '{"a": 1}'])
def test_a_damaged_note_is_no_note(kept: str) -> None:
    api = Api(node(annotations={states.GATES: kept, FORMER: kept}))
    writer(api).done()
    assert not {states.GATES, FORMER} & set(api.node()["metadata"]["annotations"])
