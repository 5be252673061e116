# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods with the rights of docs/privileges.md on real kubelets: what works with them, and what they are denied."""

from __future__ import annotations

import functools
import json
import typing as t

import pytest

from tests.integration._hosts import Hosts
from tests.integration._play import CLUSTER, NAMESPACE_OF_TESTS, Data, play
from tests.lab._base import until

A, B = "it-a", "it-b"
BUSYBOX: Data = {
    "enabled": True,
    "image": {"repository": "busybox", "tag": "1"},
    "command": ["sh", "-c", "trap exit TERM; sleep 86400 & wait $!"],
    "probes": False,
}
PLUGIN: Data = CLUSTER["rbln_operands_device_plugin"]
TIGHT: Data = {
    # The stand-in opens no device.
    "rbln_operands_device_plugin": {**PLUGIN, "privileged": False},
    "rbln_operands_feature_discovery": {"enabled": True},
    "rbln_operands_label_policy": {"enabled": True, "users": ["nfd"]},
    # Nobody reads the file of the discovery here, and its wait is for the labels.
    "rbln_operands_wait": False,
}
# Nothing stands in for the DRA driver: only what a container with its rights can do is seen.
DRA: Data = {
    "rbln_operands_device_plugin": {"enabled": False},
    "rbln_operands_dra_driver": BUSYBOX,
    "rbln_operands_wait": False,
}
COUNT, FEATURES = "rebellions.ai/npu.count", "/etc/kubernetes/node-feature-discovery/features.d"
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"


@pytest.fixture(scope="module")
def tight(nodes: Hosts) -> t.Iterator[Hosts]:
    nodes.done()
    nodes.state.update({A: "dirty", B: "dirty"})
    yield nodes
    play("site", nodes.inventory()).good([A, B])
    of_discovery = ["-n", NAMESPACE_OF_TESTS, "-l", "app.kubernetes.io/component=feature-discovery"]
    until(90, "the discovery left", lambda: not nodes.lab.kubectl("get", "pods", *of_discovery, "-o", "name").stdout)
    for node in (A, B):
        nodes.lab.exec(node, "rm -rf /etc/kubernetes/node-feature-discovery")
    nodes.state.update({A: "done", B: "done"})


def pod(hosts: Hosts, node: str, component: str) -> Data:
    """The ready pod of a component on a node."""
    hosts.lab.kubectl("rollout", "status", "daemonset/rbln-" + component, "-n", NAMESPACE_OF_TESTS, timeout=120)
    found = hosts.lab.kubectl(
        "get",
        "pods",
        "-n",
        NAMESPACE_OF_TESTS,
        "-l",
        "app.kubernetes.io/component=" + component,
        "--field-selector",
        "spec.nodeName=%s,status.phase=Running" % node,
        "-o",
        "json",
    ).stdout
    (item,) = (one for one in json.loads(found)["items"] if "deletionTimestamp" not in one["metadata"])
    return dict(item)


def inside(hosts: Hosts, node: str, component: str, line: str) -> str:
    """What a shell in the main container of a component prints, errors included."""
    name = pod(hosts, node, component)["metadata"]["name"]
    argv = ["exec", "-n", NAMESPACE_OF_TESTS, name, "-c", component, "--", "sh", "-c", "( %s ) 2>&1; true" % line]
    return hosts.lab.kubectl(*argv).stdout.strip()


def test_plugin_validator_and_discovery_work_with_their_rights(tight: Hosts) -> None:
    where = tight.inventory(**TIGHT)
    play("site", where, "--tags", "operands").good([A, B])
    until(90, "the NPUs are allocatable", lambda: tight.allocatable() == {A: "2", B: "2"})
    for node in (A, B):
        item = pod(tight, node, "validator")
        assert [one["state"]["terminated"]["exitCode"] for one in item["status"]["initContainerStatuses"]] == [0] * 3
        users = {one["name"]: one["securityContext"]["runAsUser"] for one in item["spec"]["initContainers"]}
        assert set(users.values()) == {0}
        waits = pod(tight, node, "device-plugin")
        assert waits["spec"]["initContainers"][0]["securityContext"]["runAsUser"] == 65534
        (main,) = waits["spec"]["containers"]
        assert "privileged" not in main["securityContext"] and main["securityContext"]["readOnlyRootFilesystem"]
        assert "rebellions.ai/npu.count=2" in inside(tight, node, "feature-discovery", "cat /features/rbln-features")
    play("site", where, "--tags", "operands").unchanged([A, B])


