# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The smoke workload: what runs, and what its end proves."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.plugin_utils._cluster.api import ApiError
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.smoke import (
    brief,
    has_ended,
    shown_log,
    smoke_job,
    smoke_progress,
    smoke_verdict,
)
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.smoke_wait import wait_for_smoke
from ansible_collections.rebellions.npu.tests.unit.plugins.plugin_utils.operands_samples import inputs

SECRET = "n0t-a-Real-one-7"
Data = dict[str, Any]
IMAGE = {"repository": "team/smoke", "tag": "1"}


def typed(given: Data | None = None, **more: Any) -> Any:
    return inputs(smoke={"enabled": True, "image": IMAGE, "command": ["run"], **(given or {})}, **more)


def pod_of(job: Data) -> Data:
    spec: Data = job["spec"]["template"]["spec"]
    return spec


def test_the_pod_has_one_npu_of_one_node_and_is_restricted() -> None:
    job = smoke_job(typed({"env": {"A": 1}, "args": ["-x"]}, tolerations=[{"key": "t", "operator": "Exists"}]), "n.1")
    pod = pod_of(job)
    terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms == [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n.1"]}]}]
    (one,) = pod["containers"]
    assert one["resources"] == {"limits": {"rebellions.ai/npu": "1"}} and one["env"] == [{"name": "A", "value": "1"}]
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65534,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert one["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert pod["automountServiceAccountToken"] is False and pod["restartPolicy"] == "Never"
    assert [item["key"] for item in pod["tolerations"]] == ["rebellions.ai/npu", "t"]
    assert brief(job) == "docker.io/team/smoke:1 run -x"


def test_kubernetes_ends_and_removes_what_an_interrupted_run_leaves() -> None:
    job = smoke_job(typed({"timeout": 100}), "n1")
    assert job["spec"]["activeDeadlineSeconds"] == 220 and job["spec"]["ttlSecondsAfterFinished"] == 120
    assert job["spec"]["backoffLimit"] == 0
    again, other = smoke_job(typed({"image": {**IMAGE, "tag": "2"}}), "n1"), smoke_job(typed(), "n2")
    assert job["metadata"]["name"] == again["metadata"]["name"] != other["metadata"]["name"]
    assert "app.kubernetes.io/part-of" not in job["metadata"]["labels"]


def test_resource_registry_digest_and_root_are_inputs() -> None:
    digest = "sha256:" + "7" * 64
    job = smoke_job(
        typed(
            {"user": 0, "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}},
            resource_name="rebellions.ai/ATOM",
            registry="mirror.example",
            image_digests={"docker.io/team/smoke:1": digest},
            require_digest=True,
            image_pull_secrets=["s"],
        ),
        "n1",
    )
    (one,) = pod_of(job)["containers"]
    assert one["image"] == "mirror.example/team/smoke@" + digest
    assert one["resources"]["limits"] == {"cpu": "2", "rebellions.ai/ATOM": "1"}
    assert one["resources"]["requests"] == {"cpu": "1", "rebellions.ai/ATOM": "1"}
    assert pod_of(job)["securityContext"]["runAsNonRoot"] is False
    assert pod_of(job)["imagePullSecrets"] == [{"name": "s"}]


@pytest.mark.parametrize(
    ("given", "more", "words"),
    [
        ({"image": {"tag": "1"}}, {}, "rbln_operands_smoke.image.repository '' is not an image repository"),
        ({"image": {"repository": "a/b"}}, {}, "rbln_operands_smoke.image has neither tag nor digest"),
        ({}, {"require_digest": True}, "docker.io/team/smoke:1"),
        (
            {},
            {"dra_driver": {"enabled": True}, "device_plugin": {"enabled": False}},
            "with rbln_operands_dra_driver no node offers rebellions.ai/npu",
        ),
    ],
)
def test_an_image_that_cannot_be_is_refused(given: Data, more: Data, words: str) -> None:
    with pytest.raises(NpuError) as found:
        smoke_job(typed(given, **more), "n1")
    assert words in str(found.value) and " Next: " in str(found.value)


def test_a_device_class_that_answers_for_the_resource_is_enough() -> None:
    dra = {"enabled": True, "extended_resource": True}
    job = smoke_job(typed(dra_driver=dra, device_plugin={"enabled": False}), "n1")
    assert pod_of(job)["containers"][0]["resources"] == {"limits": {"rebellions.ai/npu": "1"}}


def ended(phase: str, code: int, reason: str = "Error") -> Data:
    state = {"terminated": {"exitCode": code, "reason": reason}}
    return {"phase": phase, "containerStatuses": [{"name": "smoke", "state": state}]}


def beside(status: Data, **sidecar: Any) -> Data:
    """The same pod with a sidecar, which the kubelet lists first."""
    return {**status, "containerStatuses": [{"name": "istio-proxy", "state": sidecar}, *status["containerStatuses"]]}


RUNS: Data = {"running": {"startedAt": "2026-11-29T08:00:00Z"}}
OURS_RUNS: Data = {"phase": "Running", "containerStatuses": [{"name": "smoke", "state": RUNS}]}
ENDED = {"terminated": {"exitCode": 1}}
WAITS = {"phase": "Pending", "containerStatuses": [{"name": "smoke", "state": {"waiting": {"reason": "ErrImagePull"}}}]}
FULL = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "Insufficient npu"}]
VERDICTS: dict[str, tuple[Data | None, list[str], bool, list[str]]] = {
    "well": (ended("Succeeded", 0, "Completed"), ["a", "ok 1"], True, ["code 0", "a | ok 1"]),
    "well and silent": (ended("Succeeded", 0), [], True, ["Its log is empty"]),
    "ended badly": (ended("Failed", 3), ["no device"], False, ["code 3", "no device", "rbln_operands_smoke"]),
    "killed for memory": (ended("Failed", 137, "OOMKilled"), [], False, ["code 137 (OOMKilled)"]),
    "an exit code of 0 in a pod that failed": (ended("Failed", 0), [], False, ["code 0"]),
    "not pulled": (WAITS, [], False, ["did not start", "ErrImagePull", "pull secret"]),
    "no room": ({"phase": "Pending", "conditions": FULL}, [], False, ["Insufficient npu", "room"]),
    "rejected": (
        {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no healthy devices"},
        [],
        False,
        ["no healthy devices", "device plugin"],
    ),
    "evicted": (
        {**ended("Failed", 137), "reason": "Evicted", "message": "low on memory"},
        [],
        False,
        ["low on memory"],
    ),
    "still running": ({"phase": "Running"}, ["step 1"], False, ["still runs after 300 s", "step 1", "smoke.timeout"]),
    "well beside a sidecar that runs on": (
        beside(ended("Running", 0), **RUNS),
        ["ok"],
        True,
        ["code 0", "istio-proxy has not ended", "ok"],
    ),
    "badly beside a sidecar that runs on": (beside(ended("Running", 3), **RUNS), [], False, ["code 3"]),
    "badly beside a sidecar that ended well": (
        beside(ended("Failed", 3), terminated={"exitCode": 0}),
        [],
        False,
        ["code 3"],
    ),
    "well beside a sidecar that ended badly": (
        beside(ended("Failed", 0), terminated={"exitCode": 1}),
        [],
        True,
        ["code 0", "istio-proxy ended with code 1"],
    ),
    "only a sidecar has ended": (
        beside(OURS_RUNS, terminated={"exitCode": 0}),
        [],
        False,
        ["still runs after 300 s"],
    ),
    "no pod": (None, [], False, ["got no pod: FailedCreate: forbidden by a policy", "rbln-system"]),
}


@pytest.mark.parametrize("case", VERDICTS)
def test_what_the_end_of_the_workload_proves(case: str) -> None:
    status, log, good, words = VERDICTS[case]
    pods = [{"metadata": {"name": "p"}, "spec": {"nodeName": "n1"}, "status": status}] if status else []
    job = smoke_job(typed(), "n1")["metadata"]["name"]
    event = {"metadata": {"name": "e"}, "involvedObject": {"name": job}, "type": "Warning"}
    events = [{**event, "reason": "FailedCreate", "message": "forbidden by a policy"}]
    seen, text = smoke_verdict(typed(), "n1", {"pods": pods, "log": log, "events": events})
    assert seen is good and text.startswith("node n1: the smoke workload")
    assert [word for word in words if word not in text] == [] and (" Next: " in text) is not good


def test_gpustack_4130_a_container_that_the_runtime_did_not_start_has_no_log_to_read() -> None:
    # With restartPolicy Never it has ended at once, and only its own message has the cause.
    said = (
        "failed to create containerd task: failed to create shim task: OCI runtime create failed: error modifying OCI "
        "spec: failed to inject CDI devices: unresolvable CDI devices rebellions.ai/npu=0: unknown"
    )
    alone = ended("Failed", 128, "StartError")
    alone["containerStatuses"][0]["state"]["terminated"]["message"] = said
    step = "Run `site` with --tags toolkit for this host: the runtime of its node does not know the device."
    for status in (alone, {**beside(alone, **RUNS), "phase": "Running"}):
        pods = [{"metadata": {"name": "p"}, "spec": {}, "status": status}]
        passed, told = smoke_verdict(typed(), "n1", {"pods": pods})
        assert not passed and "unresolvable CDI devices rebellions.ai/npu=0" in told
        assert told.endswith("Next: " + step)


def test_without_a_record_of_a_pod_there_is_no_success() -> None:
    good, text = smoke_verdict(typed(), "n1", {})
    assert good is False and "got no pod within 300 s" in text


def test_a_log_cannot_move_the_terminal() -> None:
    pods = [{"metadata": {"name": "p"}, "status": ended("Failed", 1)}]
    _good, text = smoke_verdict(typed(), "n1", {"pods": pods, "log": ["\x1b[2Jx" * 900] * 20})
    assert text.isprintable() and len(text) < 1000


def test_neither_the_log_nor_the_pod_of_a_workload_tells_a_secret() -> None:
    key = ["-----BEGIN PRIVATE KEY-----", SECRET, "-----END PRIVATE KEY-----"]
    log = ["", "HF_TOKEN=%s is set" % SECRET, *key, "/dev/rbln0"]
    pods = [{"metadata": {"name": "p"}, "status": ended("Failed", 1)}]
    _good, text = smoke_verdict(typed(), "n1", {"pods": pods, "log": log})
    assert SECRET not in text + str(shown_log({"log": log})) and text.count("/dev/rbln0") == 1
    assert shown_log({"log": log})[0] == "HF_TOKEN=******** is set" and shown_log({}) == []
    given = {"containers": [{"name": "smoke", "env": [{"name": "HF_TOKEN", "value": SECRET}]}]}
    found, _told = waits([{"metadata": {"name": "p"}, "spec": given, "status": {"phase": "Succeeded"}}])
    assert SECRET not in str(found) and "HF_TOKEN" in str(found)


@pytest.mark.parametrize(
    "status, ended",
    [
        (None, False),
        ({}, False),
        ({"phase": "Pending"}, False),
        ({"phase": "Succeeded"}, True),
        ({"phase": "Failed"}, True),
        (OURS_RUNS, False),
        ({**OURS_RUNS, "containerStatuses": [{"name": "istio-proxy", "state": ENDED}]}, False),
        ({**OURS_RUNS, "containerStatuses": [{"name": "smoke", "state": ENDED}]}, True),
    ],
)
def test_the_workload_has_ended_also_beside_a_sidecar_K20_native_sidecar(status: Data | None, ended: bool) -> None:
    assert has_ended([{"metadata": {"name": "p"}, "status": status}] if status is not None else []) is ended


@pytest.mark.parametrize(
    "status, told",
    [
        (None, "it has no pod yet: FailedCreate: exceeded quota"),
        (OURS_RUNS, "it runs"),
        (WAITS, "container smoke: ErrImagePull"),
        (
            {
                "phase": "Pending",
                "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}],
            },
            "not scheduled: 0/1 nodes are available",
        ),
    ],
)
def test_a_wait_for_the_workload_says_why_K17_quota_conflict(status: Data | None, told: str) -> None:
    job = smoke_job(typed(), "n1")
    events = [
        {
            "metadata": {"name": "e"},
            "involvedObject": {"name": job["metadata"]["name"]},
            "type": "Warning",
            "reason": "FailedCreate",
            "message": "exceeded quota",
        }
    ]
    pods = [{"metadata": {"name": "p"}, "status": status}] if status else []
    assert smoke_progress(job, "n1", pods, events) == "node n1: the smoke workload: " + told


class Pods:
    """A cluster whose answers to the wait for a workload come in order; an exception is raised."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.last = list(answers), []  # type: ignore[var-annotated]

    def list(self, _api: str, kind: str, *_where: str, **_fields: str) -> Any:
        if kind == "Event":
            return []
        if self.answers:
            self.last = self.answers.pop(0)
        if isinstance(self.last, Exception):
            raise self.last
        return self.last


def waits(*answers: Any) -> tuple[Data, list[str]]:
    """The result of the wait for a smoke workload of at most 40 s, and what it told."""
    told, now = [], [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    cluster: Any = Pods(*answers)
    return wait_for_smoke(cluster, typed({"timeout": 40}), "n1", told.append, lambda: now[0], sleep), told


def pod(**status: Any) -> list[Data]:
    return [{"metadata": {"name": "p"}, "status": status}]


def test_the_wait_for_a_workload_says_every_ten_seconds_why_and_ends_with_it() -> None:
    pending = pod(phase="Pending", conditions=[{"type": "PodScheduled", "status": "False", "message": "no NPU left"}])
    lost = NpuError("The API server cannot be reached.", "Check.")
    found, told = waits([], [], pending, pending, lost, pod(phase="Succeeded"))
    assert (found["ended"], found["pods"], found["events"]) == (True, pod(phase="Succeeded"), [])
    assert told == [
        "node n1: the smoke workload: not scheduled: no NPU left (10 of 40 s)",
        "The API server cannot be reached. (20 of 40 s)",
    ]


def test_a_workload_that_does_not_end_is_left_to_its_verdict() -> None:
    found, told = waits(pod(phase="Running"))
    assert (found["ended"], found["pods"]) == (False, pod(phase="Running")) and len(told) == 3
    with pytest.raises(NpuError, match="could not be looked at: The API server cannot be reached"):
        waits(NpuError("The API server cannot be reached.", "Check."))


def test_a_refusal_ends_the_wait_for_a_workload_at_once() -> None:
    """No time gives an account a right, and the server's own words name what is missing."""
    denied = ApiError(403, "List Pod", {"message": "pods is forbidden"})
    told: list[str] = []
    cluster: Any = Pods(denied)
    with pytest.raises(ApiError, match="pods is forbidden"):
        wait_for_smoke(cluster, typed({"timeout": 40}), "n1", told.append, lambda: 0.0, lambda _seconds: pytest.fail())
    busy = ApiError(503, "List Pod", {"message": "busy"})
    assert waits(busy, pod(phase="Succeeded"))[0]["ended"] is True
