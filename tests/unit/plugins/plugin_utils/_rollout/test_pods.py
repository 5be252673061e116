# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which pods hold NPUs, and what becomes of each by policy."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._rollout.pods import (
    Leaving,
    Policy,
    classify,
    holds,
)
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.rollout_api import pod

DRIVER = "npu.rebellions.ai"
NONE: dict[str, Any] = {"containers": [{"name": "main", "resources": {"limits": {"cpu": "1"}}}]}


def resources(**amounts: str) -> dict[str, Any]:
    return {"resources": {key: {"rebellions.ai/" + value: "1"} for key, value in amounts.items()}}


def result(driver: str) -> dict[str, Any]:
    return {"status": {"allocation": {"devices": {"results": [{"driver": driver, "device": "npu0"}]}}}}


@pytest.mark.parametrize(
    "spec, held",
    [
        ({"containers": [{"name": "a"}, {"name": "b", **resources(limits="npu")}]}, "has rebellions.ai/npu"),
        ({"containers": [{"name": "a", **resources(requests="ATOM")}]}, "has rebellions.ai/ATOM"),
        ({**NONE, "initContainers": [{"name": "i", **resources(limits="npu")}]}, "has rebellions.ai/npu"),
        ({**NONE, "initContainers": [{"name": "s", "restartPolicy": "Always", **resources(limits="RBLN-CR13_PF")}]},
         "has rebellions.ai/RBLN-CR13_PF"),
        ({**NONE, **resources(requests="npu")}, "has rebellions.ai/npu"),
        (NONE, ""),
        ({"containers": [{"name": "a", "resources": {"limits": {"rebellions.ai/npu": "0"}}}]}, ""),
        ({"containers": [{"name": "a", "resources": {"limits": {"rebellions.ai/npu": 0}}}]}, ""),
        ({"containers": [{"name": "a", "resources": {"limits": {"rebellions.ai/npu": "odd"}}}]},
         "has rebellions.ai/npu"),
        ({"containers": [{"name": "a", "resources": {"limits": {"rebellions.ai.example.com/npu": "1"}}}]}, ""),
        ({"containers": [{"name": "a", "resources": None}], "initContainers": None}, ""),
    ],
)  # fmt: skip
def test_001_07_resources_of_every_kind_of_container_hold(spec: dict[str, Any], held: str) -> None:
    assert holds(pod("a", spec=spec), {}, DRIVER) == held


@pytest.mark.parametrize(
    "annotations, held",
    [
        ({"cdi.k8s.io/runtime_npu": "rebellions.ai/npu=0"}, "has the annotation cdi.k8s.io/runtime_npu"),
        ({"cdi.k8s.io/x": "example.com/gpu=0, rebellions.ai/rds=all"}, "has the annotation cdi.k8s.io/x"),
        ({"cdi.k8s.io/x": "example.com/gpu=0"}, ""),
        ({"note": "rebellions.ai/npu=0"}, ""),
    ],
)
def test_annotations_of_cdi_hold(annotations: dict[str, str], held: str) -> None:
    assert holds(pod("a", spec=NONE, annotations=annotations), {}, DRIVER) == held


@pytest.mark.parametrize(
    "more, claim, held",
    [
        ({"spec": {**NONE, "resourceClaims": [{"name": "n", "resourceClaimName": "c"}]}}, result(DRIVER), True),
        ({"spec": {**NONE, "resourceClaims": [{"name": "n", "resourceClaimName": "c"}]}}, result("gpu.x.com"), False),
        ({"spec": {**NONE, "resourceClaims": [{"name": "n", "resourceClaimTemplateName": "t"}]},
          "status": {"resourceClaimStatuses": [{"name": "n", "resourceClaimName": "c"}]}}, result(DRIVER), True),
        ({"spec": NONE, "status": {"extendedResourceClaimStatus": {"resourceClaimName": "c"}}}, result(DRIVER), True),
        ({"spec": {**NONE, "resourceClaims": [{"name": "n", "resourceClaimName": "c"}]}},
         {"spec": {"devices": {"requests": [{"exactly": {"deviceClassName": "vfio-npu.rebellions.ai"}}]}}}, True),
        ({"spec": {**NONE, "resourceClaims": [{"name": "n", "resourceClaimName": "c"}]}},
         {"spec": {"devices": {"requests": [{"firstAvailable": [{"deviceClassName": "gpu"}]}]}}}, False),
        ({"spec": {**NONE, "resourceClaims": [{"name": "n", "resourceClaimName": "gone"}]}}, result(DRIVER), False),
    ],
)  # fmt: skip
def test_claims_of_the_dra_driver_hold(more: dict[str, Any], claim: dict[str, Any], held: bool) -> None:
    found = holds(pod("a", **more), {("team", "c"): claim, ("other", "gone"): result(DRIVER)}, DRIVER)
    assert found == ("has the ResourceClaim c" if held else "")


def of(leaving: Leaving) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key in ("evict", "going", "ours"):
        found[key] = [one["metadata"]["name"] for one in getattr(leaving, key)]
    for key in ("waits", "refused", "stays"):
        found[key] = [told.pod["metadata"]["name"] for told in getattr(leaving, key)]
    return {key: names for key, names in found.items() if names}