@pytest.mark.parametrize("node", [A, B])
def test_a_read_only_host_is_one(tight: Hosts, node: str) -> None:
    look = functools.partial(inside, tight, node, "feature-discovery")
    assert look("ls -A /host/run") == "rbln"
    assert "driver-ready" in look("ls /host/run/rbln/validations")
    # Opened to append, and nothing written: they are files of the machine.
    for path in ("/host/proc/sys/kernel/core_pattern", "/host/sys/bus/pci/rescan", "/host/etc/passwd"):
        assert "Read-only file system" in look(": >>" + path), path
    for path in ("/host/run/rbln", "/host/dev", "/host/usr", "/"):
        assert "Read-only file system" in look("touch %s/oddity" % path), path
    assert "No such file" in look("ls " + TOKEN)
    assert look("grep CapEff /proc/self/status").split()[-1] == "%016x" % (1 << 18)  # CAP_SYS_CHROOT
    assert look("grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status").split()[1::2] == ["1", "2"]


def test_kubelets_live_with_the_policy_of_labels_and_cannot_open_their_gates(tight: Hosts) -> None:
    gate = {"metadata": {"labels": {"rebellions.ai/npu.deploy.device-plugin": "oddity"}}}
    who = ("--as=system:node:" + A, "--as-group=system:nodes", "--as-group=system:authenticated")
    # By the status, too, says test_label_policy: kubectl reads it first, which kubelets may not.
    done = tight.lab.kubectl("patch", "node", A, "--type=merge", "-p", json.dumps(gate), *who, check=False)
    assert "the account needs the ClusterRole rbln-node-labels" in done.stderr, done.stderr
    free = {"metadata": {"labels": {"example.com/oddity": "true"}}}
    tight.lab.kubectl("patch", "node", A, "--type=merge", "-p", json.dumps(free), *who)
    tight.lab.kubectl("label", "node", A, "example.com/oddity-")
    # The kubelet itself: its unit starts again and writes the whole status of the node.
    before = tight.lab.nodes()[A]["heartbeat"]
    tight.lab.exec(A, ["systemctl", "restart", "kubelet"])
    until(60, "a heartbeat", lambda: tight.lab.nodes()[A]["ready"] and tight.lab.nodes()[A]["heartbeat"] != before)
    assert tight.labels(A)["rebellions.ai/npu.deploy.device-plugin"] == "true"


def test_the_token_of_the_dra_driver_is_in_its_container_alone(tight: Hosts) -> None:
    # The host's specification follows the driver, so its gates open with the hosts' part of the run.
    assert {tight.labels(node).get(COUNT) for node in (A, B)} == {None}
    play("site", tight.inventory(**DRA)).good([A, B])
    # Feature discovery is off: its file would keep labels for ever.
    for node in (A, B):
        assert "rbln-features" not in tight.lab.exec(node, ["ls", FEATURES]).stdout
        labels = tight.labels(node)
        assert labels[COUNT] == "2" and "rebellions.ai/npu.deploy.feature-discovery" not in labels, labels
    item = pod(tight, A, "dra-driver")
    assert [one["state"]["terminated"]["exitCode"] for one in item["status"]["initContainerStatuses"]] == [0]
    mounted = {
        one["name"]: TOKEN in [mount["mountPath"] for mount in one.get("volumeMounts", [])]
        for one in (*item["spec"]["initContainers"], *item["spec"]["containers"])
    }
    assert mounted == {"wait-for-host": False, "dra-driver": True}
    look = functools.partial(inside, tight, A, "dra-driver")
    assert look("ls " + TOKEN).split() == ["ca.crt", "namespace", "token"]
    for path in ("/", "/run/rbln", "/host/usr/bin"):
        assert "Read-only file system" in look("touch %s/oddity" % path), path
    assert (
        look("touch /var/run/oddity /var/run/cdi/oddity && rm /var/run/oddity /var/run/cdi/oddity && echo ok") == "ok"
    )
    assert look("ls /run/rbln/validations").split()
