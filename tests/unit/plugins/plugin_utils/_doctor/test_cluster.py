# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What pods, nodes and events say, as the causes that they tell. The look itself is tested on a real API server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.plugin_utils._doctor.causes import cause_of
from ansible_collections.rebellions.npu.plugins.plugin_utils._doctor.cluster import Look
from ansible_collections.rebellions.npu.plugins.plugin_utils._doctor.order import ordered
from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.pods import explain_pod, problem_of

Data = dict[str, Any]
RESOURCE, NAME = "rebellions.ai/npu", "rbln-device-plugin"
IMAGE = "registry.example.com:5000/rebellions/rbln-k8s-device-plugin@sha256:" + "a" * 64
PULL = (
    'rpc error: code = Unknown desc = failed to pull and unpack image "%s": failed to resolve reference "%s": '
    'failed to do request: Head "https://registry.example.com:5000/v2/rebellions/rbln-k8s-device-plugin/manifests/'
    'sha256:%s": ' % (IMAGE, IMAGE, "a" * 64)
)
LAYER = (
    'rpc error: code = Unknown desc = failed to pull and unpack image "%s": failed to extract layer sha256:%s: mount '
    "callback failed on /var/lib/containerd/tmpmounts/containerd-mount%s: write /var/lib/containerd/tmpmounts/"
    "containerd-mount%s/opt/rebellions/lib/librbln-runtime.so.3.2.2: "
) % (IMAGE, "b" * 64, "1234567890", "1234567890")


def look(**inputs: Any) -> Any:
    given = {"namespace": "rbln-system", "resource_name": RESOURCE, **inputs}
    return Look(SimpleNamespace(), given, SimpleNamespace(members=[]), {})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (PULL + "dial tcp: lookup registry.example.com on 10.96.0.10:53: no such host", "dns_fails"),
        (PULL + "dial tcp: lookup registry.example.com on 10.96.0.10:53: server misbehaving", "dns_fails"),
        (PULL + "proxyconnect tcp: dial tcp 10.0.0.8:3128: connect: connection refused", "proxy_fails"),
        (LAYER + "no space left on device", "disk_full"),
        (
            PULL + "tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time "
            "2019-01-01T00:00:00Z is before 2024-06-07T05:48:45Z",
            "clock_differs",
        ),
        (
            PULL + "tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time "
            "2025-06-12T03:05:25Z is after 2025-06-07T05:48:45Z",
            "image_not_pulled",
        ),
        (PULL + "dial tcp 10.0.0.9:5000: i/o timeout", "image_not_pulled"),
    ],
)
def test_the_end_of_a_long_message_tells_the_cause(said: str, cause: str) -> None:
    waiting = {"reason": "ErrImagePull", "message": said}
    pod = {
        "metadata": {"name": NAME + "-x7k2p"},
        "spec": {"nodeName": "npu-node-01.dc1.example.com"},
        "status": {"containerStatuses": [{"name": NAME, "image": IMAGE, "state": {"waiting": waiting}}]},
    }
    one = look()._of_problem(explain_pod(pod, []), NAME, [])
    found = cause_of(one)
    assert found is not None and found.id == cause, one.said
    assert len(one.said) <= 600


SANDBOX = 'FailedCreatePodSandBox: plugin type="calico" failed (add): no IP addresses available in the pool'
ACCOUNT = 'pods "rbln-device-plugin-" is forbidden: error looking up service account rbln-system/rbln-device-plugin: '


@pytest.mark.parametrize(
    ("reason", "said", "cause"),
    [
        # Nothing of such a pod has a log, and no time helps.
        ("ContainerCreating", "container p: ContainerCreating (last event: %s)" % SANDBOX, "network_not_ready"),
        (
            "ContainerCreating",
            "container p: ContainerCreating (last event: FailedMount: /x is not a directory)",
            "pod_fails",
        ),
        ("ContainerCreating", "container p: ContainerCreating (last event: Unhealthy: x)", "pods_not_ready"),
        # piraeusdatastore/piraeus-operator#786
        ("FailedCreate", "no pod was created: Error creating: %sserviceaccount not found" % ACCOUNT, "not_deployed"),
        ("FailedCreate", 'no pod was created: violates PodSecurity "baseline:latest"', "security_refused"),
        (
            "FailedCreate",
            "no pod was created: insufficient quota to match these scopes: [{PriorityClass In [system-node-critical]}]",
            "quota_exceeded",
        ),
        ("FailedCreate", 'no pod was created: admission webhook "x" denied the request: y', "admission_refused"),
        # A webhook may use the words of others.
        (
            "FailedCreate",
            'no pod was created: admission webhook "k" denied the request: pod violates PodSecurity of the site',
            "admission_refused",
        ),
        ("FailedCreate", "no pod was created: no PriorityClass with name npu was found", "not_deployed"),
        ("FailedCreate", 'no pod was created: pod rejected: RuntimeClass "npu" not found', "not_deployed"),
    ],
)
def test_what_keeps_a_pod_from_running(reason: str, said: str, cause: str) -> None:
    found = cause_of(look()._of_problem(problem_of(reason, said, "Look.", "n", "p"), NAME, []))
    assert found is not None and found.id == cause


