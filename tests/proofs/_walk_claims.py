# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rollout of a node whose NPUs are given by claims.

The pod with a claim is evicted, and the node is back only when its devices are in its ResourceSlices again.
"""

from __future__ import annotations

import contextlib
import json
import time
import typing as t

from tests.integration._play import NODE_LABEL, Data, runfile
from tests.lab._base import until
from tests.proofs._proof import Part
from tests.proofs._rollout_lab import (
    CORDON,
    DONE,
    HOST,
    PODS,
    RESTART,
    STATE,
    TAINT,
    Rolling,
    Watch,
    box,
    pod,
)
from tests.proofs._walk import BARE, BY_DRA, DRA, NEW, OLD, OWN, Walk, claim_template, slices_of

APP = "keeps-claim"
HELD = "walk-no-slices"
# A shell that keeps its device open: with it in use the driver cannot be changed.
LINE = "trap exit TERM; for d in /dev/rbln*; do exec 9<$d; done; rbln-smi --version; sleep 86400 & wait"
EVICTED = '.status.conditions[?(@.type=="DisruptionTarget")].reason'


class Claimed:
    """The node, its pods, and runs of the playbook upgrade on it."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        label = ".metadata.labels." + STATE.replace(".", "\\.")
        columns = [".metadata.name", label, ".spec.unschedulable"]
        self.nodes = Watch(["nodes", "-l", NODE_LABEL + "=true"], columns)
        self.pods = Watch(["pod", "-l", "app=" + APP], [".metadata.uid", EVICTED])

    def close(self) -> None:
        self.nodes.close()
        self.pods.close()

    def inventory(self, version: str, **more: t.Any) -> t.Any:
        self._walk.own = {**runfile(version), "rbln_driver_replace": True}
        return self._walk.where(NEW, **BY_DRA, **more)

    def states(self, node: str) -> list[tuple[str, str]]:
        """(state, cordoned) that a node has gone through, each once."""
        rows = [row.cells[1:] for row in self.nodes.rows if row.cells[0] == node]
        return [(row[0], row[1]) for at, row in enumerate(rows) if not at or row != rows[at - 1]]

    def state(self, node: str) -> str:
        return next((row.cells[1] for row in reversed(self.nodes.rows) if row.cells[0] == node), "")


def running(walk: Walk, version: str) -> str:
    """The uid of the pod with the claim, which runs and sees a driver of this version."""
    found: list[Data] = []

    def one() -> bool:
        listed = walk.lab.kubectl("get", "pod", "-n", "default", "-l", "app=" + APP, "-o", "json").stdout
        found[:] = [one for one in json.loads(listed)["items"] if "deletionTimestamp" not in one["metadata"]]
        return [one["status"].get("phase") for one in found] == ["Running"]

    def said() -> list[str]:
        return walk.lab.kubectl("logs", "-n", "default", "deployment/" + APP, check=False).stdout.split()

    until(90, "a pod of " + APP, one, 0.5)
    until(30, "words of " + APP, lambda: bool(said()), 0.5)
    assert said()[-1] == version, said()
    return str(found[0]["metadata"]["uid"])


def devices(walk: Walk, node: str) -> int:
    return sum(len(one["spec"]["devices"]) for one in slices_of(walk) if one["spec"]["nodeName"] == node)


@contextlib.contextmanager
def no_new_slice(walk: Walk, node: str) -> t.Iterator[None]:
    """The API server takes no new ResourceSlice of a node."""
    rules = {"apiGroups": ["resource.k8s.io"], "apiVersions": ["*"], "resources": ["resourceslices"]}
    expression, why = "object.spec.nodeName != '%s'" % node, "no slice is taken now"
    policy, meta = {"apiVersion": "admissionregistration.k8s.io/v1"}, {"metadata": {"name": HELD}}
    items: list[Data] = [
        {
            **policy,
            **meta,
            "kind": "ValidatingAdmissionPolicy",
            "spec": {
                "matchConstraints": {"resourceRules": [{**rules, "operations": ["CREATE"]}]},
                "validations": [{"expression": expression, "message": why}],
            },
        },
        {
            **policy,
            **meta,
            "kind": "ValidatingAdmissionPolicyBinding",
            "spec": {"policyName": HELD, "validationActions": ["Deny"]},
        },
    ]
    probe = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": HELD},
        "spec": {"driver": DRA, "nodeName": node, "pool": {"name": HELD, "generation": 1, "resourceSliceCount": 1}},
    }

    def holds() -> bool:
        dry = walk.lab.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(probe), check=False)
        return why in dry.stderr

    listed = {"apiVersion": "v1", "kind": "List", "items": items}
    walk.lab.kubectl("create", "-f", "-", stdin=json.dumps(listed))
    try:
        until(30, "the policy", holds, 0.5)
        yield
    finally:
        walk.lab.kubectl("delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", HELD)