DAEMON = {"kind": "DaemonSet", "name": "agent", "controller": True}
SCRATCH = {**pod("x")["spec"], "volumes": [{"name": "tmp", "emptyDir": {}}]}
OURS = {"app.kubernetes.io/part-of": "rebellions-npu", "app.kubernetes.io/component": "device-plugin"}


@pytest.mark.parametrize(
    "one, policy, key",
    [
        (pod("a"), Policy(), "evict"),
        (pod("a", spec=NONE), Policy(), "stays"),
        (pod("a", spec=NONE), Policy(pods="all"), "evict"),
        (pod("a"), Policy(pods="refuse"), "refused"),
        (pod("a", spec=NONE), Policy(pods="refuse"), "stays"),
        (pod("a", status={"phase": "Succeeded"}), Policy(pods="all"), "stays"),
        (pod("a", status={"phase": "Failed"}, owner=None), Policy(), "stays"),
        (pod("a", deletionTimestamp="2026-01-01T00:00:00Z"), Policy(pods="refuse"), "going"),
        (pod("a", owner=None), Policy(), "refused"),
        (pod("a", owner={"kind": "ReplicaSet", "name": "x"}), Policy(), "refused"),
        (pod("a", owner=None), Policy(unmanaged="delete"), "evict"),
        (pod("a", spec=SCRATCH), Policy(), "evict"),
        (pod("a", spec=SCRATCH), Policy(empty_dir="refuse"), "refused"),
        (pod("a", owner=DAEMON), Policy(), "refused"),
        (pod("a", owner=DAEMON, spec=NONE), Policy(pods="all"), "stays"),
        (pod("a", owner={"kind": "Node", "name": "n", "controller": True}), Policy(), "refused"),
        (pod("a", spec=NONE, annotations={"kubernetes.io/config.mirror": "x"}), Policy(pods="all"), "stays"),
        (pod("a", annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}), Policy(), "waits"),
        (pod("a", annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}), Policy(), "evict"),
        (pod("a", annotations={"descheduler.alpha.kubernetes.io/prefer-no-eviction": ""}), Policy(), "waits"),
        (pod("a", annotations={"karpenter.sh/do-not-disrupt": "true"}), Policy(), "waits"),
        (pod("a", annotations={"karpenter.sh/do-not-evict": "true"}), Policy(), "waits"),
        (pod("a", owner=DAEMON, namespace="rbln-system", labels=OURS, spec=NONE),
         Policy(namespace="rbln-system", components=("device-plugin",)), "ours"),
        (pod("a", owner=DAEMON, namespace="rbln-system", labels=OURS, spec=NONE),
         Policy(namespace="rbln-system", components=("dra-driver",)), "stays"),
        (pod("a", owner=DAEMON, namespace="rbln-system", labels=OURS, spec=NONE, deletionTimestamp="x"),
         Policy(namespace="rbln-system", components=("dra-driver",)), "going"),
        (pod("a", owner=DAEMON, namespace="rbln-system", labels=OURS), Policy(namespace="rbln-system"), "ours"),
        (pod("a", owner=DAEMON, namespace="team", labels=OURS), Policy(namespace="rbln-system"), "refused"),
        (pod("a", owner=None, namespace="rbln-system", labels=OURS), Policy(namespace="rbln-system"), "refused"),
    ],
)  # fmt: skip
def test_each_kind_of_pod_has_its_policy(one: dict[str, Any], policy: Policy, key: str) -> None:
    assert of(classify([one], {}, policy)) == {key: ["a"]}


def test_what_refuses_says_why_and_what_to_do() -> None:
    for one in (
        pod("a", owner=None),
        pod("a", owner=DAEMON),
        pod("a", annotations={"kubernetes.io/config.mirror": ""}),
    ):
        told = classify([one], {}, Policy()).refused[0]
        assert told.why and told.step[0].isupper() and told.step.endswith(".")


def test_U04_a_pod_of_the_same_name_on_another_node_does_not_count() -> None:
    before, after = pod("sts-0", "node-a", uid="u1"), pod("sts-0", "node-b", uid="u2")
    assert of(classify([before], {}, Policy(), "node-a")) == {"evict": ["sts-0"]}
    assert of(classify([after], {}, Policy(), "node-a")) == {}


def test_the_list_before_the_first_act_names_each_pod_and_its_fate() -> None:
    pods = [pod("one"), pod("two", deletionTimestamp="x"), pod("bare", owner=None), pod("cpu", spec=NONE)]
    assert classify(pods, {}, Policy()).text() == (
        "evicts team/one; waits for the end of team/two; "
        "refuses team/bare (no controller would start it again elsewhere); leaves 1 (hold no NPU)"
    )
    many = classify([pod("p%d" % number) for number in range(12)], {}, Policy()).text()
    assert many.endswith("team/p7 and 4 more")


def test_names_of_pods_cannot_write_on_the_screen() -> None:
    assert classify([pod("a\x1b[2J\r\n")], {}, Policy()).text().isprintable()


def test_a_pod_without_specification_is_no_error() -> None:
    assert of(classify([{"metadata": {"name": "a"}}], {}, Policy())) == {"stays": ["a"]}
