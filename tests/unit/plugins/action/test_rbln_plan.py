# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's part of rbln_plan: which groups of a host count as its pools, and what its proxies are to be."""

from __future__ import annotations

import types
import typing as t

import pytest
from ansible_collections.rebellions.npu.plugins.action.rbln_plan import (
    ActionModule,
    _done_before,
    _groups,
    _told_here,
    exceptions,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._answers.action import Answering
from ansible_collections.rebellions.npu.plugins.plugin_utils._plan.plan import from_bundle

OLD, NEW = "debian_12_k6_1_0_50", "debian_12_k6_1_0_47"
POOLS = ["npu_nodes", "npu_pool_" + OLD, "npu_pool_" + NEW]


@pytest.mark.parametrize(
    ("left", "now", "groups"),
    [
        (None, OLD, POOLS),
        ([OLD], NEW, ["npu_nodes", "npu_pool_" + NEW]),
        # Rebooted into the same kernel, or back into it: the pool is not left.
        ([OLD], OLD, POOLS),
        ([OLD, NEW], OLD, ["npu_nodes", "npu_pool_" + OLD]),
    ],
)
def test_pools_of_kernels_before_a_reboot_do_not_count(left: list[str] | None, now: str, groups: list[str]) -> None:
    variables: dict[str, t.Any] = {"group_names": POOLS, **({} if left is None else {"rbln_driver_pools_left": left})}
    # The plan of this run that is there already may be one from after the reboot.
    variables["rbln_preflight_plan"] = {"observation": {"ansible_facts": {"rbln": {"pool_key": now}}}}
    assert _groups(variables, now) == groups


@pytest.mark.parametrize("change", [None, {"skipped": True, "changed": False}, {"changed": True, "error": ""}])
def test_a_plan_that_stops_after_the_driver_was_changed_says_so(change: dict[str, t.Any] | None) -> None:
    told = _done_before("n1", {} if change is None else {"rbln_driver_change": change})
    changed = "The driver of n1 was changed, and nothing after it."
    assert told == (changed if change and change["changed"] else "Nothing was changed on n1.")


def test_what_runtimes_reach_without_a_proxy() -> None:
    assert exceptions("a, b", None, ["10.0.0.0/8"], "192.0.2.1", "n1") == [
        "a", "b", "192.0.2.1", "n1", ".svc", ".cluster.local", "10.0.0.0/8",
    ]  # fmt: skip
    assert exceptions("", ".k8s.site.", "10.0.0.0/8,fd00::/8", None, "n1") == [
        "n1", ".svc", ".k8s.site", "10.0.0.0/8", "fd00::/8",
    ]  # fmt: skip


class Task(types.SimpleNamespace):
    def copy(self) -> Task:
        return Task(**vars(self))


class Inner(Answering):
    """An action that another one runs; it answers."""

    answer: t.ClassVar[dict[str, t.Any]] = {}

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        return dict(self.answer)


class Looking(ActionModule):
    """The plan's look at the proxies of a host, which answers."""

    def __init__(self, answer: dict[str, t.Any]) -> None:
        name = {"name": "Plan", "register": "rbln_preflight_plan"}
        self._task = Task(args={"observation": {}}, check_mode=False, diff=True, **name)
        self._templar = types.SimpleNamespace(template=lambda value: value)
        self.answer = answer
        self.looks: list[Task] = []

    def _action(self, name: str, task: t.Any) -> t.Any:
        assert name.startswith("rebellions.npu.rbln_")
        self.looks.append(task)
        inner: t.Any = Inner.__new__(Inner)
        inner._task, inner.answer = task, self.answer
        return inner

    def look(self, wanted: bool = True) -> t.Any:
        inputs = {
            "rbln_container_toolkit_runtime_proxies": wanted,
            "rbln_driver_http_proxy": "",
            "rbln_driver_https_proxy": "http://u:hunted-word@proxy:1",
            "rbln_driver_no_proxy": "site",
        }
        return self._proxies(
            inputs, {"runtimes": []}, {"inventory_hostname": "n1", "rbln_cluster_cidrs": ["10.0.0.0/8"]}
        )


def test_the_plan_looks_at_the_proxies_of_a_host_and_holds_none() -> None:
    names = [{"name": "containerd", "changed": True}, {"name": "docker", "changed": False}]
    looking = Looking({"runtimes": names})
    found = looking.look()
    assert found == {
        "changed": ["containerd"],
        "no_proxy": ["site", "n1", ".svc", ".cluster.local", "10.0.0.0/8"],
        "problem": "",
        "next_step": "",
    }
    task = looking.looks[0]
    assert (task.check_mode, task.diff, looking._task.args) == (True, False, {"observation": {}})
    assert (task.args["http_proxy"], task.args["https_proxy"]) == (None, "http://u:hunted-word@proxy:1")
    assert (task.args["configure"], task.args["no_proxy"]) == (["proxies"], found["no_proxy"])


def test_a_look_that_fails_is_a_problem_of_the_plan_and_no_look_is_made_without_the_input() -> None:
    looking = Looking({"failed": True, "msg": "There is no proxy. Next: Give one."})
    assert looking.look(wanted=False) is None and looking.looks == []
    found = looking.look()
    assert (found["changed"], found["problem"], found["next_step"]) == ([], "There is no proxy.", "Give one.")


def test_a_play_that_keeps_the_failure_of_the_plan_hides_none_from_it() -> None:
    """The play that changes hosts keeps what the plan registers; its looks failed, and were taken for good ones."""
    kept = {"inventory_hostname": "n1", "__rbln_kept": ["rbln_preflight_plan"]}
    looking = Looking({"failed": True, "msg": "There is no disk. Next: Add one."})
    assert looking._looked("rbln_bundle", {}, kept).get("failed") and looking._observe(kept).get("failed")
    assert looking._task.register == "rbln_preflight_plan"


def test_a_bundle_that_is_not_placed_stops_the_host_that_needs_it() -> None:
    given = {"rbln_driver_bundle": "/b", "rbln_driver_source": "package", "rbln_driver_package_names": ["driver"]}
    steps: list[t.Any] = [
        {"id": "driver.prerequisites", "wanted": ["dkms"]},
        {"id": "driver.install", "wanted": "3.2.2"},
    ]
    looking = Looking({"failed": True, "msg": "/b/manifest.json cannot be read: absent. Next: Place the bundle first."})
    (stop,) = looking._bundle(from_bundle(steps, given), {})
    assert (stop["code"], stop["severity"]) == ("bundle_not_ready", "error")
    assert (stop["detail"], stop["next_step"]) == (
        "/b/manifest.json cannot be read: absent.",
        "Place the bundle first.",
    )
    wanted = {"state": "checked", "directory": "/b", "packages": ["dkms"], "driver_names": ["driver"]}
    assert (looking.looks[0].args, looking.looks[0].check_mode) == (wanted, True)
    assert Looking({"changed": False})._bundle(from_bundle(steps, given), {}) == []
    # Nothing is taken from it: no look.
    for row, inputs in (
        (steps[:0], given),
        ([{"id": "toolkit.cdi", "wanted": "x"}], given),
        (steps, {"rbln_driver_bundle": ""}),
    ):
        assert from_bundle(row, inputs) is None
    assert looking._bundle(None, {}) == [] and len(looking.looks) == 1


def test_what_is_wrong_on_the_controller_is_told_by_the_first_host_that_it_stops() -> None:
    finding = {"detail": "/srv/a.run cannot be read.", "next_step": "Check the path.", "hosts": ["n1", "n2"]}
    assert _told_here("n1", finding, "n1") == "/srv/a.run cannot be read. Next: Check the path."
    told = _told_here("n2", finding, "n1")
    assert told == "The problem of the controller in the message of n1 stops it too. Next: Correct that one."
