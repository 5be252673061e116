# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that differ, and a node that joins a running cluster.

The new node is gated until its host part has run; a run for it alone makes it ready.
"""

from __future__ import annotations

import json
import typing as t

import pytest

from tests.integration._hosts import Hosts
from tests.integration._play import NAMESPACE_OF_TESTS, NODE_LABEL, RESOURCE, Data, play
from tests.integration._red import TERMINAL, one_message
from tests.lab._base import until

A, B, NEW = "it-a", "it-b", "it-n"
ROOT = "/data/kubelet"
ROOT_KEY = "1fdec678"
PLUGIN, EXPORTER, OTHER_EXPORTER = "rbln-device-plugin", "rbln-metrics-exporter", "rbln-metrics-exporter-" + ROOT_KEY
SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"
# What stands in for the exporter ends where the kubelet's socket is not.
MIXED: Data = {
    "rbln_operands_kubelet_roots": [ROOT],
    "rbln_operands_metrics_exporter": {
        "enabled": True,
        "image": {"repository": "busybox", "tag": "1"},
        "command": ["sh", "-c", "trap exit TERM; test -S %s && sleep 86400 & wait $!" % SOCKET],
        "probes": False,
    },
}


@pytest.fixture(scope="module")
def cluster(nodes: Hosts) -> t.Iterator[Hosts]:
    """The finished nodes with one component more, which mounts something of the kubelet, and a virgin third node."""
    nodes.done()
    nodes.state.update({A: "dirty", B: "dirty"})
    nodes.lab.up({NEW: "dataroot"})
    try:
        play("site", nodes.inventory(A, B, NEW, **MIXED), "--limit", "%s,%s" % (A, B), "--tags", "operands").good(
            [A, B]
        )
        yield nodes
    finally:
        nodes.lab.kubectl("delete", "pod", "wants-" + NEW, "--ignore-not-found", "--wait=false", check=False)
        nodes.lab.down([NEW])
        of_new = ["-n", NAMESPACE_OF_TESTS, "--field-selector", "spec.nodeName=" + NEW]
        nodes.lab.kubectl("delete", "pods", *of_new, "--force", "--grace-period=0", check=False)
    play("site", nodes.inventory(), "--tags", "operands").good([A, B])
    until(60, "the exporter left", lambda: not any("exporter" in name for name in nodes.objects()))
    nodes.state.update({A: "done", B: "done"})


def items(hosts: Hosts, *argv: str) -> list[Data]:
    return list(json.loads(hosts.lab.kubectl("get", *argv, "-o", "json").stdout)["items"])


def pods(hosts: Hosts, *nodes: str) -> dict[tuple[str, str], Data]:
    """{(node, DaemonSet): pod} of our pods on these nodes."""
    found = items(hosts, "pods", "-n", NAMESPACE_OF_TESTS)
    return {
        (pod["spec"]["nodeName"], pod["metadata"]["ownerReferences"][0]["name"]): pod
        for pod in found
        if pod["spec"].get("nodeName") in nodes
    }


def state(hosts: Hosts) -> dict[str, t.Any]:
    """Everything of the cluster that a run for one new node has to leave alone.

    That is our objects, and pods, labels and capacity of the other nodes. Such a run may change what a DaemonSet counts
    and the record of what each node is.
    """
    found: dict[str, t.Any] = {"pod %s %s" % key: pod["metadata"]["uid"] for key, pod in pods(hosts, A, B).items()}
    kinds = "serviceaccounts,secrets,configmaps,daemonsets,services,roles,rolebindings,networkpolicies"
    for item in items(hosts, kinds, "-n", NAMESPACE_OF_TESTS):
        meta = item["metadata"]
        if meta["name"] != "rbln-status":
            found["%s/%s" % (item["kind"], meta["name"])] = (
                meta["uid"],
                meta["generation"] if item["kind"] == "DaemonSet" else meta["resourceVersion"],
            )
    for item in items(hosts, "clusterroles,clusterrolebindings", "-l", "app.kubernetes.io/managed-by=rebellions-npu"):
        found["%s/%s" % (item["kind"], item["metadata"]["name"])] = (
            item["metadata"]["uid"],
            item["metadata"]["resourceVersion"],
        )
    for node in (A, B):
        found["labels of " + node] = hosts.labels(node)
    return found


def gates(hosts: Hosts, node: str) -> dict[str, str]:
    """{component: its gate} of a node."""
    prefix = "rebellions.ai/npu.deploy."
    return {name[len(prefix) :]: value for name, value in hosts.labels(node).items() if name.startswith(prefix)}


def amount(hosts: Hosts, node: str) -> str | None:
    return t.cast("str | None", hosts.lab.nodes()[node]["allocatable"].get(RESOURCE))


def workload(hosts: Hosts, node: str) -> tuple[str, str]:
    """(phase, why it is not placed) of the pod that wants an NPU of the node."""
    status = json.loads(hosts.lab.kubectl("get", "pod", "wants-" + node, "-o", "json").stdout)["status"]
    return status["phase"], " ".join(
        one.get("message", "") for one in status.get("conditions", []) if one["type"] == "PodScheduled"
    )


def want(hosts: Hosts, node: str) -> None:
    container = {
        "name": "look",
        "image": "lab.local/busybox:1",
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", "ls /dev/rbln*"],
    }
    container["resources"] = {"limits": {RESOURCE: "1"}}
    spec = {
        "restartPolicy": "Never",
        "nodeSelector": {"kubernetes.io/hostname": node},
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
    }
    hosts.lab.kubectl(
        "create",
        "-f",
        "-",
        stdin=json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "wants-" + node}, "spec": spec}),
    )


def test_a_new_node_is_gated_until_the_run_for_it_alone(cluster: Hosts) -> None:
    lab, before, where = cluster.lab, state(cluster), cluster.inventory(A, B, NEW, **MIXED)
    assert {key for key in before if key.startswith("pod ")} >= {
        "pod %s %s" % (node, name) for node in (A, B) for name in (PLUGIN, EXPORTER)
    }
    # As in a cluster with Node Feature Discovery: the plugin comes by itself, before a run has looked at the host.
    lab.kubectl("label", "node", NEW, NODE_LABEL + "=true", "feature.node.kubernetes.io/pci-1eff.present=true")
    want(cluster, NEW)

    def waiting() -> bool:
        pod = pods(cluster, NEW).get((NEW, PLUGIN), {})
        return any("running" in one["state"] for one in pod.get("status", {}).get("initContainerStatuses", []))

    until(60, "the plugin waits", waiting)
    assert pods(cluster, NEW)[(NEW, PLUGIN)]["status"]["phase"] == "Pending"
    until(20, "the workload is refused", lambda: "Insufficient " + RESOURCE in workload(cluster, NEW)[1])
    assert workload(cluster, NEW)[0] == "Pending" and amount(cluster, NEW) is None
    assert cluster.labels(NEW) == {}

    # Labelled by a run that leaves the host part out: the plugin has to leave again.
    play("site", where, "--limit", NEW, "--tags", "operands").good([NEW])
    assert cluster.labels(NEW)["rebellions.ai/npu.present"] == "true" and set(gates(cluster, NEW).values()) == {"false"}
    until(60, "the plugin left", lambda: (NEW, PLUGIN) not in pods(cluster, NEW))
    assert workload(cluster, NEW)[0] == "Pending" and amount(cluster, NEW) is None

    play("site", where, "--limit", NEW).good([NEW])

    assert amount(cluster, NEW) == "2"
    assert gates(cluster, NEW) == {"device-plugin": "true", "metrics-exporter": "true", "validator": "true"}
    until(60, "the workload ran", lambda: workload(cluster, NEW)[0] == "Succeeded")
    assert lab.kubectl("logs", "wants-" + NEW).stdout.split()[0] in ("/dev/rbln0", "/dev/rbln1")
    assert state(cluster) == before


def smoke(*command: str, **more: t.Any) -> Data:
    """Inputs of a smoke workload with a shell of its own."""
    image = {"repository": "busybox", "tag": "1"}
    own = {"enabled": True, "image": image, "command": ["sh", "-c", *command], "timeout": 60, **more}
    return {**MIXED, "rbln_operands_smoke": own}


def jobs(hosts: Hosts) -> list[str]:
    """The smoke workloads that exist, and their pods."""
    names = [item["metadata"]["name"] for item in items(hosts, "jobs,pods", "-n", NAMESPACE_OF_TESTS)]
    return [name for name in names if name.startswith("rbln-smoke")]


def test_a_workload_with_an_npu_is_the_last_proof_of_each_node(cluster: Hosts) -> None:
    good = smoke("id -u && ls /dev/rbln*")
    run = play("site", cluster.inventory(A, B, **good), "--tags", "operands").unchanged([A, B])
    for host in (A, B):
        proof = run.one("Judge the workload", host)
        assert proof.data["ok"] is True and "node %s: the smoke workload ended with code 0" % host in proof.msg
        assert proof.data["log"][0] == "65534" and proof.data["log"][1] in ("/dev/rbln0", "/dev/rbln1")
    assert jobs(cluster) == []


def test_a_workload_that_fails_or_cannot_start_fails_its_host_alone_and_leaves_nothing(cluster: Hosts) -> None:
    bad = smoke('echo starting; test "$NODE" = it-b || exit 3')
    bad["rbln_operands_smoke"]["env"] = [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]
    run = play("site", cluster.inventory(A, B, **bad), "--tags", "operands")
    assert run.code != 0
    text = run.one("Judge the workload", A).msg
    assert "node it-a: the smoke workload ended with code 3" in text and "starting" in text and " Next: " in text
    assert run.one("Judge the workload", B).data["ok"] is True and jobs(cluster) == []

    # What an interrupted run has left is removed by the next one, which cannot start its own.
    left = run.one("Read the smoke workload of this host", B).data["definition"]
    cluster.lab.kubectl("create", "-f", "-", stdin=json.dumps(left))
    until(30, "the Job that was left", lambda: left["metadata"]["name"] in jobs(cluster))
    lost = smoke("true", timeout=15)
    lost["rbln_operands_smoke"]["image"] = {"repository": "is-not-there", "tag": "1", "pull_policy": "Never"}
    run = play("validate", cluster.inventory(B, **lost))
    assert run.code != 0 and "ErrImageNeverPull" in run.one("Judge the workload", B).msg
    waits = [line for line in run.err.splitlines() if line.startswith("node it-b: the smoke workload: ")]
    assert len(waits) == 1 and "ErrImageNeverPull" in waits[0] and waits[0].endswith(" of 15 s)"), run.err[-2000:]
    assert len(run.failed(B)) == 1, run.failed(B)
    assert jobs(cluster) == []


def test_what_a_real_kubelet_says_of_a_pod_is_read(cluster: Hosts) -> None:
    """K31: the kubelet's own reason; K20: a sidecar that runs hides no container."""
    from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.pods import explain_pod

    box = {"image": "lab.local/busybox:1", "imagePullPolicy": "Never"}
    sidecar = {**box, "name": "proxy", "restartPolicy": "Always", "command": ["sleep", "600"]}
    missing = {"name": "main", "image": "lab.local/is-not-there:1", "imagePullPolicy": "Never"}
    big = {**box, "name": "main", "resources": {"requests": {"cpu": "999"}}}
    pods_of_test: Data = {
        "k31-big": {"nodeName": A, "containers": [big]},
        "k31-selector": {"nodeName": A, "nodeSelector": {"team": "nobody"}, "containers": [{**box, "name": "main"}]},
        "k20-sidecar": {"nodeName": A, "initContainers": [sidecar], "containers": [missing]},
    }

    def status(name: str) -> Data:
        return t.cast(Data, json.loads(cluster.lab.kubectl("get", "pod", name, "-o", "json").stdout))

    for name, spec in pods_of_test.items():
        whole = {**spec, "tolerations": [{"operator": "Exists"}], "terminationGracePeriodSeconds": 0}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": whole}
        cluster.lab.kubectl("create", "-f", "-", stdin=json.dumps(pod))
    try:
        for name, reason, step in (
            ("k31-big", "OutOfcpu", "Make room on the node"),
            ("k31-selector", "NodeAffinity", "Correct the labels of the node"),
        ):
            until(30, name, lambda name=name: status(name)["status"].get("phase") == "Failed")  # type: ignore[misc]
            found = explain_pod(status(name), [])
            assert found["reason"] == reason and status(name)["status"]["message"].rstrip(".") in found["detail"]
            assert found["next_step"].startswith(step)
        until(60, "the sidecar", lambda: "ErrImageNeverPull" in json.dumps(status("k20-sidecar")["status"]))
        found = explain_pod(status("k20-sidecar"), [])
        assert found["reason"] == "ErrImageNeverPull" and found["detail"].startswith("container main")
    finally:
        cluster.lab.kubectl("delete", "pods", *pods_of_test, "--wait=false", check=False)