def ended(message: str, reason: str = "Error") -> Data:
    state = {"terminated": {"exitCode": 1, "reason": reason, "message": message}}
    return {"containerStatuses": [{"name": NAME, "state": state}]}


def waits(reason: str, message: str) -> Data:
    return {"containerStatuses": [{"name": NAME, "state": {"waiting": {"reason": reason, "message": message}}}]}


def evicted(message: str) -> Data:
    return {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: " + message}


SOCKET = "dial unix /var/lib/kubelet/device-plugins/kubelet.sock: connect: no such file or directory"
CGROUP = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
    'expected cgroupsPath to be of format "slice:prefix:name" for systemd cgroups, got "/kubepods/pod1" instead'
)


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        (ended("Could not register device plugin: " + SOCKET), "plugin_socket_elsewhere"),
        (waits("RunContainerError", CGROUP), "cgroup_drivers_differ"),
        (evicted("ephemeral-storage. Threshold quantity: 10, available: 1Ki."), "disk_full"),
        (evicted("memory. Threshold quantity: 100Mi, available: 90Mi."), "machine_starved"),
        (ended("failed to open /dev/rbln0: open /dev/rbln0: permission denied"), "host_file_denied"),
        (
            ended("failed to create FS watcher for /var/lib/kubelet/device-plugins: too many open files"),
            "inotify_limit",
        ),
        (ended("failed to create FS watcher for /x: no space left on device"), "inotify_limit"),
        (
            waits("CreateContainerError", 'mkdir "/var/lib/kubelet/pods/1/x": read-only file system'),
            "disk_read_only",
        ),
        # Its own root is read-only on purpose.
        (ended("open /etc/plugin/x: read-only file system"), "pod_fails"),
        (waits("CreateContainerError", "context deadline exceeded"), "runtime_stopped"),
        (
            waits("CreateContainerError", 'failed to reserve container name "p_1": name is reserved for "4f"'),
            "runtime_stopped",
        ),
        (
            waits("CreateContainerError", "failed to inject: unresolvable CDI devices rebellions.ai/npu=0"),
            "pod_device_unknown",
        ),
        (waits("ImagePullBackOff", PULL + "unexpected status code 401 Unauthorized"), "image_not_pulled"),
        (
            {"phase": "Failed", "reason": "Preempting", "message": "Preempted in order to admit critical pod"},
            "pods_not_scheduled",
        ),
    ],
)
def test_what_the_field_reports_of_a_pod_has_its_own_cause(status: Data, cause: str) -> None:
    pod = {"metadata": {"name": NAME + "-x7k2p"}, "spec": {"nodeName": "n"}, "status": status}
    one = look()._of_problem(explain_pod(pod, []), NAME, [])
    found = cause_of(one)
    assert found is not None and found.id == cause, one.said


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("PLEG is not healthy: pleg was last seen active 3m13s ago; threshold is 3m0s", "runtime_stopped"),
        ("[container runtime is down, PLEG is not healthy]", "runtime_stopped"),
        (
            "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network "
            "plugin returns error: cni plugin not initialized",
            "network_not_ready",
        ),
        ("Kubelet stopped posting node status.", "node_not_ready"),
    ],
)
def test_why_a_node_is_not_ready_has_its_own_cause(said: str, cause: str) -> None:
    one = look(device_plugin={"enabled": False}, workload="container")
    one._hosts.members, one._of_hosts, one._host_of = [{"host": "h", "expected": 2}], {"h": []}, {"a": "h"}
    sick = {"allocatable": {}, "conditions": [{"type": "Ready", "status": "False", "message": said}]}
    one._node({**node("a", 0), "status": sick}, "h")
    assert [found.cause.id for found in ordered(one._of_hosts["h"])] == [cause]


