# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""upgrade.yml on a virtual machine that is a node in service: its module is really reloaded, and it reboots.

The API server says in which order the node was cordoned, its pod was evicted, and the node came back. Then a driver
of which no device works goes back by itself, and the node stays out of service until the good one is wanted again.
"""

from __future__ import annotations

import contextlib
import json
import typing as t
from concurrent import futures

from tests.integration._driver import CHANGE, FAULTY, NEW, OLD
from tests.integration._play import RESOURCE, Data
from tests.integration._red import judge
from tests.lab import Lab
from tests.lab._base import until
from tests.proofs._proof import Part
from tests.proofs._rollout_lab import CORDON, DONE, FAILED, HOST, PODS, RESTART, STATE, TAINT, Row, Watch
from tests.proofs._vm_node import LABEL, NAMESPACE, inputs
from tests.vm._server import PLAY_SECONDS, Server

OURS = "rebellions.ai/npu-rollout."
WAY, WAY_BACK = [CORDON, PODS, HOST, RESTART, DONE], [CORDON, PODS, HOST, FAILED]
APP = "keeps-npu"
# Its shell holds the device open until it is told to end: with it in use the module cannot be unloaded.
WORKLOAD = """apiVersion: apps/v1
kind: Deployment
metadata: {name: %(app)s, namespace: default}
spec:
  selector: {matchLabels: {app: %(app)s}}
  template:
    metadata: {labels: {app: %(app)s}}
    spec:
      nodeSelector: {kubernetes.io/hostname: %(node)s}
      tolerations: [{key: %(label)s, operator: Exists}]
      terminationGracePeriodSeconds: 30
      containers:
        - name: look
          image: lab.local/busybox:1
          imagePullPolicy: IfNotPresent
          command:
            - sh
            - -c
            - "trap 'exit 0' TERM; for d in /dev/rbln[0-9]*; do exec 9<$d; head -n 1 $d; done; sleep 100000 & wait"
          resources: {limits: {%(resource)s: 1}}