def rollout(part: Part, walk: Walk) -> None:
    first = ""
    with part.case("a pod has a device by its claim"):
        walk.site(NEW, **BY_DRA).good([OWN, BARE])
        claims = {"resourceClaims": [{"name": "npu", "resourceClaimTemplateName": APP}]}
        holder = box("main", 0, LINE, {"resources": {"claims": [{"name": "npu"}]}})
        spec = {**pod(0), **claims, "containers": [holder], "nodeSelector": {"kubernetes.io/hostname": OWN}}
        labels = {"app": APP}
        deployment = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": APP},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        }
        both = {"apiVersion": "v1", "kind": "List", "items": [claim_template(APP), deployment]}
        walk.lab.kubectl("create", "-n", "default", "-f", "-", stdin=json.dumps(both))
        first = running(walk, OLD)
    try:
        with contextlib.closing(Claimed(walk)) as claimed:
            upgraded(part, walk, claimed, first)
    finally:
        walk.lab.kubectl("delete", "-n", "default", "deployment,resourceclaimtemplate", APP, "--wait=true")


def upgraded(part: Part, walk: Walk, claimed: Claimed, first: str) -> None:
    with part.case("it is evicted, and its node is not back before its devices are in its ResourceSlices"):
        with no_new_slice(walk, OWN):
            rolling = Rolling(claimed, NEW)
            # The DRA driver has left by then. Its kubelet would take its slices away a little later.
            rolling.reaches(OWN, HOST)
            names = [one["metadata"]["name"] for one in slices_of(walk) if one["spec"]["nodeName"] == OWN]
            for name in names:
                walk.lab.kubectl("delete", "resourceslice", name, "--ignore-not-found")
            rolling.reaches(OWN, RESTART)
            until(90, "the DRA driver is ready", lambda: "dra-driver" in walk.ready(OWN))
            why = "0 devices in the ResourceSlices of %s, 2 expected" % DRA
            until(60, why, lambda: why in rolling.told)
            assert claimed.states(OWN)[-1] == (RESTART, "true") and devices(walk, OWN) == 0, claimed.states(OWN)
            assert rolling.process.poll() is None
            held = time.monotonic()
        run = rolling.wait().good([OWN, BARE])
        part.note = "upgrade.yml %.0f s" % run.seconds
        way = claimed.states(OWN)
        way = way[way.index((CORDON, "true")) :]
        assert way == [*((state, "true") for state in (CORDON, PODS, HOST, RESTART)), (DONE, "")], way
        at = {row.cells[1]: row.at for row in reversed(claimed.nodes.rows) if row.cells[0] == OWN}
        evicted = [row.at for row in claimed.pods.rows if row.cells == (first, "EvictionByEvictionAPI")]
        assert at[PODS] < evicted[0] < at[HOST] and at[DONE] > held, (at, evicted, held)
    with part.case("it is in service with the new driver, and its pod has its device again"):
        node = json.loads(walk.lab.kubectl("get", "node", OWN, "-o", "json").stdout)["spec"]
        assert not node.get("unschedulable") and TAINT not in [one["key"] for one in node["taints"]], node
        assert walk.loaded(OWN) == NEW and devices(walk, OWN) == 2
        assert running(walk, NEW) != first
    with part.case("the node whose driver is in containers was not touched"):
        assert claimed.states(BARE) == [("", "")], claimed.states(BARE)
    with part.case("the second run changes nothing"):
        Rolling(claimed, NEW).wait().unchanged([OWN, BARE])