@pytest.mark.parametrize(
    "said",
    [
        "0/3 nodes are available: 3 node(s) had untolerated taint {node.cloudprovider.kubernetes.io/uninitialized: }.",
        "0/3 nodes are available: 3 Insufficient hugepages-2Mi.",
        "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.",
    ],
)
def test_a_pod_that_waits_for_something_else_is_told_in_the_words_of_the_scheduler(said: str) -> None:
    one = look()
    pod = wants("waits", 1)
    pod["status"]["conditions"][0]["message"] = said
    one._cluster.list = lambda *_kind, **_how: [pod]
    one._waiting({"a": node("a", 2)})
    (found,) = ordered(one._signs)
    assert (
        found.cause.id == "pods_wait_for_other"
        and found.level == "doubtful"
        and said.rstrip(".") in found.signs[0].said
    )


def node(name: str, npus: int, cordoned: bool = False, **labels: str) -> Data:
    status = {"allocatable": {RESOURCE: str(npus)}, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"unschedulable": cordoned}, "status": status}


def wants(name: str, npus: int, where: str = "") -> Data:
    spec = {"nodeName": where, "containers": [{"resources": {"limits": {RESOURCE: str(npus)}}}]}
    waits = {
        "type": "PodScheduled",
        "status": "False",
        "message": "0/2 nodes are available: Insufficient %s" % RESOURCE,
    }
    return {
        "metadata": {"namespace": "x", "name": name},
        "spec": spec,
        "status": {"conditions": [] if where else [waits]},
    }


@pytest.mark.parametrize(
    ("held_by", "cause"), [(("b",), "pods_wait_for_npus"), (("a", "b"), "npus_all_taken"), (("a",), "npus_all_taken")]
)
def test_what_is_held_on_a_cordoned_node_is_not_missing_elsewhere(held_by: tuple[str, ...], cause: str) -> None:
    """The pods of the cordoned node b hold none of the NPUs that a offers."""
    one = look()
    pods = [wants("waits", 2), *(wants("held-" + where, 2, where) for where in held_by)]
    one._cluster.list = lambda *_kind, **_how: pods
    one._waiting({"a": node("a", 2), "b": node("b", 2, cordoned=True)})
    assert [found.id for found in map(cause_of, one._signs) if found] == [cause]


def ends(reason: str, at: str = "2026-11-30T01:00:00Z", **more: Any) -> Data:
    refused = {"phase": "Failed", "reason": reason, "message": "Pod was rejected: no NPU", "startTime": at}
    return {**wants("x1", 2, "a"), "status": {**refused, **more}}


@pytest.mark.parametrize(
    ("pod", "causes"),
    [
        (ends("UnexpectedAdmissionError"), ["pods_refused"]),
        (ends("OutOf" + RESOURCE), ["pods_refused"]),
        (ends("TopologyAffinityError"), ["pods_refused_by_topology"]),
        # Nobody has removed it since.
        (ends("UnexpectedAdmissionError", "2026-11-01T01:00:00Z"), []),
        (ends("UnexpectedAdmissionError", ""), []),
        # Nothing of these is about NPUs.
        (ends("OutOfcpu"), []),
        (ends("Evicted"), []),
        (ends("", phase="Succeeded"), []),
        ({**wants("x1", 2, "a"), "status": waits("CreateContainerError", "unresolvable CDI device vendor/x=0")},
         ["pod_device_unknown"]),
        ({**wants("x1", 2, "a"), "status": waits("ErrImagePull", "not found")}, []),
    ],
)  # fmt: skip
def test_a_pod_that_its_node_does_not_start_is_told_of_the_host(pod: Data, causes: list[str]) -> None:
    one = look()
    one._now = lambda: 1796007600.0
    one._of_hosts, one._host_of = {"h": []}, {"a": "h"}
    one._cluster.list = lambda *_kind, **_how: [pod]
    one._waiting({"a": node("a", 2)})
    assert [found.cause.id for found in ordered(one._of_hosts["h"])] == causes
    assert not causes or "such as x/x1" in one._of_hosts["h"][0].said


@pytest.mark.parametrize(
    ("label", "causes"),
    [
        ({}, ["npus_not_allocatable"]),
        # People keep the node for something else.
        ({"rebellions.ai/npu.deploy.skip": "true"}, []),
        ({"rebellions.ai/npu.workload.config": "vm-passthrough"}, []),
        ({"rebellions.ai/npu.deploy.device-plugin": "false"}, ["gates_closed", "npus_not_allocatable"]),
    ],
)
def test_a_node_without_the_plugin_says_why_it_offers_none(label: dict[str, str], causes: list[str]) -> None:
    one = look(device_plugin={"enabled": True}, workload="container", require_gate=False)
    one._hosts.members, one._of_hosts, one._host_of = [{"host": "h", "expected": 2}], {"h": []}, {"a": "h"}
    one._node(node("a", 0, **label), "h")
    assert [found.cause.id for found in ordered(one._of_hosts["h"])] == causes
