# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What rollouts leave on nodes goes with everything else that is ours."""

from __future__ import annotations

from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes import marks
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.nodes import labelled_nodes, unlabel_nodes
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout import states
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.node import NodeWriter
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.rollout_api import NODE, Api, node

COUNT = "rebellions.ai/npu.count"


def writer(api: Api) -> NodeWriter:
    return NodeWriter(api, NODE, "run", clock=api.clock, sleep=api.sleep)  # type: ignore[arg-type]


def test_the_words_are_those_of_rollouts() -> None:
    assert (marks.STATE, marks.TAINT, marks.CORDONED) == (states.LABEL, states.FAILED_TAINT, states.CORDONED)
    keys = (states.RUN, states.WAVE, states.SINCE, states.REASON, states.CORDONED, states.GATES, marks.FORMER)
    assert all(key.startswith(marks.NOTES) for key in keys)


def test_a_failed_node_and_a_finished_one_are_as_before() -> None:
    for end in ("fail", "done"):
        api = Api(node(labels={COUNT: "2"}, spec={"taints": [{"key": "team", "effect": "NoSchedule"}]}))
        one = writer(api)
        one.cordon(states.PODS, 1)
        one.close_gates(["device-plugin"])
        if end == "fail":
            one.fail("no")
        else:
            one.done()
        assert labelled_nodes(api) == [NODE]  # type: ignore[arg-type]
        assert unlabel_nodes(api, True) == [NODE] and labelled_nodes(api) == [NODE]  # type: ignore[arg-type]
        # Others write between the look and the change.
        late = [lambda live=api: live.put(live.node())]  # type: ignore[misc]
        api.before_write = lambda late=late: late.pop()() and None if late else None  # type: ignore[misc]
        assert unlabel_nodes(api, False) == [NODE]  # type: ignore[arg-type]
        live = api.node()
        assert (live["metadata"]["labels"], live["metadata"]["annotations"]) == ({}, {})
        assert live["spec"] == {"taints": [{"key": "team", "effect": "NoSchedule"}]}
        assert labelled_nodes(api) == [] and unlabel_nodes(api, False) == []  # type: ignore[arg-type]


def test_a_cordon_of_others_and_the_state_of_the_operator_stay() -> None:
    api = Api(node(theirs={states.LABEL: states.DONE}, spec={"unschedulable": True}))
    assert unlabel_nodes(api, False) == [] and not marks.is_marked(api.node())  # type: ignore[arg-type]
    assert api.node()["metadata"]["labels"] == {states.LABEL: states.DONE}
    writer(api).cordon(states.PODS, 1, upgrade_foreign=True)
    assert unlabel_nodes(api, False) == [NODE]  # type: ignore[arg-type]
    assert api.node()["spec"]["unschedulable"] is True and api.node()["metadata"]["annotations"] == {}
