# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the proof of rollouts works with: the run, the workloads, and what the API server tells meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import time
import typing as t

from tests.integration._hosts import Hosts
from tests.integration._play import (
    NAMESPACE_OF_TESTS,
    NODE_LABEL,
    RESOURCE,
    STAGED,
    Data,
    Run,
    command,
    parse,
    runfile,
)
from tests.lab import Lab, _control
from tests.lab._base import end, until
from tests.lab._go import program
from tests.lab._pki import KUBECONFIG

NAMESPACE = "rollout-work"
STATE = "rebellions.ai/npu-driver-upgrade-state"
TAINT = "rebellions.ai/npu-driver-upgrade-failed"
RECORD = ("-n", NAMESPACE_OF_TESTS, "configmap", "rbln-rollout")
CORDON, JOBS, PODS = "cordon-required", "wait-for-jobs-required", "pod-deletion-required"
HOST, RESTART, DONE, FAILED = "host-change-required", "pod-restart-required", "upgrade-done", "upgrade-failed"
WORKING = (CORDON, JOBS, PODS, HOST, RESTART)
# Seconds for which a run may go on, and for which a scene waits until it has come to a point.
LONGEST, POINT = 400, 180
# A shell that ends at once when it is asked to, and one that does not care.
IDLE = "trap exit TERM; sleep 86400 & wait"
DEAF = "trap '' TERM; while :; do sleep 1; done"


class Row(t.NamedTuple):
    """One line of a watch: when it came, and the columns."""

    at: float
    cells: tuple[str, ...]


class Watch:
    """What the API server tells of objects, in its order; goes on after the server was away."""

    def __init__(self, what: t.Sequence[str], columns: t.Sequence[str]) -> None:
        path = "|".join("{%s}" % column for column in columns) + '{"\\n"}'
        kubectl = str(program("kube") / "kubectl")
        self._argv = [kubectl, "--kubeconfig", str(KUBECONFIG), "get", *what, "--watch", "-o", "jsonpath=" + path]
        self.rows: list[Row] = []
        self._ended = False
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._ended:
            quiet = subprocess.DEVNULL
            self._process = subprocess.Popen(self._argv, stdout=subprocess.PIPE, stderr=quiet, text=True)
            assert self._process.stdout is not None
            for line in self._process.stdout:
                self.rows.append(Row(time.monotonic(), tuple(line.rstrip("\n").split("|"))))
            self._process.wait()
            time.sleep(0.2)

    def close(self) -> None:
        self._ended = True
        if self._process:
            end(t.cast("subprocess.Popen[bytes]", self._process))
        self._thread.join(10)


def cleared(lab: Lab) -> None:
    """Take the pods away: the next hosts with NPUs of this cluster would start them."""
    lab.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false", check=False)
    # Some ignore that they are to end.
    pods = ("pods", "--all", "-n", NAMESPACE, "--force", "--grace-period=0", "--ignore-not-found")
    lab.kubectl("delete", *pods, check=False, timeout=120)


class Nodes(t.Protocol):
    """What a run of the playbook is asked about its nodes."""

    def inventory(self, version: str, **more: t.Any) -> t.Any: ...

    def state(self, node: str) -> str: ...