# A registry that has nothing, and one that lets nobody in.
REGISTRY = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    # What is no HTTP, as the start of TLS, is answered by HTTP: then runtimes try without TLS.
    default_request_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(401 if "/secret/" in self.path else 200 if self.path.strip("/") == "v2" else 404)
        self.end_headers()
    do_HEAD = do_GET
http.server.HTTPServer(("127.0.0.1", 5999), Handler).serve_forever()
"""
# {repository: (what kubelet and runtime say of it, a part of the next step)}
NOT_PULLED = {
    "127.0.0.1:5999/npu/nowhere": ("not found", "Correct the image's name, tag or digest: rbln_registry"),
    "127.0.0.1:5999/secret/plugin": ("401 Unauthorized", "Check the pull secret (rbln_operands_image_pull_secrets)"),
    "127.0.0.1:9/npu/plugin": ("connection refused", "Make the registry answer this node"),
}


def test_what_kubelets_say_of_an_image_that_they_cannot_pull_is_read(cluster: Hosts) -> None:
    """An everyday error: wrong name, no login, no registry, on two releases of containerd."""
    from ansible_collections.rebellions.npu.plugins.plugin_utils._nodes.pods import explain_pod

    cases = {"pull-%s-%d" % (node, at): (node, *one) for node in (A, B) for at, one in enumerate(NOT_PULLED.items())}

    def problem(name: str) -> t.Any:
        pod = json.loads(cluster.lab.kubectl("get", "pod", name, "-o", "json").stdout)
        warnings = "involvedObject.name=%s,type=Warning" % name
        return explain_pod(pod, items(cluster, "events", "--field-selector", warnings))

    for node in (A, B):
        start = ["systemd-run", "-q", "--collect", "--unit=npu-it-registry", "python3", "-c", REGISTRY]
        cluster.lab.exec(node, start)
    for name, (node, repository, _said) in cases.items():
        box = {"name": "main", "image": repository + ":1"}
        spec = {"nodeName": node, "containers": [box], "tolerations": [{"operator": "Exists"}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        cluster.lab.kubectl("create", "-f", "-", stdin=json.dumps(pod))
    try:
        for name, (node, repository, (said, step)) in cases.items():
            until(60, name, lambda name=name: problem(name)["reason"] == "ImagePullBackOff")  # type: ignore[misc]
            found = problem(name)
            start = "container main: ImagePullBackOff for image %s:1: " % repository
            assert found["detail"].startswith(start) and said in found["detail"], found
            assert found["node"] == node and found["next_step"].startswith(step), found
    finally:
        cluster.lab.kubectl("delete", "pods", *cases, "--wait=false", "--grace-period=0", check=False)
        for node in (A, B):
            cluster.lab.exec(node, "systemctl stop npu-it-registry")


def test_an_image_that_cannot_be_pulled_is_one_message_for_each_host(cluster: Hosts) -> None:
    """One of the errors of every day (test_everyday.py)."""
    wrong = {"enabled": True, "source": "image", "image": {"repository": "npu/feature-dicovery", "tag": "9"}}
    where = cluster.inventory(A, B, NEW, **MIXED, rbln_operands_feature_discovery=wrong, rbln_operands_wait_timeout=20)
    # The name of the registry is that of the node itself, where no registry answers.
    for host in (A, B):
        cluster.lab.exec(host, "cp /etc/hosts /run/npu-it-hosts; echo 127.0.0.1 lab.local >>/etc/hosts")
    try:
        run = play("site", where, "--limit", "%s,%s" % (A, B), "--tags", "operands", env=TERMINAL)
    finally:
        # The kubelet makes the folder that a pod of feature discovery mounts.
        cluster.lab.kubectl(
            "delete", "daemonset", "rbln-feature-discovery", "-n", NAMESPACE_OF_TESTS, "--ignore-not-found"
        )
        until(60, "the discovery left", lambda: not any("discovery" in name for _node, name in pods(cluster, A, B)))
        for host in (A, B):
            cluster.lab.exec(host, "cat /run/npu-it-hosts >/etc/hosts; rm /run/npu-it-hosts")
            cluster.lab.exec(host, "rm -rf /etc/kubernetes/node-feature-discovery")
    assert run.code == 2
    for host in (A, B):
        words = ("on node " + host, "Pull", "lab.local/npu/feature-dicovery:9", "refused", "rbln_registry")
        one_message(run, host, *words)


def test_an_image_that_a_kubelet_does_not_have_goes_back_from_the_first_node(cluster: Hosts) -> None:
    before = pods(cluster, A, B)
    bad = {
        "rbln_operands_rollback": True,
        "rbln_operands_device_plugin": {
            "image": {"repository": "is-not-there", "tag": "1", "pull_policy": "Never"},
        },
    }
    run = play("site", cluster.inventory(A, B, NEW, **MIXED, **bad), "--limit", "%s,%s" % (A, B), "--tags", "operands")
    assert run.code != 0 and {one.host for one in run.failed()} == {A, B}
    for host in (A, B):
        # The feature discovery of the test before goes in a first pass.
        text = run.of("Judge the host", host)[-1].msg
        assert "rolled back: %s: " % PLUGIN in text and "ErrImageNeverPull" in text and "on node " + A in text, text
    after = pods(cluster, A, B)
    changed = {key for key in before if before[key]["metadata"]["uid"] != after[key]["metadata"]["uid"]}
    assert changed == {(A, PLUGIN)} and set(after) == set(before)
    images = [[one["image"] for one in found[(A, PLUGIN)]["spec"]["containers"]] for found in (before, after)]
    assert images[0] == images[1] and after[(A, PLUGIN)]["status"]["phase"] == "Running"
    assert {node: amount(cluster, node) for node in (A, B)} == {A: "2", B: "2"}


def test_a_container_without_a_probe_that_ends_late_goes_back_from_the_first_node(cluster: Hosts) -> None:
    """It is ready for 6 s, and then again after each restart."""
    cluster.lab.exec(A, "ctr -n k8s.io images tag --force lab.local/busybox:1 lab.local/busybox:late")
    before = pods(cluster, A, B)
    late = {
        **MIXED["rbln_operands_metrics_exporter"],
        "image": {"repository": "busybox", "tag": "late", "pull_policy": "Never"},
        "command": ["sh", "-c", "sleep 6; exit 3"],
    }
    given = {**MIXED, "rbln_operands_metrics_exporter": late, "rbln_operands_rollback": True}
    try:
        run = play("site", cluster.inventory(A, B, NEW, **given), "--limit", "%s,%s" % (A, B), "--tags", "operands")
    finally:
        cluster.lab.exec(A, "ctr -n k8s.io images rm lab.local/busybox:late")
    text = run.one("Judge the host", B).msg
    assert run.code != 0 and "rolled back: %s: " % EXPORTER in text, text
    assert "on node %s: container" % A in text and "ended with code 3 after it was ready" in text, text
    after = pods(cluster, A, B)
    changed = {key for key in before if before[key]["metadata"]["uid"] != after[key]["metadata"]["uid"]}
    assert changed == {(A, EXPORTER)} and after[(A, EXPORTER)]["status"]["phase"] == "Running"


def test_runtimes_and_kubelet_roots_differ_in_one_cluster(cluster: Hosts) -> None:
    lab, everything = cluster.lab, pods(cluster, A, B, NEW)
    versions = {
        node: lab.kubectl("get", "node", node, "-o", "jsonpath={.status.nodeInfo.containerRuntimeVersion}").stdout
        for node in (A, B, NEW)
    }
    assert versions[A].startswith("containerd://2.") and versions[B].startswith("containerd://1.7"), versions
    assert {node: amount(cluster, node) for node in (A, B, NEW)} == {A: "2", B: "2", NEW: "2"}
    assert {node: cluster.labels(node)["rebellions.ai/host.kubelet"] for node in (A, B, NEW)} == {
        A: "default",
        B: "default",
        NEW: ROOT_KEY,
    }
    for node, name, root in (
        (A, EXPORTER, "/var/lib/kubelet"),
        (B, EXPORTER, "/var/lib/kubelet"),
        (NEW, OTHER_EXPORTER, ROOT),
    ):
        assert [one for where, one in everything if where == node and "exporter" in one] == [name]
        for component in (PLUGIN, name):
            assert everything[(node, component)]["status"]["phase"] == "Running"
        mounted = {
            one["name"]: one["hostPath"]["path"]
            for one in everything[(node, name)]["spec"]["volumes"]
            if "hostPath" in one
        }
        assert mounted["pod-resources"] == root + "/pod-resources"
        # The very socket that this node's kubelet listens on, and not another one in that folder.
        pod = everything[(node, name)]["metadata"]["name"]
        inside = lab.kubectl(
            "exec", "-n", NAMESPACE_OF_TESTS, pod, "-c", "metrics-exporter", "--", "stat", "-c", "%i", SOCKET
        ).stdout
        assert inside == lab.exec(node, ["stat", "-c", "%i", root + "/pod-resources/kubelet.sock"]).stdout
        sockets = {
            one["hostPath"]["path"] for one in everything[(node, PLUGIN)]["spec"]["volumes"] if "hostPath" in one
        }
        assert "/var/lib/kubelet/device-plugins" in sockets
        assert RESOURCE in lab.exec(node, ["cat", "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"]).stdout
    assert lab.exec(NEW, "ls /var/lib/kubelet").stdout.split() == ["device-plugins"]
    # The run for the new node alone did not wait for the others, so the status that it wrote may be behind.
    play("site", cluster.inventory(A, B, NEW, **MIXED), "--tags", "operands").good([A, B, NEW])
    play("site", cluster.inventory(A, B, NEW, **MIXED), "--tags", "operands").unchanged([A, B, NEW])
