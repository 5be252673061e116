# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans of hosts and clusters as one screen: words, groups, bounds, totals."""

from __future__ import annotations

import json
import typing as t
from dataclasses import replace

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._plan import words
from ansible_collections.rebellions.npu.plugins.plugin_utils._plan.screen import (
    ClusterPlan,
    HostPlan,
    document,
    pending,
    screen,
    totals,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._text.screen import BAD, DISRUPT, GOOD, UNSURE
from ansible_collections.rebellions.npu.tests.unit.fixtures.planned import (
    NO_DRIVER,
    Data,
    draw,
    driver,
    facts,
    npu,
    observed,
    runtime,
    runtimes,
)

GIVEN: Data = {
    "rbln_driver_source": "runfile",
    "rbln_driver_version": "3.2.2",
    "rbln_driver_runfile": "/srv/driver.run",
    "rbln_driver_runfile_sha256": "c" * 64,
    "rbln_preflight_unlisted": "ignore",
    "rbln_container_toolkit_runtime_restart": "if_required",
}
CHANGE = {"path": "/etc/containerd/config.toml", "why": "CDI is off"}
BARE: Data = {
    "f": facts(driver=NO_DRIVER, npus=[npu("unbound")]),
    "r": runtimes(runtime(changes=[CHANGE], cdi={"state": "off"})),
    "o": observed(
        cdi={"state": "missing", "changed": True},
        host_tool={"current": False, "sha256": None, "wanted": "a"},
        markers={"current": False, "present": []},
        passed=False,
    ),
}


def planned(host: str, raw: Data | None = None, reboot: str = "never", **seen: t.Any) -> HostPlan:
    given = {**GIVEN, **(raw or {})}
    found = draw(given, seen.get("f") or facts(), [], seen.get("r"), seen.get("o"))
    return HostPlan(host, found["steps"], found["stops"], found["cautions"], reboot)


def text(*plans: HostPlan, clusters: t.Sequence[ClusterPlan] = ()) -> str:
    return "\n".join(line.text for line in screen(plans, clusters))


def test_a_bare_host_says_what_is_and_what_is_wanted_in_words() -> None:
    lines = [line.text for line in screen([planned("npu1", **BARE)], [])]
    assert lines == [
        "Plan for 1 host",
        "",
        "1 host: npu1",
        "  driver              not installed -> 3.2.2",
        "  host tool           missing -> current",
        "  CDI spec            missing -> known when the driver is installed",
        "  containerd (2.1.4)  CDI off -> CDI on  [containerd restarts, pods keep running]",
        "  ready files         not written -> written when every blocking check passes",
        "",
        "Hosts: 1 to change, 0 as wanted.",
        "Disruption: 1 host restarts a container runtime.",
    ]


def test_a_host_that_a_rollout_leaves_alone_is_not_to_change() -> None:
    left = replace(planned("npu1", {"rbln_driver_version": "3.4.0", "rbln_driver_replace": True}), left="was cordoned")
    going = replace(left, host="npu2", left="")
    told = text(left, going)
    assert "1 host: npu1\n  LEFT  Its node was cordoned.\n  Without that:\n  driver " in told, told
    assert "Hosts: 1 to change, 0 as wanted, 1 left as they are." in told and "Disruption: 1 host reloads" in told
    counted = totals([left], [])
    assert (counted["change"], counted["left"], pending(counted)) == (0, 1, False)
    assert "Hosts: 0 to change, 0 as wanted, 1 left as they are." in text(left)


def test_a_proof_that_will_fail_is_red_among_the_steps_that_are_done() -> None:
    seen: Data = {**BARE, "f": facts(), "o": observed(passed=False, failed=["device_status", "runtime_cdi_on"])}
    lines = {line.text: line.tone for line in screen([planned("npu1", **seen)], [])}
    step = "  ready files         present -> not written, the proof will fail  These checks do not hold: device_status."
    assert lines[step + " No step repairs that."] == BAD
    assert "Hosts: 1 to change, 0 as wanted." in lines and "  Without the stop:" not in lines


@pytest.mark.parametrize(
    ("raw", "seen", "shown"),
    [
        (
            {"rbln_driver_version": "3.4.0", "rbln_driver_replace": True},
            {},
            "driver       3.2.2 -> 3.4.0  [driver reloads, pods with NPUs must leave]",
        ),
        (
            {},
            {"f": facts(driver=driver(loaded=False, version_loaded=None))},
            "driver       not loaded -> 3.2.2",
        ),
        (
            {"rbln_driver_firmware": "flash", "rbln_driver_firmware_dir": "/fw", "rbln_driver_replace": True},
            {"f": facts(npus=[npu(firmware="3.1.0"), npu(firmware="3.1.0", address="0000:84:00.0")])},
            "3.1.0 on 2 cards -> 3.2.2  [driver unloads while the firmware is flashed, pods with NPUs must leave]  "
            "The firmware of 2 cards is not the driver's release.",
        ),
        (
            {"rbln_driver_reboot": "always"},
            BARE,
            "host                running -> rebooted  [the host reboots, all its pods stop]",
        ),
        (
            {},
            {"r": runtimes(runtime(name="docker", version="27.1", changes=[CHANGE], cdi={"state": "off"}))},
            "docker (27.1)  CDI off -> CDI on  [docker restarts, its containers stop unless live-restore is on]",
        ),
        (
            {},
            {"r": runtimes(runtime(flavor="k3s", changes=[CHANGE], cdi={"state": "off"}))},
            "containerd of k3s (2.1.4)  CDI off -> CDI on  [k3s restarts with its kubelet, pods keep running]",
        ),
        (
            {},
            {"o": observed(passed=False, failed=["driver_loaded"], unknown=["runtime_known", "cdi_current"])},
            "These checks do not hold: driver_loaded. These checks could not be judged: runtime_known, cdi_current.",
        ),
        (
            {"rbln_container_toolkit_package": "ctk=1.0"},
            {},
            "vendor package  not installed -> ctk=1.0",
        ),
    ],
    ids=["upgrade", "load", "firmware", "reboot", "docker", "k3s", "unknown causes", "package"],
)
def test_steps_in_words(raw: Data, seen: Data, shown: str) -> None:
    told = text(planned("npu1", raw, **seen))
    assert shown in told, told
    assert "None" not in told and "[]" not in told and "{}" not in told


def test_a_reboot_that_the_driver_may_ask_for_is_said() -> None:
    told = text(planned("npu1", reboot="if_required", **BARE))
    assert "driver              not installed -> 3.2.2  [the host reboots if the driver asks for it]" in told


@pytest.mark.parametrize("number", [3, 64, 1000])
def test_any_number_of_hosts_is_one_screen(number: int) -> None:
    names = [f"npu{index:04d}.example.com" for index in range(1, number + 1)]
    plans = [planned(name, **(BARE if index % 3 else {})) for index, name in enumerate(names)]
    lines = screen(plans, [])
    assert len(lines) < 40 and all(len(line.text) < 200 for line in lines)
    change = sum(1 for index in range(number) if index % 3)
    assert lines[-2].text == f"Hosts: {change} to change, {number - change} as wanted."
    # What would be changed comes first.
    assert lines[2].text.startswith(f"{change} hosts: npu0002.example.com")


def test_many_kinds_of_plan_are_bounded_and_counted() -> None:
    plans = [
        planned(f"n{index}", {"rbln_driver_version": f"3.4.{index}", "rbln_driver_replace": True})
        for index in range(50)
    ]
    lines = [line.text for line in screen(plans, [], " See more.")]
    assert len(lines) < 60
    assert any(line.startswith("42 more kinds of plan for 42 hosts: n8 to n49. See more.") for line in lines), lines
    assert "Hosts: 50 to change, 0 as wanted." in lines


def test_problems_of_the_controller_have_one_code_and_each_is_shown() -> None:
    def stopped(host: str, detail: str) -> HostPlan:
        return HostPlan(host, stops=[{"code": "controller", "detail": detail, "next_step": "Correct it."}])

    lost, denied = "/srv/driver.run cannot be read.", "The kubeconfig /srv/kube does not exist."
    shown = text(stopped("npu1", lost), stopped("npu2", denied), stopped("npu3", lost))
    assert "2 hosts: npu1, npu3\n  STOP  controller: %s Next: Correct it." % lost in shown
    assert "1 host: npu2\n  STOP  controller: %s Next: Correct it." % denied in shown


def test_hosts_with_the_same_problem_are_one_group_although_their_devices_differ() -> None:
    stopped = [
        HostPlan(
            f"n{index}", stops=[{"code": "disk_full", "detail": f"/dev/sd{index} is full.", "next_step": "Free it."}]
        )
        for index in range(3)
    ]
    lines = screen([planned("good"), *stopped], [])
    assert [line.text for line in lines[2:4]] == [
        "3 hosts: n0 to n2",
        "  STOP  disk_full (on n0): /dev/sd0 is full. Next: Free it.",
    ]
    assert lines[3].tone == BAD and "Hosts: 0 to change, 1 as wanted, 3 stopped." in [line.text for line in lines]
    assert "  nothing to do" in [line.text for line in lines if line.tone == GOOD]


def test_a_caution_is_a_note_and_information_is_not_shown() -> None:
    caution = {"code": "disk_low", "severity": "warning", "detail": "Little room.", "next_step": ""}
    plan = HostPlan("n1", cautions=[caution, {**caution, "code": "told", "severity": "info"}])
    lines = screen([plan], [])
    assert [line.text for line in lines if line.tone == UNSURE] == ["  NOTE  disk_low: Little room."]


def test_a_host_without_a_plan_is_named_with_its_error() -> None:
    lines = screen([HostPlan("n1", error="rbln_driver_version is 3.2.\nNext: quote it.")], [])
    assert "  NO PLAN  rbln_driver_version is 3.2. Next: quote it." in [line.text for line in lines]
    assert lines[-1].text == "Hosts: 0 to change, 0 as wanted, 1 without a plan."


def record(node: str, before: Data, after: Data) -> Data:
    return {"node": node, "changed": before != after, "before": before, "after": after}


GATE = "rebellions.ai/npu.deploy."


def test_a_cluster_says_what_is_created_changed_removed_and_labelled() -> None:
    after = {
        **{f"rebellions.ai/l{index}": "x" for index in range(5)},
        GATE + "device-plugin": "true",
        GATE + "smd": "false",
    }
    nodes = {f"h{index}": record(f"npu{index}", {}, after) for index in range(1, 61)}
    nodes["h61"] = record("npu61", {"a": "1", GATE + "smd": "true"}, {"a": "2", GATE + "smd": "false"})
    cluster = ClusterPlan(
        "/srv/kubeconfig",
        {
            "Namespace rbln": "created",
            "DaemonSet rbln/a": "created",
            "DaemonSet rbln/b": "changed",
            "ConfigMap rbln/c": "deleted",
            "ConfigMap rbln/d": "unchanged",
        },
        nodes,
    )
    lines = [line.text for line in screen([], [cluster])]
    assert lines[2:] == [
        "Cluster /srv/kubeconfig",
        "  create  DaemonSet rbln/a",
        "  create  Namespace rbln",
        "  change  DaemonSet rbln/b",
        "  remove  ConfigMap rbln/c",
        "  label   60 nodes (npu1 to npu60): 5 labels; gate open for device-plugin; gate closed for smd",
        "  label   1 node (npu61): a 1 -> 2; gate closed for smd",
        "",
        "Hosts: 0 to change, 0 as wanted.",
        "Clusters: 2 to create, 1 to change, 1 to remove, 61 nodes to label.",
    ]
    assert [line.tone for line in screen([], [cluster]) if line.text.startswith("  remove")] == [DISRUPT]


def test_what_a_cluster_refuses_is_a_stop_said_once() -> None:
    cluster = ClusterPlan("c", {"DaemonSet x/y": "failed"}, {}, {"n1": "n1: no node.", "n2": "n2: no node."})
    lines = [line.text for line in screen([], [cluster])]
    assert lines[3:5] == ["  STOP  n1, n2: no node.", "  REFUSED DaemonSet x/y"]
    assert lines[-1].endswith("; 1 cluster refused.")


def test_only_a_difference_is_pending() -> None:
    right, same = planned("n1"), ClusterPlan("c", {"DaemonSet x/y": "unchanged"}, {"n1": record("n1", {}, {})})
    assert not pending(totals([right], [same]))
    assert pending(totals([planned("n1", **BARE)], []))
    for objects in ({"a b": "created"}, {"a b": "changed"}, {"a b": "deleted"}):
        assert pending(totals([right], [ClusterPlan("c", objects)]))
    assert pending(totals([right], [ClusterPlan("c", {}, {"n1": record("n1", {}, {"a": "b"})})]))
    # A stopped host changes nothing.
    stopped = HostPlan("n", planned("n", **BARE).steps, [{"code": "c", "detail": "d", "next_step": ""}])
    assert not pending(totals([stopped], []))


def test_the_document_for_programs_has_every_host() -> None:
    plans = [planned(f"n{index}", **BARE) for index in range(20)]
    told = json.loads(json.dumps(document(plans, [ClusterPlan("c", {"a b": "created"})])))
    assert len(told["hosts"]) == 20 and told["hosts"]["n7"]["steps"][0]["id"] == "driver.install"
    assert told["clusters"]["c"]["objects"] == {"a b": "created"} and told["totals"]["change"] == 20


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["b", "a"], "a, b"),
        (["n1", "n2"], "n1, n2"),
        (["n10", "n9", "n11"], "n9 to n11"),
        (["n01.x", "n02.x", "n03.x", "n05.x"], "n01.x to n03.x, n05.x"),
        (["n1.a", "n2.b", "n3.a"], "n1.a, n2.b, n3.a"),
        (["192.0.2.9", "192.0.2.10", "192.0.2.11"], "192.0.2.9 to 192.0.2.11"),
        ([f"{letter}x" for letter in "abcdefgh"], "ax, bx, cx, dx, ex, fx and 2 more"),
        ([], ""),
    ],
)
def test_names_of_hosts_in_short(names: list[str], shown: str) -> None:
    assert words.hosts(names) == shown
