# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A virtual machine as a node of the lab's cluster.

site.yml takes it from nothing to allocatable NPUs, and a pod opens a device of the loaded module.
"""

from __future__ import annotations

import typing as t

from tests.integration._driver import OLD
from tests.integration._play import CLUSTER, RESOURCE, Data
from tests.lab import Lab
from tests.proofs._proof import Part
from tests.vm._server import Server, debian

NAMESPACE = "rbln-vm"
LABEL = "npu-lab/vm"
POD = """apiVersion: v1
kind: Pod
metadata: {name: opens-npu, namespace: default}
spec:
  nodeSelector: {kubernetes.io/hostname: %(node)s}
  tolerations: [{key: %(label)s, operator: Exists}]
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers:
    - name: look
      image: lab.local/busybox:1
      imagePullPolicy: IfNotPresent
      command:
        - sh
        - -c
        - "for d in /dev/rbln[0-9]*; do head -n 1 $d; ls -l $d; done; grep -o ' /[^ ]*librbln-[^ ]*' /proc/mounts"
      resources: {limits: {%(resource)s: 1}}
"""


def inputs(version: str, **more: t.Any) -> Data:
    cluster = {
        **CLUSTER,
        "rbln_namespace": NAMESPACE,
        "rbln_operands_node_selector": {LABEL: "true"},
        "rbln_operands_tolerations": [{"key": LABEL, "operator": "Exists"}],
        "rbln_operands_wait_timeout": 300,
    }
    return {
        **debian(version),
        **cluster,
        "rbln_container_toolkit_no_runtime": "fail",
        "rbln_container_toolkit_hooks": "auto",
        **more,
    }


def node(part: Part, server: Server) -> None:
    lab, name = Lab(), server.name
    lab.kubectl("label", "node", name, LABEL + "=true", "--overwrite")
    lab.kubectl("taint", "node", name, LABEL + "=true:NoSchedule", "--overwrite")
    try:
        with part.case("site.yml installs the driver, and the NPUs are allocatable"):
            run = server.play("site", inputs(OLD)).good([name])
            server.works(OLD)
            assert lab.nodes()[name]["allocatable"].get(RESOURCE) == "2", lab.nodes()[name]
            part.note = "site.yml %.0f s" % run.seconds
        with part.case("a pod opens one device of the loaded module, and no other"):
            major = server.real()["majors"][0]
            lab.kubectl("delete", "pod", "opens-npu", "--ignore-not-found", "--wait=true")
            lab.kubectl("apply", "-f", "-", stdin=POD % {"node": name, "label": LABEL, "resource": RESOURCE})
            lab.kubectl(
                "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/opens-npu", "--timeout=170s", timeout=180
            )
            lines = lab.kubectl("logs", "opens-npu").stdout.splitlines()
            assert lines[0].startswith("rebellions %s stand-in rbln" % OLD) and " %s, " % major in lines[1], lines
            assert sum(line.startswith("rebellions ") for line in lines) == 1 and any(
                "librbln-" in line for line in lines
            ), lines
        with part.case("the second run changes nothing"):
            server.play("site", inputs(OLD)).unchanged([name])
        with part.case("remove takes labels, objects and driver back"):
            server.play("remove", inputs(OLD)).good([name])
            state = server.seen()
            assert (state["packages"], state["loaded"], state["state"]) == ({}, None, None), state
    finally:
        lab.kubectl("delete", "pod", "opens-npu", "--ignore-not-found", "--wait=false", check=False)
        lab.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false", check=False)