"""
EVICTED = '.status.conditions[?(@.type=="DisruptionTarget")].reason'
OVER = "/run/npu-lab/upgrade-is-over"
# The boot in which a version of the module is first seen, as fast as the machine can look.
FIRST_SEEN = """until [ -e %s ]; do
read v </sys/module/rebellions/version && [ "$v" = %s ] && break
sleep 0.2
done 2>/dev/null
cat /proc/sys/kernel/random/boot_id"""


def pods(lab: Lab) -> list[Data]:
    found = lab.kubectl("get", "pod", "-n", "default", "-l", "app=" + APP, "-o", "json").stdout
    return [pod for pod in json.loads(found)["items"] if not pod["metadata"].get("deletionTimestamp")]


def running(lab: Lab, version: str) -> str:
    """The uid of the one pod of the workload, which runs and holds a device of this version."""

    def one() -> str | None:
        found = pods(lab)
        uids = [pod["metadata"]["uid"] for pod in found if pod["status"].get("phase") == "Running"]
        return uids[0] if len(uids) == len(found) == 1 else None

    until(170, "a pod of " + APP, lambda: one() is not None, 1)
    said: list[str] = []

    def speaks() -> bool:
        said[:] = lab.kubectl("logs", "-n", "default", "deployment/" + APP, check=False).stdout.splitlines()
        return bool(said)

    until(60, "words of " + APP, speaks, 1)
    assert len(said) == 1 and said[0].startswith("rebellions %s stand-in rbln" % version), said
    return str(one())


def of_node(lab: Lab, name: str) -> Data:
    """What the collection may change of a node, and its boot."""
    found = json.loads(lab.kubectl("get", "node", name, "-o", "json").stdout)
    meta, spec = found["metadata"], found["spec"]
    return {
        "labels": meta["labels"],
        "notes": {key: value for key, value in meta["annotations"].items() if key.startswith(OURS)},
        "cordoned": bool(spec.get("unschedulable")),
        "taints": [one["key"] for one in spec.get("taints", [])],
        "boot": found["status"]["nodeInfo"]["bootID"],
        "npus": found["status"]["allocatable"].get(RESOURCE),
    }


def rollout(part: Part, server: Server) -> None:
    lab, name = Lab(), server.name
    lab.kubectl("label", "node", name, LABEL + "=true", "--overwrite")
    lab.kubectl("taint", "node", name, LABEL + "=true:NoSchedule", "--overwrite")
    # Through apt, by the packages that are in the runfile: the module is then loaded by the change itself.
    how = {"rbln_driver_runfile_extract": ["--extract", "{directory}"]}
    wanted = inputs(NEW, rbln_driver_reboot="always", **how)
    first = ""
    try:
        with part.case("a node in service, with a pod that holds an NPU"):
            before = server.play("site", inputs(OLD)).good([name])
            server.works(OLD)
            lab.kubectl("apply", "-f", "-", stdin=WORKLOAD % {
                "app": APP, "node": name, "label": LABEL, "resource": RESOURCE,
            })  # fmt: skip
            first = running(lab, OLD)
            part.note = "site.yml %.0f s" % before.seconds
        with part.case("check mode names the pod, and touches nothing"):
            was = of_node(lab, name)
            told = server.play("upgrade", wanted, "--check").good([name]).out
            assert "default/%s-" % APP in told and "Rollout of 1 host in 1 wave" in told, told[-4000:]
            assert of_node(lab, name) == was and running(lab, OLD) == first
        with part.case("cordoned, pod evicted, module reloaded, rebooted, proven, uncordoned"):
            boot = server.vm.boot_id()
            with watched(name) as (nodes, its_pods), futures.ThreadPoolExecutor(1) as pool:
                loaded = pool.submit(server.sh, FIRST_SEEN % (OVER, NEW), PLAY_SECONDS)
                try:
                    run = server.play("upgrade", wanted)
                finally:
                    server.sh("touch " + OVER)
            part.note += ", upgrade.yml %.0f s" % run.seconds
            run.good([name])
            assert "Rollout: 1 done, 0 failed, 0 left as they are" in run.out
            change = run.one(CHANGE, name).data
            assert change["outcome"] == "upgraded" and "load" in [step["step"] for step in change["steps"]], change
            assert loaded.result().strip() == boot, "the module was not reloaded before the reboot"
            assert server.vm.boot_id() != boot, "it did not reboot"
            server.works(NEW)
            in_order(nodes.rows, its_pods.rows, first, WAY)
            assert in_service(lab, name)["boot"] == server.vm.boot_id()
            assert running(lab, NEW) != first
        with part.case("the second run touches nothing"):
            was, pod = of_node(lab, name), running(lab, NEW)
            server.play("upgrade", wanted).unchanged([name])
            assert of_node(lab, name) == was and running(lab, NEW) == pod
        way_back(part, server, inputs(FAULTY, rbln_driver_reboot="always", **how), wanted)
    finally:
        lab.kubectl("delete", "deployment", APP, "-n", "default", "--ignore-not-found", "--wait=false", check=False)
        lab.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false", check=False)


def way_back(part: Part, server: Server, bad: Data, good: Data) -> None:
    """From a node with the good driver in service to a bad one, and back."""
    lab, name = Lab(), server.name
    boot, loaded, pod = server.vm.boot_id(), server.real()["loaded"], running(lab, NEW)
    with part.case("a bad driver goes back by itself, and the node stays out of service with the reason"):
        with watched(name) as (nodes, its_pods):
            run = server.play("upgrade", bad)
        part.note += ", with a bad driver %.0f s" % run.seconds
        assert run.code == 2 and run.one(CHANGE, name).data["outcome"] == "rolled_back", run.code
        assert "stand-in %s: " % FAULTY in server.sh("journalctl -k -b --no-pager"), "it was never loaded"
        assert server.works(NEW)["real"]["loaded"] == loaded and server.vm.boot_id() == boot
        in_order(nodes.rows, its_pods.rows, pod, WAY_BACK)
        after = of_node(lab, name)
        assert after["cordoned"] and TAINT in after["taints"], after
        assert "rolled back: " in after["notes"][OURS + "reason"], after
        assert [one["spec"].get("nodeName") for one in pods(lab)] == [None]
    with part.case("the end has one message for it, with the next step"):
        texts = [one.msg for one in run.failed(name)]
        assert len(texts) == 1, texts
        judge(texts[0], "rolled back: ", "Driver %s works again" % NEW, TAINT)
    with part.case("the good version puts it back, with nothing reloaded"):
        with watched(name) as (nodes, _its_pods):
            server.play("upgrade", good).good([name])
        told = steps(nodes.rows)
        assert told[0].cells == (FAILED, "true") and HOST in [row.cells[0] for row in told], told
        assert [row.cells for row in told if row.cells[1] != "true"] == [(DONE, "")] == [told[-1].cells], told
        assert server.works(NEW)["real"]["loaded"] == loaded and server.vm.boot_id() == boot
        in_service(lab, name)
        assert running(lab, NEW) != pod


@contextlib.contextmanager
def watched(name: str) -> t.Iterator[tuple[Watch, Watch]]:
    """The node, and the pods of the workload."""
    nodes = Watch(["node", name], [".metadata.labels." + STATE.replace(".", "\\."), ".spec.unschedulable"])
    its_pods = Watch(["pod", "-l", "app=" + APP], [".metadata.uid", EVICTED])
    with contextlib.closing(nodes), contextlib.closing(its_pods):
        yield nodes, its_pods


def in_service(lab: Lab, name: str) -> Data:
    """The node, of which a rollout has left nothing."""
    now = of_node(lab, name)
    assert (now["npus"], now["cordoned"], TAINT in now["taints"]) == ("2", False, False), now
    left = {"cordoned", "former", "gates", "reason"} & {key.removeprefix(OURS) for key in now["notes"]}
    assert not left, now
    return now


def steps(rows: t.Sequence[Row]) -> list[Row]:
    """Each state of the node once, when it was first told."""
    told: list[Row] = []
    for row in rows:
        if not told or row.cells != told[-1].cells:
            told.append(row)
    return told


def in_order(nodes: t.Sequence[Row], its_pods: t.Sequence[Row], pod: str, way: t.Sequence[str]) -> None:
    """The node went this way, cordoned until it was done, and the pod was evicted on it."""
    told = steps(nodes)
    told = told[next(at for at, row in enumerate(told) if row.cells[0] == CORDON) :]
    assert [row.cells for row in told] == [(state, "" if state == DONE else "true") for state in way], told
    evicted = min(row.at for row in its_pods if row.cells == (pod, "EvictionByEvictionAPI"))
    _cordon, asked, begun, *_rest = (row.at for row in told)
    assert asked < evicted < begun, (asked, evicted, begun)