class Rolling:
    """A run of the playbook upgrade that goes on while the test acts."""

    def __init__(self, field: Nodes, version: str, *args: str, **more: t.Any) -> None:
        self._field = field
        where = field.inventory(version, **more)
        argv, env = command("upgrade", where, *args)
        self._began = time.monotonic()
        # Two may go on at a time, each with an inventory of its own name.
        self._out, self._err = where.with_suffix(".out"), where.with_suffix(".err")
        with open(self._out, "wb") as out, open(self._err, "wb") as err:
            self.process = subprocess.Popen(
                argv, cwd=STAGED, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
            )

    @property
    def told(self) -> str:
        """What it has said so far to people, on one line."""
        return " ".join(self._err.read_text(errors="replace").split())

    def reaches(self, node: str, *states: str) -> None:
        """Wait until a node is in one of these states; an error when the run ends before."""

        def there() -> bool:
            found = self._field.state(node) in states
            assert found or self.process.poll() is None, "the run ended before %s was %s" % (node, states)
            return found

        until(POINT, "%s is %s" % (node, " or ".join(states)), there, 0.05)

    def says(self, text: str) -> None:
        """Wait until it tells people so; an error when it ends before."""

        def there() -> bool:
            found = text in self.told
            assert found or self.process.poll() is None, "the run ended before it said %r: %s" % (
                text,
                self.told[-800:],
            )
            return found

        until(POINT, "it says %r" % text, there, 0.2)

    def wait(self) -> Run:
        try:
            code = self.process.wait(LONGEST)
        except subprocess.TimeoutExpired:
            self.kill()
            code = 124
        return parse(code, self._out.read_text(), self._err.read_text(), time.monotonic() - self._began)

    def kill(self) -> None:
        """As the kernel does when the controller has no memory left: the run and its processes on this machine."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Field:
    """The nodes, their workloads, and all that was seen of them."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts, self.lab, self.names = hosts, hosts.lab, hosts.names
        self._workloads()
        label = r".metadata.labels.%s" % STATE.replace(".", "\\.")
        self.nodes = Watch(["nodes", "-l", NODE_LABEL + "=true"], [".metadata.name", label, ".spec.unschedulable"])
        self.pods = Watch(
            ["pods", "-n", NAMESPACE],
            [
                ".metadata.name",
                ".metadata.uid",
                ".metadata.deletionTimestamp",
                '.status.conditions[?(@.type=="DisruptionTarget")].reason',
            ],
        )
        self.web = Watch(["deployment", "web", "-n", NAMESPACE], [".status.availableReplicas"])
        self._mark = 0

    def close(self) -> None:
        for watch in (self.nodes, self.pods, self.web):
            watch.close()

    def inventory(self, version: str, **more: t.Any) -> t.Any:
        for host in self.names:
            self.hosts.state[host] = "dirty"
        own: Data = {
            **runfile(version),
            "rbln_driver_replace": True,
            "rbln_rollout_wait_selector": "job-kind=training",
            "rbln_rollout_wait_timeout": 120,
            "rbln_rollout_evict_timeout": 120,
            "rbln_rollout_return_timeout": 120,
        }
        return self.hosts.inventory(**{**own, **more})

    # -- what was seen of nodes since the mark

    def mark(self) -> None:
        self._mark = len(self.nodes.rows)

    def states(self, node: str) -> list[str]:
        """The states that a node has gone through, each once; empty for one that was left alone."""
        found = [next((row.cells[1] for row in reversed(self.nodes.rows[: self._mark]) if row.cells[0] == node), "")]
        for row in self.nodes.rows[self._mark :]:
            name, state, _closed = row.cells
            if name == node and state != found[-1]:
                found.append(state)
        return found[1:]

    def state(self, node: str) -> str:
        return next((row.cells[1] for row in reversed(self.nodes.rows) if row.cells[0] == node), "")

    def closed_together(self, *aside: str) -> int:
        """How many nodes were cordoned at a time, at most, without those that others have."""
        closed: set[str] = set()
        most = 0
        for number, row in enumerate(self.nodes.rows):
            name, _state, unschedulable = row.cells
            (closed.add if unschedulable == "true" else closed.discard)(name)
            if number >= self._mark:
                most = max(most, len(closed - set(aside)))
        return most

    def node(self, name: str) -> Data:
        return dict(json.loads(self.lab.kubectl("get", "node", name, "-o", "json", "--show-managed-fields").stdout))

    def is_cordoned(self, name: str) -> bool:
        return bool(self.node(name)["spec"].get("unschedulable"))

    def taints(self, name: str) -> list[str]:
        return [one["key"] for one in self.node(name)["spec"].get("taints") or []]

    def annotation(self, name: str, key: str) -> str:
        return str(self.node(name)["metadata"]["annotations"].get("rebellions.ai/npu-rollout." + key) or "")

    def loaded(self, name: str) -> str:
        return self.lab.exec(name, "cat /sys/module/rebellions/version 2>/dev/null || :").stdout.strip()

    def in_service(self, *names: str) -> None:
        """Nothing of a rollout is left on these nodes, and their NPUs are there."""
        offered = self.hosts.allocatable()
        for name in names:
            assert not self.is_cordoned(name) and TAINT not in self.taints(name), (name, self.taints(name))
            assert offered[name] == "2", offered
            meta = self.node(name)["metadata"]
            gates = {key: value for key, value in meta["labels"].items() if ".deploy." in key}
            assert gates and "false" not in gates.values(), gates
            left = [key for key in meta["annotations"] if key.rpartition(".")[2] in ("cordoned", "gates", "former")]
            assert left == [], left

    # -- what the API server counts

    def requests(self, resource: str, subresource: str, *verbs: str, code: str = "") -> int:
        """How many requests it has answered since it started."""
        total = 0
        for line in self.lab.kubectl("get", "--raw", "/metrics").stdout.splitlines():
            if line.startswith("apiserver_request_total{"):
                words = dict(re.findall(r'(\w+)="([^"]*)"', line))
                fits = (words["resource"], words["subresource"]) == (resource, subresource) and words["verb"] in verbs
                total += int(float(line.rsplit(" ", 1)[1])) if fits and code in ("", words["code"]) else 0
        return total

    def written(self) -> int:
        """Writes of nodes as such, which no kubelet does at rest."""
        return self.requests("nodes", "", "PATCH", "PUT", "APPLY", "UPDATE")

    @contextlib.contextmanager
    def away(self) -> t.Iterator[None]:
        """The API server is killed, and starts again at the end."""
        pid = _control.alive("kube-apiserver")
        assert pid
        os.kill(pid, signal.SIGKILL)
        try:
            yield
        finally:
            until(10, "the API server ended", lambda: _control.alive("kube-apiserver") is None, 0.1)
            _control.up()

    # -- workloads

    def apply(self, *items: Data) -> None:
        listed = {"apiVersion": "v1", "kind": "List", "items": list(items)}
        self.lab.kubectl("apply", "-f", "-", stdin=json.dumps(listed))

    def _workloads(self) -> None:
        """Each lands on a node of its own choice: the others are cordoned meanwhile, by a person.

        The first node has two pods under one budget and a pod without NPU; the second a Job with an NPU; the last one
        a pod whose sidecar has the NPU, and a StatefulSet.
        """
        first, second, last = self.names[0], self.names[1], self.names[-1]
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        until(30, "the account", lambda: not self.lab.kubectl(
            "get", "serviceaccount", "default", "-n", NAMESPACE, check=False).returncode)  # fmt: skip
        probe = {"exec": {"command": ["true"]}, "initialDelaySeconds": 2, "periodSeconds": 1}
        web = {"matchLabels": {"app": "web"}}
        self._land(
            first,
            3,
            workload("Deployment", "web", 1, {"readinessProbe": probe}, replicas=2),
            thing("policy/v1", "PodDisruptionBudget", "web", {"maxUnavailable": 1, "selector": web}),
            thing("v1", "Pod", "lone", pod(0)),
        )
        train = pod(1, line="until test -e /tmp/end; do sleep 0.2; done", restartPolicy="Never")
        self._land(
            second,
            4,
            thing("batch/v1", "Job", "train", {"template": {"metadata": {"labels": {"job-kind": "training"}},
                                                            "spec": train}}),
        )  # fmt: skip
        # Two nodes have no room for these, too.
        npus = 1 if len(self.names) > 2 else 0
        deaf = box("deaf", npus, DEAF, {"restartPolicy": "Always"})
        self._land(
            last,
            6,
            workload("Deployment", "stubborn", 0, {}, initContainers=[deaf], terminationGracePeriodSeconds=5),
            workload("StatefulSet", "store", npus, {}),
        )
        self.apply(workload("Deployment", "plain", 0, {}, replicas=2), workload("DaemonSet", "agent", 0, {}))
        self.all_run()

    def _land(self, node: str, total: int, *items: Data) -> None:
        others = [name for name in self.names if name != node]
        self.lab.kubectl("cordon", *others)
        try:
            self.apply(*items)
            until(30, "%d pods have a node" % total, lambda: self._placed() >= total, 0.2)
        finally:
            self.lab.kubectl("uncordon", *others)

    def _placed(self) -> int:
        return sum(1 for one in self.listed() if one["spec"].get("nodeName"))

    def listed(self) -> list[Data]:
        return list(json.loads(self.lab.kubectl("get", "pods", "-n", NAMESPACE, "-o", "json").stdout)["items"])

    def by_name(self, *starts: str) -> dict[str, str]:
        """{uid: node} of pods whose names start so."""
        return {
            one["metadata"]["uid"]: one["spec"].get("nodeName", "")
            for one in self.listed()
            if one["metadata"]["name"].startswith(starts)
        }

    def all_run(self) -> None:
        """Every pod that has not ended is ready, and as many as were asked for."""

        def ready() -> bool:
            pods = [one for one in self.listed() if one["status"].get("phase") not in ("Succeeded", "Failed")]
            told = [
                not one["metadata"].get("deletionTimestamp")
                and any(at["type"] == "Ready" and at["status"] == "True" for at in one["status"].get("conditions", []))
                for one in pods
            ]
            # web 2, stubborn, store, plain 2, lone, and one agent for each node.
            return len(told) >= 7 + len(self.names) and all(told)

        until(90, "all pods are ready", ready)

    def end_job(self) -> None:
        name = next(one["metadata"]["name"] for one in self.listed() if one["metadata"]["name"].startswith("train"))
        self.lab.kubectl("exec", "-n", NAMESPACE, name, "--", "touch", "/tmp/end")

    def gone(self) -> dict[str, set[str]]:
        """{name of a pod: why the API server has ended it}, of pods that were deleted."""
        found: dict[str, set[str]] = {}
        for row in self.pods.rows:
            name, _uid, deleted, reason = row.cells
            if deleted:
                found.setdefault(name, set()).add(reason)
        return found

    def least_web(self) -> int:
        """The least number of replicas of the budget's pods that were available, once all had been."""
        seen = [int(row.cells[0] or 0) for row in self.web.rows]
        return min(seen[seen.index(2) :])


def box(name: str, npus: int, line: str, more: t.Mapping[str, t.Any]) -> Data:
    return {
        "name": name,
        "image": "lab.local/busybox:1",
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", line],
        **({"resources": {"limits": {RESOURCE: npus}}} if npus else {}),
        **more,
    }


def pod(npus: int, container: t.Mapping[str, t.Any] | None = None, line: str = IDLE, **more: t.Any) -> Data:
    return {
        "nodeSelector": {NODE_LABEL: "true"},
        "tolerations": [{"key": NODE_LABEL, "operator": "Exists"}],
        "containers": [box("main", npus, line, container or {})],
        **more,
    }


def thing(version: str, kind: str, name: str, spec: Data) -> Data:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def workload(
    kind: str, name: str, npus: int, container: t.Mapping[str, t.Any], replicas: int = 1, **more: t.Any
) -> Data:
    template = {"metadata": {"labels": {"app": name}}, "spec": pod(npus, container, **more)}
    spec: Data = {"selector": {"matchLabels": {"app": name}}, "template": template}
    if kind != "DaemonSet":
        spec["replicas"] = replicas
    if kind == "StatefulSet":
        spec["serviceName"] = name
    return thing("apps/v1", kind, name, spec)
